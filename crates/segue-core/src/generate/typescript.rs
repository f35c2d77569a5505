//! A client as a TypeScript package.

use std::fmt::Write as _;

use super::identifier::{camel, lines};
use super::model::{DefinitionKind, ModelField, ModelType, TypeDefinition, TypeModel};
use super::{ClientSubject, example, filled, pretty};
use crate::value::Value;

const CLIENT: &str = include_str!("templates/client.ts.txt");
const TEST: &str = include_str!("templates/test.ts.txt");
const PACKAGE: &str = include_str!("templates/package.json.txt");
const SETTINGS: &str = include_str!("templates/tsconfig.json.txt");

/// Words that cannot name a function, and names that the client uses.
const KEYWORDS: &[&str] = &[
    "await",
    "break",
    "case",
    "catch",
    "class",
    "connect",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "example",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "import",
    "in",
    "instanceof",
    "let",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

pub(super) fn files(subject: &ClientSubject, model: &TypeModel) -> Vec<(String, String)> {
    let function = camel(&subject.tool);
    let is_taken = KEYWORDS.contains(&function.as_str());
    let function = if is_taken { format!("{function}_") } else { function };
    let file = subject.tool.replace('_', "-");
    let types: String = model.definitions().map(|definition| declared(definition, model)).collect();
    let about = lines(&subject.description).iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}", format!("// {line}").trim_end());
        text
    });
    let reference = model.may_refer();
    let example = pretty(&example(subject));
    let boolean = |yes: bool| if yes { "true" } else { "false" };
    let holes = [
        ("COMPOSITION", &*subject.composition),
        ("TOOL", &subject.tool),
        ("FUNCTION", &function),
        ("FILE", &file),
        ("PACKAGE", &format!("segue-{file}")),
        ("ABOUT", &about),
        ("TYPES", types.trim_end()),
        ("EXAMPLE", &example),
        ("IS_WRAPPED", boolean(subject.is_wrapped)),
        ("IS_DIALECT_RESULT", boolean(subject.is_dialect_result)),
        ("MAY_REFER", boolean(reference)),
    ];
    vec![
        ("package.json".to_owned(), filled(PACKAGE, &holes)),
        ("tsconfig.json".to_owned(), filled(SETTINGS, &holes)),
        (format!("src/{file}.ts"), filled(CLIENT, &holes)),
        (format!("test/{file}.test.ts"), filled(TEST, &holes)),
    ]
}

/// A doc comment that no text can close early.
fn doc(text: &str, indent: &str) -> String {
    let lines: Vec<String> = lines(text).iter().map(|line| line.replace("*/", "*\\/")).collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!("{indent}/** {line} */\n"),
        lines => {
            let mut text = format!("{indent}/**\n");
            for line in lines {
                let _ = writeln!(text, "{}", format!("{indent} * {line}").trim_end());
            }
            let _ = writeln!(text, "{indent} */");
            text
        }
    }
}

fn declared(definition: &TypeDefinition, model: &TypeModel) -> String {
    let own = &definition.name;
    let mut text = doc(&definition.doc, "");
    match &definition.kind {
        DefinitionKind::Alias(ty) => {
            let _ = writeln!(text, "export type {own} = {};\n", written(ty, model));
        }
        DefinitionKind::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let _ = writeln!(text, "export type {own} = {};\n", words.join(" | "));
        }
        DefinitionKind::Object { fields, others } => {
            let _ = writeln!(text, "export interface {own} {{");
            fields.iter().for_each(|field| text.push_str(&member(field, model)));
            if others.is_some() {
                // Declared members must fit the index signature, so it can only be `unknown`.
                text.push_str("  [name: string]: unknown;\n");
            }
            text.push_str("}\n\n");
        }
    }
    text
}

fn member(field: &ModelField, model: &TypeModel) -> String {
    let wire = &*field.wire;
    let is_plain = wire.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && wire.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let name = if is_plain { wire.to_owned() } else { quoted(wire) };
    let mark = if field.is_required { "" } else { "?" };
    format!("{}  {name}{mark}: {};\n", doc(&field.doc, "  "), written(&field.ty, model))
}

fn written(ty: &ModelType, model: &TypeModel) -> String {
    match ty {
        ModelType::Any => "unknown".to_owned(),
        ModelType::Null => "null".to_owned(),
        ModelType::Bool => "boolean".to_owned(),
        ModelType::Integer | ModelType::Number => "number".to_owned(),
        ModelType::Text => "string".to_owned(),
        ModelType::Literals(values) => {
            let values = values.iter().map(|value| match value {
                Value::String(text) => quoted(text),
                other => other.to_json(),
            });
            values.collect::<Vec<_>>().join(" | ")
        }
        ModelType::List(item) => format!("Array<{}>", written(item, model)),
        ModelType::Map(item) => format!("Record<string, {}>", written(item, model)),
        ModelType::Maybe(inner) => format!("{} | null", written(inner, model)),
        ModelType::Either(types) => {
            types.iter().map(|ty| written(ty, model)).collect::<Vec<_>>().join(" | ")
        }
        ModelType::Named(at) | ModelType::Again(at) => model.get(*at).name.clone(),
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_json()
}
