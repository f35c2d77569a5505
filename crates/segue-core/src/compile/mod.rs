//! Text → [`Composition`], with all findings.
//!
//! `source → document → dialect → resolve → check`. Compilation does not fail: it returns a
//! composition if there are no errors, and all findings in any case. Checking and running compile
//! the same way, so a run executes exactly the composition that was checked.

mod check;
mod convert;
pub mod dialect;
mod resolve;
mod typing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::budget::panic_message;
use crate::catalog::Catalog;
use crate::composition::Composition;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::{self, ReadLimits};
use crate::limits::Limits;
use crate::source::{Source, Span};
use crate::template::CompositionTemplate;
use crate::types::Type;
use dialect::ReadDocument;

pub use convert::{ConvertedText, convert};
pub use dialect::{ListedComposition, MissingDefinition, TextCompositions};
pub(crate) use resolve::given_names;
pub(crate) use typing::Typing;

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
    contained(|| compile_text(source, catalog, limits))
        .unwrap_or_else(|fault| Compiled { composition: None, diagnostics: vec![fault] })
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

fn compile_text(source: &Source, catalog: &Catalog, limits: &Limits) -> Compiled {
    let selected = match dialect::select(source, limits) {
        Ok(selected) => selected,
        Err(diagnostics) => return Compiled { composition: None, diagnostics },
    };
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
        return finish(None, diagnostics, limits);
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
    finish(Some(composition), diagnostics, limits)
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

fn finish(
    composition: Option<Composition>,
    mut diagnostics: Vec<Diagnostic>,
    limits: &Limits,
) -> Compiled {
    let is_sound = !has_errors(&diagnostics);
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
    Compiled { composition: composition.filter(|_| is_sound).map(Arc::new), diagnostics }
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
