//! Findings about a text, as data. The surface that shows them formats them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::source::{Source, Span};

macro_rules! codes {
    ($($variant:ident $name:literal $summary:literal,)*) => {
        /// The permanent name of a kind of finding or failure. Each has a page in `docs/errors/`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $summary] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the contract.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The kebab-case name.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// One line of explanation.
            pub fn summary(self) -> &'static str {
                match self { $(Code::$variant => $summary,)* }
            }
        }
    };
}

codes! {
    Parse "parse" "the text is not well-formed JSON or YAML",
    InvalidField "invalid-field" "a field is unknown, misplaced or has an impossible value",
    DuplicateKey "duplicate-key" "an object names the same key twice",
    Cycle "cycle" "steps wait for each other in a circle",
    UnknownStep "unknown-step" "a step is named that does not exist",
    DuplicateId "duplicate-id" "two steps share an id or an output key",
    NoSteps "no-steps" "the composition has no steps",
    UnknownTool "unknown-tool" "a tool is named that no source provides",
    AmbiguousTool "ambiguous-tool" "a short tool name fits tools of several namespaces",
    TypeMismatch "type-mismatch" "a value cannot be of the type that is asked for",
    MissingParameter "missing-parameter" "a parameter that the tool requires is not given",
    UnknownParameter "unknown-parameter" "a parameter is given that the tool does not have",
    UnknownPath "unknown-path" "a path leads to a field that the output does not have",
    Recursion "recursion" "a composition calls itself, directly or through others",
    MaxStepsExceeded "max-steps-exceeded" "the composition has more steps than allowed",
    ToolNotAllowed "tool-not-allowed" "a tool is not among those that may be called",
    PolicyViolation "policy-violation" "a policy forbids the run",
    UnresolvedReference "unresolved-reference" "a reference has no value",
    Expression "expression" "an expression cannot be read or evaluated",
    InputSchema "input-schema" "an input does not fit its schema",
    OutputSchema "output-schema" "a tool's answer does not fit its own schema",
    Timeout "timeout" "something took longer than it may",
    ToolError "tool-error" "a tool answered with an error",
    Unreachable "unreachable" "a tool's source cannot be reached",
    RetriesExhausted "retries-exhausted" "every attempt failed",
    Denied "denied" "a call was not confirmed",
    Cancelled "cancelled" "the run was cancelled",
    InDoubt "in-doubt" "the outcome of a call is unknown",
    LoopLimit "loop-limit" "a loop ran into its bound, or has none",
    Limit "limit" "a limit was reached",
    RollbackFailed "rollback-failed" "a step could not be rolled back",
    DefinitionChanged "definition-changed" "a tool's definition changed since it was checked",
    NoSource "no-source" "a toolset has no source",
    NilAdapter "nil-adapter" "an export names no format",
    NilToolset "nil-toolset" "an export names no toolset",
    Conversion "conversion" "a definition cannot be converted",
    NotFound "not-found" "something that was named does not exist",
    Conflict "conflict" "something changed in between",
    Unauthorized "unauthorized" "the caller may not do this",
    Llm "llm" "a model did not answer usefully",
    UnreachableStep "unreachable-step" "a step can never run",
    Irreversible "irreversible" "a step that cannot be rolled back runs before one that may fail",
    Unused "unused" "an output is never used",
    Practice "practice" "a recommended practice is not followed",
    Config "config" "the configuration is wrong",
    UnsharedStore "unshared-store" "other processes cannot use the store",
    Unsupported "unsupported" "this version cannot do this yet",
    Internal "internal" "a bug in Segue",
}

impl Code {
    /// The code of this name.
    pub fn parse(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == name)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for Code {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Code".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        schemars::json_schema!({ "type": "string", "enum": names })
    }
}

impl<'de> serde::Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Code::parse(&name).ok_or_else(|| serde::de::Error::custom(format!("unknown code `{name}`")))
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The composition cannot run.
    Error,
    /// The composition runs, but probably not as intended.
    Warning,
    /// A suggestion.
    Hint,
}

/// A replacement that fixes the finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// The span to replace.
    pub span: Span,
    /// The new text.
    pub replacement: String,
}

