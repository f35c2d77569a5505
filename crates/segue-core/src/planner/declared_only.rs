//! Closes the schemas of tools for a model's plans: only declared parameters are allowed.
//!
//! A schema that does not forbid others is open, since a person may know an undeclared parameter. A
//! model does not; a parameter that it adds is invented.

use std::sync::Arc;

use crate::catalog::Catalog;
use crate::composition::tool::ToolSpec;
use crate::schema::Schema;
use crate::value::{Map, Value};

/// Keywords that add members from outside a schema's own `properties`.
const COMBINING: &[&str] =
    &["$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "additionalProperties"];

/// The same tools with closed schemas.
pub(super) fn with_closed_schemas(catalog: &Catalog) -> Catalog {
    let close = |schema: &Arc<Schema>| match close(schema.json()) {
        Some(json) => Arc::new(Schema::new(json)),
        None => schema.clone(),
    };
    let tools = catalog.tools().map(|tool| {
        let mut spec: ToolSpec = (**tool).clone();
        spec.input = close(&spec.input);
        spec.output = spec.output.as_ref().map(close);
        Arc::new(spec)
    });
    let mut closed = Catalog::new(tools);
    if let Some(toolset) = catalog.toolset() {
        closed.restrict(toolset.clone());
    }
    closed
}

/// The schema without undeclared members, at any depth; `None` if it is closed already.
fn close(schema: &Value) -> Option<Value> {
    let members = schema.as_object()?;
    let mut changed: Map = (**members).clone();
    let mut is_changed = false;
    if let Some(properties) = members.get("properties").and_then(Value::as_object) {
        let mut inner: Map = (**properties).clone();
        for (name, property) in properties.iter() {
            if let Some(closed) = close(property) {
                inner.insert(name.clone(), closed);
                is_changed = true;
            }
        }
        changed.insert("properties".into(), inner.into());
        if !COMBINING.iter().any(|word| members.contains_key(*word)) && !properties.is_empty() {
            changed.insert("additionalProperties".into(), Value::Bool(false));
            is_changed = true;
        }
    }
    if let Some(closed) = members.get("items").and_then(close) {
        changed.insert("items".into(), closed);
        is_changed = true;
    }
    is_changed.then(|| changed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed_json(text: &str) -> String {
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        close(&Value::from(json)).map_or_else(|| "unchanged".to_owned(), |value| value.to_json())
    }

    #[test]
    fn what_is_declared_is_all_there_is() {
        for (schema, expected) in [
            (
                r#"{"type":"object","properties":{"a":{}}}"#,
                r#"{"type":"object","properties":{"a":{}},"additionalProperties":false}"#,
            ),
            (
                r#"{"items":{"properties":{"a":{}}}}"#,
                r#"{"items":{"properties":{"a":{}},"additionalProperties":false}}"#,
            ),
            (r#"{"properties":{"a":{}},"additionalProperties":{"type":"string"}}"#, "unchanged"),
            (r#"{"properties":{"a":{}},"allOf":[{}]}"#, "unchanged"),
            (r#"{"type":"object","properties":{}}"#, "unchanged"),
            (r#"{"type":"object"}"#, "unchanged"),
            ("true", "unchanged"),
        ] {
            assert_eq!(closed_json(schema), expected, "{schema}");
        }
    }
}
