//! Types of all step values of a composition, inferred on demand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::resolve::given_names;
use crate::composition::{
    Body, Composition, FailureAction, Flow, ItemFailure, Step, StepKind, ToolCall, WaitFor,
};
use crate::expr::{ExprRoot, InferenceDepth, StepIndex, Template, TypeScope};
use crate::inferred_schema::InferredSchema;
use crate::types::{FieldLookup, ObjectType, OtherProperties, Property, Type};

/// The types of one composition.
pub(crate) struct Typing<'a> {
    composition: &'a Composition,
    /// Whether a tool without a schema is assumed to return values of the observed shape.
    uses_observed: bool,
    /// By index; a step that could not be read leaves a gap.
    steps: Vec<Option<&'a Step>>,
    known: RefCell<Vec<TypeCacheEntry>>,
    /// The same cache for the items of loops: an inner loop may run over the item of an outer one, so
    /// inferring them anew at each use would take exponential time.
    known_items: RefCell<Vec<TypeCacheEntry>>,
    /// The same cache for names that steps define.
    known_names: RefCell<BTreeMap<(StepIndex, Arc<str>), TypeCacheEntry>>,
    /// In a program, the steps that set each state name, and the type of the name.
    state: BTreeMap<Arc<str>, (Vec<StepIndex>, RefCell<TypeCacheEntry>)>,
    depth: InferenceDepth,
    /// Steps below this index have a known type.
    known_until: std::cell::Cell<StepIndex>,
    /// How many templates were inferred: work that must not grow with nesting.
    #[cfg(test)]
    inferred: std::cell::Cell<usize>,
}

#[derive(Clone)]
enum TypeCacheEntry {
    Not,
    /// Being inferred: a request for it now means a cycle.
    Asked,
    Yes(Type),
}

