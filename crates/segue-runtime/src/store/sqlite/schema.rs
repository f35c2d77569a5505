//! The file: its tables, settings and migrations.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::ack_log;
use super::error::{SqliteError, broken};
use crate::store::private_files::make_file;

/// How long to wait for another process that holds the lock of the file. Runs retry for longer; a command
/// reports it.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(4);

/// Pages that a preallocated log has room for.
const LOG_PAGES: u32 = 4_096;

/// Pages in the log before the writer itself takes a checkpoint. SQLite begins its log anew only after a
/// checkpoint of all of it, and the checkpoint thread never gets all of it while runs write without a
/// pause. Fewer than [`LOG_PAGES`]: a sync that also makes the log longer takes twice as long.
const CHECKPOINT_PAGES: u32 = LOG_PAGES - 128;

/// Free pages that are worth giving back to the disk.
const PAGES_FREE_MIN: i64 = 256;

/// Memory for pages in KiB: enough for those that many runs write at once.
const CACHE_KIB: i32 = 16 * 1_024;

/// Each makes the tables of its version from those of the version before. A released migration never
/// changes.
pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE run (
        number INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        status TEXT NOT NULL,
        plan_hash TEXT NOT NULL,
        bundle BLOB NOT NULL,
        started_ms INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        ended_ms INTEGER,
        length INTEGER NOT NULL,
        head BLOB NOT NULL,
        owner TEXT,
        epoch INTEGER NOT NULL,
        checksum BLOB NOT NULL
    ) STRICT;
    CREATE INDEX run_unfinished ON run (number) WHERE ended_ms IS NULL;
    CREATE INDEX run_ended ON run (ended_ms) WHERE ended_ms IS NOT NULL;
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        hash BLOB NOT NULL,
        UNIQUE (run, seq)
    ) STRICT;
    CREATE TABLE part (
        number INTEGER PRIMARY KEY,
        hash BLOB NOT NULL UNIQUE,
        bytes BLOB NOT NULL
    ) STRICT;
    CREATE TABLE part_use (
        run INTEGER NOT NULL,
        part INTEGER NOT NULL,
        PRIMARY KEY (run, part)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX part_user ON part_use (part);
    CREATE TABLE bundle (
        hash BLOB NOT NULL PRIMARY KEY,
        text TEXT NOT NULL
    ) STRICT;
    CREATE TABLE tool (
        id TEXT NOT NULL PRIMARY KEY,
        stats TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    "
    CREATE TABLE word (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL,
        text TEXT NOT NULL
    ) STRICT;
",
    "
    CREATE TABLE shelf_templates (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        version INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        checksum BLOB NOT NULL
    ) STRICT;
    CREATE TABLE shelf_plans (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        version INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        checksum BLOB NOT NULL
    ) STRICT;
    CREATE TABLE shelf_requests (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        version INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        checksum BLOB NOT NULL
    ) STRICT;
    CREATE TABLE shelf_answers (
        number INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        version INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        checksum BLOB NOT NULL
    ) STRICT;
",
    "
    CREATE TABLE turn (
        number INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        before INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;
    INSERT INTO turn
        SELECT number, run, coalesce(lag(number) OVER (PARTITION BY run ORDER BY seq), 0),
            bytes, hash
        FROM entry;
    ALTER TABLE run ADD COLUMN last INTEGER NOT NULL DEFAULT 0;
    UPDATE run SET last = coalesce(
        (SELECT number FROM entry WHERE entry.run = run.number ORDER BY seq DESC LIMIT 1), 0);
    DROP TABLE entry;
    CREATE TABLE standing (
        run INTEGER PRIMARY KEY,
        status TEXT NOT NULL,
        updated_ms INTEGER NOT NULL,
        length INTEGER NOT NULL,
        hash BLOB NOT NULL,
        last INTEGER NOT NULL,
        checksum BLOB NOT NULL
    ) STRICT;
",
    "
    ALTER TABLE run ADD COLUMN principal TEXT;
    ALTER TABLE run ADD COLUMN toolset TEXT;
",
    // From here on turns may be compressed.
    "",
    "
    CREATE TABLE commits (
        number INTEGER PRIMARY KEY CHECK (number = 1),
        count INTEGER NOT NULL,
        lost INTEGER NOT NULL
    ) STRICT;
    INSERT INTO commits VALUES (1, 0, 0);
    CREATE TABLE lost (
        run_id TEXT NOT NULL PRIMARY KEY,
        length INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE run ADD COLUMN claims INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE run ADD COLUMN claimed_length INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE run ADD COLUMN set_aside TEXT;
",
];

/// The version that this Segue writes, in the file's `user_version`. It covers the format of entries,
/// too.
pub(super) const VERSION: usize = MIGRATIONS.len();

/// Marks the file as ours: `Segu`.
const APPLICATION_ID: i32 = 0x5365_6775;

/// Options of a store.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Values of this size and more are stored once, outside their turns.
    pub value_bytes_max: usize,
    /// The size of a page of a new file.
    pub page_bytes: u32,
    /// Pages of the file at most.
    pub pages_max: Option<u32>,
    /// A lone run writes on its own thread, and delays everything else there, as long as a commit takes no
    /// longer than this.
    pub alone_max: Duration,
}

impl Default for SqliteOptions {
    fn default() -> SqliteOptions {
        let limits = segue_core::limits::Limits::default();
        SqliteOptions {
            value_bytes_max: limits.journal_value_bytes_max,
            page_bytes: 4_096,
            pages_max: None,
            alone_max: Duration::from_millis(1),
        }
    }
}

/// Opens the connection that writes. Creates the file when there is none, and migrates its tables.
pub(super) fn open_writer(path: &Path, options: &SqliteOptions) -> Result<Connection, SqliteError> {
    make_file(path);
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "page_size", options.page_bytes)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // Overwrites deleted content where that costs no extra write; deleting a run turns it on fully.
    connection.pragma_update(None, "secure_delete", "fast")?;
    // The log is durable; a checkpoint at the end of every short process would cost more than the
    // process. `Writer` takes one when it ends.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    prepare_once(&connection)?;
    migrate(&mut connection)?;
    if let Some(pages) = options.pages_max {
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(connection)
}

/// Opens the connection that takes checkpoints.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, SqliteError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// How to take a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckpointMode {
    /// As far as no reader or writer has to wait.
    Passive,
    /// Completely, and empties the log, if no reader or writer is active at this moment.
    Truncate,
}

/// Moves pages from the log into the file; returns whether the file has all of them now.
pub(super) fn checkpoint(
    connection: &Connection,
    how: CheckpointMode,
) -> Result<bool, SqliteError> {
    let sql = match how {
        CheckpointMode::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
        CheckpointMode::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    connection.busy_timeout(Duration::ZERO)?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let done = connection.query_row(sql, [], read);
    connection.busy_timeout(BUSY_WAIT)?;
    let (is_busy, log, merged): (bool, i64, i64) = done?;
    Ok(!is_busy && log == merged)
}

/// Opens the connection that writes, on the newest state that can be read. SQLite prefers its log to the
/// file, also when the log is damaged early and the file is newer. Then the file counts, and the log is
/// renamed to `FILE-wal-damaged`.
pub(super) fn open_newest(
    path: &Path,
    options: &SqliteOptions,
    acknowledged: u64,
    is_used: impl Fn() -> bool,
) -> Result<Connection, SqliteError> {
    let connection = open_writer(path, options)?;
    let there = ack_log::last_commit(&connection)?;
    if there >= acknowledged || is_used() || commits_in_file(path).is_none_or(|file| file <= there)
    {
        return Ok(connection);
    }
    drop(connection);
    let aside = || -> std::io::Result<()> {
        std::fs::rename(sibling_path(path, "-wal"), sibling_path(path, "-wal-damaged"))?;
        std::fs::remove_file(sibling_path(path, "-shm"))
    };
    aside().map_err(|error| SqliteError::Unavailable(error.to_string()))?;
    open_writer(path, options)
}

/// The number of the last commit that the file holds without its log.
fn commits_in_file(path: &Path) -> Option<u64> {
    const NAME: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');
    let uri = format!("file:{}?immutable=1", utf8_percent_encode(path.to_str()?, NAME));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    ack_log::last_commit(&Connection::open_with_flags(uri, flags).ok()?).ok()
}

/// Opens a connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, SqliteError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    prepare_once(&connection)?;
    Ok(connection)
}

/// Prepares each statement once. Without this guarantee SQLite plans some statements anew for every
/// value, because of the partial indexes.
fn prepare_once(connection: &Connection) -> Result<(), SqliteError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Gives space back to the disk when half of the file or more is free; writers wait meanwhile. Empties
/// the log in any case, so that it holds nothing of deleted runs.
pub(super) fn shrink(path: &Path) -> Result<(), SqliteError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_WAIT)?;
    let pages = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get(0));
    let (free, all): (i64, i64) = (pages("freelist_count")?, pages("page_count")?);
    if free >= PAGES_FREE_MIN && free >= all / 2 {
        connection.execute_batch("VACUUM")?;
    }
    let log = sibling_path(path, "-wal");
    let length = std::fs::metadata(&log).map_or(0, |known| known.len());
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    if length >= log_bytes(&connection)? {
        // It was preallocated, because a process writes a lot.
        preallocate_log(&connection, path)?;
    }
    Ok(())
}

