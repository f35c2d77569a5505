//! `-i k=v`, `-i k:=JSON`, `@file` and `--input` → a value.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use segue_core::document::read_json_value;
use segue_core::limits::Limits;
use segue_core::run::misspelt_input;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::types::{FieldLookup, Type};
use segue_core::value::{Map, Value};

/// Reads the input of a run or a call.
pub(super) fn read(
    whole: Option<&str>,
    pairs: &[String],
    schema: Option<&Schema>,
    limits: &Limits,
) -> Result<Value, String> {
    let mut members = match whole {
        None => Map::new(),
        Some(text) => match json("--input", text, limits)? {
            Value::Object(members) => members.unwrap_or_clone(),
            other => return Err(format!("`--input` must be an object, found {}", other.kind())),
        },
    };
    let ty = schema.map_or(Type::Any, |schema| schema.ty().clone());
    for pair in pairs {
        let (name, value) = read_pair(pair, &ty, limits)?;
        members.insert(name, value);
    }
    Ok(members.into())
}

/// One JSON value of an option: JSON, `@file`, or `-` for standard input.
pub(super) fn json(option: &str, text: &str, limits: &Limits) -> Result<Value, String> {
    let (name, text) = match text.strip_prefix('@') {
        None if text == "-" => ("standard input", read_stdin()?),
        None => (option, text.to_owned()),
        Some(file) => (file, read_file(file)?),
    };
    let is_yaml = Path::new(name).extension().is_some_and(|e| e == "yaml" || e == "yml");
    if !is_yaml {
        let value = read_json_value(&text, limits);
        return value.map_err(|finding| {
            let is_pair = option == "--input" && name == option && text.contains('=');
            let help = if is_pair { "; `-i name=value` gives one input" } else { "" };
            format!("{name} is not JSON: {}{help}", finding.message)
        });
    }
    let source = Source::new(name, text);
    let budget = segue_core::document::ReadLimits::for_documents(limits);
    segue_core::document::read(&source, budget)
        .map(|node| node.to_value())
        .map_err(|findings| format!("{name}: {}", findings[0].message))
}

fn read_stdin() -> Result<String, String> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot read standard input: {error}"))?;
    Ok(text)
}

fn read_file(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read `{file}`: {error}"))
}

/// `k:=JSON`, or `k=v` read by the type that the schema gives `k`; `v` may be `@file`.
pub(super) fn read_pair(
    pair: &str,
    ty: &Type,
    limits: &Limits,
) -> Result<(Arc<str>, Value), String> {
    let Some(equals) = pair.find('=') else {
        return Err(format!("`{pair}` has no value: write `name=value`, or `name:=JSON`"));
    };
    let (name, value) = (&pair[..equals], &pair[equals + 1..]);
    let (name, raw) = name.strip_suffix(':').map_or((name, false), |name| (name, true));
    if name.is_empty() {
        return Err(format!("`{pair}` has no name: write `name=value`"));
    }
    let text = match value.strip_prefix('@') {
        Some(file) => read_file(file)?,
        None => value.to_owned(),
    };
    let value = if raw {
        read_json_value(&text, limits)
            .map_err(|finding| format!("the value of `{name}` is not JSON: {}", finding.message))?
    } else {
        if let Some(why) = misspelt_input(ty, name) {
            return Err(why);
        }
        let wanted = match ty.field(name) {
            FieldLookup::Found { ty, .. } => ty,
            FieldLookup::Undeclared { surely: true, declared } => {
                let names = declared.join("`, `");
                return Err(format!("there is no input `{name}`; there are `{names}`"));
            }
            _ => Type::Any,
        };
        by_type(name, &text, &wanted, limits)?
    };
    Ok((name.into(), value))
}

/// Reads a value as text if the type allows text, else as JSON of that type.
fn by_type(name: &str, text: &str, wanted: &Type, limits: &Limits) -> Result<Value, String> {
    let takes = |ty: &Type| wanted.parts().iter().any(|part| part == ty);
    if *wanted == Type::Any || takes(&Type::String) {
        return Ok(Value::from(text));
    }
    let value = read_json_value(text.trim(), limits).ok();
    let fits = value.filter(|value| Type::of_value(value).conflict(wanted).is_none());
    fits.ok_or_else(|| format!("`{name}` must be {wanted}, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> Result<String, String> {
        let schema: Value = serde_json::from_str(
            r#"{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"},
                "b":{"type":"boolean"},"l":{"type":"array"}}}"#,
        )
        .unwrap();
        let ty = Type::from_schema(&schema);
        read_pair(text, &ty, &Limits::default()).map(|(_, value)| value.to_json())
    }

    #[test]
    fn a_pair_as_the_whole_input_is_told_its_flag() {
        let whole = |text| json("--input", text, &Limits::default()).unwrap_err();
        assert!(whole("folder=in").ends_with("; `-i name=value` gives one input"));
        assert!(!whole("{folder").contains("-i name=value"));
    }

    #[test]
    fn values_are_read_by_the_type_that_is_asked_for() {
        assert_eq!(pair("n=41").unwrap(), "41");
        assert_eq!(pair("s=41").unwrap(), "\"41\"");
        assert_eq!(pair("b=true").unwrap(), "true");
        assert_eq!(pair("l=[1,2]").unwrap(), "[1,2]");
        assert_eq!(pair("other=41").unwrap(), "\"41\"");
        assert_eq!(pair("other:=41").unwrap(), "41");
        assert_eq!(pair("s=a=b").unwrap(), "\"a=b\"");
        assert!(pair("n=many").unwrap_err().contains("integer"));
        assert!(pair("n").unwrap_err().contains("name=value"));
        assert!(pair("n:={").unwrap_err().contains("not JSON"));
    }
}
