//! The audit log: who did what, and with which result.

use segue_core::access::Principal;

/// How many characters of a path are logged.
pub(crate) const PATH_CHARS: usize = 256;

/// The result of an action.
#[derive(Clone, Copy)]
pub enum Status {
    /// A status of HTTP.
    Code(u16),
    /// A word.
    Word(&'static str),
}

/// Logs an action of a principal on a path.
pub fn log(
    who: &Principal,
    what: &str,
    to: &str,
    run_id: Option<&str>,
    status: Status,
    http_request_id: Option<&str>,
) {
    let (who, path) = (&*who.name, to.chars().take(PATH_CHARS).collect::<String>());
    match status {
        Status::Code(status) => tracing::info!(
            target: "segue::audit", who, what, path, status, run_id, http_request_id, "audit"
        ),
        Status::Word(status) => tracing::info!(
            target: "segue::audit", who, what, path, status, run_id, http_request_id, "audit"
        ),
    }
}
