//! Error messages about servers, for people.

use std::error::Error as _;
use std::time::Duration;

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::time::Instant;

use super::calls::router::MessageRouter;
use super::definition::strip_invisible;
use super::process_output::ProcessOutput;
use super::stdio::StdioConfig;

/// How long to wait for the end of a process, so that the message can name its exit status.
pub(super) const TRACE_MAX: Duration = Duration::from_millis(300);

/// An error of the HTTP transport.
type Http = StreamableHttpError<reqwest::Error>;

/// Precedes lines that a server wrote to its stdout which are no messages.
pub const NO_MESSAGES: &str = "on its output, where only messages belong";

/// Why a handshake failed. When the server was asked twice, the second answer has the reason: the
/// first one only tells its era.
pub(super) fn reason(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => reason(fallback),
        // Without the name of our own type.
        ClientInitializeError::TransportError { error, .. } => {
            // The library hides the cause of a request that could not be sent.
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

/// Whether the connection was lost.
pub(super) fn is_lost(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_lost(fallback),
        ClientInitializeError::TransportError { .. }
        | ClientInitializeError::ConnectionClosed(_) => true,
        _ => false,
    }
}

/// Whether a server requires a login.
pub(super) fn is_unauthorized(error: &ClientInitializeError) -> bool {
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return is_unauthorized(fallback);
    }
    let text = error.to_string();
    text.contains("Auth required") || text.contains("401") || text.contains("uthorization required")
}

/// The message for a failed request.
pub(super) fn failure(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => error.error.to_string(),
        other => other.to_string(),
    }
}

/// Why a program could not be started.
pub(super) fn start_failure(config: &StdioConfig, error: &std::io::Error) -> String {
    if let Some(cwd) = config.cwd.as_deref().filter(|cwd| !cwd.is_dir()) {
        return format!("its working directory `{}` does not exist", cwd.display());
    }
    format!("`{}` cannot be started: {error}", config.command)
}

/// The error with the server's final output.
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

/// Why a call was lost, with the server's last output, named as such.
pub(super) async fn with_named_output(
    why: &str,
    traces: &ProcessOutput,
    router: &MessageRouter,
) -> String {
    let text = with_final_output(why, traces, router).await;
    match text.split_once('\n') {
        Some((why, output)) => format!("{why}; the server's last output:\n{output}"),
        None => text,
    }
}

/// The error with the server's output so far.
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
