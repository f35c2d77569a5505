//! Converts a schema to the subset that a host supports, and builds the rule that restores
//! arguments.
//!
//! The result keeps as much as possible: references are inlined, unsupported constraints become
//! text in the description, and values that cannot be described are passed as JSON text.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::flatten::{FlatSchema, type_names};
use super::profile::{Profile, is_annotation};
use super::restore::{MemberRule, RestoreRule};
use super::{ArgumentsEffect, LossHandling, UnattributedLoss, naming};
use crate::limits::Limits;
use crate::schema::Schema;
use crate::value::{Map, Value};

/// The longest part of a schema that a description repeats.
const NOTE_CHARS_MAX: usize = 200;

/// The member that holds the arguments when they cannot be the root object.
const ARGUMENTS: &str = "arguments";

/// Why a schema cannot be converted.
#[derive(Debug)]
pub(super) struct ConvertError {
    pub(super) message: String,
    /// Whether it could be converted without `strict`.
    pub(super) is_only_strict: bool,
}

impl ConvertError {
    pub(super) fn new(message: impl Into<String>) -> ConvertError {
        ConvertError { message: message.into(), is_only_strict: false }
    }
}

pub(super) type ConvertResult<T> = Result<T, ConvertError>;

/// A converted schema and the rule that restores its values.
pub(super) type ConvertedSchema = (Value, RestoreRule);

pub(super) struct Converter<'a> {
    profile: &'static Profile,
    limits: &'a Limits,
    pub(super) root: &'a Value,
    /// References that are being inlined.
    pub(super) open: Vec<String>,
    pub(super) lost: Vec<UnattributedLoss>,
    nodes: usize,
    depth: usize,
    objects_deep: usize,
    members: usize,
    choices: usize,
}

/// The schema of arguments for a host that supports every object schema.
pub(super) fn object_schema(json: &Value) -> Result<Value, String> {
    let mut schema = match json {
        Value::Object(schema) => (**schema).clone(),
        Value::Bool(true) => Map::new(),
        _ => return Err("its input is not an object schema".to_owned()),
    };
    let types = schema.get("type").map(type_names);
    if types.as_ref().is_some_and(|types| !types.contains(&"object")) {
        return Err("its input is not an object".to_owned());
    }
    if types.is_none() {
        schema.shift_insert(0, "type".into(), Value::from("object"));
    } else {
        schema.insert("type".into(), Value::from("object"));
    }
    Ok(schema.into())
}

