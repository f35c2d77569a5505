//! Makes an engine's catalog: plain tools first, then those made of other tools, each after its
//! callees.
//!
//! Compositions, wrappers and code tools may call each other in any order of definition, but not in
//! a cycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::code_tools;
use segue_core::compile::{self, Compiled};
use segue_core::diagnostic::{Code, Diagnostic};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan;
use segue_core::run::Failure;
use segue_core::source::{Source, Span};
use segue_core::tool::{COMPOSITION, ToolSpec};

use super::LoadError;
use crate::tools::Registry;
use crate::wrap::Wrapper;

/// A tool that is made of other tools.
enum PendingSource {
    Composition(Source),
    Wrapper(Wrapper),
    Tool(Arc<ToolSpec>),
}

struct PendingTool {
    made: PendingSource,
    /// The names of the tools that it calls.
    calls: Vec<Arc<str>>,
}

/// The tools to load, and those loaded so far.
pub(super) struct Loader<'a> {
    catalog: Catalog,
    limits: &'a Limits,
    waiting: BTreeMap<ToolId, PendingTool>,
    /// How deep each tool that is made of others nests.
    depths: BTreeMap<ToolId, usize>,
    unloaded: Vec<LoadError>,
}

/// The catalog of these tools and of those made of them, and what could not be loaded.
pub(super) fn load(
    registry: &Registry,
    wrappers: &[Wrapper],
    sources: impl IntoIterator<Item = Source>,
    limits: &Limits,
) -> (Catalog, Vec<LoadError>) {
    let mut loading = Loader {
        catalog: Catalog::default(),
        limits,
        waiting: BTreeMap::new(),
        depths: BTreeMap::new(),
        unloaded: Vec::new(),
    };
    for spec in registry.specs() {
        match &spec.code_tool {
            None => loading.catalog.insert(spec.clone()),
            Some(composed) => {
                let calls = composed.declared_parts.clone();
                let waiting = PendingTool { made: PendingSource::Tool(spec.clone()), calls };
                loading.waiting.insert(spec.id.clone(), waiting);
            }
        }
    }
    for wrapper in wrappers {
        let (made, calls) = (PendingSource::Wrapper(wrapper.clone()), wrapper.calls());
        loading.add_composition(wrapper.name(), PendingTool { made, calls });
    }
    for source in sources {
        loading.add_source(source);
    }
    while loading.load_next() {}
    (loading.catalog, loading.unloaded)
}

impl Loader<'_> {
    fn add_source(&mut self, source: Source) {
        let Some(header) = compile::read_header(&source, self.limits) else {
            let diagnostics = compile::compile(&source, &self.catalog, self.limits).diagnostics;
            return self.unloaded.push(LoadError { source, diagnostics });
        };
        let mut calls = Vec::new();
        header.body.walk_calls(&mut |call| calls.push(call.name.clone()));
        self.add_composition(
            &header.name,
            PendingTool { made: PendingSource::Composition(source), calls },
        );
    }

    fn add_composition(&mut self, name: &str, waiting: PendingTool) {
        let id = ToolId::new(COMPOSITION, name);
        if self.waiting.contains_key(&id) {
            let message = format!("another composition is called `{name}` already");
            let finding = Diagnostic::error(Code::DuplicateId, message, Span::default());
            let source = waiting.made.source(&id);
            return self.unloaded.push(LoadError { source, diagnostics: vec![finding] });
        }
        self.waiting.insert(id, waiting);
    }

    /// Whether this name may mean a tool that is still to be loaded.
    fn awaits(&self, name: &str, except: &ToolId) -> bool {
        let mut others = self.waiting.keys().filter(|id| *id != except);
        others.any(|id| id.as_str() == name || id.name() == name)
    }

    /// Loads one tool whose callees are all loaded; false when none is left.
    fn load_next(&mut self) -> bool {
        let is_free = |(id, waiting): &(&ToolId, &PendingTool)| {
            !waiting.calls.iter().any(|call| self.awaits(call, id))
        };
        let free = self.waiting.iter().find(is_free).map(|(id, _)| id.clone());
        // When there is none, only cycles are left; the first tool gets the error.
        let in_circle = free.is_none();
        let Some(id) = free.or_else(|| self.waiting.keys().next().cloned()) else { return false };
        let waiting = self.waiting.remove(&id).expect("the id was just found");
        let calls_itself = waiting.calls.iter().any(|call| **call == *id.as_str());
        let source = waiting.made.source(&id);
        if let Err(mut diagnostics) = self.load_one(&id, waiting.made) {
            if in_circle || calls_itself {
                let span = diagnostics.first().map_or_else(Span::default, |d| d.span);
                let through = if in_circle { " through others" } else { "" };
                let message = format!("{} calls itself{through}", shown(&id));
                diagnostics.insert(0, Diagnostic::error(Code::Recursion, message, span));
            }
            self.unloaded.push(LoadError { source, diagnostics });
        }
        true
    }

    fn load_one(&mut self, id: &ToolId, made: PendingSource) -> Result<(), Vec<Diagnostic>> {
        let spec = match made {
            PendingSource::Tool(spec) => {
                code_tools::resolve_parts(&spec, &self.catalog).map_err(failure_findings)?
            }
            PendingSource::Composition(source) => self.compile(&source)?,
            PendingSource::Wrapper(wrapper) => {
                let source = wrapper.source(&self.catalog).map_err(failure_findings)?;
                self.compile(&source)?
            }
        };
        let depth = 1 + self.depth_inside(&spec);
        let max = self.limits.nesting_depth_max;
        if spec.code_tool.is_some() && depth > max {
            let message =
                format!("`{id}` and the tools it calls nest deeper than the limit of {max}");
            return Err(failure_findings(Failure::permanent(Code::Limit, message)));
        }
        self.depths.insert(id.clone(), depth);
        self.catalog.insert(Arc::new(spec));
        Ok(())
    }

    fn compile(&self, source: &Source) -> Result<ToolSpec, Vec<Diagnostic>> {
        let Compiled { composition, diagnostics } =
            compile::compile(source, &self.catalog, self.limits);
        composition.map(|composition| plan::composition_tool(&composition)).ok_or(diagnostics)
    }

    fn depth_inside(&self, spec: &ToolSpec) -> usize {
        let depth = |id: &ToolId| self.depths.get(id).copied().unwrap_or(0);
        let mut deepest = 0;
        if let Some(composed) = &spec.code_tool {
            deepest = composed.parts.keys().map(depth).max().unwrap_or(0);
        }
        if let Some(composition) = &spec.composition {
            composition.body.walk_calls(&mut |call| {
                let inside = call.tool.as_ref().map_or(0, |tool| depth(&tool.id));
                deepest = deepest.max(inside);
            });
        }
        deepest
    }
}

impl PendingSource {
    /// The source for findings. Code has no text; its name is the location.
    fn source(&self, id: &ToolId) -> Source {
        match self {
            PendingSource::Composition(source) => source.clone(),
            PendingSource::Wrapper(_) | PendingSource::Tool(_) => Source::new(id.as_str(), ""),
        }
    }
}

fn shown(id: &ToolId) -> String {
    match id.namespace() {
        COMPOSITION => format!("the composition `{}`", id.name()),
        _ => format!("`{id}`"),
    }
}

fn failure_findings(failure: Failure) -> Vec<Diagnostic> {
    let mut finding = Diagnostic::error(failure.code, failure.message.to_string(), Span::default());
    finding.help = failure.hint.map(|hint| hint.to_string());
    vec![finding]
}
