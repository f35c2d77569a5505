//! What a server writes beside its messages: the end of it, however long it is.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// How much is kept.
const BYTES_MAX: usize = 16 * 1024;

/// The last bytes that were pushed.
#[derive(Default)]
pub(super) struct Tail(Mutex<Vec<u8>>);

impl Tail {
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock();
        tail.extend_from_slice(&bytes[bytes.len().saturating_sub(BYTES_MAX)..]);
        if tail.len() > 2 * BYTES_MAX {
            let excess = tail.len() - BYTES_MAX;
            tail.drain(..excess);
        }
    }

    /// The last lines, for a message to a person.
    pub(super) fn last_lines(&self, count: usize) -> String {
        let tail = self.0.lock();
        let text = String::from_utf8_lossy(&tail);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}

/// The stderr and the exit status of a process.
#[derive(Default)]
pub(super) struct ProcessOutput {
    pub(super) stderr: Tail,
    /// Whether stderr has ended.
    is_silent: AtomicBool,
    end: Mutex<Option<String>>,
}

impl ProcessOutput {
    pub(super) fn note_end(&self, how: String) {
        self.end.lock().get_or_insert(how);
    }

    /// Marks that stderr has ended.
    pub(super) fn note_silence(&self) {
        self.is_silent.store(true, Ordering::Release);
    }

    /// Whether it has exited and all its output was read.
    pub(super) fn are_complete(&self) -> bool {
        self.is_silent.load(Ordering::Acquire) && self.end().is_some()
    }

    /// The exit status, once the process has ended.
    pub(super) fn end(&self) -> Option<String> {
        self.end.lock().clone()
    }
}
