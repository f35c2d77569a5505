//! Checkpoints in SQLite, with a full-text index.
//!
//! The database is opened at the first use. One connection behind a lock is enough: SQLite has one
//! writer anyway, and these calls are short. The tables have their own names, so that the file may
//! be the run store's.
//!
//! Every query is limited to the checkpoints of one owner. The operator's have no owner, as have
//! those from before there were owners.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row, TransactionBehavior, params};
use segue_core::diagnostic::Code;

use super::super::tokenize::{is_common, words};
use crate::store::private_files::make_file;
use crate::tools::ToolError;

/// How many words of a query are used.
const QUERY_WORDS_MAX: usize = 64;

/// How long to wait for another process that holds the file.
const BUSY_WAIT: Duration = Duration::from_secs(20);

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS checkpoint (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        summary TEXT NOT NULL,
        content TEXT NOT NULL,
        tags TEXT NOT NULL,
        created_at TEXT NOT NULL,
        owner TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE VIRTUAL TABLE IF NOT EXISTS checkpoint_words USING fts5(
        summary, content, content='checkpoint', content_rowid='number',
        tokenize='porter unicode61 remove_diacritics 2'
    );
    CREATE TRIGGER IF NOT EXISTS checkpoint_added AFTER INSERT ON checkpoint BEGIN
        INSERT INTO checkpoint_words(rowid, summary, content)
        VALUES (new.number, new.summary, new.content);
    END;
    CREATE TRIGGER IF NOT EXISTS checkpoint_deleted AFTER DELETE ON checkpoint BEGIN
        INSERT INTO checkpoint_words(checkpoint_words, rowid, summary, content)
        VALUES ('delete', old.number, old.summary, old.content);
    END;
";

/// Upgrades tables from before checkpoints had owners: existing ones become the operator's.
const ADD_OWNER: &str = "ALTER TABLE checkpoint ADD COLUMN owner TEXT NOT NULL DEFAULT ''";

const HAS_OWNER: &str = "SELECT count(*) FROM pragma_table_info('checkpoint') WHERE name = 'owner'";

/// Fills in the current time unless one is given, in the form that sorts.
const INSERT: &str = "
    INSERT OR IGNORE INTO checkpoint (id, summary, content, tags, created_at, owner)
    VALUES (?1, ?2, ?3, ?4, coalesce(nullif(?5, ''), strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), ?6)";

/// Words in the summary count double. A checkpoint must have every wanted tag.
const SEARCH: &str = "
    SELECT c.id, c.summary, c.content, c.tags, c.created_at,
           -bm25(checkpoint_words, 2.0, 1.0) AS score
    FROM checkpoint_words JOIN checkpoint AS c ON c.number = checkpoint_words.rowid
    WHERE checkpoint_words MATCH ?1 AND c.owner = ?4
      AND NOT EXISTS (SELECT 1 FROM json_each(?2) AS wanted
                      WHERE wanted.value NOT IN (SELECT value FROM json_each(c.tags)))
    ORDER BY score DESC, c.number DESC LIMIT ?3";

const LIST: &str = "
    SELECT c.id, c.summary, '', c.tags, c.created_at FROM checkpoint AS c
    WHERE c.owner = ?3
      AND NOT EXISTS (SELECT 1 FROM json_each(?1) AS wanted
                      WHERE wanted.value NOT IN (SELECT value FROM json_each(c.tags)))
    ORDER BY c.number DESC LIMIT ?2";

/// One saved text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) id: String,
    pub(super) summary: String,
    pub(super) content: String,
    pub(super) tags: Vec<String>,
    pub(super) created_at: String,
}

/// The owner whose checkpoints a call sees.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckpointOwner(String);

impl CheckpointOwner {
    /// A principal, or the operator.
    pub(super) fn of(principal: Option<&str>) -> CheckpointOwner {
        CheckpointOwner(principal.unwrap_or_default().to_owned())
    }

