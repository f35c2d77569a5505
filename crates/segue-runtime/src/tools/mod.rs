//! Tools: one trait to call them, one registry to find them, one module per kind of source.
//!
//! A runner calls, once, and says how it went. It never retries, waits for its turn or decides
//! anything: that is the core's. Dropping a call's future ends the call, child processes included.

pub mod builtin;
pub(crate) mod call_channel;
pub(crate) mod call_scope;
pub(crate) mod call_updates;
pub mod command;
pub mod gate;
pub mod http;
pub mod local;
pub mod mcp;
pub(crate) mod orphans;
pub mod redact;
pub(crate) mod toolset_guard;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::run::{Failure, Overwrites, Purpose};
use segue_core::tool::{ObservedStats, ToolSpec};
use segue_core::value::Value;

pub use call_channel::CallChannel;
pub use call_updates::Progress;
pub use orphans::{end_left_servers, settle, started_folder};

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct ToolRequest {
    /// The tool.
    pub tool: ToolId,
    /// Its arguments, already checked against its schema.
    pub args: Value,
    /// The run that asks.
    pub run_id: Arc<str>,
    /// The step that asks: its id, with the iterations around it.
    pub step: Arc<str>,
    /// Counts from one.
    pub attempt: u32,
    /// The same for every attempt of the same work, never for any other.
    pub key: Arc<str>,
    /// What it is for.
    pub purpose: Purpose,
    /// Whose run it is; one of nobody is the operator's.
    pub owner: Option<Arc<str>>,
    /// Where it stands in a trace, for whoever is called.
    pub traceparent: Option<Arc<str>>,
    /// What it may overwrite.
    pub overwrites: Overwrites,
    /// How it reaches a person, or tools that it declared, if it may have to.
    pub asker: Option<CallChannel>,
    /// What finds it, when it was made before and only its answer is wanted. Only runners that said
    /// so of a call are asked to find one.
    pub follows: Option<Value>,
}

/// Whether a call is of a fallback: its key says which.
pub(crate) fn is_fallback(call: &ToolRequest) -> bool {
    call.key.rsplit_once('/').is_some_and(|(_, last)| last.contains('~'))
}

/// Why a call has no value. The variants are the decisions that follow from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The tool was asked and said no; nothing is in doubt.
    #[error("{message}")]
    Refused {
        /// `tool-error`, `input-schema`, `limit`, …
        code: Code,
        /// The tool's own words.
        message: String,
        /// Whether trying again may help.
        retryable: bool,
    },
    /// The tool was surely not reached.
    #[error("{message}")]
    Unreachable {
        /// What went wrong.
        message: String,
        /// How long its source asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The call was sent and no answer came: nobody knows whether the tool did its work.
    #[error("{message}")]
    NoAnswer {
        /// What went wrong.
        message: String,
    },
}

impl ToolError {
    /// The tool's own failure; trying again may help.
    pub fn failed(message: impl Into<String>) -> ToolError {
        ToolError::Refused { code: Code::ToolError, message: message.into(), retryable: true }
    }

    /// A failure that no retry mends.
    pub fn refused(code: Code, message: impl Into<String>) -> ToolError {
        ToolError::Refused { code, message: message.into(), retryable: false }
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Failure {
        match error {
            ToolError::Refused { code, message, retryable } => {
                Failure { retryable, ..Failure::permanent(code, message) }
            }
            ToolError::Unreachable { message, retry_after } => {
                let millis =
                    retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
                Failure { retry_after_ms: millis, ..Failure::transient(Code::Unreachable, message) }
            }
            ToolError::NoAnswer { message } => {
                Failure { in_doubt: true, ..Failure::transient(Code::InDoubt, message) }
            }
        }
    }
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> ToolError {
        let Failure { code, message, retryable, in_doubt, retry_after_ms, .. } = failure;
        let message = message.to_string();
        match code {
            _ if in_doubt => ToolError::NoAnswer { message },
            Code::Unreachable if retryable => ToolError::Unreachable {
                message,
                retry_after: retry_after_ms.map(Duration::from_millis),
            },
            code => ToolError::Refused { code, message, retryable },
        }
    }
}

/// Something that can call tools.
#[async_trait]
pub trait ToolRunner: Send + Sync {
    /// Calls the tool once.
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError>;

    /// Whether a call may have to ask for something on its way: a person, or another tool.
    fn may_ask(&self) -> bool {
        false
    }
}

/// A tool and what calls it.
#[derive(Clone)]
pub struct Tool {
    /// What is known of it.
    pub spec: Arc<ToolSpec>,
    /// What calls it.
    pub runner: Arc<dyn ToolRunner>,
}

/// Every tool that an engine has, by id.
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<ToolId, Tool>,
}

impl Registry {
    /// Adds tools; an equal id replaces the earlier one.
    pub fn extend(&mut self, tools: impl IntoIterator<Item = Tool>) {
        for tool in tools {
            self.tools.insert(tool.spec.id.clone(), tool);
        }
    }

    /// The tool of this id.
    pub fn get(&self, id: &ToolId) -> Option<&Tool> {
        self.tools.get(id)
    }

    /// The same tools, each as `change` makes it.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(Tool) -> Tool) -> Registry {
        Registry { tools: self.tools.into_iter().map(|(id, tool)| (id, change(tool))).collect() }
    }

    /// Makes known what earlier calls have shown.
    pub fn observe(&mut self, observed: &BTreeMap<ToolId, ObservedStats>) {
        for (id, tool) in &mut self.tools {
            if let Some(observed) = observed.get(id) {
                Arc::make_mut(&mut tool.spec).observed = Some(observed.clone());
            }
        }
    }

    /// What is known of every tool. Of code that declares what it calls, that is not looked up yet.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.tools.values().map(|tool| &tool.spec)
    }
}
