//! Text → [`Composition`], with all findings.
//!
//! `source → document → dialect → resolve → check`. Compilation does not fail: it returns a
//! composition if there are no errors, and all findings in any case. Checking and running compile
//! the same way, so a run executes exactly the composition that was checked.

mod check;
mod convert;
pub mod dialect;
mod recognize;
mod resolve;
mod typing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::budget::panic_message;
use crate::catalog::Catalog;
use crate::composition::Composition;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::{self, Node, ReadLimits};
use crate::limits::Limits;
use crate::source::{Source, Span};
use crate::template::CompositionTemplate;
use crate::types::Type;
use dialect::{ReadDocument, SelectedDocument};

pub(crate) use check::{exprs_of, note_ast, note_reads, templates_of};
pub use convert::{ConvertedText, convert};
pub use dialect::{ListedComposition, MissingDefinition, TextCompositions};
pub(crate) use resolve::{given_names, unquoted};
#[cfg(test)]
pub(crate) use typing::tests::nested_loops;
pub(crate) use typing::{CallTyping, Typing};

/// The result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// The composition, if there are no errors.
    pub composition: Option<Arc<Composition>>,
    /// All findings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Compiled {
    /// Whether a finding is an error, which prevents running.
    pub fn has_errors(&self) -> bool {
        has_errors(&self.diagnostics)
    }
}