impl<'a> Converter<'a> {
    pub(super) fn new(
        profile: &'static Profile,
        root: &'a Value,
        limits: &'a Limits,
    ) -> Converter<'a> {
        Converter {
            profile,
            limits,
            root,
            open: Vec::new(),
            lost: Vec::new(),
            nodes: 0,
            depth: 0,
            objects_deep: 0,
            members: 0,
            choices: 0,
        }
    }

    pub(super) fn record_loss(
        &mut self,
        path: &str,
        feature: &str,
        done: LossHandling,
        arguments: ArgumentsEffect,
    ) {
        self.lost.push(UnattributedLoss::new(path, feature, done, arguments));
    }

    /// Counts a schema. Inlined references could make a small schema endless.
    pub(super) fn count(&mut self) -> ConvertResult<()> {
        self.nodes += 1;
        if self.nodes > self.limits.document_nodes_max {
            let max = self.limits.document_nodes_max;
            return Err(ConvertError::new(format!(
                "with its references it has more than {max} schemas"
            )));
        }
        Ok(())
    }

    /// Checks bounds that only a host's strict form has.
    fn bounded(&self) -> ConvertResult<()> {
        let bounds = &self.profile.bounds;
        let within = self.members <= bounds.members
            && self.choices <= bounds.choices
            && self.objects_deep <= bounds.objects_deep;
        if within {
            return Ok(());
        }
        let message = "its schema is larger than the strict form allows".to_owned();
        Err(ConvertError { message, is_only_strict: true })
    }

    /// Converts the schema of a tool's arguments, which always are an object.
    pub(super) fn arguments(&mut self, path: &str) -> ConvertResult<ConvertedSchema> {
        let schema = object_schema(self.root).map_err(ConvertError::new)?;
        let Value::Object(schema) = schema else { unreachable!("it is an object's schema") };
        let FlatSchema::Plain(mut flat) = self.flatten(&schema, path)? else {
            return Err(ConvertError::new("its input contains nothing but itself"));
        };
        let types = flat.get("type").map_or_else(Vec::new, type_names);
        if !types.contains(&"object") {
            return Err(ConvertError::new("its input is not an object"));
        }
        flat.insert("type".into(), Value::from("object"));
        let union = ["anyOf", "oneOf"].into_iter().find(|keyword| flat.contains_key(*keyword));
        let is_open = needs_text(&flat).then_some("additionalProperties");
        if let Some(reason) = union.or(is_open).filter(|_| self.profile.closed) {
            self.record_loss(path, reason, LossHandling::Wrapped, ArgumentsEffect::Same);
            let (inner, way) = self.flat(&flat, path)?;
            let mut members = Map::new();
            members.insert(ARGUMENTS.into(), inner);
            let required = Value::from(vec![Value::from(ARGUMENTS)]);
            let wrapped = Value::object([
                ("type", Value::from("object")),
                ("properties", members.into()),
                ("required", required),
                ("additionalProperties", Value::Bool(false)),
            ]);
            return Ok((wrapped, RestoreRule::Inside(ARGUMENTS.into(), Box::new(way))));
        }
        let (schema, way) = self.plain(&flat, path, true)?;
        let Value::Object(schema) = schema else { unreachable!("a converted schema is an object") };
        let mut schema = (*schema).clone();
        // Some hosts reject an object without `properties`, even an empty one.
        schema.entry("properties".into()).or_insert_with(Value::empty_object);
        Ok((schema.into(), way))
    }

    /// Converts the schema of any value.
    pub(super) fn value(&mut self, path: &str) -> ConvertResult<Value> {
        let root = self.root;
        self.schema(root, path).map(|(schema, _)| schema)
    }

    pub(super) fn schema(&mut self, schema: &Value, path: &str) -> ConvertResult<ConvertedSchema> {
        self.count()?;
        let open = self.open.len();
        self.depth += 1;
        if self.depth > self.limits.document_depth_max {
            let max = self.limits.document_depth_max;
            return Err(ConvertError::new(format!("its schema is nested more than {max} deep")));
        }
        let converted = match schema {
            Value::Bool(true) => self.anything(path, "any", ArgumentsEffect::Same),
            // No value matches `false`, and no host can express that.
            Value::Bool(false) => self.anything(path, "false", ArgumentsEffect::Wider),
            Value::Object(schema) => match self.flatten(schema, path)? {
                FlatSchema::Plain(flat) => self.flat(&flat, path)?,
                FlatSchema::Recursive => self.anything(path, "$ref", ArgumentsEffect::Wider),
            },
            _ => return Err(ConvertError::new(format!("there is no schema at {path}"))),
        };
        self.depth -= 1;
        self.open.truncate(open);
        Ok(converted)
    }

    /// A value without constraints.
    fn anything(&mut self, path: &str, feature: &str, meaning: ArgumentsEffect) -> ConvertedSchema {
        if self.profile.closed {
            self.record_loss(path, feature, LossHandling::Encoded, meaning);
            return (text_schema(&Map::new()), RestoreRule::Text);
        }
        if meaning != ArgumentsEffect::Same {
            self.record_loss(path, feature, LossHandling::Dropped, meaning);
        }
        (Value::empty_object(), RestoreRule::Same)
    }

    pub(super) fn flat(&mut self, flat: &Map, path: &str) -> ConvertResult<ConvertedSchema> {
        if !self.profile.closed || !needs_text(flat) {
            return self.plain(flat, path, false);
        }
        let constrained = flat.keys().any(|keyword| !is_annotation(keyword));
        let (feature, meaning) = if constrained {
            ("object", ArgumentsEffect::Wider)
        } else {
            ("any", ArgumentsEffect::Same)
        };
        self.record_loss(path, feature, LossHandling::Encoded, meaning);
        Ok((text_schema(flat), RestoreRule::Text))
    }

    /// Converts a schema without references, keyword by keyword.
    fn plain(&mut self, flat: &Map, path: &str, at_root: bool) -> ConvertResult<ConvertedSchema> {
        for keyword in ["anyOf", "oneOf"] {
            if flat.contains_key(keyword)
                && let Some(converted) = self.union(flat, keyword, path, at_root)?
            {
                return Ok(converted);
            }
        }
        let (mut out, mut notes) = (Map::new(), Vec::new());
        for (keyword, value) in flat {
            self.keyword(keyword, value, flat, path, &mut out, &mut notes);
        }
        if self.profile.closed && !out.contains_key("type") {
            out.shift_insert(0, "type".into(), inferred_type(flat));
        }
        let types: Vec<String> = out
            .get("type")
            .map_or_else(Vec::new, type_names)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let has = |keywords: &[&str], kind: &str| {
            keywords.iter().any(|keyword| flat.contains_key(*keyword))
                || (self.profile.closed && types.iter().any(|word| word == kind))
        };
        let is_object = has(&["properties", "required", "additionalProperties"], "object");
        let is_array = has(&["items", "prefixItems"], "array");
        let mut way = RestoreRule::Same;
        if is_object {
            way = self.object(flat, path, &mut out)?;
        }
        if is_array {
            let items = self.array(flat, path, &mut out, &mut notes)?;
            way = RestoreRule::both(way, items);
        }
        describe(flat, &notes, &mut out);
        self.bounded()?;
        Ok((out.into(), way))
    }

    /// Converts one keyword without nested schemas.
    pub(super) fn keyword(
        &mut self,
        keyword: &Arc<str>,
        value: &Value,
        flat: &Map,
        path: &str,
        out: &mut Map,
        notes: &mut Vec<String>,
    ) {
        let at = format!("{path}/{keyword}");
        match &**keyword {
            "description" | "properties" | "required" | "additionalProperties" => {}
            "items" | "prefixItems" | "additionalItems" => {}
            "$defs" | "definitions" => {
                self.record_loss(&at, keyword, LossHandling::Inlined, ArgumentsEffect::Same);
            }
            "patternProperties" => {
                let is_closed = flat.get("additionalProperties") == Some(&Value::Bool(false));
                let meaning =
                    if is_closed { ArgumentsEffect::Narrower } else { ArgumentsEffect::Wider };
                self.note(&at, keyword, value, meaning, notes);
            }
            "anyOf" | "oneOf" => {
                self.note(&at, keyword, value, ArgumentsEffect::Wider, notes);
                if let (false, Some(types)) = (flat.contains_key("type"), types_of(value)) {
                    out.insert("type".into(), types);
                }
            }
            "const" if !self.profile.supports("const") => {
                let only = Value::from(vec![value.clone()]);
                if self.profile.accepts("enum", &only) {
                    self.record_loss(&at, keyword, LossHandling::Converted, ArgumentsEffect::Same);
                    out.insert("enum".into(), only);
                } else {
                    self.note(&at, keyword, value, ArgumentsEffect::Wider, notes);
                }
            }
            known if self.profile.accepts(known, value) => {
                if known == "enum" {
                    self.choices += value.as_array().map_or(0, |values| values.len());
                }
                out.insert(keyword.clone(), value.clone());
            }
            "default" | "examples" | "example" => {
                self.note(&at, keyword, value, ArgumentsEffect::Same, notes);
            }
            known if is_annotation(known) => {
                self.record_loss(&at, keyword, LossHandling::Dropped, ArgumentsEffect::Same);
            }
            _ => self.note(&at, keyword, value, ArgumentsEffect::Wider, notes),
        }
    }

    /// Describes an unsupported keyword in words, if that is short enough to read.
    fn note(
        &mut self,
        at: &str,
        keyword: &str,
        value: &Value,
        meaning: ArgumentsEffect,
        notes: &mut Vec<String>,
    ) {
        let note = format!("{keyword}: {}", value.to_json());
        if note.chars().count() > NOTE_CHARS_MAX {
            return self.record_loss(at, keyword, LossHandling::Dropped, meaning);
        }
        self.record_loss(at, keyword, LossHandling::Described, meaning);
        notes.push(note);
    }

    /// Converts members: names, required ones, and additional ones.
    fn object(&mut self, flat: &Map, path: &str, out: &mut Map) -> ConvertResult<RestoreRule> {
        let empty = Map::new();
        let properties = match flat.get("properties") {
            Some(Value::Object(properties)) => properties,
            _ => &empty,
        };
        let required: Vec<Arc<str>> = flat.get("required").map_or_else(Vec::new, texts);
        let mut names: Vec<Arc<str>> = properties.keys().cloned().collect();
        // A required member without a schema can be anything.
        let undescribed = required.iter().filter(|name| !properties.contains_key(*name));
        names.extend(undescribed.filter(|_| self.profile.closed).cloned());
        let exposed = match self.profile.members {
            Some(rule) => naming::members(&names, rule),
            None => names.clone(),
        };
        let is_open =
            !self.profile.closed && flat.get("additionalProperties") != Some(&Value::Bool(false));
        self.members += names.len();
        self.objects_deep += 1;
        self.bounded()?;
        let (mut members, mut ways, mut must) = (Map::new(), BTreeMap::new(), Vec::new());
        for (name, exposed) in names.iter().zip(exposed) {
            let at = format!("{path}/properties/{}", escaped(name));
            if *name != exposed {
                // Its original name may then be passed as an unlisted member.
                let meaning = if is_open { ArgumentsEffect::Wider } else { ArgumentsEffect::Same };
                self.record_loss(&at, "name", LossHandling::Renamed, meaning);
            }
            let schema = properties.get(name).unwrap_or(&Value::Bool(true));
            let (mut schema, way) = self.schema(schema, &at)?;
            let mut is_absent_when_null = false;
            let is_required = required.contains(name);
            if !is_required && self.profile.all_required {
                is_absent_when_null =
                    !Schema::new(schema.clone()).violations(&Value::Null).is_empty();
                if is_absent_when_null {
                    schema = nullable(schema);
                }
                // Where `null` is a valid value, it cannot also mean "absent".
                let meaning = if is_absent_when_null {
                    ArgumentsEffect::Same
                } else {
                    ArgumentsEffect::Narrower
                };
                self.record_loss(&at, "optional", LossHandling::Required, meaning);
            }
            if is_required || self.profile.all_required {
                must.push(Value::String(exposed.clone()));
            }
            members.insert(exposed.clone(), schema);
            ways.insert(exposed, MemberRule { name: name.clone(), way, is_absent_when_null });
        }
        self.objects_deep -= 1;
        let undescribed = required.iter().filter(|name| !names.contains(name));
        must.extend(undescribed.map(|name| Value::String(name.clone())));
        if !members.is_empty() || self.profile.closed {
            out.insert("properties".into(), members.into());
        }
        if !must.is_empty() || self.profile.all_required {
            out.insert("required".into(), must.into());
        }
        let rest = self.other_members(flat, path, out)?;
        Ok(RestoreRule::object(ways, rest))
    }

    /// Converts additional members.
    fn other_members(
        &mut self,
        flat: &Map,
        path: &str,
        out: &mut Map,
    ) -> ConvertResult<RestoreRule> {
        let key = "additionalProperties";
        let others = flat.get(key);
        if self.profile.closed {
            if others != Some(&Value::Bool(false)) {
                self.record_loss(
                    &format!("{path}/{key}"),
                    key,
                    LossHandling::Closed,
                    ArgumentsEffect::Narrower,
                );
            }
            out.insert(key.into(), Value::Bool(false));
            return Ok(RestoreRule::Same);
        }
        match others {
            None => Ok(RestoreRule::Same),
            Some(flag @ Value::Bool(_)) => {
                out.insert(key.into(), flag.clone());
                Ok(RestoreRule::Same)
            }
            // It applied only to members that match no pattern.
            Some(_) if flat.contains_key("patternProperties") => {
                self.record_loss(
                    &format!("{path}/{key}"),
                    key,
                    LossHandling::Dropped,
                    ArgumentsEffect::Wider,
                );
                Ok(RestoreRule::Same)
            }
            Some(schema) => {
                let (schema, way) = self.schema(schema, &format!("{path}/{key}"))?;
                out.insert(key.into(), schema);
                Ok(way)
            }
        }
    }

    fn array(
        &mut self,
        flat: &Map,
        path: &str,
        out: &mut Map,
        notes: &mut Vec<String>,
    ) -> ConvertResult<RestoreRule> {
        let items = flat.get("items");
        // Older drafts list the first items in `items`, where newer ones describe the remaining
        // items.
        let listed = flat.get("prefixItems").or(items.filter(|items| items.as_array().is_some()));
        let rest = items.filter(|items| items.as_array().is_none());
        let Some(listed) = listed else {
            let Some(rest) = rest.or(self.profile.closed.then_some(&Value::Bool(true))) else {
                return Ok(RestoreRule::Same);
            };
            let (schema, way) = self.schema(rest, &format!("{path}/items"))?;
            out.insert("items".into(), schema);
            return Ok(RestoreRule::array(Vec::new(), way));
        };
        let at = format!("{path}/prefixItems");
        if !self.profile.supports("prefixItems") {
            self.note(&at, "prefixItems", listed, ArgumentsEffect::Wider, notes);
            if !self.profile.closed {
                return Ok(RestoreRule::Same);
            }
            let (schema, way) = self.schema(&Value::Bool(true), &format!("{path}/items"))?;
            out.insert("items".into(), schema);
            return Ok(RestoreRule::array(Vec::new(), way));
        }
        let (mut schemas, mut ways) = (Vec::new(), Vec::new());
        for (index, item) in listed.as_array().into_iter().flat_map(|l| l.iter()).enumerate() {
            let (schema, way) = self.schema(item, &format!("{at}/{index}"))?;
            schemas.push(schema);
            ways.push(way);
        }
        out.insert("prefixItems".into(), schemas.into());
        let rest = match rest {
            Some(rest @ Value::Object(_)) => {
                let (schema, way) = self.schema(rest, &format!("{path}/items"))?;
                out.insert("items".into(), schema);
                way
            }
            Some(Value::Bool(false)) => {
                self.record_loss(
                    &format!("{path}/items"),
                    "items",
                    LossHandling::Dropped,
                    ArgumentsEffect::Wider,
                );
                RestoreRule::Same
            }
            _ => RestoreRule::Same,
        };
        Ok(RestoreRule::array(ways, rest))
    }

    pub(super) fn profile(&self) -> &'static Profile {
        self.profile
    }
}

