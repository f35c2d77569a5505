//! The tools and compositions that a caller may use, and their definitions for other hosts.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::Principal;
use segue_core::diagnostic::{Code, nearest_name};
use segue_core::expose::{self, Adapter, ConversionFailure, Export, ExportFormat, Loss};
use segue_core::tool::{Annotations, DeclaredRollback, ToolSpec};
use segue_core::toolset::{self, Toolset};
use segue_core::value::Value;
use segue_core::view::explain::effect_label;
use serde::Serialize;

use super::error::{Error, ErrorKind};
use super::responses::CompositionSummary;
use super::runs::RunService;

/// The toolset of every tool that the caller may use.
const ALL: &str = "all";

/// The compositions that are served to a caller, by name.
pub fn compositions(service: &RunService, who: &Principal) -> Vec<CompositionSummary> {
    let tools = service.catalog(who).tools;
    let summaries = tools.iter().map(|tool| CompositionSummary {
        name: tool.composition.clone(),
        description: tool.description.clone(),
        input: tool.input.clone(),
        output: tool.output.clone(),
        effect: tool.plan.impact(),
        plan_hash: tool.plan.hash().clone(),
    });
    summaries.collect()
}

/// The tools that a caller may use and that fit these words, the best first; without words, by id.
pub fn list(service: &RunService, who: &Principal, search: &str) -> Vec<ToolDetails> {
    let toolset = service.catalog(who).engine.toolset();
    let found = toolset::search(toolset.usable_tools(), search).into_iter();
    found.map(|tool| ToolDetails::from(&**tool)).collect()
}

/// A tool that a caller may use.
pub fn find(service: &RunService, who: &Principal, id: &str) -> Result<ToolDetails, Error> {
    let engine = service.catalog(who).engine;
    Ok(ToolDetails::from(&**engine.usable_tool(id)?))
}

/// The tools that a caller may use.
#[derive(Serialize, JsonSchema)]
pub struct ToolList {
    /// By id; those of a search, the best first.
    pub tools: Vec<ToolDetails>,
}

/// A tool: its definition, its effect and its statistics.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub struct ToolDetails {
    /// `namespace:name`
    pub id: Arc<str>,
    /// What it does.
    pub description: Arc<str>,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// JSON Schema of its result; null where it is unknown.
    pub output_schema: Value,
    /// The hints of its source: `read_only`, `destructive`, `idempotent`, `open_world`.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub annotations: Annotations,
    /// The scopes that its policy knows.
    pub scopes: Vec<Arc<str>>,
    /// Its tags.
    pub tags: Vec<Arc<str>>,
    /// The hashes of the tools that it is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composed_of: Option<BTreeMap<Arc<str>, String>>,
    /// Whether one consent covers all tools that it is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic: Option<bool>,
    /// The version that its definition is pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<Arc<str>>,
    /// Its effect, in a word.
    pub effect: &'static str,
    /// How its call is rolled back; null where it is unknown.
    pub rollback: Value,
    /// Statistics of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<Value>,
    /// Whether a run asks a person before it calls the tool.
    pub confirms: bool,
    /// The hash of its definition.
    pub hash: String,
}

impl From<&ToolSpec> for ToolDetails {
    fn from(tool: &ToolSpec) -> ToolDetails {
        let composed = tool.code_tool.as_ref();
        let parts = composed.map(|composed| composed.parts.iter());
        ToolDetails {
            id: tool.id.as_str().into(),
            description: tool.description.clone(),
            input_schema: tool.input.json().clone(),
            output_schema: tool.output.as_ref().map_or(Value::Null, |s| s.json().clone()),
            annotations: tool.annotations,
            scopes: tool.scopes.clone(),
            tags: tool.tags.clone(),
            composed_of: parts
                .map(|parts| parts.map(|(id, part)| (id.as_str().into(), part.hash())).collect()),
            atomic: composed.map(|composed| composed.atomic),
            pin: tool.pin.clone(),
            effect: effect_label(tool.annotations.impact()),
            rollback: rollback(&tool.rollback),
            observed: observed(tool),
            confirms: tool.needs_confirmation(),
            hash: tool.hash(),
        }
    }
}

