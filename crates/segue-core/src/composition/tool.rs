//! Tool definitions as data.
//!
//! A composition calls tools, and a tool may be a composition: so the two types stand in one module.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Composition;
use crate::id::ToolId;
use crate::inferred_schema::InferredSchema;
use crate::schema::Schema;
use crate::value::Value;

pub use super::code_tool::{CodeTool, ConfirmWhen};

/// The effect of a tool, as far as it is declared. `None` is "not declared".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy data; without it, writes only add.
    pub destructive: Option<bool>,
    /// Calling it again with the same arguments has no further effect.
    pub idempotent: Option<bool>,
    /// It has effects beyond this machine.
    pub open_world: Option<bool>,
}

/// The effect of a call.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Impact {
    /// Nothing is called.
    None,
    /// Only reads.
    Reads,
    /// Adds or changes something.
    Writes,
    /// May destroy data.
    Destroys,
    /// Not declared, so the worst is assumed.
    Unknown,
}

impl Annotations {
    /// The effect that follows from the annotations; unknown means the worst.
    pub fn impact(self) -> Impact {
        match (self.read_only, self.destructive) {
            (Some(true), _) => Impact::Reads,
            (_, Some(true)) => Impact::Destroys,
            (_, Some(false)) => Impact::Writes,
            (_, None) => Impact::Unknown,
        }
    }
}

/// When a call needs confirmation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmPolicy {
    /// If it destroys data, or if its effect is unknown.
    #[default]
    ByEffect,
    /// Always.
    Always,
    /// Never: the operator trusts it.
    Never,
}

/// The rollback of a tool, as its operator declares it: a tool and a template of its arguments, in
/// the notation of compositions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredRollback {
    /// Not declared.
    Unknown,
    /// It has no side effects.
    NotNeeded,
    /// Another tool rolls it back; `parameters` may hold templates over `output`, `args`, `input`.
    Call {
        /// The rollback tool.
        tool: Arc<str>,
        /// Its arguments.
        parameters: Value,
    },
    /// It cannot be rolled back.
    Impossible {
        /// The reason.
        reason: Arc<str>,
    },
}

/// The definition of a tool, and what Segue knows about it.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// `namespace:name`
    pub id: ToolId,
    /// A description for people and models.
    pub description: Arc<str>,
    /// JSON Schema of its arguments.
    pub input: Arc<Schema>,
    /// JSON Schema of its value, if declared.
    pub output: Option<Arc<Schema>>,
    /// Its effect.
    pub annotations: Annotations,
    /// Its rollback.
    pub rollback: DeclaredRollback,
    /// When it needs confirmation.
    pub confirm: ConfirmPolicy,
    /// A rule of the tool itself about arguments that need confirmation. No part of the definition.
    pub confirm_when: Option<ConfirmWhen>,
    /// Scopes that it needs.
    pub scopes: Vec<Arc<str>>,
    /// Tags for searching and filtering.
    pub tags: Vec<Arc<str>>,
    /// The category that its operator assigns. No part of the definition.
    pub category: Option<Arc<str>>,
    /// Its backend. No part of the definition.
    pub backend: Backend,
    /// Its composition, if it is one.
    pub composition: Option<Arc<Composition>>,
    /// Its parts, if it is implemented in code that calls tools.
    pub code_tool: Option<CodeTool>,
    /// Statistics of earlier calls. No part of the definition.
    pub observed: Option<ObservedStats>,
    /// The hash of the definition as its source sent it, including unknown fields.
    pub pin: Option<Arc<str>>,
    /// The hash of its backend's configuration: a command line, a URL. No part of the definition,
    /// because a composition means the same with another backend; but a run resumes only with the
    /// same one.
    pub backend_hash: Option<Arc<str>>,
}

/// The backend of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// This process: a built-in, a composition, a tool of a program that embeds Segue.
    #[default]
    Local,
    /// An MCP server.
    Mcp,
    /// A program, started for each call.
    Command,
    /// An HTTP operation.
    Http,
}

impl Backend {
    /// The format of its definition.
    pub fn format(self) -> &'static str {
        match self {
            Backend::Mcp => "mcp",
            Backend::Local | Backend::Command | Backend::Http => "canonical",
        }
    }
}

