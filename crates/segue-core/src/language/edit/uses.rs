//! The places of a composition that read a value of a step, as the resolver understood them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::draft::TextChange;
use super::path::ValuePath;
use super::subject::Subject;
use crate::compile::{exprs_of, templates_of};
use crate::composition::{Body, Composition, StepKind};
use crate::expr::{Ast, AstKind, Expr, ExprRoot, StepIndex};
use crate::source::Span;

/// One read of a name in an expression.
#[derive(Clone, Debug)]
pub(super) struct Use {
    /// The string that contains the expression.
    pub(super) site: Span,
    pub(super) text: Arc<str>,
    /// The bytes of the name in that string: `search`, `steps.search.output`.
    pub(super) range: (usize, usize),
    /// The name as the resolver writes it.
    pub(super) name: Arc<str>,
    pub(super) root: ExprRoot,
    /// The field of it that is read next: `x` of `input.x`.
    pub(super) next: Option<Arc<str>>,
    /// Whether it may have no value there.
    pub(super) is_guarded: bool,
    /// Whether the whole expression is a path that begins with this name.
    pub(super) is_path: bool,
    /// Whether the whole string is that expression.
    pub(super) is_alone: bool,
    /// The innermost step that contains it; `None` for the output of the composition.
    pub(super) step: Option<Arc<str>>,
}

impl Use {
    /// The step whose value it reads.
    pub(super) fn target(&self) -> Option<StepIndex> {
        match self.root {
            ExprRoot::Step(step)
            | ExprRoot::StepStatus(step)
            | ExprRoot::StepError(step)
            | ExprRoot::Given(step, _) => Some(step),
            _ => None,
        }
    }

    pub(super) fn written(&self) -> &str {
        self.text.get(self.range.0..self.range.1).unwrap_or_default()
    }

    /// Whether a name can be written here that is no identifier, as one with a dash.
    fn takes_any_name(&self) -> bool {
        self.is_path && !self.text.contains(['\'', '"'])
    }

    /// How a value of a step is written here.
    pub(super) fn step_value(&self, id: &str) -> String {
        if is_identifier(id) || self.takes_any_name() {
            id.to_owned()
        } else {
            format!("steps['{id}'].output")
        }
    }

    /// The change that puts another text over the name.
    pub(super) fn change(&self, text: String) -> TextChange {
        TextChange { range: self.range, text }
    }

    /// The change that gives the field that is read next another name.
    pub(super) fn renamed_field(&self, field: &str, to: &str) -> Option<TextChange> {
        self.next.as_ref().filter(|next| ***next == *field)?;
        let rest = self.text.get(self.range.1..)?;
        let at = rest.find(field)?;
        let (start, end) = (self.range.1 + at, self.range.1 + at + field.len());
        let is_dotted = rest[..at].trim_end().ends_with('.');
        if is_dotted && !is_identifier(to) && !self.takes_any_name() {
            let dot = self.range.1 + rest[..at].rfind('.')?;
            return Some(TextChange { range: (dot, end), text: format!("['{to}']") });
        }
        Some(TextChange { range: (start, end), text: to.to_owned() })
    }

    /// The change that gives the step another id; `None` if the name does not contain the id.
    pub(super) fn renamed(&self, id: &str, to: &str) -> Option<TextChange> {
        let written = self.written();
        let (start, end) = self.range;
        if let Some(rest) =
            written.strip_prefix("steps").filter(|_| self.name.starts_with("steps."))
        {
            let at = rest.find(id)?;
            let before = &rest[..at];
            let id_start = start + "steps".len() + at;
            if before.contains(['\'', '"']) || is_identifier(to) || self.takes_any_name() {
                return Some(TextChange {
                    range: (id_start, id_start + id.len()),
                    text: to.to_owned(),
                });
            }
            // `steps.a.output` → `steps['a-b'].output`
            let range = (start + "steps".len(), id_start + id.len());
            return Some(TextChange { range, text: format!("['{to}']") });
        }
        if *self.name == *id && written == id {
            return Some(TextChange { range: (start, end), text: self.step_value(to) });
        }
        // The id with the step's own output key: `a.key`.
        let own_key = self.name.strip_prefix(id).is_some_and(|rest| rest.starts_with('.'));
        let range = (start, start + id.len());
        let is_id = written.starts_with(id) && own_key;
        if is_id && (is_identifier(to) || self.takes_any_name()) {
            return Some(TextChange { range, text: to.to_owned() });
        }
        is_id.then(|| TextChange { range: (start, end), text: format!("steps['{to}'].output") })
    }
}

