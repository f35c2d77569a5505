//! Configured tools that are unavailable, and why. The reason is added to findings about unknown
//! tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::source::Source;

/// Sources and tools that are configured and cannot be used.
#[derive(Clone, Debug, Default)]
pub struct UnavailableTools {
    /// Sources of tools that cannot be used, each with the reason for people.
    pub sources: BTreeMap<Arc<str>, String>,
    /// Sources whose configuration the user has not allowed yet. Their tools cannot be called.
    pub untrusted: BTreeSet<Arc<str>>,
    /// Ids of tools whose definition differs from the accepted one. They cannot be called.
    pub changed: BTreeSet<String>,
}

/// Why a tool is unavailable.
enum Cause<'a> {
    Source(&'a str, &'a str),
    Changed(&'a str),
}

impl UnavailableTools {
    /// The changed tool with this id or short name.
    pub fn changed_tool(&self, name: &str) -> Option<&String> {
        let is_meant = |id: &&String| {
            *id == name || id.split_once(':').is_some_and(|(_, short)| short == name)
        };
        self.changed.iter().find(is_meant)
    }

    /// How to accept a changed tool.
    pub fn change_help(id: &str) -> String {
        format!("`segue tools diff {id}` shows the change; `segue tools accept {id}` accepts it")
    }

    /// Whether an unavailable source explains any of these findings.
    pub fn explains_any(&self, findings: &[Diagnostic], source: &Source) -> bool {
        let cause = |finding| self.cause(finding, source);
        findings.iter().any(|finding| matches!(cause(finding), Some(Cause::Source(..))))
    }

    /// Adds to findings about unknown tools why they are unavailable.
    pub fn explain(&self, findings: &mut [Diagnostic], source: &Source) {
        for finding in findings {
            match self.cause(finding, source) {
                None => continue,
                Some(Cause::Changed(id)) => {
                    finding.code = Code::DefinitionChanged;
                    finding.message =
                        format!("the definition of `{id}` differs from the accepted one");
                    finding.help = Some(UnavailableTools::change_help(id));
                }
                Some(Cause::Source(name, why)) if self.untrusted.contains(name) => {
                    finding.help = Some(format!("the MCP server `{name}` cannot be used: {why}"));
                }
                Some(Cause::Source(name, why)) => {
                    let (why, output) = why.split_once('\n').unwrap_or((why, ""));
                    finding.message = format!("the MCP server `{name}` is down: {why}");
                    finding.help = Some(down_help(output));
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
        // Other dialects separate the server from its tool with `.` or `_`.
        let has = |server: &str| {
            let rest = name.strip_prefix(server);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '.', '_']))
        };
        let (name, why) = self.sources.iter().find(|(server, _)| has(server))?;
        Some(Cause::Source(name, why))
    }
}

/// The last lines of a server's output that a finding shows.
const OUTPUT_LINES_MAX: usize = 5;

/// What to do about a server that is down, and the last lines that it wrote to standard error.
fn down_help(output: &str) -> String {
    const HELP: &str = "`segue doctor` checks every server";
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return HELP.to_owned();
    }
    let last = &lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..];
    format!("{HELP}; the last output of its program:\n{}", last.join("\n"))
}
