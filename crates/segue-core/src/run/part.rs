//! Runs of a part of a composition: which of its own steps a run performs.
//!
//! The choice is made once, before the run starts, and recorded in its first turn: a step that the
//! run does not perform gets its value there, or is left out. From then on it is a run like every
//! other. Steps inside other steps, and chains, whose path depends on their steps, have no parts.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Run;
use super::advance::{StepResult, TurnBuilder, tool_spec};
use super::journal::{Fact, Failure, NodeId, Started};
use super::node::NodeState;
use super::rerun::{ReusedStep, downstream};
use super::state::RunState;
use crate::compile::{note_ast, note_reads};
use crate::composition::{Flow, Step, StepKind};
use crate::diagnostic::{Code, nearest_name};
use crate::expr::StepIndex;
use crate::limits::Limits;
use crate::plan::Plan;
use crate::value::{Map, Shared, Value};
use crate::view::{ErrorView, PerformedPart, StepOrigin};

/// A step whose value is given instead of calling its tool.
#[derive(Clone, Debug)]
pub struct PinnedStep {
    /// The step's position among the composition's own.
    pub position: u32,
    /// Its value.
    pub output: Value,
}

/// The part of a composition that a caller asks for.
#[derive(Clone, Copy)]
pub enum PartTarget<'a> {
    /// Every step.
    Whole,
    /// A step, and every step that it depends on.
    Until(&'a str),
    /// One step, on values of an earlier run.
    Only {
        /// The step.
        step: &'a str,
        /// The earlier run, of the same composition.
        earlier: &'a Run,
    },
}

/// What a run does with the composition's own steps. By default it performs all of them.
#[derive(Clone, Debug, Default)]
pub struct StepSelection {
    /// What the journal and the view say of it.
    pub part: Option<PerformedPart>,
    /// Steps with the value of an earlier run.
    pub reused: Vec<ReusedStep>,
    /// Steps whose value is given.
    pub pinned: Vec<PinnedStep>,
    /// Positions of the steps that are left out.
    pub left_out: Vec<u32>,
}

impl StepSelection {
    /// Selects the steps of a run, with values for some of them by id; or every reason why it cannot
    /// be run so.
    pub fn new(
        plan: &Plan,
        target: PartTarget<'_>,
        pinned: &[(Arc<str>, Value)],
        limits: &Limits,
    ) -> Result<StepSelection, Vec<ErrorView>> {
        if matches!(target, PartTarget::Whole) && pinned.is_empty() {
            return Ok(StepSelection::default());
        }
        if plan.bodies[0].flow == Flow::Program {
            let message = "a chain runs as a whole: its path depends on the results of its steps";
            let help = Some("leave out `until`, `only` and `mocks`".to_owned());
            return Err(vec![ErrorView::check(Code::InvalidField, message, help)]);
        }
        let parts = Parts { plan, pinned: find_pinned(plan, pinned, limits)? };
        let selection = match target {
            PartTarget::Whole => Ok(parts.whole()),
            PartTarget::Until(step) => parts.until(step),
            PartTarget::Only { step, earlier } => parts.only(step, earlier),
        };
        let selection = selection.map_err(|error| vec![*error])?;
        parts.check_inner_reads(&selection).map_err(|error| vec![*error])?;
        Ok(selection)
    }

    /// The values of an earlier run, for a run that performs all other steps.
    pub fn reusing(plan: &Plan, reused: Vec<ReusedStep>) -> StepSelection {
        let pinned = reused.iter().filter(|step| step.is_pinned);
        let ids = pinned.map(|step| plan.own_step(step.position).step.id.clone());
        let pinned: Vec<_> = ids.collect();
        let part =
            (!pinned.is_empty()).then(|| PerformedPart { pinned, ..PerformedPart::default() });
        StepSelection { part, reused, ..StepSelection::default() }
    }