/// One finding about a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind of finding.
    pub code: Code,
    /// Its severity.
    pub severity: Severity,
    /// Lower case, no full stop, names in backticks.
    pub message: String,
    /// Its span.
    pub span: Span,
    /// What to do, if there is one thing to do.
    pub help: Option<String>,
    /// A replacement that editors can offer.
    pub fix: Option<Fix>,
    /// Other spans that explain the finding.
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    /// A finding that prevents the composition from running.
    pub fn error(code: Code, message: impl Into<String>, span: Span) -> Diagnostic {
        Diagnostic::new(Severity::Error, code, message, span)
    }

    /// A finding that the author should look at.
    pub fn warning(code: Code, message: impl Into<String>, span: Span) -> Diagnostic {
        Diagnostic::new(Severity::Warning, code, message, span)
    }

    /// A suggestion.
    pub fn hint(code: Code, message: impl Into<String>, span: Span) -> Diagnostic {
        Diagnostic::new(Severity::Hint, code, message, span)
    }

    fn new(severity: Severity, code: Code, message: impl Into<String>, span: Span) -> Diagnostic {
        let message = message.into();
        Diagnostic { code, severity, message, span, help: None, fix: None, related: Vec::new() }
    }

    /// Adds a help text.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Adds a replacement; it also becomes the help text if there is none yet.
    #[must_use]
    pub fn fix(mut self, span: Span, replacement: impl Into<String>) -> Diagnostic {
        let replacement = replacement.into();
        self.help.get_or_insert_with(|| format!("did you mean `{replacement}`?"));
        self.fix = Some(Fix { span, replacement });
        self
    }

    /// Adds a replacement, if there is one.
    #[must_use]
    pub fn fix_with(self, span: Span, replacement: Option<&str>) -> Diagnostic {
        match replacement {
            Some(replacement) => self.fix(span, replacement),
            None => self,
        }
    }

    /// Adds a related span.
    #[must_use]
    pub fn related(mut self, span: Span, label: impl Into<String>) -> Diagnostic {
        self.related.push((span, label.into()));
        self
    }

    /// The published form, with file, lines and columns.
    pub fn view(&self, source: &Source) -> DiagnosticView {
        let start = source.position(self.span.start);
        let end = source.position(self.span.end.max(self.span.start));
        DiagnosticView {
            code: self.code,
            severity: self.severity,
            message: self.message.clone(),
            file: source.name().to_string(),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            help: self.help.clone(),
            url: format!("docs/errors/{}.md", self.code),
        }
    }
}

/// A finding as surfaces publish it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiagnosticView {
    /// The kind of finding.
    pub code: Code,
    /// Its severity.
    pub severity: Severity,
    /// The message.
    pub message: String,
    /// The source's name.
    pub file: String,
    /// First line, from 1.
    pub line: usize,
    /// First column, from 1, in characters.
    pub column: usize,
    /// Last line.
    pub end_line: usize,
    /// One past the last column.
    pub end_column: usize,
    /// What to do.
    pub help: Option<String>,
    /// The page that explains the code.
    pub url: String,
}

/// The candidate nearest to `word`, if it is near enough to be a typo.
pub fn nearest_name<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let folded = word.to_lowercase();
    candidates
        .into_iter()
        .filter(|candidate| *candidate != word)
        .map(|candidate| (distance(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= allowance(word, candidate))
        .min_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(b.1)))
        .map(|(_, candidate)| candidate)
}

/// Longer words are not compared.
const WORD_BYTES_MAX: usize = 256;

fn distance(a: &str, b: &str) -> usize {
    // Words that differ only in separators count as equal.
    let plain = |text: &str| text.replace(['_', '-', ' '], "");
    if plain(a) == plain(b) {
        return 0;
    }
    // The comparison costs the product of both lengths, and such long words are not typos.
    if a.len().max(b.len()) > WORD_BYTES_MAX {
        return usize::MAX;
    }
    strsim::damerau_levenshtein(a, b)
}

fn allowance(word: &str, candidate: &str) -> usize {
    match word.chars().count().min(candidate.chars().count()) {
        // A single letter is near to every other one.
        0 | 1 => 0,
        length => (length / 3).clamp(1, 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_offers_what_was_meant_and_nothing_else() {
        let words = ["depends_on", "output_key", "timeout", "tool"];
        assert_eq!(nearest_name("dependsOn", words), Some("depends_on"));
        assert_eq!(nearest_name("tol", words), Some("tool"));
        assert_eq!(nearest_name("outptu_key", words), Some("output_key"));
        assert_eq!(nearest_name("banana", words), None);
    }

    #[test]
    fn codes_are_found_by_name() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
    }
}
