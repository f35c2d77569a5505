//! The store that a configuration names.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "postgres")]
use segue_runtime::store::{PostgresOptions, PostgresStore};
use segue_runtime::store::{SqliteOptions, SqliteStore, Store, StoreError};

use super::AppError;
use crate::config::{StoreLocation, WorkerConfig};

/// Opens the store, and creates it when there is none; `None` when runs are kept in memory.
pub(crate) fn open(
    location: &StoreLocation,
    lease: Duration,
) -> Result<Option<Arc<dyn Store>>, AppError> {
    let opened = open_as(location, lease).transpose();
    opened.map_err(|error| {
        let shown = match location.file() {
            Some(file) => file.display().to_string(),
            None => location.shown().unwrap_or_default(),
        };
        let help = "`--store sqlite:FILE` names another file, `--store memory` uses none";
        AppError::new(format!("cannot open the store `{shown}`: {error}"), Some(help.to_owned()))
    })
}

/// Opens the store of a command that only reads: a file that is not there is not created.
pub(crate) fn open_existing(
    location: &StoreLocation,
) -> Option<Result<Arc<dyn Store>, StoreError>> {
    match location.file() {
        Some(file) if !file.exists() => None,
        _ => open_as(location, WorkerConfig::default().lease),
    }
}

/// Opens a store. The lease is that of a store which several processes share.
fn open_as(
    location: &StoreLocation,
    lease: Duration,
) -> Option<Result<Arc<dyn Store>, StoreError>> {
    #[cfg(feature = "postgres")]
    if let StoreLocation::Postgres(url) = location {
        let options = PostgresOptions { lease, ..PostgresOptions::default() };
        let opened = PostgresStore::open(url, options);
        return Some(opened.map(|store| Arc::new(store) as Arc<dyn Store>));
    }
    #[cfg(not(feature = "postgres"))]
    let _ = lease;
    let opened = SqliteStore::open(&location.file()?, SqliteOptions::default());
    Some(opened.map(|store| Arc::new(store) as Arc<dyn Store>))
}
