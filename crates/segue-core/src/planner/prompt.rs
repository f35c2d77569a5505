//! Builds the prompt: fixed instructions, and one JSON document with all variable data.
//!
//! External text is never part of the instructions. It is encoded as JSON, so it cannot end its own
//! string, and invisible characters are removed, so a model reads the same text as a person.

use std::sync::Arc;

use crate::catalog::{Catalog, ToolLookup};
use crate::composition::tool::ToolSpec;
use crate::diagnostic::Diagnostic;
use crate::limits::Limits;
use crate::value::Value;
use crate::view::explain::effect_label;

use super::search::SearchIndex;

/// The instructions. They are constant.
pub const INSTRUCTIONS: &str = include_str!("prompt.md");

/// Bytes per token. Too few for most texts, so that the estimate is too high rather than too low.
const TOKEN_BYTES: usize = 3;

/// The maximum length of one description.
const DESCRIPTION_BYTES_MAX: usize = 1_000;

/// The tools in a prompt.
#[derive(Clone, Debug)]
pub struct PromptTools {
    /// Their JSON.
    tools: Vec<Value>,
    /// The number of available tools.
    pub of: usize,
}

impl PromptTools {
    /// All available tools if they fit, else the best matches for the query.
    pub fn select(query: &str, catalog: &Catalog, limits: &Limits) -> PromptTools {
        let allowed = |tool: &&Arc<ToolSpec>| {
            catalog.toolset().is_none_or(|toolset| toolset.get(&tool.id).is_some())
        };
        let tools: Vec<&Arc<ToolSpec>> = catalog.tools().filter(allowed).collect();
        let described: Vec<Value> = tools.iter().map(|tool| describe_tool(tool, catalog)).collect();
        let costs: Vec<usize> =
            described.iter().map(|tool| estimate_tokens(&tool.to_json())).collect();
        let of = tools.len();
        let mut left = limits.llm_tools_tokens_max;
        if costs.iter().sum::<usize>() <= left {
            return PromptTools { tools: described, of };
        }
        let texts: Vec<String> = tools.iter().map(|tool| found_by(tool)).collect();
        let ranked = SearchIndex::new(texts.iter().map(String::as_str)).ranked(query);
        let mut chosen = Vec::new();
        for position in ranked {
            if costs[position] <= left {
                left -= costs[position];
                chosen.push(position);
            }
        }
        chosen.sort_unstable();
        PromptTools {
            tools: chosen.into_iter().map(|position| described[position].clone()).collect(),
            of,
        }
    }

    /// The number of tools in the prompt.
    pub fn count(&self) -> usize {
        self.tools.len()
    }
}

/// The JSON document that a model plans from.
pub(super) fn first_message(query: &str, shown: &PromptTools) -> String {
    let tools = Value::from(shown.tools.clone());
    Value::object([("request", Value::from(visible(query))), ("tools", tools)]).to_json()
}

/// The findings about an answer, for the model.
pub(super) fn correction_message(findings: &[Diagnostic]) -> String {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let mut described = vec![
                ("code", Value::from(finding.code.as_str())),
                ("message", Value::from(visible(&finding.message))),
            ];
            if let Some(help) = &finding.help {
                described.push(("help", Value::from(visible(help))));
            }
            Value::object(described)
        })
        .collect();
    let wanted = "the plan cannot be used: answer with the whole plan, corrected, as JSON only";
    Value::object([("findings", Value::from(findings)), ("wanted", Value::from(wanted))]).to_json()
}

/// The approximate number of tokens of a text.
pub(super) fn estimate_tokens(text: &str) -> usize {
    text.len().div_ceil(TOKEN_BYTES)
}

fn describe_tool(tool: &ToolSpec, catalog: &Catalog) -> Value {
    let short = tool.id.name();
    let is_clear = matches!(catalog.find(short), ToolLookup::Found(found) if found.id == tool.id);
    let name = if is_clear { short } else { tool.id.as_str() };
    let mut described = vec![
        ("name", Value::from(name)),
        ("description", Value::from(shortened(&visible(&tool.description)))),
        ("effect", Value::from(effect_label(tool.annotations.impact()))),
        ("input", seen(tool.input.json())),
    ];
    if let Some(output) = &tool.output {
        described.push(("output", seen(output.json())));
    }
    Value::object(described)
}

/// The search text of a tool: its name, which counts twice, its description and its parameters.
fn found_by(tool: &ToolSpec) -> String {
    let name = tool.id.as_str();
    let mut text = format!("{name} {} {}", tool.id.name(), tool.description);
    for tag in &tool.tags {
        text.push(' ');
        text.push_str(tag);
    }
    let schemas = [Some(&tool.input), tool.output.as_ref()];
    for schema in schemas.into_iter().flatten() {
        let properties = schema.json().get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flat_map(|all| all.iter()) {
            text.push(' ');
            text.push_str(name);
            if let Some(description) = property.get("description").and_then(Value::as_str) {
                text.push(' ');
                text.push_str(description);
            }
        }
    }
    text
}

fn shortened(text: &str) -> String {
    if text.len() <= DESCRIPTION_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(DESCRIPTION_BYTES_MAX)])
}

fn seen(value: &Value) -> Value {
    let clean = |text: &str| {
        let clean = visible(text);
        (clean != text).then_some(clean)
    };
    value.map_texts(&clean).unwrap_or_else(|| value.clone())
}

/// The text without invisible characters, which could reorder it or hide words.
fn visible(text: &str) -> String {
    let is_hidden = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
            || matches!(c, '\u{e0000}'..='\u{e0fff}')
    };
    text.chars().filter(|c| !is_hidden(*c)).collect()
}
