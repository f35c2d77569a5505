//! The language service: a text and a position in it → what an editor shows there.
//!
//! An [`Analysis`] compiles a text once and answers questions about it: findings, names, types,
//! places. Positions are byte offsets; surfaces convert them. Every answer refers to the text as it
//! is, also if it does not parse.
//!
//! Invariants: no function panics, whatever the text and the position; a text is compiled at most
//! once; edits lie inside the text and on character boundaries.
//!
//! Not here: the protocol of editors and HTTP (surfaces), edits of the graph, running.

mod broken;
mod compare;
mod complete;
pub mod edit;
mod expect;
mod hover;
mod lexer;
mod links;
mod observe;
mod outline;
mod path;
mod preview;
mod rename;
mod schema_parts;
mod scope;
mod steps;
mod symbols;
mod text_edit;
mod tokens;
mod views;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::catalog::Catalog;
use crate::compile::dialect::unwrap_template;
use crate::compile::{self, Examined};
use crate::composition::Composition;
use crate::composition::tool::ObservedStats;
use crate::diagnostic::Diagnostic;
use crate::document::Node;
use crate::id::ToolId;
use crate::limits::Limits;
use crate::source::{Source, Span};
use crate::value::Value;
use crate::view::PlanStepView;
use symbols::Occurrence;

pub use compare::{InterfaceChange, StepDifference, StepVersionChange, VersionComparison, compare};
pub use edit::pin;
pub use preview::{PreviewedField, RunData};
pub use text_edit::{EditError, TextEdit, apply};
pub use views::{
    CodeAction, Completion, CompletionKind, DocumentLink, Hover, LinkTarget, OutlineItem,
    OutlineKind, SemanticToken, TokenKind,
};

/// What earlier runs showed, as plain data from the surface.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// The last value of each step, by its id.
    pub steps: BTreeMap<Arc<str>, Value>,
    /// Durations and failures of tools; they take precedence over those of the catalog.
    pub tools: BTreeMap<ToolId, ObservedStats>,
}

/// One text, read and compiled as far as it goes.
#[derive(Debug)]
pub struct Analysis {
    source: Source,
    catalog: Catalog,
    limits: Limits,
    findings: Vec<Diagnostic>,
    /// The composition, with whatever errors it has.
    composition: Option<Arc<Composition>>,
    is_sound: bool,
    observations: Observations,
    /// The document as written.
    document: Option<Node>,
    /// The document in the native dialect, if it was in another one; nodes keep their spans.
    lowered: Option<Node>,
    steps: OnceLock<Vec<PlanStepView>>,
    occurrences: OnceLock<Vec<Occurrence>>,
}

impl Analysis {
    /// Reads and compiles a text against the tools of a catalog.
    pub fn new(source: &Source, catalog: &Catalog, limits: &Limits) -> Analysis {
        let examined = compile::contained(|| broken::examine(source, catalog, limits))
            .unwrap_or_else(|fault| Examined::unread(vec![fault]));
        let is_sound = examined.is_sound();
        Analysis {
            source: source.clone(),
            catalog: catalog.clone(),
            limits: limits.clone(),
            findings: examined.diagnostics,
            composition: examined.composition.map(Arc::new),
            is_sound,
            observations: Observations::default(),
            document: examined.document,
            lowered: examined.lowered,
            steps: OnceLock::new(),
            occurrences: OnceLock::new(),
        }
    }

    /// The same analysis, with what earlier runs showed.
    #[must_use]
    pub fn with_observations(mut self, observations: Observations) -> Analysis {
        self.observations = observations;
        self
    }

    /// The text.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// All findings, in the order of the text.
    pub fn findings(&self) -> &[Diagnostic] {
        &self.findings
    }

    /// The name of the composition, whatever errors it has.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.composition.as_ref().map(|composition| &composition.name)
    }

    /// The composition, if there is no error.
    pub fn composition(&self) -> Option<&Arc<Composition>> {
        self.composition.as_ref().filter(|_| self.is_sound)
    }

    /// Proposals at a position that fit what is typed there: fields, tools, parameters, values, steps,
    /// and names in expressions. In compositions and chains.
    pub fn completions(&self, at: u32) -> Vec<Completion> {
        let at = self.source.text().floor_char_boundary(at as usize);
        compile::contained(|| complete::complete(self, at)).unwrap_or_default()
    }

    /// What is known about the word at a position: type, description, last value, times.
    pub fn hover(&self, at: u32) -> Option<Hover> {
        let at = self.source.text().floor_char_boundary(at as usize);
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        compile::contained(|| hover::hover(self, at)).ok().flatten()
    }

    /// Parts of the text that lead to other texts, in the order of the text.
    pub fn links(&self) -> Vec<DocumentLink> {
        let read = || {
            let (tree, composition) = (self.native_tree()?, self.composition.as_deref()?);
            Some(links::of(self, tree, composition))
        };
        compile::contained(read).ok().flatten().unwrap_or_default()
    }

    /// The tokens inside expressions, in the order of the text.
    pub fn tokens(&self) -> Vec<SemanticToken> {
        let read = || Some(tokens::of(&self.source, self.document.as_ref()?));
        compile::contained(read).ok().flatten().unwrap_or_default()
    }

    /// The parts of the composition: steps with their bodies, input, output.
    pub fn outline(&self) -> Vec<OutlineItem> {
        let read = || Some(outline::of(self.native_tree()?, self.composition.as_deref()?));
        compile::contained(read).ok().flatten().unwrap_or_default()
    }

    /// Every place that names something.
    fn occurrences(&self) -> &[Occurrence] {
        self.occurrences.get_or_init(|| {
            let read = || {
                let (tree, composition) = (self.native_tree()?, self.composition.as_deref()?);
                Some(symbols::collect(&self.source, tree, composition))
            };
            compile::contained(read).ok().flatten().unwrap_or_default()
        })
    }

    /// The composition as a tree in the native dialect.
    fn native_tree(&self) -> Option<&Node> {
        let written = || self.document.as_ref().map(unwrap_template);
        self.lowered.as_ref().or_else(written)
    }

    /// The steps as a plan shows them, also of a composition with errors: the effect of a call of an
    /// unknown tool is unknown. Empty if the text has no readable steps.
    pub fn steps(&self) -> &[PlanStepView] {
        self.steps.get_or_init(|| {
            let Some(composition) = &self.composition else { return Vec::new() };
            let read = || steps::of(composition, self.is_sound, &self.limits);
            compile::contained(read).unwrap_or_default()
        })
    }

    /// Replacements that fix findings in a span.
    pub fn actions(&self, span: Span) -> Vec<CodeAction> {
        let touches = |finding: &&Diagnostic| {
            finding.span.start <= span.end && span.start <= finding.span.end
        };
        let findings = self.findings.iter().filter(touches);
        findings.filter_map(|finding| CodeAction::of(finding, &self.source)).collect()
    }
}

#[cfg(test)]
mod tests;
