//! Tools: one trait to call them, one registry to find them, one module per kind of source.
//!
//! A runner makes one call and returns its outcome. It never retries, queues or decides: the core
//! does. Dropping a call's future aborts the call, child processes included.

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
    /// The run that makes the call.
    pub run_id: Arc<str>,
    /// The path of the step: its id, with the iterations around it.
    pub step: Arc<str>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Idempotency key: equal for all attempts of the same work, and unique to it.
    pub key: Arc<str>,
    /// What the call is for.
    pub purpose: Purpose,
    /// The owner of the run; a run without one belongs to the operator.
    pub owner: Option<Arc<str>>,
    /// The trace context that is passed on to the server.
    pub traceparent: Option<Arc<str>>,
    /// What the call may overwrite.
    pub overwrites: Overwrites,
    /// Asks people and calls declared tools; present when the runner may need it.
    pub asker: Option<CallChannel>,
    /// The handle of a call that was made before, when only its answer is wanted. Only a runner
    /// that sent a handle gets one back.
    pub follows: Option<Value>,
}

/// Whether the call is of a fallback, by its key.
pub(crate) fn is_fallback(call: &ToolRequest) -> bool {
    call.key.rsplit_once('/').is_some_and(|(_, last)| last.contains('~'))
}

/// Why a call has no value. Each variant leads to another decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The tool refused or failed; the outcome is not in doubt.
    #[error("{message}")]
    Refused {
        /// `tool-error`, `input-schema`, `limit`, …
        code: Code,
        /// The tool's error message.
        message: String,
        /// Whether a retry may help.
        retryable: bool,
    },
    /// The call never reached the tool.
    #[error("{message}")]
    Unreachable {
        /// What went wrong.
        message: String,
        /// How long the source asks clients to wait.
        retry_after: Option<Duration>,
    },
    /// The call was sent and no answer came: it is unknown whether the tool did its work.
    #[error("{message}")]
    NoAnswer {
        /// What went wrong.
        message: String,
    },
}

impl ToolError {
    /// A failure of the tool; a retry may help.
    pub fn failed(message: impl Into<String>) -> ToolError {
        ToolError::Refused { code: Code::ToolError, message: message.into(), retryable: true }
    }

    /// A failure that no retry cures.
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

/// Calls a tool.
#[async_trait]
pub trait ToolRunner: Send + Sync {
    /// Calls the tool once.
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError>;

    /// Whether a call may ask a person, or call another tool.
    fn may_ask(&self) -> bool {
        false
    }
}

/// A tool and its runner.
#[derive(Clone)]
pub struct Tool {
    /// The tool's definition.
    pub spec: Arc<ToolSpec>,
    /// Calls the tool.
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

    /// Applies `change` to every tool.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(Tool) -> Tool) -> Registry {
        Registry { tools: self.tools.into_iter().map(|(id, tool)| (id, change(tool))).collect() }
    }

    /// Adds what earlier calls have shown about the tools.
    pub fn observe(&mut self, observed: &BTreeMap<ToolId, ObservedStats>) {
        for (id, tool) in &mut self.tools {
            if let Some(observed) = observed.get(id) {
                Arc::make_mut(&mut tool.spec).observed = Some(observed.clone());
            }
        }
    }

    /// The definitions of all tools. The calls of code tools are not resolved yet.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.tools.values().map(|tool| &tool.spec)
    }
}