/// Whether a host that requires closed objects can only take this value as JSON text.
fn needs_text(flat: &Map) -> bool {
    let has = |keywords: &[&str]| keywords.iter().any(|keyword| flat.contains_key(*keyword));
    if has(&["enum", "const", "anyOf", "oneOf"]) {
        return false;
    }
    let names_members = |keyword: &str| match flat.get(keyword) {
        Some(Value::Object(members)) => !members.is_empty(),
        Some(Value::Array(names)) => !names.is_empty(),
        _ => false,
    };
    if names_members("properties") || names_members("required") {
        return false;
    }
    let types = flat.get("type").map_or_else(Vec::new, type_names);
    let is_open = flat.get("additionalProperties") != Some(&Value::Bool(false));
    match types.as_slice() {
        [] => !has(&["items", "prefixItems"]),
        types => types.contains(&"object") && is_open,
    }
}

fn text_schema(flat: &Map) -> Value {
    let words = flat.get("description").and_then(Value::as_str).unwrap_or_default();
    let mut shown = flat.clone();
    shown.shift_remove("description");
    let json = Value::from(shown.clone()).to_json();
    let how = if shown.is_empty() || json.chars().count() > NOTE_CHARS_MAX {
        "the JSON of a value, as text".to_owned()
    } else {
        format!("the JSON of a value, as text; its schema: {json}")
    };
    let description = if words.is_empty() { how } else { format!("{words} ({how})") };
    Value::object([("type", Value::from("string")), ("description", Value::from(description))])
}

