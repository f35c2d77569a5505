//! Renders a plan as text, Mermaid, DOT and SVG. All renderers use the published view, so that they
//! agree.

use std::fmt::Write as _;

use crate::composition::tool::Impact;
use crate::types::{Property, Type};
use crate::value::Value;
use crate::view::{PlanStepView, PlanView, RollbackView, TransitionCause, TransitionView};

pub use super::svg::svg;

/// The effect of a step, in one word.
pub fn effect_label(effect: Impact) -> &'static str {
    match effect {
        Impact::None => "nothing",
        Impact::Reads => "reads",
        Impact::Writes => "writes",
        Impact::Destroys => "destroys",
        Impact::Unknown => "unknown",
    }
}

/// The rollback of a step, in a few words; empty if there is nothing to say.
pub fn rollback_label(rollback: &RollbackView) -> String {
    match rollback {
        RollbackView::NotNeeded | RollbackView::Inside => String::new(),
        RollbackView::Unknown => "cannot be rolled back".to_owned(),
        RollbackView::Call { tool } => format!("rollback: {tool}"),
        RollbackView::Impossible { reason } => format!("cannot be rolled back: {reason}"),
    }
}

/// A plan for a terminal.
pub fn to_text(plan: &PlanView) -> String {
    let mut out = String::new();
    let count = count(&plan.steps);
    let _ = writeln!(
        out,
        "{} · {count} {} · {} · hash {}",
        plan.name,
        if count == 1 { "step" } else { "steps" },
        effect_label(plan.effect),
        &plan.hash[..12]
    );
    if !plan.description.is_empty() {
        let _ = writeln!(out, "{}", plan.description);
    }
    if let Some(summary) = &plan.summary {
        let _ = writeln!(out, "\n{}\n", summary.trim_end());
    }
    let inputs = inputs(&plan.inputs);
    if !inputs.is_empty() {
        let _ = writeln!(out, "inputs: {}", inputs.join(", "));
    }
    out.push('\n');
    let mut rows = Vec::new();
    collect_rows(&plan.steps, 0, &mut rows);
    write_rows(&rows, &mut out);
    let is_program = is_program(&plan.steps);
    let path = if is_program { "when all goes well" } else { "longest path" };
    let _ = writeln!(out, "\n{path}: {}", plan.longest_path.join(" → "));
    for group in plan.together.iter().filter(|group| group.len() > 1) {
        let _ = writeln!(out, "may run together: {}", group.join(", "));
    }
    if let Some(ms) = plan.estimated_duration_ms {
        let _ = writeln!(out, "usually takes: {}", crate::duration::format_duration(ms));
    }
    let handling = &plan.error_handling;
    let rollback = if handling.rollback_on_failure { ", then roll back" } else { "" };
    let strategy = match handling.failure_strategy {
        "fail_fast" if is_program => "stop, unless a step overrides it".to_owned(),
        strategy => strategy.replace('_', " "),
    };
    let _ = writeln!(out, "on failure: {strategy}{rollback}");
    out
}

/// Whether steps run one at a time, as a program.
fn is_program(steps: &[PlanStepView]) -> bool {
    steps.iter().any(|step| !step.ways.is_empty())
}

/// The inputs with their types; required ones have a star.
fn inputs(schema: &Value) -> Vec<String> {
    let Type::Object(object) = Type::from_schema(schema) else { return Vec::new() };
    let input = |(name, property): (&std::sync::Arc<str>, &Property)| {
        format!("{name}{} ({})", if property.required { "*" } else { "" }, property.ty)
    };
    object.properties.iter().map(input).collect()
}

fn count(steps: &[PlanStepView]) -> usize {
    steps.iter().map(|s| 1 + s.bodies.iter().map(|b| count(&b.steps)).sum::<usize>()).sum()
}

/// Columns of one line: the step, its tool, the effect, and notes.
type Row = [String; 4];

