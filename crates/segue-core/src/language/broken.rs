//! A text → what a compilation learns about it, also if the text does not parse.
//!
//! A text that parses is compiled as it is. Otherwise its tree is guessed and compiled, so that the
//! steps around a mistake keep their names and types. Findings about lines that were guessed would
//! be guesses too and are left out.

use crate::catalog::Catalog;
use crate::compile::{self, Examined};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::document::{ReadLimits, tolerant};
use crate::limits::Limits;
use crate::source::{Source, Span};

pub(super) fn examine(source: &Source, catalog: &Catalog, limits: &Limits) -> Examined {
    let strict = compile::examine_text(source, catalog, limits);
    // A limit that is exceeded holds for the guess too.
    let is_too_large = strict.diagnostics.iter().any(|finding| finding.code == Code::Limit);
    let is_broken = |finding: &Diagnostic| matches!(finding.code, Code::Parse | Code::DuplicateKey);
    if strict.document.is_some() || is_too_large || !strict.diagnostics.iter().any(is_broken) {
        return strict;
    }
    let guess = tolerant::read(source, ReadLimits::for_documents(limits));
    // Resources of other programs have fields that are not ours.
    if guess.root.get("kind").is_some() && guess.root.get("spec").is_some() {
        return strict;
    }
    let guessed = compile::examine_document(source, guess.root, catalog, limits);
    let mut doubtful = guess.guesses;
    doubtful.extend(strict.diagnostics.iter().map(|finding| finding.span));
    let doubtful = DoubtfulLines::new(source.text(), &doubtful);
    let mut diagnostics = strict.diagnostics;
    diagnostics.extend(
        guessed
            .diagnostics
            .into_iter()
            .filter(|finding| finding.severity == Severity::Error && !doubtful.touch(finding.span)),
    );
    diagnostics.sort_by_key(|finding| finding.span);
    diagnostics.truncate(limits.diagnostics_max);
    Examined { diagnostics, ..guessed }
}

/// The lines of a text that were guessed.
struct DoubtfulLines {
    /// The first byte of each line.
    starts: Vec<u32>,
    /// Sorted.
    lines: Vec<usize>,
}

impl DoubtfulLines {
    fn new(text: &str, spans: &[Span]) -> DoubtfulLines {
        let newlines = memchr::memchr_iter(b'\n', text.as_bytes());
        let starts = newlines.map(|at| u32::try_from(at + 1).unwrap_or(u32::MAX));
        let starts: Vec<u32> = std::iter::once(0).chain(starts).collect();
        let mut found = DoubtfulLines { starts, lines: Vec::new() };
        let mut lines: Vec<usize> =
            spans.iter().flat_map(|span| [found.line(span.start), found.line(span.end)]).collect();
        lines.sort_unstable();
        lines.dedup();
        found.lines = lines;
        found
    }

    fn line(&self, at: u32) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    fn touch(&self, span: Span) -> bool {
        let (first, last) = (self.line(span.start), self.line(span.end));
        let after = self.lines.partition_point(|line| *line < first);
        self.lines.get(after).is_some_and(|line| *line <= last)
    }
}
