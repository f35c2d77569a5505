//! The effects in the world: for each call that writes, when its effect lands and what removed it.
//! The world keeps this ledger, outside the machine; at the end it is compared with the run's
//! report. An effect may land long after its call was abandoned, and without any answer.

use segue_core::run::{Answer, Call, CallId, Entry, Fact, NodeId, Purpose};

use crate::story::{Story, Word};
use crate::trace::Trace;

/// One effect: of the step's own work, or of its rollback.
#[derive(Clone, Debug)]
pub(crate) struct Landing {
    pub(crate) call: CallId,
    pub(crate) purpose: Purpose,
    /// When it lands, in time that only counts.
    pub(crate) at: u64,
}

/// Every effect of a run.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    landings: Vec<Landing>,
    /// Whether people and probes know it; otherwise it says nothing.
    pub(crate) is_kept: bool,
}

impl Ledger {
    pub(crate) fn new(is_kept: bool) -> Ledger {
        Ledger { landings: Vec::new(), is_kept }
    }

    /// A call left, and this is when its effect lands.
    pub(crate) fn expect(&mut self, call: &Call, at: u64) {
        self.landings.push(Landing { call: call.id, purpose: call.purpose, at });
    }

    /// Whether the effect of a call is there already.
    pub(crate) fn has_landed(&self, call: CallId, now: u64) -> bool {
        self.landings.iter().any(|landing| landing.call == call && landing.at <= now)
    }

    /// A call was stopped in time: an effect that had not landed never does.
    pub(crate) fn stop(&mut self, call: CallId, now: u64) {
        self.landings.retain(|landing| landing.call != call || landing.at <= now);
    }

    /// A call returned a value of which the author says that nothing was done, so nothing is.
    pub(crate) fn disown(&mut self, word: &Word, entries: &[Entry]) {
        let Word::Answered(call, Answer::Value(_)) = word else { return };
        let is_disowned = entries.iter().any(|entry| {
            matches!(&entry.fact, Fact::BackedOff { node, failure, .. }
                | Fact::GaveUp { node, failure }
                | Fact::Tolerated { node, failure, .. }
                | Fact::Failed { node, failure } if *node == call.node && !failure.acted)
        });
        if is_disowned {
            self.landings.retain(|landing| landing.call != *call);
        }
    }

    /// How long until the work of a step is done, if ever: what a careful observer finds out.
    pub(crate) fn done_in(&self, node: NodeId, now: u64) -> Option<u64> {
        self.of(node).map(|landing| landing.at.saturating_sub(now)).min()
    }

    fn of(&self, node: NodeId) -> impl Iterator<Item = &Landing> {
        let work = self.landings.iter().filter(|landing| landing.purpose == Purpose::Work);
        work.filter(move |landing| landing.call.node == node)
    }
}

/// The ledger at the end of a story.
pub(crate) struct Account<'a> {
    story: &'a Story,
    trace: &'a Trace,
}

impl<'a> Account<'a> {
    pub(crate) fn new(story: &'a Story, trace: &'a Trace) -> Account<'a> {
        Account { story, trace }
    }

    /// When the work of a step first landed. Repeated work has the same key, and is done once.
    pub(crate) fn landed(&self, node: NodeId) -> Option<u64> {
        self.story.ledger.of(node).map(|landing| landing.at).min()
    }

    /// Whether the work of a step landed and nothing took it away afterwards.
    pub(crate) fn stands(&self, node: NodeId) -> bool {
        let Some(landed) = self.landed(node) else { return false };
        let rollbacks = &self.story.ledger.landings;
        let mut rollbacks = rollbacks.iter().filter(|landing| landing.purpose == Purpose::Rollback);
        !rollbacks.any(|rollback| rollback.at >= landed && self.covers(rollback.call.node, node))
    }

    /// Whether rolling one step back removes the work of another: its own, or a step inside.
    fn covers(&self, rolled_back: NodeId, node: NodeId) -> bool {
        let inside = |frame: &u32| self.trace.is_inside(node.frame, *frame);
        rolled_back == node || self.trace.children(rolled_back).last().is_some_and(inside)
    }
}
