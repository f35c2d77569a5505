//! JSON Schemas: stored as received, compiled on first use, applied without copying values.
//!
//! Patterns use the linear `regex` engine and remote references are never fetched, so a tool's
//! schema can neither stall nor call home. The cost of a schema is computed before it is compiled,
//! and validation has a budget: each access of a value is an operation.

mod cost;
mod sample;
mod shared;

use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Validator};

use crate::budget::{self, BudgetExceeded};
use crate::pattern::PATTERN_BYTES_MAX;
use crate::types::Type;
use crate::value::Value;
use cost::SchemaCost;
use shared::SharedJson;

/// Operations of one validation, and additional ones for each nested value.
const OPERATIONS_FREE: u64 = 1_000_000;
const OPERATIONS_PER_VALUE: u64 = 16;
const OPERATIONS_MAX: u64 = 30_000_000;

/// Operations for listing the violations.
const OPERATIONS_VIOLATIONS: u64 = 20_000;

/// Violations reported for one value.
const VIOLATIONS_MAX: usize = 8;

/// A JSON Schema.
pub struct Schema {
    json: Value,
    validator: OnceLock<Result<CompiledSchema, Violation>>,
    ty: OnceLock<Type>,
    sensitive: OnceLock<Vec<Arc<str>>>,
}

/// A schema that can validate values.
struct CompiledSchema {
    validator: Validator<SharedJson>,
    cost: SchemaCost,
}

/// A violation of a schema by a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON Pointer into the value.
    pub pointer: String,
    /// The message.
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
    /// A schema; its validity is checked on first use, or by [`Schema::check`].
    pub fn new(json: Value) -> Schema {
        let (validator, ty, sensitive) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Schema { json, validator, ty, sensitive }
    }

    /// The schema that every value matches.
    pub fn any() -> Arc<Schema> {
        Arc::new(Schema::new(Value::Bool(true)))
    }

    /// The schema that every object matches.
    pub fn any_object() -> Arc<Schema> {
        Arc::new(Schema::new(Value::object([("type", Value::from("object"))])))
    }

    /// The schema as received.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The type of matching values, for static checks.
    pub fn ty(&self) -> &Type {
        self.ty.get_or_init(|| Type::from_schema(&self.json))
    }

    /// JSON Pointers to sensitive properties: those with `writeOnly`, or of the format `password`.
    pub fn sensitive(&self) -> &[Arc<str>] {
        self.sensitive.get_or_init(|| {
            let mut found = Vec::new();
            add_sensitive(&self.json, "", &mut found);
            found
        })
    }

    /// Whether this is a valid schema.
    pub fn check(&self) -> Result<(), Violation> {
        self.validator().map(|_| ())
    }

    /// An object with the defaults of missing members.
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

    /// The violations of `value`, at most a handful.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        let whole = |message: String| vec![Violation { pointer: String::new(), message }];
        let compiled = match self.validator() {
            Ok(compiled) => compiled,
            Err(wrong) => return whole(format!("the schema itself is wrong: {wrong}")),
        };
        let values = (value.size() / std::mem::size_of::<Value>()) as u64;
        let operations = values.saturating_mul(OPERATIONS_PER_VALUE).min(OPERATIONS_MAX);
        let fits = || compiled.validator.is_valid(value);
        match compiled.within(OPERATIONS_FREE + operations, fits) {
            Ok(true) => return Vec::new(),
            Ok(false) => {}
            Err(stop) => {
                return whole(format!("it cannot be validated against its schema: {stop}"));
            }
        }
        // Nested alternatives are all listed, each with its path, which costs far more.
        let errors = || compiled.violations(value);
        compiled.within(OPERATIONS_VIOLATIONS + operations, errors).unwrap_or_else(|stop| {
            whole(format!("it does not fit its schema, and listing the violations failed: {stop}"))
        })
    }

    fn validator(&self) -> Result<&CompiledSchema, Violation> {
        let compiled = self.validator.get_or_init(|| compile(&self.json));
        compiled.as_ref().map_err(Clone::clone)
    }
}

fn compile(json: &Value) -> Result<CompiledSchema, Violation> {
    let whole = |message: String| Violation { pointer: String::new(), message };
    let cost = cost::cost(json).map_err(|reason| whole(format!("it is too large: {reason}")))?;
    let build = || {
        jsonschema::options_for::<SharedJson>()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .build(&serde_json::Value::from(json))
    };
    let built = budget::catch_unwound(build).map_err(|stop| whole(stop.to_string()))?;
    let validator = built.map_err(|error| Violation {
        pointer: error.instance_path().as_str().to_owned(),
        message: shorten(&error.to_string()),
    })?;
    Ok(CompiledSchema { validator, cost })
}

