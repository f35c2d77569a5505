//! Reads steps and all their fields, in the native dialect and in the chain.

use std::sync::Arc;

use super::chain;
use super::grammar::{
    APPROVE, CALL, CASE, LOOP, ON_FAILURE, ON_SUCCESS, PROBE, REPEAT, ROLLBACK, RecordGrammar,
    STEP, STEP_KINDS,
};
use super::native::read_schema;
use super::reader::{DialectReader, first_line};
use super::retry::{read_retry, read_retry_action, refuse_useless_retry, useless_retry};
use crate::composition::{
    Body, Branch, Case, FailureAction, Flow, ItemFailure, LoopStep, Next, OnApprovalTimeout,
    OnFailure, OnSuccess, Params, Probe, RepeatStep, ResolvedRollback, Step, StepKind,
    StepRollback, ToolCall, WaitFor,
};
use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::document::{Node, NodeKind};
use crate::expr::Template;
use crate::id::is_step_id;
use crate::source::Span;
use crate::value::Value;

pub(super) fn read_steps(
    reader: &mut DialectReader<'_>,
    node: &Node,
    what: &str,
) -> Vec<Arc<Step>> {
    let nodes = reader.list(node, what).iter();
    let mut steps: Vec<(Step, &Node)> =
        nodes.filter_map(|node| Some((read_step(reader, node)?, node))).collect();
    if reader.flow == Flow::Program {
        chain::resolve_jumps(reader, &mut steps);
    }
    steps.into_iter().map(|(step, _)| Arc::new(step)).collect()
}

fn read_body(reader: &mut DialectReader<'_>, node: &Node, what: &str) -> Body {
    let steps = reader.nested(node, |reader| read_steps(reader, node, what));
    if matches!(&node.kind, NodeKind::Array(items) if items.is_empty()) {
        reader.error(Code::NoSteps, node.span, format!("{what} has no steps"));
    }
    Body { steps, flow: reader.flow }
}

fn read_step(reader: &mut DialectReader<'_>, node: &Node) -> Option<Step> {
    if !reader.check_record(node, &STEP, "a step") {
        return None;
    }
    let index = reader.take_index();
    let is_program = reader.flow == Flow::Program;
    let (id, id_span) =
        if is_program { chain::read_id(reader, node, index) } else { read_id(reader, node) };
    let kind = match read_kind(reader, node, &id) {
        Some(kind) => {
            refuse_misplaced(reader, node, &kind);
            if let Some(on_failure) = node.get("on_failure") {
                refuse_useless_retry(reader, on_failure, &kind);
            }
            kind
        }
        // The kind was reported; its id stays known, so that steps that read it are not reported too.
        None => StepKind::Expand(Template::Literal(Value::Null)),
    };
    let on_failure_retries =
        node.get("on_failure").and_then(|on_failure| read_retry_action(reader, on_failure));
    let mut retry = read_retry(reader, node);
    retry.max = retry.max.or(on_failure_retries);
    let step = Step {
        index,
        id,
        id_span,
        span: node.span,
        kind,
        depends_on: node.get("depends_on").map_or_else(Vec::new, |n| read_depends_on(reader, n)),
        needs: Vec::new(),
        when: node.get("when").and_then(|n| reader.condition(n, "`when`")),
        output_key: node.get("output_key").and_then(|n| read_key(reader, n, "`output_key`")),
        timeout_ms: reader.duration_field(node, "timeout"),
        retry,
        success_when: node.get("success_when").and_then(|n| reader.condition(n, "`success_when`")),
        fail_when: node.get("fail_when").and_then(|n| reader.condition(n, "`fail_when`")),
        fallback: node.get("fallback").map_or_else(Vec::new, |n| read_fallback(reader, n)),
        on_success: node
            .get("on_success")
            .map_or_else(OnSuccess::default, |n| read_on_success(reader, n)),
        on_failure: node
            .get("on_failure")
            .map_or_else(OnFailure::default, |n| read_on_failure(reader, n)),
        rollback: node.get("rollback").map_or(StepRollback::Declared, |n| read_rollback(reader, n)),
        idempotent: node.get("idempotent").and_then(|n| reader.bool(n, "`idempotent`")),
        resolved_rollback: ResolvedRollback::Unknown,
        fallback_rollbacks: Vec::new(),
        probe: node.get("probe").and_then(|n| read_probe(reader, node, n)),
        falls_through: node
            .get("fallthrough")
            .and_then(|n| reader.bool(n, "`fallthrough`"))
            .unwrap_or(false),
        sensitive: node.get("sensitive").map_or_else(Vec::new, |n| read_pointers(reader, n)),
    };
    if is_program {
        chain::warn_without_inputs(reader, node, &step);
    }
    Some(step)
}

