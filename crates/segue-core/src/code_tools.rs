//! A tool of code that calls other tools: what it may call, what that asks, and what its end means.
//!
//! A composition says in its text what it calls. Code does not, so it declares its parts beforehand
//! and is held to them: nothing else can be called through it. Who runs the code asks here at each
//! call, and obeys.
//!
//! Not here: the code, and how a part is called (the runtime's).

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

/// What a tool of code is composed of.
#[derive(Clone, Debug, Default)]
pub struct CodeTool {
    /// Its parts, by the names that it declares.
    pub declared_parts: Vec<Arc<str>>,
    /// Whether one yes covers the tool and all its parts.
    pub atomic: bool,
    /// The parts, once they were looked up. Nothing else can be called.
    pub parts: BTreeMap<ToolId, Arc<ToolSpec>>,
    /// Whether the code itself may destroy something, beside what its parts do.
    pub is_destructive: bool,
}

/// Says of arguments whether a call with them asks a person first.
#[derive(Clone, Default)]
pub struct ConfirmWhen(Arc<OnceLock<ConfirmRule>>);

type ConfirmFn = dyn Fn(&Value, &[Arc<str>]) -> bool + Send + Sync;

#[derive(Clone)]
struct ConfirmRule {
    asks: Arc<ConfirmFn>,
    /// Whether a call asks by this alone, whatever the effect of the tool is.
    is_exact: bool,
}

impl ConfirmWhen {
    /// Asks when this is true, and by the effect of the tool.
    pub fn new(asks: impl Fn(&Value) -> bool + Send + Sync + 'static) -> ConfirmWhen {
        let rule = ConfirmRule { asks: Arc::new(move |args, _| asks(args)), is_exact: false };
        ConfirmWhen(Arc::new(OnceLock::from(rule)))
    }

    /// Asks exactly when this is true of arguments, and of what the composition that is run may overwrite
    /// without asking: the tool may destroy something, and knows with which arguments it does.
    pub fn exact(
        asks: impl Fn(&Value, &[Arc<str>]) -> bool + Send + Sync + 'static,
    ) -> ConfirmWhen {
        let rule = ConfirmRule { asks: Arc::new(asks), is_exact: true };
        ConfirmWhen(Arc::new(OnceLock::from(rule)))
    }

    /// Whether calls ask by this alone, whatever the effect of the tool is.
    pub fn is_exact(&self) -> bool {
        self.0.get().is_some_and(|rule| rule.is_exact)
    }

    /// Whether a call with these arguments asks. Code that panics has not said that it does not, and
    /// code that is missing, because a plan was read from a store, has not either.
    pub fn must_confirm(&self, args: &Value, overwrites: &[Arc<str>]) -> bool {
        let Some(rule) = self.0.get() else { return true };
        std::panic::catch_unwind(AssertUnwindSafe(|| (rule.asks)(args, overwrites))).unwrap_or(true)
    }

    /// Goes by the code of the same tool as it is here, where its own is missing.
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

/// Where a call of a part comes from.
#[derive(Clone, Copy, Debug)]
pub struct PartCaller<'a> {
    /// The composed tool.
    pub tool: &'a ToolSpec,
    /// The tools that there are, and what they are held to.
    pub catalog: &'a Catalog,
    /// Whether a yes covers the parts: see [`covers`].
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

/// Whether the yes to a call covers the calls of its parts: when everything is allowed anyway, and
/// when the tool is atomic. An atomic tool that was called was allowed, or none of its parts asks.
pub fn confirmation_covers_parts(tool: &ToolSpec, all_allowed: bool) -> bool {
    all_allowed || tool.code_tool.as_ref().is_some_and(|composed| composed.atomic)
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

impl CodeTool {
    /// Parts that were declared and not looked up yet.
    pub fn new(of: impl IntoIterator<Item = impl Into<Arc<str>>>, atomic: bool) -> CodeTool {
        let declared_parts = of.into_iter().map(Into::into).collect();
        CodeTool { declared_parts, atomic, ..CodeTool::default() }
    }

    /// Whether a call asks because of what the tool does: by itself, or, when one yes covers all,
    /// through a part. The parts of a tool that is not atomic ask for themselves.
    pub fn must_confirm(&self) -> bool {
        self.is_destructive
            || (self.atomic && self.parts.values().any(|part| part.may_ask_person()))
    }
}

/// Whether code may call a part with these arguments, and what has to come first.
pub fn authorize_part_call(
    caller: PartCaller<'_>,
    name: &str,
    args: &Value,
) -> Result<PartCall, Failure> {
    let PartCaller {
        tool,
        catalog,
        covered,
        is_rollback: takes_back,
        calls_made: made,
        calls_max: max,
    } = caller;
    let part = find(name, catalog)?;
    let is_part = |composed: &CodeTool| composed.parts.contains_key(&part.id);
    if !tool.code_tool.as_ref().is_some_and(is_part) {
        let message = format!("`{}` does not declare that it calls `{}`", tool.id, part.id);
        return Err(Failure::permanent(Code::ToolNotAllowed, message));
    }
    let held_to = catalog.toolset().filter(|toolset| !takes_back && !toolset.allows_inner_tools());
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

/// Every tool that a call may reach through its parts, by id: what a person is told before a yes.
pub fn reachable_calls(tool: &ToolSpec) -> Vec<DeclaredCall> {
    let mut found = DeclaredCalls::new();
    declare_parts(tool, tool.can_roll_back(), &mut found);
    found.into_values().collect()
}

/// Adds what a call may reach through parts. Compositions are seen through.
pub(crate) fn declare_parts(tool: &ToolSpec, is_undoable: bool, found: &mut DeclaredCalls) {
    let Some(composed) = &tool.code_tool else { return };
    for part in composed.parts.values() {
        declare(part, is_undoable, found);
    }
}

fn declare(part: &ToolSpec, is_undoable: bool, found: &mut DeclaredCalls) {
    if found.contains_key(&(false, part.id.clone())) {
        return;
    }
    if let Some(composition) = &part.composition {
        composition.body.walk_calls(&mut |call| {
            if let Some(tool) = &call.tool {
                declare(tool, is_undoable, found);
            }
        });
        return;
    }
    let effect = part.annotations.impact();
    let declared = DeclaredCall {
        tool: part.id.clone(),
        effect,
        // Code makes them.
        arguments: Vec::new(),
        asks: part.needs_confirmation(),
        can_roll_back: is_undoable || effect <= Impact::Reads,
        is_rollback: false,
    };
    found.insert((false, part.id.clone()), declared);
    declare_parts(part, is_undoable, found);
}