fn rollback(declared: &DeclaredRollback) -> Value {
    match declared {
        DeclaredRollback::Unknown => Value::Null,
        DeclaredRollback::NotNeeded => "none".into(),
        DeclaredRollback::Call { tool, parameters } => Value::object([
            ("tool", Value::String(tool.clone())),
            ("parameters", parameters.clone()),
        ]),
        DeclaredRollback::Impossible { reason } => {
            Value::object([("impossible", Value::String(reason.clone()))])
        }
    }
}

fn observed(tool: &ToolSpec) -> Option<Value> {
    let statistics = tool.observed.as_ref()?;
    let mut observed = vec![
        ("calls", Value::from(statistics.calls)),
        ("failures", Value::from(statistics.failures)),
        ("p50_ms", Value::from(statistics.p50_ms)),
        ("p95_ms", Value::from(statistics.p95_ms)),
    ];
    if let Some(shape) = &statistics.output {
        let samples = Value::from(shape.samples());
        let schema = shape.ty().to_schema();
        observed.push(("output", Value::object([("samples", samples), ("schema", schema)])));
    }
    Some(Value::object(observed))
}

/// The definitions of a toolset's tools for another host, and what was lost in the conversion.
#[derive(Serialize, JsonSchema)]
pub struct ExportReport {
    /// The definitions, in the host's shape.
    tools: Value,
    /// The features that the host does not take.
    #[schemars(with = "Vec<BTreeMap<String, Value>>")]
    losses: Vec<Loss>,
    /// The tools that could not be converted.
    #[schemars(with = "Vec<BTreeMap<String, Value>>")]
    errors: Vec<ConversionFailure>,
    /// The tool behind each name.
    names: BTreeMap<Arc<str>, String>,
}

impl From<&Export> for ExportReport {
    fn from(export: &Export) -> ExportReport {
        let names = export.tools.iter().map(|tool| (tool.name.clone(), tool.id().to_string()));
        ExportReport {
            tools: export.definitions(),
            losses: export.losses.clone(),
            errors: export.errors.clone(),
            names: names.collect(),
        }
    }
}

/// Exports a toolset for another host.
pub fn export(
    service: &RunService,
    who: &Principal,
    toolset: &str,
    format: ExportFormat,
    is_strict: bool,
) -> Result<ExportReport, Error> {
    let conversion = |message| Error::new(ErrorKind::Invalid, Code::Conversion, message);
    let toolset = find_toolset(service, who, toolset)?;
    let adapter = if is_strict { Adapter::strict(format) } else { Some(Adapter::new(format)) };
    if adapter.is_none() {
        return Err(conversion(format!("`{}` has no strict form", format.as_str())));
    }
    let engine = service.catalog(who).engine;
    let export = expose::export(Some(&toolset), adapter, engine.limits());
    export.map(|export| (&export).into()).map_err(|error| conversion(error.to_string()))
}

fn find_toolset(service: &RunService, who: &Principal, name: &str) -> Result<Toolset, Error> {
    let engine = service.catalog(who).engine;
    match service.toolset(name) {
        Some(builder) => {
            let built = builder.from_tools(engine.toolset().tools().cloned()).build();
            built.map_err(|error| Error::new(ErrorKind::Invalid, Code::NoSource, error.to_string()))
        }
        None if name == ALL => Ok(engine.toolset()),
        None => {
            let error = Error::not_found(format!("there is no toolset `{name}`"));
            let names = service.toolset_names();
            let names = names.iter().map(|name| &**name).chain([ALL]);
            Err(match nearest_name(name, names) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error,
            })
        }
    }
}

/// A page: so many items behind the one of this key, and the key of the last one when there are more.
/// Nothing when no item has the key.
pub fn page<T: Clone>(
    items: &[T],
    after: Option<&str>,
    limit: usize,
    key: impl Fn(&T) -> &str,
) -> Option<(Vec<T>, Option<Arc<str>>)> {
    let begin = match after {
        None => 0,
        Some(after) => items.iter().position(|item| key(item) == after)? + 1,
    };
    let rest = &items[begin..];
    let page = &rest[..rest.len().min(limit)];
    let next = page.last().filter(|_| rest.len() > page.len()).map(|last| key(last).into());
    Some((page.to_vec(), next))
}
