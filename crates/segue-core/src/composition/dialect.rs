//! The languages that compositions are written in.

use serde::{Deserialize, Serialize};

/// Which language a composition was written in; only results are shaped by it.
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
    /// A tool made of declared sub-tools.
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
    /// The words of the language.
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
