//! The arguments of a step, or one template at its place, against the data of an earlier run.
//!
//! Nothing is called and nothing is sampled: what the run does not have is an error of that field. A loop
//! is shown at one of its items, which its `over` gives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::observe::step_ids;
use super::scope::NameScope;
use super::{Analysis, EditError};
use crate::composition::{Step, StepKind};
use crate::diagnostic::{Code, nearest_name};
use crate::expr::{self, ExprRoot, StepIndex, Template};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::types::Type;
use crate::value::{Map, Value};
use crate::view::RunView;

/// What a run knows, as its view shows it: without sensitive values.
#[derive(Clone, Debug, Default)]
pub struct RunData {
    input: Value,
    context: Value,
    state: Map,
    run: Value,
    steps: BTreeMap<Arc<str>, StepData>,
    /// Which item of each loop is shown.
    item: usize,
}

#[derive(Clone, Debug, Default)]
struct StepData {
    /// `None` while there is none.
    output: Option<Value>,
    status: Value,
    error: Option<Value>,
}

impl RunData {
    /// The data of a run, given its input and context without sensitive values; of loops, that of the item
    /// with this number.
    pub fn of_run(
        plan: &Plan,
        view: &RunView,
        (input, context): (Value, Value),
        item: usize,
    ) -> RunData {
        let run = Value::object([
            ("id", Value::String(view.run_id.clone())),
            ("name", Value::String(view.name.clone())),
            ("started_at", view.started_at.map_or(Value::Null, |at| at.to_string().into())),
        ]);
        let (ids, shown) = (step_ids(plan), format!("[{item}]"));
        let mut steps: BTreeMap<Arc<str>, StepData> = BTreeMap::new();
        for step in &view.steps {
            let Some(id) = ids.get(&crate::id::without_iterations(&step.id)) else { continue };
            // Of a loop inside a loop, the same item of each.
            let of_others =
                step.id.split('/').any(|part| part.contains('[') && !part.contains(&shown));
            if of_others {
                continue;
            }
            let error = step.error.as_ref().map(|error| {
                Value::object([
                    ("code", Value::from(error.code.as_str())),
                    ("message", Value::from(error.message.as_str())),
                ])
            });
            let has_value = step.status == crate::view::StepStatus::Success;
            let output = has_value.then(|| step.output.clone());
            steps.insert(
                id.clone(),
                StepData { output, status: Value::from(step.status.as_str()), error },
            );
        }
        let state = view.state.clone();
        RunData { input, context, state, run, steps, item }
    }
}

/// A field as it would be rendered.
#[derive(Clone, Debug)]
pub struct PreviewedField {
    /// A JSON Pointer into the arguments; empty for a template of the caller, or a step without arguments.
    pub field: String,
    /// The type that is known without a run.
    pub ty: Type,
    /// The value, or why there is none.
    pub value: Result<Value, String>,
}

impl Analysis {
    /// The arguments of a step as they would be with the data of a run; with `template`, that value in place
    /// of them. Without a step, a template of the composition's output.
    pub fn preview(
        &self,
        step: Option<&str>,
        template: Option<&Value>,
        data: &RunData,
    ) -> Result<Vec<PreviewedField>, EditError> {
        let preview = || self.previewed(step, template, data);
        let fault =
            |fault: crate::diagnostic::Diagnostic| EditError::new(fault.code, fault.message);
        crate::compile::contained(preview).unwrap_or_else(|found| Err(fault(found)))
    }

    fn previewed(
        &self,
        step: Option<&str>,
        template: Option<&Value>,
        data: &RunData,
    ) -> Result<Vec<PreviewedField>, EditError> {
        let composition = self.composition.as_deref().ok_or_else(|| {
            EditError::new(Code::Parse, "the text holds no composition that can be read")
        })?;
        let (limits, seen) = (&self.limits, &self.observations);
        let scope = match step {
            None => NameScope::at(composition, &[], seen, limits),
            Some(id) => NameScope::of_step(composition, id, seen, limits).ok_or_else(|| {
                let mut ids = Vec::new();
                composition.body.walk(&mut |step| ids.push(&*step.id));
                let error = EditError::new(Code::NotFound, format!("there is no step `{id}`"));
                match nearest_name(id, ids) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error,
                }
            })?,
        };
        let preview = Preview::new(&scope, data, limits);
        let Some(value) = template else {
            let none = || EditError::new(Code::InvalidField, "name a `step`, or give a `template`");
            return Ok(preview.arguments(scope.innermost().ok_or_else(none)?));
        };
        Ok(vec![match Template::of_value(value, limits) {
            Ok(mut template) => {
                scope.resolve_template(&mut template);
                preview.field(String::new(), &template)
            }
            Err(message) => {
                PreviewedField { field: String::new(), ty: Type::Any, value: Err(message) }
            }
        }])
    }
}

/// Renders templates at one place of a composition.
struct Preview<'a> {
    scope: &'a NameScope<'a>,
    data: &'a RunData,
    limits: &'a Limits,
    /// What the loops around the place run over, by the id of the loop.
    items: BTreeMap<Arc<str>, Value>,
    /// How often the item of a loop was looked up: work that must not grow with nesting.
    #[cfg(test)]
    looked_up: std::cell::Cell<usize>,
}

