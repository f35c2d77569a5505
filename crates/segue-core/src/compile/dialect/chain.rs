//! The chain dialect: steps that run one after another, with jumps and a state of named values.
//!
//! [`super::step`] reads the steps of all dialects. This module reads the parts that only a chain
//! has: the top of its document, the names of its steps, and `next`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::grammar::{CHAIN, COMPOSITE, DOCUMENTATION, IMPLEMENTATION};
use super::native::{read_all_steps, read_top};
use super::reader::{DialectReader, first_line};
use super::step::{RESERVED, read_key};
use crate::composition::{
    Body, Composition, FailureAction, Flow, Next, Step, StepKind, Strategy, Target,
};
use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::document::{Node, NodeKind};
use crate::expr::StepIndex;
use crate::id::is_step_id;
use crate::source::Span;
use crate::value::Value;

/// The jump target that ends the chain.
const END: &str = "end";

pub(super) fn read(reader: &mut DialectReader<'_>, root: &Node) -> Option<Composition> {
    if !reader.check_record(root, &CHAIN, "a chain") {
        return None;
    }
    if let Some(word) = root.get("dialect") {
        reader.one_of(word, "`dialect`", &["chain"]);
    }
    let steps = match find_steps(reader, root) {
        Some(node) => {
            collect_names(node, reader);
            read_all_steps(reader, node)
        }
        None => Vec::new(),
    };
    let mut composition = read_top(reader, root, Body { steps, flow: Flow::Program });
    read_about(reader, root, &mut composition);
    refuse_reserved_parameters(reader, root);
    if composition.error_handling.strategy == Strategy::PartialSuccess {
        let message = "`partial_success` belongs to graphs; the steps of a chain follow each other";
        let help = "say `on_failure: { action: continue }` where the chain should go on";
        let place = root.get("error_handling").and_then(|node| node.get("failure_strategy"));
        let span = place.map_or(root.span, |node| node.span);
        reader.error_with_help(Code::InvalidField, span, message, help);
    }
    Some(composition)
}

/// The steps are in `implementation`, or at the top of a document that names its dialect.
fn find_steps<'n>(reader: &mut DialectReader<'_>, root: &'n Node) -> Option<&'n Node> {
    let Some(implementation) = root.get("implementation") else {
        if root.get("steps").is_none() {
            let message = "a chain needs `implementation.composite.steps`";
            reader.error(Code::NoSteps, first_line(reader.source, root.span), message);
        }
        return root.get("steps");
    };
    if let Some(second) = root.members().iter().find(|member| &*member.key == "steps") {
        let message = "`implementation` and `steps` say the same thing";
        reader.error_with_help(Code::InvalidField, second.key_span, message, "keep one of them");
    }
    let place = root.key_span("implementation");
    if !reader.check_record_at(place, implementation, &IMPLEMENTATION, "`implementation`") {
        return None;
    }
    if let Some(word) = implementation.get("type") {
        reader.one_of(word, "`implementation.type`", &["composite"]);
    }
    let composite = implementation.get("composite")?;
    let place = implementation.key_span("composite");
    let is_read = reader.check_record_at(place, composite, &COMPOSITE, "`composite`");
    composite.get("steps").filter(|_| is_read)
}

/// Stores texts for people beside the author's own metadata.
fn read_about(reader: &mut DialectReader<'_>, root: &Node, composition: &mut Composition) {
    let mut about = composition.metadata.as_object().map(|map| (**map).clone()).unwrap_or_default();
    for field in ["display_name", "category"] {
        if let Some(text) = root.get(field).and_then(|n| reader.text(n, &format!("`{field}`"))) {
            about.insert(field.into(), Value::String(text));
        }
    }
    if let Some(node) = root.get("documentation") {
        let is_read = reader.check_record(node, &DOCUMENTATION, "`documentation`");
        let summary = node.get("summary").filter(|_| is_read);
        if let Some(summary) = summary.and_then(|n| reader.text(n, "`summary`")) {
            let documentation = Value::object([("summary", Value::String(summary))]);
            about.insert("documentation".into(), documentation);
        }
    }
    composition.metadata = about.into();
}

