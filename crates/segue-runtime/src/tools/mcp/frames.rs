//! The messages of a call, recorded for a person who tries a tool.
//!
//! A recording belongs to a run, and lasts as long as its [`FrameRecording`]. Without one a call costs one
//! look at a counter.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use segue_core::document::read_trusted_json;
use segue_core::value::Value;

use crate::tools::redact::Secrets;

/// How many messages of a call are recorded, and how much of each.
const FRAMES_MAX: usize = 200;
const FRAME_BYTES_MAX: usize = 256 * 1024;

/// The recordings of this process, by run.
static RECORDINGS: LazyLock<Mutex<HashMap<Arc<str>, Arc<Frames>>>> = LazyLock::new(Mutex::default);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A message of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcFrame {
    /// Whether Segue sent it; else it was received.
    pub is_sent: bool,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The message without secrets; a text where it is cut.
    pub message: Value,
}

/// The messages so far.
#[derive(Debug)]
struct Frames {
    list: Mutex<Vec<RpcFrame>>,
}

/// Records the messages of the calls of one run while it lives.
pub struct FrameRecording {
    run_id: Arc<str>,
    frames: Arc<Frames>,
}

impl FrameRecording {
    /// Begins to record the calls of a run.
    pub fn start(run_id: &Arc<str>) -> FrameRecording {
        let frames = Arc::new(Frames { list: Mutex::default() });
        RECORDINGS.lock().insert(run_id.clone(), frames.clone());
        COUNT.fetch_add(1, Ordering::SeqCst);
        FrameRecording { run_id: run_id.clone(), frames }
    }

    /// The messages so far.
    pub fn frames(&self) -> Vec<RpcFrame> {
        self.frames.list.lock().clone()
    }
}

impl Drop for FrameRecording {
    // Work in `Drop`, because the request that records may be dropped at any time.
    fn drop(&mut self) {
        RECORDINGS.lock().remove(&self.run_id);
        COUNT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Where the messages of a call go.
pub(super) struct FrameSink {
    frames: Arc<Frames>,
    secrets: Secrets,
}

impl fmt::Debug for FrameSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.frames.fmt(f)
    }
}

impl FrameSink {
    /// The sink of a run that is recorded.
    pub(super) fn of(run_id: &str, secrets: impl FnOnce() -> Secrets) -> Option<Arc<FrameSink>> {
        if COUNT.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let frames = RECORDINGS.lock().get(run_id)?.clone();
        Some(Arc::new(FrameSink { frames, secrets: secrets() }))
    }

    /// Records a message, unless there are too many.
    pub(super) fn record(&self, is_sent: bool, text: &str) {
        let list = &self.frames.list;
        if list.lock().len() >= FRAMES_MAX {
            return;
        }
        let whole = (text.len() <= FRAME_BYTES_MAX).then(|| read_trusted_json(text).ok()).flatten();
        let message = match whole {
            Some(node) => self.secrets.redact_value(node.to_value()),
            None => {
                let text = self.secrets.redact(text);
                let cut = text.floor_char_boundary(FRAME_BYTES_MAX);
                Value::from(format!("{}… ({} bytes)", &text[..cut], text.len()))
            }
        };
        list.lock().push(RpcFrame { is_sent, at_ms: now_ms(), message });
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the calls of a recorded run are recorded, without secrets and within the limits.
    #[test]
    fn messages_are_recorded_without_secrets_and_within_limits() {
        let run: Arc<str> = "recorded".into();
        let recording = FrameRecording::start(&run);
        let secrets = || Secrets::new(["hunter2hunter2".to_owned()]);
        assert!(FrameSink::of("another", secrets).is_none());
        let sink = FrameSink::of(&run, secrets).unwrap();
        sink.record(true, r#"{"a":"hunter2hunter2"}"#);
        sink.record(false, &format!("{{\"a\":\"{}\"}}", "é".repeat(FRAME_BYTES_MAX / 2)));
        (0..FRAMES_MAX).for_each(|_| sink.record(false, "{}"));
        let frames = recording.frames();
        assert_eq!(frames.len(), FRAMES_MAX);
        assert!(frames[0].is_sent && !frames[0].message.to_json().contains("hunter2"));
        let cut = frames[1].message.as_str().unwrap();
        let bytes = FRAME_BYTES_MAX + 8;
        assert!(cut.ends_with(&format!("é… ({bytes} bytes)")), "{}", &cut[cut.len() - 40..]);
        assert!(cut.len() < bytes + 30);
        drop(recording);
        assert!(FrameSink::of(&run, secrets).is_none());
    }
}
