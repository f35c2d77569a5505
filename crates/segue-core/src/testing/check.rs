//! Checks a test file: its steps and tools exist, and its values match their schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    ExpectedCall, Located, LocatedName, MockOutcome, MockResponse, Test, TestFile, ToolMock, fits,
    test_tool,
};
use crate::catalog::{Catalog, ToolLookup};
use crate::compile::read_header;
use crate::composition::StepKind;
use crate::composition::tool::ToolSpec;
use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::document::Node;
use crate::id::{ToolId, refers_to_step, without_iterations};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::schema::Schema;
use crate::source::{Source, Span};
use crate::types::Type;
use crate::value::Value;

/// The catalog of a test: known tools, tools that only the tests declare or mock, and compositions
/// that a test mocks as a whole.
pub fn catalog_for(
    file: &TestFile,
    composition: &Source,
    known: &Catalog,
    limits: &Limits,
) -> Catalog {
    let mut catalog = known.clone();
    for tool in &file.declared {
        // The definition of a known tool takes precedence over a test's declaration.
        if known.get(&tool.id).is_none() {
            catalog.insert(tool.clone());
        }
    }
    let mocks = || file.mocks.iter().chain(file.tests.iter().flat_map(|test| &test.mocks));
    for mock in mocks() {
        if let ToolLookup::Found(tool) = known.find(&mock.name.value)
            && tool.composition.is_some()
        {
            catalog.insert(Arc::new(ToolSpec { composition: None, ..(**tool).clone() }));
        }
    }
    let Some(header) = read_header(composition, limits) else { return catalog };
    header.body.walk(&mut |step| {
        for call in step.calls() {
            let name = &*call.name;
            let is_unknown = matches!(catalog.find(name), ToolLookup::Missing { .. });
            let is_mocked =
                mocks().any(|mock| *mock.name.value == *name || *mock.name.value == *step.id);
            if is_unknown && is_mocked {
                catalog.insert(Arc::new(test_tool(name, Schema::any_object())));
            }
        }
    });
    catalog
}

/// Errors in a test file. `pure` are the tools that a test may really call.
pub fn check(file: &TestFile, plan: &Plan, catalog: &Catalog, pure: &[ToolId]) -> Vec<Diagnostic> {
    let mut steps = BTreeMap::new();
    add_steps(plan, 0, "", &mut steps);
    let mut check =
        Check { steps, is_open: plan.has_expand_step(), catalog, pure, findings: Vec::new() };
    file.mocks.iter().for_each(|mock| check.mock(mock));
    file.tests.iter().for_each(|test| check.test(test));
    check.findings
}

/// Every step, by its path without iterations, with the tool that it calls.
type Steps = BTreeMap<String, Option<Arc<ToolSpec>>>;

fn add_steps(plan: &Plan, body: u32, outer: &str, steps: &mut Steps) {
    for planned in plan.steps_of(body) {
        let path = format!("{outer}{}", planned.step.id);
        let inside = format!("{path}/");
        let tool = match &planned.step.kind {
            StepKind::Tool(call) => call.tool.clone(),
            _ => None,
        };
        steps.insert(path, tool);
        planned.bodies.iter().for_each(|body| add_steps(plan, *body, &inside, steps));
        planned.nested.values().for_each(|nested| add_steps(nested, 0, &inside, steps));
    }
}

struct Check<'a> {
    steps: Steps,
    /// Whether there may be further steps, which `expand` makes at run time.
    is_open: bool,
    catalog: &'a Catalog,
    pure: &'a [ToolId],
    findings: Vec<Diagnostic>,
}

/// The target of a name.
enum NameTarget {
    /// A tool, or a step that calls one.
    Tool(Arc<ToolSpec>),
    /// A step without a call of its own, or an unknown one.
    Step,
}

