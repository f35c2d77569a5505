//! Lines on standard error for whoever looks after Segue: text, or JSON for programs.
//!
//! A line says what happened and to which run and request. It never holds what a run was given, nor
//! what came of it. What others write into a line is escaped by the library that writes it.
//!
//! Libraries write whole messages when they are asked for details, with what a run was given and the
//! tokens of those who ask. So no more than `info` is heard of them, and secrets of the configuration
//! are taken out of every line.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use clap::ValueEnum;
use segue_core::run::Run;
use segue_core::view::Timestamp;
use segue_runtime::driver::now_ms;
use segue_runtime::tools::redact::Secrets;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

use super::run_timings::RunUpdate;

/// What lines look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// A JSON document per line
    Json,
}

/// Says what is written from now on: `directives` as in `info` or `segue=debug,rmcp=warn`. The error
/// says what cannot be meant.
pub fn open(format: LogFormat, directives: &str) -> Result<(), String> {
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    // A bare word is about us; whoever wants to hear the libraries names them.
    let filter = if known.contains(&directives) {
        EnvFilter::try_new(format!("segue={directives}"))
    } else {
        EnvFilter::try_new(directives)
    };
    let filter = filter.map_err(|error| {
        format!("`{directives}` is no level: {error}; write one of {}", known.join(", "))
    })?;
    let is_heard =
        filter_fn(|about| about.target().starts_with("segue") || *about.level() <= Level::INFO);
    let (heard, lines) = (registry().with(filter).with(is_heard), fmt::layer());
    let lines = lines.with_writer(RedactingStderr);
    let opened = match format {
        LogFormat::Text => {
            let has_colour =
                std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            heard.with(lines.with_ansi(has_colour)).try_init()
        }
        LogFormat::Json => {
            heard.with(lines.json().flatten_event(true).with_current_span(false)).try_init()
        }
    };
    opened.map_err(|error| error.to_string())
}

/// What is taken out of every line.
static SECRETS: RwLock<Option<Secrets>> = RwLock::new(None);

/// Takes these out of every line from now on.
pub fn redact(secrets: Secrets) {
    *SECRETS.write().unwrap_or_else(PoisonError::into_inner) = Some(secrets);
}

/// Standard error, without secrets. The library writes a line at a time.
struct RedactingStderr;

impl io::Write for RedactingStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut to = io::stderr().lock();
        match &*SECRETS.read().unwrap_or_else(PoisonError::into_inner) {
            Some(secrets) => {
                to.write_all(secrets.redact(&String::from_utf8_lossy(line)).as_bytes())?;
            }
            None => to.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl MakeWriter<'_> for RedactingStderr {
    type Writer = RedactingStderr;

    fn make_writer(&self) -> RedactingStderr {
        RedactingStderr
    }
}

/// Whether what a command says of itself is a line for programs, too.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Says how a command that serves writes what it says of itself: who reads lines as JSON reads all of
/// them so.
pub fn set_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Whether what a command says of itself is a line for programs.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Writes what a command says of itself as such a line. No level leaves it out: a token is said once.
pub fn write_json_line(level: &str, message: &str, help: Option<&str>) {
    let plain = |text: &str| anstream::adapter::strip_str(text).to_string();
    let line = json!({
        "timestamp": Timestamp(now_ms()), "level": level, "message": plain(message),
        "help": help.map(plain), "target": "segue::serve",
    });
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Whether lines about runs are written.
pub(super) fn is_open() -> bool {
    tracing::enabled!(target: "segue::run", tracing::Level::WARN)
}

/// Writes what became of a run, whose request is what its plan belongs to; `http_request_id` is the one
/// that it was asked for with.
pub(super) fn log_update(
    run: &Run,
    http_request_id: Option<&str>,
    at_ms: u64,
    told: &RunUpdate<'_>,
) {
    let (run_id, request_id, composition) = (run.run_id(), run.request_id(), &**run.name());
    match told {
        RunUpdate::Began => {
            tracing::info!(
                target: "segue::run", run_id, request_id, http_request_id, composition, "run began"
            );
        }
        RunUpdate::Ended { began_ms, status, code, .. } => {
            let duration_ms = at_ms.saturating_sub(*began_ms);
            let (status, code) = (status.as_str(), code.map(segue_core::diagnostic::Code::as_str));
            tracing::info!(
                target: "segue::run", run_id, request_id, http_request_id, composition, status,
                code, duration_ms,
                "run ended"
            );
        }
        RunUpdate::Attempt(attempt, outcome) if tracing::enabled!(target: "segue::run", tracing::Level::DEBUG) =>
        {
            let duration_ms = at_ms.saturating_sub(attempt.began_ms);
            let step = &*run.path(attempt.call.node);
            let (tool, error) = (&*attempt.tool, outcome.error());
            tracing::debug!(
                target: "segue::run", run_id, request_id, http_request_id, step, tool,
                attempt = attempt.call.attempt, outcome = outcome.as_str(), error, duration_ms,
                "attempt ended"
            );
        }
        RunUpdate::RollingBack => {
            tracing::warn!(
                target: "segue::run", run_id, request_id, http_request_id, composition,
                "run is rolled back"
            );
        }
        RunUpdate::Attempt(..) | RunUpdate::Step { .. } | RunUpdate::Retried(_) => {}
    }
}