impl<'a> Typing<'a> {
    /// Types from the tools' declared schemas.
    pub(crate) fn new(composition: &'a Composition) -> Typing<'a> {
        Typing::with(composition, false)
    }

    /// Types that also use the observed values of tools without a schema.
    pub(crate) fn from_observed(composition: &'a Composition) -> Typing<'a> {
        Typing::with(composition, true)
    }

    fn with(composition: &'a Composition, uses_observed: bool) -> Typing<'a> {
        let mut steps = Vec::new();
        let mut state: BTreeMap<Arc<str>, (Vec<StepIndex>, RefCell<TypeCacheEntry>)> =
            BTreeMap::new();
        let is_program = composition.body.flow == Flow::Program;
        composition.body.walk(&mut |step| {
            for name in given_names(step).into_iter().filter(|_| is_program) {
                let unknown = || (Vec::new(), RefCell::new(TypeCacheEntry::Not));
                state.entry(name).or_insert_with(unknown).0.push(step.index);
            }
            let at = step.index as usize;
            if steps.len() <= at {
                steps.resize(at + 1, None);
            }
            steps[at] = Some(step);
        });
        let known = RefCell::new(vec![TypeCacheEntry::Not; steps.len()]);
        let known_items = known.clone();
        let known_names = RefCell::default();
        Typing {
            composition,
            uses_observed,
            steps,
            known,
            known_items,
            known_names,
            state,
            depth: InferenceDepth::default(),
            known_until: std::cell::Cell::default(),
            #[cfg(test)]
            inferred: std::cell::Cell::default(),
        }
    }

    pub(crate) fn step(&self, index: StepIndex) -> Option<&'a Step> {
        self.steps.get(index as usize).copied().flatten()
    }

    /// The type of a step's value. The steps before it come first: most steps read those, and one after
    /// the other needs no deep stack.
    pub(crate) fn value(&self, index: StepIndex) -> Type {
        let known_until = self.known_until.get();
        if self.depth.is_outermost() && known_until < index {
            self.known_until.set(index);
            for before in known_until..index {
                self.value_at(before);
            }
        }
        self.value_at(index)
    }

    fn value_at(&self, index: StepIndex) -> Type {
        let Some(step) = self.step(index) else { return Type::Any };
        let before =
            std::mem::replace(&mut self.known.borrow_mut()[index as usize], TypeCacheEntry::Asked);
        let ty = match before {
            TypeCacheEntry::Yes(ty) => ty,
            TypeCacheEntry::Asked => Type::Any,
            TypeCacheEntry::Not => self.work_out(step),
        };
        self.known.borrow_mut()[index as usize] = TypeCacheEntry::Yes(ty.clone());
        ty
    }

    /// The type of the item of a loop.
    fn item(&self, index: StepIndex) -> Type {
        let Some(StepKind::Loop(each)) = self.step(index).map(|step| &step.kind) else {
            return Type::Any;
        };
        let entry =
            |new| std::mem::replace(&mut self.known_items.borrow_mut()[index as usize], new);
        let ty = match entry(TypeCacheEntry::Asked) {
            TypeCacheEntry::Yes(ty) => ty,
            TypeCacheEntry::Asked => Type::Any,
            TypeCacheEntry::Not => self.of(&each.over).item().unwrap_or(Type::Any),
        };
        entry(TypeCacheEntry::Yes(ty.clone()));
        ty
    }

    fn work_out(&self, step: &Step) -> Type {
        let value = self.of_kind(step);
        let fallbacks = step.fallback.iter().map(|call| self.output_of(call));
        let mut alternatives: Vec<Type> = std::iter::once(value).chain(fallbacks).collect();
        if step.on_failure.action == FailureAction::Continue {
            alternatives.push(step.on_failure.default.as_ref().map_or(Type::Null, |t| self.of(t)));
        }
        Type::union(alternatives)
    }

    fn of_kind(&self, step: &Step) -> Type {
        match &step.kind {
            StepKind::Tool(call) => self.output_of(call),
            StepKind::Parallel { branches, wait_for: WaitFor::All } => {
                Type::record(branches.iter().map(|b| (b.id.clone(), self.last_of(&b.body))))
            }
            StepKind::Parallel { branches, .. } => Type::record([
                ("winner", Type::String),
                ("value", Type::union(branches.iter().map(|b| self.last_of(&b.body)))),
            ]),
            StepKind::Loop(each) => {
                let item = each
                    .output
                    .as_ref()
                    .map_or_else(|| self.last_of(&each.body), |output| self.of(output));
                match each.on_item_failure {
                    ItemFailure::Stop => Type::array(item),
                    ItemFailure::Continue => Type::array(Type::union([item, Type::Null])),
                }
            }
            StepKind::Repeat(repeat) => self.last_of(&repeat.body),
            StepKind::Choose { cases, otherwise } => {
                let none = otherwise.as_ref().map_or(Type::Null, |body| self.last_of(body));
                let chosen = cases.iter().map(|case| self.last_of(&case.body));
                Type::union(chosen.chain([none]).collect::<Vec<_>>())
            }
            StepKind::Set(names) => {
                Type::record(names.iter().map(|(name, value)| (name.clone(), self.of(value))))
            }
            StepKind::Approve { schema, .. } => Type::record([
                ("approved", Type::Bool),
                ("by", Type::String),
                ("at", Type::String),
                ("data", schema.as_ref().map_or(Type::Any, |schema| schema.ty().clone())),
            ]),
            StepKind::Wait { .. } => Type::Null,
            StepKind::Expand(_) => Type::Any,
        }
    }

    fn output_of(&self, call: &ToolCall) -> Type {
        let declared = call.tool.as_ref().and_then(|tool| tool.output.as_ref());
        match (declared, observed_schema(call)) {
            (Some(schema), _) => schema.ty().clone(),
            (None, Some(shape)) if self.uses_observed => shape.ty(),
            _ => Type::Any,
        }
    }

    fn last_of(&self, body: &Body) -> Type {
        let jumps =
            |step: &Arc<Step>| step.on_success.next.is_some() || step.on_failure.next.is_some();
        if body.steps.iter().any(jumps) {
            // The last step is known only at run time.
            return Type::Any;
        }
        body.steps.last().map_or(Type::Null, |step| self.value(step.index))
    }

    /// The type of a template; [`super::check`] reports its errors.
    pub(crate) fn of(&self, template: &Template) -> Type {
        #[cfg(test)]
        self.inferred.set(self.inferred.get() + 1);
        template.infer(self, &mut |_, _| {})
    }

    /// The type of the composition's result.
    pub(crate) fn output(&self) -> Type {
        match &self.composition.output {
            Some(output) => self.of(output),
            None if self.composition.body.flow == Flow::Program => {
                optional(self.step_values().chain(self.names()))
            }
            None => Type::record(self.step_values()),
        }
    }

    /// The type of a chain's state after its end: the parameters, and the names that steps set.
    pub(crate) fn final_state(&self) -> Type {
        let input = self.input();
        let parameters = match &input {
            Type::Object(object) => object.properties.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let parameters = parameters.into_iter().map(|name| (name.clone(), self.in_state(&name)));
        optional(parameters.chain(self.names()))
    }

    /// Every output key with the type of its step's value.
    fn step_values(&self) -> impl Iterator<Item = (Arc<str>, Type)> {
        self.composition.body.steps.iter().map(|step| {
            let name = step.output_key.as_ref().map_or(&step.id, |(key, _)| key);
            (name.clone(), self.value(step.index))
        })
    }

    /// The names that the steps of a chain set.
    fn names(&self) -> impl Iterator<Item = (Arc<str>, Type)> {
        self.state.keys().map(|name| (name.clone(), self.in_state(name)))
    }

    /// The type of a name that a step defines. Cached, because names often refer to other names.
    fn given(&self, index: StepIndex, name: &Arc<str>) -> Type {
        let key = (index, name.clone());
        let before = self.known_names.borrow_mut().insert(key.clone(), TypeCacheEntry::Asked);
        let ty = match before {
            Some(TypeCacheEntry::Yes(ty)) => ty,
            Some(TypeCacheEntry::Asked) => Type::Any,
            Some(TypeCacheEntry::Not) | None => self.work_out_given(index, name),
        };
        self.known_names.borrow_mut().insert(key, TypeCacheEntry::Yes(ty.clone()));
        ty
    }

    /// The type of a state name: the parameter's, or the union over all steps that set it.
    fn in_state(&self, name: &Arc<str>) -> Type {
        let parameter = match self.input().field(name) {
            FieldLookup::Found { ty, .. } => Some(ty),
            _ => None,
        };
        let Some((steps, known)) = self.state.get(name) else {
            return parameter.unwrap_or(Type::Any);
        };
        let ty = match known.replace(TypeCacheEntry::Asked) {
            TypeCacheEntry::Yes(ty) => ty,
            TypeCacheEntry::Asked => Type::Any,
            TypeCacheEntry::Not => {
                let given = steps.iter().map(|step| self.given(*step, name));
                Type::union(parameter.into_iter().chain(given).collect::<Vec<_>>())
            }
        };
        known.replace(TypeCacheEntry::Yes(ty.clone()));
        ty
    }

    fn input(&self) -> Type {
        self.composition.input.as_ref().map_or(Type::Any, |schema| schema.ty().clone())
    }

    fn work_out_given(&self, index: StepIndex, name: &Arc<str>) -> Type {
        let Some(step) = self.step(index) else { return Type::Any };
        if let StepKind::Set(names) = &step.kind
            && let Some((_, template)) = names.iter().find(|(given, _)| given == name)
        {
            return self.of(template);
        }
        if let Some((_, template)) =
            step.on_success.transform.iter().find(|(given, _)| given == name)
        {
            return self.of(template);
        }
        debug_assert!(given_names(step).contains(name));
        let source = step.on_success.map_outputs.iter().find(|(_, given)| given == name);
        match source {
            Some((field, _)) if &**field == "." => self.value(index),
            // A field may also come from the value's `data`, so only a declared one is certain.
            Some((field, _)) => match self.value(index).field(field) {
                FieldLookup::Found { ty, required: true } => ty,
                _ => Type::Any,
            },
            None => Type::Any,
        }
    }
}

/// An object of at most these members: a chain may jump over the step that sets one.
fn optional(members: impl IntoIterator<Item = (Arc<str>, Type)>) -> Type {
    let optional = |(name, ty)| (name, Property { ty, required: false });
    let properties = members.into_iter().map(optional).collect();
    Type::object(ObjectType { properties, rest: OtherProperties::Closed })
}

/// The observed schema of a tool without a declared one, if there are enough samples.
pub(super) fn observed_schema(call: &ToolCall) -> Option<&Arc<InferredSchema>> {
    let tool = call.tool.as_ref().filter(|tool| tool.output.is_none())?;
    let shape = tool.observed.as_ref()?.output.as_ref()?;
    shape.has_enough_samples().then_some(shape)
}

impl TypeScope for Typing<'_> {
    fn type_of(&self, root: &ExprRoot) -> Type {
        match root {
            ExprRoot::Input => self.input(),
            ExprRoot::InputField(name) => match self.input().field(name) {
                FieldLookup::Found { ty, .. } => ty,
                _ => Type::Any,
            },
            ExprRoot::Step(index) => self.value(*index),
            ExprRoot::StepStatus(_) => Type::String,
            ExprRoot::Given(index, name) => self.given(*index, name),
            ExprRoot::Item(index) => self.item(*index),
            ExprRoot::Loop(_) => Type::record([
                ("index", Type::Integer),
                ("first", Type::Bool),
                ("last", Type::Bool),
                ("length", Type::Integer),
            ]),
            ExprRoot::Run => Type::record([
                ("id", Type::String),
                ("name", Type::String),
                ("started_at", Type::String),
            ]),
            ExprRoot::Unresolved
            | ExprRoot::Lambda
            | ExprRoot::Context
            | ExprRoot::State
            | ExprRoot::StepError(_)
            | ExprRoot::Output
            | ExprRoot::Args
            | ExprRoot::Error => Type::Any,
        }
    }

    fn type_in_state(&self, name: &Arc<str>) -> Type {
        self.in_state(name)
    }

    fn depth(&self) -> &InferenceDepth {
        &self.depth
    }
}

/// The scope of a step, extended by the output and the arguments of one call.
pub(crate) struct CallTyping<'a> {
    pub(crate) outer: &'a Typing<'a>,
    pub(crate) output: Type,
    pub(crate) args: Type,
}

impl TypeScope for CallTyping<'_> {
    fn type_of(&self, root: &ExprRoot) -> Type {
        match root {
            ExprRoot::Output => self.output.clone(),
            ExprRoot::Args => self.args.clone(),
            other => self.outer.type_of(other),
        }
    }

