//! JSON with comments and trailing commas, as MCP hosts write it.

use segue_core::document::read_json_value;
use segue_core::limits::Limits;
use segue_core::value::Value;

/// Reads a value.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    read_json_value(&to_json(text), &Limits::default()).map_err(|finding| finding.message)
}

/// The text as plain JSON: comments are removed, trailing commas become blanks.
fn to_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The position of a comma that may be a trailing one.
    let mut comma: Option<usize> = None;
    while let Some(character) = rest.chars().next() {
        let taken = match character {
            '"' => {
                let end = string_end(rest);
                out.push_str(&rest[..end]);
                comma = None;
                end
            }
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            other => {
                match other {
                    ',' => comma = Some(out.len()),
                    ']' | '}' => {
                        if let Some(at) = comma.take() {
                            out.replace_range(at..=at, " ");
                        }
                    }
                    other if !other.is_whitespace() => comma = None,
                    _ => {}
                }
                out.push(other);
                other.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn comments_and_commas_are_passed_over() {
        let text = "\u{feff}// head\n{ \"a\": [1, 2, /* three */ ], // tail\n  \"b\": \"// no, /* \\\" */,]\", }";
        assert_eq!(read(text).unwrap().to_json(), r#"{"a":[1,2],"b":"// no, /* \" */,]"}"#);
        assert!(read("{ \"a\" 1 }").is_err());
    }
}
