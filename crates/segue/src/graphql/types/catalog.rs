//! Tools, templates and compositions.

use std::sync::Arc;

use async_graphql::{ID, SimpleObject};
use segue_core::view::TemplateView;

use crate::api::responses::CompositionSummary;
use crate::api::result::json_of;
use crate::api::tools::ToolDetails;
use crate::graphql::json::Json;

/// The name of an enum value.
pub(super) fn word(what: &impl serde::Serialize) -> String {
    json_of(what).as_str().unwrap_or_default().to_owned()
}

/// A tool: its definition and its effect.
#[derive(SimpleObject)]
pub(in crate::graphql) struct Tool {
    /// `namespace:name`
    id: ID,
    /// What it does.
    description: String,
    /// JSON Schema of its arguments.
    input_schema: Json,
    /// JSON Schema of its result; null where it is unknown.
    output_schema: Json,
    /// The hints of its source.
    annotations: Json,
    /// Its effect, in a word.
    effect: String,
    /// How its call is rolled back.
    rollback: Json,
    /// Whether a run asks a person before it calls the tool.
    confirms: bool,
    /// The hash of its definition.
    hash: String,
}

impl From<ToolDetails> for Tool {
    fn from(tool: ToolDetails) -> Tool {
        Tool {
            id: (&*tool.id).into(),
            description: tool.description.to_string(),
            input_schema: Json(tool.input_schema),
            output_schema: Json(tool.output_schema),
            annotations: Json(json_of(&tool.annotations)),
            effect: tool.effect.to_owned(),
            rollback: Json(tool.rollback),
            confirms: tool.confirms,
            hash: tool.hash,
        }
    }
}

/// Tools, by id.
#[derive(SimpleObject)]
pub(in crate::graphql) struct ToolPage {
    /// The tools.
    pub(in crate::graphql) nodes: Vec<Tool>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::graphql) next: Option<String>,
}

/// A template: a composition to start from, with its usage.
#[derive(SimpleObject)]
pub(in crate::graphql) struct Template {
    /// Its id.
    id: ID,
    /// Its title.
    name: Arc<str>,
    /// What it is for.
    description: Arc<str>,
    /// The composition; null in lists.
    composition: Json,
    /// Its category.
    category: Arc<str>,
    /// Its tags.
    tags: Vec<Arc<str>>,
    /// How long it takes: as measured, else as its author says.
    estimated_duration_ms: Option<f64>,
    /// The share of its runs that succeeded; unknown before the first one.
    success_rate: Option<f64>,
    /// How many runs of it have finished.
    usage_count: f64,
    /// The tools that it needs.
    required_tools: Vec<Arc<str>>,
    /// Where it comes from: `shipped`, `file` or `store`.
    origin: String,
}

impl From<TemplateView> for Template {
    fn from(view: TemplateView) -> Template {
        Template {
            id: (&*view.id).into(),
            name: view.name,
            description: view.description,
            composition: Json(view.composition.unwrap_or_default()),
            category: view.metadata.category,
            tags: view.metadata.tags,
            estimated_duration_ms: view.metadata.estimated_duration_ms.map(|ms| ms as f64),
            success_rate: view.metadata.success_rate,
            usage_count: view.metadata.usage_count as f64,
            required_tools: view.validation.required_tools,
            origin: word(&view.origin),
        }
    }
}

/// Templates, by id or the best first.
#[derive(SimpleObject)]
pub(in crate::graphql) struct TemplatePage {
    /// Without their compositions.
    pub(in crate::graphql) nodes: Vec<Template>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::graphql) next: Option<String>,
}

/// A served composition.
#[derive(SimpleObject)]
pub(in crate::graphql) struct Composition {
    /// Its name.
    name: Arc<str>,
    /// What it does and calls, and whether it can be rolled back.
    description: String,
    /// JSON Schema of its input.
    input: Json,
    /// JSON Schema of its result.
    output: Json,
    /// Its worst effect.
    effect: String,
    /// The hash of its plan.
    plan_hash: Arc<str>,
}

impl From<CompositionSummary> for Composition {
    fn from(line: CompositionSummary) -> Composition {
        Composition {
            effect: word(&line.effect),
            name: line.name,
            description: line.description,
            input: Json(line.input),
            output: Json(line.output),
            plan_hash: line.plan_hash,
        }
    }
}

/// Compositions, by name.
#[derive(SimpleObject)]
pub(in crate::graphql) struct CompositionPage {
    /// The compositions.
    pub(in crate::graphql) nodes: Vec<Composition>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::graphql) next: Option<String>,
}