fn read_id(reader: &mut DialectReader<'_>, node: &Node) -> (Arc<str>, Span) {
    let Some(id) = node.get("id") else {
        let message = "a step needs an `id`";
        reader.error(Code::InvalidField, first_line(reader.source, node.span), message);
        return (format!("step_{}", reader.steps_read()).into(), node.span);
    };
    let (name, span) = read_key(reader, id, "`id`")
        .unwrap_or_else(|| (format!("step_{}", reader.steps_read()).into(), id.span));
    (name, span)
}

/// A name that is a valid path segment.
pub(super) fn read_key(
    reader: &mut DialectReader<'_>,
    node: &Node,
    what: &str,
) -> Option<(Arc<str>, Span)> {
    let name = reader.text(node, what)?;
    let reserved = RESERVED.contains(&&*name);
    if is_step_id(&name) && !reserved {
        return Some((name, node.span));
    }
    let (message, help) = if reserved {
        (format!("`{name}` is a reserved name"), "choose another name".to_owned())
    } else {
        let help = "use letters, digits, `_`, `-` and `$`";
        (format!("{what} cannot be `{name}`"), help.to_owned())
    };
    reader.error_with_help(Code::InvalidField, node.span, message, help);
    Some((name, node.span))
}

/// Reserved first segments of paths.
pub(crate) const RESERVED: &[&str] =
    &["input", "context", "state", "steps", "run", "output", "args", "error", "loop"];

fn read_kind(reader: &mut DialectReader<'_>, node: &Node, id: &Arc<str>) -> Option<StepKind> {
    let present: Vec<&str> =
        STEP_KINDS.iter().copied().filter(|kind| node.get(kind).is_some()).collect();
    let span = first_line(reader.source, node.span);
    match present.as_slice() {
        [] => {
            let message = match reader.flow {
                Flow::Graph => format!("step `{id}` does nothing"),
                // Counted from zero, like the names that the chain generates.
                Flow::Program => {
                    format!("step {} (`{id}`) has no `tool`", reader.steps_read() - 1)
                }
            };
            let help = "give it one of `tool`, `parallel`, `loop`, `repeat`, `choose`, `set`, \
                        `approve`, `wait` or `expand`";
            reader.error_with_help(Code::InvalidField, span, message, help);
            None
        }
        [kind] => read_kind_of(reader, node, kind),
        [first, second, ..] => {
            let member = node.members().iter().filter(|m| STEP_KINDS.contains(&&*m.key)).nth(1);
            let message = format!("step `{id}` is both `{first}` and `{second}`");
            let span = member.map_or(span, |member| member.key_span);
            reader.error_with_help(Code::InvalidField, span, message, "make two steps of it");
            None
        }
    }
}

fn read_kind_of(reader: &mut DialectReader<'_>, node: &Node, kind: &str) -> Option<StepKind> {
    let value = node.get(kind)?;
    Some(match kind {
        "tool" => StepKind::Tool(read_call(reader, node, value)?),
        "parallel" => read_parallel(reader, node, value),
        "loop" => StepKind::Loop(Box::new(read_loop(reader, node, value)?)),
        "repeat" => StepKind::Repeat(Box::new(read_repeat(reader, node, value)?)),
        "choose" => read_choose(reader, value),
        "set" => StepKind::Set(read_templates(reader, value, "`set`", true)),
        "approve" => read_approve(reader, node, value)?,
        "wait" => read_wait(reader, value)?,
        _ => StepKind::Expand(reader.template(value)),
    })
}

fn read_call(reader: &mut DialectReader<'_>, node: &Node, tool: &Node) -> Option<ToolCall> {
    let name = reader.text(tool, "`tool`")?;
    let parameters = match arguments(reader, node) {
        None => Params { template: Template::Literal(Value::empty_object()), span: tool.span },
        Some((word, given)) => {
            let template = reader.template(given);
            let is_object = matches!(
                template,
                Template::Object(_) | Template::Expr(_) | Template::Literal(Value::Object(_))
            );
            if !is_object {
                let message = format!("`{word}` must be an object, found {}", given.kind_name());
                reader.error(Code::InvalidField, given.span, message);
                // Continues with the rest of the step, to report its findings too.
                return Some(ToolCall {
                    name,
                    name_span: tool.span,
                    tool: None,
                    parameters: Params {
                        template: Template::Literal(Value::empty_object()),
                        span: given.span,
                    },
                });
            }
            Params { template, span: given.span }
        }
    };
    Some(ToolCall { name, name_span: tool.span, tool: None, parameters })
}

