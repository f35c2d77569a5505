//! Images, audio and resources in the result of a run, as MCP servers return them.
//!
//! A tool that returns such content has the list of its items as its value, and a composition may use
//! them in its result. Hosts show an image only if it is a content item of the tool result. So the items
//! in a result are also sent as content: whole, or as a link if they are large.

use segue_core::value::Value;

/// How many items of one result are sent as content.
const ITEMS_MAX: usize = 64;

/// An item of content that is sent with a result.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentItem {
    /// The whole item.
    Whole(Value),
    /// A link to it.
    Link {
        /// The URI.
        uri: String,
        /// Its name.
        name: String,
        /// Its media type.
        mime_type: Option<String>,
    },
}

/// The content of the result of a run: whole items up to so many bytes in all, links for the rest.
pub fn content_items(run_id: &str, output: &Value, bytes_max: usize) -> Vec<ContentItem> {
    let mut left = bytes_max;
    let mut piece = |(at, item): (usize, &Value)| match left.checked_sub(size(item)) {
        Some(rest) => {
            left = rest;
            ContentItem::Whole(item.clone())
        }
        None => ContentItem::Link {
            uri: uri(run_id, at),
            name: format!("content {}", at + 1),
            mime_type: mime_type(item).map(str::to_owned),
        },
    };
    items(output).into_iter().enumerate().map(&mut piece).collect()
}

/// The items of content in a value, in order.
fn items(value: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    walk(value, &mut found);
    found
}

fn walk<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    if found.len() >= ITEMS_MAX {
        return;
    }
    if is_content(value) {
        return found.push(value);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
        Value::Object(members) => members.values().for_each(|member| walk(member, found)),
        _ => {}
    }
}

/// Whether a value is an item of content other than text.
fn is_content(value: &Value) -> bool {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    match text("type") {
        Some(kind @ ("image" | "audio")) => {
            let is_of_kind =
                |mime: &str| mime.strip_prefix(kind).is_some_and(|m| m.starts_with('/'));
            text("mimeType").is_some_and(is_of_kind) && text("data").is_some_and(is_base64)
        }
        Some("resource") => value.get("resource").is_some_and(|resource| {
            let text = |name: &str| resource.get(name).and_then(Value::as_str);
            text("uri").is_some() && (text("text").is_some() || text("blob").is_some_and(is_base64))
        }),
        // Our clients cannot read a link that only the tool server can.
        Some("resource_link") => {
            let is_readable = |uri: &str| uri.starts_with("https://") || uri.starts_with("http://");
            text("uri").is_some_and(is_readable) && text("name").is_some()
        }
        _ => false,
    }
}

fn is_base64(text: &str) -> bool {
    let plain = text.trim_end_matches('=');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    text.len().is_multiple_of(4) && text.len() - plain.len() <= 2 && plain.bytes().all(is_plain)
}

fn mime_type(item: &Value) -> Option<&str> {
    item.get("mimeType").or_else(|| item.get("resource")?.get("mimeType"))?.as_str()
}

/// About how many bytes an item has.
fn size(item: &Value) -> usize {
    let inside = item.get("resource").unwrap_or(item);
    let texts = ["data", "blob", "text"].map(|name| inside.get(name).and_then(Value::as_str));
    texts.into_iter().flatten().map(str::len).sum()
}

/// The content of an item: text, or bytes in base64.
pub struct ContentData<'a> {
    /// The text or the base64.
    pub text: &'a str,
    /// Whether it is base64.
    pub is_blob: bool,
    /// Its media type.
    pub mime_type: Option<&'a str>,
}

/// The item of a result with this number.
pub fn find(output: &Value, at: usize) -> Option<ContentData<'_>> {
    let item = items(output).into_iter().nth(at)?;
    let inside = item.get("resource").unwrap_or(item);
    let field = |name: &str| inside.get(name).and_then(Value::as_str);
    let mime_type = mime_type(item);
    match field("data").or_else(|| field("blob")) {
        Some(text) => Some(ContentData { text, is_blob: true, mime_type }),
        None => Some(ContentData { text: field("text")?, is_blob: false, mime_type }),
    }
}

/// The URI of an item of a run's result.
fn uri(run_id: &str, at: usize) -> String {
    format!("segue://runs/{run_id}/content/{at}")
}

/// The run of such a URI, and the number of the item.
pub fn place_of_uri(uri: &str) -> Option<(&str, usize)> {
    let (run_id, at) = uri.strip_prefix("segue://runs/")?.split_once("/content/")?;
    Some((run_id, at.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Value {
        serde_json::from_str::<serde_json::Value>(json).unwrap().into()
    }

    /// Content is found anywhere in a value; data that only looks like it is left alone.
    #[test]
    fn content_is_what_can_be_shown() {
        let picture = r#"{"type":"image","data":"aGk=","mimeType":"image/png"}"#;
        for (json, count) in [
            (picture.to_owned(), 1),
            (format!("[{picture},{{\"type\":\"text\",\"text\":\"t\"}},{picture}]"), 2),
            (format!(r#"{{"shot":[{picture}],"n":1}}"#), 1),
            (r#"{"type":"image","data":"not base64!","mimeType":"image/png"}"#.to_owned(), 0),
            (r#"{"type":"image","data":"aGk=","mimeType":"text/html"}"#.to_owned(), 0),
            (r#"{"type":"audio","data":"aGk=","mimeType":"audio/wav"}"#.to_owned(), 1),
            (r#"{"type":"resource","resource":{"uri":"a://b","text":"t"}}"#.to_owned(), 1),
            (r#"{"type":"resource","resource":{"uri":"a://b"}}"#.to_owned(), 0),
            (r#"{"type":"resource_link","uri":"https://a.example/b","name":"b"}"#.to_owned(), 1),
            (r#"{"type":"resource_link","uri":"file:///etc/passwd","name":"b"}"#.to_owned(), 0),
            (r#"{"type":"image"}"#.to_owned(), 0),
        ] {
            assert_eq!(items(&read(&json)).len(), count, "{json}");
        }
    }

    #[test]
    fn what_is_large_is_a_link_to_itself() {
        let large = "A".repeat(40);
        let output = read(&format!(
            r#"{{"a":{{"type":"image","data":"{large}","mimeType":"image/png"}},
                "b":{{"type":"image","data":"aGk=","mimeType":"image/png"}}}}"#
        ));
        let items = content_items("r", &output, 10);
        let ContentItem::Link { uri, mime_type, .. } = &items[0] else { panic!("{items:?}") };
        assert_eq!(mime_type.as_deref(), Some("image/png"));
        assert_eq!(place_of_uri(uri), Some(("r", 0)));
        assert_eq!(find(&output, 0).map(|find| find.text.len()), Some(40));
        assert!(matches!(&items[1], ContentItem::Whole(_)), "{items:?}");
        assert!(find(&output, 2).is_none());
    }
}
