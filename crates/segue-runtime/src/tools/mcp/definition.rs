//! Translates a server's tool definitions into Segue's.
//!
//! Names become ids, so they must be plain: a name that is not plain is refused, and two names of a
//! server that look alike are both refused. People and models read the texts, so invisible
//! characters are removed. A tool's pin covers its definition as received, with every field, and
//! the server's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::id::ToolId;
use segue_core::schema::Schema;
use segue_core::tool::{Annotations, Backend, DeclaredRollback, ToolSpec, hex_digest};
use segue_core::value::Value;

use super::task::TaskSupport;

/// The longest name.
const NAME_BYTES_MAX: usize = 128;

/// The longest description; the protocol sets no limit, and hosts cut at about half of this.
const DESCRIPTION_CHARS_MAX: usize = 4_096;

/// A tool of a server.
#[derive(Clone, Debug)]
pub struct ToolDefinition {
    /// The definition as Segue uses it.
    pub spec: Arc<ToolSpec>,
    /// The hash of the definition as received, and of the server's configuration.
    pub pin: Arc<str>,
    /// Whether it is called as a task.
    pub task: TaskSupport,
}

/// The tools of a server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The usable tools by name.
    pub tools: BTreeMap<Arc<str>, ToolDefinition>,
    /// Why other tools cannot be used, for people.
    pub notes: Vec<String>,
    /// All definitions as received.
    pub raw: Vec<Value>,
}

impl Listing {
    /// The names of all definitions, usable or not.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        let names = self.raw.iter().filter_map(|definition| definition.get("name"));
        names.filter_map(Value::as_str).map(ToOwned::to_owned)
    }

    /// Reads definitions as received.
    pub(super) fn read(server: &str, identity: &str, raw: Vec<Value>) -> Listing {
        let mut listing = Listing::default();
        let mut looks: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        for definition in &raw {
            let name: Arc<str> = match definition.get("name").and_then(Value::as_str) {
                Some(name) if is_plain(name) => name.into(),
                Some(name) => {
                    let shown = strip_invisible(name, 64);
                    listing.notes.push(format!("the name `{shown}` is not letters, digits, `_.-`"));
                    continue;
                }
                None => {
                    listing.notes.push("a tool has no name".to_owned());
                    continue;
                }
            };
            looks.entry(confusable_form(&name)).or_default().push(name.clone());
            match read_one(server, identity, &name, definition) {
                Ok(tool) => {
                    listing.tools.insert(name, tool);
                }
                Err(why) => listing.notes.push(format!("`{name}`: {why}")),
            }
        }
        for names in looks.into_values().filter(|names| names.len() > 1) {
            listing.notes.push(format!("`{}` look alike", names.join("`, `")));
            names.iter().for_each(|name| drop(listing.tools.remove(name)));
        }
        listing.raw = raw;
        listing
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

/// A form that is equal for names which people confuse.
pub fn confusable_form(name: &str) -> String {
    let mut look = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '0' => look.push('o'),
            '1' | 'I' | '|' => look.push('l'),
            'm' | 'M' => look.push_str("rn"),
            'w' | 'W' => look.push_str("vv"),
            '-' => look.push('_'),
            other => look.extend(other.to_lowercase()),
        }
    }
    look
}

fn read_one(
    server: &str,
    identity: &str,
    name: &str,
    definition: &Value,
) -> Result<ToolDefinition, String> {
    let schema = |key: &str| match definition.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(json @ (Value::Object(_) | Value::Bool(_))) => {
            let schema = Schema::new(readable(json));
            match schema.check() {
                Ok(()) => Ok(Some(Arc::new(schema))),
                Err(violation) => Err(format!("its `{key}` is not a schema: {violation}")),
            }
        }
        Some(other) => Err(format!("its `{key}` is {}, not a schema", other.kind())),
    };
    let text = |key: &str| definition.get(key).and_then(Value::as_str);
    let description = text("description").or_else(|| text("title")).unwrap_or_default();
    let hint = |key: &str| definition.get("annotations")?.get(key)?.as_bool();
    let annotations = Annotations {
        read_only: hint("readOnlyHint"),
        destructive: hint("destructiveHint"),
        idempotent: hint("idempotentHint"),
        open_world: hint("openWorldHint"),
    };
    mirrored_headers_are_fine(definition)?;
    let reads = annotations.read_only == Some(true);
    let pin = pin(identity, definition);
    let spec = ToolSpec {
        output: schema("outputSchema")?,
        annotations,
        rollback: if reads { DeclaredRollback::NotNeeded } else { DeclaredRollback::Unknown },
        pin: Some(pin.clone()),
        backend: Backend::Mcp,
        ..ToolSpec::new(
            ToolId::new(server, name),
            strip_invisible(description, DESCRIPTION_CHARS_MAX),
            schema("inputSchema")?.unwrap_or_else(Schema::any_object),
        )
    };
    Ok(ToolDefinition { spec: Arc::new(spec), pin, task: TaskSupport::of(definition) })
}

/// Checks parameters that are also sent as headers: each has a valid and unique header name, and a
/// simple type.
fn mirrored_headers_are_fine(definition: &Value) -> Result<(), String> {
    let properties = definition.get("inputSchema").and_then(|schema| schema.get("properties"));
    let mut names = BTreeSet::new();
    for (parameter, schema) in
        properties.and_then(Value::as_object).into_iter().flat_map(|p| p.iter())
    {
        let Some(header) = schema.get("x-mcp-header") else { continue };
        let name = header.as_str().unwrap_or("");
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(format!("the header of its parameter `{parameter}` has an invalid name"));
        }
        let ty = schema.get("type").and_then(Value::as_str);
        if !matches!(ty, Some("string" | "integer" | "boolean")) {
            return Err(format!("its parameter `{parameter}` has a header and no simple type"));
        }
        if !names.insert(name.to_ascii_lowercase()) {
            return Err(format!("two of its parameters have the header `{name}`"));
        }
    }
    Ok(())
}

