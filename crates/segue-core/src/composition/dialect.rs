//! The dialects of compositions.

use serde::{Deserialize, Serialize};

/// The dialect of a composition; it only affects the shape of results.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// Steps with `tool`, `parallel`, … — the native one.
    #[default]
    Composition,
    /// `implementation.type: composite`
    Chain,
    /// Steps with `tool_id`.
    Skill,
    /// A code tool with declared parts.
    Composed,
    /// `tools[]` with `dependsOn`.
    Plan,
    /// A composite tool of ToolHive.
    #[serde(rename = "toolhive")]
    ToolHive,
    /// An Arazzo workflow.
    Arazzo,
}

impl Dialect {
    /// The names of the dialects.
    pub const WORDS: &'static [&'static str] =
        &["composition", "chain", "skill", "composed", "plan", "toolhive", "arazzo"];

    /// The dialect of this name.
    pub fn parse(word: &str) -> Option<Dialect> {
        match word {
            "composition" => Some(Dialect::Composition),
            "chain" => Some(Dialect::Chain),
            "skill" => Some(Dialect::Skill),
            "composed" => Some(Dialect::Composed),
            "plan" => Some(Dialect::Plan),
            "toolhive" => Some(Dialect::ToolHive),
            "arazzo" => Some(Dialect::Arazzo),
            _ => None,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::Composition => "composition",
            Dialect::Chain => "chain",
            Dialect::Skill => "skill",
            Dialect::Composed => "composed",
            Dialect::Plan => "plan",
            Dialect::ToolHive => "toolhive",
            Dialect::Arazzo => "arazzo",
        }
    }
}
