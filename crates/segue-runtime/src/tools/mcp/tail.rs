//! The end of an output of any length.

use parking_lot::Mutex;

/// How much is kept.
const BYTES_MAX: usize = 16 * 1024;

/// The last bytes that were pushed.
#[derive(Default)]
pub(super) struct Tail(Mutex<Vec<u8>>);

impl Tail {
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock();
        kept.extend_from_slice(&bytes[bytes.len().saturating_sub(BYTES_MAX)..]);
        if kept.len() > 2 * BYTES_MAX {
            let excess = kept.len() - BYTES_MAX;
            kept.drain(..excess);
        }
    }

    /// The last lines, for a message to a person.
    pub(super) fn last_lines(&self, count: usize) -> String {
        let kept = self.0.lock();
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}