/// The arguments of a call and their field name: a chain may also use `inputs`.
fn arguments<'n>(
    reader: &mut DialectReader<'_>,
    node: &'n Node,
) -> Option<(&'static str, &'n Node)> {
    let inputs = node.get("inputs").filter(|_| reader.flow == Flow::Program);
    // An empty YAML field is null and means no arguments.
    let inputs = inputs.filter(|inputs| inputs.kind != NodeKind::Null);
    match (node.get("parameters"), inputs) {
        (Some(_), Some(second)) => {
            let message = "`parameters` and `inputs` say the same thing";
            reader.error_with_help(Code::InvalidField, second.span, message, "keep one of them");
            Some(("inputs", second))
        }
        (Some(parameters), None) => Some(("parameters", parameters)),
        (None, inputs) => inputs.map(|inputs| ("inputs", inputs)),
    }
}

/// Reports fields that belong to other kinds of steps.
fn refuse_misplaced(reader: &mut DialectReader<'_>, node: &Node, kind: &StepKind) {
    const TOOL_ONLY: &[&str] = &[
        "parameters",
        "inputs",
        "fallback",
        "probe",
        "idempotent",
        "rollback",
        "success_when",
        "fail_when",
    ];
    let is_program = reader.flow == Flow::Program;
    let misplaced = |name: &str| match name {
        "wait_for" => !matches!(kind, StepKind::Parallel { .. }),
        "steps" => true,
        "depends_on" => is_program,
        "fallthrough" => !is_program,
        name if TOOL_ONLY.contains(&name) => !matches!(kind, StepKind::Tool(_)),
        "retry" | "retry_count" => useless_retry(kind).is_some(),
        _ => false,
    };
    for member in node.members() {
        if misplaced(&member.key) {
            let message = match &*member.key {
                "depends_on" => {
                    "`depends_on` belongs to graphs; the steps of a chain follow each other"
                        .to_owned()
                }
                "fallthrough" => {
                    "`fallthrough` belongs to programs; the steps of a composition are a graph"
                        .to_owned()
                }
                other => format!("`{other}` does not belong to a `{}` step", kind.keyword()),
            };
            let help = match &*member.key {
                "wait_for" => "it belongs to `parallel`",
                "depends_on" => "put the steps in order, or use `next` to jump",
                "fallthrough" => "a step of a graph runs as soon as what it needs is there",
                "steps" => {
                    "steps belong inside `loop`, `repeat`, `choose` or a branch of `parallel`"
                }
                "retry" | "retry_count" => useless_retry(kind).unwrap_or_default(),
                _ => "it belongs to a step with `tool`",
            };
            reader.error_with_help(Code::InvalidField, member.key_span, message, help);
        }
    }
}

fn read_parallel(reader: &mut DialectReader<'_>, node: &Node, value: &Node) -> StepKind {
    let branches: Vec<Branch> = reader
        .list(value, "`parallel`")
        .iter()
        .enumerate()
        .filter_map(|(position, branch)| read_branch(reader, branch, position))
        .collect();
    if matches!(&value.kind, NodeKind::Array(items) if items.is_empty()) {
        reader.error(Code::NoSteps, value.span, "`parallel` has no branches");
    }
    let words = ["all", "any", "first_success"];
    let wait_for = node.get("wait_for").and_then(|n| reader.one_of(n, "`wait_for`", &words));
    let wait_for = match wait_for {
        Some(1) => WaitFor::Any,
        Some(2) => WaitFor::FirstSuccess,
        _ => WaitFor::All,
    };
    StepKind::Parallel { branches, wait_for }
}

