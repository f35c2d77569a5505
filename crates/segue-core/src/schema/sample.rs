//! Generates a sample value that matches a schema.
//!
//! Candidates are validated against the schema, so the result matches, or there is none. Candidates
//! are, in this order, values that the author wrote (`const`, `default`, `examples`, `enum`), then
//! values derived from the other keywords: every declared field, so that later steps find the
//! fields that they read; as few items and as small numbers as allowed; texts by format or pattern.
//!
//! Not here: schemas that need a search, such as most of `not` and `if`.

mod text;

use std::sync::Arc;

use super::Schema;
use crate::value::{Map, Number, Value};

/// Schemas visited for one sample; beyond that there is none.
const SCHEMAS_MAX: usize = 2_000;

/// Nesting of a sample. Deeper levels have only required members.
const DEPTH_MAX: usize = 16;
const OPTIONAL_DEPTH_MAX: usize = 4;

/// Maximum number of items in a generated array.
const ITEMS_MAX: u64 = 100;

impl Schema {
    /// A sample value; `None` if none is found.
    pub fn sample(&self) -> Option<Value> {
        let mut maker = SampleBuilder { root: &self.json, left: SCHEMAS_MAX };
        let proposed = maker.proposals(&self.json, 0);
        proposed.into_iter().find(|value| self.violations(value).is_empty())
    }
}

struct SampleBuilder<'a> {
    /// The root that references are relative to.
    root: &'a Value,
    left: usize,
}

