//! Lowers a chain to the native dialect: the same program, with every step's name and target
//! explicit.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lower::{
    array, first_member, keep_members, member, object, rename_member, text, truth_of,
};
use crate::composition::{Body, Composition, Target};
use crate::document::{Member, Node, NodeKind};
use crate::source::Span;

/// Members that have the same meaning in the native dialect.
const SHARED: &[&str] = &[
    "name",
    "description",
    "version",
    "input",
    "parameters",
    "requires",
    "atomic",
    "timeout",
    "timeout_ms",
    "max_concurrency",
    "guards",
    "output",
    "error_handling",
];

/// Fields of a step that hold a call, or a list of them.
const CALLS: &[&str] = &["fallback", "rollback", "probe"];

pub(in crate::compile) fn lower_chain(root: &Node, composition: &Composition) -> Node {
    let mut names = Names::default();
    names.collect(&composition.body);
    let mut members = keep_members(root, SHARED);
    let steps = match root.get("implementation") {
        Some(implementation) => {
            implementation.get("composite").and_then(|node| first_member(node, &["steps"]))
        }
        None => first_member(root, &["steps"]),
    };
    let about = about(root);
    members.extend(about);
    let here =
        first_member(root, &["implementation", "steps"]).map_or(root.span, |found| found.key_span);
    members.push(member("flow", text(here, "program")));
    if let Some(steps) = steps {
        let value = names.steps(&steps.value);
        members.push(Member { key: "steps".into(), key_span: steps.key_span, value });
    }
    object(root.span, members)
}

/// Texts for people become metadata, as in the compiled composition.
fn about(root: &Node) -> Option<Member> {
    let metadata = first_member(root, &["metadata"]);
    let mut members = metadata.map_or_else(Vec::new, |found| found.value.members().to_vec());
    members.extend(keep_members(root, &["display_name", "category", "documentation"]));
    let first = members.first()?;
    let span = metadata.map_or(first.key_span, |found| found.value.span);
    let key_span = metadata.map_or(first.key_span, |found| found.key_span);
    Some(Member { key: "metadata".into(), key_span, value: object(span, members) })
}

/// The names of a chain's steps, by their position.
#[derive(Default)]
struct Names {
    ids: BTreeMap<(u32, u32), Arc<str>>,
    targets: BTreeMap<(u32, u32), Arc<str>>,
}

fn place(span: Span) -> (u32, u32) {
    (span.start, span.end)
}

impl Names {
    fn collect(&mut self, body: &Body) {
        for step in &body.steps {
            self.ids.insert(place(step.span), step.id.clone());
            for next in [&step.on_success.next, &step.on_failure.next].into_iter().flatten() {
                let target = match next.target {
                    Target::End => "end".into(),
                    Target::Step(at) => body.steps[at as usize].id.clone(),
                };
                self.targets.insert(place(next.span), target);
            }
            step.kind.bodies().into_iter().for_each(|inner| self.collect(inner));
        }
    }

    fn steps(&self, node: &Node) -> Node {
        array(node.span, node.items().iter().map(|step| self.step(step)).collect())
    }

    /// A step, or a branch with steps of its own.
    fn step(&self, node: &Node) -> Node {
        let mut members = Vec::new();
        if let Some(id) = self.ids.get(&place(node.span)) {
            let written = first_member(node, &["id", "name"]);
            let span = written.map_or(node.span, |found| found.key_span);
            members.push(Member { key_span: span, ..member("id", text(span, id.clone())) });
        }
        for found in node.members() {
            match &*found.key {
                "id" if members.is_empty() => members.push(found.clone()),
                "id" | "name" => {}
                "when" => members.push(truthy(found)),
                "steps" | "parallel" => {
                    members.push(Member { value: self.steps(&found.value), ..found.clone() });
                }
                "loop" | "repeat" => {
                    members.push(Member { value: self.body(&found.value), ..found.clone() });
                }
                "choose" => {
                    let cases = found.value.items().iter().map(|case| self.body(case)).collect();
                    let value = array(found.value.span, cases);
                    members.push(Member { value, ..found.clone() });
                }
                "on_success" | "on_failure" => {
                    members.push(Member { value: self.jump(&found.value), ..found.clone() });
                }
                "inputs" if found.value.kind == NodeKind::Null => {}
                "inputs" => members.push(rename_member(found, "parameters")),
                key if CALLS.contains(&key) => {
                    members.push(Member { value: calls(&found.value), ..found.clone() });
                }
                _ => members.push(found.clone()),
            }
        }
        object(node.span, members)
    }

    fn body(&self, node: &Node) -> Node {
        let inside = node.members().iter().map(|found| match &*found.key {
            "steps" | "otherwise" => Member { value: self.steps(&found.value), ..found.clone() },
            "when" => truthy(found),
            _ => found.clone(),
        });
        object(node.span, inside.collect())
    }

    fn jump(&self, node: &Node) -> Node {
        let inside =
            node.members().iter().map(|found| match self.targets.get(&place(found.value.span)) {
                Some(target) if &*found.key == "next" => {
                    Member { value: text(found.value.span, target.clone()), ..found.clone() }
                }
                _ => found.clone(),
            });
        object(node.span, inside.collect())
    }
}

/// A condition in the native dialect.
fn truthy(found: &Member) -> Member {
    let value = truth_of(&found.value).unwrap_or_else(|| found.value.clone());
    Member { value, ..found.clone() }
}

/// A call, or a list of calls, in the native dialect.
fn calls(node: &Node) -> Node {
    match &node.kind {
        NodeKind::Array(items) => array(node.span, items.iter().map(calls).collect()),
        NodeKind::Object(members) => {
            let words = members.iter().filter(|found| found.value.kind != NodeKind::Null);
            let words = words.map(|found| match &*found.key {
                "inputs" => rename_member(found, "parameters"),
                _ => found.clone(),
            });
            object(node.span, words.collect())
        }
        _ => node.clone(),
    }
}
