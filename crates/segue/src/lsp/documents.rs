//! Open documents: their text as the editor has it, what kind they are, and their analysis, which is made
//! once per text and per snapshot of the tools.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use gen_lsp_types::{Position, Range, TextDocumentContentChangeEvent, TextDocumentItem, Uri};
use segue_core::catalog::ToolLookup;
use segue_core::compile::is_composition_text;
use segue_core::diagnostic::{Code, Diagnostic};
use segue_core::language::Analysis;
use segue_core::limits::Limits;
use segue_core::source::{Source, Span};
use segue_core::testing::read_tests;

use super::positions::{Encoding, LineIndex};
use super::uri;
use crate::api::composition_tests::TestRunner;
use crate::app::language::ToolSnapshot;
use crate::config::documents::{DocumentSearch, is_test_file};
use crate::config::{CONFIG_NAMES, findings};

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DocumentKind {
    /// A composition in any dialect.
    Composition,
    /// Tests of a composition.
    Tests,
    /// A configuration.
    Configuration,
    /// Something else: Segue says nothing about it.
    Other,
}

/// An open document.
pub(super) struct EditorDocument {
    pub(super) uri: Uri,
    pub(super) path: Option<PathBuf>,
    pub(super) version: i32,
    text: Arc<str>,
    lines: LineIndex,
    /// The name of its source; its ending says the notation.
    name: Arc<str>,
    /// Whether it was a composition once: a broken text stays one.
    was_composition: RefCell<bool>,
    analysed: RefCell<Option<Analysed>>,
}

/// The analyses of a text, with the number of the snapshot that they were made with.
struct Analysed {
    snapshot: u64,
    document: Rc<AnalysedDocument>,
}

/// What is known about the text of a document.
pub(super) struct AnalysedDocument {
    pub(super) kind: DocumentKind,
    pub(super) source: Source,
    pub(super) findings: Vec<Diagnostic>,
    /// One for each composition of the text; nearly always one.
    pub(super) analyses: Vec<Analysis>,
}

impl EditorDocument {
    pub(super) fn open(item: TextDocumentItem, encoding: Encoding) -> EditorDocument {
        let path = uri::path(&item.uri);
        let is_json = item.language_id.to_string().starts_with("json");
        let name = match &path {
            Some(path) => path.display().to_string(),
            None => format!("untitled.{}", if is_json { "json" } else { "yaml" }),
        };
        EditorDocument {
            lines: LineIndex::of(&item.text, encoding),
            uri: item.uri,
            path,
            version: item.version,
            text: item.text.into(),
            name: name.into(),
            was_composition: RefCell::new(false),
            analysed: RefCell::new(None),
        }
    }

    /// Applies changes in their order; each refers to the text after those before it.
    pub(super) fn change(
        &mut self,
        version: i32,
        changes: Vec<TextDocumentContentChangeEvent>,
        encoding: Encoding,
    ) {
        let mut text = self.text.to_string();
        for change in changes {
            match change {
                TextDocumentContentChangeEvent::TextDocumentContentChangePartial(part) => {
                    let bytes = self.lines.bytes(&text, part.range);
                    text.replace_range(bytes, &part.text);
                }
                TextDocumentContentChangeEvent::TextDocumentContentChangeWholeDocument(whole) => {
                    text = whole.text;
                }
            }
            self.lines = LineIndex::of(&text, encoding);
        }
        (self.text, self.version) = (text.into(), version);
        self.analysed.take();
    }

    pub(super) fn range(&self, span: Span) -> Range {
        self.lines.range(&self.text, span)
    }

    pub(super) fn span(&self, range: Range) -> Span {
        self.lines.span(&self.text, range)
    }

    pub(super) fn offset(&self, position: Position) -> u32 {
        u32::try_from(self.lines.offset(&self.text, position)).unwrap_or(u32::MAX)
    }

    /// The parts of a span on each of its lines.
    pub(super) fn per_line(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        self.lines.per_line(span)
    }

    /// Forgets what is known about tests: it depends on the file of their composition. Whether it did.
    pub(super) fn forget_tests(&self) -> bool {
        let mut analysed = self.analysed.borrow_mut();
        analysed.take_if(|it| it.document.kind == DocumentKind::Tests).is_some()
    }