    /// The primary key for an id. The table holds the ids of all owners; with the owner as a
    /// prefix, no owner can occupy an id of another.
    fn key(&self, id: &str) -> String {
        if self.0.is_empty() { id.to_owned() } else { format!("{}/{id}", self.0) }
    }

    /// The id of a key.
    fn id(&self, key: &str) -> String {
        let own = key.strip_prefix(&*self.0).and_then(|rest| rest.strip_prefix('/'));
        own.filter(|_| !self.0.is_empty()).unwrap_or(key).to_owned()
    }
}

/// A search.
pub(super) struct CheckpointQuery<'a> {
    pub(super) words: &'a str,
    pub(super) tags: Vec<&'a str>,
    pub(super) limit: usize,
}

/// Where the database is.
pub(super) enum DatabaseLocation {
    Memory,
    File(PathBuf),
    /// In memory, filled when it is opened.
    Filled(fn() -> Vec<Checkpoint>),
}

/// A location and, once it was used, its connection.
pub(super) struct CheckpointStore {
    place: DatabaseLocation,
    connection: Mutex<Option<Connection>>,
}

impl CheckpointStore {
    pub(super) fn new(place: DatabaseLocation) -> CheckpointStore {
        CheckpointStore { place, connection: Mutex::new(None) }
    }

    /// Adds a checkpoint and returns its time; an existing one with the same id stays unchanged.
    pub(super) fn insert(
        &self,
        owner: &CheckpointOwner,
        checkpoint: &Checkpoint,
    ) -> Result<String, ToolError> {
        self.with(|connection| {
            insert(connection, owner, checkpoint)?;
            let sql = "SELECT created_at FROM checkpoint WHERE id = ?1";
            connection.query_row(sql, [owner.key(&checkpoint.id)], |row| row.get(0))
        })
    }

    /// The checkpoints with all words or, if there are none, with any, best first.
    pub(super) fn search(
        &self,
        owner: &CheckpointOwner,
        query: &CheckpointQuery<'_>,
    ) -> Result<Vec<(Checkpoint, f64)>, ToolError> {
        let tags = json_list(&query.tags);
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        self.with(|connection| {
            let mut statement = connection.prepare_cached(SEARCH)?;
            for phrase in phrases(query.words) {
                let rows = statement.query_map(params![phrase, tags, limit, owner.0], |row| {
                    Ok((checkpoint(row, owner)?, row.get(5)?))
                })?;
                let found = rows.collect::<Result<Vec<_>, _>>()?;
                if !found.is_empty() {
                    return Ok(found);
                }
            }
            Ok(Vec::new())
        })
    }

    /// The newest ones, without their texts.
    pub(super) fn list(
        &self,
        owner: &CheckpointOwner,
        tags: &[&str],
        limit: usize,
    ) -> Result<Vec<Checkpoint>, ToolError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.with(|connection| {
            let mut statement = connection.prepare_cached(LIST)?;
            let values = params![json_list(tags), limit, owner.0];
            statement.query_map(values, |row| checkpoint(row, owner))?.collect()
        })
    }

    /// Deletes a checkpoint and returns it.
    pub(super) fn delete(
        &self,
        owner: &CheckpointOwner,
        id: &str,
    ) -> Result<Option<Checkpoint>, ToolError> {
        self.with(|connection| {
            let sql = "DELETE FROM checkpoint WHERE id = ?1 AND owner = ?2
                       RETURNING id, summary, content, tags, created_at";
            let values = params![owner.key(id), owner.0];
            connection.query_row(sql, values, |row| checkpoint(row, owner)).optional()
        })
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ToolError> {
        let mut slot = self.connection.lock();
        let connection = match slot.take() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let result = work(&connection).map_err(|error| self.failure(&error));
        *slot = Some(connection);
        result
    }

    fn open(&self) -> Result<Connection, ToolError> {
        let opened = match &self.place {
            DatabaseLocation::Memory => Connection::open_in_memory().and_then(with_tables),
            DatabaseLocation::File(path) => open_file(path),
            DatabaseLocation::Filled(checkpoints) => {
                Connection::open_in_memory().and_then(with_tables).and_then(|connection| {
                    let owner = CheckpointOwner::default();
                    checkpoints().iter().try_for_each(|one| insert(&connection, &owner, one))?;
                    Ok(connection)
                })
            }
        };
        opened.map_err(|error| self.failure(&error))
    }

    /// Translates a database failure for the caller.
    fn failure(&self, error: &rusqlite::Error) -> ToolError {
        let place = match &self.place {
            DatabaseLocation::File(path) => format!("the checkpoint store `{}`", path.display()),
            DatabaseLocation::Memory | DatabaseLocation::Filled(_) => {
                "the checkpoint store".to_owned()
            }
        };
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                ToolError::failed(format!("{place} is locked by another process"))
            }
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                let message = format!("{place} is damaged or not a database: {error}");
                ToolError::refused(Code::ToolError, message)
            }
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                let message = format!("{place} cannot be opened for writing: {error}");
                ToolError::refused(Code::ToolError, message)
            }
            _ => ToolError::failed(format!("{place}: {error}")),
        }
    }
}

