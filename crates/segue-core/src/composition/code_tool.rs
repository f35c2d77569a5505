//! A tool of code that calls other tools: its parts, and when it asks first.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};

use super::tool::ToolSpec;
use crate::id::ToolId;
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
