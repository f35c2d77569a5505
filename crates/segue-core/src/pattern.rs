//! Regular expressions of bounded cost.
//!
//! The engine is linear in the text, multiplied by the size of the pattern: `(a?){1000}` costs a
//! thousand times as much as `a`. So a search is charged for both, with repetitions expanded.
//!
//! It is linear for a single search only. Each further search may scan the whole rest before it
//! returns a match that was found at once: `.*[^A-Z]|[A-Z]` does so at every capital. The engine
//! does not tell how far it scanned; `lookahead` computes it, and [`Matches`] charges for it.

mod lookahead;

use regex::{CaptureMatches, Captures, Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::budget::{self, BudgetExceeded};
use lookahead::Lookahead;

/// Maximum size of a pattern as written.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Maximum size of a compiled pattern.
pub(crate) const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Maximum number of places of a pattern, with repetitions expanded.
const PLACES_MAX: u64 = 10_000;

/// Places times bytes that cost as much as one operation.
const STEPS_PER_OPERATION: u64 = 64;

/// Maximum number of steps of a search outside of an evaluation.
const STEPS_MAX: u64 = 1 << 28;

/// The cost of computing one step of the engine, in steps.
const STEPS_PER_STEP: u64 = 4;

/// Character ranges whose compilation costs as much as one operation.
const RANGES_PER_OPERATION: u64 = 4;

/// Operations for compiling the smallest pattern.
const COMPILATION: u64 = 200;

/// How often all searches together may scan a text before `lookahead` computes their distance: few
/// patterns scan it more than once.
const PASSES_FREE: usize = 8;

/// A regular expression, and the cost of a search.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    hir: Hir,
    places: u64,
}

/// Why a pattern is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// Whether a limit was exceeded, as opposed to a syntax error.
    pub is_limit: bool,
    /// The message.
    pub message: String,
}

/// Flags of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) any_case: bool,
    pub(crate) lines: bool,
    pub(crate) dot_takes_lines: bool,
    pub(crate) lazy: bool,
    pub(crate) spaced: bool,
}

impl Pattern {
    /// Parses a pattern; the error is a message.
    pub fn new(pattern: &str) -> Result<Pattern, PatternError> {
        Pattern::with_flags(pattern, Flags::default())
    }

    pub(crate) fn with_flags(pattern: &str, flags: Flags) -> Result<Pattern, PatternError> {
        let hir = parsed(pattern, flags)?;
        let places = places(&hir);
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
            other => wrong(pattern, &other),
        })?;
        Ok(Pattern { regex, hir, places })
    }

    /// The compiled expression.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// Whether a text of this size may be searched at once.
    pub fn is_affordable(&self, bytes: usize) -> bool {
        self.steps(bytes) <= STEPS_MAX
    }

    /// Charges a search to the evaluation.
    pub(crate) fn charge(&self, bytes: usize) {
        budget::spend_or_unwind(1 + self.steps(bytes) / STEPS_PER_OPERATION);
    }

    /// Operations for compiling it.
    pub(crate) fn compilation(&self) -> u64 {
        compilation(&self.hir)
    }

    /// All matches in a text that may be searched at once. An error ends the iteration.
    pub fn matches<'a>(&'a self, text: &'a str) -> Matches<'a> {
        self.matches_up_to(text, STEPS_MAX)
    }

    /// All matches in a text, in an evaluation that has paid for one search.
    pub(crate) fn matches_within<'a>(&'a self, text: &'a str) -> Matches<'a> {
        self.matches_up_to(text, u64::MAX)
    }

    fn matches_up_to<'a>(&'a self, text: &'a str, steps_max: u64) -> Matches<'a> {
        Matches {
            pattern: self,
            text,
            found: self.regex.captures_iter(text),
            from: 0,
            free: text.len().saturating_mul(PASSES_FREE),
            bill: MatchCost { places: self.places, steps: 0, steps_max },
            lookahead: None,
        }
    }

    fn steps(&self, bytes: usize) -> u64 {
        self.places.saturating_mul(bytes as u64)
    }
}

/// The cost of a pattern that another library compiles and uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternCost {
    /// Its places, with repetitions expanded.
    pub(crate) places: u64,
    /// Operations for compiling it.
    pub(crate) compilation: u64,
}

impl PatternCost {
    pub(crate) fn of(pattern: &str) -> Result<PatternCost, PatternError> {
        let hir = parsed(pattern, Flags::default())?;
        Ok(PatternCost { places: places(&hir), compilation: compilation(&hir) })
    }
}

fn parsed(pattern: &str, flags: Flags) -> Result<Hir, PatternError> {
    // Parsing takes memory in proportion to the pattern's classes, before anything can be counted.
    if pattern.len() > TEXT_BYTES_MAX {
        return Err(too_large(format!(
            "the regular expression has more than {TEXT_BYTES_MAX} bytes"
        )));
    }
    let hir = regex_syntax::ParserBuilder::new()
        .case_insensitive(flags.any_case)
        .multi_line(flags.lines)
        .dot_matches_new_line(flags.dot_takes_lines)
        .swap_greed(flags.lazy)
        .ignore_whitespace(flags.spaced)
        .build()
        .parse(pattern)
        .map_err(|error| wrong(pattern, &error))?;
    if places(&hir) > PLACES_MAX {
        return Err(too_large(format!(
            "the regular expression has more than {PLACES_MAX} places, repetitions counted"
        )));
    }
    Ok(hir)
}

