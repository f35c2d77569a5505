//! Size limits for HTTP bodies and events.

use reqwest::Response;

/// The error for an event over the limit.
pub(super) const TOO_LARGE: &str = "the event is too large";

/// Reads a body, unless it is over the limit.
pub(super) async fn read_limited(
    mut response: Response,
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > bytes_max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Counts the bytes of the current event.
pub(super) struct EventLimit {
    bytes_max: usize,
    bytes: usize,
    line_is_empty: bool,
}

impl EventLimit {
    pub(super) fn new(bytes_max: usize) -> EventLimit {
        EventLimit { bytes_max, bytes: 0, line_is_empty: true }
    }

    pub(super) fn admits(&mut self, chunk: &[u8]) -> bool {
        for line in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.bytes += line.len();
            let (text, ended) = line.strip_suffix(b"\n").map_or((line, false), |text| (text, true));
            self.line_is_empty &= text.iter().all(|byte| *byte == b'\r');
            if ended {
                if self.line_is_empty {
                    self.bytes = 0;
                }
                self.line_is_empty = true;
            }
            if self.bytes > self.bytes_max {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::EventLimit;

    #[test]
    fn only_one_event_counts() {
        let mut bounded = EventLimit::new(12);
        assert!(bounded.admits(b"data: aa\n\ndata: bb\r\n\r\n"));
        assert!(bounded.admits(b"data: cc"));
        assert!(!bounded.admits(b"dddddddd"));
    }
}