/// Statistics of a tool's earlier calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedStats {
    /// Finished calls.
    pub calls: u64,
    /// Failed calls.
    pub failures: u64,
    /// The median duration, in milliseconds.
    pub p50_ms: u64,
    /// The 95th percentile of the duration.
    pub p95_ms: u64,
    /// The observed shape of its values, if it has no output schema.
    pub output: Option<Arc<InferredSchema>>,
}

impl ObservedStats {
    /// Whether there are enough calls for a conclusion.
    pub fn has_enough_calls(&self) -> bool {
        self.calls >= 20
    }
}

impl ToolSpec {
    /// A tool with only a name and an argument schema.
    pub fn new(id: ToolId, description: impl Into<Arc<str>>, input: Arc<Schema>) -> ToolSpec {
        ToolSpec {
            id,
            description: description.into(),
            input,
            output: None,
            annotations: Annotations::default(),
            rollback: DeclaredRollback::Unknown,
            confirm: ConfirmPolicy::ByEffect,
            confirm_when: None,
            scopes: Vec::new(),
            tags: Vec::new(),
            category: None,
            backend: Backend::Local,
            composition: None,
            code_tool: None,
            observed: None,
            pin: None,
            backend_hash: None,
        }
    }

    /// Whether repeating an unanswered call is safe.
    pub fn is_repeatable(&self) -> bool {
        self.annotations.read_only == Some(true) || self.annotations.idempotent == Some(true)
    }

    /// Whether a call may need confirmation, with some arguments at least.
    pub fn needs_confirmation(&self) -> bool {
        self.confirms_if(|_| true)
    }

    /// Whether a call with these arguments needs confirmation.
    pub fn must_confirm(&self, args: &Value) -> bool {
        self.must_confirm_within(args, &[])
    }

    /// The same in a run that may overwrite such files without asking.
    pub fn must_confirm_within(&self, args: &Value, overwrites: &[Arc<str>]) -> bool {
        self.confirms_if(|own| own.must_confirm(args, overwrites))
    }

    /// Whether confirmation depends on the arguments.
    pub fn confirms_conditionally(&self) -> bool {
        self.needs_confirmation() && !self.confirms_if(|_| false)
    }

    fn confirms_if(&self, own: impl FnOnce(&ConfirmWhen) -> bool) -> bool {
        match self.confirm {
            ConfirmPolicy::Always => true,
            ConfirmPolicy::Never => false,
            ConfirmPolicy::ByEffect => match &self.confirm_when {
                Some(when) if when.is_exact() => own(when),
                Some(when) => own(when) || self.confirms_by_effect(),
                None => self.confirms_by_effect(),
            },
        }
    }

    fn confirms_by_effect(&self) -> bool {
        match &self.code_tool {
            Some(composed) => composed.must_confirm(),
            None => matches!(self.annotations.impact(), Impact::Destroys | Impact::Unknown),
        }
    }

    /// Whether a person may be asked during the call: for itself, or for calls that it makes.
    pub fn may_ask_person(&self) -> bool {
        let parts = self.code_tool.iter().flat_map(|composed| composed.parts.values());
        self.needs_confirmation() || parts.into_iter().any(|part| part.may_ask_person())
    }

    /// Whether the confirmation of a call covers its parts: when everything is allowed anyway, or when
    /// the tool is atomic. An atomic tool runs only after a confirmation, or when none of its parts
    /// needs one.
    pub fn confirmation_covers_parts(&self, all_allowed: bool) -> bool {
        all_allowed || self.code_tool.as_ref().is_some_and(|composed| composed.atomic)
    }

    /// Whether it can be rolled back, as declared.
    pub fn can_roll_back(&self) -> bool {
        matches!(self.rollback, DeclaredRollback::NotNeeded | DeclaredRollback::Call { .. })
    }