fn wrong(pattern: &str, error: &dyn std::fmt::Display) -> PatternError {
    let message = format!("`{pattern}` is not a regular expression: {error}");
    PatternError { is_limit: false, message }
}

fn too_large(message: String) -> PatternError {
    PatternError { is_limit: true, message }
}

fn compilation(hir: &Hir) -> u64 {
    COMPILATION + ranges(hir) / RANGES_PER_OPERATION
}

/// All matches of a pattern in a text. Each search is charged before it runs.
pub struct Matches<'a> {
    pattern: &'a Pattern,
    text: &'a str,
    found: CaptureMatches<'a, 'a>,
    /// Start of the next search.
    from: usize,
    /// Bytes that searches may still scan without a charge.
    free: usize,
    bill: MatchCost,
    lookahead: Option<Lookahead>,
}

/// The cost of the searches.
struct MatchCost {
    places: u64,
    steps: u64,
    steps_max: u64,
}

impl MatchCost {
    fn pay(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        let steps = self.places.saturating_mul(bytes as u64).saturating_mul(STEPS_PER_STEP);
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.steps_max {
            return Err(BudgetExceeded::Operations(self.steps_max / STEPS_PER_OPERATION));
        }
        budget::spend(1 + steps / STEPS_PER_OPERATION)
    }
}

impl<'a> Matches<'a> {
    /// The next match, if the budget allows the search.
    pub(crate) fn try_next(&mut self) -> Result<Option<Captures<'a>>, BudgetExceeded> {
        let rest = self.text.len() - self.from;
        match self.free.checked_sub(rest) {
            Some(free) => self.free = free,
            None => self.look_ahead()?,
        }
        let next = self.found.next();
        self.from = next.as_ref().and_then(|it| it.get(0)).map_or(self.from, |it| it.end());
        Ok(next)
    }

    /// Charges for the next search. A search that finds only an empty match at the end of the last
    /// one is followed by another, one character later.
    fn look_ahead(&mut self) -> Result<(), BudgetExceeded> {
        let (hir, text) = (&self.pattern.hir, self.text.as_bytes());
        let lookahead = self.lookahead.get_or_insert_with(|| Lookahead::new(hir));
        lookahead.search(text, self.from, &mut |bytes| self.bill.pay(bytes))?;
        let may_be_empty = hir.properties().minimum_len() == Some(0);
        match self.text[self.from..].chars().next().filter(|_| may_be_empty) {
            Some(sign) => {
                let from = self.from + sign.len_utf8();
                lookahead.search(text, from, &mut |bytes| self.bill.pay(bytes))
            }
            None => Ok(()),
        }
    }
}

impl<'a> Iterator for Matches<'a> {
    type Item = Result<Captures<'a>, PatternError>;

    fn next(&mut self) -> Option<Self::Item> {
        let too_dear = |_| PatternError {
            is_limit: true,
            message: "finding all matches of the regular expression in this text takes too long"
                .into(),
        };
        self.try_next().map_err(too_dear).transpose()
    }
}

/// The number of character ranges in a pattern, with repetitions expanded.
fn ranges(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Unicode(class)) => class.ranges().len() as u64,
        HirKind::Class(Class::Bytes(class)) => class.ranges().len() as u64,
        HirKind::Repetition(repetition) => {
            let times = u64::from(repetition.max.unwrap_or(repetition.min).max(1));
            ranges(&repetition.sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => ranges(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(ranges).fold(0, u64::saturating_add)
        }
    }
}

/// The number of places of a pattern that one byte may be compared with: classes and letters, with
/// repetitions expanded.
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
    fn a_pattern_is_refused_by_its_length_before_it_is_read() {
        let long = Pattern::new(&r"\pL".repeat(100_000)).unwrap_err();
        assert!(long.is_limit && long.message.contains("bytes"), "{}", long.message);
    }

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

    /// Patterns that look far ahead at each match end with an error; others get through a large
    /// text, with the same matches as the engine.
    #[test]
    fn all_matches_are_bounded_by_what_they_look_at() {
        let many = |pattern: &str, text: &str, steps_max: u64| {
            let pattern = Pattern::new(pattern).unwrap();
            let all: Result<Vec<_>, _> = pattern.matches_up_to(text, steps_max).collect();
            let all: Result<Vec<_>, _> =
                all.map(|all| all.iter().map(|it| it.get(0).unwrap().range()).collect());
            if let Ok(all) = &all {
                let plain: Vec<_> = pattern.regex().find_iter(text).map(|it| it.range()).collect();
                assert_eq!(*all, plain);
            }
            all.map(|all| all.len()).map_err(|error| error.is_limit)
        };
        let capitals = "A".repeat(100_000);
        for pattern in [".*[^A-Z]|[A-Z]", "A(?:.*B)?", r".*\b\B|A", ".*B|", "(?:A.*B)?"] {
            assert_eq!(many(pattern, &capitals, 1 << 24), Err(true), "{pattern}");
        }
        let words = "words, and Wörter 12:30 \"quoted\" <tag>\n".repeat(10_000);
        for pattern in [
            r"\w+",
            r"\b\w",
            r"\s+",
            "[aeiouö]",
            "(?m)^.*$",
            "\"[^\"]*\"",
            "<.*?>",
            r"\d\d:\d\d",
            "x*",
            "(?i)WÖRTER|and",
        ] {
            assert!(many(pattern, &words, STEPS_MAX).is_ok(), "{pattern}");
        }
    }
}