    /// Asks a person anew where the earlier run did: an approval is for the data that it was given for.
    /// A run of one step asks only what that step depends on.
    pub fn ask_anew(&mut self, plan: &Plan) {
        let is_approval = |step: &ReusedStep| {
            matches!(plan.own_step(step.position).step.kind, StepKind::Approve { .. })
        };
        let (asked, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.reused).into_iter().partition(is_approval);
        self.reused = kept;
        let Some(only) = self.part.as_ref().and_then(|part| part.only.clone()) else { return };
        for ReusedStep { position, .. } in asked {
            let mut after = (0..).zip(downstream(plan, position as usize));
            if !after.any(|(at, is_after)| is_after && plan.own_step(at).step.id == only) {
                self.left_out.push(position);
            }
        }
        self.left_out.sort_unstable();
    }

    /// Whether the run performs the composition's own step at a position.
    pub fn performs(&self, position: u32) -> bool {
        !self.left_out.contains(&position)
            && !self.reused.iter().any(|step| step.position == position)
            && !self.pinned.iter().any(|step| step.position == position)
    }
}

type PartResult<T> = Result<T, Box<ErrorView>>;

fn refused<T>(code: Code, message: String, help: Option<String>) -> PartResult<T> {
    Err(Box::new(ErrorView::check(code, message, help)))
}

/// A plan and the pinned values, by position.
struct Parts<'a> {
    plan: &'a Plan,
    pinned: Vec<Option<Value>>,
}

