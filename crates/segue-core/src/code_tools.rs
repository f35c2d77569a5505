//! Tools implemented in code that call other tools, their parts.
//!
//! A composition lists its calls in its text. Code does not, so a code tool declares its parts and
//! may call nothing else. The runtime asks this module before each call of a part whether the call
//! is allowed and whether a person must confirm it, and after a failure what state the parts left.
//!
//! Not here: the code itself, and how a part is called (both in the runtime).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::{Catalog, ToolLookup};
use crate::composition::tool::{Annotations, CodeTool, Impact, ToolSpec};
use crate::diagnostic::Code;
use crate::id::ToolId;
use crate::run::Failure;
use crate::value::Value;

/// The call that wants to call a part.
#[derive(Clone, Copy, Debug)]
pub struct PartCaller<'a> {
    /// The code tool.
    pub tool: &'a ToolSpec,
    /// The available tools, and the limits on calling them.
    pub catalog: &'a Catalog,
    /// Whether a confirmation covers the parts: see [`ToolSpec::confirmation_covers_parts`].
    pub covered: bool,
    /// Whether this is a rollback, which runs whatever else is allowed.
    pub is_rollback: bool,
    /// Calls of parts that this call has already made.
    pub calls_made: usize,
    /// How many it may make.
    pub calls_max: usize,
}

/// A permitted call of a part.
#[derive(Clone, Debug)]
pub struct PartCall {
    /// The part.
    pub part: Arc<ToolSpec>,
    /// Whether a person must confirm it first.
    pub asks: bool,
}

/// Side effects that a failed call left through its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartEffect {
    /// The parts changed nothing.
    #[default]
    None,
    /// A part changed something.
    Written,
    /// A part may have changed something; its outcome is unknown.
    Unknown,
}

impl PartEffect {
    /// The side effect that a part's call leaves, by how the call ended.
    pub fn of(part: &ToolSpec, end: PartOutcome) -> PartEffect {
        match (part.annotations.impact(), end) {
            (Impact::None | Impact::Reads, _) => PartEffect::None,
            // A failed composition may have completed some of its steps.
            (_, PartOutcome::Refused) if part.composition.is_none() => PartEffect::None,
            (_, PartOutcome::Answered | PartOutcome::Refused) => PartEffect::Written,
            (_, PartOutcome::Unknown) => PartEffect::Unknown,
        }
    }

    /// Adjusts a code tool's failure to the side effects of its parts. After a write it is not
    /// retryable; after an unknown outcome it is in doubt.
    #[must_use]
    pub fn apply_to(self, mut failure: Failure, tool: &ToolSpec) -> Failure {
        match self {
            PartEffect::None => {}
            PartEffect::Written => failure.retryable &= tool.is_repeatable(),
            PartEffect::Unknown => {
                failure.in_doubt = true;
                failure.code = Code::InDoubt;
            }
        }
        failure
    }
}

/// How the call of a part ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartOutcome {
    /// It returned a value.
    Answered,
    /// It failed, and the outcome is known.
    Refused,
    /// Its outcome is unknown.
    Unknown,
}

/// Resolves the parts of a tool, and derives its effect from them where the tool declares none.
pub fn resolve_parts(tool: &ToolSpec, catalog: &Catalog) -> Result<ToolSpec, Failure> {
    let mut tool = tool.clone();
    let Some(mut composed) = tool.code_tool.take() else { return Ok(tool) };
    composed.parts = find_parts(&composed, catalog)?;
    composed.is_destructive = tool.annotations.destructive == Some(true);
    let writes = composed.parts.values().find(|part| part.annotations.impact() > Impact::Reads);
    if let (Some(true), Some(part)) = (tool.annotations.read_only, writes) {
        let message = format!("`{}` says that it only reads, but `{}` does not", tool.id, part.id);
        return Err(Failure::permanent(Code::PolicyViolation, message));
    }
    tool.annotations = annotations(tool.annotations, &composed);
    tool.code_tool = Some(composed);
    Ok(tool)
}

fn find_parts(
    composed: &CodeTool,
    catalog: &Catalog,
) -> Result<BTreeMap<ToolId, Arc<ToolSpec>>, Failure> {
    let part = |name: &Arc<str>| find(name, catalog).map(|part| (part.id.clone(), part));
    composed.declared_parts.iter().map(part).collect()
}

