//! Progress notifications to a client that wants them.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    NotificationMetaObject, ProgressNotification, ProgressNotificationParam, ProgressToken,
};
use rmcp::service::RequestContext;
use tokio::time::Instant;

use super::translate;
use crate::api::runs::handle::{RunHandle, RunProgress};

/// The longest time between two notifications.
const INTERVAL_MAX: Duration = Duration::from_secs(15);

/// The shortest time between two notifications.
const INTERVAL_MIN: Duration = Duration::from_millis(250);

/// Notifies a client of the progress of a run.
pub(super) struct ProgressReporter<'a> {
    context: &'a RequestContext<RoleServer>,
    run_id: Arc<str>,
    token: Option<ProgressToken>,
    total: Option<f64>,
    /// The number that was sent last.
    sent: f64,
    /// The finished steps that were sent last.
    sent_steps: u32,
    /// The progress of calls that was sent last.
    sent_calls: u64,
    /// How many notifications were sent since a step finished.
    sent_between: f64,
    sent_at: Instant,
}

impl<'a> ProgressReporter<'a> {
    pub(super) fn new(
        context: &'a RequestContext<RoleServer>,
        handle: &RunHandle,
    ) -> ProgressReporter<'a> {
        ProgressReporter {
            context,
            run_id: handle.run_id.clone(),
            token: context.meta.get_progress_token(),
            total: handle.steps.map(f64::from),
            sent: 0.0,
            sent_steps: 0,
            sent_calls: 0,
            sent_between: 0.0,
            sent_at: Instant::now(),
        }
    }

    /// Whether the client asked for notifications.
    pub(super) fn is_wanted(&self) -> bool {
        self.token.is_some()
    }

    /// Resolves when the client has heard nothing for so long that it may give up.
    pub(super) async fn overdue(&self) {
        if self.is_wanted() {
            tokio::time::sleep_until(self.sent_at + INTERVAL_MAX).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Reports finished steps, or progress of a call, unless a notification was sent just now.
    pub(super) async fn report(&mut self, progress: &RunProgress) {
        let has_finished = progress.steps_done > self.sent_steps;
        let is_first = self.sent_steps == 0 && self.sent_calls == 0;
        if !is_first && self.sent_at.elapsed() < INTERVAL_MIN {
            return;
        }
        if has_finished {
            self.send(f64::from(progress.steps_done), progress).await;
        } else if progress.progressed > self.sent_calls {
            self.report_between(progress).await;
        }
    }

    /// Reports although no step has finished. The number must grow, and stay below the next step: it is
    /// the fraction that a call reports, or else a part of the rest, a smaller one each time.
    pub(super) async fn report_between(&mut self, progress: &RunProgress) {
        self.sent_between += 1.0;
        let next = self.sent.floor() + 1.0;
        let least = self.sent + (next - self.sent) / (self.sent_between + 1.0);
        let part = progress.fraction.filter(|part| *part < 1.0).unwrap_or(0.0);
        let own = f64::from(progress.steps_done) + part;
        self.send(if own > self.sent { own } else { least }, progress).await;
    }

    async fn send(&mut self, number: f64, progress: &RunProgress) {
        if number.floor() > self.sent.floor() {
            self.sent_between = 0.0;
        }
        (self.sent, self.sent_steps, self.sent_at) = (number, progress.steps_done, Instant::now());
        self.sent_calls = progress.progressed;
        let Some(token) = self.token.clone() else { return };
        let mut params = ProgressNotificationParam::new(token, number);
        params.total = self.total;
        params.message = Some(progress.message.to_string());
        // A client that loses the connection can find the run by this id.
        let mut meta = NotificationMetaObject::new();
        meta.insert(translate::RUN_ID.to_owned(), (*self.run_id).into());
        params.meta = Some(meta);
        let notification = ProgressNotification::new(params);
        let _ = self.context.peer.send_notification(notification.into()).await;
    }
}
