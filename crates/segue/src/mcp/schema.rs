//! JSON Schemas of our tools, made from the types of their arguments and results.
//!
//! Hosts hand these schemas to a model, and some refuse unusual ones. So an optional member has the type of
//! its value and not also `null`, and the schema of a result lists members without their insides.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use segue_core::value::{Map, Value};

use crate::api::result::json_of;

fn generate<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    json_of(&T::json_schema(&mut settings.into_generator()))
}

/// The schema of a tool's arguments.
pub(super) fn input_schema<T: JsonSchema>() -> Value {
    let schema = generate::<T>(SchemaSettings::draft2020_12().for_deserialize());
    let Value::Object(members) = without_null(schema) else { return Value::empty_object() };
    let mut members = members.unwrap_or_clone();
    members.shift_remove("title");
    members.shift_remove("description");
    // Only a person consents, and never by a call.
    without_member(&mut members, &["options", "approved"]);
    members.into()
}

/// The schema of a tool's result: its members, of which these are there in any case. A result may also be
/// a reference to a run, so others are not required.
pub(super) fn output_schema<T: JsonSchema>(required: &[&str]) -> Value {
    output_schema_without::<T>(&[], required)
}

/// The same without these members, which the tool leaves out.
pub(super) fn output_schema_without<T: JsonSchema>(hidden: &[&str], required: &[&str]) -> Value {
    let schema = generate::<T>(SchemaSettings::draft2020_12().for_serialize());
    let properties = schema.get("properties").and_then(Value::as_object);
    let members = properties.into_iter().flat_map(|properties| properties.iter());
    let members = members.filter(|(name, _)| !hidden.contains(&&***name));
    let outlines = members.map(|(name, member)| (name.clone(), outline(member)));
    Value::object([
        ("type", Value::from("object")),
        ("properties", outlines.collect::<Map>().into()),
        ("required", required.iter().map(|name| Value::from(*name)).collect::<Vec<_>>().into()),
    ])
}

/// The type, the words and the description of a member.
fn outline(member: &Value) -> Value {
    let mut outline = Map::new();
    for name in ["type", "enum", "description"] {
        outline.extend(member.get(name).map(|value| (name.into(), value.clone())));
    }
    // An enum whose values have descriptions.
    if let Some(values) = member.get("oneOf").and_then(Value::as_array) {
        let values: Vec<Value> =
            values.iter().filter_map(|value| value.get("const").cloned()).collect();
        outline.insert("enum".into(), values.into());
    }
    outline.into()
}

/// A schema in which no member may be `null`.
fn without_null(schema: Value) -> Value {
    let is_null = |value: &Value| value.as_str() == Some("null");
    match schema {
        Value::Object(members) => {
            let mut all: Map = Map::new();
            for (name, value) in members.unwrap_or_clone() {
                let value = match (&*name, value) {
                    ("type", Value::Array(types)) => {
                        let types: Vec<Value> =
                            types.iter().filter(|kind| !is_null(kind)).cloned().collect();
                        if let [one] = &types[..] { one.clone() } else { types.into() }
                    }
                    ("anyOf", Value::Array(ways)) => {
                        let is_value = |way: &&Value| !way.get("type").is_some_and(is_null);
                        let ways = ways.iter().filter(is_value).cloned().map(without_null);
                        let ways: Vec<Value> = ways.collect();
                        if let [Value::Object(one)] = &ways[..] {
                            // The description of the member is better than that of its type.
                            for (name, value) in one.iter() {
                                all.entry(name.clone()).or_insert_with(|| value.clone());
                            }
                            continue;
                        }
                        ways.into()
                    }
                    (_, value) => without_null(value),
                };
                all.insert(name, value);
            }
            all.into()
        }
        Value::Array(items) => items.iter().cloned().map(without_null).collect::<Vec<_>>().into(),
        other => other,
    }
}

/// Removes the member at a path of properties.
fn without_member(schema: &mut Map, path: &[&str]) {
    let [first, rest @ ..] = path else { return };
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    properties.update(|properties| {
        if rest.is_empty() {
            properties.shift_remove(*first);
        } else if let Some(Value::Object(member)) = properties.get_mut(*first) {
            member.update(|member| without_member(member, rest));
        }
    });
}
