//! The log of refused credentials.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::audit::PATH_CHARS;

/// The shortest time between two lines.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Logs refused credentials. A client that tries all day does not fill the log: there is at most one line
/// in a second, with the number of failures that it stands for.
#[derive(Default)]
pub(crate) struct AuthFailureLog(Mutex<Failures>);

#[derive(Default)]
struct Failures {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl AuthFailureLog {
    /// Logs a failure and its reason, without the credential.
    pub(super) fn log(&self, why: &str, path: &str, status: u16, http_request_id: Option<&str>) {
        let Some(times) = self.due() else { return };
        let path = path.chars().take(PATH_CHARS).collect::<String>();
        tracing::warn!(
            target: "segue::audit", what = "enter", path, status, why, times, http_request_id,
            "not let in"
        );
    }

    /// How many failures to log now, if it is time.
    fn due(&self) -> Option<u64> {
        let mut failures = self.0.lock();
        failures.unlogged += 1;
        if failures.logged_at.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            return None;
        }
        failures.logged_at = Some(Instant::now());
        Some(std::mem::take(&mut failures.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first failure is logged at once, the next ones together.
    #[tokio::test(start_paused = true)]
    async fn repeated_failures_do_not_fill_the_log() {
        let failures = AuthFailureLog::default();
        assert_eq!([failures.due(), failures.due(), failures.due()], [Some(1), None, None]);
        tokio::time::advance(LOG_EVERY).await;
        assert_eq!([failures.due(), failures.due()], [Some(3), None]);
    }
}