/// A branch is a step, or an id with steps.
fn read_branch(reader: &mut DialectReader<'_>, node: &Node, position: usize) -> Option<Branch> {
    let is_group = node.get("steps").is_some() && !STEP_KINDS.iter().any(|k| node.get(k).is_some());
    if !is_group {
        let step = reader.nested(node, |reader| read_step(reader, node))?;
        let mut alone = [(step, node)];
        if reader.flow == Flow::Program {
            chain::resolve_jumps(reader, &mut alone);
        }
        let [(step, _)] = alone;
        let id = step.id.clone();
        return Some(Branch { id, body: Body { steps: vec![Arc::new(step)], flow: reader.flow } });
    }
    for member in node.members() {
        if !matches!(&*member.key, "id" | "steps") {
            let message = format!("a branch has no field `{}`", member.key);
            let near = nearest_name(&member.key, ["id", "steps"]);
            let finding = Diagnostic::error(Code::InvalidField, message, member.key_span);
            reader.findings.push(finding.fix_with(member.key_span, near));
        }
    }
    let id = match node.get("id") {
        Some(id) => read_key(reader, id, "`id`").map(|(id, _)| id)?,
        None => format!("branch_{position}").into(),
    };
    let body = read_body(reader, node.get("steps")?, "a branch");
    Some(Branch { id, body })
}

fn read_loop(reader: &mut DialectReader<'_>, step: &Node, node: &Node) -> Option<LoopStep> {
    if !reader.check_record_at(step.key_span("loop"), node, &LOOP, "`loop`") {
        return None;
    }
    let over = node.get("over").map(|n| reader.template(n));
    let item = node.get("as").and_then(|n| read_key(reader, n, "`as`"));
    let body = node.get("steps").map(|n| read_body(reader, n, "`loop`"));
    let output = node.get("output").map(|n| reader.template(n));
    let concurrency = node.get("max_concurrency").and_then(|n| {
        let max = reader.limits.concurrency_max as u64;
        reader.positive(n, "`max_concurrency`", max)
    });
    let max_iterations = node.get("max_iterations").and_then(|n| {
        let max = reader.limits.loop_items_max as u64;
        reader.count(n, "`max_iterations`", max)
    });
    let on_item_failure = node
        .get("on_item_failure")
        .and_then(|n| reader.one_of(n, "`on_item_failure`", &["stop", "continue"]));
    Some(LoopStep {
        over: over?,
        item: item.map_or_else(|| "item".into(), |(item, _)| item),
        body: body?,
        output,
        max_concurrency: concurrency.unwrap_or(1).max(1),
        max_iterations,
        on_item_failure: match on_item_failure {
            Some(1) => ItemFailure::Continue,
            _ => ItemFailure::Stop,
        },
    })
}

fn read_repeat(reader: &mut DialectReader<'_>, step: &Node, node: &Node) -> Option<RepeatStep> {
    let bounded = node.get("max_iterations").is_some();
    if !bounded && matches!(node.kind, NodeKind::Object(_)) {
        let span = step.key_span("repeat");
        let message = "`repeat` has no `max_iterations`, so it might never end";
        reader.error_with_help(Code::LoopLimit, span, message, "say how many rounds are enough");
    }
    let known = reader.findings.len();
    if !reader.check_record_at(step.key_span("repeat"), node, &REPEAT, "`repeat`") {
        return None;
    }
    if !bounded {
        // Reported above, with a more precise code than a missing field.
        let missing = "needs `max_iterations`";
        let mut said = reader.findings.split_off(known);
        said.retain(|finding| !finding.message.ends_with(missing));
        reader.findings.append(&mut said);
    }
    let body = node.get("steps").map(|n| read_body(reader, n, "`repeat`"));
    let until = node.get("until").and_then(|n| reader.condition(n, "`until`"));
    let max = u64::from(reader.limits.repeat_rounds_max);
    let rounds =
        node.get("max_iterations").and_then(|n| reader.positive(n, "`max_iterations`", max));
    let delay_ms = reader.duration_field(node, "delay").unwrap_or(0);
    Some(RepeatStep {
        body: body?,
        until: until?,
        max_iterations: rounds.unwrap_or(1).max(1),
        delay_ms,
    })
}

fn read_choose(reader: &mut DialectReader<'_>, node: &Node) -> StepKind {
    let mut cases = Vec::new();
    let mut otherwise: Option<Body> = None;
    for case in reader.list(node, "`choose`") {
        if !reader.check_record(case, &CASE, "a case") {
            continue;
        }
        let too_late = otherwise.is_some();
        match (case.get("when"), case.get("steps"), case.get("otherwise")) {
            (None, None, Some(steps)) => otherwise = Some(read_body(reader, steps, "`otherwise`")),
            (Some(when), Some(steps), None) => {
                let when = reader.condition(when, "`when`");
                let body = read_body(reader, steps, "a case");
                if let (true, Some(first)) = (too_late, body.steps.first()) {
                    let message =
                        format!("step `{}` can never run: it comes after `otherwise`", first.id);
                    let help = "move `otherwise` to the end";
                    reader.error_with_help(Code::UnreachableStep, first.id_span, message, help);
                }
                cases.extend(when.map(|when| Case { when, body }));
            }
            _ => {
                let message = "a case has `when` and `steps`, or `otherwise` alone";
                reader.error(Code::InvalidField, first_line(reader.source, case.span), message);
            }
        }
    }
    if matches!(&node.kind, NodeKind::Array(items) if items.is_empty()) {
        reader.error(Code::NoSteps, node.span, "`choose` has no cases");
    }
    StepKind::Choose { cases, otherwise }
}

