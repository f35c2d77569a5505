//! Templates: compositions to start from, with their metadata and usage statistics.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::Plan;
use crate::value::{Map, Value};

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

/// A template as surfaces publish it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TemplateView {
    /// Its id.
    pub id: Arc<str>,
    /// Its display name.
    pub name: Arc<str>,
    /// Its purpose.
    pub description: Arc<str>,
    /// The composition; omitted in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition: Option<Value>,
    /// Metadata and statistics.
    pub metadata: TemplateMetadata,
    /// Requirements.
    pub validation: TemplateValidation,
    /// Its origin.
    pub origin: TemplateOrigin,
}

/// Metadata and statistics of a template.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Its category.
    pub category: Arc<str>,
    /// Tags for searching.
    pub tags: Vec<Arc<str>>,
    /// The duration: as measured, else the author's estimate.
    pub estimated_duration_ms: Option<u64>,
    /// The share of its runs that succeeded; absent before the first one.
    pub success_rate: Option<f64>,
    /// The number of finished runs.
    pub usage_count: u64,
    /// Other metadata of its author.
    #[serde(flatten)]
    pub more: Map,
}

/// Requirements of a template.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TemplateValidation {
    /// Required tools.
    pub required_tools: Vec<Arc<str>>,
    /// The minimum version of the composition language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<Arc<str>>,
}

impl CompositionTemplate {
    /// The published view, with usage statistics. Required tools are taken from its plan if its
    /// author does not list them.
    pub fn view(
        &self,
        origin: TemplateOrigin,
        usage: UsageStats,
        plan: Option<&Plan>,
    ) -> TemplateView {
        let members = self.metadata.as_object();
        let mut more = members.map(|members| (**members).clone()).unwrap_or_default();
        let mut take = |name: &str| more.shift_remove(name);
        let category = take("category").and_then(|value| value.as_str().map(Arc::from));
        let tags = take("tags").unwrap_or_default();
        let estimated = take("estimated_duration_ms").and_then(|value| value.as_u64());
        // Measured values replace the author's.
        let _ = (take("success_rate"), take("usage_count"));
        let succeeded = usage.runs.saturating_sub(usage.failures);
        let declared = || {
            let calls = plan.map(Plan::declared_calls).unwrap_or_default();
            calls.into_iter().map(|call| Arc::from(call.tool.as_str())).collect()
        };
        TemplateView {
            id: self.id.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            composition: Some(self.composition.clone()),
            metadata: TemplateMetadata {
                category: category.unwrap_or_else(|| "other".into()),
                tags: texts(&tags).map(Arc::from).collect(),
                estimated_duration_ms: usage.p50_ms.or(estimated),
                success_rate: (usage.runs > 0).then(|| succeeded as f64 / usage.runs as f64),
                usage_count: usage.runs,
                more,
            },
            validation: TemplateValidation {
                required_tools: self.required_tools.clone().unwrap_or_else(declared),
                min_version: self.min_version.clone(),
            },
            origin,
        }
    }

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

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    let items = list.as_array().map_or(&[][..], |items| items);
    items.iter().filter_map(Value::as_str)
}