fn collect_rows(steps: &[PlanStepView], depth: usize, rows: &mut Vec<Row>) {
    let indent = "  ".repeat(depth);
    for step in steps {
        let mut notes = Vec::new();
        if !step.needs.is_empty() {
            notes.push(format!("after {}", step.needs.join(", ")));
        }
        if let Some(when) = &step.when {
            notes.push(format!("when {when}"));
        }
        if is_for_failures(step, steps) {
            notes.push("after failures only".to_owned());
        }
        notes.extend(step.ways.iter().filter_map(way_words));
        let rollback = rollback_label(&step.rollback);
        if !rollback.is_empty() && !matches!(step.effect, Impact::None | Impact::Reads) {
            notes.push(rollback);
        }
        if step.confirms {
            let word = if step.confirms_sometimes { "may ask first" } else { "asks first" };
            notes.push(word.to_owned());
        }
        let what = step.tool.as_deref().unwrap_or(step.kind).to_owned();
        let name = format!("{indent}{}", step.id);
        rows.push([name, what, effect_label(step.effect).to_owned(), notes.join(" · ")]);
        for body in &step.bodies {
            let label = format!("{indent}  [{}]", body.label);
            rows.push([label, String::new(), String::new(), String::new()]);
            collect_rows(&body.steps, depth + 2, rows);
        }
    }
}

/// Whether only failures of other steps lead to a step of a program.
fn is_for_failures(step: &PlanStepView, siblings: &[PlanStepView]) -> bool {
    let leads = |way: &&TransitionView| way.to.as_ref() == Some(&step.id);
    let is_first = siblings.first().is_some_and(|first| first.id == step.id);
    let mut ways = siblings.iter().flat_map(|other| &other.ways).filter(leads).peekable();
    !is_first && ways.peek().is_some() && ways.all(|way| way.after == TransitionCause::Failure)
}

/// A transition in words, unless it is the default one.
fn way_words(way: &TransitionView) -> Option<String> {
    let to = way.to.as_deref();
    match (way.after, way.in_sequence) {
        (TransitionCause::Success | TransitionCause::Skip, true) => None,
        (TransitionCause::Success | TransitionCause::Skip, false) => {
            Some(to.map_or_else(|| "then ends".to_owned(), |to| format!("then {to}")))
        }
        (TransitionCause::Failure, true) => Some("continues after a failure".to_owned()),
        (TransitionCause::Failure, false) => Some(to.map_or_else(
            || "ends after a failure".to_owned(),
            |to| format!("after a failure {to}"),
        )),
    }
}

