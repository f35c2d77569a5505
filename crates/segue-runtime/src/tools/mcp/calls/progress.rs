//! Progress of a call as its server reports it, at a limited rate.

use std::time::Duration;

use rmcp::model::ProgressToken;
use serde::Deserialize;
use tokio::time::Instant;

use crate::tools::Progress;
use crate::tools::mcp::definition::strip_invisible;

/// The longest progress message.
pub(crate) const PROGRESS_CHARS_MAX: usize = 300;

/// The shortest time between two progress updates of a call.
const PROGRESS_MIN: Duration = Duration::from_millis(200);

/// A notification of progress.
#[derive(Deserialize)]
pub(crate) struct ProgressNotice {
    #[serde(rename = "progressToken")]
    pub(crate) token: ProgressToken,
    progress: f64,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

/// The progress of a call.
#[derive(Debug, Default)]
pub(crate) struct ProgressState {
    /// The last value.
    last: Option<f64>,
    /// An update that was not forwarded yet.
    untold: Option<Progress>,
    told_at: Option<Instant>,
}

impl ProgressState {
    /// Records a notification. Returns whether it is real progress: a repeated value is none.
    pub(crate) fn note(&mut self, said: &ProgressNotice) -> bool {
        if self.last.is_some_and(|last| said.progress <= last) {
            return false;
        }
        self.last = Some(said.progress);
        let message = said.message.as_deref();
        let message = message.map(|message| strip_invisible(message, PROGRESS_CHARS_MAX).into());
        self.untold = Some(Progress { progress: self.last, total: said.total, message });
        true
    }

    /// The update to forward now.
    pub(crate) fn take(&mut self) -> Option<Progress> {
        if self.told_at.is_some_and(|at| at.elapsed() < PROGRESS_MIN) {
            return None;
        }
        let progress = self.untold.take()?;
        self.told_at = Some(Instant::now());
        Some(progress)
    }
}
