//! What a server says of how far a call has got: told on, but not all too often.

use std::time::Duration;

use rmcp::model::ProgressToken;
use serde::Deserialize;
use tokio::time::Instant;

use super::definition::strip_invisible;
use crate::tools::Progress;

/// Length of what a server says of its progress.
pub(super) const PROGRESS_CHARS_MAX: usize = 300;

/// The shortest time between two words on the progress of a call.
const PROGRESS_MIN: Duration = Duration::from_millis(200);

/// A notification of progress.
#[derive(Deserialize)]
pub(super) struct ProgressNotice {
    #[serde(rename = "progressToken")]
    pub(super) token: ProgressToken,
    progress: f64,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

/// What was heard of how far a call has got.
#[derive(Debug, Default)]
pub(super) struct ProgressState {
    /// How far it had got last.
    last: Option<f64>,
    /// What nobody was told yet.
    untold: Option<Progress>,
    told_at: Option<Instant>,
}

impl ProgressState {
    /// Whether it is more than before: a server that repeats itself gets no further.
    pub(super) fn note(&mut self, said: &ProgressNotice) -> bool {
        if self.last.is_some_and(|last| said.progress <= last) {
            return false;
        }
        self.last = Some(said.progress);
        let message = said.message.as_deref();
        let message = message.map(|message| strip_invisible(message, PROGRESS_CHARS_MAX).into());
        self.untold = Some(Progress { progress: self.last, total: said.total, message });
        true
    }

    /// What is to be told now.
    pub(super) fn take(&mut self) -> Option<Progress> {
        if self.told_at.is_some_and(|at| at.elapsed() < PROGRESS_MIN) {
            return None;
        }
        let progress = self.untold.take()?;
        self.told_at = Some(Instant::now());
        Some(progress)
    }
}