fn read_templates(
    reader: &mut DialectReader<'_>,
    node: &Node,
    what: &str,
    names_must_fit_paths: bool,
) -> Vec<(Arc<str>, Template)> {
    if !matches!(node.kind, NodeKind::Object(_)) {
        let message = format!("{what} must be an object, found {}", node.kind_name());
        reader.error(Code::InvalidField, node.span, message);
    }
    let mut templates = Vec::new();
    for member in node.members() {
        if names_must_fit_paths && (!is_step_id(&member.key) || RESERVED.contains(&&*member.key)) {
            let message = format!("`{}` cannot be a name", member.key);
            let help = "use letters, digits, `_`, `-` and `$`, and none of the reserved names";
            reader.error_with_help(Code::InvalidField, member.key_span, message, help);
        }
        if names_must_fit_paths && reader.flow == Flow::Program {
            chain::refuse_reserved(reader, &member.key, member.key_span);
        }
        templates.push((member.key.clone(), reader.template(&member.value)));
    }
    templates
}

fn read_approve(reader: &mut DialectReader<'_>, step: &Node, node: &Node) -> Option<StepKind> {
    if !reader.check_record_at(step.key_span("approve"), node, &APPROVE, "`approve`") {
        return None;
    }
    let message = node.get("message").map(|n| reader.template(n));
    let schema = node.get("schema").and_then(|n| read_schema(reader, n, "`schema`"));
    let on_timeout =
        node.get("on_timeout").and_then(|n| reader.one_of(n, "`on_timeout`", &["deny", "approve"]));
    Some(StepKind::Approve {
        message: message?,
        schema,
        timeout_ms: reader.duration_field(node, "timeout"),
        on_timeout: if on_timeout == Some(1) {
            OnApprovalTimeout::Approve
        } else {
            OnApprovalTimeout::Deny
        },
    })
}

fn read_wait(reader: &mut DialectReader<'_>, node: &Node) -> Option<StepKind> {
    let template = reader.template(node);
    if matches!(template, Template::Literal(_)) {
        let duration = reader.duration(node, "`wait`")?;
        return Some(StepKind::Wait { duration: Template::Literal(Value::from(duration)) });
    }
    Some(StepKind::Wait { duration: template })
}

fn read_depends_on(reader: &mut DialectReader<'_>, node: &Node) -> Vec<(Arc<str>, Span)> {
    match &node.kind {
        NodeKind::Null => Vec::new(),
        NodeKind::String(id) => vec![(id.clone(), node.span)],
        _ => reader
            .list(node, "`depends_on`")
            .iter()
            .filter_map(|item| reader.text(item, "a step's id").map(|id| (id, item.span)))
            .collect(),
    }
}

fn read_fallback(reader: &mut DialectReader<'_>, node: &Node) -> Vec<ToolCall> {
    reader
        .list(node, "`fallback`")
        .iter()
        .filter_map(|call| read_call_record(reader, call, &CALL, "a fallback"))
        .collect()
}

fn read_call_record(
    reader: &mut DialectReader<'_>,
    node: &Node,
    record: &RecordGrammar,
    what: &str,
) -> Option<ToolCall> {
    if !reader.check_record(node, record, what) {
        return None;
    }
    read_call(reader, node, node.get("tool")?)
}

fn read_on_success(reader: &mut DialectReader<'_>, node: &Node) -> OnSuccess {
    if !reader.check_record(node, &ON_SUCCESS, "`on_success`") {
        return OnSuccess::default();
    }
    let next = read_next(reader, node);
    let mut map_outputs = Vec::new();
    if let Some(outputs) = node.get("map_outputs") {
        if !matches!(outputs.kind, NodeKind::Object(_)) {
            let message = format!("`map_outputs` must be an object, found {}", outputs.kind_name());
            reader.error(Code::InvalidField, outputs.span, message);
        }
        for member in outputs.members() {
            let name = read_key(reader, &member.value, "a name");
            if let (Some((name, span)), Flow::Program) = (&name, reader.flow) {
                chain::refuse_reserved(reader, name, *span);
            }
            map_outputs.extend(name.map(|(name, _)| (member.key.clone(), name)));
        }
    }
    let transform = node
        .get("transform")
        .map_or_else(Vec::new, |n| read_templates(reader, n, "`transform`", true));
    OnSuccess { map_outputs, transform, next }
}

