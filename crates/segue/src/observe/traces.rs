//! Spans of runs, steps and attempts, sent as OTLP over HTTP.
//!
//! A span is made when its run, step or attempt has ended, with the times of the journal and an id that
//! is derived from the run. It holds names, numbers and codes; never inputs or outputs, nor messages,
//! which may quote them. A thread of the OpenTelemetry library sends spans in batches. Spans that cannot
//! be sent are lost; only the end of the process waits for them, for a bounded time.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::run::{NodeId, Run, SpanSubject, TraceContext};
use segue_core::tool::Backend;
use segue_core::view::RunStatus;
use segue_runtime::tools::http;

use super::run_timings::{Attempt, RunUpdate, SpanOutcome};

/// The path of the collector that takes spans.
const PATH: &str = "/v1/traces";

/// The timeout of sending one batch.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Where spans are sent. Not `Debug`: headers hold secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TracesConfig {
    /// The collector's address, as in `http://127.0.0.1:4318`.
    pub endpoint: Option<String>,
    /// Headers of each request, such as an API key.
    pub headers: HashMap<String, String>,
}

/// The exporter of spans.
pub struct Traces {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
}

impl Traces {
    /// Starts the exporter, if the configuration or the environment names an endpoint.
    pub fn open(
        config: Option<&TracesConfig>,
        env: &dyn Fn(&str) -> Option<String>,
        limits: &Limits,
    ) -> Result<Option<Traces>, String> {
        let given = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let is = |name: &str, word: &str| given(name).is_some_and(|v| v.eq_ignore_ascii_case(word));
        let named = config.and_then(|config| config.endpoint.clone());
        let in_env = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let is_configured = named.is_some() || in_env.iter().any(|name| given(name).is_some());
        if !is_configured || is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let address = named.clone().or_else(|| in_env.iter().find_map(|name| given(name)));
        let client = reqwest::blocking::Client::builder()
            .tls_backend_preconfigured(http::tls_for(&address.unwrap_or_default()))
            .no_proxy()
            .timeout(SEND_TIMEOUT)
            .build()
            .map_err(|error| error.to_string())?;
        let mut builder =
            SpanExporter::builder().with_http().with_http_client(client).with_timeout(SEND_TIMEOUT);
        if let Some(endpoint) = named {
            builder = builder.with_endpoint(with_path(&endpoint));
        }
        if let Some(config) = config {
            builder = builder.with_headers(config.headers.clone());
        }
        let exporter = builder.build().map_err(|error| error.to_string())?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(limits.traces_queue_max)
            .with_max_export_batch_size(limits.traces_queue_max.min(512))
            .build();
        let mut processor =
            BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        processor.set_resource(&resource(given("OTEL_SERVICE_NAME")));
        let scope =
            InstrumentationScope::builder("segue").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Some(Traces { processor, scope }))
    }

    /// Sends the remaining spans, waiting at most this long.
    pub fn close(&self, timeout: Duration) {
        let _ = self.processor.shutdown_with_timeout(timeout);
    }

    /// Makes and sends the span of a run, step or attempt that ended.
    pub(super) fn record_update(
        &self,
        run: &Run,
        trace: &TraceContext,
        session_id: Option<&str>,
        at_ms: u64,
        update: &RunUpdate<'_>,
    ) {
        let builder = SpanBuilder { run, trace, session_id, at_ms };
        let span = match update {
            RunUpdate::Ended { began_ms, before, status, code } => {
                builder.run_span(*began_ms, *before, *status, code.map(Code::as_str))
            }
            RunUpdate::Step { node, began_ms: Some(began_ms), outcome } => {
                builder.step_span(*node, *began_ms, *outcome)
            }
            RunUpdate::Attempt(attempt, outcome) => builder.attempt_span(attempt, *outcome),
            RunUpdate::Step { .. }
            | RunUpdate::Began
            | RunUpdate::Retried(_)
            | RunUpdate::RollingBack => return,
        };
        // The client that started the run may have turned sampling off for its trace.
        if trace.is_sampled {
            self.processor.on_end(span.data(&self.scope));
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

/// The address of a collector with the path that takes spans.
fn with_path(endpoint: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.ends_with(PATH) { endpoint.to_owned() } else { format!("{endpoint}{PATH}") }
}

/// The service that sends the spans.
fn resource(service: Option<String>) -> Resource {
    let service = service.unwrap_or_else(|| "segue".to_owned());
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    Resource::builder().with_service_name(service).with_attribute(version).build()
}

/// A span before it is converted for the library.
struct Span {
    trace_id: [u8; 16],
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    /// Whether another service made the parent.
    is_foreign: bool,
    name: String,
    kind: SpanKind,
    began_ms: u64,
    ended_ms: u64,
    attributes: Vec<KeyValue>,
    error: Option<&'static str>,
}

impl Span {
    fn data(mut self, scope: &InstrumentationScope) -> SpanData {
        let status = match self.error {
            Some(error) => {
                self.attributes.push(KeyValue::new("error.type", error));
                // The code, not the message, which may quote inputs.
                Status::error(error)
            }
            None => Status::Ok,
        };
        let span_context = SpanContext::new(
            TraceId::from_bytes(self.trace_id),
            SpanId::from_bytes(self.id),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        );
        SpanData {
            span_context,
            parent_span_id: self.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
            parent_span_is_remote: self.is_foreign,
            span_kind: self.kind,
            name: self.name.into(),
            start_time: time(self.began_ms),
            end_time: time(self.ended_ms),
            attributes: self.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: scope.clone(),
        }
    }
}

fn time(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

/// Makes the spans of a run.
struct SpanBuilder<'a> {
    run: &'a Run,
    trace: &'a TraceContext,
    /// The MCP session that started the run.
    session_id: Option<&'a str>,
    at_ms: u64,
}

impl SpanBuilder<'_> {
    fn span(&self, of: SpanSubject, name: String, began_ms: u64) -> Span {
        let run_id = self.run.run_id();
        Span {
            trace_id: self.trace.trace_id,
            id: self.id(of),
            parent: None,
            is_foreign: false,
            name,
            kind: SpanKind::Internal,
            began_ms,
            ended_ms: self.at_ms,
            attributes: vec![
                KeyValue::new("segue.run.id", run_id.to_owned()),
                KeyValue::new("segue.request.id", self.run.request_id().to_owned()),
            ],
            error: None,
        }
    }

    fn id(&self, of: SpanSubject) -> [u8; 8] {
        self.trace.span(self.run.run_id(), of)
    }

    fn run_span(
        &self,
        began_ms: u64,
        before: u32,
        status: RunStatus,
        code: Option<&'static str>,
    ) -> Span {
        let word = if before == 0 { "run" } else { "rollback" };
        let mut span =
            self.span(SpanSubject::Run(before), format!("{word} {}", self.run.name()), began_ms);
        (span.parent, span.is_foreign) = match before {
            0 => (self.trace.parent, self.trace.parent.is_some()),
            _ => (Some(self.id(SpanSubject::Run(0))), false),
        };
        span.attributes.extend([
            KeyValue::new("segue.composition.name", self.run.name().to_string()),
            KeyValue::new("segue.run.status", status.as_str()),
        ]);
        let session_id = self.session_id.map(str::to_owned);
        span.attributes.extend(session_id.map(|id| KeyValue::new("mcp.session.id", id)));
        span.error = code.or((status != RunStatus::Success).then_some(status.as_str()));
        span
    }

    fn step_span(&self, node: NodeId, began_ms: u64, outcome: SpanOutcome) -> Span {
        let path = self.run.path(node);
        let mut span =
            self.span(SpanSubject::Step(node), format!("step {}", plain(&path)), began_ms);
        span.parent = Some(match self.run.parent_step(node) {
            Some(around) => self.id(SpanSubject::Step(around)),
            None => self.id(SpanSubject::Run(0)),
        });
        span.attributes.extend([
            KeyValue::new("segue.step.path", path.to_string()),
            KeyValue::new("segue.step.tool", self.run.tool_name(node, 0)),
            KeyValue::new("segue.step.outcome", outcome.as_str()),
        ]);
        span.error = outcome.error();
        span
    }

    fn attempt_span(&self, ended: &Attempt, outcome: SpanOutcome) -> Span {
        let Attempt { call, tool, backend, began_ms, .. } = ended;
        let node = call.node;
        let short = tool.rsplit(':').next().unwrap_or(tool);
        let (name, is_mcp) = match backend {
            Backend::Mcp => (format!("tools/call {short}"), true),
            _ => (format!("execute_tool {short}"), false),
        };
        let mut span = self.span(SpanSubject::Attempt(*call), name, *began_ms);
        span.parent = Some(self.id(SpanSubject::Step(node)));
        span.kind = if *backend == Backend::Local { SpanKind::Internal } else { SpanKind::Client };
        span.attributes.extend([
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", short.to_owned()),
            KeyValue::new("segue.tool.id", tool.to_string()),
            KeyValue::new("segue.step.path", self.run.path(node).to_string()),
            KeyValue::new("segue.attempt", i64::from(ended.number)),
            KeyValue::new("segue.purpose", ended.purpose_name()),
        ]);
        if is_mcp {
            span.attributes.push(KeyValue::new("mcp.method.name", "tools/call"));
        }
        span.error = outcome.error();
        span
    }
}

/// The id of a step without iterations and visits, so that span names stay few.
fn plain(path: &str) -> &str {
    let last = path.rsplit('/').next().unwrap_or(path);
    last.split(['#', '[', '~']).next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_named_with_or_without_the_path() {
        assert_eq!(with_path("http://c:4318"), "http://c:4318/v1/traces");
        assert_eq!(with_path("http://c:4318/"), "http://c:4318/v1/traces");
        assert_eq!(with_path("http://c:4318/v1/traces"), "http://c:4318/v1/traces");
    }

    #[test]
    fn names_of_spans_are_few() {
        assert_eq!(plain("each[3]/parse"), "parse");
        assert_eq!(plain("poll#2"), "poll");
        assert_eq!(plain("outer~undo/back"), "back");
    }

    /// Spans are sent only to a configured endpoint.
    #[test]
    fn nothing_is_sent_unless_it_is_said_where() {
        let limits = Limits::default();
        let open = |config: Option<&TracesConfig>, set: &'static [(&str, &str)]| {
            let env = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned())
            };
            Traces::open(config, &env, &limits).unwrap().is_some()
        };
        assert!(!open(None, &[]));
        assert!(!open(Some(&TracesConfig::default()), &[]));
        assert!(open(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")]));
        let config =
            TracesConfig { endpoint: Some("http://127.0.0.1:1".into()), ..Default::default() };
        assert!(open(Some(&config), &[]));
        assert!(!open(Some(&config), &[("OTEL_SDK_DISABLED", "true")]));
        assert!(!open(Some(&config), &[("OTEL_TRACES_EXPORTER", "none")]));
    }
}
