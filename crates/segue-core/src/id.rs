//! Names and ids: their syntax.
//!
//! The core draws no randomness and reads no clock, so ids are generated outside and arrive in
//! events.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The full name of a tool: `namespace:name`, or `name` alone as the short form of built-ins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolId(Arc<str>);

impl ToolId {
    /// A tool of a namespace.
    pub fn new(namespace: &str, name: &str) -> ToolId {
        ToolId(format!("{namespace}:{name}").into())
    }

    /// The part before the colon; empty when there is none.
    pub fn namespace(&self) -> &str {
        self.0.split_once(':').map_or("", |(namespace, _)| namespace)
    }

    /// The part after the colon.
    pub fn name(&self) -> &str {
        self.0.split_once(':').map_or(&*self.0, |(_, name)| name)
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole id, shared.
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }
}

impl From<&str> for ToolId {
    fn from(text: &str) -> ToolId {
        ToolId(text.into())
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `name` may name a composition: `[a-z0-9][a-z0-9_-]*`, at most 64 characters.
pub fn is_composition_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= 64
        && bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// Whether `name` is a valid path segment: letters, digits, `_`, `-` and `$`, at most 128 bytes.
pub fn is_step_id(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-' || c == '$')
}

/// The path of a step without iterations: `each[2]/parse` → `each/parse`.
pub fn without_iterations(path: &str) -> String {
    let parts = path.split('/').map(|part| part.split_once('[').map_or(part, |(id, _)| id));
    parts.collect::<Vec<_>>().join("/")
}

/// Whether `name` refers to the step at `path`: by path, with or without iterations, or by id
/// alone.
pub fn refers_to_step(name: &str, path: &str) -> bool {
    let id = path.rsplit_once('/').map_or(path, |(_, id)| id);
    name == path || name == id || name == without_iterations(path)
}
