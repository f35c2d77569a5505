//! The JSON Schema subsets of the hosts, as tables.
//!
//! The plain form of a format is for every server that implements it, so it keeps only keywords
//! that all of them support. The strict form is for the vendor, which documents the subset that it
//! enforces.

use super::{Adapter, ExportFormat};
use crate::value::Value;

/// The subset that one host supports.
pub(super) struct Profile {
    /// Supported keywords.
    keywords: &'static [&'static str],
    /// Supported formats of text, where `format` is among the keywords.
    formats: Option<&'static [&'static str]>,
    /// Supported values of an `enum`.
    choices: fn(&Value) -> bool,
    /// Whether every object must list all its members.
    pub(super) closed: bool,
    /// Whether every member must be required.
    pub(super) all_required: bool,
    /// The largest `minItems`.
    min_items_max: u64,
    /// Limits on the size of a schema.
    pub(super) bounds: Bounds,
    /// The rule for member names; `None` means any name.
    pub(super) members: Option<MemberNames>,
}

/// Limits on the size of a schema that a model is constrained to.
pub(super) struct Bounds {
    /// Members of all objects.
    pub(super) members: usize,
    /// Values of all enumerations.
    pub(super) choices: usize,
    /// Objects in objects.
    pub(super) objects_deep: usize,
}

const UNBOUNDED: Bounds =
    Bounds { members: usize::MAX, choices: usize::MAX, objects_deep: usize::MAX };

/// The rule for member names: at most 64 letters, digits and some other characters.
#[derive(Clone, Copy)]
pub(super) struct MemberNames {
    /// The other characters.
    pub(super) others: &'static str,
    /// Whether a name may start with any of them; otherwise only with a letter or `_`.
    pub(super) begin_anyhow: bool,
}

macro_rules! portable {
    ($($more:literal),*) => {
        &[
            "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
            "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties",
            "maxProperties", "enum", "const", "default" $(, $more)*
        ]
    };
}

const OPENAI: Profile = Profile {
    keywords: portable!(),
    formats: None,
    choices: any_value,
    closed: false,
    all_required: false,
    min_items_max: u64::MAX,
    bounds: UNBOUNDED,
    members: None,
};

const OPENAI_STRICT: Profile = Profile {
    keywords: &[
        "type",
        "title",
        "enum",
        "const",
        "anyOf",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
    ],
    formats: Some(&[
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
    ]),
    choices: is_scalar,
    closed: true,
    all_required: true,
    min_items_max: u64::MAX,
    bounds: Bounds { members: 5_000, choices: 1_000, objects_deep: 10 },
    members: None,
};

const ANTHROPIC: Profile = Profile {
    keywords: portable!("anyOf"),
    members: Some(MemberNames { others: "_.-", begin_anyhow: true }),
    ..OPENAI
};

const ANTHROPIC_STRICT: Profile = Profile {
    keywords: &["type", "title", "enum", "const", "anyOf", "format", "minItems"],
    formats: Some(&[
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "uri",
        "ipv4",
        "ipv6",
        "uuid",
    ]),
    choices: is_scalar,
    closed: true,
    all_required: false,
    min_items_max: 1,
    bounds: UNBOUNDED,
    members: Some(MemberNames { others: "_.-", begin_anyhow: true }),
};

const GEMINI: Profile = Profile {
    keywords: &[
        "type",
        "title",
        "format",
        "enum",
        "anyOf",
        "prefixItems",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
    ],
    formats: None,
    choices: is_text_or_number,
    closed: false,
    all_required: false,
    min_items_max: u64::MAX,
    bounds: UNBOUNDED,
    members: Some(MemberNames { others: "_", begin_anyhow: false }),
};

fn any_value(_: &Value) -> bool {
    true
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

fn is_text_or_number(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_))
}

impl Profile {
    /// The table for an adapter; `None` for MCP, which supports every schema.
    pub(super) fn of(adapter: Adapter) -> Option<&'static Profile> {
        match (adapter.format, adapter.strict) {
            (ExportFormat::Mcp, _) => None,
            (ExportFormat::OpenAi | ExportFormat::OpenAiResponses, false) => Some(&OPENAI),
            (ExportFormat::OpenAi | ExportFormat::OpenAiResponses, true) => Some(&OPENAI_STRICT),
            (ExportFormat::Anthropic, false) => Some(&ANTHROPIC),
            (ExportFormat::Anthropic, true) => Some(&ANTHROPIC_STRICT),
            (ExportFormat::Gemini, _) => Some(&GEMINI),
        }
    }

    /// Whether the host supports a keyword at all.
    pub(super) fn supports(&self, keyword: &str) -> bool {
        self.keywords.contains(&keyword)
    }

    /// Whether the host supports a keyword with this value.
    pub(super) fn accepts(&self, keyword: &str, value: &Value) -> bool {
        let fits = match keyword {
            "format" => match (self.formats, value.as_str()) {
                (Some(formats), Some(format)) => formats.contains(&format),
                (None, Some(_)) => true,
                (_, None) => false,
            },
            "pattern" => value.as_str().is_some_and(is_simple_pattern),
            "minItems" => value.as_u64().is_some_and(|min| min <= self.min_items_max),
            "enum" => value.as_array().is_some_and(|values| values.iter().all(self.choices)),
            "const" => (self.choices)(value),
            _ => true,
        };
        fits && self.supports(keyword)
    }
}

/// Whether a pattern has no lookaround and no backreference, which no grammar can enforce.
fn is_simple_pattern(pattern: &str) -> bool {
    let hard = ["(?=", "(?!", "(?<", "\\b", "\\B", "\\1", "\\2", "\\k"];
    !hard.iter().any(|part| pattern.contains(part))
}

/// Keywords that describe and do not constrain.
pub(super) fn is_annotation(keyword: &str) -> bool {
    !CONSTRAINTS.contains(&keyword)
}

/// Keywords that constrain. Unknown keywords constrain nothing.
const CONSTRAINTS: &[&str] = &[
    "type",
    "enum",
    "const",
    "pattern",
    "format",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "items",
    "additionalItems",
    "prefixItems",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
];
