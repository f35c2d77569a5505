//! What this process did with the queue of runs, and how late it hears of others: figures for operators.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use uuid::Uuid;

use super::Shared;
use super::session::DbSession;
use crate::store::{SharedFigures, StoreError};

/// Runs that are counted as due, at most.
const DUE_MAX: u64 = 10_000;

/// Counts since this process opened the store, and what was measured last.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) claims: Counter,
    pub(super) takeovers: Counter,
    pub(super) refused: Counter,
    pub(super) withheld: Counter,
    due: AtomicU64,
    due_age_ms: AtomicU64,
}

/// A number that grows.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Measures notifications: this process sends one to itself, on a channel of its own.
pub(super) struct NotificationLag {
    channel: String,
    /// When the one was sent that did not come yet.
    sent: Mutex<Option<Instant>>,
    last_us: AtomicU64,
}

impl Default for NotificationLag {
    fn default() -> NotificationLag {
        NotificationLag {
            channel: format!("segue_lag_{}", Uuid::new_v4().simple()),
            sent: Mutex::default(),
            last_us: AtomicU64::default(),
        }
    }
}

impl NotificationLag {
    /// The statement after which a connection gets it.
    pub(super) fn listen(&self) -> String {
        format!("LISTEN {}", self.channel)
    }

    /// Takes a notification; returns whether it is this one.
    pub(super) fn heard(&self, channel: &str) -> bool {
        if channel != self.channel {
            return false;
        }
        if let Some(sent) = self.sent.lock().take() {
            let micros = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.last_us.store(micros, Ordering::Relaxed);
        }
        true
    }

    /// Sends one, unless one is under way.
    pub(super) async fn send(&self, session: &DbSession) -> Result<(), StoreError> {
        {
            let mut sent = self.sent.lock();
            if sent.is_some() {
                return Ok(());
            }
            *sent = Some(Instant::now());
        }
        session.query("SELECT pg_notify($1, '')", &[&self.channel]).await.map(drop)
    }

    /// Forgets one that was sent before the connection listened.
    pub(super) fn reset(&self) {
        *self.sent.lock() = None;
    }

    /// How long the last one took, or the one that is under way takes already.
    fn get(&self) -> Duration {
        let last = Duration::from_micros(self.last_us.load(Ordering::Relaxed));
        self.sent.lock().map_or(last, |sent| last.max(sent.elapsed()))
    }
}

/// Runs that no process drives and that could go on, and how long the first of them has waited.
const DUE: &str = "SELECT count(*), coalesce(max(extract(epoch FROM age)) * 1000, 0)::bigint
    FROM (
        SELECT statement_timestamp() - due_at AS age FROM run
        WHERE ended_ms IS NULL AND owner IS NULL AND set_aside IS NULL
            AND due_at <= statement_timestamp()
        ORDER BY due_at LIMIT $1
    ) AS due";

impl Shared {
    /// Measures the queue of due runs. It is a figure for operators: an error leaves it as it was.
    pub(super) async fn measure_queue(&self, session: &DbSession) {
        let most = DUE_MAX.cast_signed();
        if let Ok(Some(row)) = session.query_opt(DUE, &[&most]).await {
            let number = |column| row.get::<_, i64>(column).unsigned_abs();
            self.counters.due.store(number(0), Ordering::Relaxed);
            self.counters.due_age_ms.store(number(1), Ordering::Relaxed);
        }
    }

    /// The figures of this process and of the queue.
    pub(super) fn shared_figures(&self) -> SharedFigures {
        let Counters { claims, takeovers, refused, withheld, due, due_age_ms } = &self.counters;
        SharedFigures {
            claims: claims.get(),
            takeovers: takeovers.get(),
            refused: refused.get(),
            withheld: withheld.get(),
            lease: self.options.lease,
            heartbeat_age: self.ownership.heartbeat_age(self.options.lease),
            due: due.load(Ordering::Relaxed),
            due_age: Duration::from_millis(due_age_ms.load(Ordering::Relaxed)),
            notification_lag: self.address.signals.lag.get(),
        }
    }
}
