//! The stores that the same tests run on, and the macro that runs them.

use std::path::PathBuf;
use std::sync::Arc;

use segue_runtime::store::{MemoryStore, Store};
#[cfg(all(feature = "postgres", unix))]
use segue_runtime::store::{PostgresOptions, PostgresStore, PostgresUrl};
use tempfile::TempDir;

use crate::stores::{sqlite, sqlite_alone};

/// Where the runs of a test are. Each handle on it is like a process of its own.
pub(crate) enum Backing {
    Memory(MemoryStore),
    Sqlite(TempDir),
    /// SQLite, where lone runs write on their own thread, however long that takes.
    SqliteAlone(TempDir),
    /// The address of a database.
    #[cfg(all(feature = "postgres", unix))]
    Postgres(String),
}

impl Backing {
    pub(crate) fn memory() -> Backing {
        Backing::Memory(MemoryStore::default())
    }

    pub(crate) fn sqlite() -> Backing {
        Backing::Sqlite(TempDir::new().unwrap())
    }

    pub(crate) fn sqlite_alone() -> Backing {
        Backing::SqliteAlone(TempDir::new().unwrap())
    }

    /// A new database; none where there is no server.
    #[cfg(all(feature = "postgres", unix))]
    pub(crate) fn postgres() -> Option<Backing> {
        crate::postgres_server::database().map(Backing::Postgres)
    }

    /// What a process leaves that has `store` open and dies now.
    pub(crate) fn after_death(self, store: Arc<dyn Store>) -> Backing {
        match self {
            Backing::Sqlite(folder) => Backing::Sqlite(killed(&folder)),
            Backing::SqliteAlone(folder) => Backing::SqliteAlone(killed(&folder)),
            #[cfg(all(feature = "postgres", unix))]
            Backing::Postgres(url) => {
                let sql = "UPDATE segue.run SET owner = 'dead' WHERE owner IS NOT NULL";
                crate::postgres_server::run_sql(&url, sql).unwrap();
                drop(store);
                Backing::Postgres(url)
            }
            Backing::Memory(_) => panic!("a store in memory ends with its process"),
        }
    }

    /// Another handle.
    pub(crate) fn open(&self) -> Arc<dyn Store> {
        let file = |folder: &TempDir| -> PathBuf { folder.path().join("runs.db") };
        match self {
            Backing::Memory(store) => Arc::new(store.peer()),
            Backing::Sqlite(folder) => Arc::new(sqlite(&file(folder))),
            Backing::SqliteAlone(folder) => Arc::new(sqlite_alone(&file(folder))),
            #[cfg(all(feature = "postgres", unix))]
            Backing::Postgres(url) => {
                let url = PostgresUrl::parse(url).unwrap();
                Arc::new(PostgresStore::open(&url, PostgresOptions::default()).unwrap())
            }
        }
    }
}

fn killed(folder: &TempDir) -> TempDir {
    let killed = TempDir::new().unwrap();
    crate::damage::copy_killed(folder.path(), killed.path());
    killed
}

/// Runs tests, which take a [`Backing`], on every store.
macro_rules! for_every_store {
    ($($test:ident)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::backings::Backing::memory()).await;
            })*
        }
        for_durable_stores! { $($test)* }
    };
}

/// The same on the stores that outlast a process.
macro_rules! for_durable_stores {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::backings::Backing::sqlite()).await;
            })*
        }
        mod sqlite_alone {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::backings::Backing::sqlite_alone()).await;
            })*
        }
        #[cfg(all(feature = "postgres", unix))]
        mod postgres {
            for_postgres! { $($test)* }
        }
    };
}

/// The same on the stores that processes on several machines share.
macro_rules! for_shared_stores {
    ($($test:ident)*) => {
        #[cfg(all(feature = "postgres", unix))]
        mod shared {
            for_postgres! { $($test)* }
        }
    };
}

/// The same on Postgres.
#[cfg(all(feature = "postgres", unix))]
macro_rules! for_postgres {
    ($($test:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            if let Some(backing) = crate::backings::Backing::postgres() {
                super::$test(backing).await;
            }
        })*
    };
}
