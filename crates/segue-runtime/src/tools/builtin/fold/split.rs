//! Text → units that are kept or dropped whole: sentences, list items, headings and code blocks.

/// A part of the text that is never broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextUnit<'a> {
    pub(super) text: &'a str,
    pub(super) kind: UnitKind,
    /// The number of its paragraph or list; it grows through the text.
    pub(super) block: usize,
    /// The index of its text, among several.
    pub(super) part: usize,
    /// Length in characters.
    pub(super) chars: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitKind {
    Sentence,
    Item,
    Heading,
    Code,
}

/// Text without punctuation is broken at a space after so many bytes.
const SENTENCE_BYTES_MAX: usize = 2_000;

/// Abbreviations: their full stop does not end a sentence.
const ABBREVIATIONS: &[&str] = &[
    "al", "approx", "art", "ca", "cf", "ch", "co", "corp", "dept", "dr", "e.g", "ed", "eds", "eq",
    "est", "etc", "fig", "figs", "gen", "gov", "i.e", "inc", "jr", "lt", "ltd", "mr", "mrs", "ms",
    "no", "nos", "op", "p", "pp", "prof", "rep", "rev", "sec", "sen", "sr", "st", "v", "vol", "vs",
];

/// The units of several texts, in order.
pub(super) fn units<'a>(parts: &[&'a str]) -> Vec<TextUnit<'a>> {
    let mut splitter = Splitter { units: Vec::new(), block: 0, part: 0, open: None };
    for (part, text) in parts.iter().enumerate() {
        splitter.part = part;
        splitter.split(text);
    }
    splitter.units
}

struct Splitter<'a> {
    units: Vec<TextUnit<'a>>,
    block: usize,
    part: usize,
    /// Kind and range of the unit that the current line may continue.
    open: Option<(UnitKind, usize, usize)>,
}

impl<'a> Splitter<'a> {
    fn split(&mut self, text: &'a str) {
        let mut fence: Option<(&str, usize)> = None;
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let begin = start + line.len() - line.trim_start().len();
            let end = start + line.trim_end().len();
            start += line.len();
            let trimmed = line.trim();
            if let Some((mark, opened)) = fence {
                if trimmed.starts_with(mark) {
                    self.push(UnitKind::Code, &text[opened..end]);
                    fence = None;
                }
            } else if let Some(mark) = fence_mark(trimmed) {
                self.close(text);
                self.block += 1;
                fence = Some((mark, begin));
            } else {
                self.line(text, trimmed, begin, end);
            }
        }
        self.close(text);
        if let Some((_, opened)) = fence {
            // The fence is never closed: the rest is code.
            self.push(UnitKind::Code, text[opened..].trim_end());
        }
        self.block += 1;
    }

    /// Handles a line outside of code; `begin..end` is the range of its text.
    fn line(&mut self, text: &'a str, line: &str, begin: usize, end: usize) {
        if line.is_empty() {
            self.close(text);
            self.block += 1;
        } else if is_heading(line) {
            self.close(text);
            self.block += 1;
            self.push(UnitKind::Heading, &text[begin..end]);
            self.block += 1;
        } else if is_item(line) {
            if self.open.is_some_and(|(kind, ..)| kind == UnitKind::Sentence) {
                self.close(text);
                self.block += 1;
            }
            self.close(text);
            self.open = Some((UnitKind::Item, begin, end));
        } else if let Some((_, _, open_end)) = &mut self.open {
            *open_end = end;
        } else {
            self.open = Some((UnitKind::Sentence, begin, end));
        }
    }

    /// Ends the open paragraph or item.
    fn close(&mut self, text: &'a str) {
        match self.open.take() {
            Some((UnitKind::Sentence, begin, end)) => {
                for sentence in sentences(&text[begin..end]) {
                    self.push(UnitKind::Sentence, sentence);
                }
            }
            Some((kind, begin, end)) => self.push(kind, &text[begin..end]),
            None => {}
        }
    }

    fn push(&mut self, kind: UnitKind, text: &'a str) {
        let (block, part) = (self.block, self.part);
        self.units.push(TextUnit { text, kind, block, part, chars: text.chars().count() });
    }
}

fn fence_mark(line: &str) -> Option<&'static str> {
    ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark))
}

