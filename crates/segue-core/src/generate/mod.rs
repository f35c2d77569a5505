//! Generates a typed client for a composite tool, with a test and project files.
//!
//! `schemas → model → text`. The output depends only on the tool, so generating it twice gives the
//! same files. The client calls a running Segue through the official MCP library of its language.
//!
//! Not here: writing files, which the command line does.

mod identifier;
mod model;
mod python;
mod rust;
mod typescript;

use std::sync::Arc;

use crate::schema::Schema;
use crate::value::Value;

/// The tool that a client is for.
#[derive(Clone, Debug)]
pub struct ClientSubject {
    /// The composition's name.
    pub composition: Arc<str>,
    /// Its name on the server: `[a-z][a-z0-9_]*`.
    pub tool: String,
    /// Its description.
    pub description: Arc<str>,
    /// JSON Schema of its arguments.
    pub input: Arc<Schema>,
    /// JSON Schema of its result, as far as it can be inferred.
    pub output: Arc<Schema>,
    /// Whether the answer holds the result in `result`, because it may not be an object.
    pub is_wrapped: bool,
    /// Whether the result is the one in the format of the dialect, in the metadata of the answer.
    pub is_dialect_result: bool,
}

/// A target language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// A crate.
    Rust,
    /// A module with its project file.
    Python,
    /// A package.
    TypeScript,
}

/// A file of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Relative to the client's folder, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// The files of a client.
pub fn generate(subject: &ClientSubject, language: Language) -> Vec<GeneratedFile> {
    let model = model::TypeModel::of(subject);
    let files = match language {
        Language::Rust => rust::files(subject, &model),
        Language::Python => python::files(subject, &model),
        Language::TypeScript => typescript::files(subject, &model),
    };
    let files = files.into_iter().map(|(path, text)| GeneratedFile { path, text });
    files.collect()
}

/// An example input that matches the schema.
fn example(subject: &ClientSubject) -> Value {
    subject
        .input
        .sample()
        .filter(|value| value.as_object().is_some())
        .unwrap_or_else(Value::empty_object)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Fills a template's placeholders. Inserted text is not scanned again.
fn filled(template: &str, holes: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('@') {
        text.push_str(before);
        let hole = holes.iter().find_map(|(name, with)| {
            let rest = after.strip_prefix(name)?.strip_prefix('@')?;
            Some((with, rest))
        });
        match hole {
            Some((with, after)) => {
                text.push_str(with);
                rest = after;
            }
            None => {
                text.push('@');
                rest = after;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_not_looked_at_again() {
        let text = filled("@A@ of @B@, @types/node", &[("A", "@B@"), ("B", "b")]);
        assert_eq!(text, "@B@ of b, @types/node");
    }
}
