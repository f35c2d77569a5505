//! Numbers with more digits than the protocol library keeps: `18446744073709551616`, thirty digits
//! of pi.
//!
//! The library stores every number in 64 bits. A longer number is therefore passed to it as a text
//! with a mark, which becomes the number again when the message is written. Each process draws a
//! new mark, so that no other text contains it.

use std::sync::OnceLock;

use segue_core::value::{Number, Value};
use uuid::Uuid;

/// Precedes the digits of a number, with the opening quote of the text.
fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| format!("\"number-{}:", Uuid::new_v4().simple()))
}

/// Converts a value for the library, with marks in place of numbers that it would round.
pub fn mark_numbers(value: &Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Value::Number(Number::Written(digits)) => Json::String(format!("{}{digits}", &mark()[1..])),
        Value::Array(items) => Json::Array(items.iter().map(mark_numbers).collect()),
        Value::Object(members) => {
            Json::Object(members.iter().map(|(k, v)| (k.to_string(), mark_numbers(v))).collect())
        }
        other => other.into(),
    }
}

/// Replaces the marks in an outgoing message by their numbers.
pub fn unmark_numbers(message: Vec<u8>) -> Vec<u8> {
    let mark = mark().as_bytes();
    let find = |from: &[u8]| from.windows(mark.len()).position(|window| window == mark);
    let Some(first) = find(&message) else { return message };
    let (mut out, mut rest) = (message[..first].to_vec(), &message[first..]);
    loop {
        let digits = &rest[mark.len()..];
        let end = digits.iter().position(|byte| *byte == b'"').unwrap_or(digits.len());
        out.extend_from_slice(&digits[..end]);
        rest = digits.get(end + 1..).unwrap_or(&[]);
        let Some(next) = find(rest) else { break };
        out.extend_from_slice(&rest[..next]);
        rest = &rest[next..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use segue_core::document::read_json_value;
    use segue_core::limits::Limits;

    use super::{mark, mark_numbers, unmark_numbers};

    #[test]
    fn every_digit_comes_out_again() {
        for json in [
            r#"{"a":18446744073709551616,"b":[-1e400,3.14159265358979323846264338327950288],"c":1}"#,
            r#"[1.5,"18446744073709551616",null]"#,
            "18446744073709551616",
        ] {
            let value = read_json_value(json, &Limits::default()).unwrap();
            let text = serde_json::to_vec(&mark_numbers(&value)).unwrap();
            assert_eq!(String::from_utf8(unmark_numbers(text)).unwrap(), json);
        }
        assert!(mark().starts_with("\"number-"));
    }
}
