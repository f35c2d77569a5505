//! Why the engine could not do what it was asked.

use std::sync::Arc;

use crate::store::StoreError;
use crate::tools::ToolError;

/// Why the engine could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// There is no such tool.
    #[error("Tool not found in registry: {name}")]
    UnknownTool {
        /// What was asked for.
        name: String,
        /// What was perhaps meant.
        nearest: Option<String>,
    },
    /// The arguments do not fit.
    #[error("{message}")]
    Arguments {
        /// How.
        message: String,
    },
    /// The tool failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A tool is not what it was when the run was planned.
    #[error("the definition of `{tool}` has changed since the run began")]
    DefinitionChanged {
        /// Which tool.
        tool: String,
    },
    /// A run needs a tool that is not there.
    #[error("the run needs `{tool}`, which {}", if *.is_untrusted {
        "comes from a configuration that is not allowed yet"
    } else {
        "is not configured here"
    })]
    MissingTool {
        /// Which tool.
        tool: String,
        /// Whether it is configured where nobody has allowed it.
        is_untrusted: bool,
    },
    /// Whoever has the run hangs.
    #[error("whoever has run {run_id} does not answer, so nothing was done")]
    NotReceived {
        /// The run.
        run_id: Arc<str>,
    },
    /// The run stopped where it was: the store could not be written, say.
    #[error("run {run_id} stopped where it was: {why}")]
    Stopped {
        /// The run, which can go on from there.
        run_id: Arc<str>,
        /// Why.
        why: String,
    },
    /// The store could not do what it was asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}