    fn type_in_state(&self, name: &Arc<str>) -> Type {
        self.outer.type_in_state(name)
    }

    fn depth(&self) -> &InferenceDepth {
        self.outer.depth()
    }
}

impl<'a> CallTyping<'a> {
    /// For expressions over the output of this call.
    pub(crate) fn of_call(outer: &'a Typing<'a>, call: &ToolCall) -> CallTyping<'a> {
        let args = call.tool.as_ref().map_or(Type::Any, |tool| tool.input.ty().clone());
        CallTyping { outer, output: outer.output_of(call), args }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::catalog::Catalog;
    use crate::limits::{Limits, TYPE_NODES_MAX};
    use crate::source::Source;

    fn compiled(text: &str) -> Composition {
        let source = Source::new("x.yaml", text);
        let examined =
            crate::compile::examine_text(&source, &Catalog::default(), &Limits::default());
        examined.composition.unwrap_or_else(|| panic!("{:?}", examined.diagnostics))
    }

    /// Loops inside loops: each runs over a list that names the item of the loop around it twice.
    pub(crate) fn nested_loops(depth: usize) -> String {
        let mut text = String::from("name: nested\nsteps:\n");
        for level in 0..depth {
            let pad = " ".repeat(level * 6);
            let over = match level {
                0 => "[1, 2]".to_owned(),
                _ => format!("'{{{{ [v{0}, v{0}] }}}}'", level - 1),
            };
            let _ = write!(
                text,
                "{pad}  - id: s{level}\n{pad}    loop:\n{pad}      over: {over}\n{pad}      as: v{level}\n{pad}      steps:\n"
            );
        }
        let pad = " ".repeat(depth * 6);
        text + &format!("{pad}  - id: end\n{pad}    set: {{ x: '{{{{ v{} }}}}' }}\n", depth - 1)
    }

