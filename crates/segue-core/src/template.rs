//! Templates: compositions to start from, with what their authors and their runs say of them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::Plan;
use crate::value::{Map, Value};

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

/// A template as it crosses a surface.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TemplateView {
    /// Its id.
    pub id: Arc<str>,
    /// How people call it.
    pub name: Arc<str>,
    /// What it is good for.
    pub description: Arc<str>,
    /// The composition; left out of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition: Option<Value>,
    /// What is known of it.
    pub metadata: TemplateMetadata,
    /// What it needs.
    pub validation: TemplateValidation,
    /// Where it comes from.
    pub origin: TemplateOrigin,
}

/// What is known of a template.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TemplateMetadata {
    /// What kind of work it does.
    pub category: Arc<str>,
    /// Words to find it by.
    pub tags: Vec<Arc<str>>,
    /// How long it takes: as measured, else as its author says.
    pub estimated_duration_ms: Option<u64>,
    /// The share of its runs that succeeded; unknown before the first one.
    pub success_rate: Option<f64>,
    /// How many runs of it are over.
    pub usage_count: u64,
    /// What else its author says.
    #[serde(flatten)]
    pub more: Map,
}

/// What a template needs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TemplateValidation {
    /// Tools that have to be there.
    pub required_tools: Vec<Arc<str>>,
    /// The version of the language that it needs at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<Arc<str>>,
}

impl CompositionTemplate {
    /// The template for others, with what its runs have shown. Which tools it requires is read off
    /// its plan where its author does not say.
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
        // Counted, not claimed.
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

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    let items = list.as_array().map_or(&[][..], |items| items);
    items.iter().filter_map(Value::as_str)
}
