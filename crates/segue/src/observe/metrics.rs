//! Counters, gauges and histograms for Prometheus.
//!
//! Events of runs are counted as they happen; current values, such as the size of the store, are read at
//! each scrape. Names of compositions and tools are limited in number: those beyond the limit are counted
//! as `other`, so that no client can make this grow.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use segue_core::limits::Limits;
use segue_core::run::{NodeId, Run};
use segue_runtime::store::{SharedFigures, StoreFigures};

use super::run_timings::{RunUpdate, SpanOutcome};

/// The media type of the rendered metrics.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The description of a metric.
pub struct MetricInfo {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Its help text.
    pub about: &'static str,
}

const fn described(
    name: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    about: &'static str,
) -> MetricInfo {
    MetricInfo { name, kind, labels, about }
}

/// Every metric. Only these can be registered.
pub const METRICS: &[MetricInfo] = &[
    described(
        "segue_runs_started_total",
        "counter",
        &["composition"],
        "Runs started by this process",
    ),
    described(
        "segue_runs_finished_total",
        "counter",
        &["composition", "status"],
        "Runs that ended, by status",
    ),
    described(
        "segue_run_duration_seconds",
        "histogram",
        &["composition"],
        "Duration of runs, including waits for people",
    ),
    described("segue_runs_active", "gauge", &[], "Runs under way in this process"),
    described("segue_runs_waiting", "gauge", &[], "Runs in the store that wait for a person"),
    described(
        "segue_steps_total",
        "counter",
        &["tool", "outcome"],
        "Settled steps, by tool or kind of step, and outcome",
    ),
    described(
        "segue_step_duration_seconds",
        "histogram",
        &["tool"],
        "Duration of steps, including retries and pauses",
    ),
    described(
        "segue_attempts_total",
        "counter",
        &["tool", "purpose", "outcome"],
        "Attempts of steps: `succeeded`, `cancelled`, `lost`, or the code of the error",
    ),
    described(
        "segue_call_duration_seconds",
        "histogram",
        &["tool"],
        "Duration of calls, including the wait for a free slot",
    ),
    described("segue_retries_total", "counter", &["tool"], "Attempts that failed and are retried"),
    described("segue_rollbacks_total", "counter", &[], "Compositions that are rolled back"),
    described("segue_store_appends_total", "counter", &[], "Journal writes of runs"),
    described("segue_store_syncs_total", "counter", &[], "Syncs of the store to disk"),
    described("segue_store_sync_seconds_total", "counter", &[], "Time spent writing and syncing"),
    described("segue_store_queue", "gauge", &[], "Writes waiting for the store"),
    described("segue_store_size_bytes", "gauge", &[], "Size of the store's files"),
    described(
        "segue_store_claims_total",
        "counter",
        &[],
        "Runs that this process claimed from a shared store",
    ),
    described(
        "segue_store_takeovers_total",
        "counter",
        &[],
        "Runs that this process took from one that died",
    ),
    described(
        "segue_store_refused_total",
        "counter",
        &[],
        "Journal writes refused because another process owns the run",
    ),
    described(
        "segue_store_withheld_total",
        "counter",
        &[],
        "Calls that did not leave because the lease was over",
    ),
    described(
        "segue_store_lease_seconds",
        "gauge",
        &[],
        "How long this process owns its runs after a heartbeat; 0 without a shared store",
    ),
    described(
        "segue_store_heartbeat_age_seconds",
        "gauge",
        &[],
        "Time since the last heartbeat that the store has answered",
    ),
    described(
        "segue_store_due_runs",
        "gauge",
        &[],
        "Runs that are due and that no process drives, up to 10,000",
    ),
    described(
        "segue_store_due_age_seconds",
        "gauge",
        &[],
        "How long the first of these runs has been due",
    ),
    described(
        "segue_store_notification_lag_seconds",
        "gauge",
        &[],
        "How late this process hears of what others write",
    ),
    described(
        "segue_upstream_up",
        "gauge",
        &["server"],
        "Whether an MCP server is connected; it starts on first use",
    ),
    described(
        "segue_upstream_starts_total",
        "counter",
        &["server"],
        "Connections made to an MCP server",
    ),
    described(
        "segue_upstream_failures_total",
        "counter",
        &["server"],
        "Failed connections to an MCP server",
    ),
    described(
        "segue_http_requests_total",
        "counter",
        &["route", "status"],
        "Requests by the name of their route in the API; `none` for those without one",
    ),
    described(
        "segue_http_request_duration_seconds",
        "histogram",
        &["route"],
        "Time from a request to the start of its response",
    ),
    described(
        "segue_http_connections_refused_total",
        "counter",
        &[],
        "Connections refused because the limit was reached",
    ),
    described("segue_http_followers", "gauge", &[], "Clients that follow runs"),
    described("segue_build_info", "gauge", &["version"], "Always 1"),
    described(
        "process_start_time_seconds",
        "gauge",
        &[],
        "Start time of the process, in seconds since 1970",
    ),
    described("process_resident_memory_bytes", "gauge", &[], "Resident memory of the process"),
];