impl Check<'_> {
    fn error(&mut self, code: Code, span: Span, message: String, help: Option<String>) {
        let mut finding = Diagnostic::error(code, message, span);
        finding.help = help;
        self.findings.push(finding);
    }

    /// The step of a name; an iteration refers to its step.
    fn step(&self, name: &str) -> Option<NameTarget> {
        let plain = without_iterations(name);
        let (_, tool) = self.steps.iter().find(|(path, _)| refers_to_step(&plain, path))?;
        Some(tool.clone().map_or(NameTarget::Step, NameTarget::Tool))
    }

    /// The target of a tool or step name; unknown names are reported.
    fn meant(&mut self, name: &LocatedName) -> Option<NameTarget> {
        match (self.step(&name.value), self.catalog.find(&name.value)) {
            (Some(tool @ NameTarget::Tool(_)), _) => return Some(tool),
            (_, ToolLookup::Found(tool)) => return Some(NameTarget::Tool(tool.clone())),
            (Some(step @ NameTarget::Step), _) => return Some(step),
            (None, _) if self.is_open => return Some(NameTarget::Step),
            (None, _) => {}
        }
        let tools = self.steps.values().flatten().map(|tool| tool.id.as_str());
        let names = tools.chain(self.steps.keys().map(String::as_str));
        let near = nearest_name(&name.value, names).map(|near| format!("did you mean `{near}`?"));
        let message = format!("there is no step and no tool `{}`", name.value);
        self.error(Code::NotFound, name.span, message, near);
        None
    }

    fn known_step(&mut self, name: &LocatedName) {
        if self.step(&name.value).is_some() || self.is_open {
            return;
        }
        let steps = self.steps.keys().map(String::as_str);
        let near = nearest_name(&name.value, steps).map(|near| format!("did you mean `{near}`?"));
        let message = format!("there is no step `{}`", name.value);
        self.error(Code::UnknownStep, name.span, message, near);
    }

    fn mock(&mut self, mock: &ToolMock) {
        match self.meant(&mock.name) {
            Some(NameTarget::Tool(tool)) => {
                mock.responses.iter().for_each(|answer| self.answer(answer, &tool));
            }
            Some(NameTarget::Step) if !self.is_open => {
                let message = format!("step `{}` makes no call of its own", mock.name.value);
                self.error(Code::InvalidField, mock.name.span, message, None);
            }
            Some(NameTarget::Step) | None => {}
        }
    }

    fn answer(&mut self, answer: &MockResponse, tool: &ToolSpec) {
        if let Some(when) = &answer.when {
            self.arguments(when, tool);
        }
        if let (MockOutcome::Value(value), Some(schema)) = (&answer.outcome, &tool.output) {
            self.fits(value, schema, tool);
        }
    }

    /// A mocked value must match the tool's output schema.
    fn fits(&mut self, value: &Node, schema: &Schema, tool: &ToolSpec) {
        for violation in schema.violations(&value.to_value()) {
            let span = value.at_pointer(&violation.pointer).span;
            let message = format!("the answer does not fit `{}`: {violation}", tool.id);
            let help = format!("`segue tools show {}` shows its output schema", tool.id);
            self.error(Code::OutputSchema, span, message, Some(help));
        }
    }

    /// Expected arguments must exist in the tool's input schema.
    fn arguments(&mut self, arguments: &Located<Value>, tool: &ToolSpec) {
        let (Type::Object(known), Value::Object(given)) = (tool.input.ty(), &arguments.value)
        else {
            return;
        };
        let is_closed = tool.input.json().get("additionalProperties") == Some(&Value::Bool(false));
        for name in given.keys().filter(|name| is_closed && !known.properties.contains_key(*name)) {
            let names = known.properties.keys().map(|name| &**name);
            let near = nearest_name(name, names).map(|near| format!("did you mean `{near}`?"));
            let message = format!("`{}` has no argument `{name}`", tool.id);
            self.error(Code::UnknownParameter, arguments.span, message, near);
        }
    }

    fn test(&mut self, test: &Test) {
        test.mocks.iter().for_each(|mock| self.mock(mock));
        for real in &test.real {
            let is_pure =
                |tool: &&ToolId| fits(&real.value, tool.name()) || fits(&real.value, tool.as_str());
            if !self.pure.iter().any(|tool| is_pure(&tool)) {
                let names: Vec<&str> = self.pure.iter().map(ToolId::name).collect();
                let message = format!("tests may not really call `{}`", real.value);
                let help = format!("tools without side effects: {}", names.join(", "));
                self.error(Code::InvalidField, real.span, message, Some(help));
            }
        }
        test.confirm.steps.iter().chain(&test.doubts).for_each(|(step, _)| self.known_step(step));
        let expect = &test.expect;
        let calls = expect.calls.iter().flat_map(|calls| &calls.value);
        calls.for_each(|call| self.call(call));
        for name in expect.order.iter().chain(&expect.not_called) {
            self.meant(name);
        }
        expect.steps.iter().for_each(|(step, _)| self.known_step(step));
        let back = expect.rolled_back.iter().flat_map(|steps| &steps.value);
        back.for_each(|step| self.known_step(step));
        let errors = expect.errors.iter().flat_map(|errors| &errors.value);
        errors.filter_map(|error| error.step.as_ref()).for_each(|step| self.known_step(step));
    }

    fn call(&mut self, call: &ExpectedCall) {
        if let Some(step) = &call.step {
            self.known_step(step);
        }
        let Some(name) = &call.tool else { return };
        let tool = match self.catalog.find(&name.value) {
            ToolLookup::Found(tool) => tool.clone(),
            ToolLookup::Ambiguous(ids) => {
                let ids: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
                let help = Some(format!("write one of `{}`", ids.join("`, `")));
                let message = format!("several tools are called `{}`", name.value);
                return self.error(Code::AmbiguousTool, name.span, message, help);
            }
            ToolLookup::Missing { nearest } => {
                let help = nearest.map(|near| format!("did you mean `{near}`?"));
                let message = format!("Tool not found in registry: {}", name.value);
                return self.error(Code::UnknownTool, name.span, message, help);
            }
        };
        for arguments in call.arguments.iter().chain(&call.arguments_include) {
            self.arguments(arguments, &tool);
        }
    }
}