impl Parts<'_> {
    fn whole(&self) -> StepSelection {
        let performed = vec![true; self.pinned.len()];
        self.selection(PerformedPart::default(), &performed, Vec::new())
    }

    fn until(&self, id: &str) -> PartResult<StepSelection> {
        let end = self.target(id)?;
        let mut needed = vec![false; self.pinned.len()];
        let mut work = vec![end];
        while let Some(at) = work.pop() {
            // What only a pinned step needs is not needed.
            if !std::mem::replace(&mut needed[at], true) && self.pinned[at].is_none() {
                work.extend(self.step(at).needs.iter().map(|need| need.position));
            }
        }
        let part = PerformedPart { until: Some(id.into()), ..PerformedPart::default() };
        Ok(self.selection(part, &needed, Vec::new()))
    }

    fn only(&self, id: &str, earlier: &Run) -> PartResult<StepSelection> {
        let only = self.target(id)?;
        let after = downstream(self.plan, only);
        let mut wanted = vec![false; self.pinned.len()];
        wanted[only] = true;
        let mut reused = Vec::new();
        for at in (0..wanted.len()).filter(|at| !after[*at]) {
            let need = self.step(only).needs.iter().find(|need| need.position == at);
            let is_pinned = self.pinned[at].is_some();
            match earlier.earlier_value(self.plan, at) {
                _ if is_pinned => wanted[at] = true,
                Ok(step) => {
                    wanted[at] = true;
                    reused.push(step);
                }
                Err(EarlierValue::SkippedByCondition)
                    if need.is_some_and(|need| !need.reads_value) => {}
                Err(why) if need.is_some() => {
                    let needed = &self.step(at).id;
                    let run = earlier.run_id();
                    let (code, help) = match why {
                        EarlierValue::NotStored => {
                            (Code::PolicyViolation, format!("`until: {id}` calls it again"))
                        }
                        _ => (
                            Code::UnresolvedReference,
                            format!("use a run in which `{needed}` succeeded, or `until: {id}`"),
                        ),
                    };
                    let message = format!(
                        "`{id}` needs `{needed}`, which has no value in run `{run}`: {}",
                        why.reason()
                    );
                    return refused(code, message, Some(help));
                }
                Err(_) => {}
            }
        }
        let run = Some(earlier.run_id().into());
        let part = PerformedPart { only: Some(id.into()), run, ..PerformedPart::default() };
        Ok(self.selection(part, &wanted, reused))
    }

    /// The selection that leaves out every step that is not `wanted`.
    fn selection(
        &self,
        mut part: PerformedPart,
        wanted: &[bool],
        reused: Vec<ReusedStep>,
    ) -> StepSelection {
        let mut selection = StepSelection { reused, ..StepSelection::default() };
        for (at, position) in (0..).enumerate().take(wanted.len()) {
            match &self.pinned[at] {
                _ if !wanted[at] => selection.left_out.push(position),
                Some(output) => {
                    part.pinned.push(self.step(at).id.clone());
                    selection.pinned.push(PinnedStep { position, output: output.clone() });
                }
                None => {}
            }
        }
        let taken_over = selection.reused.iter().filter(|step| step.is_pinned);
        part.pinned.extend(taken_over.map(|step| self.step(step.position as usize).id.clone()));
        selection.part = Some(part);
        selection
    }

    /// The position of the step that a part ends with.
    fn target(&self, id: &str) -> PartResult<usize> {
        let at = find_step(self.plan, id)?;
        if self.pinned[at].is_some() {
            let message = format!("the output of `{id}` is given, so the run would not perform it");
            let help = Some(format!("leave `{id}` out of `mocks`"));
            return refused(Code::InvalidField, message, help);
        }
        Ok(at)
    }

    /// Refuses a run in which a step, or the output, reads a step inside one whose value is given:
    /// only the value of the outer step is there.
    fn check_inner_reads(&self, selection: &StepSelection) -> PartResult<()> {
        for planned in &self.plan.steps {
            let own = self.plan.own_position(planned);
            if selection.performs(own) {
                let mut read = BTreeSet::new();
                note_reads(&planned.step, &mut read);
                let reader = &self.plan.own_step(own).step.id;
                self.check_reads(&format!("`{reader}`"), &read, selection)?;
            }
        }
        let output = self.plan.composition.output.as_ref();
        if let Some(output) = output.filter(|_| selection.left_out.is_empty()) {
            let mut read = BTreeSet::new();
            output.exprs(&mut |expr| note_ast(expr.ast(), &mut read));
            self.check_reads("the output", &read, selection)?;
        }
        Ok(())
    }

    fn check_reads(
        &self,
        reader: &str,
        read: &BTreeSet<StepIndex>,
        selection: &StepSelection,
    ) -> PartResult<()> {
        for index in read {
            let planned = self.plan.step(*index);
            let own = self.plan.own_position(planned);
            if planned.body != 0 && !selection.performs(own) {
                let (inner, outer) = (&planned.step.id, &self.plan.own_step(own).step.id);
                let message = format!(
                    "{reader} reads `{inner}`, which is inside `{outer}`, and of `{outer}` only its \
                     own value is given"
                );
                let help = Some(format!("run `{outer}` too: `until`, without a mock of it"));
                return refused(Code::UnresolvedReference, message, help);
            }
        }
        Ok(())
    }

    fn step(&self, at: usize) -> &Arc<Step> {
        &self.plan.step(self.plan.bodies[0].steps[at]).step
    }
}

/// The position of one of the composition's own steps.
fn find_step(plan: &Plan, id: &str) -> PartResult<usize> {
    let ids = || plan.steps_of(0).map(|step| &*step.step.id);
    if let Some(at) = ids().position(|own| own == id) {
        return Ok(at);
    }
    let last = id.rsplit('/').next().unwrap_or(id);
    if let Some(inner) = plan.steps.iter().find(|step| *step.step.id == *last) {
        let outer = &plan.own_step(plan.own_position(inner)).step.id;
        let message = format!("`{id}` is inside `{outer}`, which runs as a whole");
        return refused(Code::InvalidField, message, Some(format!("name `{outer}`")));
    }
    let near = nearest_name(id, ids()).map(|near| format!("did you mean `{near}`?"));
    refused(Code::UnknownStep, format!("there is no step `{id}`"), near)
}

