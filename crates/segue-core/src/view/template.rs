//! Templates as they cross a surface.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::Plan;
use crate::template::{CompositionTemplate, TemplateOrigin, UsageStats, texts};
use crate::value::{Map, Value};

/// A template as surfaces publish it.
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
    /// Its metadata and statistics.
    pub metadata: TemplateMetadata,
    /// What it needs.
    pub validation: TemplateValidation,
    /// Its origin.
    pub origin: TemplateOrigin,
}

/// The metadata and statistics of a template.
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
    /// Other metadata of its author.
    #[serde(flatten)]
    pub more: Map,
}

/// What a template needs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TemplateValidation {
    /// Tools that have to be there.
    pub required_tools: Vec<Arc<str>>,
    /// The minimum version of the composition language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<Arc<str>>,
}

impl TemplateView {
    /// The template for others, with what its runs have shown. Which tools it requires is read off
    /// its plan where its author does not say.
    pub fn new(
        template: &CompositionTemplate,
        origin: TemplateOrigin,
        usage: UsageStats,
        plan: Option<&Plan>,
    ) -> TemplateView {
        let members = template.metadata.as_object();
        let mut more = members.map(|members| (**members).clone()).unwrap_or_default();
        let mut take = |name: &str| more.shift_remove(name);
        let category = take("category").and_then(|value| value.as_str().map(Arc::from));
        let tags = take("tags").unwrap_or_default();
        let estimated = take("estimated_duration_ms").and_then(|value| value.as_u64());
        // Measured values replace the author's.
        let _ = (take("success_rate"), take("usage_count"));
        let succeeded = usage.successes();
        let declared = || {
            let calls = plan.map(Plan::declared_calls).unwrap_or_default();
            calls.into_iter().map(|call| Arc::from(call.tool.as_str())).collect()
        };
        TemplateView {
            id: template.id.clone(),
            name: template.name.clone(),
            description: template.description.clone(),
            composition: Some(template.composition.clone()),
            metadata: TemplateMetadata {
                category: category.unwrap_or_else(|| "other".into()),
                tags: texts(&tags).map(Arc::from).collect(),
                estimated_duration_ms: usage.p50_ms.or(estimated),
                success_rate: (usage.runs > 0).then(|| succeeded as f64 / usage.runs as f64),
                usage_count: usage.runs,
                more,
            },
            validation: TemplateValidation {
                required_tools: template.required_tools.clone().unwrap_or_else(declared),
                min_version: template.min_version.clone(),
            },
            origin,
        }
    }
}
