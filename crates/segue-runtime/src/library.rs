//! The template library: templates shipped with Segue, templates in files, and templates in the
//! store.
//!
//! A file may replace a shipped template of the same id; a stored template has an id of its own. A
//! finished run updates the usage statistics of its template's id.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::compile::read_template;
use segue_core::diagnostic::Diagnostic;
use segue_core::id::ToolId;
use segue_core::plan::Plan;
use segue_core::source::Source;
use segue_core::template::{self, CompositionTemplate, TemplateOrigin, UsageStats};
use segue_core::view::TemplateView;

use crate::driver::now_ms;
use crate::engine::Engine;
use crate::store::{Collection, Precondition, StoreError, StoredItem};

/// How many templates one read of the store returns.
const PAGE: usize = 256;

macro_rules! shipped {
    ($($id:literal),* $(,)?) => {
        &[$((
            concat!("templates/", $id, ".yaml"),
            include_str!(concat!("../../../templates/", $id, ".yaml")),
        )),*]
    };
}

/// The shipped templates, each with its file name.
const SHIPPED: &[(&str, &str)] = shipped![
    "changelog-entry-v1",
    "collect-todos-v1",
    "compare-files-v1",
    "copy-folder-v1",
    "fetch-json-v1",
    "folder-report-v1",
    "folder-to-webhook-v1",
    "git-digest-v1",
    "json-table-v1",
    "log-errors-v1",
    "merge-checkpoints-v1",
    "notes-to-graph-v1",
    "recall-brief-v1",
    "remember-folder-v1",
    "replace-in-files-v1",
    "search-fold-store-v1",
    "sync-records-v1",
    "wait-until-up-v1",
];

/// The text of a shipped template.
pub fn shipped(id: &str) -> Option<Source> {
    let file = format!("templates/{id}.yaml");
    let (name, text) = SHIPPED.iter().find(|(name, _)| **name == *file)?;
    Some(Source::new(*name, *text))
}

/// The library.
#[derive(Clone)]
pub struct Library {
    engine: Engine,
    /// Shipped templates and those in files, by id.
    given: Arc<BTreeMap<Arc<str>, StoredTemplate>>,
}

/// A template, and the text that it was read from.
#[derive(Clone, Debug)]
pub struct StoredTemplate {
    /// The parsed template.
    pub template: CompositionTemplate,
    /// Its text, which is compiled.
    pub source: Source,
    /// Where it comes from.
    pub origin: TemplateOrigin,
}

