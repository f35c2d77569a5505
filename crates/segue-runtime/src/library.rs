//! The library of templates: those that come with Segue, those in files, and those in the store.
//!
//! An id is found in that order backwards: a file may stand in for a template of ours, but what is
//! in the store has ids of its own. How often a template was used and with what success is counted
//! by its id, when a run of it is over.

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

/// Templates of a page of the store.
const PAGE: usize = 256;

macro_rules! shipped {
    ($($id:literal),* $(,)?) => {
        &[$((
            concat!("templates/", $id, ".yaml"),
            include_str!(concat!("../../../templates/", $id, ".yaml")),
        )),*]
    };
}

/// The templates that come with Segue, each with the name of its file.
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

/// The text of a template that comes with Segue.
pub fn shipped(id: &str) -> Option<Source> {
    let file = format!("templates/{id}.yaml");
    let (name, text) = SHIPPED.iter().find(|(name, _)| **name == *file)?;
    Some(Source::new(*name, *text))
}

/// The library.
#[derive(Clone)]
pub struct Library {
    engine: Engine,
    /// By id.
    given: Arc<BTreeMap<Arc<str>, StoredTemplate>>,
}

/// A template, and the text that it was read from.
#[derive(Clone, Debug)]
pub struct StoredTemplate {
    /// What it says.
    pub template: CompositionTemplate,
    /// Its text: what is compiled.
    pub source: Source,
    /// Where it comes from.
    pub origin: TemplateOrigin,
}

/// A file that is no template, and why.
#[derive(Debug)]
pub struct UnreadableTemplate {
    /// Its text.
    pub source: Source,
    /// What is wrong with it.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why the library could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// There is no such template.
    #[error("there is no template `{0}`")]
    Unknown(Arc<str>),
    /// There is one already.
    #[error("there is a template `{id}` already{}", if *.may_replace { ": `replace` replaces it" } else { ", which is not in the store" })]
    NameTaken {
        /// The id.
        id: Arc<str>,
        /// Whether it could be replaced.
        may_replace: bool,
    },
    /// It comes from elsewhere: there is nothing to take away.
    #[error("the template `{0}` is not in the store, so it cannot be removed from there")]
    ShippedTemplate(Arc<str>),
    /// It is none, or its composition does not compile.
    #[error("the template cannot be used: {}", .diagnostics.first().map_or("", |first| &first.message))]
    InvalidTemplate {
        /// Its text.
        text: Source,
        /// Everything that was found.
        diagnostics: Vec<Diagnostic>,
    },
    /// The store has a difficulty.
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

    /// The same templates, for another engine.
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
            for volume in page.items.iter().filter_map(|item| parse_stored(item, &self.engine)) {
                all.entry(volume.template.id.clone()).or_insert(volume);
            }
            after = page.next;
            if after.is_none() {
                return Ok(all.into_values().collect());
            }
        }
    }

    /// Every template that answers to these words, the best first; all of them by id without words.
    /// They come without their compositions.
    pub async fn list(&self, words: &str) -> Result<Vec<TemplateView>, LibraryError> {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        let volumes = self.stored_templates().await?;
        let mut found: Vec<(u32, StoredTemplate)> = volumes
            .into_iter()
            .filter_map(|volume| Some((volume.template.search_score(&words)?, volume)))
            .collect();
        found.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        let practice = self.usage().await?;
        let views = found.into_iter().map(|(_, volume)| {
            let view = volume.view(&self.engine, &practice);
            TemplateView { composition: None, ..view }
        });
        Ok(views.collect())
    }

    /// The template of an id.
    pub async fn get(&self, id: &str) -> Result<TemplateView, LibraryError> {
        let volume = self.stored_template(id).await?;
        Ok(volume.view(&self.engine, &self.usage().await?))
    }

    /// The template of an id, with its text.
    pub async fn stored_template(&self, id: &str) -> Result<StoredTemplate, LibraryError> {
        if let Some(volume) = self.given.get(id) {
            return Ok(volume.clone());
        }
        let key: Arc<str> = id.into();
        let item = self.engine.store().key_value().get(Collection::Templates, &key).await?;
        item.as_ref()
            .and_then(|item| parse_stored(item, &self.engine))
            .ok_or(LibraryError::Unknown(key))
    }

    /// What a template runs.
    pub async fn plan(&self, id: &str) -> Result<Arc<Plan>, LibraryError> {
        let StoredTemplate { source, .. } = self.stored_template(id).await?;
        let (plan, diagnostics) = self.engine.plan(&source);
        plan.ok_or(LibraryError::InvalidTemplate { text: source, diagnostics })
    }

    /// Puts a template into the store, if it compiles.
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
        let practice = self.usage().await?.of(&template);
        Ok(TemplateView::new(&template, TemplateOrigin::Store, practice, Some(&plan)))
    }

    /// Takes a template out of the store.
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
        let practice = runs.filter_map(|stats| {
            let seen = stats.observed()?;
            let practice =
                UsageStats { runs: seen.calls, failures: seen.failures, p50_ms: Some(seen.p50_ms) };
            Some((stats.tool, practice))
        });
        Ok(UsageByTool(practice.collect()))
    }
}

/// What runs have shown, by template.
struct UsageByTool(BTreeMap<ToolId, UsageStats>);

impl UsageByTool {
    fn of(&self, template: &CompositionTemplate) -> UsageStats {
        let tool = ToolId::new(template::USAGE_NAMESPACE, &template.id);
        self.0.get(&tool).copied().unwrap_or_default()
    }
}

impl StoredTemplate {
    fn view(&self, engine: &Engine, practice: &UsageByTool) -> TemplateView {
        let is_said = self.template.required_tools.is_some();
        let plan = if is_said { None } else { engine.plan(&self.source).0 };
        let practice = practice.of(&self.template);
        TemplateView::new(&self.template, self.origin, practice, plan.as_deref())
    }
}

/// What is in the store was a template when it was put there.
fn parse_stored(item: &StoredItem, engine: &Engine) -> Option<StoredTemplate> {
    let source = Source::new(format!("template {}", item.key), item.text.clone());
    let template = read_template(&source, engine.limits()).ok()?;
    Some(StoredTemplate { template, source, origin: TemplateOrigin::Store })
}
