//! JSON Schemas: kept as they came, compiled when first needed, checked without copying values.
//!
//! Patterns run on the linear `regex` engine and remote references are never fetched, so a tool's
//! schema can neither stall nor phone home.

mod shared;
mod stand_in;

use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};

use crate::types::Type;
use crate::value::Value;
use shared::Shared;

/// Regular expressions in schemas may compile to at most this many bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Violations reported for one value; the first ones say enough.
const VIOLATIONS_MAX: usize = 8;

/// A JSON Schema.
pub struct Schema {
    json: Value,
    validator: OnceLock<Result<Validator<Shared>, Violation>>,
    ty: OnceLock<Type>,
    sensitive: OnceLock<Vec<Arc<str>>>,
}

/// One way in which a value does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON Pointer into the value.
    pub pointer: String,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{} at `{}`", self.message, self.pointer)
        }
    }
}

impl Schema {
    /// A schema; whether it is a sound one is known when it is first used, or by [`Schema::check`].
    pub fn new(json: Value) -> Schema {
        let (validator, ty, sensitive) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Schema { json, validator, ty, sensitive }
    }

    /// The schema that everything fits.
    pub fn any() -> Arc<Schema> {
        Arc::new(Schema::new(Value::Bool(true)))
    }

    /// The schema that every object fits.
    pub fn any_object() -> Arc<Schema> {
        Arc::new(Schema::new(Value::object([("type", Value::from("object"))])))
    }

    /// The schema as it came.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// What is known of the values that fit, for static checks.
    pub fn ty(&self) -> &Type {
        self.ty.get_or_init(|| Type::from_schema(&self.json))
    }

    /// JSON Pointers to the properties whose values must not be written down: those that are
    /// `writeOnly`, or of the format `password`.
    pub fn sensitive(&self) -> &[Arc<str>] {
        self.sensitive.get_or_init(|| {
            let mut found = Vec::new();
            add_sensitive(&self.json, "", &mut found);
            found
        })
    }

    /// Whether this is a schema at all.
    pub fn check(&self) -> Result<(), Violation> {
        self.validator().map(|_| ())
    }

    /// An object with the defaults of its members filled in.
    pub fn with_defaults(&self, value: Value) -> Value {
        let (Some(Value::Object(properties)), Value::Object(given)) =
            (self.json().get("properties"), &value)
        else {
            return value;
        };
        let missing: Vec<(Arc<str>, Value)> = properties
            .iter()
            .filter(|(name, _)| !given.contains_key(*name))
            .filter_map(|(name, schema)| schema.get("default").map(|d| (name.clone(), d.clone())))
            .collect();
        if missing.is_empty() {
            return value;
        }
        let mut filled = (**given).clone();
        filled.extend(missing);
        filled.into()
    }

    /// Every way in which `value` does not fit, at most a handful.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let validator = match self.validator() {
            Ok(validator) => validator,
            Err(wrong) => {
                let message = format!("the schema itself is wrong: {wrong}");
                return vec![Violation { pointer: String::new(), message }];
            }
        };
        if validator.is_valid(value) {
            return Vec::new();
        }
        validator
            .iter_errors(value)
            .take(VIOLATIONS_MAX)
            .map(|error| Violation {
                pointer: error.instance_path().as_str().to_owned(),
                message: shorten(&said(error.kind(), error.to_string())),
            })
            .collect()
    }

    fn validator(&self) -> Result<&Validator<Shared>, Violation> {
        let compiled = self.validator.get_or_init(|| {
            jsonschema::options_for::<Shared>()
                .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
                .build(&serde_json::Value::from(&self.json))
                .map_err(|error| Violation {
                    pointer: error.instance_path().as_str().to_owned(),
                    message: shorten(&error.to_string()),
                })
        });
        compiled.as_ref().map_err(Clone::clone)
    }
}

/// What is wrong with a value, in the library's words, but with every value that would do: of many it
/// names two.
fn said(kind: &ValidationErrorKind, message: String) -> String {
    let known =
        message.strip_suffix(" other candidates").and(message.split_once(" is not one of "));
    match (kind, known) {
        (ValidationErrorKind::Enum { options }, Some((given, _))) => {
            let options = options.as_array().map_or(&[][..], Vec::as_slice);
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            format!("{given} is not one of {}", options.join(", "))
        }
        _ => message,
    }
}

/// A message quotes the value that does not fit; a long one is cut, at a character.
fn shorten(message: &str) -> String {
    const MESSAGE_CHARS_MAX: usize = 300;
    match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &message[..cut]),
        None => message.to_owned(),
    }
}

/// Adds the places of properties whose values must not be written down.
fn add_sensitive(schema: &Value, at: &str, found: &mut Vec<Arc<str>>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flat_map(|properties| properties.iter()) {
        let pointer = format!("{at}/{}", escape(name));
        let is_write_only = matches!(property.get("writeOnly"), Some(Value::Bool(true)));
        let format = property.get("format").and_then(Value::as_str);
        if is_write_only || format == Some("password") {
            found.push(pointer.into());
        } else {
            add_sensitive(property, &pointer, found);
        }
    }
}

/// A name as a part of a JSON Pointer.
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.json)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.json == other.json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &str) -> Schema {
        Schema::new(serde_json::from_str(text).unwrap())
    }

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn violations_name_the_place() {
        let schema =
            schema(r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#);
        assert!(schema.violations(&value(r#"{"n":9007199254740993}"#)).is_empty());
        let found = schema.violations(&value(r#"{"n":"x"}"#));
        assert_eq!(found[0].pointer, "/n");
        assert!(schema.violations(&value("{}"))[0].message.contains("required"));
    }

    #[test]
    fn every_word_that_would_do_is_named() {
        let schema = schema(r#"{"enum":["a","b","c","d",null]}"#);
        let found = &schema.violations(&value(r#""x""#))[0].message;
        assert_eq!(found, r#""x" is not one of "a", "b", "c", "d", null"#);
    }

    #[test]
    fn numbers_beyond_64_bits_are_integers_too() {
        let big = Value::Number(crate::value::Number::from_literal("18446744073709551616"));
        assert!(schema(r#"{"type":"integer"}"#).violations(&big).is_empty());
        assert!(!schema(r#"{"type":"string"}"#).violations(&big).is_empty());
    }

    /// Hostile input 14: a pattern that would backtrack for ever elsewhere is linear here.
    #[test]
    fn patterns_run_in_linear_time() {
        let schema = schema(r#"{"type":"string","pattern":"(a+)+$"}"#);
        assert!(!schema.violations(&Value::from(format!("{}b", "a".repeat(100_000)))).is_empty());
    }

    #[test]
    fn a_wrong_schema_is_said_to_be_wrong() {
        assert!(schema(r#"{"type":"objekt"}"#).check().is_err());
    }
}
