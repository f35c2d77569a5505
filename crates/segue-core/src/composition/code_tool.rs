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
