//! Tools that are not there although somebody has configured them, and why: what is said of a name that
//! is not known, wherever a text is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::source::Source;

/// What is not there.
#[derive(Clone, Debug, Default)]
pub struct UnavailableTools {
    /// Sources of tools that cannot be used, and why, for people.
    pub sources: BTreeMap<Arc<str>, String>,
    /// Sources of tools whose configuration nobody has allowed yet. Nobody may call them.
    pub untrusted: BTreeSet<Arc<str>>,
    /// Ids of tools that are not what was accepted of them. Nobody may call them.
    pub changed: BTreeSet<String>,
}

/// Why a tool is not there.
enum Cause<'a> {
    Source(&'a str, &'a str),
    Changed(&'a str),
}

impl UnavailableTools {
    /// The tool that is meant by an id or a short name, if it is one that changed.
    pub fn changed_tool(&self, name: &str) -> Option<&String> {
        let is_meant = |id: &&String| {
            *id == name || id.split_once(':').is_some_and(|(_, short)| short == name)
        };
        self.changed.iter().find(is_meant)
    }

    /// What to do about a tool that changed.
    pub fn change_help(id: &str) -> String {
        format!("`segue tools diff {id}` shows how; if it is all right, `segue tools accept {id}`")
    }

    /// Whether a source that cannot be used is a reason for any of these findings.
    pub fn explains_any(&self, findings: &[Diagnostic], source: &Source) -> bool {
        let cause = |finding| self.cause(finding, source);
        findings.iter().any(|finding| matches!(cause(finding), Some(Cause::Source(..))))
    }

    /// Says of tools that are not known why they are not.
    pub(super) fn explain(&self, findings: &mut [Diagnostic], source: &Source) {
        for finding in findings {
            match self.cause(finding, source) {
                None => continue,
                Some(Cause::Changed(id)) => {
                    finding.code = Code::DefinitionChanged;
                    finding.message = format!("`{id}` is not what was accepted of it");
                    finding.help = Some(UnavailableTools::change_help(id));
                }
                Some(Cause::Source(name, why)) => {
                    let why = why.lines().next().unwrap_or("");
                    finding.help = Some(format!("the MCP server `{name}` cannot be used: {why}"));
                }
            }
            finding.fix = None;
        }
    }

    fn cause<'a>(&'a self, finding: &Diagnostic, source: &Source) -> Option<Cause<'a>> {
        if finding.code != Code::UnknownTool || finding.severity != Severity::Error {
            return None;
        }
        let span = finding.span.start as usize..finding.span.end as usize;
        let name = source.text().get(span).unwrap_or("").trim_matches(['"', '\'']);
        if let Some(id) = self.changed_tool(name) {
            return Some(Cause::Changed(id));
        }
        let namespace = name.split(':').next().unwrap_or("");
        let (name, why) = self.sources.get_key_value(namespace)?;
        Some(Cause::Source(name, why))
    }
}
