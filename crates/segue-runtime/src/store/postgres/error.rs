//! Errors of Postgres, by the decision that follows.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::store::StoreError;

/// Classes of errors after which a retry may succeed: connections, rollbacks by the server, missing
/// resources, a server that stops or only reads.
const PASSING: &[&str] = &["08", "40", "53", "57", "58"];

/// The error of a statement, or of a connection.
pub(super) fn store_error(error: &Error) -> StoreError {
    let Some(code) = error.code() else {
        return StoreError::Unavailable { message: described(error) };
    };
    let is_passing = PASSING.iter().any(|class| code.code().starts_with(class))
        || *code == SqlState::LOCK_NOT_AVAILABLE
        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
        // A reader that another process refers to its row meanwhile: the next attempt sees that.
        || *code == SqlState::FOREIGN_KEY_VIOLATION;
    if is_passing {
        StoreError::Unavailable { message: described(error) }
    } else {
        StoreError::Broken { what: described(error) }
    }
}

/// The message of the server, or of the connection.
fn described(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

pub(super) fn unavailable(message: impl Into<String>) -> StoreError {
    StoreError::Unavailable { message: message.into() }
}

pub(super) fn broken(what: impl Into<String>) -> StoreError {
    StoreError::Broken { what: what.into() }
}
