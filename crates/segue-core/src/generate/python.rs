//! A client as a Python module.

use std::fmt::Write as _;

use super::identifier::{UniqueNames, lines, snake};
use super::model::{DefinitionKind, ModelField, ModelType, TypeDefinition, TypeModel};
use super::{ClientSubject, example, filled};
use crate::value::Value;

const CLIENT: &str = include_str!("templates/client.py.txt");
const TEST: &str = include_str!("templates/test.py.txt");
const PROJECT: &str = include_str!("templates/pyproject.toml.txt");

/// Words that cannot be identifiers.
const KEYWORDS: &[&str] = &[
    "and", "as", "assert", "async", "await", "break", "case", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "match", "nonlocal", "not", "or", "pass", "raise", "return", "try", "type", "while",
    "with", "yield",
];

/// Names that every model has, and names of types that fields use.
const RESERVED: &[&str] = &[
    "bool",
    "copy",
    "construct",
    "dict",
    "float",
    "from_orm",
    "int",
    "json",
    "list",
    "parse_file",
    "parse_obj",
    "parse_raw",
    "schema",
    "schema_json",
    "str",
    "update_forward_refs",
    "validate",
];

pub(super) fn files(subject: &ClientSubject, model: &TypeModel) -> Vec<(String, String)> {
    let function = name(&subject.tool);
    let module = format!("segue_{}", subject.tool);
    let types: String = model.definitions().map(|definition| declared(definition, model)).collect();
    let about = lines(&subject.description).join("\n");
    let about = if about.is_empty() { String::new() } else { format!("{}\n\n", escaped(&about)) };
    let reference = model.may_refer();
    let example = quoted(&example(subject).to_json());
    let boolean = |yes: bool| if yes { "True" } else { "False" };
    let holes = [
        ("COMPOSITION", &*subject.composition),
        ("TOOL", &subject.tool),
        ("FUNCTION", &function),
        ("MODULE", &module),
        ("PACKAGE", &module.replace('_', "-")),
        ("ABOUT", &about),
        ("TYPES", types.trim_end()),
        ("EXAMPLE", &example),
        ("IS_WRAPPED", boolean(subject.is_wrapped)),
        ("IS_DIALECT_RESULT", boolean(subject.is_dialect_result)),
        ("MAY_REFER", boolean(reference)),
    ];
    vec![
        ("pyproject.toml".to_owned(), filled(PROJECT, &holes)),
        (format!("{module}.py"), filled(CLIENT, &holes)),
        (format!("tests/test_{}.py", subject.tool), filled(TEST, &holes)),
    ]
}

fn name(text: &str) -> String {
    let name = snake(text);
    let is_taken = KEYWORDS.contains(&name.as_str())
        || RESERVED.contains(&name.as_str())
        || name.starts_with("model_");
    if is_taken { format!("{name}_") } else { name }
}

/// Escapes a text for a docstring.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace("\"\"\"", "'''");
    if text.ends_with('"') { format!("{text} ") } else { text }
}

/// A string literal; Python has the same escapes as JSON.
fn quoted(text: &str) -> String {
    Value::from(text).to_json()
}

fn docstring(text: &str, indent: &str) -> String {
    let lines = lines(text);
    if lines.is_empty() {
        return String::new();
    }
    let text = escaped(&lines.join("\n")).replace('\n', &format!("\n{indent}"));
    let text: Vec<&str> = text.split('\n').map(str::trim_end).collect();
    format!("{indent}\"\"\"{}\"\"\"\n", text.join("\n"))
}

fn declared(definition: &TypeDefinition, model: &TypeModel) -> String {
    let own = &definition.name;
    let mut text = String::new();
    let (fields, others) = match &definition.kind {
        DefinitionKind::Alias(ty) => {
            let _ = writeln!(text, "{own} = {}", written(ty, model));
            text.push_str(&docstring(&definition.doc, ""));
            text.push_str("\n\n");
            return text;
        }
        DefinitionKind::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            let _ = writeln!(text, "{own} = Literal[{}]", words.join(", "));
            text.push_str(&docstring(&definition.doc, ""));
            text.push_str("\n\n");
            return text;
        }
        DefinitionKind::Object { fields, others } => (fields, others),
    };
    let _ = writeln!(text, "class {own}(Model):");
    text.push_str(&docstring(&definition.doc, "    "));
    let extra = if others.is_some() { "allow" } else { "ignore" };
    let _ = writeln!(
        text,
        "\n    model_config = ConfigDict(populate_by_name=True, extra=\"{extra}\", \
         protected_namespaces=())"
    );
    let mut taken = UniqueNames::default();
    // Required fields come first, as Python demands.
    let sorted = fields.iter().filter(|field| field.is_required);
    for field in sorted.chain(fields.iter().filter(|field| !field.is_required)) {
        let called = taken.claim(&name(&field.wire));
        text.push_str(&member(field, &called, model));
    }
    text.push_str("\n\n");
    text
}

fn member(field: &ModelField, called: &str, model: &TypeModel) -> String {
    let ty = written(&field.ty, model);
    let ty = match (&field.ty, field.is_required) {
        (ModelType::Any | ModelType::Maybe(_) | ModelType::Null, _) | (_, true) => ty,
        (_, false) => format!("Optional[{ty}]"),
    };
    let mut words: Vec<String> = Vec::new();
    if !field.is_required {
        words.push("default=None".to_owned());
    }
    if called != &*field.wire {
        let wire = quoted(&field.wire);
        words.push(format!("validation_alias={wire}"));
        words.push(format!("serialization_alias={wire}"));
    }
    let value =
        if words.is_empty() { String::new() } else { format!(" = Field({})", words.join(", ")) };
    format!("\n    {called}: {ty}{value}\n{}", docstring(&field.doc, "    "))
}

fn written(ty: &ModelType, model: &TypeModel) -> String {
    match ty {
        ModelType::Any => "Any".to_owned(),
        ModelType::Null => "None".to_owned(),
        ModelType::Bool => "bool".to_owned(),
        ModelType::Integer => "int".to_owned(),
        ModelType::Number => "float".to_owned(),
        ModelType::Text => "str".to_owned(),
        ModelType::Literals(values) => {
            let literal = |value: &Value| match value {
                Value::Null => "None".to_owned(),
                Value::Bool(true) => "True".to_owned(),
                Value::Bool(false) => "False".to_owned(),
                other => other.to_json(),
            };
            format!("Literal[{}]", values.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        ModelType::List(item) => format!("List[{}]", written(item, model)),
        ModelType::Map(item) => format!("Dict[str, {}]", written(item, model)),
        ModelType::Maybe(inner) => format!("Optional[{}]", written(inner, model)),
        ModelType::Either(types) => {
            let types: Vec<String> = types.iter().map(|ty| written(ty, model)).collect();
            format!("Union[{}]", types.join(", "))
        }
        ModelType::Named(at) => model.get(*at).name.clone(),
        // A forward reference, because the class is not defined yet.
        ModelType::Again(at) => format!("\"{}\"", model.get(*at).name),
    }
}
