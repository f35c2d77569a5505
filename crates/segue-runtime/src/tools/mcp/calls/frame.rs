//! Splits a byte stream into lines of limited length.
//!
//! A line over the limit is not kept, except its two ends, one of which holds the id of the request
//! that it answers. A line without an end ends the stream.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// How much of each end of an overlong line is kept.
const ENDS_BYTES_MAX: usize = 4 * 1024;

/// How many times the limit is skipped in search of the end of a line.
const SKIP_FACTOR: usize = 16;

/// The byte order mark, with which some programs begin.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The next part of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum LineFrame {
    /// A line, without its line break.
    Line(Vec<u8>),
    /// A line has exceeded the limit; this is its beginning.
    TooLong(Vec<u8>),
    /// That line has ended; this is its end.
    TooLongEnded(Vec<u8>),
    /// The stream has ended, with an error if there was one.
    End(Option<String>),
}

/// Reads lines.
pub struct LineFrames<R> {
    from: R,
    bytes_max: usize,
    line: Vec<u8>,
    /// How many bytes of the current line were skipped, once it is too long.
    skipped: Option<usize>,
}

impl<R: AsyncBufRead + Unpin> LineFrames<R> {
    /// Reads lines of at most so many bytes.
    pub fn new(from: R, bytes_max: usize) -> LineFrames<R> {
        LineFrames { from, bytes_max, line: Vec::new(), skipped: None }
    }

    /// The next frame. Empty lines are skipped.
    pub async fn next(&mut self) -> LineFrame {
        loop {
            let (used, ended) = match self.from.fill_buf().await {
                Err(error) => return LineFrame::End(Some(error.to_string())),
                Ok([]) => {
                    let rest = std::mem::take(&mut self.line);
                    let unfinished = !rest.is_empty() && self.skipped.is_none();
                    return LineFrame::End(
                        unfinished.then(|| "the last line is incomplete".to_owned()),
                    );
                }
                Ok(chunk) => {
                    let end = chunk.iter().position(|byte| *byte == b'\n');
                    let part = &chunk[..end.unwrap_or(chunk.len())];
                    self.line.extend_from_slice(part);
                    (part.len() + usize::from(end.is_some()), end.is_some())
                }
            };
            self.from.consume(used);
            if let Some(frame) = self.frame(used, ended) {
                return frame;
            }
        }
    }

    fn frame(&mut self, used: usize, ended: bool) -> Option<LineFrame> {
        if let Some(skipped) = &mut self.skipped {
            *skipped += used;
            let excess = self.line.len().saturating_sub(ENDS_BYTES_MAX);
            self.line.drain(..excess);
            if ended {
                self.skipped = None;
                return Some(LineFrame::TooLongEnded(std::mem::take(&mut self.line)));
            }
            let endless = *skipped > self.bytes_max.saturating_mul(SKIP_FACTOR);
            return endless.then(|| LineFrame::End(Some("a line does not end".to_owned())));
        }
        if self.line.len() > self.bytes_max {
            let head = self.line[..self.line.len().min(ENDS_BYTES_MAX)].to_vec();
            if ended {
                // The end is buffered already; the next call returns it.
                let tail = self.line.split_off(self.line.len().saturating_sub(ENDS_BYTES_MAX));
                self.line = Vec::new();
                let mut both = head;
                both.extend_from_slice(&tail);
                return Some(LineFrame::TooLongEnded(both));
            }
            self.line = Vec::new();
            self.skipped = Some(0);
            return Some(LineFrame::TooLong(head));
        }
        if !ended {
            return None;
        }
        let mut line = std::mem::take(&mut self.line);
        line.pop_if(|last| *last == b'\r');
        if line.starts_with(MARK) {
            line.drain(..MARK.len());
        }
        (!line.iter().all(u8::is_ascii_whitespace)).then_some(LineFrame::Line(line))
    }
}

/// The id that a message probably has, from its beginning or its end: the JSON text of a number or
/// a string.
pub fn guess_id(piece: &[u8]) -> Option<String> {
    top_level_id(piece).or_else(|| last_id(piece))
}

/// The value of `id` in the outermost object, read from the beginning.
fn top_level_id(piece: &[u8]) -> Option<String> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = piece.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let end = string_end(piece, at)?;
                if depth == 1 && &piece[at..end] == b"\"id\"" {
                    return scalar(after_colon(&piece[end..])?);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The value of the last `"id":` of a piece.
fn last_id(piece: &[u8]) -> Option<String> {
    let key = b"\"id\"";
    let at = piece.windows(key.len()).rposition(|window| window == key)?;
    scalar(after_colon(&piece[at + key.len()..])?)
}

fn after_colon(piece: &[u8]) -> Option<&[u8]> {
    let piece = piece.trim_ascii_start().strip_prefix(b":")?;
    Some(piece.trim_ascii_start())
}

/// The end of a string that begins at `from`.
fn string_end(piece: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        match piece.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn scalar(piece: &[u8]) -> Option<String> {
    let end = match piece.first()? {
        b'"' => string_end(piece, 0)?,
        _ => piece.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'-')?,
    };
    let text = std::str::from_utf8(&piece[..end]).ok()?;
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{LineFrame, LineFrames, guess_id};

    async fn frames(bytes: &[u8], bytes_max: usize) -> Vec<LineFrame> {
        // Small chunks, so that every state is left and entered again.
        let reader = tokio::io::BufReader::with_capacity(7, bytes);
        let mut frames = LineFrames::new(reader, bytes_max);
        let mut found = Vec::new();
        loop {
            let frame = frames.next().await;
            let over = matches!(frame, LineFrame::End(_));
            found.push(frame);
            if over {
                return found;
            }
        }
    }

    #[tokio::test]
    async fn lines_end_as_they_do_anywhere() {
        let found = frames("\u{feff}{\"a\":1}\r\n\n  \nx\ncut".as_bytes(), 100).await;
        let expected = [
            LineFrame::Line(b"{\"a\":1}".to_vec()),
            LineFrame::Line(b"x".to_vec()),
            LineFrame::End(Some("the last line is incomplete".to_owned())),
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn a_long_line_is_not_kept_and_the_next_one_is_read() {
        let mut bytes = vec![b'x'; 200];
        bytes.extend_from_slice(b"\nnext\n");
        let found = frames(&bytes, 50).await;
        assert!(matches!(&found[0], LineFrame::TooLong(head) if head.len() <= 60));
        assert!(matches!(&found[1], LineFrame::TooLongEnded(_)));
        assert_eq!(found[2], LineFrame::Line(b"next".to_vec()));
        assert_eq!(found[3], LineFrame::End(None));
    }

    #[tokio::test]
    async fn a_line_without_an_end_ends_the_stream() {
        let found = frames(&vec![b'x'; 5_000], 50).await;
        assert_eq!(found.last(), Some(&LineFrame::End(Some("a line does not end".to_owned()))));
    }

    #[test]
    fn an_id_is_found_at_either_end() {
        let id = |text: &str| guess_id(text.as_bytes());
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":7,"result":{"id":9"#).as_deref(), Some("7"));
        assert_eq!(id(r#"xxx"},"jsonrpc":"2.0","id" : "a-1"}"#).as_deref(), Some("\"a-1\""));
        assert_eq!(id(r#"{"result":"\"id\":3"#), None);
        assert_eq!(id("log line"), None);
    }
}
