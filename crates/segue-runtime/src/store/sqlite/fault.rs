//! What went wrong with the file, and what follows for whoever asked.

use rusqlite::ErrorCode;

use crate::store::StoreError;

/// What is said when another process holds the lock of the file for too long.
pub(super) const BUSY: &str = "another process has the file";

/// Why something could not be read or written.
#[derive(Debug)]
pub(super) enum Fault {
    /// This request is refused, and changed nothing. Others are not concerned.
    Refused(StoreError),
    /// It may work later.
    Unavailable(String),
    /// It will not work later either.
    Broken(String),
}

pub(super) fn broken(what: String) -> Fault {
    Fault::Broken(what)
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        use ErrorCode as Sqlite;
        match error.sqlite_error_code() {
            Some(Sqlite::DatabaseBusy) => Fault::Unavailable(BUSY.to_owned()),
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
            ) => Fault::Unavailable(error.to_string()),
            _ => Fault::Broken(error.to_string()),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        match fault {
            Fault::Refused(error) => error,
            Fault::Unavailable(message) => StoreError::Unavailable { message },
            Fault::Broken(what) => StoreError::Broken { what },
        }
    }
}
