//! What went wrong with the file, and what follows for whoever asked.

use rusqlite::ErrorCode;

use crate::store::StoreError;

/// What is said when another process holds the lock of the file for too long.
pub(super) const BUSY: &str = "another process has the file";

/// Why something could not be read or written.
#[derive(Debug)]
pub(super) enum SqliteError {
    /// This request is refused, and changed nothing. Others are not concerned.
    Refused(StoreError),
    /// It may work later.
    Unavailable(String),
    /// It will not work later either.
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