/// The pinned values by position, or everything that is wrong with them.
fn find_pinned(
    plan: &Plan,
    pinned: &[(Arc<str>, Value)],
    limits: &Limits,
) -> Result<Vec<Option<Value>>, Vec<ErrorView>> {
    let mut found = vec![None; plan.bodies[0].steps.len()];
    if pinned.len() > found.len() {
        let (given, steps) = (pinned.len(), found.len());
        let message = format!("{given} outputs are given, and the composition has {steps} steps");
        return Err(vec![ErrorView::check(Code::Limit, message, None)]);
    }
    let (mut errors, mut bytes) = (Vec::new(), 0_usize);
    for (id, output) in pinned {
        bytes = bytes.saturating_add(output.size());
        match find_step(plan, id) {
            Ok(at) => {
                let step = &plan.step(plan.bodies[0].steps[at]).step;
                errors.extend(pin_error(step, output));
                found[at] = Some(output.clone());
            }
            Err(error) => errors.push(*error),
        }
    }
    let max = limits.run_value_bytes_max;
    if bytes > max {
        let message = format!("the given outputs take {bytes} bytes, and the limit is {max}");
        errors.push(ErrorView::check(Code::Limit, message, None));
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// Why a step cannot have this value.
fn pin_error(step: &Step, output: &Value) -> Option<ErrorView> {
    let id = &step.id;
    let (code, message) = match &step.kind {
        StepKind::Tool(call) => {
            let tool = call.tool.as_ref()?;
            let violation = tool.output.as_ref()?.violations(output).into_iter().next()?;
            let message = format!(
                "the given output of `{id}` does not fit the schema of `{}`: {violation}",
                tool.id
            );
            (Code::OutputSchema, message)
        }
        StepKind::Approve { .. } => {
            (Code::InvalidField, format!("`{id}` asks a person, so its output cannot be given"))
        }
        StepKind::Set(_) if output.as_object().is_none() => {
            let message = format!("`{id}` sets names, so its output is an object of them");
            (Code::OutputSchema, message)
        }
        _ => return None,
    };
    Some(ErrorView { step: Some(id.clone()), ..ErrorView::check(code, message, None) })
}

/// Why an earlier run has no value of a step that another run may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierValue {
    /// The step was not part of that run, or that run did not come so far.
    Missing,
    /// Its `when` was false, or a step that it reads was skipped.
    SkippedByCondition,
    /// It failed, was denied, was cancelled, or is in doubt.
    Failed,
    /// What it did was rolled back.
    RolledBack,
    /// A part of it is sensitive.
    NotStored,
}

impl EarlierValue {
    fn reason(self) -> &'static str {
        match self {
            EarlierValue::Missing => "it did not run",
            EarlierValue::SkippedByCondition => "it was skipped",
            EarlierValue::Failed => "it did not succeed",
            EarlierValue::RolledBack => "it was rolled back",
            EarlierValue::NotStored => "a part of it is sensitive and was not stored",
        }
    }
}

impl Run {
    /// The value of this run for the step at a position of a plan, which may have changed meanwhile:
    /// steps are matched by id.
    fn earlier_value(&self, plan: &Plan, at: usize) -> Result<ReusedStep, EarlierValue> {
        let position = u32::try_from(at).unwrap_or(u32::MAX);
        let id = &plan.own_step(position).step.id;
        let is_graph = self.state.plan.bodies[0].flow == Flow::Graph;
        let known = self.state.nodes_of(0).find(|node| self.state.step(*node).id == *id);
        let node = known.filter(|_| is_graph).ok_or(EarlierValue::Missing)?;
        let record = self.state.step_state(node);
        let output = match &record.node {
            NodeState::Done { output } | NodeState::Tolerated { output, .. } => output,
            NodeState::Skipped { by_failure: false, .. }
                if record.origin != Some(StepOrigin::LeftOut) =>
            {
                return Err(EarlierValue::SkippedByCondition);
            }
            NodeState::RollingBack { .. }
            | NodeState::RollbackBackoff { .. }
            | NodeState::RolledBack { .. }
            | NodeState::RollbackFailed { .. } => return Err(EarlierValue::RolledBack),
            NodeState::Failed { .. } | NodeState::Cancelled { .. } => {
                return Err(EarlierValue::Failed);
            }
            _ => return Err(EarlierValue::Missing),
        };
        let names = record.assigned_names.iter().flat_map(|names| names.values());
        if names.chain([output]).any(|value| self.state.has_redacted_part(value)) {
            return Err(EarlierValue::NotStored);
        }
        Ok(ReusedStep {
            position,
            output: output.clone(),
            given: record.assigned_names.clone(),
            is_pinned: record.origin == Some(StepOrigin::Pinned),
        })
    }

