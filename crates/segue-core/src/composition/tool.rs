//! What is known of the tools: their definitions, as data.
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

/// What a tool does to the world, as far as it is known. `None` is "nobody said".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something; without it, writes only add.
    pub destructive: Option<bool>,
    /// Calling it again with the same arguments changes nothing more.
    pub idempotent: Option<bool>,
    /// It reaches beyond this machine.
    pub open_world: Option<bool>,
}

/// What a call does to the world.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Impact {
    /// Nothing is called.
    None,
    /// Reads only.
    Reads,
    /// Adds or changes something.
    Writes,
    /// May destroy something.
    Destroys,
    /// Nothing is known of it, so the worst is assumed.
    Unknown,
}

impl Annotations {
    /// The effect that follows from what is known; unknown means the worst.
    pub fn impact(self) -> Impact {
        match (self.read_only, self.destructive) {
            (Some(true), _) => Impact::Reads,
            (_, Some(true)) => Impact::Destroys,
            (_, Some(false)) => Impact::Writes,
            (_, None) => Impact::Unknown,
        }
    }
}

/// When a call asks a person first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmPolicy {
    /// When it destroys, or when nothing is known of it.
    #[default]
    ByEffect,
    /// Every time.
    Always,
    /// Never: the operator vouches for it.
    Never,
}

/// How a tool's work is taken back, as its operator declared it: a tool and a template of its
/// arguments, in the notation of compositions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredRollback {
    /// Nobody said anything.
    Unknown,
    /// It leaves no trace.
    NotNeeded,
    /// Another tool takes it back; `parameters` may hold templates over `output`, `args`, `input`.
    Call {
        /// The tool that takes it back.
        tool: Arc<str>,
        /// Its arguments.
        parameters: Value,
    },
    /// It cannot be taken back, and why.
    Impossible {
        /// Why not.
        reason: Arc<str>,
    },
}

/// Everything that is known of one tool.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// `namespace:name`
    pub id: ToolId,
    /// What it does, for people and models.
    pub description: Arc<str>,
    /// JSON Schema of its arguments.
    pub input: Arc<Schema>,
    /// JSON Schema of its value, when it declares one.
    pub output: Option<Arc<Schema>>,
    /// What it does to the world.
    pub annotations: Annotations,
    /// How its work is taken back.
    pub rollback: DeclaredRollback,
    /// When it asks first.
    pub confirm: ConfirmPolicy,
    /// Arguments with which it asks first, by its own word. No part of the definition.
    pub confirm_when: Option<ConfirmWhen>,
    /// Rights that it needs.
    pub scopes: Vec<Arc<str>>,
    /// Words that it is found by.
    pub tags: Vec<Arc<str>>,
    /// The kind of tools that its operator counts it among. No part of the definition.
    pub category: Option<Arc<str>>,
    /// What stands behind it. No part of the definition.
    pub backend: Backend,
    /// The composition behind it, when it is one.
    pub composition: Option<Arc<Composition>>,
    /// The tools that its code calls, when it calls any.
    pub code_tool: Option<CodeTool>,
    /// What earlier calls have shown. No part of the definition.
    pub observed: Option<ObservedStats>,
    /// The hash of the definition as its source gave it, fields included that nobody here knows.
    pub pin: Option<Arc<str>>,
    /// The hash of what the operator has behind it: a command's words, an address. No part of the
    /// definition, because the same composition means the same elsewhere; but a run goes on with it only.
    pub backend_hash: Option<Arc<str>>,
}

/// What stands behind a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// This process: a built-in, a composition, a tool of a program that embeds Segue.
    #[default]
    Local,
    /// An MCP server.
    Mcp,
    /// A program that is started for each call.
    Command,
    /// An HTTP operation of a provider.
    Http,
}

impl Backend {
    /// The format in which its definition came.
    pub fn format(self) -> &'static str {
        match self {
            Backend::Mcp => "mcp",
            Backend::Local | Backend::Command | Backend::Http => "canonical",
        }
    }
}

