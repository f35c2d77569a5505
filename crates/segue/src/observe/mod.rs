//! Metrics, traces and logs of runs, for operators.
//!
//! ```text
//! account.rs    the journal of a run → what began and what ended
//! metrics.rs    counts and durations, as Prometheus reads them
//! traces.rs     spans, sent as OTLP
//! log.rs        lines on standard error
//! ```
//!
//! Everything is taken from the entries that a run writes anyway. Nothing here changes a run, and no run
//! waits for it.

pub mod log;
pub mod metrics;
pub mod run_timings;
pub mod traces;

use std::sync::Arc;

use parking_lot::Mutex;
use segue_core::run::{CallId, Entry, Run, TraceContext};
use segue_runtime::driver::{InputAck, Observer};
use segue_runtime::tools::Progress;

use metrics::{Label, Metrics};
use run_timings::{RunTimings, RunUpdate};
use traces::Traces;

/// The metrics and traces that runs report to.
#[derive(Clone, Default)]
pub struct Observers {
    /// The metrics.
    pub metrics: Option<Arc<Metrics>>,
    /// The sender of spans.
    pub traces: Option<Arc<Traces>>,
}

/// The request that a run comes from.
#[derive(Clone, Debug, Default)]
pub struct RequestOrigin {
    /// The id of the HTTP request.
    pub request_id: Option<Arc<str>>,
    /// The trace that the request is a part of.
    pub trace: Option<TraceContext>,
    /// The MCP session.
    pub session_id: Option<Arc<str>>,
}

impl Observers {
    /// The trace of a run: that of its request, or one of its own. None when no spans are sent.
    pub fn trace(&self, run_id: &str, asked: Option<TraceContext>) -> Option<TraceContext> {
        self.traces.as_ref()?;
        Some(asked.unwrap_or_else(|| TraceContext::of_run(run_id)))
    }

    /// Whether runs report to anything.
    fn is_enabled(&self) -> bool {
        self.metrics.is_some() || self.traces.is_some() || log::is_open()
    }

    /// Watches one run, beside another observer. `name` is its name in metrics.
    pub fn watch<'a>(
        &self,
        observer: &'a dyn Observer,
        name: &str,
        origin: &RequestOrigin,
    ) -> RunObserver<'a> {
        let composition = self.metrics.as_ref().map(|metrics| metrics.composition(name));
        RunObserver {
            observer,
            is_watching: self.is_enabled(),
            observing: self.clone(),
            composition: composition.unwrap_or_default(),
            http_request_id: origin.request_id.clone(),
            session_id: origin.session_id.clone(),
            timings: Mutex::default(),
        }
    }
}

/// Watches one run.
pub struct RunObserver<'a> {
    observer: &'a dyn Observer,
    /// Otherwise nothing is recorded.
    is_watching: bool,
    observing: Observers,
    composition: Label,
    http_request_id: Option<Arc<str>>,
    session_id: Option<Arc<str>>,
    timings: Mutex<RunTimings>,
}

impl RunObserver<'_> {
    fn record_update(&self, run: &Run, at_ms: u64, told: &RunUpdate<'_>) {
        if let Some(metrics) = &self.observing.metrics {
            metrics.record_update(run, &self.composition, at_ms, told);
        }
        if let (Some(traces), Some(trace)) = (&self.observing.traces, run.trace()) {
            traces.record_update(run, trace, self.session_id.as_deref(), at_ms, told);
        }
        log::log_update(run, self.http_request_id.as_deref(), at_ms, told);
    }
}

impl Observer for RunObserver<'_> {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        self.observer.observe(run, entries);
        if !self.is_watching {
            return;
        }
        let mut account = self.timings.lock();
        for entry in entries {
            account.apply(run, entry, &mut |told| self.record_update(run, entry.at_ms, told));
        }
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &Progress) {
        self.observer.progressed(run, call, progress);
    }

    fn recorded(&self, what: InputAck) {
        self.observer.recorded(what);
    }

    fn resumed(&self, run: &Run, journal: &[Entry]) {
        self.observer.resumed(run, journal);
        if !self.is_watching {
            return;
        }
        let mut account = self.timings.lock();
        for entry in journal {
            account.apply(run, entry, &mut |_| {});
        }
    }
}
