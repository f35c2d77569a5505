//! Key-value collections beside the runs, a table for each. Every item has a checksum over its number
//! and its columns: a damaged item is named, and not returned.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::SqliteStore;
use super::error::SqliteError;
use super::history::check_integrity;
use super::row::signed;
use crate::store::pack::{Hash, hash};
use crate::store::rules::next_version;
use crate::store::{Collection, ItemPage, KeyValueStore, Precondition, StoreError, StoredItem};

const COLUMNS: &str = "number, key, text, version, at_ms, checksum";

#[async_trait]
impl KeyValueStore for SqliteStore {
    async fn put(
        &self,
        collection: Collection,
        item: &StoredItem,
        expect: Precondition,
    ) -> Result<u64, StoreError> {
        let item = item.clone();
        self.write(move |cache| put(&cache.connection, collection, &item, expect)).await
    }

    async fn get(
        &self,
        collection: Collection,
        key: &Arc<str>,
    ) -> Result<Option<StoredItem>, StoreError> {
        let key = key.clone();
        self.read(move |connection| get(connection, collection, &key)).await
    }

    async fn list(
        &self,
        collection: Collection,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ItemPage, StoreError> {
        self.read(move |connection| list(connection, collection, after, limit)).await
    }

    async fn delete(&self, collection: Collection, key: &Arc<str>) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |cache| delete(&cache.connection, collection, &key)).await
    }

    async fn delete_before(
        &self,
        collection: Collection,
        before_ms: u64,
    ) -> Result<u64, StoreError> {
        self.write(move |cache| delete_before(&cache.connection, collection, before_ms)).await
    }
}

/// Writes an item, if the precondition holds. A replaced item keeps its place.
fn put(
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

fn get(
    connection: &Connection,
    collection: Collection,
    key: &Arc<str>,
) -> Result<Option<StoredItem>, SqliteError> {
    let sql = format!("SELECT {COLUMNS} FROM shelf_{} WHERE key = ?1", collection.as_str());
    let mut select = connection.prepare_cached(&sql)?;
    let found = select.query_row([&**key], |row| Ok(read(collection, row))).optional()?;
    Ok(found.transpose()?.map(|(_, item)| item))
}

fn list(
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
    // From the smallest number: a damaged number may be anything, and its item must be named.
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

fn delete(
    connection: &Connection,
    collection: Collection,
    key: &Arc<str>,
) -> Result<bool, SqliteError> {
    let sql = format!("DELETE FROM shelf_{} WHERE key = ?1", collection.as_str());
    Ok(connection.prepare_cached(&sql)?.execute([&**key])? > 0)
}

fn delete_before(
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
            Err(StoreError::DamagedItem { collection, key })
        }
    }
}

/// The length of the key comes first, so that no letter can move from the key to the text.
fn checksum(number: i64, item: &StoredItem) -> Hash {
    let StoredItem { key, text, version, at_ms } = item;
    let head = format!("{number} {version} {at_ms} {} {key}", key.len());
    hash(&[head.as_bytes(), text.as_bytes()].concat())
}
