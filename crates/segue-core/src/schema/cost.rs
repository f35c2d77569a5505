//! Computes the cost of a schema before it is compiled.
//!
//! The compiler inlines references: thirty definitions that each refer to the next one twice are a
//! billion schemas. And the validator recurses over schemas that apply to the same value. Both are
//! counted here first, visiting each definition once. Patterns are compiled at each occurrence, and
//! names are matched with all sibling patterns.

use std::collections::BTreeMap;

use crate::pattern::PatternCost;
use crate::value::{Map, Value};

/// Maximum number of schemas, with references inlined.
const SCHEMAS_MAX: u64 = 50_000;

/// The maximum for small schemas, and the allowed growth of others.
const SCHEMAS_FREE: u64 = 2_000;
const GROWTH_MAX: u64 = 50;

/// Maximum nesting of schemas, through references: the compiler recurses over them.
const NESTING_MAX: usize = 400;

/// Maximum nesting of schemas that apply to the same value: the validator recurses over them for
/// each level of a value.
const SAME_VALUE_MAX: usize = 32;

/// Maximum number of patterns, with references inlined.
const PATTERNS_MAX: u64 = 1_000;

/// Maximum number of operations for compiling them.
const COMPILATION_MAX: u64 = 1_500_000;

/// Beside this keyword the validator visits each name once and matches it with all patterns.
/// Otherwise it visits all names once for each pattern.
const IN_ONE_GO: &str = "additionalProperties";

/// Keywords whose schemas apply to the value itself.
const SAME_VALUE: &[&str] =
    &["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];

/// Keywords that refer to another schema.
const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];

/// The cost of an accepted schema.
#[derive(Clone, Copy)]
pub(super) struct SchemaCost {
    /// The places of its most expensive pattern.
    pub(super) places: u64,
    /// The patterns that a name is matched with at once: their number and their places.
    pub(super) names: (u64, u64),
}

/// The cost of a schema, or why it is rejected.
pub(super) fn cost(schema: &Value) -> Result<SchemaCost, String> {
    let mut names = BTreeMap::new();
    let mut found = SchemaCount { schemas: 0, cost: SchemaCost { places: 1, names: (1, 1) } };
    found.look_through(schema, &mut names)?;
    let mut counting = CostCounter { root: schema, names, known: BTreeMap::new() };
    let SubschemaCost { schemas, same_value, patterns, compilation } =
        counting.measure(schema, 0)?;
    let max = (found.schemas.saturating_mul(GROWTH_MAX)).clamp(SCHEMAS_FREE, SCHEMAS_MAX);
    if schemas > max {
        return Err(format!("with its references inlined it has more than {max} schemas"));
    }
    if same_value > SAME_VALUE_MAX {
        return Err(format!(
            "more than {SAME_VALUE_MAX} of its schemas apply to one value in turn"
        ));
    }
    if patterns > PATTERNS_MAX || compilation > COMPILATION_MAX {
        return Err(format!(
            "with its references inlined its patterns cost more than {PATTERNS_MAX} simple ones"
        ));
    }
    Ok(found.cost)
}

/// The cost of the patterns of one schema, without those of nested schemas.
#[derive(Default)]
struct Patterns {
    count: u64,
    compilation: u64,
    /// The places of the most expensive pattern, and of all that names are matched with.
    dearest: u64,
    of_names: u64,
}

impl Patterns {
    fn of(members: &Map) -> Result<Patterns, String> {
        let mut sum = Patterns::default();
        if let Some(Value::String(pattern)) = members.get("pattern") {
            sum.add(pattern)?;
        }
        if let Some(Value::Object(patterns)) = members.get("patternProperties") {
            for pattern in patterns.keys() {
                let places = sum.add(pattern)?;
                sum.of_names = sum.of_names.saturating_add(places);
            }
        }
        Ok(sum)
    }

    /// Counts a pattern, and returns its places.
    fn add(&mut self, pattern: &str) -> Result<u64, String> {
        let PatternCost { places, compilation } = match PatternCost::of(pattern) {
            Ok(weight) => weight,
            Err(error) if error.is_limit => return Err(error.message),
            // Schemas have escapes of their own, which the compiler translates.
            Err(_) => {
                PatternCost { places: rough_places(pattern), compilation: rough_places(pattern) }
            }
        };
        self.count += 1;
        self.compilation = self.compilation.saturating_add(compilation);
        self.dearest = self.dearest.max(places);
        Ok(places)
    }
}

