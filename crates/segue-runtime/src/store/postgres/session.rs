//! Connections to the database, their settings and their prepared statements.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage, SimpleQueryRow, Statement};

use super::counters::NotificationLag;
use super::error::{broken, store_error, unavailable};
use super::tls::Tls;
use super::url::PostgresUrl;
use crate::store::StoreError;

/// How long connecting may take.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long a statement may take that waits for no other.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Connections that read, at most.
const READERS_MAX: usize = 4;

/// The oldest server that has what the statements use.
const VERSION_MIN: u32 = 13;

/// Settings of every connection. A database that is set to acknowledge what is not durable is not
/// believed. A plan made while the tables were small must not read all of a large one.
const SETTINGS: &str = "SET search_path TO segue;
    SET client_min_messages TO warning;
    SET lock_timeout TO '5s';
    SET idle_in_transaction_session_timeout TO '10s';
    SET default_transaction_isolation TO 'read committed';
    SET jit TO off;
    SET enable_seqscan TO off;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off'";

/// A parameter of a statement.
pub(super) type SqlParameter<'a> = &'a (dyn ToSql + Sync);

/// Where to connect, and what notifications wake.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) url: PostgresUrl,
    pub(super) tls: Tls,
    pub(super) signals: Arc<Signals>,
}

/// What the notifications of other processes wake.
#[derive(Default)]
pub(super) struct Signals {
    /// A process sent a command.
    pub(super) commands: Arc<Notify>,
    /// A run without an owner is due.
    pub(super) due: Arc<Notify>,
    /// A process freed a slot that others may wait for.
    pub(super) slots: Notify,
    /// How late notifications are.
    pub(super) lag: NotificationLag,
}

impl Signals {
    /// The statement after which a connection gets notifications.
    pub(super) const LISTEN: &str = "LISTEN segue_command; LISTEN segue_due; LISTEN segue_slot";

    fn wake(&self, channel: &str) {
        match channel {
            "segue_command" => self.commands.notify_one(),
            "segue_due" => self.due.notify_one(),
            "segue_slot" => self.slots.notify_waiters(),
            other => drop(self.lag.heard(other)),
        }
    }

    /// Wakes everything, because notifications may have come while no connection listened.
    pub(super) fn wake_all(&self) {
        self.commands.notify_one();
        self.due.notify_one();
        self.slots.notify_waiters();
    }
}

/// A connection with its prepared statements.
pub(super) struct DbSession {
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

impl Address {
    /// Opens a connection. Its task ends with it.
    pub(super) async fn connect(&self) -> Result<DbSession, StoreError> {
        let connecting = self.url.config.connect(self.tls.clone());
        let connected = tokio::time::timeout(CONNECT_MAX, connecting).await;
        let connected = connected.map_err(|_| unavailable("the database does not answer"))?;
        let (client, mut connection) = connected.map_err(|error| store_error(&error))?;
        let version = connection.parameter("server_version").map(str::to_owned);
        let signals = self.signals.clone();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(told) = message {
                    signals.wake(told.channel());
                }
            }
        });
        check_version(version.as_deref())?;
        let session = DbSession { client, statements: Mutex::default() };
        session.batch(SETTINGS).await?;
        Ok(session)
    }
}

fn check_version(version: Option<&str>) -> Result<(), StoreError> {
    let version = version.unwrap_or_default();
    let major = version.split(|letter: char| !letter.is_ascii_digit()).next();
    match major.and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if major < VERSION_MIN => {
            Err(broken(format!("Postgres {version} is too old: it must be {VERSION_MIN} or newer")))
        }
        _ => Ok(()),
    }
}

/// The answer of the database, unless it takes too long.
pub(super) async fn answered<T>(
    max: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let silent = |_| unavailable("the database does not answer");
    tokio::time::timeout(max, answer).await.map_err(silent)?
}

