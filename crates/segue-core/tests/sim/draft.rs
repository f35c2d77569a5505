//! A composition as its author has it in mind: a small tree that is written out as YAML, and from
//! which parts can be taken away one by one.

use std::fmt::Write as _;

/// A composition and those that it calls, which are tools of the names `composition:NAME`.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) called: Vec<Piece>,
    pub(crate) main: Piece,
}

/// One composition.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) name: String,
    /// Lines of the top level, such as `timeout: 50ms`.
    pub(crate) fields: Vec<String>,
    pub(crate) steps: Vec<Sketch>,
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) struct Sketch {
    pub(crate) id: String,
    /// Lines that any step may carry, such as `retry_count: 2`.
    pub(crate) fields: Vec<String>,
    pub(crate) kind: Kind,
}

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Lines of a step without bodies: its tool and the like.
    Leaf(Vec<String>),
    Parallel {
        wait_for: &'static str,
        branches: Vec<(String, Vec<Sketch>)>,
    },
    /// `loop` or `repeat`: lines beside the steps.
    Rounds {
        word: &'static str,
        lines: Vec<String>,
        steps: Vec<Sketch>,
    },
    /// Conditions and bodies; without a condition: otherwise.
    Choose(Vec<(Option<String>, Vec<Sketch>)>),
}

impl Draft {
    /// The texts, callers after those that they call.
    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        let pieces = self.called.iter().chain([&self.main]);
        pieces.map(|piece| (piece.name.clone(), piece.text())).collect()
    }

    /// All of it, for people.
    pub(crate) fn show(&self) -> String {
        let texts: Vec<String> = self.texts().into_iter().map(|(_, text)| text).collect();
        texts.join("---\n")
    }

    /// Everything that is like this with one part taken away, larger parts first.
    pub(crate) fn smaller(&self) -> Vec<Draft> {
        let mut all = Vec::new();
        for at in 0..self.called.len() {
            let mut less = self.clone();
            less.called.remove(at);
            all.push(less);
        }
        for main in self.main.smaller() {
            all.push(Draft { main, ..self.clone() });
        }
        for (at, piece) in self.called.iter().enumerate() {
            for smaller in piece.smaller() {
                let mut less = self.clone();
                less.called[at] = smaller;
                all.push(less);
            }
        }
        all
    }
}

impl Piece {
    pub(crate) fn text(&self) -> String {
        let mut text = format!("name: {}\n", self.name);
        for field in &self.fields {
            let _ = writeln!(text, "{field}");
        }
        text.push_str("steps:\n");
        write_steps(&mut text, &self.steps, 1);
        text
    }

    fn smaller(&self) -> Vec<Piece> {
        let steps = smaller_bodies(&self.steps).into_iter();
        let mut all: Vec<Piece> = steps.map(|steps| Piece { steps, ..self.clone() }).collect();
        for fields in without_one(&self.fields) {
            all.push(Piece { fields, ..self.clone() });
        }
        all
    }
}

fn line(text: &mut String, indent: usize, what: &str) {
    let _ = writeln!(text, "{}{what}", "  ".repeat(indent));
}

fn write_steps(text: &mut String, steps: &[Sketch], indent: usize) {
    for step in steps {
        line(text, indent, &format!("- id: {}", step.id));
        for field in &step.fields {
            line(text, indent + 1, field);
        }
        write_kind(text, &step.kind, indent + 1);
    }
}

fn write_kind(text: &mut String, kind: &Kind, indent: usize) {
    match kind {
        Kind::Leaf(lines) => lines.iter().for_each(|what| line(text, indent, what)),
        Kind::Parallel { wait_for, branches } => {
            line(text, indent, &format!("wait_for: {wait_for}"));
            line(text, indent, "parallel:");
            for (id, steps) in branches {
                line(text, indent + 1, &format!("- id: {id}"));
                line(text, indent + 2, "steps:");
                write_steps(text, steps, indent + 3);
            }
        }
        Kind::Rounds { word, lines, steps } => {
            line(text, indent, &format!("{word}:"));
            lines.iter().for_each(|what| line(text, indent + 1, what));
            line(text, indent + 1, "steps:");
            write_steps(text, steps, indent + 2);
        }
        Kind::Choose(cases) => {
            line(text, indent, "choose:");
            for (when, steps) in cases {
                match when {
                    Some(when) => {
                        line(text, indent + 1, &format!("- when: {when}"));
                        line(text, indent + 2, "steps:");
                    }
                    None => line(text, indent + 1, "- otherwise:"),
                }
                write_steps(text, steps, indent + 3);
            }
        }
    }
}

fn without_one<T: Clone>(all: &[T]) -> Vec<Vec<T>> {
    (0..all.len())
        .map(|at| {
            let mut less = all.to_vec();
            less.remove(at);
            less
        })
        .collect()
}

/// Bodies with one step less, with a step replaced by its body, or with one step made smaller.
fn smaller_bodies(steps: &[Sketch]) -> Vec<Vec<Sketch>> {
    let mut all = if steps.len() > 1 { without_one(steps) } else { Vec::new() };
    for (at, step) in steps.iter().enumerate() {
        for body in step.kind.bodies() {
            let mut less = steps.to_vec();
            less.splice(at..=at, body.iter().cloned());
            all.push(less);
        }
        for smaller in step.smaller() {
            let mut less = steps.to_vec();
            less[at] = smaller;
            all.push(less);
        }
    }
    all
}

impl Sketch {
    fn smaller(&self) -> Vec<Sketch> {
        let kinds = self.kind.smaller().into_iter();
        let mut all: Vec<Sketch> = kinds.map(|kind| Sketch { kind, ..self.clone() }).collect();
        for fields in without_one(&self.fields) {
            all.push(Sketch { fields, ..self.clone() });
        }
        all
    }
}

impl Kind {
    fn bodies(&self) -> Vec<&Vec<Sketch>> {
        match self {
            Kind::Leaf(_) => Vec::new(),
            Kind::Parallel { branches, .. } => branches.iter().map(|(_, steps)| steps).collect(),
            Kind::Rounds { steps, .. } => vec![steps],
            Kind::Choose(cases) => cases.iter().map(|(_, steps)| steps).collect(),
        }
    }

    fn smaller(&self) -> Vec<Kind> {
        match self {
            Kind::Leaf(lines) => without_one(lines).into_iter().map(Kind::Leaf).collect(),
            Kind::Parallel { wait_for, branches } => {
                let less = parts(branches, 1);
                less.into_iter().map(|b| Kind::Parallel { wait_for, branches: b }).collect()
            }
            Kind::Rounds { word, lines, steps } => {
                let bodies = smaller_bodies(steps).into_iter();
                let mut all: Vec<Kind> = bodies
                    .map(|steps| Kind::Rounds { word, lines: lines.clone(), steps })
                    .collect();
                for lines in without_one(lines) {
                    all.push(Kind::Rounds { word, lines, steps: steps.clone() });
                }
                all
            }
            Kind::Choose(cases) => parts(cases, 1).into_iter().map(Kind::Choose).collect(),
        }
    }
}

/// Lists of named bodies with one less, or with one body made smaller.
fn parts<N: Clone>(all: &[(N, Vec<Sketch>)], least: usize) -> Vec<Vec<(N, Vec<Sketch>)>> {
    let mut lists = if all.len() > least { without_one(all) } else { Vec::new() };
    for (at, (_, steps)) in all.iter().enumerate() {
        for body in smaller_bodies(steps) {
            let mut less = all.to_vec();
            less[at].1 = body;
            lists.push(less);
        }
    }
    lists
}
