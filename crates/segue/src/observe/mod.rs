//! Metrics, traces and logs for operators.
//!
//! ```text
//! run_timings.rs    the journal of a run → starts and ends of runs, steps and attempts
//! metrics.rs        counters and histograms for Prometheus
//! traces.rs         spans, sent as OTLP
//! log.rs            log lines on standard error
//! ```
//!
//! Everything is derived from the journal entries of a run. Observers never change a run, and a run never
//! waits for them.

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
    /// Metrics, in a server.
    pub metrics: Option<Arc<Metrics>>,
    /// Traces, if an endpoint is configured.
    pub traces: Option<Arc<Traces>>,
}

/// The request that started a run.
#[derive(Clone, Debug, Default)]
pub struct RequestOrigin {
    /// The id of the HTTP request, which the client may have chosen.
    pub request_id: Option<Arc<str>>,
    /// The trace that the request belongs to.
    pub trace: Option<TraceContext>,
    /// The MCP session of the request.
    pub session_id: Option<Arc<str>>,
}

impl Observers {
    /// The trace of a run: that of its request, or a new one. `None` if traces are not sent.
    pub fn trace(&self, run_id: &str, of_request: Option<TraceContext>) -> Option<TraceContext> {
        self.traces.as_ref()?;
        Some(of_request.unwrap_or_else(|| TraceContext::of_run(run_id)))
    }

    /// Whether metrics, traces or logs are on.
    fn is_enabled(&self) -> bool {
        self.metrics.is_some() || self.traces.is_some() || log::is_open()
    }

    /// An observer of one run that also passes everything on to `observer`. Metrics count the run under
    /// `name`.
    pub fn watch<'a>(
        &self,
        observer: &'a dyn Observer,
        name: &str,
        origin: &RequestOrigin,
    ) -> RunObserver<'a> {
        let composition = self.metrics.as_ref().map(|metrics| metrics.composition(name));
        RunObserver {
            observer,
            is_enabled: self.is_enabled(),
            observers: self.clone(),
            composition: composition.unwrap_or_default(),
            http_request_id: origin.request_id.clone(),
            session_id: origin.session_id.clone(),
            timings: Mutex::default(),
        }
    }
}

/// The observer of one run.
pub struct RunObserver<'a> {
    observer: &'a dyn Observer,
    /// Whether metrics, traces or logs are on.
    is_enabled: bool,
    observers: Observers,
    composition: Label,
    http_request_id: Option<Arc<str>>,
    session_id: Option<Arc<str>>,
    timings: Mutex<RunTimings>,
}

impl RunObserver<'_> {
    fn record_update(&self, run: &Run, at_ms: u64, update: &RunUpdate<'_>) {
        if let Some(metrics) = &self.observers.metrics {
            metrics.record_update(run, &self.composition, at_ms, update);
        }
        if let (Some(traces), Some(trace)) = (&self.observers.traces, run.trace()) {
            traces.record_update(run, trace, self.session_id.as_deref(), at_ms, update);
        }
        log::log_update(run, self.http_request_id.as_deref(), at_ms, update);
    }
}

impl Observer for RunObserver<'_> {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        self.observer.observe(run, entries);
        if !self.is_enabled {
            return;
        }
        let mut timings = self.timings.lock();
        for entry in entries {
            timings.apply(run, entry, &mut |update| self.record_update(run, entry.at_ms, update));
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
        if !self.is_enabled {
            return;
        }
        let mut timings = self.timings.lock();
        for entry in journal {
            timings.apply(run, entry, &mut |_| {});
        }
    }
}
