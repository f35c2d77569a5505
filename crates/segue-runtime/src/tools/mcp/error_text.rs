//! What went wrong with a server, in words for people.

use std::error::Error as _;
use std::time::Duration;

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::time::Instant;

use super::definition::strip_invisible;
use super::router::MessageRouter;
use super::stdio::{ProcessOutput, StdioConfig};

/// How long the end of a process is waited for, to say how it ended.
pub(super) const TRACE_MAX: Duration = Duration::from_millis(300);

/// What goes wrong over HTTP.
type Http = StreamableHttpError<reqwest::Error>;

/// What stands before lines that a server wrote in the place of messages.
pub const NO_MESSAGES: &str = "on its output, where only messages belong";

/// Why a handshake failed. When the server was asked twice, the second answer is the one that says
/// something: the first only said which era it is of.
pub(super) fn reason(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => reason(fallback),
        // Without the name that our type has.
        ClientInitializeError::TransportError { error, .. } => {
            // The library does not say what lies behind a request that could not be sent.
            let error = &*error.error;
            let (mut text, mut cause) = match error.downcast_ref() {
                Some(Http::Client(error)) => (error.to_string(), error.source()),
                _ => (error.to_string(), error.source()),
            };
            while let Some(inner) = cause {
                cause = inner.source();
                if cause.is_none() {
                    text = format!("{text}: {inner}");
                }
            }
            text
        }
        other => other.to_string(),
    }
}

/// Whether there was nobody to talk with any longer.
pub(super) fn is_lost(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_lost(fallback),
        ClientInitializeError::TransportError { .. }
        | ClientInitializeError::ConnectionClosed(_) => true,
        _ => false,
    }
}

/// Whether a server wants to know who we are.
pub(super) fn is_unauthorized(error: &ClientInitializeError) -> bool {
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return is_unauthorized(fallback);
    }
    let text = error.to_string();
    text.contains("Auth required") || text.contains("401") || text.contains("uthorization required")
}

/// The same of a request.
pub(super) fn failure(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => error.error.to_string(),
        other => other.to_string(),
    }
}

/// Why a program could not be started.
pub(super) fn start_failure(config: &StdioConfig, error: &std::io::Error) -> String {
    if let Some(cwd) = config.cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
        return format!("its working directory `{}` is not there", cwd.display());
    }
    format!("`{}` cannot be started: {error}", config.command)
}

/// What went wrong, with what the server said about it.
pub(super) async fn with_final_output(
    why: &str,
    traces: &ProcessOutput,
    router: &MessageRouter,
) -> String {
    let until = Instant::now() + TRACE_MAX;
    while !traces.are_complete() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    with_output(why, traces, router)
}

/// What went wrong, with what the server has said so far.
pub(super) fn with_output(why: &str, traces: &ProcessOutput, router: &MessageRouter) -> String {
    let mut text = why.to_owned();
    if let Some(end) = traces.end() {
        text = format!("{text} ({end})");
    }
    let noise = router.noise.last_lines(3);
    let noise = if noise.is_empty() { noise } else { format!("{NO_MESSAGES}: {noise}") };
    for words in [traces.stderr.last_lines(5), noise] {
        if !words.is_empty() {
            text = format!("{text}\n{}", strip_invisible(&words, 2_000));
        }
    }
    text
}