    /// Once each, whatever the nesting: inferring the list anew at each mention doubles the work per loop.
    #[test]
    fn the_list_of_a_loop_is_inferred_once() {
        let depth = Limits::default().nesting_depth_max;
        let composition = compiled(&nested_loops(depth));
        let typing = Typing::new(&composition);
        let mut templates = 0;
        composition.body.walk(&mut |step| {
            crate::compile::check::templates_of(step, &mut |template| {
                templates += 1;
                typing.of(template);
            });
            typing.value(step.index);
        });
        assert_eq!(templates, depth + 1);
        let ty = typing.type_of(&ExprRoot::Item(u32::try_from(depth - 1).unwrap()));
        assert_eq!(ty, Type::Integer);
        assert!(typing.inferred.get() <= 3 * templates, "{}", typing.inferred.get());
    }

    /// A text may name its steps in any order, and each may read the next one: a stack is finite.
    #[test]
    fn steps_that_read_each_other_need_no_deep_stack() {
        const STEPS: u32 = 3_000;
        let step = |n: u32, reads: Option<u32>| match reads {
            Some(other) => format!("  - {{ id: s{n}, set: {{ x: '{{{{ [s{other}] }}}}' }} }}\n"),
            None => format!("  - {{ id: s{n}, set: {{ x: 1 }} }}\n"),
        };
        let forward = (0..STEPS).map(|n| step(n, n.checked_sub(1)));
        let backward = (0..STEPS).map(|n| step(n, Some(n + 1).filter(|next| *next < STEPS)));
        for text in [forward.collect::<String>(), backward.collect()] {
            let composition = compiled(&format!("name: long\nsteps:\n{text}"));
            // From the last and from the first, as an editor asks for one step.
            for index in [STEPS - 1, 0] {
                let typing = Typing::new(&composition);
                assert!(matches!(typing.value(index), Type::Object(_)));
                assert!(typing.depth.is_outermost());
            }
        }
    }

    /// Each step doubles the tree of the type of the one before.
    #[test]
    fn the_type_of_a_step_stays_small() {
        let mut text = String::from("name: doubled\nsteps:\n  - { id: s0, set: { x: 1 } }\n");
        for step in 1..40 {
            let before = step - 1;
            let value = format!("'{{{{ s{before} }}}}'");
            let _ = writeln!(text, "  - {{ id: s{step}, set: {{ x: {value}, y: {value} }} }}");
        }
        let composition = compiled(&text);
        let typing = Typing::new(&composition);
        composition.body.walk(&mut |step| {
            let size = typing.value(step.index).size();
            assert!(size.nodes <= TYPE_NODES_MAX, "{}: {size:?}", step.id);
        });
        assert!(typing.output().size().nodes <= TYPE_NODES_MAX);
    }
}
