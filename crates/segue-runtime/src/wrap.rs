//! Adds retries, a timeout and fallbacks to any tool, as a tool with its own name.
//!
//! A wrapper is a composition of one step, made by code. The run machine therefore retries, waits
//! and falls back as it does for every step, and the journal holds all of it.

use std::sync::Arc;
use std::time::Duration;

use segue_core::catalog::{Catalog, ToolLookup};
use segue_core::diagnostic::Code;
use segue_core::run::Failure;
use segue_core::source::Source;
use segue_core::value::{Map, Value};

/// A tool around another one.
///
/// ```
/// use std::time::Duration;
/// use segue_runtime::wrap::Wrapper;
///
/// let patient = Wrapper::around("http_get")
///     .named("patient_get")
///     .retry(3)
///     .timeout(Duration::from_secs(2))
///     .fallback("checkpoint_search");
/// assert_eq!(patient.name(), "patient_get");
/// ```
#[derive(Clone, Debug)]
pub struct Wrapper {
    tool: Arc<str>,
    name: Option<Arc<str>>,
    retries: u32,
    timeout: Option<Duration>,
    fallbacks: Vec<Arc<str>>,
}

impl Wrapper {
    /// Wraps a tool, and passes it the wrapper's own arguments.
    pub fn around(tool: &str) -> Wrapper {
        Wrapper { tool: tool.into(), name: None, retries: 0, timeout: None, fallbacks: Vec::new() }
    }

    /// Sets the wrapper's name; by default it is the tool's.
    #[must_use]
    pub fn named(mut self, name: &str) -> Wrapper {
        self.name = Some(name.into());
        self
    }

    /// Retries up to this many times after a failure that a retry may cure.
    #[must_use]
    pub fn retry(mut self, times: u32) -> Wrapper {
        self.retries = times;
        self
    }

    /// Limits how long each attempt may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Wrapper {
        self.timeout = Some(timeout);
        self
    }

    /// Adds a tool to call with the same arguments after the ones before it failed.
    #[must_use]
    pub fn fallback(mut self, tool: &str) -> Wrapper {
        self.fallbacks.push(tool.into());
        self
    }

    /// The wrapper's name.
    pub fn name(&self) -> &str {
        let short = || self.tool.rsplit_once(':').map_or(&*self.tool, |(_, name)| name);
        self.name.as_deref().unwrap_or_else(short)
    }

    /// The tools that it calls.
    pub(crate) fn calls(&self) -> Vec<Arc<str>> {
        std::iter::once(&self.tool).chain(&self.fallbacks).cloned().collect()
    }

    /// The wrapper as a composition.
    pub(crate) fn source(&self, catalog: &Catalog) -> Result<Source, Failure> {
        let ToolLookup::Found(tool) = catalog.find(&self.tool) else {
            let message = format!("Unknown tool: {}", self.tool);
            return Err(Failure::permanent(Code::UnknownTool, message));
        };
        let given = || Value::from("{{ input }}");
        let call = |tool: &Arc<str>| {
            Value::object([("tool", Value::String(tool.clone())), ("parameters", given())])
        };
        let mut step = Map::new();
        step.insert("id".into(), Value::from("call"));
        step.insert("tool".into(), Value::from(tool.id.as_str()));
        step.insert("parameters".into(), given());
        if self.retries > 0 {
            step.insert("retry_count".into(), Value::from(u64::from(self.retries)));
        }
        if let Some(timeout) = self.timeout {
            let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            step.insert("timeout_ms".into(), Value::from(millis));
        }
        if !self.fallbacks.is_empty() {
            let fallbacks: Vec<Value> = self.fallbacks.iter().map(call).collect();
            step.insert("fallback".into(), fallbacks.into());
        }
        let document = Value::object([
            ("name", Value::from(self.name())),
            ("description", Value::String(tool.description.clone())),
            ("input", tool.input.json().clone()),
            ("steps", Value::from(vec![step.into()])),
            ("output", Value::from("{{ call }}")),
        ]);
        Ok(Source::new(format!("{}.json", self.name()), document.to_json()))
    }
}
