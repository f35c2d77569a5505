//! Arazzo 1.x: workflows over the operations of APIs, as programs of calls.
//!
//! A document may hold several workflows; the composition is the first one, or the one that
//! `x-segue-workflow` names. The value of an operation is the body of its response. An unsuccessful
//! status fails the call, so criteria about a successful status always hold. Response headers are
//! not available.

use std::collections::BTreeMap;

use super::arazzo_expr::{Outputs, condition, template};
use super::grammar::{ARAZZO, ARAZZO_STEP, ARAZZO_WORKFLOW};
use super::lower::{
    array, first_member, keep_members, member, number, object, of_value, rename_member, text,
    unknown,
};
use super::reader::{DialectReader, first_line};
use crate::diagnostic::Code;
use crate::document::{Member, Node, NodeKind};
use crate::value::Value;

/// Lowers the workflow to the native dialect.
pub(super) fn lower(reader: &mut DialectReader<'_>, root: &Node) -> Option<Node> {
    reader.check_record(root, &ARAZZO, "an Arazzo document");
    let version = root.get("arazzo").and_then(Node::as_str).cloned().unwrap_or_default();
    if !version.starts_with("1.") {
        let span = root.get("arazzo").map_or(root.span, |node| node.span);
        let message = format!("Arazzo {version} is not supported, only 1.x");
        reader.error(Code::Unsupported, span, message);
        return None;
    }
    let workflow = choose(reader, root)?;
    if !reader.check_record(workflow, &ARAZZO_WORKFLOW, "a workflow") {
        return None;
    }
    let mut members = Vec::new();
    if let Some(id) = first_member(workflow, &["workflowId"]) {
        let name = reader.text(&id.value, "`workflowId`")?;
        let name = text(id.value.span, kebab(&name));
        members.push(Member { key: "name".into(), key_span: id.key_span, value: name });
    }
    members.extend(
        first_member(workflow, &["description", "summary"])
            .map(|found| rename_member(found, "description")),
    );
    let version = root.get("info").and_then(|info| first_member(info, &["version"]));
    members.extend(version.filter(|found| found.value.as_str().is_some()).cloned());
    members.extend(first_member(workflow, &["inputs"]).map(|found| Member {
        key: "input".into(),
        key_span: found.key_span,
        value: referred(root, &found.value).clone(),
    }));
    let here = first_member(workflow, &["steps"]).map_or(workflow.span, |found| found.key_span);
    members.push(member("flow", text(here, "program")));
    let steps = first_member(workflow, &["steps"]);
    let items = steps.map_or(&[][..], |steps| steps.value.items());
    let outputs = outputs_of(items);
    if let Some(found) = first_member(workflow, &["outputs"]) {
        let value = named(reader, &found.value, &outputs);
        members.push(Member { key: "output".into(), key_span: found.key_span, value });
    }
    if let Some(steps) = steps {
        let mut lowerer = Lowerer { reader, root, workflow, outputs };
        let lowered = items.iter().filter_map(|step| lowerer.step(step)).collect();
        let value = array(steps.value.span, lowered);
        members.push(Member { key: "steps".into(), key_span: steps.key_span, value });
    }
    Some(object(workflow.span, members))
}

fn choose<'n>(reader: &mut DialectReader<'_>, root: &'n Node) -> Option<&'n Node> {
    let workflows = root.get("workflows").map_or(&[][..], Node::items);
    let here = first_line(reader.source, root.span);
    let Some(wanted) = root.get("x-segue-workflow") else {
        if workflows.is_empty() {
            reader.error(Code::NoSteps, here, "the document has no workflows");
        }
        return workflows.first();
    };
    let id = reader.text(wanted, "`x-segue-workflow`")?;
    let is_it = |workflow: &&Node| workflow.get("workflowId").and_then(Node::as_str) == Some(&id);
    let found = workflows.iter().find(is_it);
    if found.is_none() {
        reader.error(Code::NotFound, wanted.span, format!("there is no workflow `{id}`"));
    }
    found
}

/// A valid name for a composition: `loginUser` becomes `login-user`.
fn kebab(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    for c in id.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        name.push(if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' });
    }
    name
}

/// The target of a `$ref` inside the document; the node itself otherwise.
fn referred<'n>(root: &'n Node, node: &'n Node) -> &'n Node {
    match node.get("$ref").and_then(Node::as_str).and_then(|pointer| pointer.strip_prefix('#')) {
        Some(pointer) => root.at_pointer(pointer),
        None => node,
    }
}

/// The outputs of each step, as written.
fn outputs_of(steps: &[Node]) -> Outputs {
    let mut outputs = BTreeMap::new();
    for step in steps {
        let Some(id) = step.get("stepId").and_then(Node::as_str) else { continue };
        for output in step.get("outputs").map_or(&[][..], Node::members) {
            if let Some(expression) = output.value.as_str() {
                outputs.insert((id.clone(), output.key.clone()), expression.clone());
            }
        }
    }
    outputs
}

/// An object whose values are expressions.
fn named(reader: &mut DialectReader<'_>, node: &Node, outputs: &Outputs) -> Node {
    let members = node
        .members()
        .iter()
        .map(|found| Member { value: value(reader, &found.value, outputs), ..found.clone() });
    object(node.span, members.collect())
}

