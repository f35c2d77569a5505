//! Converts `anyOf` and `oneOf` to the form that a host supports.

use super::convert::{ConvertResult, ConvertedSchema, Converter, describe, nullable};
use super::flatten::{FlatSchema, type_names};
use super::profile::is_annotation;
use super::restore::RestoreRule;
use super::{ArgumentsEffect, LossHandling};
use crate::schema::Schema;
use crate::value::{Map, Shared, Value};

/// Keywords with nested schemas, whose values may need a restore rule.
const STRUCTURE: &[&str] =
    &["properties", "required", "additionalProperties", "items", "prefixItems", "anyOf", "oneOf"];

impl Converter<'_> {
    /// Converts a union; `None` if the host can only get a description in words.
    pub(super) fn union(
        &mut self,
        flat: &Map,
        keyword: &str,
        path: &str,
        at_root: bool,
    ) -> ConvertResult<Option<ConvertedSchema>> {
        // No host supports a union as the arguments themselves.
        if at_root {
            return Ok(None);
        }
        let branches = flat.get(keyword).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut beside = flat.clone();
        beside.shift_remove(keyword);
        if !self.profile().supports("anyOf") {
            return self.or_null(&branches, &beside, keyword, path);
        }
        let constraints: Map = beside
            .iter()
            .filter(|(keyword, _)| !is_annotation(keyword))
            .map(|(keyword, value)| (keyword.clone(), value.clone()))
            .collect();
        // Keywords beside a union apply to every branch. They are merged into the branches when a
        // branch is incomplete without them, and when both would need a restore rule.
        let has_structure = STRUCTURE.iter().any(|keyword| constraints.contains_key(*keyword));
        let is_said_there = has_structure || (self.profile().closed && !constraints.is_empty());
        let mut converted = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            let at = format!("{path}/{keyword}/{index}");
            let own = if is_said_there { &constraints } else { &Map::new() };
            converted.push(self.branch(branch, own, &at)?);
        }
        if keyword == "oneOf" {
            let exclusive = are_exclusive(&converted);
            let meaning = if exclusive { ArgumentsEffect::Same } else { ArgumentsEffect::Wider };
            self.record_loss(&format!("{path}/oneOf"), "oneOf", LossHandling::Converted, meaning);
        }
        let annotations: Map = beside
            .iter()
            .filter(|(keyword, _)| !is_said_there || is_annotation(keyword))
            .map(|(keyword, value)| (keyword.clone(), value.clone()))
            .collect();
        let mut out = self.beside(&annotations, path);
        let schemas: Vec<Value> = converted.iter().map(|(schema, _)| schema.clone()).collect();
        out.insert("anyOf".into(), schemas.into());
        Ok(Some((out.into(), RestoreRule::any(converted))))
    }

    /// Converts the keywords beside a union.
    fn beside(&mut self, beside: &Map, path: &str) -> Map {
        let (mut out, mut notes) = (Map::new(), Vec::new());
        for (keyword, value) in beside {
            self.keyword(keyword, value, beside, path, &mut out, &mut notes);
        }
        describe(beside, &notes, &mut out);
        out
    }

    fn branch(
        &mut self,
        branch: &Value,
        beside: &Map,
        path: &str,
    ) -> ConvertResult<ConvertedSchema> {
        let schema = match branch {
            Value::Object(schema) if !beside.is_empty() => schema,
            Value::Bool(true) if !beside.is_empty() => return self.flat(beside, path),
            _ => return self.schema(branch, path),
        };
        self.count()?;
        let open = self.open.len();
        let converted = match self.flatten(schema, path)? {
            FlatSchema::Recursive => self.schema(branch, path)?,
            FlatSchema::Plain(mut flat) => {
                self.merge(&mut flat, beside, path, "anyOf");
                self.flat(&flat, path)?
            }
        };
        self.open.truncate(open);
        Ok(converted)
    }

    /// A value or `null`, which needs no union.
    fn or_null(
        &mut self,
        branches: &Shared<Vec<Value>>,
        beside: &Map,
        keyword: &str,
        path: &str,
    ) -> ConvertResult<Option<ConvertedSchema>> {
        let is_null = |branch: &&Value| {
            branch.get("type").and_then(Value::as_str) == Some("null")
                && branch.as_object().is_some_and(|schema| schema.len() == 1)
        };
        let (nulls, others): (Vec<&Value>, Vec<&Value>) = branches.iter().partition(is_null);
        let ([_], [other]) = (nulls.as_slice(), others.as_slice()) else { return Ok(None) };
        if beside.keys().any(|keyword| !is_annotation(keyword)) {
            return Ok(None);
        }
        let known = self.lost.len();
        let (schema, way) = self.schema(other, path)?;
        let fits_already = Schema::new(schema.clone()).violations(&Value::Null).is_empty();
        if schema.get("type").is_none() || fits_already {
            self.lost.truncate(known);
            return Ok(None);
        }
        self.record_loss(
            &format!("{path}/{keyword}"),
            keyword,
            LossHandling::Merged,
            ArgumentsEffect::Same,
        );
        let Value::Object(merged) = nullable(schema) else { return Ok(None) };
        let mut out = (*merged).clone();
        for (keyword, value) in self.beside(beside, path) {
            out.insert(keyword, value);
        }
        Ok(Some((out.into(), way)))
    }
}

/// Whether no value matches two branches: their types differ, or the constant of a required member
/// does.
fn are_exclusive(branches: &[ConvertedSchema]) -> bool {
    if branches.iter().any(|(_, way)| !way.is_identity()) {
        return false;
    }
    let types: Vec<Vec<&str>> =
        branches.iter().map(|(s, _)| s.get("type").map_or_else(Vec::new, type_names)).collect();
    let kinds: Vec<&str> = types
        .iter()
        .flat_map(|words| words.iter().map(|w| if *w == "integer" { "number" } else { w }))
        .collect();
    let mut distinct = kinds.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let all_typed = types.iter().all(|words| !words.is_empty());
    (all_typed && distinct.len() == kinds.len()) || has_discriminator(branches)
}

fn has_discriminator(branches: &[ConvertedSchema]) -> bool {
    let Some((first, _)) = branches.first() else { return true };
    let Some(Value::Object(members)) = first.get("properties") else { return false };
    members.keys().any(|name| {
        let values: Option<Vec<&Value>> =
            branches.iter().map(|(schema, _)| only_value(schema, name)).collect();
        values.is_some_and(|values| {
            values.iter().enumerate().all(|(at, value)| !values[..at].contains(value))
        })
    })
}

/// The only value that a required member can have.
fn only_value<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let is_required = schema.get("required")?.as_array()?.contains(&Value::from(name));
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    let member = schema.get("properties")?.get(name).filter(|_| is_required && is_object)?;
    member.get("const").or_else(|| match member.get("enum")?.as_array()?.as_slice() {
        [value] => Some(value),
        _ => None,
    })
}
