//! The log on standard error: text, or JSON for programs.
//!
//! A line says what happened to which run and request. It never holds inputs or outputs of a run. The
//! logging library escapes control characters.
//!
//! At `debug`, other libraries log whole messages, with inputs of runs and tokens of clients. So their
//! lines are limited to `info`, and the secrets of the configuration are removed from every line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use parking_lot::RwLock;
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

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people
    #[default]
    Text,
    /// One JSON document per line
    Json,
}

/// Turns the log on, with `directives` such as `info` or `segue=debug,rmcp=warn`.
pub fn open(format: LogFormat, directives: &str) -> Result<(), String> {
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    // A bare level applies to Segue only; other libraries must be named.
    let filter = if known.contains(&directives) {
        EnvFilter::try_new(format!("segue={directives}"))
    } else {
        EnvFilter::try_new(directives)
    };
    let filter = filter.map_err(|error| {
        format!("`{directives}` is not a log level: {error}; write one of {}", known.join(", "))
    })?;
    let is_allowed =
        filter_fn(|about| about.target().starts_with("segue") || *about.level() <= Level::INFO);
    let (registry, lines) = (registry().with(filter).with(is_allowed), fmt::layer());
    let lines = lines.with_writer(RedactingStderr);
    let opened = match format {
        // The library panics or prints a line of its own when colours are asked for, which it was not built with.
        LogFormat::Text => registry.with(lines.with_ansi(false)).try_init(),
        LogFormat::Json => {
            registry.with(lines.json().flatten_event(true).with_current_span(false)).try_init()
        }
    };
    opened.map_err(|error| error.to_string())
}

/// Texts that are removed from every line.
static SECRETS: RwLock<HiddenSecrets> =
    RwLock::new(HiddenSecrets { by_owner: BTreeMap::new(), all: None });

/// The secrets of every configuration in use: a language server has one for each folder.
struct HiddenSecrets {
    by_owner: BTreeMap<String, Secrets>,
    /// All of them, to be found in one pass.
    all: Option<Secrets>,
}

/// Removes the secrets of an owner, such as a configuration, from every line from now on, besides those of
/// others. Its own previous ones are replaced.
pub fn redact(owner: &str, secrets: Secrets) {
    let mut hidden = SECRETS.write();
    hidden.by_owner.insert(owner.to_owned(), secrets);
    hidden.all = hidden.by_owner.values().cloned().reduce(|all, more| all.with(&more));
}

/// A line without secrets.
fn redacted(line: &[u8]) -> Cow<'_, [u8]> {
    match &SECRETS.read().all {
        Some(secrets) => Cow::Owned(secrets.redact(&String::from_utf8_lossy(line)).into_bytes()),
        None => Cow::Borrowed(line),
    }
}

/// Standard error without secrets. The logging library writes one line at a time.
struct RedactingStderr;

impl io::Write for RedactingStderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(&redacted(line))?;
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

/// Whether a serving command also prints its own messages as JSON lines.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets the format of a serving command's own messages: a program that reads the log as JSON can then
/// read every line.
pub fn set_format(format: LogFormat) {
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Whether the command prints its own messages as JSON lines.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Writes a message of the command as a JSON line. No log level suppresses it: a token is shown once.
pub fn write_json_line(level: &str, message: &str, help: Option<&str>) {
    let plain = |text: &str| anstream::adapter::strip_str(text).to_string();
    let line = json!({
        "timestamp": Timestamp(now_ms()), "level": level, "message": plain(message),
        "help": help.map(plain), "target": "segue::serve",
    });
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Whether lines about runs are logged.
pub(super) fn is_open() -> bool {
    tracing::enabled!(target: "segue::run", tracing::Level::WARN)
}

/// Logs an update of a run. `http_request_id` is the HTTP request that started it; the run's own request
/// id is that of its plan.
pub(super) fn log_update(
    run: &Run,
    http_request_id: Option<&str>,
    at_ms: u64,
    update: &RunUpdate<'_>,
) {
    let (run_id, request_id, composition) = (run.run_id(), run.request_id(), &**run.name());
    match update {
        RunUpdate::Began => {
            tracing::info!(
                target: "segue::run", run_id, request_id, http_request_id, composition, "run started"
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
                attempt = attempt.number, purpose = attempt.purpose_name(), outcome = outcome.as_str(), error, duration_ms,
                "attempt ended"
            );
        }
        RunUpdate::RollingBack => {
            tracing::warn!(
                target: "segue::run", run_id, request_id, http_request_id, composition,
                "rolling back run"
            );
        }
        RunUpdate::Attempt(..) | RunUpdate::Step { .. } | RunUpdate::Retried(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A language server has several configurations at once, and each may be loaded again.
    #[test]
    fn the_secrets_of_every_configuration_are_hidden() {
        let secrets = |value: &str| Secrets::new([value.to_owned()]);
        let shown = |line: &str| String::from_utf8(redacted(line.as_bytes()).into_owned()).unwrap();
        redact("one", secrets("first-password"));
        redact("two", secrets("second-password"));
        let both = shown("first-password and second-password");
        assert_eq!(both, "«secret» and «secret»");
        redact("two", secrets("third-password"));
        let now = shown("first-password, second-password, third-password");
        assert_eq!(now, "«secret», second-password, «secret»");
    }
}
