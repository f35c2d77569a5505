//! A tool of code that calls other tools: what it may call, what that asks, and what its end means.
//!
//! A composition says in its text what it calls. Code does not, so it declares its parts beforehand
//! and is held to them: nothing else can be called through it. Who runs the code asks here at each
//! call, and obeys.
//!
//! Not here: the code, and how a part is called (the runtime's).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::{Catalog, ToolLookup};
use crate::composition::tool::{Annotations, CodeTool, Impact, ToolSpec};
use crate::diagnostic::Code;
use crate::id::ToolId;
use crate::run::Failure;
use crate::value::Value;

/// Where a call of a part comes from.
#[derive(Clone, Copy, Debug)]
pub struct PartCaller<'a> {
    /// The composed tool.
    pub tool: &'a ToolSpec,
    /// The tools that there are, and what they are held to.
    pub catalog: &'a Catalog,
    /// Whether a yes covers the parts: see [`ToolSpec::confirmation_covers_parts`].
    pub covered: bool,
    /// Whether something is taken back: that is done whatever else is allowed.
    pub is_rollback: bool,
    /// Calls of parts that this call has made before.
    pub calls_made: usize,
    /// How many it may make.
    pub calls_max: usize,
}

/// A call of a part that may be made.
#[derive(Clone, Debug)]
pub struct PartCall {
    /// The part.
    pub part: Arc<ToolSpec>,
    /// Whether a person is asked first.
    pub asks: bool,
}

/// What a call that failed has left behind through its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartEffect {
    /// Nothing was changed.
    #[default]
    None,
    /// A part has changed something.
    Written,
    /// A part may have changed something, and nobody knows.
    Unknown,
}

impl PartEffect {
    /// What the end of a part's call leaves behind: it answered, refused, or nothing is known.
    pub fn of(part: &ToolSpec, end: PartOutcome) -> PartEffect {
        match (part.annotations.impact(), end) {
            (Impact::None | Impact::Reads, _) => PartEffect::None,
            // A composition that failed may have done a part of its work.
            (_, PartOutcome::Refused) if part.composition.is_none() => PartEffect::None,
            (_, PartOutcome::Answered | PartOutcome::Refused) => PartEffect::Written,
            (_, PartOutcome::Unknown) => PartEffect::Unknown,
        }
    }

    /// A composed tool's failure in the light of what its parts did. What has changed something is
    /// not repeated as if nothing had happened, and what nobody knows is in doubt.
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
    /// With a value.
    Answered,
    /// With a failure after which nothing is in doubt.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// The tool with its parts looked up, and with the effect that follows from them where it says
/// nothing itself.
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

/// What a composed tool does to the world: what it says of itself, else what its parts do.
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
        // It cannot be better than its parts, whatever it says.
        ..if says_nothing || worst > own.impact() { derived } else { own }
    }
}

/// Whether code may call a part with these arguments, and what has to come first.
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
        let message = format!("one call of `{}` may make {max} calls and no more", tool.id);
        return Err(Failure::permanent(Code::Limit, message));
    }
    check_arguments(&part, args)?;
    // A composition asks for each of its calls that needs it.
    let asks = !covered && part.composition.is_none() && part.must_confirm(args);
    Ok(PartCall { part, asks })
}

/// Why a part was not called after it asked.
pub fn not_confirmed_failure(part: &ToolSpec) -> Failure {
    Failure::permanent(Code::Denied, format!("`{}` was not confirmed", part.id))
}

/// Why a part is not called any more.
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

/// Whether a value is what a part says that it returns.
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