/// The description, with the notes about unsupported keywords.
pub(super) fn describe(flat: &Map, notes: &[String], out: &mut Map) {
    let own = flat.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = match (own, notes) {
        (own, []) => own.to_owned(),
        ("", notes) => notes.join(", "),
        (own, notes) => format!("{own} ({})", notes.join(", ")),
    };
    if !description.is_empty() {
        out.insert("description".into(), Value::from(description));
    }
}

/// Makes a schema accept `null`.
pub(super) fn nullable(schema: Value) -> Value {
    let Value::Object(members) = &schema else { return schema };
    let mut out = (**members).clone();
    let null = || Value::from("null");
    if let Some(types) = out.get("type") {
        let mut types: Vec<Value> = type_names(types).into_iter().map(Value::from).collect();
        if !types.contains(&null()) {
            types.push(null());
            out.insert("type".into(), types.into());
        }
        let only = out.shift_remove("const");
        let choices = match (out.get("enum"), only) {
            (Some(Value::Array(values)), _) => Some(values.to_vec()),
            (_, only) => only.map(|only| vec![only]),
        };
        if let Some(mut choices) = choices.filter(|choices| !choices.contains(&Value::Null)) {
            choices.push(Value::Null);
            out.insert("enum".into(), choices.into());
        }
        return out.into();
    }
    let mut branches = match out.get("anyOf") {
        Some(Value::Array(branches)) => branches.to_vec(),
        _ => return schema,
    };
    branches.push(Value::object([("type", null())]));
    out.insert("anyOf".into(), branches.into());
    out.into()
}