    /// The definition as a value: a plan pins it, and its hash covers it.
    pub fn definition(&self) -> Value {
        let text = |text: &str| Value::from(text);
        let flag = |flag: Option<bool>| flag.map_or(Value::Null, Value::Bool);
        let words = |words: &[Arc<str>]| {
            Value::from(words.iter().map(|w| Value::String(w.clone())).collect::<Vec<_>>())
        };
        let Annotations { read_only, destructive, idempotent, open_world } = self.annotations;
        let mut definition = vec![
            ("id", text(self.id.as_str())),
            ("description", text(&self.description)),
            ("input_schema", self.input.json().clone()),
            ("output_schema", self.output.as_ref().map_or(Value::Null, |s| s.json().clone())),
            (
                "annotations",
                Value::object([
                    ("read_only", flag(read_only)),
                    ("destructive", flag(destructive)),
                    ("idempotent", flag(idempotent)),
                    ("open_world", flag(open_world)),
                ]),
            ),
            ("scopes", words(&self.scopes)),
            ("tags", words(&self.tags)),
        ];
        if let Some(composed) = &self.code_tool {
            let parts = composed.parts.iter().map(|(id, part)| (id.as_str(), part.hash()));
            let parts: Vec<_> = parts.map(|(id, hash)| (id, Value::from(hash))).collect();
            definition.push(("composed_of", Value::object(parts)));
            definition.push(("atomic", Value::Bool(composed.atomic)));
        }
        if let Some(pin) = &self.pin {
            definition.push(("pin", text(pin)));
        }
        Value::object(definition)
    }

    /// The hash of the definition, in hex.
    pub fn hash(&self) -> String {
        hex_digest(self.definition().to_canonical_json().as_bytes())
    }

    /// Whether a run that was planned with this tool may continue with `now`.
    pub fn is_compatible_with(&self, now: &ToolSpec) -> bool {
        if let (Some(then), Some(now)) = (&self.backend_hash, &now.backend_hash)
            && then != now
        {
            return false;
        }
        self.hash() == now.hash() || self.with_current_metadata(now).hash() == now.hash()
    }

    /// This definition with the current metadata of our own tools: a later version may describe
    /// them better, with the same meaning. The effect of code follows from its parts.
    fn with_current_metadata(&self, now: &ToolSpec) -> ToolSpec {
        let mut updated = self.clone();
        let is_ours = self.id.namespace() == BUILTIN;
        if is_ours {
            updated.description = now.description.clone();
        }
        if is_ours || (self.code_tool.is_some() && now.code_tool.is_some()) {
            updated.annotations = now.annotations;
        }
        if let (Some(composed), Some(now)) = (&mut updated.code_tool, &now.code_tool) {
            for (id, part) in &mut composed.parts {
                let still = now.parts.get(id).filter(|now| part.is_compatible_with(now));
                *part = still.unwrap_or(part).clone();
            }
        }
        updated
    }
}

/// SHA-256 in lower-case hex.
pub fn hex_digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The namespace of the built-in tools.
pub const BUILTIN: &str = "builtin";

/// The namespace of tools of the program that embeds Segue.
pub const LOCAL: &str = "local";

/// The namespace of compositions that are callable as tools.
pub const COMPOSITION: &str = "composition";

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(id: &str, destructive: bool) -> ToolSpec {
        let (namespace, name) = id.split_once(':').unwrap();
        let mut spec = ToolSpec::new(ToolId::new(namespace, name), "d", Schema::any());
        spec.annotations.destructive = Some(destructive);
        spec
    }

    fn composed(id: &str, part: ToolSpec, destructive: bool) -> ToolSpec {
        let mut composed = CodeTool::new(["part"], false);
        composed.parts.insert(part.id.clone(), Arc::new(part));
        ToolSpec { code_tool: Some(composed), ..spec(id, destructive) }
    }

    /// A run continues with our own tools if only their metadata has changed, also as parts of
    /// other code; not with changed tools of others.
    #[test]
    fn a_run_goes_on_with_what_means_the_same() {
        for (id, may) in [("builtin:files_edit", true), ("h:t", false)] {
            assert_eq!(spec(id, false).is_compatible_with(&spec(id, true)), may, "{id}");
            let (then, now) = (spec(id, false), spec(id, true));
            let (then, now) = (composed("local:c", then, false), composed("local:c", now, true));
            assert_eq!(then.is_compatible_with(&now), may, "made of {id}");
        }
    }
}