impl CompiledSchema {
    /// Calls the library with a budget of operations.
    fn within<T>(&self, operations: u64, work: impl FnOnce() -> T) -> Result<T, BudgetExceeded> {
        let work = || shared::with_cost(self.cost, work);
        budget::metered(operations, usize::MAX, || budget::catch_unwound(work))
    }

    fn violations(&self, value: &Value) -> Vec<Violation> {
        let errors = self.validator.iter_errors(value).take(VIOLATIONS_MAX);
        let violation = |error: jsonschema::ValidationError<'_>| Violation {
            pointer: error.instance_path().as_str().to_owned(),
            message: shorten(&said(error.kind(), error.to_string())),
        };
        errors.map(violation).collect()
    }
}

/// The library's message, but with all allowed values: of many, the library lists two.
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

/// A message quotes the violating value; a long one is cut at a character boundary.
pub(crate) fn shorten(message: &str) -> String {
    const MESSAGE_CHARS_MAX: usize = 300;
    match message.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &message[..cut]),
        None => message.to_owned(),
    }
}

/// Adds pointers to sensitive properties.
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

/// Escapes a name for a JSON Pointer.
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

    /// Hostile input 14: a pattern that would backtrack forever elsewhere is linear here.
    #[test]
    fn patterns_run_in_linear_time() {
        let schema = schema(r#"{"type":"string","pattern":"(a+)+$"}"#);
        assert!(!schema.violations(&Value::from(format!("{}b", "a".repeat(100_000)))).is_empty());
    }

    #[test]
    fn a_wrong_schema_is_said_to_be_wrong() {
        assert!(schema(r#"{"type":"objekt"}"#).check().is_err());
    }

    /// Definitions that each refer to the next one twice: a billion schemas in a kilobyte.
    fn ladder(levels: usize, keyword: &str) -> Schema {
        let rung = |level: usize| {
            let next = Value::object([("$ref", format!("#/$defs/l{}", level + 1).into())]);
            let rung = Value::object([(keyword, vec![next.clone(), next].into())]);
            (Arc::from(format!("l{level}")), rung)
        };
        let rungs = (0..levels).map(rung).collect::<crate::value::Map>();
        let mut defs = crate::value::Shared::new(rungs);
        defs.insert(format!("l{levels}").into(), Value::object([("type", "string".into())]));
        let first = Value::from("#/$defs/l0");
        Schema::new(Value::object([("$ref", first), ("$defs", Value::Object(defs))]))
    }

    #[test]
    fn a_ladder_of_references_is_refused_before_it_is_compiled() {
        for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
            let wrong = ladder(30, keyword).check().unwrap_err();
            assert!(wrong.message.contains("too large"), "{wrong:?}");
            assert!(!ladder(60, keyword).violations(&Value::Null).is_empty());
            assert!(ladder(5, keyword).check().is_ok(), "{keyword}");
        }
        // By other keywords too.
        for name in ["$anchor", "$id"] {
            let mut defs = crate::value::Map::new();
            for level in 0..30 {
                let next = format!("{}l{}", if name == "$anchor" { "#" } else { "" }, level + 1);
                let next = Value::object([("$ref", next.into())]);
                let rung = [
                    (name, format!("l{level}").into()),
                    ("anyOf", vec![next.clone(), next].into()),
                ];
                defs.insert(format!("d{level}").into(), Value::object(rung));
            }
            defs.insert("end".into(), Value::object([(name, "l30".into())]));
            let first = if name == "$anchor" { "#l0" } else { "l0" };
            let schema =
                Schema::new(Value::object([("$ref", first.into()), ("$defs", defs.into())]));
            assert!(schema.check().is_err(), "{name}");
        }
    }

    /// A small compiled schema can still take forever: each level of the value is checked twice.
    #[test]
    fn validation_has_a_budget() {
        let recursive = schema(
            r##"{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":
               {"type":"array","items":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"},{"type":"null"}]}}}}"##,
        );
        let deep = (0..60).fold(Value::from(1), |inner, _| Value::from(vec![inner]));
        assert!(!recursive.violations(&deep).is_empty());
        let dear = schema(r#"{"type":"string","pattern":"^(a?){900}$"}"#);
        let found = dear.violations(&Value::from("a".repeat(10 << 20)));
        assert!(found[0].message.contains("operations"), "{found:?}");
        assert!(dear.violations(&Value::from("a".repeat(100))).is_empty());
        assert!(schema(r#"{"pattern":"((a?){1000}){1000}"}"#).check().is_err());
    }

    /// A schema with many patterns, with properties beside them or not, behind a reference or not.
    fn patterned(patterns: usize, beside: &str, by_reference: bool) -> Schema {
        let patterns = (0..patterns).map(|n| (format!("^x{n}-[a-z]+$"), Value::Bool(true)));
        let mut object = vec![("patternProperties", Value::object(patterns))];
        object.extend((!beside.is_empty()).then(|| (beside, Value::Bool(false))));
        let object = Value::object(object);
        Schema::new(if by_reference {
            let defs = Value::object([("o", object)]);
            Value::object([("$ref", "#/$defs/o".into()), ("$defs", defs)])
        } else {
            object
        })
    }

    fn named(names: usize) -> Value {
        Value::object(
            (0..names).map(|n| (format!("x{}-{}", n % 20, "a".repeat(1 + n / 20)), 1.into())),
        )
    }

    /// Each name is matched with each pattern, and each pattern is compiled: both are charged.
    #[test]
    fn patterns_times_names_are_bounded() {
        for beside in ["", "additionalProperties", "unevaluatedProperties"] {
            for by_reference in [false, true] {
                let schema = |patterns| patterned(patterns, beside, by_reference);
                let wrong = schema(5_000).check().unwrap_err();
                assert!(wrong.message.contains("patterns"), "{wrong:?}");
                let found = schema(900).violations(&named(9_000));
                assert!(found[0].message.contains("operations"), "{beside}: {found:?}");
                assert_eq!(schema(20).violations(&named(1_000)), [], "{beside}");
            }
        }
        // Few patterns that are expensive to compile cost as much.
        let dear =
            |n: usize| Value::object([("pattern", format!(r"^\w{{1,{}}}$", 100 + n).into())]);
        let dear = Value::object((0..155).map(|n| (format!("p{n}"), dear(n))));
        let dear = Schema::new(Value::object([("properties", dear)]));
        assert!(dear.check().unwrap_err().message.contains("patterns"));
        // And a ladder of references multiplies one pattern.
        let mut defs = crate::value::Map::new();
        for level in 0..12 {
            let next = Value::object([("$ref", format!("#/$defs/l{}", level + 1).into())]);
            let rung = Value::object([("prefixItems", vec![next.clone(), next].into())]);
            defs.insert(format!("l{level}").into(), rung);
        }
        defs.insert("l12".into(), Value::object([("pattern", "^[a-z]+$".into())]));
        let members = [("$ref", "#/$defs/l0".into()), ("$defs", Value::from(defs))];
        assert!(Schema::new(Value::object(members)).check().is_err());
    }

    /// Cycles and deep nesting end on a small stack.
    #[test]
    fn no_schema_is_too_deep_for_the_stack() {
        let chain = |length: usize| {
            let link = |n: usize| {
                let next = Value::object([("$ref", format!("#/$defs/l{}", n + 1).into())]);
                (format!("l{n}"), Value::object([("allOf", vec![next].into())]))
            };
            let end = (
                format!("l{length}"),
                Value::object([("items", Value::object([("$ref", "#".into())]))]),
            );
            let defs = Value::object((0..length).map(link).chain([end]));
            Schema::new(Value::object([("$ref", "#/$defs/l0".into()), ("$defs", defs)]))
        };
        let circles = [
            r##"{"$ref":"#"}"##,
            r##"{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}"##,
            r##"{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"not":{"$ref":"#/$defs/b"}},"b":{"if":{"$ref":"#/$defs/a"}}}}"##,
            r##"{"$dynamicRef":"#x","$defs":{"x":{"$dynamicAnchor":"x","anyOf":[{"$dynamicRef":"#x"}]}}}"##,
            r##"{"properties":{"a":{"$ref":"#"}},"additionalProperties":{"$ref":"#"},"unevaluatedProperties":{"$ref":"#"}}"##,
        ];
        let value = (0..64).fold(Value::from(1), |inner, _| Value::from(vec![inner]));
        let work = move || {
            for length in [1, 10, 14, 31, 100, 5_000] {
                let _ = chain(length).violations(&value);
            }
            for circle in circles {
                let _ = schema(circle).violations(&value);
            }
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
    }
}