impl DbSession {
    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Executes statements without parameters and results.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), StoreError> {
        let done =
            async { self.client.batch_execute(sql).await.map_err(|error| store_error(&error)) };
        answered(ANSWER_MAX, done).await
    }

    /// Executes a statement; returns its rows.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        parameters: &[SqlParameter<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        answered(ANSWER_MAX, async {
            let statement = self.prepared(sql).await?;
            self.client.query(&statement, parameters).await.map_err(|error| store_error(&error))
        })
        .await
    }

    /// Executes a statement without preparing it; returns its rows, as texts.
    pub(super) async fn rows(&self, sql: &str) -> Result<Vec<SimpleQueryRow>, StoreError> {
        let answer =
            async { self.client.simple_query(sql).await.map_err(|error| store_error(&error)) };
        let messages = answered(ANSWER_MAX, answer).await?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The same for a statement with one row at most.
    pub(super) async fn query_opt(
        &self,
        sql: &'static str,
        parameters: &[SqlParameter<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(sql, parameters).await?.into_iter().next())
    }

    /// Executes a statement; returns how many rows it changed.
    pub(super) async fn execute(
        &self,
        sql: &'static str,
        parameters: &[SqlParameter<'_>],
    ) -> Result<u64, StoreError> {
        answered(ANSWER_MAX, async {
            let statement = self.prepared(sql).await?;
            self.client.execute(&statement, parameters).await.map_err(|error| store_error(&error))
        })
        .await
    }

    async fn prepared(&self, sql: &'static str) -> Result<Statement, StoreError> {
        let known = self.statements.lock().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let prepared = self.client.prepare(sql).await.map_err(|error| store_error(&error))?;
        self.statements.lock().insert(sql, prepared.clone());
        Ok(prepared)
    }
}

/// Connections for everything except the turns of runs.
pub(super) struct SessionPool {
    address: Address,
    free: Mutex<Vec<DbSession>>,
    permits: Semaphore,
}

/// A connection of [`SessionPool`], free again when dropped.
pub(super) struct PooledSession<'a> {
    session: Option<DbSession>,
    sessions: &'a SessionPool,
    _permit: SemaphorePermit<'a>,
}

impl SessionPool {
    pub(super) fn new(address: Address) -> SessionPool {
        SessionPool { address, free: Mutex::default(), permits: Semaphore::new(READERS_MAX) }
    }

    /// A free connection, or a new one.
    pub(super) async fn borrow(&self) -> Result<PooledSession<'_>, StoreError> {
        let closed = |_| unavailable("the store is closed");
        let permit = self.permits.acquire().await.map_err(closed)?;
        let free = {
            let mut free = self.free.lock();
            free.retain(DbSession::is_open);
            free.pop()
        };
        let session = match free {
            Some(session) => session,
            None => self.address.connect().await?,
        };
        Ok(PooledSession { session: Some(session), sessions: self, _permit: permit })
    }
}

impl<'a> PooledSession<'a> {
    /// Begins a transaction. When it is dropped before its end its connection closes, which undoes it.
    pub(super) async fn begin(mut self) -> Result<Transaction<'a>, StoreError> {
        let session = self.session.take().expect("it is borrowed");
        session.batch("BEGIN").await?;
        Ok(Transaction { session, borrowed: self })
    }
}

/// A transaction on a connection of [`SessionPool`].
pub(super) struct Transaction<'a> {
    session: DbSession,
    borrowed: PooledSession<'a>,
}

impl Transaction<'_> {
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        let Transaction { session, mut borrowed } = self;
        session.batch("COMMIT").await?;
        borrowed.session = Some(session);
        Ok(())
    }
}

impl std::ops::Deref for Transaction<'_> {
    type Target = DbSession;

    fn deref(&self) -> &DbSession {
        &self.session
    }
}

impl std::ops::Deref for PooledSession<'_> {
    type Target = DbSession;

    fn deref(&self) -> &DbSession {
        self.session.as_ref().expect("it is borrowed")
    }
}

impl Drop for PooledSession<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take().filter(DbSession::is_open) {
            self.sessions.free.lock().push(session);
        }
    }
}