    /// The first step whose given value was redacted.
    pub fn redacted_pin(&self) -> Option<Arc<str>> {
        let mut own = self.state.nodes_of(0).filter(|node| {
            let record = self.state.step_state(*node);
            let output = record.node.output().filter(|_| record.origin == Some(StepOrigin::Pinned));
            output.is_some_and(|output| self.state.has_redacted_part(output))
        });
        own.next().map(|node| self.state.step(node).id.clone())
    }

    /// Whether it leaves steps out, or was given values of some: it says nothing about how its
    /// composition does.
    pub fn is_part(&self) -> bool {
        self.state.is_part()
    }
}

impl RunState {
    /// Whether the run performs the composition's own step at a position.
    pub(super) fn performs(&self, position: u32) -> bool {
        let node = NodeId { frame: 0, position };
        let is_graph = self.plan.bodies[0].flow == Flow::Graph;
        !is_graph || self.step_state(node).origin.is_none()
    }

    /// Whether the run leaves steps out, or was given values of some.
    pub(super) fn is_part(&self) -> bool {
        self.started.as_ref().is_some_and(|started| started.part.is_some())
    }

    /// Whether steps of the composition are left out, so that its output may be incomplete.
    pub(super) fn leaves_out_steps(&self) -> bool {
        let part = self.started.as_ref().and_then(|started| started.part.as_ref());
        part.is_some_and(PerformedPart::leaves_out_steps)
    }
}

impl TurnBuilder<'_> {
    /// The run begins, with values for some of its steps and without others.
    pub(super) fn start_part(&mut self, mut started: Box<Started>, selection: StepSelection) {
        if self.state.started.is_some() {
            return;
        }
        let StepSelection { part, reused, pinned, left_out } = selection;
        started.part = part;
        self.begin_run(started);
        let own = |position| NodeId { frame: 0, position };
        for ReusedStep { position, output, given, is_pinned } in reused {
            let node = own(position);
            self.record(if is_pinned {
                Fact::Pinned { node, output, given }
            } else {
                Fact::Reused { node, output, given }
            });
        }
        for position in left_out {
            self.record(Fact::LeftOut { node: own(position) });
        }
        for PinnedStep { position, output } in pinned {
            self.pin(own(position), output);
        }
        self.ask_for_consent();
    }

    /// Gives a step its value as if its tool had answered so.
    fn pin(&mut self, node: NodeId, output: Value) {
        let step = self.state.step(node).clone();
        match self.pinned_names(node, &step, &output) {
            Ok(given) => self.record(Fact::Pinned { node, output, given }),
            Err(failure) => {
                let message =
                    format!("the given output of `{}` is refused: {}", step.id, failure.message);
                // No default stands in for it: the caller gave another value.
                let failure = Failure { message: message.into(), retryable: false, ..failure };
                self.fail_for_good(node, &step, &Arc::new(failure));
            }
        }
    }

    /// The names that a step with this value sets.
    fn pinned_names(
        &self,
        node: NodeId,
        step: &Step,
        output: &Value,
    ) -> StepResult<Option<Shared<Map>>> {
        let names = match &step.kind {
            StepKind::Tool(call) => self.accept(node, step, tool_spec(call), output.clone())?.1,
            _ => self.assigned_names(node, step, output)?,
        };
        match (&step.kind, output) {
            (StepKind::Set(_), Value::Object(set)) => {
                let mut all = (**set).clone();
                let names = names.iter().flat_map(|names| names.iter());
                all.extend(names.map(|(name, value)| (name.clone(), value.clone())));
                Ok(Some(all.into()))
            }
            _ => Ok(names),
        }
    }
}