/// Histogram buckets, from one millisecond to ten minutes.
const BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0];

/// The label of names beyond the limit.
const OTHER: &str = "other";

/// A value of a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

impl Default for Label {
    fn default() -> Label {
        Label(OTHER.into())
    }
}

impl From<&'static str> for Label {
    fn from(word: &'static str) -> Label {
        Label(word.into())
    }
}

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(&self.0)
    }
}

type Labels<const N: usize> = [(&'static str, Label); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;
type Seconds = Counter<f64, AtomicU64>;
type SecondsNow = Gauge<f64, AtomicU64>;

/// Label values of one kind, limited in number.
struct LabelNames {
    max: usize,
    known: RwLock<HashSet<Arc<str>>>,
}

impl LabelNames {
    fn new(max: usize) -> LabelNames {
        LabelNames { max, known: RwLock::default() }
    }

    fn label(&self, name: &str) -> Label {
        let known = self.known.read();
        if let Some(name) = known.get(name) {
            return Label(name.clone());
        }
        drop(known);
        let mut known = self.known.write();
        if known.len() >= self.max && !known.contains(name) {
            return Label::default();
        }
        let name: Arc<str> = name.into();
        known.insert(name.clone());
        Label(name)
    }
}

/// Current values that the server passes at each scrape.
#[derive(Clone, Debug, Default)]
pub struct GaugeValues {
    /// Runs under way.
    pub active: usize,
    /// Runs that wait for a person.
    pub waiting: usize,
    /// Clients that follow runs.
    pub followers: usize,
    /// Figures of the store.
    pub store: StoreFigures,
}

/// Figures of MCP servers: name, whether connected, starts and failed starts.
pub type UpstreamStats = dyn Fn() -> Vec<(Arc<str>, bool, u64, u64)> + Send + Sync;

/// The metrics of a server.
pub struct Metrics {
    registry: Registry,
    tools: LabelNames,
    compositions: LabelNames,
    upstream: Box<UpstreamStats>,
    runs_started: Counters<1>,
    runs_finished: Counters<2>,
    run_duration: Histograms<1>,
    steps: Counters<2>,
    step_duration: Histograms<1>,
    attempts: Counters<3>,
    call_duration: Histograms<1>,
    retries: Counters<1>,
    rollbacks: Counter,
    requests: Counters<2>,
    request_duration: Histograms<1>,
    refused: Counter,
    read: ScrapedMetrics,
}

/// Metrics that are set at each scrape.
#[derive(Default)]
struct ScrapedMetrics {
    active: Gauge,
    waiting: Gauge,
    followers: Gauge,
    appends: Counter,
    syncs: Counter,
    sync_seconds: Seconds,
    queue: Gauge,
    size: Gauge,
    claims: Counter,
    takeovers: Counter,
    refused: Counter,
    withheld: Counter,
    lease: SecondsNow,
    heartbeat_age: SecondsNow,
    due: Gauge,
    due_age: SecondsNow,
    notification_lag: SecondsNow,
    up: Family<Labels<1>, Gauge>,
    starts: Counters<1>,
    failures: Counters<1>,
    memory: Gauge,
}

impl ScrapedMetrics {
    /// Sets those of a store that several processes share.
    fn set_shared(&self, shared: &SharedFigures) {
        let count = |counter: &Counter, count| counter.inner().store(count, Ordering::Relaxed);
        count(&self.claims, shared.claims);
        count(&self.takeovers, shared.takeovers);
        count(&self.refused, shared.refused);
        count(&self.withheld, shared.withheld);
        self.lease.set(shared.lease.as_secs_f64());
        self.heartbeat_age.set(shared.heartbeat_age.as_secs_f64());
        self.due.set(i64::try_from(shared.due).unwrap_or(i64::MAX));
        self.due_age.set(shared.due_age.as_secs_f64());
        self.notification_lag.set(shared.notification_lag.as_secs_f64());
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

fn histograms<const N: usize>() -> Histograms<N> {
    Family::new_with_constructor(histogram)
}

impl Metrics {
    /// Metrics that start at zero. `upstream` returns the figures of the MCP servers.
    pub fn new(limits: &Limits, upstream: Box<UpstreamStats>) -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::default(),
            tools: LabelNames::new(limits.metrics_names_max),
            compositions: LabelNames::new(limits.metrics_names_max),
            upstream,
            runs_started: Family::default(),
            runs_finished: Family::default(),
            run_duration: histograms(),
            steps: Family::default(),
            step_duration: histograms(),
            attempts: Family::default(),
            call_duration: histograms(),
            retries: Family::default(),
            rollbacks: Counter::default(),
            requests: Family::default(),
            request_duration: histograms(),
            refused: Counter::default(),
            read: ScrapedMetrics::default(),
        };
        metrics.register_all();
        metrics
    }

    fn register_all(&mut self) {
        let Metrics { registry, read, .. } = self;
        let build: Family<Labels<1>, Gauge> = Family::default();
        build.get_or_create(&[("version", Label::from(env!("CARGO_PKG_VERSION")))]).set(1);
        let started: Gauge = Gauge::default();
        started.set(i64::try_from(since_1970().as_secs()).unwrap_or(0));
        register(registry, "segue_runs_started_total", &self.runs_started);
        register(registry, "segue_runs_finished_total", &self.runs_finished);
        register(registry, "segue_run_duration_seconds", &self.run_duration);
        register(registry, "segue_runs_active", &read.active);
        register(registry, "segue_runs_waiting", &read.waiting);
        register(registry, "segue_steps_total", &self.steps);
        register(registry, "segue_step_duration_seconds", &self.step_duration);
        register(registry, "segue_attempts_total", &self.attempts);
        register(registry, "segue_call_duration_seconds", &self.call_duration);
        register(registry, "segue_retries_total", &self.retries);
        register(registry, "segue_rollbacks_total", &self.rollbacks);
        register(registry, "segue_store_appends_total", &read.appends);
        register(registry, "segue_store_syncs_total", &read.syncs);
        register(registry, "segue_store_sync_seconds_total", &read.sync_seconds);
        register(registry, "segue_store_queue", &read.queue);
        register(registry, "segue_store_size_bytes", &read.size);
        register(registry, "segue_store_claims_total", &read.claims);
        register(registry, "segue_store_takeovers_total", &read.takeovers);
        register(registry, "segue_store_refused_total", &read.refused);
        register(registry, "segue_store_withheld_total", &read.withheld);
        register(registry, "segue_store_lease_seconds", &read.lease);
        register(registry, "segue_store_heartbeat_age_seconds", &read.heartbeat_age);
        register(registry, "segue_store_due_runs", &read.due);
        register(registry, "segue_store_due_age_seconds", &read.due_age);
        register(registry, "segue_store_notification_lag_seconds", &read.notification_lag);
        register(registry, "segue_upstream_up", &read.up);
        register(registry, "segue_upstream_starts_total", &read.starts);
        register(registry, "segue_upstream_failures_total", &read.failures);
        register(registry, "segue_http_requests_total", &self.requests);
        register(registry, "segue_http_request_duration_seconds", &self.request_duration);
        register(registry, "segue_http_connections_refused_total", &self.refused);
        register(registry, "segue_http_followers", &read.followers);
        register(registry, "segue_build_info", &build);
        register(registry, "process_start_time_seconds", &started);
        register(registry, "process_resident_memory_bytes", &read.memory);
    }

    /// The label of a composition.
    pub fn composition(&self, name: &str) -> Label {
        self.compositions.label(name)
    }

    /// Counts an update of a run.
    pub(super) fn record_update(
        &self,
        run: &Run,
        composition: &Label,
        at_ms: u64,
        update: &RunUpdate<'_>,
    ) {
        let composition = ("composition", composition.clone());
        match update {
            RunUpdate::Began => drop(self.runs_started.get_or_create(&[composition]).inc()),
            RunUpdate::Ended { began_ms, status, .. } => {
                let composition = [composition];
                let took = seconds(*began_ms, at_ms);
                self.run_duration.get_or_create(&composition).observe(took);
                let [composition] = composition;
                let status = ("status", Label::from(status.as_str()));
                self.runs_finished.get_or_create(&[composition, status]).inc();
            }
            RunUpdate::Attempt(attempt, outcome) => {
                let tool = [("tool", self.tools.label(&attempt.tool))];
                let took = seconds(attempt.began_ms, at_ms);
                self.call_duration.get_or_create(&tool).observe(took);
                let [tool] = tool;
                let purpose = ("purpose", Label::from(attempt.purpose_name()));
                let word = outcome.error().unwrap_or(outcome.as_str());
                let outcome = ("outcome", Label::from(word));
                self.attempts.get_or_create(&[tool, purpose, outcome]).inc();
            }
            RunUpdate::Step { node, began_ms, outcome } => {
                let tool = [("tool", self.tool_of(run, *node))];
                if let Some(began_ms) = began_ms {
                    let took = seconds(*began_ms, at_ms);
                    self.step_duration.get_or_create(&tool).observe(took);
                }
                let [tool] = tool;
                let outcome = ("outcome", Label::from(SpanOutcome::as_str(*outcome)));
                self.steps.get_or_create(&[tool, outcome]).inc();
            }
            RunUpdate::Retried(node) => {
                self.retries.get_or_create(&[("tool", self.tool_of(run, *node))]).inc();
            }
            RunUpdate::RollingBack => drop(self.rollbacks.inc()),
        }
    }

    fn tool_of(&self, run: &Run, node: NodeId) -> Label {
        self.tools.label(&run.tool_name(node, 0))
    }

    /// Counts a request that was answered.
    pub fn count_request(&self, route: &'static str, status: u16, took: Duration) {
        let route = [("route", Label::from(route))];
        self.request_duration.get_or_create(&route).observe(took.as_secs_f64());
        let ([route], status) = (route, ("status", status_label(status)));
        self.requests.get_or_create(&[route, status]).inc();
    }

    /// Counts a connection that was refused because the limit was reached.
    pub fn count_refused(&self) {
        self.refused.inc();
    }

    /// Renders all metrics.
    pub fn render(&self, figures: &GaugeValues) -> String {
        let read = &self.read;
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        read.active.set(whole(figures.active));
        read.waiting.set(whole(figures.waiting));
        read.followers.set(whole(figures.followers));
        let store = &figures.store;
        read.appends.inner().store(store.appends, Ordering::Relaxed);
        read.syncs.inner().store(store.syncs, Ordering::Relaxed);
        let spent = store.sync_time.as_secs_f64();
        read.sync_seconds.inner().store(spent.to_bits(), Ordering::Relaxed);
        read.queue.set(i64::try_from(store.queue).unwrap_or(i64::MAX));
        read.size.set(i64::try_from(store.size_bytes).unwrap_or(i64::MAX));
        read.set_shared(&store.shared);
        for (server, is_up, starts, failures) in (self.upstream)() {
            let server = [("server", Label(server))];
            read.up.get_or_create(&server).set(i64::from(is_up));
            read.starts.get_or_create(&server).inner().store(starts, Ordering::Relaxed);
            read.failures.get_or_create(&server).inner().store(failures, Ordering::Relaxed);
        }
        read.memory.set(i64::try_from(resident_bytes().unwrap_or(0)).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing into a text cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// Registers a metric under its name in the table.
fn register(registry: &mut Registry, name: &'static str, metric: &(impl Metric + Clone)) {
    let known = METRICS.iter().find(|known| known.name == name).expect("it is in the table");
    // The library adds `_total` to the name of a counter.
    let name = name.strip_suffix("_total").unwrap_or(name);
    registry.register(name, known.about, metric.clone());
}

fn seconds(began_ms: u64, at_ms: u64) -> f64 {
    Duration::from_millis(at_ms.saturating_sub(began_ms)).as_secs_f64()
}

fn status_label(status: u16) -> Label {
    Label(status.to_string().into())
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Resident memory of the process, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(names_max: usize) -> Metrics {
        let limits = Limits { metrics_names_max: names_max, ..Limits::default() };
        Metrics::new(&limits, Box::new(|| vec![("files".into(), true, 2, 1)]))
    }

    #[test]
    fn names_that_are_too_many_are_counted_together() {
        let metrics = metrics(2);
        let labels = ["a", "b", "c", "a", "d"].map(|name| metrics.composition(name));
        let labels = labels.iter().map(|label| &*label.0).collect::<Vec<_>>();
        assert_eq!(labels, ["a", "b", OTHER, "a", OTHER]);
    }

    #[test]
    fn external_figures_are_read_on_each_request() {
        let metrics = metrics(2);
        metrics.count_request("getRun", 200, Duration::from_millis(20));
        metrics.count_refused();
        let sync_time = Duration::from_millis(1_500);
        let shared = SharedFigures {
            claims: 9,
            takeovers: 2,
            refused: 1,
            withheld: 6,
            lease: Duration::from_secs(10),
            heartbeat_age: Duration::from_millis(2_500),
            due: 8,
            due_age: Duration::from_millis(750),
            notification_lag: Duration::from_millis(5),
        };
        let store =
            StoreFigures { appends: 7, syncs: 3, sync_time, queue: 2, size_bytes: 4096, shared };
        let figures = GaugeValues { active: 4, waiting: 1, followers: 5, store };
        let text = metrics.render(&figures);
        for line in [
            "segue_runs_active 4",
            "segue_runs_waiting 1",
            "segue_http_followers 5",
            "segue_store_appends_total 7",
            "segue_store_sync_seconds_total 1.5",
            "segue_store_queue 2",
            "segue_store_size_bytes 4096",
            "segue_store_claims_total 9",
            "segue_store_takeovers_total 2",
            "segue_store_refused_total 1",
            "segue_store_withheld_total 6",
            "segue_store_lease_seconds 10.0",
            "segue_store_heartbeat_age_seconds 2.5",
            "segue_store_due_runs 8",
            "segue_store_due_age_seconds 0.75",
            "segue_store_notification_lag_seconds 0.005",
            "segue_upstream_up{server=\"files\"} 1",
            "segue_upstream_starts_total{server=\"files\"} 2",
            "segue_http_requests_total{route=\"getRun\",status=\"200\"} 1",
            "segue_http_request_duration_seconds_bucket{le=\"0.025\",route=\"getRun\"} 1",
            "segue_http_connections_refused_total 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in {text}");
        }
    }

    /// Every metric of the table is registered.
    #[test]
    fn the_table_has_every_metric_with_its_kind() {
        let metrics = metrics(2);
        // A metric without a value is not rendered.
        let word = |name| (name, Label::from("a"));
        metrics.runs_started.get_or_create(&[word("composition")]).inc();
        metrics.runs_finished.get_or_create(&[word("composition"), word("status")]).inc();
        metrics.attempts.get_or_create(&["tool", "purpose", "outcome"].map(word)).inc();
        metrics.steps.get_or_create(&[word("tool"), word("outcome")]).inc();
        metrics.retries.get_or_create(&[word("tool")]).inc();
        metrics.run_duration.get_or_create(&[word("composition")]).observe(1.0);
        for durations in [&metrics.step_duration, &metrics.call_duration] {
            durations.get_or_create(&[word("tool")]).observe(1.0);
        }
        metrics.count_request("a", 200, Duration::ZERO);
        let text = metrics.render(&GaugeValues::default());
        for MetricInfo { name, kind, labels, about } in METRICS {
            let sample = text.lines().find(|line| line.starts_with(name)).unwrap();
            for label in *labels {
                assert!(sample.contains(&format!("{label}=\"")), "{label} of {sample}");
            }
            let family = name.strip_suffix("_total").unwrap_or(name);
            assert!(text.contains(&format!("# TYPE {family} {kind}\n")), "{name} in {text}");
            assert!(text.contains(&format!("# HELP {family} {about}.\n")), "{name}");
        }
        assert_eq!(text.matches("# TYPE ").count(), METRICS.len());
    }
}
