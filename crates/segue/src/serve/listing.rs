//! Tools, runs and exports as every surface lists them.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::Principal;
use segue_core::expose::{ConversionFailure, Export, Loss};
use segue_core::tool::{DeclaredRollback, Impact, ToolSpec};
use segue_core::value::Value;
use segue_core::view::explain::effect_label;
use segue_core::view::{RunStatus, Timestamp};
use segue_runtime::store::RunRow;
use serde::Serialize;

use super::hall::Hall;

/// A run in short.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunLine {
    /// UUIDv7.
    pub run_id: Arc<str>,
    /// The composition's name.
    pub name: Arc<str>,
    /// How it stands.
    pub status: RunStatus,
    /// Whether everything worked.
    pub success: bool,
    /// RFC 3339.
    pub started_at: Timestamp,
    /// RFC 3339, absent before the end.
    pub completed_at: Option<Timestamp>,
    /// Milliseconds, until now where it is not over.
    pub duration_ms: u64,
    /// The hash of its plan.
    pub plan_hash: Arc<str>,
    /// Who began it, where somebody came in to do so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<Arc<str>>,
    /// Why nothing goes on with it until a person resumes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<Arc<str>>,
}

impl From<&RunRow> for RunLine {
    fn from(run: &RunRow) -> RunLine {
        RunLine {
            run_id: run.run_id.clone(),
            name: run.name.clone(),
            status: run.status,
            success: run.status == RunStatus::Success,
            started_at: Timestamp(run.started_ms),
            completed_at: run.ended_ms.map(Timestamp),
            duration_ms: run.ended_ms.unwrap_or(run.updated_ms).saturating_sub(run.started_ms),
            plan_hash: run.plan_hash.clone(),
            principal: run.caller.as_ref().map(|caller| caller.principal.clone()),
            set_aside: run.set_aside.clone(),
        }
    }
}

/// A composition that is served.
#[derive(Clone, Serialize, JsonSchema)]
pub struct CompositionLine {
    /// What it is run under.
    pub name: Arc<str>,
    /// What it does, calls and leaves behind.
    pub description: String,
    /// JSON Schema of its input.
    pub input: Value,
    /// JSON Schema of its result.
    pub output: Value,
    /// What it does to the world, at worst.
    pub effect: Impact,
    /// The hash of its plan.
    pub plan_hash: Arc<str>,
}

/// The compositions that are served to somebody.
pub fn compositions(hall: &Hall, who: &Principal) -> Vec<CompositionLine> {
    let offers = hall.served(who).offers;
    let lines = offers.iter().map(|offer| CompositionLine {
        name: offer.composition.clone(),
        description: offer.description.clone(),
        input: offer.input.clone(),
        output: offer.output.clone(),
        effect: offer.plan.impact(),
        plan_hash: offer.plan.hash().clone(),
    });
    lines.collect()
}

/// Whether the name and the description of a tool have all of these words.
pub fn has_words(tool: &ToolSpec, words: &str) -> bool {
    let text = format!("{} {}", tool.id, tool.description).to_lowercase();
    words.split_whitespace().all(|word| text.contains(&word.to_lowercase()))
}

/// Everything that is known of a tool.
pub fn definition(tool: &ToolSpec) -> Value {
    let Value::Object(definition) = tool.definition() else { return Value::Null };
    let mut definition = definition.unwrap_or_clone();
    let mut add = |name: &str, value: Value| drop(definition.insert(name.into(), value));
    add("effect", effect_label(tool.annotations.impact()).into());
    let rollback = match &tool.rollback {
        DeclaredRollback::Unknown => Value::Null,
        DeclaredRollback::NotNeeded => "none".into(),
        DeclaredRollback::Call { tool, parameters } => Value::object([
            ("tool", Value::String(tool.clone())),
            ("parameters", parameters.clone()),
        ]),
        DeclaredRollback::Impossible { reason } => {
            Value::object([("impossible", Value::String(reason.clone()))])
        }
    };
    add("rollback", rollback);
    if let Some(seen) = &tool.observed {
        let mut observed = vec![
            ("calls", Value::from(seen.calls)),
            ("failures", Value::from(seen.failures)),
            ("p50_ms", Value::from(seen.p50_ms)),
            ("p95_ms", Value::from(seen.p95_ms)),
        ];
        if let Some(shape) = &seen.output {
            let samples = Value::from(shape.samples());
            let schema = shape.ty().to_schema();
            observed.push(("output", Value::object([("samples", samples), ("schema", schema)])));
        }
        add("observed", Value::object(observed));
    }
    add("confirms", Value::Bool(tool.needs_confirmation()));
    add("hash", tool.hash().into());
    definition.into()
}

/// Everything about an export in one document.
#[derive(Serialize)]
pub struct Report<'a> {
    tools: Value,
    losses: &'a [Loss],
    errors: &'a [ConversionFailure],
    /// The tool behind each name.
    names: BTreeMap<&'a str, &'a str>,
}

impl<'a> From<&'a Export> for Report<'a> {
    fn from(export: &'a Export) -> Report<'a> {
        Report {
            tools: export.definitions(),
            losses: &export.losses,
            errors: &export.errors,
            names: export.tools.iter().map(|tool| (&*tool.name, tool.id().as_str())).collect(),
        }
    }
}

/// So many items behind the one of this key, and the key to go on from; nothing when no item has it.
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