fn open_file(path: &Path) -> rusqlite::Result<Connection> {
    make_file(path);
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    with_tables(connection)
}

fn with_tables(mut connection: Connection) -> rusqlite::Result<Connection> {
    connection.execute_batch(TABLES)?;
    let has_owner =
        |connection: &Connection| connection.query_row(HAS_OWNER, [], |row| row.get::<_, bool>(0));
    if !has_owner(&connection)? {
        // Checked again inside the transaction: another process may have added it.
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !has_owner(&change)? {
            change.execute_batch(ADD_OWNER)?;
        }
        change.commit()?;
    }
    Ok(connection)
}

fn insert(
    connection: &Connection,
    owner: &CheckpointOwner,
    checkpoint: &Checkpoint,
) -> rusqlite::Result<()> {
    let Checkpoint { id, summary, content, tags, created_at } = checkpoint;
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let values = params![owner.key(id), summary, content, json_list(&tags), created_at, owner.0];
    connection.prepare_cached(INSERT)?.execute(values).map(|_| ())
}

fn checkpoint(row: &Row<'_>, owner: &CheckpointOwner) -> rusqlite::Result<Checkpoint> {
    let (key, tags): (String, String) = (row.get(0)?, row.get(3)?);
    Ok(Checkpoint {
        id: owner.id(&key),
        summary: row.get(1)?,
        content: row.get(2)?,
        // Written as JSON by us; anything else counts as no tags.
        tags: serde_json::from_str(&tags).unwrap_or_default(),
        created_at: row.get(4)?,
    })
}

fn json_list(texts: &[&str]) -> String {
    serde_json::to_string(texts).unwrap_or_default()
}

/// FTS queries, the strictest first: all words, then any meaningful word.
///
/// Each word is quoted, so that no part of a query is an operator of the index.
fn phrases(query: &str) -> Vec<String> {
    let mut all: Vec<String> = words(query).take(QUERY_WORDS_MAX).collect();
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return Vec::new();
    }
    let quoted = |words: &[&String], between: &str| {
        words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(between)
    };
    let every: Vec<&String> = all.iter().collect();
    let telling: Vec<&String> = all.iter().filter(|word| !is_common(word)).collect();
    let any = if telling.is_empty() { &every } else { &telling };
    vec![quoted(&every, " AND "), quoted(any, " OR ")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_words_whatever_it_looks_like() {
        assert_eq!(
            phrases("retry AND (backoff*"),
            [r#""and" AND "backoff" AND "retry""#, r#""backoff" OR "retry""#]
        );
        assert_eq!(phrases("\"; DROP TABLE x --").len(), 2);
        assert!(phrases("*** \" ' -- ()").is_empty());
    }
}
