//! Text → [`Composition`], with every finding at once.
//!
//! `source → document → dialect → resolve → check`. Compilation does not fail: it gives a
//! composition when there are no errors, and all findings in any case. The path is the same for
//! checking and for running, so what was checked is what runs.

mod check;
mod convert;
pub mod dialect;
pub mod document;
mod resolve;
pub mod source;
mod typing;

use std::sync::Arc;

use crate::composition::Composition;
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::limits::Limits;
use crate::template::Template;
use crate::testing::TestFile;
use crate::tool::Catalog;
use crate::types::Type;
use dialect::Reading;
use document::Budget;
use source::{Source, Span};

pub use convert::{Converted, convert};
pub(crate) use typing::Typing;

/// What came out of a text.
#[derive(Debug)]
pub struct Compiled {
    /// The composition, when nothing is wrong with it.
    pub composition: Option<Arc<Composition>>,
    /// What was found, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Compiled {
    /// Whether anything stops the composition from running.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// Compiles a text against the tools that are known.
pub fn compile(source: &Source, catalog: &Catalog, limits: &Limits) -> Compiled {
    let root = match document::read(source, Budget::for_documents(limits)) {
        Ok(root) => root,
        Err(diagnostics) => return Compiled { composition: None, diagnostics },
    };
    let Reading { composition, findings: mut diagnostics, lowered } =
        dialect::read(source, &root, limits);
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
    finish(Some(composition), diagnostics, limits)
}

/// Reads only what a composition is called and what it takes, so that others can be checked
/// against it before it is compiled itself.
pub fn read_header(source: &Source, limits: &Limits) -> Option<Composition> {
    let root = document::read(source, Budget::for_documents(limits)).ok()?;
    dialect::read(source, &root, limits).composition
}

/// Reads what a template says of its composition, without compiling that.
pub fn read_template(source: &Source, limits: &Limits) -> Result<Template, Vec<Diagnostic>> {
    let root = document::read(source, Budget::for_documents(limits))?;
    let read = dialect::template::read(source, &root, limits);
    let (template, findings) = read.ok_or_else(|| {
        let message = "a template has `id` and `composition`";
        vec![Diagnostic::error(Code::InvalidField, message, Span::default())]
    })?;
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(findings);
    }
    Ok(template)
}

/// Reads a file with tests, and everything that is wrong with it by itself.
pub fn read_tests(source: &Source, limits: &Limits) -> (Option<TestFile>, Vec<Diagnostic>) {
    match document::read(source, Budget::for_documents(limits)) {
        Ok(root) => {
            let (file, findings) = dialect::read_tests(source, &root, limits);
            (Some(file).filter(|_| findings.is_empty()), findings)
        }
        Err(findings) => (None, findings),
    }
}

/// What is known of a composition's result.
pub fn output_type(composition: &Composition) -> Type {
    Typing::new(composition).output()
}

fn finish(
    composition: Option<Composition>,
    mut diagnostics: Vec<Diagnostic>,
    limits: &Limits,
) -> Compiled {
    let is_sound = !diagnostics.iter().any(|finding| finding.severity == Severity::Error);
    let in_order = |finding: &Diagnostic| (finding.span.start, finding.severity, finding.code);
    diagnostics.sort_by_key(in_order);
    diagnostics.dedup();
    if diagnostics.len() > limits.diagnostics_max {
        // What matters most stays. That there is more stops nothing that the rest would not stop.
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
