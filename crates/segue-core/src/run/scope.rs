//! Resolution of names at one place of a run.

use std::borrow::Cow;

use super::advance::error_value;
use super::journal::NodeId;
use super::state::RunState;
use crate::expr::{ExprRoot, Scope, StepIndex};
use crate::plan::BodyIndex;
use crate::value::{Map, Value};

/// The names in scope of a frame, and those that the current call adds.
pub(super) struct FrameScope<'a> {
    pub(super) state: &'a RunState,
    pub(super) frame: u32,
    pub(super) output: Option<&'a Value>,
    pub(super) args: Option<&'a Value>,
    pub(super) error: Option<&'a Value>,
    /// Names that the current step has set so far.
    pub(super) given: Option<&'a Map>,
}

impl<'a> FrameScope<'a> {
    pub(super) fn new(state: &'a RunState, frame: u32) -> FrameScope<'a> {
        FrameScope { state, frame, output: None, args: None, error: None, given: None }
    }

    /// The node of a step that is in scope.
    fn node(&self, step: StepIndex) -> Option<NodeId> {
        let plan = self.state.plan_of(self.frame);
        let planned = plan.step(step);
        let frame = self.frame_of(planned.body)?;
        let position = self.state.frame(frame).node_of(planned.position)?;
        Some(NodeId { frame, position })
    }

    /// The frame of a body that is in scope: an enclosing one, or the only one inside an enclosing
    /// step.
    fn frame_of(&self, body: BodyIndex) -> Option<u32> {
        let mut at = Some(self.frame);
        while let Some(frame) = at {
            if self.state.frame(frame).body == body {
                return Some(frame);
            }
            at = self.state.outer(frame);
        }
        let plan = self.state.plan_of(self.frame);
        let owner = plan.step(plan.bodies[body as usize].owner?);
        let outer = self.frame_of(owner.body)?;
        let node =
            NodeId { frame: outer, position: self.state.frame(outer).node_of(owner.position)? };
        let frames = self.state.step_state(node).attempt_frames();
        frames.iter().copied().find(|frame| self.state.frame(*frame).body == body)
    }

    fn item_frame(&self, step: StepIndex) -> Option<u32> {
        let mut at = Some(self.frame);
        while let Some(frame) = at {
            let parent = self.state.frame(frame).parent;
            if parent.is_some_and(|parent| self.state.step_index(parent) == step) {
                return Some(frame);
            }
            at = self.state.outer(frame);
        }
        None
    }

    fn loop_variables(&self, step: StepIndex) -> Option<Value> {
        let item = self.state.frame(self.item_frame(step)?).item.as_ref()?;
        Some(Value::object([
            ("index", Value::from(item.index)),
            ("first", Value::Bool(item.index == 0)),
            ("last", Value::Bool(item.index + 1 == item.length)),
            ("length", Value::from(item.length)),
        ]))
    }

    /// The state of a chain, with the names that the current step has set so far.
    fn names(&self, names: &'a Value) -> Cow<'a, Value> {
        match (self.given.filter(|given| !given.is_empty()), names.as_object()) {
            (Some(given), Some(names)) => {
                let mut all = (**names).clone();
                all.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
                Cow::Owned(all.into())
            }
            _ => Cow::Borrowed(names),
        }
    }

    fn error_of(&self, step: StepIndex) -> Option<Value> {
        let failure = self.state.step_state(self.node(step)?).node.failure()?;
        Some(error_value(failure))
    }
}

impl Scope for FrameScope<'_> {
    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>> {
        let activation = self.state.activation_of(self.frame);
        match root {
            ExprRoot::Step(step) => {
                self.state.step_state(self.node(*step)?).node.output().map(Cow::Borrowed)
            }
            ExprRoot::Input => Some(Cow::Borrowed(&activation.input)),
            ExprRoot::InputField(name) => activation.input.get(name).map(Cow::Borrowed),
            ExprRoot::Context => Some(Cow::Borrowed(&self.state.context)),
            ExprRoot::Given(step, name) => {
                if let Some(value) = self.given.and_then(|given| given.get(name)) {
                    return Some(Cow::Borrowed(value));
                }
                let given = self.state.step_state(self.node(*step)?).assigned_names.as_ref()?;
                given.get(name).map(Cow::Borrowed)
            }
            ExprRoot::Item(step) => {
                let item = self.state.frame(self.item_frame(*step)?).item.as_ref()?;
                Some(Cow::Borrowed(&item.value))
            }
            ExprRoot::Loop(step) => self.loop_variables(*step).map(Cow::Owned),
            ExprRoot::StepStatus(step) => {
                let status = self.state.step_state(self.node(*step)?).node.status();
                Some(Cow::Owned(Value::from(status.as_str())))
            }
            ExprRoot::StepError(step) => self.error_of(*step).map(Cow::Owned),
            ExprRoot::Run => Some(Cow::Owned(self.state.run_info())),
            ExprRoot::Output => self.output.map(Cow::Borrowed),
            ExprRoot::Args => self.args.map(Cow::Borrowed),
            ExprRoot::Error => self.error.map(Cow::Borrowed),
            ExprRoot::State => Some(self.names(&activation.names)),
            ExprRoot::Unresolved | ExprRoot::Lambda => None,
        }
    }

    fn is_kept(&self, value: &Value) -> bool {
        !self.state.has_redacted_part(value)
    }

    fn looks_through(&self) -> bool {
        self.state.has_sensitive
    }
}