/// Whether a name can stand in any expression.
pub(super) fn is_identifier(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Every read of a name in a composition.
pub(super) fn uses(composition: &Composition) -> Vec<Use> {
    let mut found = Vec::new();
    body(&composition.body, &mut found);
    if let Some(output) = &composition.output {
        output.exprs(&mut |expr| note(expr, None, &mut found));
    }
    found
}

/// The first string that reads the input as a whole, and not one of its properties.
pub(in crate::language) fn whole_input(composition: &Composition) -> Option<Span> {
    let is_whole = |used: &Use| used.root == ExprRoot::Input && used.next.is_none();
    uses(composition).into_iter().find(is_whole).map(|used| used.site)
}

fn body(steps: &Body, found: &mut Vec<Use>) {
    for step in &steps.steps {
        let id = Some(&step.id);
        templates_of(step, &mut |template| template.exprs(&mut |expr| note(expr, id, found)));
        exprs_of(step, &mut |expr| note(expr, id, found));
        if let StepKind::Tool(_) = &step.kind {
            continue;
        }
        for inner in step.kind.bodies() {
            body(inner, found);
        }
    }
}

fn note(expr: &Expr, step: Option<&Arc<str>>, found: &mut Vec<Use>) {
    let text = expr.whole_text();
    let is_path = expr.ast().is_path();
    let inner = text.trim();
    let is_alone = is_path && (expr.source_text() == inner || expr.text().trim() == inner);
    visit(expr.ast(), None, false, &mut |ast, next, is_guarded| {
        let AstKind::Name { name, root } = &ast.kind else { return };
        found.push(Use {
            site: expr.site(),
            text: text.clone(),
            range: (ast.at.start as usize, ast.at.end as usize),
            name: name.clone(),
            root: root.clone(),
            next: next.cloned(),
            is_guarded,
            is_path,
            is_alone,
            step: step.cloned(),
        });
    });
}

type NoteNode<'n> = dyn FnMut(&Ast, Option<&Arc<str>>, bool) + 'n;

/// Visits every node with the field that is read of it, and whether it may have no value.
fn visit(ast: &Ast, next: Option<&Arc<str>>, is_guarded: bool, note: &mut NoteNode<'_>) {
    note(ast, next, is_guarded);
    match &ast.kind {
        AstKind::Field(base, name) => visit(base, Some(name), is_guarded, note),
        AstKind::Filter(name, base, args) | AstKind::Test(name, base, args) => {
            let guards = matches!(&**name, "default" | "d" | "defined" | "undefined");
            visit(base, None, is_guarded || guards, note);
            args.iter().for_each(|arg| visit(&arg.value, None, is_guarded, note));
        }
        _ => ast.children(&mut |child| visit(child, None, is_guarded, note)),
    }
}

/// Changes of strings, by the path of the string. `None` if a string is only there as an alias.
pub(super) fn by_path(
    subject: &Subject,
    changes: impl IntoIterator<Item = (Span, TextChange)>,
) -> Option<Vec<(ValuePath, Vec<TextChange>)>> {
    let layout = subject.draft.layout();
    let mut paths: BTreeMap<Span, Vec<TextChange>> = BTreeMap::new();
    for (site, change) in changes {
        let known = paths.entry(site).or_default();
        if !known.contains(&change) {
            known.push(change);
        }
    }
    let mut found = Vec::new();
    for (site, mut changes) in paths {
        changes.sort();
        let path = layout.path_of(site)?;
        found.push((path, changes));
    }
    Some(found)
}
