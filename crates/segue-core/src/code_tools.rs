//! Tools implemented in code that call other tools, their parts.
//!
//! A composition lists its calls in its text. Code does not, so a code tool declares its parts and
//! may call nothing else. The runtime asks this module before each call of a part whether the call
//! is allowed and whether a person must confirm it, and after a failure what state the parts left.
//!
//! Not here: the code itself, and how a part is called (both in the runtime).

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use crate::diagnostic::Code;
use crate::id::ToolId;
use crate::plan::{DeclaredCall, DeclaredCalls};
use crate::run::Failure;
use crate::tool::{Annotations, Catalog, Impact, ToolLookup, ToolSpec};
use crate::value::Value;

/// The declared parts of a tool that is implemented in code.
#[derive(Clone, Debug, Default)]
pub struct CodeTool {
    /// Names of the parts, as the tool declares them.
    pub declared_parts: Vec<Arc<str>>,
    /// Whether one confirmation covers the tool and all its parts.
    pub atomic: bool,
    /// The parts, once resolved. The code can call nothing else.
    pub parts: BTreeMap<ToolId, Arc<ToolSpec>>,
    /// Whether the code itself may destroy data, apart from its parts.
    pub is_destructive: bool,
}

/// Decides from a call's arguments whether a person must confirm it.
#[derive(Clone, Default)]
pub struct ConfirmWhen(Arc<OnceLock<ConfirmRule>>);

type ConfirmFn = dyn Fn(&Value, &[Arc<str>]) -> bool + Send + Sync;

#[derive(Clone)]
struct ConfirmRule {
    asks: Arc<ConfirmFn>,
    /// Whether this rule alone decides, whatever the effect of the tool is.
    is_exact: bool,
}

impl ConfirmWhen {
    /// Confirms when `asks` returns true, and also when the effect of the tool requires it.
    pub fn new(asks: impl Fn(&Value) -> bool + Send + Sync + 'static) -> ConfirmWhen {
        let rule = ConfirmRule { asks: Arc::new(move |args, _| asks(args)), is_exact: false };
        ConfirmWhen(Arc::new(OnceLock::from(rule)))
    }

    /// Confirms only when the function returns true for the arguments and for the patterns that the
    /// composition may overwrite without asking. For a destructive tool that knows which arguments
    /// destroy data.
    pub fn exact(
        asks: impl Fn(&Value, &[Arc<str>]) -> bool + Send + Sync + 'static,
    ) -> ConfirmWhen {
        let rule = ConfirmRule { asks: Arc::new(asks), is_exact: true };
        ConfirmWhen(Arc::new(OnceLock::from(rule)))
    }

    /// Whether this rule alone decides, whatever the effect of the tool is.
    pub fn is_exact(&self) -> bool {
        self.0.get().is_some_and(|rule| rule.is_exact)
    }

    /// Whether a call with these arguments needs confirmation. It does when the rule panics, and
    /// when the rule is missing because the plan was read from a store.
    pub fn must_confirm(&self, args: &Value, overwrites: &[Arc<str>]) -> bool {
        let Some(rule) = self.0.get() else { return true };
        std::panic::catch_unwind(AssertUnwindSafe(|| (rule.asks)(args, overwrites))).unwrap_or(true)
    }

    /// Takes the rule of the registered tool when this one has none.
    pub fn bind(&self, here: &ConfirmWhen) {
        if let Some(rule) = here.0.get() {
            let _ = self.0.set(rule.clone());
        }
    }
}

impl fmt::Debug for ConfirmWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsksWhen(…)")
    }
}

/// The call that wants to call a part.
#[derive(Clone, Copy, Debug)]
pub struct PartCaller<'a> {
    /// The code tool.
    pub tool: &'a ToolSpec,
    /// The available tools, and the limits on calling them.
    pub catalog: &'a Catalog,
    /// Whether a confirmation covers the parts: see [`confirmation_covers_parts`].
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

/// Whether the confirmation of a call covers its parts: when everything is allowed anyway, or when
/// the tool is atomic. An atomic tool runs only after a confirmation, or when none of its parts
/// needs one.
pub fn confirmation_covers_parts(tool: &ToolSpec, all_allowed: bool) -> bool {
    all_allowed || tool.code_tool.as_ref().is_some_and(|composed| composed.atomic)
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

impl CodeTool {
    /// Parts that are declared and not yet resolved.
    pub fn new(of: impl IntoIterator<Item = impl Into<Arc<str>>>, atomic: bool) -> CodeTool {
        let declared_parts = of.into_iter().map(Into::into).collect();
        CodeTool { declared_parts, atomic, ..CodeTool::default() }
    }

    /// Whether a call needs confirmation: because of the code itself, or, in an atomic tool,
    /// because of a part. Parts of a tool that is not atomic are confirmed one by one.
    pub fn must_confirm(&self) -> bool {
        self.is_destructive
            || (self.atomic && self.parts.values().any(|part| part.may_ask_person()))
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

/// Every tool that a call may reach through its parts, by id, for the confirmation question.
pub fn reachable_calls(tool: &ToolSpec) -> Vec<DeclaredCall> {
    let mut found = DeclaredCalls::new();
    declare_parts(tool, tool.can_roll_back(), &mut found);
    found.into_values().collect()
}

/// Adds the tools that a call may reach through its parts, including those inside compositions.
pub(crate) fn declare_parts(tool: &ToolSpec, can_roll_back: bool, found: &mut DeclaredCalls) {
    let Some(composed) = &tool.code_tool else { return };
    for part in composed.parts.values() {
        declare(part, can_roll_back, found);
    }
}

fn declare(part: &ToolSpec, can_roll_back: bool, found: &mut DeclaredCalls) {
    if found.contains_key(&(false, part.id.clone())) {
        return;
    }
    if let Some(composition) = &part.composition {
        composition.body.walk_calls(&mut |call| {
            if let Some(tool) = &call.tool {
                declare(tool, can_roll_back, found);
            }
        });
        return;
    }
    let effect = part.annotations.impact();
    let declared = DeclaredCall {
        tool: part.id.clone(),
        effect,
        // The code decides the arguments at run time.
        arguments: Vec::new(),
        asks: part.needs_confirmation(),
        can_roll_back: can_roll_back || effect <= Impact::Reads,
        is_rollback: false,
    };
    found.insert((false, part.id.clone()), declared);
    declare_parts(part, can_roll_back, found);
}