/// Counts of a schema as written.
struct SchemaCount {
    schemas: u64,
    cost: SchemaCost,
}

impl SchemaCount {
    /// Counts schemas and patterns, and collects named schemas.
    fn look_through<'a>(
        &mut self,
        value: &'a Value,
        names: &mut BTreeMap<&'a str, &'a Value>,
    ) -> Result<(), String> {
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.look_through(item, names)),
            Value::Object(members) => {
                self.schemas += 1;
                self.add_patterns(members)?;
                for (keyword, member) in members.iter() {
                    match (&**keyword, member) {
                        ("$anchor" | "$dynamicAnchor", Value::String(name)) => {
                            names.entry(name).or_insert(value);
                        }
                        ("$id" | "id", Value::String(id)) => {
                            names.entry(file_of(id)).or_insert(value);
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

    fn add_patterns(&mut self, members: &Map) -> Result<(), String> {
        let patterns = Patterns::of(members)?;
        self.cost.places = self.cost.places.max(patterns.dearest);
        if members.contains_key(IN_ONE_GO) {
            let (count, places) = self.cost.names;
            self.cost.names = (count.max(patterns.count), places.max(patterns.of_names));
        }
        Ok(())
    }
}

/// An upper bound of the places of a pattern that cannot be parsed here.
fn rough_places(pattern: &str) -> u64 {
    let numbers = pattern.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    let times = numbers.map(|n: u64| n.max(1)).fold(1, u64::saturating_mul);
    (pattern.len() as u64).saturating_mul(times)
}

/// The last segment of a URL, without its fragment.
fn file_of(address: &str) -> &str {
    let address = address.split('#').next().unwrap_or("");
    address.trim_end_matches('/').rsplit('/').next().unwrap_or("")
}

#[derive(Clone, Copy)]
struct SubschemaCost {
    schemas: u64,
    same_value: usize,
    patterns: u64,
    compilation: u64,
}

impl SubschemaCost {
    const NOTHING: SubschemaCost =
        SubschemaCost { schemas: 0, same_value: 0, patterns: 0, compilation: 0 };

    /// Adds the cost of a schema that is compiled with it.
    fn add(&mut self, other: &SubschemaCost) {
        self.schemas = self.schemas.saturating_add(other.schemas);
        self.patterns = self.patterns.saturating_add(other.patterns);
        self.compilation = self.compilation.saturating_add(other.compilation);
    }
}

struct CostCounter<'a> {
    root: &'a Value,
    names: BTreeMap<&'a str, &'a Value>,
    /// By address; `None` while a schema is being counted, which a cycle leads back to.
    known: BTreeMap<usize, Option<SubschemaCost>>,
}

impl<'a> CostCounter<'a> {
    fn measure(&mut self, value: &'a Value, depth: usize) -> Result<SubschemaCost, String> {
        if depth > NESTING_MAX {
            return Err(format!("it nests more than {NESTING_MAX} schemas, references followed"));
        }
        let members = match value {
            Value::Object(members) => members,
            Value::Array(items) => {
                return items.iter().try_fold(SubschemaCost::NOTHING, |mut sum, item| {
                    let item = self.measure(item, depth + 1)?;
                    sum.add(&item);
                    Ok(SubschemaCost { same_value: sum.same_value.max(item.same_value), ..sum })
                });
            }
            _ => return Ok(SubschemaCost::NOTHING),
        };
        let place = std::ptr::from_ref(&**members) as usize;
        if let Some(known) = self.known.get(&place) {
            return Ok(known.unwrap_or(SubschemaCost { schemas: 1, ..SubschemaCost::NOTHING }));
        }
        self.known.insert(place, None);
        let Patterns { count, compilation, .. } = Patterns::of(members)?;
        let mut sum = SubschemaCost { schemas: 1, same_value: 1, patterns: count, compilation };
        for (keyword, member) in members.iter() {
            let (target, applies) = match member {
                Value::String(reference) if REFERENCES.contains(&&**keyword) => {
                    (self.target(reference), true)
                }
                other => (Some(other), SAME_VALUE.contains(&&**keyword)),
            };
            let Some(target) = target else { continue };
            let inner = self.measure(target, depth + 1)?;
            // Definitions are compiled where they are referenced.
            if matches!(&**keyword, "$defs" | "definitions") {
                continue;
            }
            sum.add(&inner);
            if applies {
                sum.same_value = sum.same_value.max(inner.same_value + 1);
            }
        }
        self.known.insert(place, Some(sum));
        Ok(sum)
    }

    /// The target of a reference, if it is in this schema.
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