/// Whether the chain itself stores something in its state under this name.
pub(in crate::compile) fn is_reserved_in_state(name: &str) -> bool {
    let is_retry_count = || {
        let number = name.strip_prefix("step_")?.strip_suffix("_retry_count")?;
        Some(!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    matches!(name, "chain_id" | "chain_name" | "started_at") || is_retry_count() == Some(true)
}

/// Reports a name that the chain itself uses.
pub(super) fn refuse_reserved(reader: &mut DialectReader<'_>, name: &str, span: Span) {
    if is_reserved_in_state(name) {
        let message = format!("the chain itself stores `{name}` in its state");
        reader.error_with_help(Code::InvalidField, span, message, "choose another name");
    }
}

fn refuse_reserved_parameters(reader: &mut DialectReader<'_>, root: &Node) {
    let listed = root.get("parameters").map_or(&[][..], Node::items);
    for name in listed.iter().filter_map(|parameter| parameter.get("name")) {
        if let Some(text) = name.as_str() {
            refuse_reserved(reader, text, name.span);
        }
    }
    let properties = root.get("input").and_then(|input| input.get("properties"));
    for member in properties.map_or(&[][..], Node::members) {
        refuse_reserved(reader, &member.key, member.key_span);
    }
}

/// Collects every name that the author gives to steps and values, so that the generated name of an
/// unnamed step is unique.
pub(super) fn collect_names(node: &Node, reader: &mut DialectReader<'_>) {
    for item in node.items() {
        collect_names(item, reader);
    }
    for member in node.members() {
        let value = &member.value;
        match &*member.key {
            // Arguments of tools have names of their own.
            "inputs" | "parameters" => {}
            "id" | "name" | "output_key" | "as" => reader.taken.extend(value.as_str().cloned()),
            "map_outputs" => {
                let names = value.members().iter().filter_map(|named| named.value.as_str());
                reader.taken.extend(names.cloned());
            }
            "transform" | "set" => {
                reader.taken.extend(value.members().iter().map(|named| named.key.clone()));
            }
            _ => collect_names(value, reader),
        }
    }
}

/// A step's id: its `id`, else its `name` if that is a valid path segment, else its number.
pub(super) fn read_id(
    reader: &mut DialectReader<'_>,
    node: &Node,
    index: StepIndex,
) -> (Arc<str>, Span) {
    let name = node.get("name").and_then(|n| Some((reader.text(n, "`name`")?, n.span)));
    let id = node.get("id").and_then(|n| read_key(reader, n, "`id`"));
    for (word, span) in id.iter().chain(&name) {
        if &**word == END {
            let message = format!("`{END}` is a reserved name: `next: {END}` ends the chain");
            reader.error_with_help(Code::InvalidField, *span, message, "choose another name");
        }
    }
    let usable = |(name, _): &(Arc<str>, Span)| is_step_id(name) && !RESERVED.contains(&&**name);
    id.or_else(|| name.filter(usable)).unwrap_or_else(|| {
        let place = node.get("tool").map_or(node.span, |tool| tool.span);
        (free_name(reader, index), first_line(reader.source, place))
    })
}

fn free_name(reader: &DialectReader<'_>, index: StepIndex) -> Arc<str> {
    let plain = format!("step_{index}");
    let mut others = (2..).map(|number| format!("{plain}_{number}"));
    let mut name = plain.clone();
    while reader.taken.contains(&*name) {
        name = others.next().unwrap_or_default();
    }
    name.into()
}

/// Reads a jump target; [`resolve_jumps`] resolves it once all sibling steps are read.
pub(super) fn read_next(reader: &mut DialectReader<'_>, node: &Node) -> Option<Next> {
    let node = node.get("next")?;
    let name = reader.text(node, "`next`")?;
    Some(Next { name, span: node.span, target: Target::End })
}

/// Reports fields of `on_failure` that have no effect, so that none is ignored silently.
pub(super) fn refuse_useless(reader: &mut DialectReader<'_>, node: &Node, action: FailureAction) {
    let word = node.get("action").and_then(Node::as_str).map_or("", |word| word);
    let retries = word == "retry";
    for member in node.members() {
        let (useless, help) = match &*member.key {
            "max_retries" | "continue_on_max_retries" => {
                (!retries, "it belongs to `action: retry`")
            }
            "next" | "default" if retries => (
                action != FailureAction::Continue,
                "the chain stops after the last attempt; `continue_on_max_retries: true` lets it go on",
            ),
            "next" | "default" => (
                action != FailureAction::Continue,
                "the chain stops here; `action: continue` lets it go on",
            ),
            _ => (false, ""),
        };
        if useless {
            let message = format!("`{}` has no effect here", member.key);
            reader.error_with_help(Code::InvalidField, member.key_span, message, help);
        }
    }
}

/// The jump targets among the steps of one body: positions in the order of the text.
#[derive(Default)]
struct Targets {
    /// Ids, names, tools, tools without their namespace: the first map that has the name wins.
    classes: [BTreeMap<Arc<str>, Vec<usize>>; 4],
}

impl Targets {
    fn of(steps: &[(Step, &Node)]) -> Targets {
        let mut targets = Targets::default();
        for (position, (step, node)) in steps.iter().enumerate() {
            let tool = match &step.kind {
                StepKind::Tool(call) => Some(call.name.clone()),
                _ => None,
            };
            let short = tool.as_ref().and_then(|tool| tool.split_once(':'));
            let short = short.map(|(_, short)| Arc::from(short));
            let name = node.get("name").and_then(Node::as_str).cloned();
            let words = [Some(step.id.clone()), name, tool, short];
            for (class, word) in targets.classes.iter_mut().zip(words) {
                if let Some(word) = word {
                    class.entry(word).or_default().push(position);
                }
            }
        }
        targets
    }

    /// The nearest later step of this name, else the nearest one that is not later.
    fn find(&self, name: &str, from: usize) -> Option<usize> {
        let positions = self.classes.iter().find_map(|class| class.get(name))?;
        let after = positions.partition_point(|position| *position <= from);
        positions.get(after).or_else(|| positions[..after].last()).copied()
    }

    fn nearest(&self, name: &str) -> Option<&str> {
        let words = self.classes.iter().flat_map(|class| class.keys()).map(|word| &**word);
        nearest_name(name, words.chain([END]))
    }
}

/// Resolves every `next` among the steps of one body.
pub(super) fn resolve_jumps(reader: &mut DialectReader<'_>, steps: &mut [(Step, &Node)]) {
    let jumps = |step: &Step| step.on_success.next.is_some() || step.on_failure.next.is_some();
    if !steps.iter().any(|(step, _)| jumps(step)) {
        return;
    }
    let targets = Targets::of(steps);
    for (position, (step, _)) in steps.iter_mut().enumerate() {
        for next in [&mut step.on_success.next, &mut step.on_failure.next] {
            // An invalid jump is removed, so that the steps after it are not reported as
            // unreachable too.
            *next = next.take().and_then(|next| resolve_jump(reader, next, position, &targets));
        }
    }
}

fn resolve_jump(
    reader: &mut DialectReader<'_>,
    mut next: Next,
    from: usize,
    targets: &Targets,
) -> Option<Next> {
    if &*next.name != END {
        let Some(at) = targets.find(&next.name, from) else {
            unknown_target(reader, &next, targets);
            return None;
        };
        let at = u32::try_from(at).expect("a composition has far fewer than 2^32 steps");
        next.target = Target::Step(at);
    }
    Some(next)
}

fn unknown_target(reader: &mut DialectReader<'_>, next: &Next, targets: &Targets) {
    let message = format!("`next` names no step: `{}`", next.name);
    let finding = Diagnostic::error(Code::UnknownStep, message, next.span);
    let inner = reader.name_in_key(next.span);
    reader.findings.push(match targets.nearest(&next.name) {
        Some(near) => finding.fix(inner, near),
        None => finding
            .help("`next` takes the id, the name or the tool of a step in the same list, or `end`"),
    });
}

/// Hints at a call without arguments, which may be forgotten.
pub(super) fn warn_without_inputs(reader: &mut DialectReader<'_>, node: &Node, step: &Step) {
    let has = |field: &str| node.get(field).is_some_and(|node| node.kind != NodeKind::Null);
    if let StepKind::Tool(call) = &step.kind
        && !has("inputs")
        && !has("parameters")
    {
        let message = format!("step `{}` has no `inputs`: its tool is called without any", step.id);
        let help = "write `inputs: {}` if that is meant";
        reader.warn(Code::InvalidField, call.name_span, message, help);
    }
}