impl<'a> Preview<'a> {
    /// Evaluates each loop around the place once, outermost first: an inner one may run over an item of an
    /// outer one, and evaluating that anew at each use would take exponential time and a deep stack.
    fn new(scope: &'a NameScope<'a>, data: &'a RunData, limits: &'a Limits) -> Preview<'a> {
        let mut preview = Preview {
            scope,
            data,
            limits,
            items: BTreeMap::new(),
            #[cfg(test)]
            looked_up: std::cell::Cell::default(),
        };
        for step in scope.loops() {
            let StepKind::Loop(each) = &step.kind else { continue };
            if let Ok(items) = each.over.eval(&preview, limits) {
                preview.items.insert(step.id.clone(), items);
            }
        }
        preview
    }

    /// The arguments of a step, one by one, so that each has its own error.
    fn arguments(&self, step: &Step) -> Vec<PreviewedField> {
        let one = |name: &str, template: &Template| self.field(pointer(name), template);
        match &step.kind {
            StepKind::Tool(call) => match &call.parameters.template {
                Template::Object(members) => {
                    members.iter().map(|(name, member)| one(name, member)).collect()
                }
                Template::Literal(Value::Object(members)) => {
                    let members = members.iter();
                    members.map(|(name, it)| one(name, &Template::Literal(it.clone()))).collect()
                }
                whole => vec![self.field(String::new(), whole)],
            },
            StepKind::Set(names) => names.iter().map(|(name, it)| one(name, it)).collect(),
            StepKind::Loop(each) => vec![one("over", &each.over)],
            StepKind::Approve { message, .. } => vec![one("message", message)],
            StepKind::Wait { duration } => vec![self.field(String::new(), duration)],
            StepKind::Expand(made) => vec![self.field(String::new(), made)],
            StepKind::Parallel { .. } | StepKind::Repeat(_) | StepKind::Choose { .. } => Vec::new(),
        }
    }

    fn field(&self, field: String, template: &Template) -> PreviewedField {
        let ty = template.infer(self.scope, &mut |_, _| {});
        let value = template.eval(self, self.limits).map_err(|error| error.message);
        PreviewedField { field, ty, value }
    }

    fn step(&self, index: StepIndex) -> Option<&StepData> {
        self.data.steps.get(&self.scope.step_at(index)?.id)
    }

    /// The items of a loop around the place.
    fn items(&self, index: StepIndex) -> Option<&[Value]> {
        #[cfg(test)]
        self.looked_up.set(self.looked_up.get() + 1);
        self.items.get(&self.scope.step_at(index)?.id)?.as_array().map(|items| &items[..])
    }
}

impl expr::Scope for Preview<'_> {
    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>> {
        let data = self.data;
        match root {
            ExprRoot::Input => Some(Cow::Borrowed(&data.input)),
            ExprRoot::InputField(name) => data.input.get(name).map(Cow::Borrowed),
            ExprRoot::Context => Some(Cow::Borrowed(&data.context)),
            ExprRoot::Run => Some(Cow::Borrowed(&data.run)),
            ExprRoot::State => Some(Cow::Owned(data.state.clone().into())),
            ExprRoot::Given(_, name) => data.state.get(name).map(Cow::Borrowed),
            ExprRoot::Step(step) => self.step(*step)?.output.as_ref().map(Cow::Borrowed),
            ExprRoot::StepStatus(step) => self.step(*step).map(|step| Cow::Borrowed(&step.status)),
            ExprRoot::StepError(step) => self.step(*step)?.error.as_ref().map(Cow::Borrowed),
            ExprRoot::Item(step) => self.items(*step)?.get(data.item).map(Cow::Borrowed),
            ExprRoot::Loop(step) => {
                let length = self.items(*step)?.len();
                Some(Cow::Owned(Value::object([
                    ("index", Value::from(data.item)),
                    ("first", Value::Bool(data.item == 0)),
                    ("last", Value::Bool(data.item + 1 == length)),
                    ("length", Value::from(length)),
                ])))
            }
            ExprRoot::Output | ExprRoot::Args | ExprRoot::Error => None,
            ExprRoot::Unresolved | ExprRoot::Lambda => None,
        }
    }
}

/// The JSON Pointer of a member.
fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::compile::nested_loops;
    use crate::source::Source;

    /// Evaluating the list of a loop at each mention of its item doubles the work per loop.
    #[test]
    fn the_list_of_a_loop_is_evaluated_once() {
        let limits = Limits::default();
        let depth = limits.nesting_depth_max;
        let source = Source::new("x.yaml", nested_loops(depth));
        let analysis = Analysis::new(&source, &Catalog::default(), &limits);
        let composition = analysis.composition().unwrap();
        let (seen, data) = (crate::language::Observations::default(), RunData::default());
        let scope = NameScope::of_step(composition, "end", &seen, &limits).unwrap();
        let preview = Preview::new(&scope, &data, &limits);
        let fields = preview.arguments(scope.innermost().unwrap());
        assert_eq!(fields[0].value, Ok(Value::from(1)));
        assert!(preview.looked_up.get() <= 2 * depth, "{}", preview.looked_up.get());
    }
}
