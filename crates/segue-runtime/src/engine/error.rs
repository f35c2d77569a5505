//! Errors of the engine.

use std::sync::Arc;

use crate::store::StoreError;
use crate::tools::ToolError;

/// Why the engine could not fulfil a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// There is no such tool.
    #[error("Tool not found in registry: {name}")]
    UnknownTool {
        /// The requested name.
        name: String,
        /// A similar name that exists.
        nearest: Option<String>,
    },
    /// The arguments do not fit.
    #[error("{message}")]
    Arguments {
        /// Why they do not fit.
        message: String,
    },
    /// The tool failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A tool's definition differs from the one that the run was planned with.
    #[error("the definition of `{tool}` has changed since the run began")]
    DefinitionChanged {
        /// The tool.
        tool: String,
    },
    /// A run needs a tool that is not available.
    #[error("the run needs `{tool}`, which {}", if *.is_untrusted {
        "comes from a configuration that is not allowed yet"
    } else {
        "is not configured here"
    })]
    MissingTool {
        /// The tool.
        tool: String,
        /// Whether its configuration still has to be allowed.
        is_untrusted: bool,
    },
    /// A newer engine began the run, and wrote entries that this one may not know.
    #[error("version {version} of Segue began the run, which is too new for this one")]
    NewerEngine {
        /// The version of that engine.
        version: Arc<str>,
    },
    /// A value is sensitive and not stored, so that only this process could go on with the run.
    #[error(
        "`{name}` of the run's {part} is sensitive and not stored, so no other process can drive the run"
    )]
    NotStored {
        /// `input`, `context` or `mocks`.
        part: &'static str,
        /// The member.
        name: Arc<str>,
    },
    /// The owner of the run does not respond.
    #[error("the process that owns run {run_id} does not respond; the command was withdrawn")]
    NotReceived {
        /// The run.
        run_id: Arc<str>,
    },
    /// The driver stopped, for example because the store could not be written.
    #[error("run {run_id} stopped where it was: {why}")]
    Stopped {
        /// The run, which can be resumed.
        run_id: Arc<str>,
        /// Why.
        why: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EngineError {
    /// Whether another process may do what this one cannot: it has other tools, or is a newer Segue.
    pub fn is_of_this_process(&self) -> bool {
        matches!(
            self,
            EngineError::MissingTool { .. }
                | EngineError::DefinitionChanged { .. }
                | EngineError::NewerEngine { .. }
        )
    }
}
