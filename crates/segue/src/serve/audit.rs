//! Who did what, in a line.

use segue_core::access::Principal;

/// How much of a path is said.
const PATH_CHARS: usize = 256;

/// What came of it.
#[derive(Clone, Copy)]
pub enum Status {
    /// As HTTP has it.
    Code(u16),
    /// In a word.
    Word(&'static str),
}

/// Says it: who did what, to what, in which run, and what came of it.
pub fn tell(
    who: &Principal,
    what: &str,
    to: &str,
    run_id: Option<&str>,
    status: Status,
    request_id: Option<&str>,
) {
    let (who, path) = (&*who.name, to.chars().take(PATH_CHARS).collect::<String>());
    match status {
        Status::Code(status) => tracing::info!(
            target: "segue::audit", who, what, path, status, run_id, request_id, "audit"
        ),
        Status::Word(status) => tracing::info!(
            target: "segue::audit", who, what, path, status, run_id, request_id, "audit"
        ),
    }
}
