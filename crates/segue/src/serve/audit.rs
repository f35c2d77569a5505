//! Who did what, in a line.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use segue_core::access::Principal;
use tokio::time::Instant;

/// How long between two lines about somebody who is not let in.
const KNOCKS_EVERY: Duration = Duration::from_secs(1);

/// How much of a path is said.
const PATH_CHARS: usize = 256;

/// What came of it.
#[derive(Clone, Copy)]
pub enum Status {
    /// As HTTP has it.
    Code(u16),
    /// In a word.
    Word(&'static str),
}

/// Says it: who did what, to what, in which run, and what came of it.
pub fn tell(
    who: &Principal,
    what: &str,
    to: &str,
    run_id: Option<&str>,
    status: Status,
    http_request_id: Option<&str>,
) {
    let (who, path) = (&*who.name, to.chars().take(PATH_CHARS).collect::<String>());
    match status {
        Status::Code(status) => tracing::info!(
            target: "segue::audit", who, what, path, status, run_id, http_request_id, "audit"
        ),
        Status::Word(status) => tracing::info!(
            target: "segue::audit", who, what, path, status, run_id, http_request_id, "audit"
        ),
    }
}

/// Those who were not let in. Whoever tries all day does not fill the lines: there is one now and then,
/// which says how many it stands for.
#[derive(Default)]
pub struct Knocks(Mutex<Knocked>);

#[derive(Default)]
struct Knocked {
    told: Option<Instant>,
    untold: u64,
}

impl Knocks {
    /// Says that somebody was not let in, and why. What they came with is not said.
    pub fn tell(&self, why: &str, path: &str, status: u16, http_request_id: Option<&str>) {
        let Some(times) = self.due() else { return };
        let path = path.chars().take(PATH_CHARS).collect::<String>();
        tracing::warn!(
            target: "segue::audit", what = "enter", path, status, why, times, http_request_id,
            "not let in"
        );
    }

    /// How many are to be told of now, if it is time for that.
    fn due(&self) -> Option<u64> {
        let mut knocked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        knocked.untold += 1;
        if knocked.told.is_some_and(|told| told.elapsed() < KNOCKS_EVERY) {
            return None;
        }
        knocked.told = Some(Instant::now());
        Some(std::mem::take(&mut knocked.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first one is told of at once, those after it together.
    #[tokio::test(start_paused = true)]
    async fn who_tries_all_day_does_not_fill_the_lines() {
        let knocks = Knocks::default();
        assert_eq!([knocks.due(), knocks.due(), knocks.due()], [Some(1), None, None]);
        tokio::time::advance(KNOCKS_EVERY).await;
        assert_eq!([knocks.due(), knocks.due()], [Some(3), None]);
    }
}
