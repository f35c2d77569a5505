//! What names mean at a place of a composition, in the model.

use std::borrow::Cow;

use segue_core::expr::{ExprRoot, Scope, StepIndex};
use segue_core::plan::BodyIndex;
use segue_core::run::NodeId;
use segue_core::value::{Map, Value};

use super::{End, Model, error_value};

/// The names that are seen from one frame.
pub(super) struct Sight<'m, 's> {
    model: &'m Model<'s>,
    frame: u32,
    pub(super) output: Option<&'m Value>,
    pub(super) args: Option<&'m Value>,
    pub(super) error: Option<&'m Value>,
    pub(super) given: Option<&'m Map>,
}

impl<'m, 's> Sight<'m, 's> {
    pub(super) fn new(model: &'m Model<'s>, frame: u32) -> Sight<'m, 's> {
        Sight { model, frame, output: None, args: None, error: None, given: None }
    }

    /// The frames from here outwards, within the same composition.
    fn around(&self) -> impl Iterator<Item = u32> {
        let trace = self.model.trace;
        let here = trace.frame(self.frame).activation;
        std::iter::successors(Some(self.frame), move |frame| {
            let outer = trace.frame(*frame).parent?.frame;
            (trace.frame(outer).activation == here).then_some(outer)
        })
    }

    /// The frame of a body: around here, or the one inside a step around here.
    fn frame_of(&self, body: BodyIndex) -> Option<u32> {
        let trace = self.model.trace;
        if let Some(around) = self.around().find(|frame| trace.frame(*frame).body == body) {
            return Some(around);
        }
        let plan = &trace.frame(self.frame).plan;
        let owner = self.node(plan.bodies[body as usize].owner?)?;
        self.model.children(owner).iter().copied().find(|inner| trace.frame(*inner).body == body)
    }

    fn node(&self, step: StepIndex) -> Option<NodeId> {
        let planned = self.model.trace.frame(self.frame).plan.step(step);
        Some(NodeId { frame: self.frame_of(planned.body)?, position: planned.position })
    }

    fn ended(&self, step: StepIndex) -> Option<&'m super::Ended> {
        self.model.ends.get(&self.node(step)?)
    }

    /// The innermost frame around that is a round of this step.
    fn round_of(&self, step: StepIndex) -> Option<u32> {
        let trace = self.model.trace;
        self.around().find(|frame| {
            trace.frame(*frame).parent.is_some_and(|parent| trace.index(parent) == step)
        })
    }
}

impl Scope for Sight<'_, '_> {
    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>> {
        let model = self.model;
        let input = &model.activations[&model.trace.frame(self.frame).activation].input;
        match root {
            ExprRoot::Input => Some(Cow::Borrowed(input)),
            ExprRoot::InputField(name) => input.get(name).map(Cow::Borrowed),
            ExprRoot::Context => Some(Cow::Borrowed(&model.story.started.context)),
            ExprRoot::Step(step) => self.ended(*step)?.end.value().map(Cow::Borrowed),
            ExprRoot::Given(step, name) => match self.given.and_then(|given| given.get(name)) {
                Some(value) => Some(Cow::Borrowed(value)),
                None => self.ended(*step)?.given.get(name).map(Cow::Borrowed),
            },
            ExprRoot::StepStatus(step) => {
                let word = match &self.ended(*step)?.end {
                    End::Done(_) => "success",
                    End::Tolerated(..) => "failed",
                    End::Failed(failure) if failure.in_doubt => "in_doubt",
                    End::Failed(_) => "failed",
                    End::Skipped { .. } => "skipped",
                    End::Cancelled { in_doubt: true } => "in_doubt",
                    End::Cancelled { in_doubt: false } => "cancelled",
                };
                Some(Cow::Owned(Value::from(word)))
            }
            ExprRoot::StepError(step) => match &self.ended(*step)?.end {
                End::Failed(failure) | End::Tolerated(_, failure) => {
                    Some(Cow::Owned(error_value(failure)))
                }
                _ => None,
            },
            ExprRoot::Item(step) => {
                let item = model.trace.frame(self.round_of(*step)?).item.as_ref()?;
                Some(Cow::Borrowed(&item.value))
            }
            ExprRoot::Loop(step) => {
                let item = model.trace.frame(self.round_of(*step)?).item.as_ref()?;
                Some(Cow::Owned(Value::object([
                    ("index", Value::from(item.index)),
                    ("first", Value::Bool(item.index == 0)),
                    ("last", Value::Bool(item.index + 1 == item.length)),
                    ("length", Value::from(item.length)),
                ])))
            }
            ExprRoot::Output => self.output.map(Cow::Borrowed),
            ExprRoot::Args => self.args.map(Cow::Borrowed),
            ExprRoot::Error => self.error.map(Cow::Borrowed),
            ExprRoot::Run => {
                let started = &model.story.started;
                let name = model.story.plan.composition.name.clone();
                let at = model.story.turns.first().map_or(0, |turn| turn.wall);
                Some(Cow::Owned(Value::object([
                    ("id", Value::String(started.run_id.clone())),
                    ("name", Value::String(name)),
                    ("started_at", Value::from(segue_core::view::rfc3339(at))),
                ])))
            }
            ExprRoot::Unresolved | ExprRoot::Lambda | ExprRoot::State => None,
        }
    }
}
