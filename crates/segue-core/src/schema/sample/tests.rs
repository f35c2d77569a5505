//! Samples match their schemas.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn sample(schema: Json) -> Option<Json> {
    let schema = Schema::new(Value::from(schema));
    schema.sample().map(|value| Json::from(&value))
}

#[test]
fn what_the_author_wrote_comes_first() {
    assert_eq!(sample(json!({ "const": [1] })), Some(json!([1])));
    assert_eq!(sample(json!({ "type": "integer", "default": 7 })), Some(json!(7)));
    assert_eq!(sample(json!({ "type": "string", "examples": ["x"] })), Some(json!("x")));
    assert_eq!(sample(json!({ "enum": ["b", "a"] })), Some(json!("b")));
    // A default that does not match is ignored.
    assert_eq!(sample(json!({ "type": "integer", "default": "7" })), Some(json!(0)));
}

#[test]
fn every_declared_field_is_there_and_arrays_are_short() {
    let schema = json!({
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": { "type": "string", "format": "uuid" },
            "tags": { "type": "array", "items": { "type": "string" } },
            "size": { "type": ["null", "integer"], "minimum": 3 },
            "pair": { "type": "array", "minItems": 2, "uniqueItems": true, "items": { "type": "integer" } },
        },
    });
    let expected = json!({
        "id": "00000000-0000-4000-8000-000000000000", "tags": [], "size": 3, "pair": [0, 1],
    });
    assert_eq!(sample(schema), Some(expected));
}

#[test]
fn texts_fit_their_patterns_and_lengths() {
    for (pattern, least) in [
        ("^[a-z]{3}-\\d{4}$", 0),
        ("^(ab|cd)+$", 5),
        ("^[^a-z]\\.[A-Z0-9_-]*$", 20),
        ("^v\\d+\\.\\d+(?:\\.\\d+)?$", 0),
        ("x{2,}", 7),
        ("^[\\w.-]+@example\\.com$", 0),
    ] {
        let schema = json!({ "type": "string", "pattern": pattern, "minLength": least });
        assert!(sample(schema).is_some(), "{pattern}");
    }
    assert_eq!(sample(json!({ "type": "string", "maxLength": 3 })), Some(json!("sta")));
    assert_eq!(sample(json!({ "type": "string", "minLength": 9 })), Some(json!("stand-ins")));
}

#[test]
fn references_and_alternatives_are_followed() {
    let schema = json!({
        "$defs": {
            "node": {
                "type": "object",
                "required": ["value"],
                "properties": { "value": { "type": "integer" }, "next": { "$ref": "#/$defs/node" } },
            },
        },
        "allOf": [
            { "$ref": "#/$defs/node" },
            { "required": ["kind"], "properties": { "kind": { "const": "leaf" } } },
        ],
    });
    let made = sample(schema).unwrap();
    assert_eq!((&made["kind"], &made["value"]), (&json!("leaf"), &json!(0)));
    let schema = json!({ "oneOf": [{ "type": "string", "maxLength": 0 }, { "type": "integer", "minimum": 5 }] });
    assert_eq!(sample(schema), Some(json!("")));
    let schema =
        json!({ "$ref": "#/definitions/x", "definitions": { "x": { "type": "boolean" } } });
    assert_eq!(sample(schema), Some(json!(false)));
}

/// An unsatisfiable schema gives no sample; a recursive one ends.
#[test]
fn what_cannot_be_made_up_is_said() {
    assert_eq!(sample(json!(false)), None);
    assert_eq!(sample(json!({ "type": "integer", "minimum": 5, "maximum": 4 })), None);
    assert_eq!(sample(json!({ "type": "string", "pattern": "^(?=a)b" })), None);
    assert_eq!(sample(json!({ "type": "objekt" })), None);
    assert_eq!(sample(json!({ "$ref": "#" })), None);
    assert_eq!(sample(json!({ "$ref": "https://example.com/x" })), None);
    let endless = json!({
        "$defs": { "a": { "required": ["b"], "properties": { "b": { "$ref": "#/$defs/a" } } } },
        "type": "object", "required": ["b"], "properties": { "b": { "$ref": "#/$defs/a" } },
    });
    // Below the first level no object is required, so another value may be there.
    assert!(sample(endless).is_some_and(|value| value.is_object()));
}

