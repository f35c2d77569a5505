//! Errors of SQLite, as decisions for the caller of the store.

use rusqlite::ErrorCode;

use crate::store::StoreError;

/// The message when another process holds the lock of the file for too long.
pub(super) const BUSY: &str = "another process holds the lock of the file";

/// Why a read or a write failed.
#[derive(Debug)]
pub(super) enum SqliteError {
    /// The store refuses this request, which changed nothing. Others in the transaction go on.
    Refused(StoreError),
    /// A retry may succeed.
    Unavailable(String),
    /// A retry will fail, too.
    Broken(String),
}

pub(super) fn broken(what: String) -> SqliteError {
    SqliteError::Broken(what)
}

impl From<StoreError> for SqliteError {
    fn from(error: StoreError) -> SqliteError {
        SqliteError::Refused(error)
    }
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> SqliteError {
        use ErrorCode as Sqlite;
        match error.sqlite_error_code() {
            Some(Sqlite::DatabaseBusy) => SqliteError::Unavailable(BUSY.to_owned()),
            Some(
                Sqlite::DatabaseLocked
                | Sqlite::DiskFull
                | Sqlite::SystemIoFailure
                | Sqlite::CannotOpen
                | Sqlite::PermissionDenied
                | Sqlite::ReadOnly
                | Sqlite::OutOfMemory
                | Sqlite::OperationInterrupted
                | Sqlite::FileLockingProtocolFailed
                | Sqlite::TooBig,
            ) => SqliteError::Unavailable(error.to_string()),
            _ => SqliteError::Broken(error.to_string()),
        }
    }
}

impl From<SqliteError> for StoreError {
    fn from(fault: SqliteError) -> StoreError {
        match fault {
            SqliteError::Refused(error) => error,
            SqliteError::Unavailable(message) => StoreError::Unavailable { message },
            SqliteError::Broken(what) => StoreError::Broken { what },
        }
    }
}