fn is_heading(line: &str) -> bool {
    let text = line.trim_start_matches('#');
    (1..=6).contains(&(line.len() - text.len())) && text.starts_with(' ')
}

/// `- x`, `* x`, `1. x`, `2) x`, and the rows of a table.
fn is_item(line: &str) -> bool {
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = after_number.len() < line.len()
        && (after_number.starts_with(". ") || after_number.starts_with(") "));
    numbered
        || line.starts_with('|')
        || ["- ", "* ", "+ ", "• "].iter().any(|m| line.starts_with(m))
}

/// The sentences of a paragraph, trimmed.
pub(super) fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut chars = paragraph.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        let after = index + c.len_utf8();
        let ends = match c {
            '.' | '!' | '?' | '…' => {
                let closed = skip_closers(paragraph, after);
                let is_end = ends_sentence(&paragraph[start..index], c, &paragraph[closed..]);
                is_end.then_some(closed)
            }
            '。' | '！' | '？' => Some(after),
            _ if c.is_whitespace() && index - start > SENTENCE_BYTES_MAX => Some(index),
            _ => None,
        };
        if let Some(end) = ends {
            found.push(paragraph[start..end].trim());
            start = end;
            while chars.next_if(|(next, _)| *next < end).is_some() {}
        }
    }
    found.push(paragraph[start..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// Closing quotes and brackets belong to the sentence that they close.
fn skip_closers(text: &str, from: usize) -> usize {
    let rest = &text[from..];
    let rest =
        rest.trim_start_matches(['.', '!', '?', '…', '"', '\'', ')', ']', '”', '’', '»', '*', '_']);
    text.len() - rest.len()
}

/// Whether a mark between `before` and `after` ends a sentence.
fn ends_sentence(before: &str, mark: char, after: &str) -> bool {
    // A mark after a space is no punctuation: `{{ … }}`, `1 . 2`.
    if before.ends_with(char::is_whitespace) {
        return false;
    }
    let Some(gap) = after.chars().next() else { return true };
    if !gap.is_whitespace() {
        return false;
    }
    let next = after.trim_start().chars().next();
    if next.is_some_and(char::is_lowercase) {
        return false;
    }
    if mark != '.' {
        return true;
    }
    let last = before.rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '[' | '"')).next();
    let last = last.unwrap_or("").to_lowercase();
    let is_initial =
        last.chars().count() == 1 && last.chars().all(char::is_alphabetic) && last != "i";
    !is_initial && ABBREVIATIONS.binary_search(&last.as_str()).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(ABBREVIATIONS.is_sorted());
    }

    #[test]
    fn sentences_end_where_people_end_them() {
        let text =
            "Dr. Smith paid $3.50, e.g. for tea. \"Really?\" he asked. See Fig. 3! J. Doe left";
        assert_eq!(
            sentences(text),
            [
                "Dr. Smith paid $3.50, e.g. for tea.",
                "\"Really?\" he asked.",
                "See Fig. 3!",
                "J. Doe left"
            ]
        );
        assert_eq!(
            sentences("Use `{{ … }}` Here ! and there. Now."),
            ["Use `{{ … }}` Here ! and there.", "Now."]
        );
        assert_eq!(sentences("今日は。元気？はい"), ["今日は。", "元気？", "はい"]);
        assert!(sentences(" \n ").is_empty());
        assert!(sentences(&"word ".repeat(10_000)).len() > 10);
    }

    #[test]
    fn markdown_keeps_its_shape() {
        let text = "# Title\nOne. Two\nends here.\n\n- first\n  goes on\n- second\n```rust\nlet x = 1. ;\n\nlet y;\n```\nLast.";
        let found = units(&[text]);
        let shape: Vec<(UnitKind, &str)> =
            found.iter().map(|unit| (unit.kind, unit.text)).collect();
        assert_eq!(
            shape,
            [
                (UnitKind::Heading, "# Title"),
                (UnitKind::Sentence, "One."),
                (UnitKind::Sentence, "Two\nends here."),
                (UnitKind::Item, "- first\n  goes on"),
                (UnitKind::Item, "- second"),
                (UnitKind::Code, "```rust\nlet x = 1. ;\n\nlet y;\n```"),
                (UnitKind::Sentence, "Last."),
            ]
        );
        assert_eq!(found[3].block, found[4].block);
        assert_ne!(found[1].block, found[3].block);
    }
}