fn numbers() -> impl Strategy<Value = Json> {
    (any::<bool>(), -50..50_i64, 0..20_i64, prop::option::of(1..4_i64)).prop_map(
        |(whole, low, width, multiple)| {
            let kind = if whole { "integer" } else { "number" };
            let mut schema = json!({ "type": kind, "minimum": low });
            if let Some(step) = multiple {
                schema["multipleOf"] = json!(step);
                schema["maximum"] = json!(low + width + step);
            } else {
                schema["maximum"] = json!(low + width);
            }
            schema
        },
    )
}

fn texts() -> impl Strategy<Value = Json> {
    let lengths = (0..30_usize, 0..30_usize).prop_map(
        |(least, more)| json!({ "type": "string", "minLength": least, "maxLength": least + more }),
    );
    let formats = prop::sample::select(vec![
        "date",
        "date-time",
        "email",
        "uri",
        "uuid",
        "ipv4",
        "ipv6",
        "time",
    ])
    .prop_map(|format| json!({ "type": "string", "format": format }));
    let patterns = prop::collection::vec(
        prop::sample::select(vec![
            "a", "[b-d]", "\\d", "(ef|g)", "[^h]", "\\.", "i?", "j+", "k*", "l{2,3}",
        ]),
        1..6,
    )
    .prop_map(|atoms| json!({ "type": "string", "pattern": format!("^{}$", atoms.concat()) }));
    prop_oneof![lengths, formats, patterns]
}

/// Satisfiable schemas.
fn schemas() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        numbers(),
        texts(),
        Just(json!({ "type": "boolean" })),
        Just(json!({ "type": "null" })),
        Just(json!(true)),
        Just(json!({ "enum": [3, "x", null] })),
        Just(json!({ "const": { "k": [1] } })),
        Just(json!({ "$ref": "#/$defs/shared" })),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let fields = prop::collection::btree_map("[a-e]", (inner.clone(), any::<bool>()), 0..4);
        let objects = (fields, any::<bool>(), 0..3_usize).prop_map(|(fields, open, more)| {
            let required: Vec<&String> =
                fields.iter().filter(|(_, f)| f.1).map(|(k, _)| k).collect();
            let properties: serde_json::Map<String, Json> =
                fields.iter().map(|(name, (part, _))| (name.clone(), part.clone())).collect();
            let mut schema =
                json!({ "type": "object", "required": required, "properties": properties });
            if open {
                schema["minProperties"] = json!(required.len() + more);
            } else {
                schema["additionalProperties"] = json!(false);
            }
            schema
        });
        let arrays = (inner.clone(), 0..4_usize)
            .prop_map(|(part, least)| json!({ "type": "array", "items": part, "minItems": least }));
        let tuples = prop::collection::vec(inner.clone(), 1..4).prop_map(
            |parts| json!({ "type": "array", "minItems": parts.len(), "prefixItems": parts }),
        );
        let either =
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| json!({ "anyOf": parts }));
        let nullable = inner.prop_map(|part| json!({ "anyOf": [{ "type": "null" }, part] }));
        prop_oneof![objects, arrays, tuples, either, nullable]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A satisfiable schema has a sample, and it matches.
    #[test]
    fn stand_ins_fit_random_schemas(schema in schemas(), shared in prop_oneof![numbers(), texts()]) {
        let schema = json!({ "$defs": { "shared": shared }, "allOf": [schema] });
        let schema = Schema::new(Value::from(schema));
        prop_assert!(schema.check().is_ok(), "{schema:?}");
        let made = schema.sample();
        prop_assert!(made.is_some(), "nothing stands in for {schema:?}");
        prop_assert!(schema.violations(&made.unwrap()).is_empty());
    }
}