fn read_on_failure(reader: &mut DialectReader<'_>, node: &Node) -> OnFailure {
    if !reader.check_record(node, &ON_FAILURE, "`on_failure`") {
        return OnFailure::default();
    }
    let next = read_next(reader, node);
    let word = node
        .get("action")
        .and_then(|n| reader.one_of(n, "`action`", &["stop", "retry", "continue"]));
    let go_on = node
        .get("continue_on_max_retries")
        .and_then(|n| reader.bool(n, "`continue_on_max_retries`"))
        .unwrap_or(false);
    let action = match word {
        Some(0) => FailureAction::Stop,
        Some(2) => FailureAction::Continue,
        Some(1) if go_on => FailureAction::Continue,
        // A `next` without an `action` implies `continue`.
        None if next.is_some() && node.get("action").is_none() => FailureAction::Continue,
        // A misspelled action has been reported; stop is the safe reading.
        None if node.get("action").is_some() => FailureAction::Stop,
        _ => FailureAction::Strategy,
    };
    if reader.flow == Flow::Program && (word.is_some() || node.get("action").is_none()) {
        chain::refuse_useless(reader, node, action);
    }
    let next = next.filter(|_| action == FailureAction::Continue);
    OnFailure { action, default: node.get("default").map(|n| reader.template(n)), next }
}

/// Only programs jump.
fn read_next(reader: &mut DialectReader<'_>, node: &Node) -> Option<Next> {
    if reader.flow == Flow::Program {
        return chain::read_next(reader, node);
    }
    if let Some(member) = node.members().iter().find(|member| &*member.key == "next") {
        let message = "`next` belongs to programs; the steps of a composition are a graph";
        let help = "use `depends_on` for order, `when` or `choose` for branches, \
                    `fallback` or `on_failure.action: continue` for recovery";
        reader.error_with_help(Code::InvalidField, member.key_span, message, help);
    }
    None
}

fn read_rollback(reader: &mut DialectReader<'_>, node: &Node) -> StepRollback {
    if let Some(word) = node.as_str() {
        if &**word != "none" {
            reader.one_of(node, "`rollback`", &["none"]);
        }
        return StepRollback::NotNeeded;
    }
    if !reader.check_record(node, &ROLLBACK, "`rollback`") {
        return StepRollback::Declared;
    }
    match (node.get("tool"), node.get("impossible")) {
        (Some(tool), None) => {
            read_call(reader, node, tool).map_or(StepRollback::Declared, StepRollback::Call)
        }
        (None, Some(reason)) => {
            let reason = reader.text(reason, "`impossible`").unwrap_or_default();
            StepRollback::Impossible { reason }
        }
        _ => {
            let message = "`rollback` has either `tool` or `impossible`";
            reader.error(Code::InvalidField, first_line(reader.source, node.span), message);
            StepRollback::Declared
        }
    }
}

fn read_probe(reader: &mut DialectReader<'_>, step: &Node, node: &Node) -> Option<Probe> {
    if !reader.check_record_at(step.key_span("probe"), node, &PROBE, "`probe`") {
        return None;
    }
    let done_when = node.get("done_when").and_then(|n| reader.condition(n, "`done_when`"));
    let call = read_call(reader, node, node.get("tool")?)?;
    let output = node.get("output").map(|output| reader.template(output));
    Some(Probe { call, done_when: done_when?, output })
}

fn read_pointers(reader: &mut DialectReader<'_>, node: &Node) -> Vec<Arc<str>> {
    let mut pointers = Vec::new();
    for item in reader.list(node, "`sensitive`") {
        let Some(pointer) = reader.text(item, "a pointer") else { continue };
        if pointer.is_empty() || pointer.starts_with('/') {
            pointers.push(pointer);
            continue;
        }
        let message = format!("`{pointer}` is not a JSON Pointer");
        let help = format!("write `/{}`", pointer.replace('.', "/"));
        reader.error_with_help(Code::InvalidField, item.span, message, help);
    }
    pointers
}