fn write_rows(rows: &[Row], out: &mut String) {
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| !row[1].is_empty());
        cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2)];
    for row in rows {
        let mut line = "  ".to_owned();
        for (cell, width) in row.iter().zip(widths.iter().chain(&[0])) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// A plan as a Mermaid flow chart.
pub fn mermaid(plan: &PlanView) -> String {
    let mut out = String::from("flowchart TD\n");
    let mut names = Names::default();
    mermaid_steps(&plan.steps, 1, &mut names, &mut out);
    out
}

/// Mermaid and DOT need plain identifiers; step ids may hold other characters.
#[derive(Default)]
struct Names(usize);

impl Names {
    fn next(&mut self) -> String {
        self.0 += 1;
        format!("s{}", self.0)
    }
}

fn mermaid_steps(steps: &[PlanStepView], depth: usize, names: &mut Names, out: &mut String) {
    let pad = "  ".repeat(depth);
    let nodes: Vec<String> = steps.iter().map(|_| names.next()).collect();
    for (step, node) in steps.iter().zip(&nodes) {
        let label = escape(&label(step));
        if step.bodies.is_empty() {
            let _ = writeln!(out, "{pad}{node}[\"{label}\"]");
            continue;
        }
        let _ = writeln!(out, "{pad}subgraph {node}[\"{label}\"]");
        for body in &step.bodies {
            let inner = names.next();
            let _ = writeln!(out, "{pad}  subgraph {inner}[\"{}\"]", escape(&body.label));
            mermaid_steps(&body.steps, depth + 2, names, out);
            let _ = writeln!(out, "{pad}  end");
        }
        let _ = writeln!(out, "{pad}end");
    }
    for (step, node) in steps.iter().zip(&nodes) {
        for need in &step.needs {
            if let Some(at) = steps.iter().position(|other| other.id == *need) {
                let _ = writeln!(out, "{pad}{} --> {node}", nodes[at]);
            }
        }
    }
    let (edges, end) = edges(steps, &nodes, names);
    if let Some(end) = end {
        let _ = writeln!(out, "{pad}{end}([\"end\"])");
    }
    for Edge { from, to, after } in edges {
        let _ = match after {
            TransitionCause::Success => writeln!(out, "{pad}{from} --> {to}"),
            TransitionCause::Skip => writeln!(out, "{pad}{from} -. skipped .-> {to}"),
            TransitionCause::Failure => writeln!(out, "{pad}{from} -. failed .-> {to}"),
        };
    }
}

/// A transition of a program between two drawn nodes.
struct Edge {
    from: String,
    to: String,
    after: TransitionCause,
}

/// The transitions of a program, and the end node if several transitions lead there.
fn edges(
    steps: &[PlanStepView],
    nodes: &[String],
    names: &mut Names,
) -> (Vec<Edge>, Option<String>) {
    let ways =
        || steps.iter().zip(nodes).flat_map(|(s, node)| s.ways.iter().map(move |w| (node, w)));
    let ends = ways().filter(|(_, way)| way.to.is_none()).count();
    let end = (ends > 1).then(|| names.next());
    let node_of = |to: &Option<std::sync::Arc<str>>| match to {
        None => end.clone(),
        Some(id) => steps.iter().position(|step| step.id == *id).map(|at| nodes[at].clone()),
    };
    let edge = |(from, way): (&String, &TransitionView)| {
        Some(Edge { from: from.clone(), to: node_of(&way.to)?, after: way.after })
    };
    (ways().filter_map(edge).collect(), end)
}

fn label(step: &PlanStepView) -> String {
    let what = step.tool.as_deref().unwrap_or(step.kind);
    format!("{} · {what} · {}", step.id, effect_label(step.effect))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A plan in the DOT language of Graphviz.
pub fn dot(plan: &PlanView) -> String {
    let mut out = format!("digraph \"{}\" {{\n  rankdir=TB;\n  node [shape=box];\n", plan.name);
    dot_steps(&plan.steps, 1, &mut Names::default(), &mut out);
    out.push_str("}\n");
    out
}

fn dot_steps(steps: &[PlanStepView], depth: usize, names: &mut Names, out: &mut String) {
    let pad = "  ".repeat(depth);
    let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let nodes: Vec<String> = steps.iter().map(|_| names.next()).collect();
    for (step, node) in steps.iter().zip(&nodes) {
        let _ = writeln!(out, "{pad}{node} [label=\"{}\"];", quote(&label(step)));
        for body in &step.bodies {
            let cluster = names.next();
            let _ = writeln!(out, "{pad}subgraph cluster_{cluster} {{");
            let _ = writeln!(out, "{pad}  label=\"{} {}\";", quote(&step.id), quote(&body.label));
            dot_steps(&body.steps, depth + 1, names, out);
            let _ = writeln!(out, "{pad}}}");
        }
    }
    for (step, node) in steps.iter().zip(&nodes) {
        for need in &step.needs {
            if let Some(at) = steps.iter().position(|other| other.id == *need) {
                let _ = writeln!(out, "{pad}{} -> {node};", nodes[at]);
            }
        }
    }
    let (edges, end) = edges(steps, &nodes, names);
    if let Some(end) = end {
        let _ = writeln!(out, "{pad}{end} [label=\"end\", shape=oval];");
    }
    for Edge { from, to, after } in edges {
        let style = match after {
            TransitionCause::Success => "",
            TransitionCause::Skip => " [style=dashed, label=\"skipped\"]",
            TransitionCause::Failure => " [style=dashed, label=\"failed\"]",
        };
        let _ = writeln!(out, "{pad}{from} -> {to}{style};");
    }
}
