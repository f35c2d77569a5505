//! A client as a crate.

use std::fmt::Write as _;

use super::identifier::{UniqueNames, lines, pascal, snake};
use super::model::{DefinitionKind, ModelField, ModelType, TypeDefinition, TypeModel};
use super::{ClientSubject, example, filled, pretty};

const CLIENT: &str = include_str!("templates/client.rs.txt");
const TEST: &str = include_str!("templates/test.rs.txt");
const MANIFEST: &str = include_str!("templates/Cargo.toml.txt");

/// Words that cannot be identifiers.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

pub(super) fn files(subject: &ClientSubject, model: &TypeModel) -> Vec<(String, String)> {
    let function = name(&subject.tool);
    let package = format!("segue-{}", subject.tool.replace('_', "-"));
    let crate_name = package.replace('-', "_");
    let types: String = model.definitions().map(|definition| declared(definition, model)).collect();
    let about = doc(&subject.description, "//! ", "");
    let about = if about.is_empty() { String::new() } else { format!("//!\n{about}") };
    let reference = model.may_refer();
    let example = raw(&pretty(&example(subject)));
    let boolean = |yes: bool| if yes { "true" } else { "false" };
    let holes = [
        ("COMPOSITION", &*subject.composition),
        ("TOOL", &subject.tool),
        ("FUNCTION", &function),
        ("PACKAGE", &package),
        ("CRATE", &crate_name),
        ("ABOUT", &about),
        ("TYPES", types.trim_end()),
        ("EXAMPLE", &example),
        ("IS_WRAPPED", boolean(subject.is_wrapped)),
        ("IS_DIALECT_RESULT", boolean(subject.is_dialect_result)),
        ("MAY_REFER", boolean(reference)),
    ];
    vec![
        ("Cargo.toml".to_owned(), filled(MANIFEST, &holes)),
        ("src/lib.rs".to_owned(), filled(CLIENT, &holes)),
        (format!("tests/{}.rs", subject.tool), filled(TEST, &holes)),
    ]
}

fn name(text: &str) -> String {
    let name = snake(text);
    if KEYWORDS.contains(&name.as_str()) { format!("{name}_") } else { name }
}

fn doc(text: &str, mark: &str, indent: &str) -> String {
    lines(text).iter().fold(String::new(), |mut all, line| {
        let _ = writeln!(all, "{}", format!("{indent}{mark}{line}").trim_end());
        all
    })
}

/// A raw string literal.
fn raw(text: &str) -> String {
    let longest =
        text.split('"').skip(1).map(|rest| rest.chars().take_while(|c| *c == '#').count());
    let marks = "#".repeat(longest.max().unwrap_or(0) + 1);
    format!("r{marks}\"{text}\"{marks}")
}

fn declared(definition: &TypeDefinition, model: &TypeModel) -> String {
    let own = &definition.name;
    let about = if definition.doc.is_empty() { own.clone() } else { definition.doc.clone() };
    let mut text = doc(&about, "/// ", "");
    match &definition.kind {
        DefinitionKind::Alias(ty) => {
            let _ = writeln!(text, "pub type {own} = {};\n", written(ty, model));
        }
        DefinitionKind::Words(words) => {
            text.push_str("#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]\n");
            let _ = writeln!(text, "pub enum {own} {{");
            let mut taken = UniqueNames::default();
            for word in words {
                let variant = pascal(word);
                let is_number = variant.starts_with(|first: char| first.is_ascii_digit());
                let variant = if is_number { format!("N{variant}") } else { variant };
                // `Self` cannot name a variant.
                let variant = if variant == "Self" { "Self_".to_owned() } else { variant };
                let variant = taken.claim(&variant);
                let _ = writeln!(text, "    /// `{}`", lines(word).join(" "));
                let _ = writeln!(text, "    #[serde(rename = {})]\n    {variant},", quoted(word));
            }
            text.push_str("}\n\n");
        }
        DefinitionKind::Object { fields, others } => {
            text.push_str("#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]\n");
            let _ = writeln!(text, "pub struct {own} {{");
            let mut taken = UniqueNames::default();
            for field in fields {
                let called = taken.claim(&name(&field.wire));
                text.push_str(&member(field, &called, model));
            }
            if let Some(ty) = others {
                let called = taken.claim("other");
                let ty = written(ty, model);
                text.push_str(
                    "    /// Members without a name of their own.\n    #[serde(flatten)]\n",
                );
                let _ =
                    writeln!(text, "    pub {called}: std::collections::BTreeMap<String, {ty}>,");
            }
            text.push_str("}\n\n");
        }
    }
    text
}

fn member(field: &ModelField, called: &str, model: &TypeModel) -> String {
    let about = if field.doc.is_empty() { format!("`{}`", field.wire) } else { field.doc.clone() };
    let mut text = doc(&about, "/// ", "    ");
    let mut words: Vec<String> = Vec::new();
    if called != &*field.wire {
        words.push(format!("rename = {}", quoted(&field.wire)));
    }
    let ty = written(&field.ty, model);
    let ty = if field.is_required {
        ty
    } else {
        words.push("default".to_owned());
        words.push("skip_serializing_if = \"Option::is_none\"".to_owned());
        if ty.starts_with("Option<") { ty } else { format!("Option<{ty}>") }
    };
    if !words.is_empty() {
        let _ = writeln!(text, "    #[serde({})]", words.join(", "));
    }
    let _ = writeln!(text, "    pub {called}: {ty},");
    text
}

fn written(ty: &ModelType, model: &TypeModel) -> String {
    match ty {
        ModelType::Any | ModelType::Either(_) => "serde_json::Value".to_owned(),
        ModelType::Literals(values) if values.iter().all(|value| value.as_str().is_some()) => {
            "String".to_owned()
        }
        ModelType::Literals(values) if values.iter().all(|value| value.as_i64().is_some()) => {
            "i64".to_owned()
        }
        ModelType::Literals(values) if values.iter().all(|value| value.as_bool().is_some()) => {
            "bool".to_owned()
        }
        ModelType::Literals(_) => "serde_json::Value".to_owned(),
        ModelType::Null => "()".to_owned(),
        ModelType::Bool => "bool".to_owned(),
        ModelType::Integer => "i64".to_owned(),
        ModelType::Number => "f64".to_owned(),
        ModelType::Text => "String".to_owned(),
        ModelType::List(item) => format!("Vec<{}>", written(item, model)),
        ModelType::Map(item) => {
            format!("std::collections::BTreeMap<String, {}>", written(item, model))
        }
        ModelType::Maybe(inner) => format!("Option<{}>", written(inner, model)),
        ModelType::Named(at) => model.get(*at).name.clone(),
        ModelType::Again(at) => format!("Box<{}>", model.get(*at).name),
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}
