//! What there is to run: tools, templates and compositions.

use std::sync::Arc;

use async_graphql::{ID, SimpleObject};
use segue_core::tool::ToolSpec;
use segue_core::value::Value;
use segue_core::view::TemplateView;

use crate::serve::graphql::json::Json;
use crate::serve::listing::{CompositionLine, definition};
use crate::serve::own::json_of;

/// The word for something.
pub(super) fn word(what: &impl serde::Serialize) -> String {
    json_of(what).as_str().unwrap_or_default().to_owned()
}

/// A tool, with everything that is known of it.
#[derive(SimpleObject)]
pub(in crate::serve::graphql) struct Tool {
    /// `namespace:name`
    id: ID,
    /// What it does.
    description: String,
    /// JSON Schema of its arguments.
    input_schema: Json,
    /// JSON Schema of what it returns; null where nothing is known of it.
    output_schema: Json,
    /// What its source says it does to the world.
    annotations: Json,
    /// What it does to the world, in a word.
    effect: String,
    /// How its work is taken back.
    rollback: Json,
    /// Whether a person is asked before it is called.
    confirms: bool,
    /// The hash of its definition.
    hash: String,
}

impl From<&ToolSpec> for Tool {
    fn from(tool: &ToolSpec) -> Tool {
        let definition = definition(tool);
        let json = |name: &str| Json(definition.get(name).cloned().unwrap_or_default());
        let text = |name: &str| {
            definition.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Tool {
            id: tool.id.to_string().into(),
            description: text("description"),
            input_schema: json("input_schema"),
            output_schema: json("output_schema"),
            annotations: json("annotations"),
            effect: text("effect"),
            rollback: json("rollback"),
            confirms: tool.needs_confirmation(),
            hash: text("hash"),
        }
    }
}

/// Tools, by id.
#[derive(SimpleObject)]
pub(in crate::serve::graphql) struct ToolPage {
    /// The tools.
    pub(in crate::serve::graphql) nodes: Vec<Tool>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::serve::graphql) next: Option<String>,
}

/// A template: a composition to start from, with how well that went.
#[derive(SimpleObject)]
pub(in crate::serve::graphql) struct Template {
    /// Its id.
    id: ID,
    /// How people call it.
    name: Arc<str>,
    /// What it is good for.
    description: Arc<str>,
    /// The composition; null in lists.
    composition: Json,
    /// What kind of work it does.
    category: Arc<str>,
    /// Words to find it by.
    tags: Vec<Arc<str>>,
    /// How long it takes: as measured, else as its author says.
    estimated_duration_ms: Option<f64>,
    /// The share of its runs that succeeded; unknown before the first one.
    success_rate: Option<f64>,
    /// How many runs of it are over.
    usage_count: f64,
    /// Tools that have to be there.
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
pub(in crate::serve::graphql) struct TemplatePage {
    /// Without their compositions.
    pub(in crate::serve::graphql) nodes: Vec<Template>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::serve::graphql) next: Option<String>,
}

/// A composition that is served.
#[derive(SimpleObject)]
pub(in crate::serve::graphql) struct Composition {
    /// What it is run under.
    name: Arc<str>,
    /// What it does, calls and leaves behind.
    description: String,
    /// JSON Schema of its input.
    input: Json,
    /// JSON Schema of its result.
    output: Json,
    /// What it does to the world, at worst.
    effect: String,
    /// The hash of its plan.
    plan_hash: Arc<str>,
}

impl From<CompositionLine> for Composition {
    fn from(line: CompositionLine) -> Composition {
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
pub(in crate::serve::graphql) struct CompositionPage {
    /// The compositions.
    pub(in crate::serve::graphql) nodes: Vec<Composition>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::serve::graphql) next: Option<String>,
}
