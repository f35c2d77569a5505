//! Templates: compositions to start from, with what their authors and their runs say of them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::value::Value;

/// The namespace under which runs of templates are counted, by their ids, beside the calls of tools. No
/// source of tools can have this name.
pub const USAGE_NAMESPACE: &str = "(template)";

/// A template, as it was written.
#[derive(Clone, Debug)]
pub struct CompositionTemplate {
    /// Its id, one of a kind in a library.
    pub id: Arc<str>,
    /// How people call it.
    pub name: Arc<str>,
    /// What it is good for.
    pub description: Arc<str>,
    /// What its author says of it: category, tags, estimated duration and the like.
    pub metadata: Value,
    /// Tools that have to be there, where its author says so.
    pub required_tools: Option<Vec<Arc<str>>>,
    /// The version of the language that it needs.
    pub min_version: Option<Arc<str>>,
    /// The composition, in whatever dialect.
    pub composition: Value,
}

/// What runs of a template have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageStats {
    /// Runs that are over.
    pub runs: u64,
    /// Those that did not succeed.
    pub failures: u64,
    /// How long half of them took at most.
    pub p50_ms: Option<u64>,
}

/// Where a template comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplateOrigin {
    /// It comes with Segue.
    Shipped,
    /// From a file that the configuration names.
    File,
    /// Somebody put it into the store.
    Store,
}

impl CompositionTemplate {
    /// How well it answers to words: how many of them stand in its name, its tags and its
    /// description, where a name counts more; nothing when one of them is nowhere.
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