/// What earlier calls of a tool have shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedStats {
    /// Calls that ended.
    pub calls: u64,
    /// Those that failed.
    pub failures: u64,
    /// Half of them took no longer, in milliseconds.
    pub p50_ms: u64,
    /// Of twenty, nineteen took no longer.
    pub p95_ms: u64,
    /// What its values looked like, where no schema says so.
    pub output: Option<Arc<InferredSchema>>,
}

impl ObservedStats {
    /// Whether there were enough calls to conclude anything from them.
    pub fn has_enough_calls(&self) -> bool {
        self.calls >= 20
    }
}

impl ToolSpec {
    /// A tool of which only the name and the argument schema are known.
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

    /// Whether calling it again after an unanswered call is safe.
    pub fn is_repeatable(&self) -> bool {
        self.annotations.read_only == Some(true) || self.annotations.idempotent == Some(true)
    }

    /// Whether a call asks a person first; with some arguments, when it depends on them.
    pub fn needs_confirmation(&self) -> bool {
        self.confirms_if(|_| true)
    }

    /// Whether a call with these arguments asks a person first.
    pub fn must_confirm(&self, args: &Value) -> bool {
        self.must_confirm_within(args, &[])
    }

    /// The same in a run that may overwrite such files without asking.
    pub fn must_confirm_within(&self, args: &Value, overwrites: &[Arc<str>]) -> bool {
        self.confirms_if(|own| own.must_confirm(args, overwrites))
    }

    /// Whether it depends on the arguments of a call if it asks.
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

    /// Whether a person may be asked on the way: by the call, or by those that it makes.
    pub fn may_ask_person(&self) -> bool {
        let parts = self.code_tool.iter().flat_map(|composed| composed.parts.values());
        self.needs_confirmation() || parts.into_iter().any(|part| part.may_ask_person())
    }

    /// Whether the yes to a call covers the calls of its parts: when everything is allowed anyway, and
    /// when the tool is atomic. An atomic tool that was called was allowed, or none of its parts asks.
    pub fn confirmation_covers_parts(&self, all_allowed: bool) -> bool {
        all_allowed || self.code_tool.as_ref().is_some_and(|composed| composed.atomic)
    }

    /// Whether its work can be taken back, as far as it is declared.
    pub fn can_roll_back(&self) -> bool {
        matches!(self.rollback, DeclaredRollback::NotNeeded | DeclaredRollback::Call { .. })
    }

    /// The definition as a value: what is pinned in a plan and what its hash covers.
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

    /// Whether a run that was planned with this tool may go on with that one.
    pub fn is_compatible_with(&self, now: &ToolSpec) -> bool {
        if let (Some(then), Some(now)) = (&self.backend_hash, &now.backend_hash)
            && then != now
        {
            return false;
        }
        self.hash() == now.hash() || self.with_current_metadata(now).hash() == now.hash()
    }

    /// The same with what we say of our own tools now: that may be better in a later version, and means the
    /// same. What code does follows from its parts.
    fn with_current_metadata(&self, now: &ToolSpec) -> ToolSpec {
        let mut told = self.clone();
        let is_ours = self.id.namespace() == BUILTIN;
        if is_ours {
            told.description = now.description.clone();
        }
        if is_ours || (self.code_tool.is_some() && now.code_tool.is_some()) {
            told.annotations = now.annotations;
        }
        if let (Some(composed), Some(now)) = (&mut told.code_tool, &now.code_tool) {
            for (id, part) in &mut composed.parts {
                let still = now.parts.get(id).filter(|now| part.is_compatible_with(now));
                *part = still.unwrap_or(part).clone();
            }
        }
        told
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

/// The namespace of tools that are code of the program which embeds Segue.
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

    /// A run goes on with our own tools when only what we say of them has changed, also where code of
    /// others is made of them; not with tools of others that changed.
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
