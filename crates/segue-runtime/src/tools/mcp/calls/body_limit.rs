//! Size limits for HTTP bodies and events.

use futures_util::stream::{Stream, StreamExt as _};
use reqwest::Response;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::{Sse, SseStream};

/// The error for an event over the limit.
pub(crate) const TOO_LARGE: &str = "the event is too large";

/// Reads a body, unless it is over the limit.
pub(crate) async fn read_limited(
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

/// The events of a body. One that is over the limit ends them with the error [`TOO_LARGE`].
pub(crate) fn limited_events(
    response: Response,
    bytes_max: usize,
) -> impl Stream<Item = Result<Sse, SseError>> + Send + 'static {
    let limit = EventLimit::new(bytes_max);
    let bytes = response.bytes_stream().scan(limit, |limit, chunk| {
        std::future::ready(Some(match chunk {
            Ok(chunk) if limit.admits(&chunk) => Ok(chunk),
            Ok(_) => Err(std::io::Error::other(TOO_LARGE)),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        }))
    });
    SseStream::from_bytes_stream(bytes.boxed())
}

/// Counts the bytes of the current event.
struct EventLimit {
    bytes_max: usize,
    bytes: usize,
    line_is_empty: bool,
}

impl EventLimit {
    fn new(bytes_max: usize) -> EventLimit {
        EventLimit { bytes_max, bytes: 0, line_is_empty: true }
    }

    fn admits(&mut self, chunk: &[u8]) -> bool {
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