    /// What is known about the text with these tools.
    pub(super) fn analysed(&self, snapshot: u64, tools: &ToolSnapshot) -> Rc<AnalysedDocument> {
        let known = self
            .analysed
            .borrow()
            .as_ref()
            .filter(|it| it.snapshot == snapshot)
            .map(|it| it.document.clone());
        known.unwrap_or_else(|| {
            let document = Rc::new(self.analyse(tools));
            *self.analysed.borrow_mut() = Some(Analysed { snapshot, document: document.clone() });
            document
        })
    }

    fn analyse(&self, tools: &ToolSnapshot) -> AnalysedDocument {
        let limits = &**tools.engine.limits();
        let source = Source::new(self.name.clone(), self.text.clone());
        let kind = self.kind(&source, tools, limits);
        let (mut analyses, mut found) = (Vec::new(), Vec::new());
        match kind {
            DocumentKind::Other => {}
            DocumentKind::Tests => found = self.tests(&source, tools),
            DocumentKind::Configuration => {
                found = findings(Path::new(&*self.name), &self.text).1;
            }
            DocumentKind::Composition => {
                analyses = self.compositions(&source, tools);
                found = analyses.iter().flat_map(|it| it.findings().to_vec()).collect();
                found.dedup();
                tools.engine.unavailable().explain(&mut found, &source);
                // Without the configuration nobody knows which tools there are.
                let is_about_tools = |finding: &Diagnostic| {
                    matches!(finding.code, Code::UnknownTool | Code::AmbiguousTool)
                };
                found.retain(|finding| tools.is_complete || !is_about_tools(finding));
            }
        }
        AnalysedDocument { kind, source, findings: found, analyses }
    }

    fn kind(&self, source: &Source, tools: &ToolSnapshot, limits: &Limits) -> DocumentKind {
        if let Some(path) = &self.path {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if tools.config_file.as_ref() == Some(path) || CONFIG_NAMES.contains(&name) {
                return DocumentKind::Configuration;
            }
            if is_test_file(path) {
                return DocumentKind::Tests;
            }
            if tools.compositions.contains(path) {
                return DocumentKind::Composition;
            }
        }
        let is_empty = source.text().trim().is_empty();
        let mut was = self.was_composition.borrow_mut();
        *was = !is_empty && (*was || is_composition_text(source, limits));
        if *was { DocumentKind::Composition } else { DocumentKind::Other }
    }

    /// An analysis of each composition of the text. Definitions that a resource refers to by name may be in
    /// files beside it; findings about those belong to their own documents.
    fn compositions(&self, source: &Source, tools: &ToolSnapshot) -> Vec<Analysis> {
        let (catalog, limits) = (tools.engine.catalog(), &**tools.engine.limits());
        let configured: Vec<PathBuf> = tools.compositions.iter().cloned().collect();
        let search = DocumentSearch { configured: &configured, limits };
        let listed = search.compositions(Path::new(&*self.name), source).into_iter();
        let own = listed.map(|it| it.source).filter(|it| it.name() == source.name());
        let analysed = own.map(|source| Analysis::new(&source, catalog, limits));
        let with_past = |analysis: Analysis| {
            let seen = tools.past.of(analysis.name());
            analysis.with_observations(seen)
        };
        analysed.map(with_past).collect()
    }

    /// The findings about tests, against their composition as it was saved.
    fn tests(&self, source: &Source, tools: &ToolSnapshot) -> Vec<Diagnostic> {
        let Some(path) = &self.path else {
            return read_tests(source, tools.engine.limits()).1;
        };
        let find = |name: &str| {
            let found = match tools.engine.catalog().find(&format!("composition:{name}")) {
                ToolLookup::Found(tool) => tool.composition.as_ref(),
                ToolLookup::Ambiguous(_) | ToolLookup::Missing { .. } => None,
            };
            let missing = || format!("there is no composition `{name}`");
            found.map(|composition| composition.source.clone()).ok_or_else(missing)
        };
        TestRunner::new(&tools.engine).findings(source, path, &find)
    }
}
