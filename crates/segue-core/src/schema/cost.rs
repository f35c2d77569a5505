//! What a schema costs before it is compiled.
//!
//! The compiler writes out what a reference leads to wherever it stands: thirty definitions that each name
//! the next one twice are a billion. And the validator goes through schemas that apply to the same value
//! one inside the other. Both are counted here first, each definition once.

use std::collections::BTreeMap;

use crate::pattern::Pattern;
use crate::value::Value;

/// Schemas in one schema, those behind references counted wherever they are named.
const SCHEMAS_MAX: u64 = 50_000;

/// The same for small schemas, and how much larger others may become.
const SCHEMAS_FREE: u64 = 2_000;
const GROWTH_MAX: u64 = 50;

/// Schemas inside each other, through references: the compiler recurses over them.
const NESTING_MAX: usize = 400;

/// Schemas inside each other that apply to the same value: for each level of a value, the validator
/// recurses over them.
const SAME_VALUE_MAX: usize = 32;

/// Keywords whose schemas apply to the value itself.
const SAME_VALUE: &[&str] =
    &["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];

/// Keywords that name another schema.
const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];

/// What is known of a schema that may be compiled.
pub(super) struct Cost {
    /// Places of its dearest pattern.
    pub(super) places: u64,
}

/// What a schema costs, or why it is refused.
pub(super) fn cost(schema: &Value) -> Result<Cost, String> {
    let mut names = BTreeMap::new();
    let mut found = Found { schemas: 0, places: 1 };
    found.look_through(schema, &mut names)?;
    let mut counting = Counting { root: schema, names, known: BTreeMap::new() };
    let Measured { schemas, same_value } = counting.measure(schema, 0)?;
    let max = (found.schemas.saturating_mul(GROWTH_MAX)).clamp(SCHEMAS_FREE, SCHEMAS_MAX);
    if schemas > max {
        return Err(format!("with its references written out it has more than {max} schemas"));
    }
    if same_value > SAME_VALUE_MAX {
        return Err(format!(
            "more than {SAME_VALUE_MAX} of its schemas apply to one value in turn"
        ));
    }
    Ok(Cost { places: found.places })
}

/// What stands in a schema as it is written.
struct Found {
    schemas: u64,
    places: u64,
}

impl Found {
    /// Counts schemas and patterns, and finds what has a name.
    fn look_through<'a>(
        &mut self,
        value: &'a Value,
        names: &mut BTreeMap<&'a str, &'a Value>,
    ) -> Result<(), String> {
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.look_through(item, names)),
            Value::Object(members) => {
                self.schemas += 1;
                for (keyword, member) in members.iter() {
                    match (&**keyword, member) {
                        ("$anchor" | "$dynamicAnchor", Value::String(name)) => {
                            names.entry(name).or_insert(value);
                        }
                        ("$id" | "id", Value::String(id)) => {
                            names.entry(file_of(id)).or_insert(value);
                        }
                        ("pattern", Value::String(pattern)) => self.add_pattern(pattern)?,
                        ("patternProperties", Value::Object(patterns)) => {
                            patterns.keys().try_for_each(|pattern| self.add_pattern(pattern))?;
                        }
                        _ => {}
                    }
                    self.look_through(member, names)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_pattern(&mut self, pattern: &str) -> Result<(), String> {
        let places = match Pattern::new(pattern) {
            Ok(pattern) => pattern.places(),
            Err(error) if error.is_limit => return Err(error.message),
            // Schemas have words of their own for some patterns, which the compiler translates.
            Err(_) => rough_places(pattern),
        };
        self.places = self.places.max(places);
        Ok(())
    }
}

/// At most as many places as a pattern has that cannot be read here.
fn rough_places(pattern: &str) -> u64 {
    let numbers = pattern.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    let times = numbers.map(|n: u64| n.max(1)).fold(1, u64::saturating_mul);
    (pattern.len() as u64).saturating_mul(times)
}

/// The last part of an address, without what follows `#`.
fn file_of(address: &str) -> &str {
    let address = address.split('#').next().unwrap_or("");
    address.trim_end_matches('/').rsplit('/').next().unwrap_or("")
}

#[derive(Clone, Copy)]
struct Measured {
    schemas: u64,
    same_value: usize,
}

struct Counting<'a> {
    root: &'a Value,
    names: BTreeMap<&'a str, &'a Value>,
    /// By address; nothing for what is being counted, which a circle leads back to.
    known: BTreeMap<usize, Option<Measured>>,
}

impl<'a> Counting<'a> {
    fn measure(&mut self, value: &'a Value, depth: usize) -> Result<Measured, String> {
        if depth > NESTING_MAX {
            return Err(format!("it nests more than {NESTING_MAX} schemas, references followed"));
        }
        let nothing = Measured { schemas: 0, same_value: 0 };
        let members = match value {
            Value::Object(members) => members,
            Value::Array(items) => {
                return items.iter().try_fold(nothing, |sum, item| {
                    let item = self.measure(item, depth + 1)?;
                    Ok(Measured {
                        schemas: sum.schemas.saturating_add(item.schemas),
                        same_value: sum.same_value.max(item.same_value),
                    })
                });
            }
            _ => return Ok(nothing),
        };
        let place = std::ptr::from_ref(&**members) as usize;
        if let Some(known) = self.known.get(&place) {
            return Ok(known.unwrap_or(Measured { schemas: 1, same_value: 0 }));
        }
        self.known.insert(place, None);
        let mut sum = Measured { schemas: 1, same_value: 1 };
        for (keyword, member) in members.iter() {
            let (target, applies) = match member {
                Value::String(reference) if REFERENCES.contains(&&**keyword) => {
                    (self.target(reference), true)
                }
                other => (Some(other), SAME_VALUE.contains(&&**keyword)),
            };
            let Some(target) = target else { continue };
            let inner = self.measure(target, depth + 1)?;
            // Definitions are compiled where they are named.
            if matches!(&**keyword, "$defs" | "definitions") {
                continue;
            }
            sum.schemas = sum.schemas.saturating_add(inner.schemas);
            if applies {
                sum.same_value = sum.same_value.max(inner.same_value + 1);
            }
        }
        self.known.insert(place, Some(sum));
        Ok(sum)
    }

    /// What a reference leads to, if that stands in this schema.
    fn target(&self, reference: &str) -> Option<&'a Value> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = match file_of(address) {
            "" => self.root,
            file => self.names.get(file)?,
        };
        if fragment.is_empty() {
            return Some(base);
        }
        let Some(pointer) = fragment.strip_prefix('/') else {
            return self.names.get(fragment).copied();
        };
        pointer.split('/').try_fold(base, |at, part| {
            let part = part.replace("~1", "/").replace("~0", "~").replace("%24", "$");
            match at {
                Value::Array(items) => items.get(part.parse::<usize>().ok()?),
                other => other.get(&part),
            }
        })
    }
}