fn has_errors(findings: &[Diagnostic]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Compiles a text against the tools of a catalog.
pub fn compile(source: &Source, catalog: &Catalog, limits: &Limits) -> Compiled {
    contained(|| examine_text(source, catalog, limits).into_compiled())
        .unwrap_or_else(|fault| Compiled { composition: None, diagnostics: vec![fault] })
}

/// Everything that a compilation learned about a text, also if the text has errors.
#[derive(Debug)]
pub(crate) struct Examined {
    /// The document; `None` if the text could not be read.
    pub(crate) document: Option<Node>,
    /// The document lowered to the native dialect, if it was in another one.
    pub(crate) lowered: Option<Node>,
    /// The composition, as far as it could be read. With errors, names may be unresolved, tools
    /// missing and indices of steps may have gaps.
    pub(crate) composition: Option<Composition>,
    /// All findings, in the order of the text.
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Examined {
    pub(crate) fn unread(diagnostics: Vec<Diagnostic>) -> Examined {
        Examined { document: None, lowered: None, composition: None, diagnostics }
    }

    /// Whether no finding is an error.
    pub(crate) fn is_sound(&self) -> bool {
        self.composition.is_some() && !has_errors(&self.diagnostics)
    }

    fn into_compiled(self) -> Compiled {
        let is_sound = self.is_sound();
        let composition = self.composition.filter(|_| is_sound).map(Arc::new);
        Compiled { composition, diagnostics: self.diagnostics }
    }
}

/// Catches panics of a reading and reports them as a finding: a bug that one document triggers must
/// not end a process that serves others. Every public function that takes a text goes through here.
pub(crate) fn contained<T>(read: impl FnOnce() -> T) -> Result<T, Diagnostic> {
    // Each text is read into new values, so a panic leaves no half-changed state behind.
    catch_unwind(AssertUnwindSafe(read)).map_err(|panic| {
        let message = format!("Segue itself failed on this text: {}", panic_message(&*panic));
        Diagnostic::error(Code::Internal, message, Span::default())
            .help("this is a bug in Segue, not in the text: please report it, with the text")
    })
}

/// Compiles a text and keeps what [`compile`] drops. A panic is the caller's to contain.
pub(crate) fn examine_text(source: &Source, catalog: &Catalog, limits: &Limits) -> Examined {
    match dialect::select(source, limits) {
        Ok(selected) => examine(source, selected, catalog, limits),
        Err(diagnostics) => Examined::unread(diagnostics),
    }
}

/// Compiles a document that was read elsewhere, as far as it goes.
pub(crate) fn examine_document(
    source: &Source,
    document: Node,
    catalog: &Catalog,
    limits: &Limits,
) -> Examined {
    examine(source, SelectedDocument::of(document), catalog, limits)
}

fn examine(
    source: &Source,
    selected: SelectedDocument,
    catalog: &Catalog,
    limits: &Limits,
) -> Examined {
    let ReadDocument { composition, findings: mut diagnostics, lowered } =
        dialect::read(source, &selected, limits);
    let root = selected.root;
    let envelope = dialect::template::read(source, &root, limits);
    let template = envelope.as_ref().map(|(template, _)| template.id.clone());
    if let Some((_, findings)) = envelope {
        diagnostics.extend(findings);
        diagnostics.extend(dialect::template::missing_tools(&root, catalog));
    }
    let Some(mut composition) = composition else {
        let diagnostics = finish(diagnostics, limits);
        return Examined { document: Some(root), lowered, composition: None, diagnostics };
    };
    composition.template = template;
    let document = dialect::unwrap_template(&root);
    let tree = lowered.as_ref().unwrap_or(document);
    diagnostics.extend(resolve::resolve(&mut composition, source));
    diagnostics.extend(check::attach_tools(&mut composition, source, catalog));
    diagnostics.extend(check::check(&composition, source, tree));
    diagnostics.extend(check::check_order(&composition, document));
    // Guards of a program see compositions that are sound otherwise, with all tools resolved.
    if !has_errors(&diagnostics) {
        diagnostics.extend(guard_finding(&composition, catalog));
    }
    let diagnostics = finish(diagnostics, limits);
    Examined { document: Some(root), lowered, composition: Some(composition), diagnostics }
}

/// The error of the first guard of the toolset that refuses a composition.
fn guard_finding(composition: &Composition, catalog: &Catalog) -> Option<Diagnostic> {
    let error = catalog.toolset()?.guard_error(composition)?;
    let span = composition.body.steps.first().map_or_else(Span::default, |step| step.id_span);
    Some(Diagnostic::error(error.code, error.message, span))
}

/// Reads only the name and the input of a composition, so that its callers can be checked before it
/// is compiled.
pub fn read_header(source: &Source, limits: &Limits) -> Option<Composition> {
    let read = || {
        let selected = dialect::select(source, limits).ok()?;
        dialect::read(source, &selected, limits).composition
    };
    contained(read).ok().flatten()
}

/// Lists the compositions that a text holds: several only if it holds resources of ToolHive.
pub fn compositions_in(source: &Source, limits: &Limits) -> TextCompositions {
    contained(|| dialect::list(source, limits)).unwrap_or_default()
}

/// Whether a text, which may be broken, is meant to be a composition.
pub fn is_composition_text(source: &Source, limits: &Limits) -> bool {
    contained(|| recognize::recognizes(source, limits)).unwrap_or_default()
}

/// Reads the envelope of a template without compiling its composition.
pub fn read_template(
    source: &Source,
    limits: &Limits,
) -> Result<CompositionTemplate, Vec<Diagnostic>> {
    contained(|| template_of(source, limits)).unwrap_or_else(|fault| Err(vec![fault]))
}

fn template_of(source: &Source, limits: &Limits) -> Result<CompositionTemplate, Vec<Diagnostic>> {
    let root = document::read(source, ReadLimits::for_documents(limits))?;
    let read = dialect::template::read(source, &root, limits);
    let (template, findings) = read.ok_or_else(|| {
        let message = "a template has `id` and `composition`";
        vec![Diagnostic::error(Code::InvalidField, message, Span::default())]
    })?;
    if has_errors(&findings) {
        return Err(findings);
    }
    Ok(template)
}

/// The inferred type of a composition's result.
pub fn output_type(composition: &Composition) -> Type {
    Typing::new(composition).output()
}

/// The inferred type of a chain's state after its end.
pub(crate) fn final_state_type(composition: &Composition) -> Type {
    Typing::new(composition).final_state()
}

/// Findings in the order of the text, without repetitions, up to the limit.
fn finish(mut diagnostics: Vec<Diagnostic>, limits: &Limits) -> Vec<Diagnostic> {
    let in_order = |finding: &Diagnostic| (finding.span.start, finding.severity, finding.code);
    diagnostics.sort_by_key(in_order);
    diagnostics.dedup();
    if diagnostics.len() > limits.diagnostics_max {
        // Keeps the most severe findings; the ones beyond the limit are only counted.
        diagnostics.sort_by_key(|finding| finding.severity);
        let rest = diagnostics.split_off(limits.diagnostics_max);
        diagnostics.sort_by_key(in_order);
        let message = format!("{} more findings are not shown", rest.len());
        let mut finding = Diagnostic::error(Code::Limit, message, Span::default());
        finding.severity = rest.first().map_or(Severity::Hint, |worst| worst.severity);
        diagnostics.push(finding);
    }
    diagnostics
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic becomes a finding about the text, and the process continues.
    #[test]
    fn a_panic_is_a_finding() {
        let fault = contained(|| -> u8 { panic!("planted {}", 1) }).unwrap_err();
        assert_eq!(fault.code, Code::Internal);
        assert_eq!(fault.severity, Severity::Error);
        assert!(fault.message.contains("planted 1") && fault.help.is_some(), "{fault:?}");
        assert_eq!(contained(|| 7), Ok(7));
    }
}