fn find(name: &str, catalog: &Catalog) -> Result<Arc<ToolSpec>, Failure> {
    match catalog.find(name) {
        ToolLookup::Found(tool) => Ok(tool.clone()),
        ToolLookup::Ambiguous(ids) => {
            let ids: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
            let message = format!("`{name}` may be {}", ids.join(" or "));
            Err(Failure::permanent(Code::AmbiguousTool, message))
        }
        ToolLookup::Missing { nearest } => {
            let mut failure =
                Failure::permanent(Code::UnknownTool, format!("Unknown tool: {name}"));
            failure.hint = nearest.map(|near| format!("did you mean `{near}`?").into());
            Err(failure)
        }
    }
}

/// The effect of a code tool: its own annotations, else those of its parts.
fn annotations(own: Annotations, composed: &CodeTool) -> Annotations {
    let parts = || composed.parts.values().map(|part| part.annotations);
    let worst = parts().map(Annotations::impact).max().unwrap_or(Impact::None);
    let says_nothing = own.impact() == Impact::Unknown;
    let derived = Annotations {
        read_only: Some(worst <= Impact::Reads),
        destructive: match worst {
            Impact::Unknown => None,
            worst => Some(worst == Impact::Destroys),
        },
        ..own
    };
    let open_world = parts().any(|part| part.open_world != Some(false));
    Annotations {
        open_world: own.open_world.or(Some(open_world)),
        // A tool is never safer than its parts, whatever it declares.
        ..if says_nothing || worst > own.impact() { derived } else { own }
    }
}

/// Checks whether the code may call a part with these arguments, and whether a person must confirm
/// it.
pub fn authorize_part_call(
    caller: PartCaller<'_>,
    name: &str,
    args: &Value,
) -> Result<PartCall, Failure> {
    let PartCaller { tool, catalog, covered, is_rollback, calls_made: made, calls_max: max } =
        caller;
    let part = find(name, catalog)?;
    let is_part = |composed: &CodeTool| composed.parts.contains_key(&part.id);
    if !tool.code_tool.as_ref().is_some_and(is_part) {
        let message = format!("`{}` does not declare that it calls `{}`", tool.id, part.id);
        return Err(Failure::permanent(Code::ToolNotAllowed, message));
    }
    let held_to = catalog.toolset().filter(|toolset| !is_rollback && !toolset.allows_inner_tools());
    if let Some((code, message)) = held_to.and_then(|toolset| toolset.access_error(&part.id)) {
        return Err(Failure::permanent(code, message));
    }
    if made >= max {
        let message = format!("one call of `{}` may make at most {max} calls", tool.id);
        return Err(Failure::permanent(Code::Limit, message));
    }
    check_arguments(&part, args)?;
    // A composition confirms each of its own calls.
    let asks = !covered && part.composition.is_none() && part.must_confirm(args);
    Ok(PartCall { part, asks })
}

/// The failure of a part that was not confirmed.
pub fn not_confirmed_failure(part: &ToolSpec) -> Failure {
    Failure::permanent(Code::Denied, format!("`{}` was not confirmed", part.id))
}

/// The failure of a part that is not called because the run has stopped.
pub fn run_stopped_failure(part: &ToolSpec) -> Failure {
    let message = format!("the run has stopped: `{}` is not called", part.id);
    Failure::permanent(Code::Cancelled, message)
}

fn check_arguments(part: &ToolSpec, args: &Value) -> Result<(), Failure> {
    let required = part.input.json().get("required").and_then(Value::as_array);
    let mut names = required.into_iter().flat_map(|names| names.iter()).filter_map(Value::as_str);
    if let Some(missing) = names.find(|name| args.get(name).is_none()) {
        let message = format!("Missing required parameter: {missing}");
        return Err(Failure::permanent(Code::MissingParameter, message));
    }
    match part.input.violations(args).first() {
        None => Ok(()),
        Some(violation) => {
            let message = format!("arguments of `{}`: {violation}", part.id);
            Err(Failure::permanent(Code::InputSchema, message))
        }
    }
}

/// Checks a value against the part's output schema.
pub fn check_output(part: &ToolSpec, value: &Value) -> Result<(), Failure> {
    let violations = part.output.as_ref().map(|schema| schema.violations(value));
    match violations.unwrap_or_default().first() {
        None => Ok(()),
        Some(violation) => {
            let message = format!("the value of `{}`: {violation}", part.id);
            Err(Failure::permanent(Code::OutputSchema, message))
        }
    }
}
