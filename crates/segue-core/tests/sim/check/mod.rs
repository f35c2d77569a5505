//! What must hold of every story, one function for each promise, named as in the manual of
//! reliability: J journal, E steps, S rollback, C cancelling and time, A approvals.

mod against_model;
mod effects;
mod journal;
mod rollback;
mod steps;
mod time;

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::composition::StepKind;
use segue_core::run::{Entry, Fact, NodeId};
use segue_core::tool::ToolSpec;

use crate::model::Verdict;
use crate::story::Story;
use crate::trace::{Trace, settles};

/// A story, its frames and what the model makes of it.
pub(crate) struct Evidence<'a> {
    pub(crate) story: &'a Story,
    pub(crate) trace: &'a Trace,
    pub(crate) verdict: &'a Verdict,
}

/// A violation, or nothing.
pub(crate) type Finding = Result<(), String>;

/// A promise: its name and the function that checks it.
pub(crate) type Promise = (&'static str, fn(&Evidence<'_>) -> Finding);

/// Fails with a message unless a condition holds.
macro_rules! demand {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use demand;

/// Every promise that can be checked by looking at one story.
pub(crate) const PROMISES: &[Promise] = &[
    ("J2", journal::j2_no_gap_and_no_reorder),
    ("J3", journal::j3_replay_is_the_run),
    ("J6", journal::j6_the_end_is_the_end),
    ("J10", journal::j10_every_run_ends),
    ("E1", steps::e1_settled_is_settled),
    ("E2", steps::e2_announced_before_done),
    ("E3", steps::e3_needs_come_first),
    ("E4", against_model::e4_arguments_are_what_they_mean),
    ("E5", steps::e5_arguments_are_rendered_once),
    ("E6", steps::e6_attempts_are_bounded),
    ("E7", steps::e7_keys),
    ("E8", steps::e8_late_answers_change_nothing),
    ("E9", steps::e9_never_more_than_allowed),
    ("E11", steps::e11_loops_are_bounded_first),
    ("E12", steps::e12_failures_are_no_values),
    ("S1", rollback::s1_rolled_back_or_named),
    ("S1", effects::s1_no_effect_stands_unnamed),
    ("S2", rollback::s2_dependants_first),
    ("S3", rollback::s3_reverse_order),
    ("S4", rollback::s4_not_while_something_runs),
    ("S4", effects::s4_no_write_is_abandoned),
    ("S5", rollback::s5_nothing_starts_after_a_stop),
    ("S6", rollback::s6_only_what_began),
    ("S7", rollback::s7_once),
    ("S8", against_model::s8_rollback_gets_its_own_values),
    ("S9", rollback::s9_what_cannot_be_rolled_back_is_not),
    ("S10", rollback::s10_cancel_does_not_stop_it),
    ("S11", rollback::s11_one_failure_does_not_stop_the_rest),
    ("S12", rollback::s12_first_cause_and_all_that_is_left),
    ("S13", against_model::s13_nested_compositions),
    ("S14", against_model::s14_items_of_loops),
    ("S15", against_model::s15_doubt_is_doubt),
    ("S15", effects::s15_the_run_says_what_the_world_has),
    ("S16", rollback::s16_who_said_so),
    ("C1", time::c1_nothing_starts_after_cancel),
    ("C2", time::c2_cancel_ends_it_soon),
    ("C3", time::c3_timers_are_not_early),
    ("C6", time::c6_rests_are_within_their_cap),
    ("C7", time::c7_retry_after_is_honoured),
    ("A1", time::a1_no_call_without_its_yes),
    ("A4", time::a4_one_answer_wins),
    ("MODEL", against_model::the_model_agrees),
];

impl Evidence<'_> {
    fn journal(&self) -> &[Entry] {
        &self.story.journal
    }

    fn path(&self, node: NodeId) -> String {
        self.trace.path(node)
    }

    /// The tool that a step called last.
    fn tool(&self, node: NodeId) -> Arc<ToolSpec> {
        let step = self.trace.step(node);
        let candidate = self.verdict.ends.get(&node).map_or(0, |ended| ended.candidate);
        let call = match (&step.kind, candidate) {
            (StepKind::Tool(call), 0) => call,
            (_, fallback) => &step.fallback[usize::from(fallback) - 1],
        };
        call.tool.clone().unwrap()
    }

    /// Where each step was settled.
    fn settled(&self) -> BTreeMap<NodeId, u64> {
        let mut settled = BTreeMap::new();
        for entry in self.journal() {
            if let (true, Some(node)) = (settles(&entry.fact), crate::trace::node_of(&entry.fact)) {
                settled.entry(node).or_insert(entry.seq);
            }
        }
        settled
    }
}

/// Whether a fact starts something in forward execution.
fn begins(fact: &Fact) -> Option<NodeId> {
    match fact {
        Fact::Opened { node, .. }
        | Fact::Entered { node, .. }
        | Fact::Looped { node, .. }
        | Fact::Asked { node, .. }
        | Fact::Called { node, .. }
        | Fact::Expanding { node, .. }
        | Fact::Slept { node, .. } => Some(*node),
        _ => None,
    }
}