fn migrate(connection: &mut Connection) -> Result<(), SqliteError> {
    let version = |connection: &Connection| -> Result<usize, SqliteError> {
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        usize::try_from(version).map_err(|_| broken(format!("its version is {version}")))
    };
    if version(connection)? == VERSION {
        return Ok(());
    }
    // Two processes may migrate at once; the second finds nothing to do.
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = version(&transaction)?;
    let Some(missing) = MIGRATIONS.get(found..) else {
        let message =
            format!("it has version {found}, this Segue knows {VERSION}: use a newer one");
        return Err(broken(message));
    };
    if found == 0 && !is_ours(&transaction)? {
        return Err(broken("it is a database of another program".to_owned()));
    }
    missing.iter().try_for_each(|migration| transaction.execute_batch(migration))?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", i64::try_from(VERSION).unwrap_or(i64::MAX))?;
    transaction.commit()?;
    Ok(())
}

/// Whether a file without a version has no tables of another program. Those of the checkpoint tools may
/// be there.
fn is_ours(connection: &Connection) -> Result<bool, SqliteError> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'checkpoint%'
               AND tbl_name NOT LIKE 'checkpoint%'";
    let others: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(others == 0)
}

/// A file beside the store's.
pub(super) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The length of a preallocated log.
fn log_bytes(connection: &Connection) -> Result<u64, SqliteError> {
    let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    Ok(u64::from(page + 24) * u64::from(LOG_PAGES))
}

/// Makes the log as long as it will get, under the write lock. A sync in the middle of a file is several
/// times faster than one that also makes the file longer.
pub(super) fn preallocate_log(connection: &Connection, path: &Path) -> Result<(), SqliteError> {
    let wanted = log_bytes(connection)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done = preallocate(&sibling_path(path, "-wal"), wanted);
    connection.execute_batch("ROLLBACK")?;
    done.map_err(|error| SqliteError::Unavailable(error.to_string()))
}

/// SQLite ignores zeros behind the end: it reads the log up to the first frame that does not match.
fn preallocate(log: &Path, wanted: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(false).write(true).open(log)?;
    let length = file.seek(SeekFrom::End(0))?;
    if length < wanted {
        let mut zeros = std::io::repeat(0).take(wanted - length);
        let filled = std::io::copy(&mut zeros, &mut file).and_then(|_| file.sync_all());
        if filled.is_err() {
            // The disk is full: other files need the space more.
            file.set_len(length)?;
        }
        filled?;
    }
    Ok(())
}
