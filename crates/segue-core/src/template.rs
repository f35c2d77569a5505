//! Templates: compositions to start from, with their metadata and usage statistics.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::value::Value;

/// The namespace of usage statistics of templates, by id, beside those of tools. No tool source can
/// have this name.
pub const USAGE_NAMESPACE: &str = "(template)";

/// A template, as written.
#[derive(Clone, Debug)]
pub struct CompositionTemplate {
    /// Its id, unique in a library.
    pub id: Arc<str>,
    /// Its display name.
    pub name: Arc<str>,
    /// Its purpose.
    pub description: Arc<str>,
    /// Metadata of its author: category, tags, estimated duration and others.
    pub metadata: Value,
    /// Required tools, if its author lists them.
    pub required_tools: Option<Vec<Arc<str>>>,
    /// The version of the language that it needs.
    pub min_version: Option<Arc<str>>,
    /// The composition, in any dialect.
    pub composition: Value,
}

/// Statistics of a template's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageStats {
    /// Finished runs.
    pub runs: u64,
    /// Those that did not succeed.
    pub failures: u64,
    /// The median duration.
    pub p50_ms: Option<u64>,
}

impl UsageStats {
    /// Finished runs that succeeded.
    pub fn successes(&self) -> u64 {
        self.runs.saturating_sub(self.failures)
    }
}

/// The origin of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplateOrigin {
    /// Part of Segue.
    Shipped,
    /// From a file that the configuration names.
    File,
    /// Added to the store.
    Store,
}

impl CompositionTemplate {
    /// The search score: how many words occur in its name, its tags and its description, with more
    /// weight for the name; `None` if a word occurs nowhere.
    pub fn search_score(&self, words: &[String]) -> Option<u32> {
        let category = self.metadata.get("category").and_then(Value::as_str);
        let tags = self.metadata.get("tags").into_iter().flat_map(texts).chain(category);
        let tags = tags.map(str::to_lowercase).collect::<Vec<_>>().join(" ");
        let names = format!("{} {}", self.id, self.name).to_lowercase();
        let description = self.description.to_lowercase();
        words.iter().try_fold(0, |sum, word| {
            let weights = [(&names, 4), (&tags, 2), (&description, 1)];
            let found = weights.iter().filter(|(text, _)| text.contains(word.as_str()));
            match found.map(|(_, weight)| weight).sum::<u32>() {
                0 => None,
                weight => Some(sum + weight),
            }
        })
    }
}

pub(crate) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    let items = list.as_array().map_or(&[][..], |items| items);
    items.iter().filter_map(Value::as_str)
}