/// Infers the type of a schema without `type`.
fn inferred_type(flat: &Map) -> Value {
    let values: Vec<&Value> = match (flat.get("enum"), flat.get("const")) {
        (Some(Value::Array(values)), _) => values.iter().collect(),
        (_, Some(value)) => vec![value],
        _ if flat.contains_key("items") || flat.contains_key("prefixItems") => {
            return Value::from("array");
        }
        _ => return Value::from("object"),
    };
    let mut types: Vec<Value> = values.iter().map(|value| Value::from(value.kind())).collect();
    let mut known = Vec::new();
    types.retain(|word| !known.contains(word) && (known.push(word.clone()), true).1);
    if types.len() == 1 { types.remove(0) } else { types.into() }
}

/// The types of all branches, if each declares its own.
fn types_of(branches: &Value) -> Option<Value> {
    let mut types: Vec<Value> = Vec::new();
    for branch in branches.as_array()?.iter() {
        for word in type_names(branch.get("type")?) {
            if !types.contains(&Value::from(word)) {
                types.push(Value::from(word));
            }
        }
    }
    Some(if types.len() == 1 { types.remove(0) } else { types.into() })
}

fn texts(value: &Value) -> Vec<Arc<str>> {
    let items = value.as_array().into_iter().flat_map(|items| items.iter());
    items.filter_map(Value::as_str).map(Arc::from).collect()
}

/// Escapes a name for a JSON Pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