fn pin(identity: &str, definition: &Value) -> Arc<str> {
    let whole =
        Value::object([("server", Value::from(identity)), ("definition", definition.clone())]);
    hex_digest(whole.to_canonical_json().as_bytes()).into()
}

/// A schema whose descriptions have no invisible characters. Values in it stay as they are.
fn readable(schema: &Value) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(readable).collect::<Vec<_>>().into(),
        Value::Object(members) => Value::object(members.iter().map(|(key, value)| {
            let value = match (&**key, value) {
                ("description" | "title" | "$comment", Value::String(text)) => {
                    Value::from(strip_invisible(text, DESCRIPTION_CHARS_MAX))
                }
                ("enum" | "const" | "default" | "examples", value) => value.clone(),
                (_, value) => readable(value),
            };
            (key.clone(), value)
        })),
        other => other.clone(),
    }
}

/// Removes invisible characters: controls, direction marks, joiners, tags, private use.
pub(super) fn strip_invisible(text: &str, chars_max: usize) -> String {
    let seen = text.chars().filter(|character| match character {
        '\n' | '\t' => true,
        character if character.is_control() => false,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{e000}'..='\u{f8ff}'
        | '\u{e0000}'..='\u{10ffff}' => false,
        _ => true,
    });
    let mut text: String = seen.take(chars_max + 1).collect();
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use segue_core::value::Value;

    use super::{Listing, confusable_form, strip_invisible};

    fn listing(json: &str) -> Listing {
        let raw: serde_json::Value = serde_json::from_str(json).unwrap();
        let raw = Value::from(raw).as_array().unwrap().to_vec();
        Listing::read("s", "identity", raw)
    }

    #[test]
    fn what_cannot_be_seen_is_taken_out() {
        let hidden = "read\u{200b} a\u{202e}\u{1b}[31m file\u{e0041}\u{e0042}\nnow";
        assert_eq!(strip_invisible(hidden, 100), "read a[31m file\nnow");
        assert_eq!(strip_invisible("abcdef", 3), "abc…");
    }

    #[test]
    fn names_that_look_alike_are_refused_together() {
        for (one, other) in [
            ("pay", "Pay"),
            ("login", "Iogin"),
            ("r0ot", "root"),
            ("a-b", "a_b"),
            ("modern", "rnodern"),
        ] {
            assert_eq!(confusable_form(one), confusable_form(other));
            let json = format!(r#"[{{"name":"{one}"}},{{"name":"{other}"}},{{"name":"fine"}}]"#);
            let listing = listing(&json);
            assert_eq!(listing.tools.keys().map(|k| &**k).collect::<Vec<_>>(), ["fine"]);
            assert_eq!(listing.notes.len(), 1);
        }
        assert_ne!(confusable_form("tail"), confusable_form("tall"));
        assert_eq!(
            listing(r#"[{"name":"p\u0430y"},{"name":"a b"},{"title":"none"}]"#).notes.len(),
            3
        );
    }

    #[test]
    fn a_pin_covers_unknown_fields() {
        let pin = |json: &str| listing(json).tools["t"].pin.clone();
        let plain = pin(r#"[{"name":"t","description":"d"}]"#);
        assert_eq!(plain, pin(r#"[{"description":"d","name":"t"}]"#));
        assert_ne!(plain, pin(r#"[{"name":"t","description":"d","x-vendor":1}]"#));
        // Invisible in the shown text, and still a change.
        assert_ne!(plain, pin(r#"[{"name":"t","description":"d\u200b"}]"#));
    }

    #[test]
    fn lies_in_schemas_cost_only_their_tool() {
        let json = r#"[{"name":"a","inputSchema":{"type":12}},{"name":"b","inputSchema":"no"},
            {"name":"c","outputSchema":[1]},{"name":"d"}]"#;
        let listing = listing(json);
        assert_eq!(listing.tools.keys().map(|k| &**k).collect::<Vec<_>>(), ["d"]);
        assert_eq!(listing.notes.len(), 3);
    }

    /// References that multiply would exhaust the memory when they are compiled.
    #[test]
    fn a_ladder_of_references_costs_only_its_tool() {
        let rung = |n: usize| {
            let next = format!(r##"{{"$ref":"#/$defs/l{}"}}"##, n + 1);
            format!(r#""l{n}":{{"anyOf":[{next},{next}]}}"#)
        };
        let rungs: Vec<String> = (0..40).map(rung).collect();
        let ladder =
            format!(r##"{{"$ref":"#/$defs/l0","$defs":{{{},"l40":{{}}}}}}"##, rungs.join(","));
        let json = format!(
            r#"[{{"name":"a","inputSchema":{ladder}}},{{"name":"b","outputSchema":{ladder}}},{{"name":"c"}}]"#
        );
        let listing = listing(&json);
        assert_eq!(listing.tools.keys().map(|k| &**k).collect::<Vec<_>>(), ["c"]);
        assert!(listing.notes.iter().all(|note| note.contains("too large")), "{:?}", listing.notes);
    }
}