impl SampleBuilder<'_> {
    /// The first candidate that matches a part of the schema.
    fn pick(&mut self, part: &Value, depth: usize) -> Option<Value> {
        let proposed = self.proposals(part, depth);
        let schema = Schema::new(self.alone(part));
        // A part that cannot be compiled alone is validated with the whole.
        if schema.check().is_err() {
            return proposed.into_iter().next();
        }
        proposed.into_iter().find(|value| schema.violations(value).is_empty())
    }

    /// A part that can still resolve its references.
    fn alone(&self, part: &Value) -> Value {
        let Value::Object(members) = part else { return part.clone() };
        let mut alone = (**members).clone();
        for word in ["$defs", "definitions", "$schema"] {
            if let Some(value) = self.root.get(word) {
                alone.insert(word.into(), value.clone());
            }
        }
        alone.into()
    }

    fn proposals(&mut self, part: &Value, depth: usize) -> Vec<Value> {
        if self.left == 0 || depth > DEPTH_MAX {
            return Vec::new();
        }
        self.left -= 1;
        let Value::Object(words) = part else { return vec![Value::Null] };
        if let Some(target) = words.get("$ref").and_then(Value::as_str) {
            let Some(target) = self.resolve(target) else { return Vec::new() };
            return self.proposals(&merged(&without(words, "$ref"), &target), depth + 1);
        }
        if let Some(Value::Array(parts)) = words.get("allOf") {
            let own = without(words, "allOf");
            let whole = parts.iter().fold(own, |whole, part| merged(&whole, part));
            return self.proposals(&whole, depth + 1);
        }
        let mut proposed: Vec<Value> = ["const", "default"]
            .iter()
            .filter_map(|word| words.get(*word).cloned())
            .chain(["examples", "enum"].iter().flat_map(|word| items(words.get(*word))))
            .collect();
        for word in ["anyOf", "oneOf"] {
            let own = without(words, word);
            for part in items(words.get(word)) {
                proposed.extend(self.proposals(&merged(&own, &part), depth + 1));
            }
        }
        for kind in kinds(words) {
            self.of_kind(kind, words, depth, &mut proposed);
        }
        proposed
    }

    fn of_kind(&mut self, kind: &str, words: &Map, depth: usize, proposed: &mut Vec<Value>) {
        match kind {
            "object" => {
                if depth < OPTIONAL_DEPTH_MAX {
                    proposed.extend(self.object(words, depth, true));
                }
                proposed.extend(self.object(words, depth, false));
            }
            "array" => proposed.extend(self.array(words, depth)),
            "string" => proposed.extend(text::candidates(words).into_iter().map(Value::from)),
            "integer" | "number" => proposed.extend(numbers(words, kind == "integer")),
            "boolean" => proposed.extend([Value::Bool(false), Value::Bool(true)]),
            _ => proposed.push(Value::Null),
        }
    }

    /// An object with every declared field, or only with the required ones.
    fn object(&mut self, words: &Map, depth: usize, whole: bool) -> Option<Value> {
        let declared = words.get("properties");
        let mut members = Map::new();
        if let Some(Value::Object(properties)) = declared.filter(|_| whole) {
            for (name, part) in &**properties {
                // A field that no value matches is left out, if it is optional.
                if let Some(value) = self.pick(part, depth + 1) {
                    members.insert(name.clone(), value);
                }
            }
        }
        let any = Value::Bool(true);
        let other = words.get("additionalProperties").unwrap_or(&any);
        for name in items(words.get("required")) {
            let Value::String(name) = name else { continue };
            if members.contains_key(&name) {
                continue;
            }
            let part = declared.and_then(|declared| declared.get(&name)).unwrap_or(other).clone();
            members.insert(name, self.pick(&part, depth + 1)?);
        }
        let least = count(words, "minProperties");
        for n in 0.. {
            if members.len() as u64 >= least || n > ITEMS_MAX {
                break;
            }
            let name: Arc<str> = format!("field{n}").into();
            if !members.contains_key(&name) {
                members.insert(name, self.pick(&other.clone(), depth + 1)?);
            }
        }
        Some(members.into())
    }

    fn array(&mut self, words: &Map, depth: usize) -> Option<Value> {
        let least = count(words, "minItems").min(ITEMS_MAX);
        let first = items(words.get("prefixItems"));
        let mut made = Vec::new();
        if let Some(part) = words.get("contains") {
            let times = words.get("minContains").and_then(Value::as_u64).unwrap_or(1);
            for _ in 0..times.min(ITEMS_MAX) {
                made.push(self.pick(part, depth + 1)?);
            }
        }
        while (made.len() as u64) < least {
            let any = Value::Bool(true);
            let rest = words.get("items").unwrap_or(&any);
            let part = first.get(made.len()).unwrap_or(rest).clone();
            made.push(self.pick(&part, depth + 1)?);
        }
        if words.get("uniqueItems").and_then(Value::as_bool) == Some(true) {
            let part = words.get("items").cloned().unwrap_or(Value::Bool(true));
            self.make_unique(&mut made, &part, depth);
        }
        Some(made.into())
    }

    /// Replaces duplicate items by other matching ones.
    fn make_unique(&mut self, made: &mut [Value], part: &Value, depth: usize) {
        let mut others = self.proposals(part, depth + 1).into_iter();
        let mut made_up = 0_u64;
        for at in 1..made.len() {
            while made[..at].contains(&made[at]) && made_up < 2 * ITEMS_MAX {
                made[at] = others.next().unwrap_or_else(|| {
                    made_up += 1;
                    vary(&made[at], made_up)
                });
            }
        }
    }

    /// The target of `#/…`.
    fn resolve(&self, reference: &str) -> Option<Value> {
        let pointer = reference.strip_prefix('#')?;
        let mut at = self.root;
        for name in pointer.split('/').skip(1) {
            let name = name.replace("~1", "/").replace("~0", "~");
            at = match at {
                Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
                other => other.get(&name)?,
            };
        }
        Some(at.clone())
    }
}

/// Another value of the same kind.
fn vary(value: &Value, n: u64) -> Value {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(int) => Value::from(int.saturating_add(1)),
            None => Value::Number(Number::Float(number.as_f64().unwrap_or(0.0) + n as f64)),
        },
        Value::String(text) => Value::from(format!("{text}{n}")),
        Value::Array(_) | Value::Object(_) | Value::Null => Value::from(n),
        Value::Bool(bool) => Value::Bool(!bool),
    }
}

fn items(value: Option<&Value>) -> Vec<Value> {
    value.and_then(Value::as_array).map_or_else(Vec::new, |items| (**items).clone())
}

fn count(words: &Map, word: &str) -> u64 {
    words.get(word).and_then(Value::as_u64).unwrap_or(0)
}

fn without(words: &Map, word: &str) -> Value {
    words
        .iter()
        .filter(|(name, _)| &***name != word)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect::<Map>()
        .into()
}

