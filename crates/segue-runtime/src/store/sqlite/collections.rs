//! Texts beside the runs, a table for each shelf. Each text has a checksum over its place and all
//! that is kept of it: what is damaged is named, and nobody acts on it.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::error::SqliteError;
use super::history::check_integrity;
use super::pack::{Hash, hash};
use crate::store::rules::next_version;
use crate::store::{Collection, ItemPage, Precondition, StoreError, StoredItem};

const COLUMNS: &str = "number, key, text, version, at_ms, checksum";

/// Keeps a text, if what is there is as expected. It stays where it was first kept.
pub(super) fn put(
    connection: &Connection,
    collection: Collection,
    item: &StoredItem,
    expect: Precondition,
) -> Result<u64, SqliteError> {
    let table = collection.as_str();
    let sql = format!("SELECT number, version FROM shelf_{table} WHERE key = ?1");
    let mut select = connection.prepare_cached(&sql)?;
    let there: Option<(i64, i64)> =
        select.query_row([&*item.key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let version = there.map(|(_, version)| version.unsigned_abs());
    let item = StoredItem { version: next_version(item, version, expect)?, ..item.clone() };
    let sql = format!("SELECT coalesce(max(number), 0) + 1 FROM shelf_{table}");
    let number = match there {
        Some((number, _)) => number,
        None => connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?,
    };
    let sql =
        format!("INSERT OR REPLACE INTO shelf_{table} ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
    connection.prepare_cached(&sql)?.execute(params![
        number,
        &*item.key,
        &*item.text,
        signed(item.version),
        signed(item.at_ms),
        checksum(number, &item),
    ])?;
    Ok(item.version)
}

/// The text under a key.
pub(super) fn get(
    connection: &Connection,
    collection: Collection,
    key: &Arc<str>,
) -> Result<Option<StoredItem>, SqliteError> {
    let sql = format!("SELECT {COLUMNS} FROM shelf_{} WHERE key = ?1", collection.as_str());
    let mut select = connection.prepare_cached(&sql)?;
    let found = select.query_row([&**key], |row| Ok(read(collection, row))).optional()?;
    Ok(found.transpose()?.map(|(_, item)| item))
}

/// A page of a shelf.
pub(super) fn list(
    connection: &Connection,
    collection: Collection,
    after: Option<u64>,
    limit: usize,
) -> Result<ItemPage, SqliteError> {
    let transaction = connection.unchecked_transaction()?;
    let table = format!("shelf_{}", collection.as_str());
    check_integrity(&transaction, &table, "key")?;
    let sql = format!("SELECT {COLUMNS} FROM {table} WHERE number > ?1 ORDER BY number LIMIT ?2");
    let mut select = transaction.prepare_cached(&sql)?;
    // From the very beginning: a number that is damaged may be anything, and its text must be named.
    let after = after.map_or(i64::MIN, signed);
    let mut rows = select.query([after, signed(limit as u64)])?;
    let (mut page, mut last) = (ItemPage::default(), None);
    while let Some(row) = rows.next()? {
        last = Some(row.get::<_, i64>(0)?.unsigned_abs());
        match read(collection, row) {
            Ok((_, item)) => page.items.push(item),
            Err(damage) => page.damaged.push(damage),
        }
    }
    page.next = last.filter(|_| page.items.len() + page.damaged.len() == limit);
    Ok(page)
}

/// Throws away what is under a key.
pub(super) fn delete(
    connection: &Connection,
    collection: Collection,
    key: &Arc<str>,
) -> Result<bool, SqliteError> {
    let sql = format!("DELETE FROM shelf_{} WHERE key = ?1", collection.as_str());
    Ok(connection.prepare_cached(&sql)?.execute([&**key])? > 0)
}

/// Throws away what is older.
pub(super) fn delete_before(
    connection: &Connection,
    collection: Collection,
    before_ms: u64,
) -> Result<u64, SqliteError> {
    let sql = format!("DELETE FROM shelf_{} WHERE at_ms < ?1", collection.as_str());
    Ok(connection.prepare_cached(&sql)?.execute([signed(before_ms)])? as u64)
}

fn read(collection: Collection, row: &Row<'_>) -> Result<(i64, StoredItem), StoreError> {
    let read = || -> rusqlite::Result<(i64, StoredItem, Hash)> {
        let item = StoredItem {
            key: row.get::<_, String>(1)?.into(),
            text: row.get::<_, String>(2)?.into(),
            version: row.get::<_, i64>(3)?.unsigned_abs(),
            at_ms: row.get::<_, i64>(4)?.unsigned_abs(),
        };
        Ok((row.get(0)?, item, row.get(5)?))
    };
    match read() {
        Ok((number, item, sum)) if checksum(number, &item) == sum => Ok((number, item)),
        _ => {
            let key = row.get::<_, String>(1).unwrap_or_default().into();
            Err(StoreError::DamagedItem { collection: collection, key })
        }
    }
}

/// The length of the key stands before it, so that it cannot lend letters to the text.
fn checksum(number: i64, item: &StoredItem) -> Hash {
    let StoredItem { key, text, version, at_ms } = item;
    let head = format!("{number} {version} {at_ms} {} {key}", key.len());
    hash(&[head.as_bytes(), text.as_bytes()].concat())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
