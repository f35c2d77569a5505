//! Lines of a text: where they begin and end, how they are indented, which hold only a comment.

/// A text, asked for its lines. Offsets are bytes.
#[derive(Clone, Copy)]
pub(super) struct Lines<'t>(pub(super) &'t str);

impl<'t> Lines<'t> {
    /// The begin of the line that contains an offset.
    pub(super) fn start(self, at: usize) -> usize {
        self.0[..at].rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// The end of that line, before its line ending.
    pub(super) fn end(self, at: usize) -> usize {
        let end = self.0[at..].find('\n').map_or(self.0.len(), |newline| at + newline);
        if end > at && self.0[..end].ends_with('\r') { end - 1 } else { end }
    }

    /// The begin of the next line, or the end of the text.
    pub(super) fn next(self, at: usize) -> usize {
        self.0[at..].find('\n').map_or(self.0.len(), |newline| at + newline + 1)
    }

    /// The bytes between the begin of the line and an offset.
    pub(super) fn column(self, at: usize) -> usize {
        at - self.start(at)
    }

    /// The white space at the begin of a line.
    pub(super) fn indent(self, at: usize) -> &'t str {
        let line = &self.0[self.start(at)..self.end(at)];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// Whether only white space stands before an offset on its line.
    pub(super) fn is_first(self, at: usize) -> bool {
        self.0[self.start(at)..at].trim_matches([' ', '\t']).is_empty()
    }

    /// The line that begins at an offset, without its line ending.
    pub(super) fn line(self, start: usize) -> &'t str {
        &self.0[start..self.end(start)]
    }

    pub(super) fn is_blank(self, start: usize) -> bool {
        self.line(start).trim().is_empty()
    }

    /// The column of the comment on a line that holds nothing else.
    pub(super) fn comment_column(self, start: usize) -> Option<usize> {
        let line = self.line(start);
        let text = line.trim_start_matches([' ', '\t']);
        text.starts_with('#').then(|| line.len() - text.len())
    }

    /// The begin of the line before the one that begins at an offset.
    pub(super) fn previous(self, start: usize) -> Option<usize> {
        (start > 0).then(|| self.start(start - 1))
    }

    /// The begin of the comment lines directly above a line; only comments up to a column count.
    pub(super) fn comments_above(self, start: usize, column: usize) -> usize {
        let mut first = start;
        while let Some(above) = self.previous(first)
            && self.comment_column(above).is_some_and(|at| at <= column)
        {
            first = above;
        }
        first
    }

    /// The begin of the blank lines directly above a line.
    pub(super) fn blanks_above(self, start: usize) -> usize {
        let mut first = start;
        while let Some(above) = self.previous(first)
            && self.is_blank(above)
        {
            first = above;
        }
        first
    }

    /// The end of the line of an offset, or of the last of the comment lines directly below that are
    /// indented deeper than a column. Such comments belong to what stands above them.
    pub(super) fn end_with_comments(self, at: usize, column: usize) -> usize {
        let mut end = self.end(at);
        loop {
            let below = self.next(end);
            if below >= self.0.len() || self.comment_column(below).is_none_or(|at| at <= column) {
                return end;
            }
            end = self.end(below);
        }
    }

    /// The line ending that the text uses around an offset.
    pub(super) fn newline(self, at: usize) -> &'static str {
        let ending = |newline: usize| {
            if self.0[..newline].ends_with('\r') { "\r\n" } else { "\n" }
        };
        let at = at.min(self.0.len());
        let after = self.0[at..].find('\n').map(|newline| at + newline);
        after.or_else(|| self.0[..at].rfind('\n')).map_or("\n", ending)
    }
}

/// Lines that were indented by `from`, indented by `to`. Lines with less are indented by `to`, if they
/// are not blank.
pub(super) fn reindented(lines: &str, from: &str, to: &str, skip_first: bool) -> String {
    let mut out = String::with_capacity(lines.len());
    for (number, line) in lines.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        match line.strip_prefix(from) {
            _ if skip_first && number == 0 => out.push_str(line),
            Some(rest) if !rest.trim().is_empty() || !rest.trim_end_matches('\r').is_empty() => {
                out.push_str(to);
                out.push_str(rest);
            }
            None if !line.trim().is_empty() => {
                out.push_str(to);
                out.push_str(line.trim_start_matches([' ', '\t']));
            }
            _ => out.push_str(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_keep_their_bytes_and_shallow_ones_are_lifted() {
        let lines = "  - a\r\n\r\n    b\n# c\n      \n";
        assert_eq!(
            reindented(lines, "  ", "    ", false),
            "    - a\r\n\r\n      b\n    # c\n        \n"
        );
    }
}
