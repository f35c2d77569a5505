//! Regular expressions of bounded cost.
//!
//! The engine is linear in the text, but times the size of the pattern: `(a?){1000}` is a thousand times as
//! dear as `a`. So the size counts, with repetitions written out, and a search pays for both.
//!
//! It is linear for one search only. Each further one may look at all the rest before it takes a match that
//! was there at once: `.*[^A-Z]|[A-Z]` does so at every capital. What a search has looked at cannot be seen
//! from outside; `lookahead` works it out, and [`Matches`] pays for it.

mod lookahead;

use regex::{CaptureMatches, Captures, Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::budget::{self, BudgetExceeded};
use lookahead::Lookahead;

/// Bytes of a pattern as it is written.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Bytes that a compiled pattern may take.
pub(crate) const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Places of a pattern, with repetitions written out.
const PLACES_MAX: u64 = 10_000;

/// Places times bytes that are as dear as one operation.
const STEPS_PER_OPERATION: u64 = 64;

/// Steps that a search outside of an evaluation may take.
const STEPS_MAX: u64 = 1 << 28;

/// How much dearer than a step of the engine it is to work one out.
const STEPS_PER_STEP: u64 = 4;

/// Ranges of characters in a pattern whose compilation is as dear as one operation.
const RANGES_PER_OPERATION: u64 = 4;

/// Operations of compiling the smallest pattern.
const COMPILATION: u64 = 200;

/// How often all searches together may have looked at a text before it is worked out how far each looks:
/// few do far more than once.
const PASSES_FREE: usize = 8;

/// A regular expression, and what a search with it costs.
#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    hir: Hir,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// The engine.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// Whether a text of so many bytes may be searched in one go.
    pub fn is_affordable(&self, bytes: usize) -> bool {
        self.steps(bytes) <= STEPS_MAX
    }

    /// Pays for a search in an evaluation.
    pub(crate) fn charge(&self, bytes: usize) {
        budget::spend_or_unwind(1 + self.steps(bytes) / STEPS_PER_OPERATION);
    }

    /// What compiling it costs an evaluation, in operations.
    pub(crate) fn compilation(&self) -> u64 {
        compilation(&self.hir)
    }

    /// All matches in a text that may be searched in one go. An error ends them.
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

/// What a pattern costs that is compiled and used by others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternCost {
    /// Its places, repetitions written out.
    pub(crate) places: u64,
    /// Operations of compiling it.
    pub(crate) compilation: u64,
}

impl PatternCost {
    pub(crate) fn of(pattern: &str) -> Result<PatternCost, PatternError> {
        let hir = parsed(pattern, Flags::default())?;
        Ok(PatternCost { places: places(&hir), compilation: compilation(&hir) })
    }
}

fn parsed(pattern: &str, flags: Flags) -> Result<Hir, PatternError> {
    // Reading one takes memory in proportion to its classes, before anything can be counted.
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

/// All matches of a pattern in a text. Before each search it is paid for what that looks at.
pub struct Matches<'a> {
    pattern: &'a Pattern,
    text: &'a str,
    found: CaptureMatches<'a, 'a>,
    /// Where the next search begins.
    from: usize,
    /// Bytes that searches may still look at for nothing.
    free: usize,
    bill: MatchCost,
    lookahead: Option<Lookahead>,
}

/// What searches have cost.
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
    /// The next match, if it can be paid for.
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

    /// Pays for what the next search looks at. One that finds nothing but the end of the last match is
    /// followed by another, one character on.
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

/// How many ranges of characters a pattern has, as often as they are repeated.
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

    /// What looks far ahead at each match ends; what does not goes through a large text. And all that is
    /// found is what the engine finds.
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
