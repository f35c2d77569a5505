//! Regular expressions of bounded cost.
//!
//! The engine is linear in the text, but times the size of the pattern: `(a?){1000}` is a thousand times as
//! dear as `a`. So the size counts, with repetitions written out, and a search pays for both.

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};

use crate::budget;

/// Bytes that a compiled pattern may take.
pub(crate) const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Places of a pattern, with repetitions written out.
const PLACES_MAX: u64 = 10_000;

/// Places times bytes that are as dear as one operation.
const STEPS_PER_OPERATION: u64 = 64;

/// Steps that a search outside of an evaluation may take.
const STEPS_MAX: u64 = 1 << 28;

/// A regular expression, and what a search with it costs.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    places: u64,
}

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// Whether a limit was reached, rather than a rule broken.
    pub is_limit: bool,
    /// What is wrong.
    pub message: String,
}

/// How a pattern is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) any_case: bool,
    pub(crate) lines: bool,
    pub(crate) dot_takes_lines: bool,
    pub(crate) lazy: bool,
    pub(crate) spaced: bool,
}

impl Pattern {
    /// Reads a pattern; the error says what is wrong with it.
    pub fn new(pattern: &str) -> Result<Pattern, PatternError> {
        Pattern::with_flags(pattern, Flags::default())
    }

    pub(crate) fn with_flags(pattern: &str, flags: Flags) -> Result<Pattern, PatternError> {
        let hir = regex_syntax::ParserBuilder::new()
            .case_insensitive(flags.any_case)
            .multi_line(flags.lines)
            .dot_matches_new_line(flags.dot_takes_lines)
            .swap_greed(flags.lazy)
            .ignore_whitespace(flags.spaced)
            .build()
            .parse(pattern);
        let wrong = |error: &dyn std::fmt::Display| {
            let message = format!("`{pattern}` is not a regular expression: {error}");
            PatternError { is_limit: false, message }
        };
        let too_large = |message: String| PatternError { is_limit: true, message };
        let places = places(&hir.map_err(|error| wrong(&error))?);
        if places > PLACES_MAX {
            return Err(too_large(format!(
                "the regular expression has more than {PLACES_MAX} places, repetitions counted"
            )));
        }
        let regex = RegexBuilder::new(pattern)
            .size_limit(PATTERN_BYTES_MAX)
            .case_insensitive(flags.any_case)
            .multi_line(flags.lines)
            .dot_matches_new_line(flags.dot_takes_lines)
            .swap_greed(flags.lazy)
            .ignore_whitespace(flags.spaced)
            .build();
        let regex = regex.map_err(|error| match error {
            regex::Error::CompiledTooBig(max) => {
                too_large(format!("the regular expression takes more than {max} bytes"))
            }
            other => wrong(&other),
        })?;
        Ok(Pattern { regex, places })
    }

    /// The engine.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// Whether a text of so many bytes may be searched in one go.
    pub fn is_affordable(&self, bytes: usize) -> bool {
        self.steps(bytes) <= STEPS_MAX
    }

    /// Its places, repetitions written out.
    pub(crate) fn places(&self) -> u64 {
        self.places
    }

    /// Pays for a search in an evaluation.
    pub(crate) fn pay(&self, bytes: usize) {
        budget::tick(1 + self.steps(bytes) / STEPS_PER_OPERATION);
    }

    fn steps(&self, bytes: usize) -> u64 {
        self.places.saturating_mul(bytes as u64)
    }
}

/// How many places of a pattern may be tried for one byte: classes and letters, as often as they are
/// repeated.
fn places(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Repetition(repetition) => {
            let times = u64::from(repetition.max.unwrap_or(repetition.min).max(1));
            places(&repetition.sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => places(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(places).fold(0, u64::saturating_add)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_count() {
        let places = |pattern| Pattern::new(pattern).map(|pattern| pattern.places);
        assert_eq!(places("abc"), Ok(3));
        assert_eq!(places(r"\w+@\w+"), Ok(3));
        assert_eq!(places("(a?){1000}"), Ok(1000));
        assert!(places("((a?){200}){200}").is_err());
        assert!(places("(").is_err());
    }

    /// A thousand places over a megabyte would take seconds.
    #[test]
    fn a_dear_search_is_known_beforehand() {
        let dear = Pattern::new("(a?){1000}").unwrap();
        assert!(!dear.is_affordable(1 << 20) && dear.is_affordable(1 << 16));
        assert!(Pattern::new(r"[\w.]+@[\w.]+\.\w{2,}").unwrap().is_affordable(16 << 20));
    }
}
