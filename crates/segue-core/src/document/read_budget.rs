//! Counts the cost of a reading while it goes on, and collects duplicate keys. Both readers use it.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Member, ReadLimits};
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;

/// The result of one step of a reading. The finding is boxed because it is large and rare.
pub(super) type ReadResult<T> = Result<T, Box<Diagnostic>>;

fn hash(key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The cost of a reading so far, and the duplicate keys found.
pub(super) struct ReadBudget {
    budget: ReadLimits,
    nodes: usize,
    aliases: usize,
    depth: usize,
    duplicates: Vec<Diagnostic>,
}

/// The most duplicates to report; a hostile text has hundreds of thousands.
const DUPLICATES_MAX: usize = 1_000;

/// Up to this many keys, comparing all pairs is faster than sorting.
const PAIRS_MAX: usize = 16;

impl ReadBudget {
    pub(super) fn new(budget: ReadLimits) -> ReadBudget {
        ReadBudget { budget, nodes: 0, aliases: 0, depth: 0, duplicates: Vec::new() }
    }

    /// How many more values the limit allows.
    pub(super) fn nodes_left(&self) -> usize {
        self.budget.nodes_max - self.nodes
    }

    /// How many more levels the limit allows.
    pub(super) fn depth_left(&self) -> usize {
        self.budget.depth_max - self.depth
    }

    /// Counts values before they are allocated.
    pub(super) fn count(&mut self, nodes: usize, span: Span) -> ReadResult<()> {
        if nodes > self.nodes_left() {
            return Err(self.too_many_nodes(span).into());
        }
        self.nodes += nodes;
        Ok(())
    }

    /// Counts an alias; the caller counts the values that it repeats.
    pub(super) fn count_alias(&mut self, span: Span) -> ReadResult<()> {
        if self.aliases == self.budget.aliases_max {
            let message = format!("there are more than {} aliases", self.budget.aliases_max);
            return Err(limit(message, span).into());
        }
        self.aliases += 1;
        Ok(())
    }

    /// Rejects another key in an object that already has `known` keys and is full.
    pub(super) fn count_key(&self, known: usize, span: Span) -> ReadResult<()> {
        if known >= self.budget.keys_max {
            let message = format!("an object has more than {} keys", self.budget.keys_max);
            return Err(limit(message, span).into());
        }
        Ok(())
    }

    /// Counts a level of nesting; [`ReadBudget::leave`] ends it.
    pub(super) fn enter(&mut self, span: Span) -> ReadResult<()> {
        if self.depth_left() == 0 {
            return Err(self.too_deep(span).into());
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) fn too_many_nodes(&self, span: Span) -> Diagnostic {
        limit(format!("there are more than {} values", self.budget.nodes_max), span)
    }

    pub(super) fn too_deep(&self, span: Span) -> Diagnostic {
        limit(format!("values are nested more than {} levels deep", self.budget.depth_max), span)
    }

    /// Collects the keys that an object repeats. Reading continues, so that all are reported.
    pub(super) fn check_keys(&mut self, members: &[Member]) -> ReadResult<()> {
        if members.len() <= PAIRS_MAX {
            for (index, again) in members.iter().enumerate() {
                if let Some(first) = members[..index].iter().find(|m| m.key == again.key) {
                    self.duplicate(first, again)?;
                }
            }
            return Ok(());
        }
        // By hash first: hashes are contiguous, keys are scattered. Equal hashes fall back to the
        // keys, so crafted collisions gain nothing.
        let mut sorted: Vec<_> = members.iter().map(|member| (hash(&member.key), member)).collect();
        sorted.sort_unstable_by(|(hash_a, a), (hash_b, b)| {
            hash_a.cmp(hash_b).then_with(|| (&a.key, a.key_span).cmp(&(&b.key, b.key_span)))
        });
        for same in sorted.chunk_by(|(hash_a, a), (hash_b, b)| hash_a == hash_b && a.key == b.key) {
            for (_, again) in &same[1..] {
                self.duplicate(same[0].1, again)?;
            }
        }
        Ok(())
    }

    fn duplicate(&mut self, first: &Member, again: &Member) -> ReadResult<()> {
        if self.duplicates.len() == DUPLICATES_MAX {
            let message = format!("more than {DUPLICATES_MAX} keys are given twice");
            return Err(limit(message, again.key_span).into());
        }
        let message = format!("key `{}` is given twice", quote(&again.key));
        let finding = Diagnostic::error(Code::DuplicateKey, message, again.key_span);
        self.duplicates.push(finding.related(first.key_span, "first given here"));
        Ok(())
    }

    /// The tree, or all findings: duplicates in the order of the text, then the error that ended
    /// the reading.
    pub(super) fn finish<T>(mut self, root: ReadResult<T>) -> Result<T, Vec<Diagnostic>> {
        self.duplicates.sort_by_key(|finding| finding.span);
        match root {
            Ok(root) if self.duplicates.is_empty() => return Ok(root),
            Ok(_) => {}
            Err(last) => self.duplicates.push(*last),
        }
        Err(self.duplicates)
    }
}

pub(super) fn parse_error(message: impl Into<String>, span: Span) -> Diagnostic {
    Diagnostic::error(Code::Parse, message, span)
}

fn limit(message: impl Into<String>, span: Span) -> Diagnostic {
    Diagnostic::error(Code::Limit, message, span)
}

/// The span of the character at an offset, or an empty span at the end of the text.
pub(super) fn char_span(text: &str, at: usize) -> Span {
    let length = text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    Span::new(at, at + length)
}

/// Text for a message: one line, shortened.
pub(super) fn quote(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut shown = String::new();
    for (index, char) in text.chars().take(CHARS_MAX + 1).enumerate() {
        match char {
            _ if index == CHARS_MAX => shown.push('…'),
            char if char.is_control() => shown.extend(char.escape_default()),
            char => shown.push(char),
        }
    }
    shown
}