/// A value with expressions in its strings.
fn value(reader: &mut DialectReader<'_>, node: &Node, outputs: &Outputs) -> Node {
    match &node.kind {
        NodeKind::String(written) => match template(written, outputs) {
            Ok(translated) => text(node.span, translated),
            Err(what) => {
                untranslated(reader, node, &what);
                unknown(node.span)
            }
        },
        NodeKind::Array(items) => {
            array(node.span, items.iter().map(|item| value(reader, item, outputs)).collect())
        }
        NodeKind::Object(_) => named(reader, node, outputs),
        _ => node.clone(),
    }
}

fn untranslated(reader: &mut DialectReader<'_>, node: &Node, what: &str) {
    let message = format!("this cannot be translated: {what}");
    let help = "write the workflow as a composition: `segue convert` shows the rest of it";
    reader.error_with_help(Code::Unsupported, node.span, message, help);
}

struct Lowerer<'r, 'a, 'n> {
    reader: &'r mut DialectReader<'a>,
    root: &'n Node,
    workflow: &'n Node,
    outputs: Outputs,
}

impl Lowerer<'_, '_, '_> {
    fn step(&mut self, step: &Node) -> Option<Node> {
        if !self.reader.check_record(step, &ARAZZO_STEP, "a step") {
            return None;
        }
        let mut members = Vec::new();
        members.extend(first_member(step, &["stepId"]).map(|found| rename_member(found, "id")));
        members.push(self.tool(step)?);
        members.extend(self.arguments(step));
        members.extend(self.success_criteria(step));
        let success = self.actions(step, "onSuccess", "successActions");
        members.extend(success.and_then(|(place, actions)| self.on_success(&place, &actions)));
        let failure = self.actions(step, "onFailure", "failureActions");
        if let Some((place, actions)) = failure {
            members.extend(self.on_failure(&place, &actions));
        }
        members.extend(
            keep_members(step, &["timeout"])
                .into_iter()
                .map(|found| rename_member(&found, "timeout_ms")),
        );
        Some(object(step.span, members))
    }

    /// The tool of an operation; the source description is its namespace.
    fn tool(&mut self, step: &Node) -> Option<Member> {
        if let Some(found) = first_member(step, &["operationPath", "channelPath"]) {
            let message = format!("`{}` does not say which tool is meant", found.key);
            let help = "name the operation with `operationId`";
            self.reader.error_with_help(Code::Unsupported, found.key_span, message, help);
            return None;
        }
        let found = first_member(step, &["operationId", "workflowId"]);
        let Some(found) = found else {
            let place = first_line(self.reader.source, step.span);
            let message = "a step needs an `operationId` or a `workflowId`";
            self.reader.error(Code::InvalidField, place, message);
            return None;
        };
        let id = self.reader.text(&found.value, &format!("`{}`", found.key))?;
        let in_source =
            id.strip_prefix("$sourceDescriptions.").and_then(|rest| rest.split_once('.'));
        let name = match (&*found.key, in_source) {
            ("workflowId", Some((_, id))) => format!("composition:{}", kebab(id)),
            ("workflowId", None) => format!("composition:{}", kebab(&id)),
            (_, Some((source, operation))) => format!("{source}:{operation}"),
            (_, None) => id.to_string(),
        };
        let value = text(found.value.span, name);
        Some(Member { key: "tool".into(), key_span: found.key_span, value })
    }

    /// Parameters of the workflow and of the step by name; the request body as `body`.
    fn arguments(&mut self, step: &Node) -> Option<Member> {
        let mut members: Vec<Member> = Vec::new();
        let own = first_member(step, &["parameters"]);
        let shared = first_member(self.workflow, &["parameters"]);
        for list in [shared, own].into_iter().flatten() {
            for parameter in list.value.items() {
                let declared = component(self.root, parameter, "parameters");
                let name = parameter.get("name").or_else(|| declared.get("name"));
                let given = first_member(parameter, &["value"])
                    .or_else(|| first_member(declared, &["value"]));
                let (Some(name), Some(given)) = (name.and_then(Node::as_str), given) else {
                    let message = "a parameter needs a `name` and a `value`";
                    let place = first_line(self.reader.source, parameter.span);
                    self.reader.error(Code::InvalidField, place, message);
                    continue;
                };
                let value = value(self.reader, &given.value, &self.outputs);
                members.retain(|member| member.key != *name);
                members.push(Member { key: name.clone(), key_span: parameter.span, value });
            }
        }
        let body = first_member(step, &["requestBody"]);
        if let Some(payload) = body.and_then(|body| first_member(&body.value, &["payload"])) {
            let value = value(self.reader, &payload.value, &self.outputs);
            members.push(Member { value, ..rename_member(payload, "body") });
        }
        let place = own.or(body)?;
        let value = object(place.value.span, members);
        Some(Member { key: "parameters".into(), key_span: place.key_span, value })
    }

    fn success_criteria(&mut self, step: &Node) -> Option<Member> {
        let found = first_member(step, &["successCriteria"])?;
        let mut conditions = Vec::new();
        for criterion in found.value.items() {
            let kind = criterion.get("type").and_then(Node::as_str);
            if kind.is_some_and(|kind| &**kind != "simple") {
                untranslated(self.reader, criterion, "only simple criteria are supported");
                continue;
            }
            let Some(written) = criterion.get("condition") else { continue };
            let Some(text) = self.reader.text(written, "`condition`") else { continue };
            match condition(&text, &self.outputs) {
                Ok(Some(translated)) => conditions.push(translated),
                Ok(None) => {}
                Err(what) => untranslated(self.reader, written, &what),
            }
        }
        let joined: Vec<String> = conditions.iter().map(|part| format!("({part})")).collect();
        let whole = format!("{{{{ {} }}}}", joined.join(" and "));
        let value = text(found.value.span, whole);
        (!joined.is_empty()).then(|| Member {
            key: "success_when".into(),
            key_span: found.key_span,
            value,
        })
    }

    /// The actions of a step, else those of the workflow, in the order of the document.
    fn actions(&self, step: &Node, word: &str, kind: &str) -> Option<(Member, Vec<Node>)> {
        let found = first_member(step, &[word]).or_else(|| first_member(self.workflow, &[kind]))?;
        let declared =
            found.value.items().iter().map(|action| component(self.root, action, kind).clone());
        Some((found.clone(), declared.collect()))
    }

    fn on_success(&mut self, place: &Member, actions: &[Node]) -> Option<Member> {
        let action = actions.first()?;
        self.only_plain(action, actions.get(1));
        let target = self.target(action)?;
        let value = object(place.value.span, vec![member("next", target)]);
        Some(Member { key: "on_success".into(), key_span: place.key_span, value })
    }

    /// `end`, or the step that a `goto` names.
    fn target(&mut self, action: &Node) -> Option<Node> {
        let word = action.get("type")?;
        match self.reader.one_of(word, "`type`", &["end", "goto", "retry"])? {
            0 => Some(text(word.span, "end")),
            1 => match action.get("stepId") {
                Some(step) => Some(step.clone()),
                None => {
                    untranslated(self.reader, action, "a `goto` leads to a step of this workflow");
                    None
                }
            },
            _ => None,
        }
    }

    fn only_plain(&mut self, action: &Node, another: Option<&Node>) {
        for criteria in
            [Some(action), another].into_iter().flatten().filter_map(|a| a.get("criteria"))
        {
            untranslated(self.reader, criteria, "an action with criteria of its own");
        }
        if let Some(another) = another.filter(|_| action.get("criteria").is_none()) {
            untranslated(self.reader, another, "a second action; the first one is always taken");
        }
    }

    /// A retry, then the action that follows it.
    fn on_failure(&mut self, place: &Member, actions: &[Node]) -> Vec<Member> {
        let is_retry = |action: &Node| {
            action.get("type").and_then(Node::as_str).is_some_and(|word| &**word == "retry")
        };
        let retry = actions.first().filter(|action| is_retry(action));
        let rest = if retry.is_some() { &actions[1..] } else { actions };
        let mut members = Vec::new();
        if let Some(action) = rest.first() {
            self.only_plain(action, rest.get(1));
            let is_end =
                action.get("type").and_then(Node::as_str).is_some_and(|word| &**word == "end");
            let span = action.span;
            let inside = match self.target(action).filter(|_| !is_end) {
                Some(target) => {
                    vec![member("action", text(span, "continue")), member("next", target)]
                }
                None => vec![member("action", text(span, "stop"))],
            };
            let value = object(span, inside);
            members.push(Member { key: "on_failure".into(), key_span: place.key_span, value });
        }
        if let Some(action) = retry {
            if let Some(criteria) = action.get("criteria") {
                untranslated(self.reader, criteria, "an action with criteria of its own");
            }
            let limit =
                first_member(action, &["retryLimit"]).map(|found| rename_member(found, "max"));
            let limit = limit.unwrap_or_else(|| member("max", number(action.span, 1)));
            let mut inside = vec![limit];
            if let Some(after) = first_member(action, &["retryAfter"])
                && let Some(seconds) = after.value.to_value().as_f64()
            {
                let wait = Value::from(format!("{}ms", (seconds * 1000.0).round()));
                let initial = member("initial", of_value(after.value.span, &wait));
                inside.push(member("backoff", object(after.value.span, vec![initial])));
            }
            members.push(Member {
                key: "retry".into(),
                key_span: place.key_span,
                value: object(action.span, inside),
            });
        }
        members
    }
}

/// The target of `reference: $components.KIND.NAME`; the node itself otherwise.
fn component<'c>(root: &'c Node, node: &'c Node, kind: &str) -> &'c Node {
    let name = node.get("reference").and_then(Node::as_str);
    let name = name.and_then(|name| name.strip_prefix("$components."));
    let name = name.and_then(|name| name.strip_prefix(kind)).and_then(|n| n.strip_prefix('.'));
    let components = root.get("components").and_then(|known| known.get(kind));
    name.and_then(|name| components?.get(name)).unwrap_or(node)
}