/// Merges two schemas as far as one can express both: fields are joined, bounds tightened, and of
/// other keywords the second wins.
fn merged(one: &Value, two: &Value) -> Value {
    let (Value::Object(one), Value::Object(two)) = (one, two) else {
        return if matches!(two, Value::Object(_)) { two.clone() } else { one.clone() };
    };
    let mut whole = (**one).clone();
    for (word, value) in &**two {
        let Some(own) = whole.get(word) else {
            whole.insert(word.clone(), value.clone());
            continue;
        };
        let both = match &**word {
            "properties" => match (own, value) {
                (Value::Object(own), Value::Object(other)) => joined(own, other),
                _ => value.clone(),
            },
            "required" | "allOf" => {
                let mut names = items(Some(own));
                names.extend(items(Some(value)));
                names.into()
            }
            "enum" => {
                let other = items(Some(value));
                items(Some(own))
                    .into_iter()
                    .filter(|v| other.contains(v))
                    .collect::<Vec<_>>()
                    .into()
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                if own.as_f64() > value.as_f64() { own.clone() } else { value.clone() }
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                if own.as_f64() < value.as_f64() { own.clone() } else { value.clone() }
            }
            "type" => {
                let other = words_of(value);
                let both: Vec<Value> =
                    words_of(own).into_iter().filter(|kind| other.contains(kind)).collect();
                both.into()
            }
            _ => value.clone(),
        };
        whole.insert(word.clone(), both);
    }
    whole.into()
}

fn joined(one: &Map, two: &Map) -> Value {
    let mut whole = one.clone();
    for (name, part) in two {
        let both = whole.get(name).map_or_else(|| part.clone(), |own| merged(own, part));
        whole.insert(name.clone(), both);
    }
    whole.into()
}

/// `type` as a list.
fn words_of(kind: &Value) -> Vec<Value> {
    match kind {
        Value::Array(kinds) => (**kinds).clone(),
        one => vec![one.clone()],
    }
}

/// The possible types of a value: as declared, else as the other keywords suggest. Null comes last,
/// because other values are more useful.
fn kinds(words: &Map) -> Vec<&'static str> {
    const KINDS: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
    let mut kinds: Vec<&'static str> = match words.get("type") {
        Some(declared) => {
            let declared = words_of(declared);
            let known = declared.iter().filter_map(Value::as_str);
            known.filter_map(|word| KINDS.iter().find(|kind| **kind == word).copied()).collect()
        }
        None => {
            let has = |names: &[&str]| names.iter().any(|name| words.contains_key(*name));
            let mut kinds = Vec::new();
            if has(&["properties", "required", "minProperties", "additionalProperties"]) {
                kinds.push("object");
            }
            if has(&["items", "prefixItems", "minItems", "contains"]) {
                kinds.push("array");
            }
            if has(&["minLength", "maxLength", "pattern", "format"]) {
                kinds.push("string");
            }
            if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
                kinds.push("number");
            }
            kinds.push("null");
            kinds
        }
    };
    kinds.sort_by_key(|kind| *kind == "null");
    kinds
}

/// Numbers at and around the bounds, zero first.
#[allow(clippy::cast_possible_truncation, reason = "bounds beyond 2^53 are proposals like others")]
fn numbers(words: &Map, whole: bool) -> Vec<Value> {
    let bound = |word: &str| words.get(word).and_then(Value::as_f64);
    let step = bound("multipleOf").unwrap_or(if whole { 1.0 } else { 0.5 });
    let mut proposed = vec![0.0];
    for low in [bound("minimum"), bound("exclusiveMinimum")].into_iter().flatten() {
        let at = (low / step).ceil() * step;
        proposed.extend([low, at, at + step, low.ceil(), low.floor() + 1.0]);
    }
    for high in [bound("maximum"), bound("exclusiveMaximum")].into_iter().flatten() {
        let at = (high / step).floor() * step;
        proposed.extend([high, at, at - step, high.floor(), high.ceil() - 1.0]);
    }
    if let (Some(low), Some(high)) = (
        bound("minimum").or(bound("exclusiveMinimum")),
        bound("maximum").or(bound("exclusiveMaximum")),
    ) {
        proposed.push(f64::midpoint(low, high));
    }
    let finite = proposed.into_iter().filter(|number| number.is_finite());
    let as_value = |number: f64| {
        let is_whole = number.fract() == 0.0 && number.abs() < 9e15;
        if is_whole { Value::from(number as i64) } else { Value::Number(Number::Float(number)) }
    };
    finite.map(as_value).collect()
}

#[cfg(test)]
mod tests;