/// A file that does not parse as a template, and why.
#[derive(Debug)]
pub struct UnreadableTemplate {
    /// Its text.
    pub source: Source,
    /// The errors.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why the library could not fulfil a request.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// No template has this id.
    #[error("there is no template `{0}`")]
    Unknown(Arc<str>),
    /// The id is taken.
    #[error("there is a template `{id}` already{}", if *.may_replace { ": `replace` replaces it" } else { ", which is not in the store" })]
    NameTaken {
        /// The id.
        id: Arc<str>,
        /// Whether the existing template can be replaced.
        may_replace: bool,
    },
    /// It does not come from the store, so it cannot be removed.
    #[error("the template `{0}` is not in the store, so it cannot be removed from there")]
    ShippedTemplate(Arc<str>),
    /// The text is no template, or its composition does not compile.
    #[error("the template cannot be used: {}", .diagnostics.first().map_or("", |first| &first.message))]
    InvalidTemplate {
        /// Its text.
        text: Source,
        /// Everything that the compiler found.
        diagnostics: Vec<Diagnostic>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Library {
    /// The library of an engine and its store, with the templates of these files.
    pub fn new(engine: Engine, files: Vec<Source>) -> (Library, Vec<UnreadableTemplate>) {
        let limits = engine.limits();
        let mut given = BTreeMap::new();
        let mut unread = Vec::new();
        let shipped =
            SHIPPED.iter().map(|(name, text)| (Source::new(*name, *text), TemplateOrigin::Shipped));
        let files = files.into_iter().map(|source| (source, TemplateOrigin::File));
        for (source, origin) in shipped.chain(files) {
            match read_template(&source, limits) {
                Ok(template) => {
                    given.insert(template.id.clone(), StoredTemplate { template, source, origin });
                }
                Err(diagnostics) => unread.push(UnreadableTemplate { source, diagnostics }),
            }
        }
        (Library { engine, given: Arc::new(given) }, unread)
    }

    /// The same templates for another engine.
    #[must_use]
    pub fn with_engine(&self, engine: Engine) -> Library {
        Library { engine, given: self.given.clone() }
    }

    /// Every template, by id.
    async fn stored_templates(&self) -> Result<Vec<StoredTemplate>, LibraryError> {
        let mut all = (*self.given).clone();
        let mut after = None;
        loop {
            let page =
                self.engine.store().key_value().list(Collection::Templates, after, PAGE).await?;
            for stored in page.items.iter().filter_map(|item| parse_stored(item, &self.engine)) {
                all.entry(stored.template.id.clone()).or_insert(stored);
            }
            after = page.next;
            if after.is_none() {
                return Ok(all.into_values().collect());
            }
        }
    }

    /// The templates that match these words, the best first; without words all of them, by id. Of
    /// templates that match equally well, those that succeeded more often come first. The views
    /// leave out the compositions.
    pub async fn list(&self, words: &str) -> Result<Vec<TemplateView>, LibraryError> {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        let templates = self.stored_templates().await?;
        let mut found: Vec<(u32, StoredTemplate)> = templates
            .into_iter()
            .filter_map(|stored| Some((stored.template.search_score(&words)?, stored)))
            .collect();
        let usage = self.usage().await?;
        let successes = |stored: &StoredTemplate| match words.as_slice() {
            [] => 0,
            _ => usage.of(&stored.template).successes(),
        };
        found.sort_by_key(|(weight, stored)| std::cmp::Reverse((*weight, successes(stored))));
        let views = found.into_iter().map(|(_, stored)| {
            let view = stored.view(&self.engine, &usage);
            TemplateView { composition: None, ..view }
        });
        Ok(views.collect())
    }

    /// The template with this id.
    pub async fn get(&self, id: &str) -> Result<TemplateView, LibraryError> {
        let stored = self.stored_template(id).await?;
        Ok(stored.view(&self.engine, &self.usage().await?))
    }

    /// The template with this id, with its text.
    pub async fn stored_template(&self, id: &str) -> Result<StoredTemplate, LibraryError> {
        if let Some(stored) = self.given.get(id) {
            return Ok(stored.clone());
        }
        let key: Arc<str> = id.into();
        let item = self.engine.store().key_value().get(Collection::Templates, &key).await?;
        item.as_ref()
            .and_then(|item| parse_stored(item, &self.engine))
            .ok_or(LibraryError::Unknown(key))
    }

    /// The plan of a template.
    pub async fn plan(&self, id: &str) -> Result<Arc<Plan>, LibraryError> {
        let StoredTemplate { source, .. } = self.stored_template(id).await?;
        let (plan, diagnostics) = self.engine.plan(&source);
        plan.ok_or(LibraryError::InvalidTemplate { text: source, diagnostics })
    }

    /// Stores a template, if it compiles.
    pub async fn put(&self, text: &str, may_replace: bool) -> Result<TemplateView, LibraryError> {
        let source = Source::new("template", text);
        let template = match read_template(&source, self.engine.limits()) {
            Ok(template) => template,
            Err(diagnostics) => {
                return Err(LibraryError::InvalidTemplate { text: source, diagnostics });
            }
        };
        let id = template.id.clone();
        if self.given.contains_key(&id) {
            return Err(LibraryError::NameTaken { id, may_replace: false });
        }
        let (plan, diagnostics) = self.engine.plan(&source);
        let Some(plan) = plan else {
            return Err(LibraryError::InvalidTemplate { text: source, diagnostics });
        };
        let item = StoredItem { key: id.clone(), text: text.into(), version: 0, at_ms: now_ms() };
        let expect = if may_replace { Precondition::Anything } else { Precondition::Absent };
        match self.engine.store().key_value().put(Collection::Templates, &item, expect).await {
            Ok(_) => {}
            Err(StoreError::Changed { .. }) => {
                return Err(LibraryError::NameTaken { id, may_replace: true });
            }
            Err(error) => return Err(error.into()),
        }
        let usage = self.usage().await?.of(&template);
        Ok(TemplateView::new(&template, TemplateOrigin::Store, usage, Some(&plan)))
    }

    /// Removes a template from the store.
    pub async fn remove(&self, id: &str) -> Result<(), LibraryError> {
        let key: Arc<str> = id.into();
        if self.given.contains_key(id) {
            return Err(LibraryError::ShippedTemplate(key));
        }
        let gone = self.engine.store().key_value().delete(Collection::Templates, &key).await?;
        if gone { Ok(()) } else { Err(LibraryError::Unknown(key)) }
    }

    async fn usage(&self) -> Result<UsageByTool, LibraryError> {
        let stats = self.engine.store().tool_stats().await?.into_iter();
        let runs = stats.filter(|stats| stats.tool.namespace() == template::USAGE_NAMESPACE);
        let usage = runs.filter_map(|stats| {
            let seen = stats.observed()?;
            let usage =
                UsageStats { runs: seen.calls, failures: seen.failures, p50_ms: Some(seen.p50_ms) };
            Some((stats.tool, usage))
        });
        Ok(UsageByTool(usage.collect()))
    }
}

/// Usage statistics by template.
struct UsageByTool(BTreeMap<ToolId, UsageStats>);

impl UsageByTool {
    fn of(&self, template: &CompositionTemplate) -> UsageStats {
        let tool = ToolId::new(template::USAGE_NAMESPACE, &template.id);
        self.0.get(&tool).copied().unwrap_or_default()
    }
}

impl StoredTemplate {
    fn view(&self, engine: &Engine, usage: &UsageByTool) -> TemplateView {
        let is_declared = self.template.required_tools.is_some();
        let plan = if is_declared { None } else { engine.plan(&self.source).0 };
        TemplateView::new(&self.template, self.origin, usage.of(&self.template), plan.as_deref())
    }
}

/// Parses a stored template. Only texts that parsed were stored; one that fails is skipped.
fn parse_stored(item: &StoredItem, engine: &Engine) -> Option<StoredTemplate> {
    let source = Source::new(format!("template {}", item.key), item.text.clone());
    let template = read_template(&source, engine.limits()).ok()?;
    Some(StoredTemplate { template, source, origin: TemplateOrigin::Store })
}
