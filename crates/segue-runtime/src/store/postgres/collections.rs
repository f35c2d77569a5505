//! Key-value collections beside the runs. Keys and texts are bytes: they may have any character.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::PostgresStore;
use super::session::DbSession;
use crate::store::{Collection, ItemPage, KeyValueStore, Precondition, StoreError, StoredItem};

const PUT: &str = "INSERT INTO item (collection, key, text, version, at_ms)
    VALUES ($1, $2, $3, 1, $4)
    ON CONFLICT (collection, key) DO UPDATE
        SET text = excluded.text, version = item.version + 1, at_ms = excluded.at_ms
    RETURNING version";

const ADD: &str = "INSERT INTO item (collection, key, text, version, at_ms)
    VALUES ($1, $2, $3, 1, $4) ON CONFLICT DO NOTHING RETURNING version";

const REPLACE: &str = "UPDATE item SET text = $3, version = version + 1, at_ms = $4
    WHERE collection = $1 AND key = $2 AND version = $5 RETURNING version";

const GET: &str = "SELECT number, key, text, version, at_ms FROM item
    WHERE collection = $1 AND key = $2";

const LIST: &str = "SELECT number, key, text, version, at_ms FROM item
    WHERE collection = $1 AND number > $2 ORDER BY number LIMIT $3";

#[async_trait]
impl KeyValueStore for PostgresStore {
    async fn put(
        &self,
        collection: Collection,
        item: &StoredItem,
        expect: Precondition,
    ) -> Result<u64, StoreError> {
        let item = item.clone();
        self.on(move |shared| async move {
            put(&*shared.sessions.borrow().await?, collection, &item, expect).await
        })
        .await
    }

    async fn get(
        &self,
        collection: Collection,
        key: &Arc<str>,
    ) -> Result<Option<StoredItem>, StoreError> {
        let key = key.clone();
        self.on(move |shared| async move {
            get(&*shared.sessions.borrow().await?, collection, &key).await
        })
        .await
    }

    async fn list(
        &self,
        collection: Collection,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ItemPage, StoreError> {
        self.on(move |shared| async move {
            list(&*shared.sessions.borrow().await?, collection, after, limit).await
        })
        .await
    }

    async fn delete(&self, collection: Collection, key: &Arc<str>) -> Result<bool, StoreError> {
        let key = key.clone();
        self.on(move |shared| async move {
            let sql = "DELETE FROM item WHERE collection = $1 AND key = $2";
            let session = shared.sessions.borrow().await?;
            Ok(session.execute(sql, &[&collection.as_str(), &key.as_bytes()]).await? > 0)
        })
        .await
    }

    async fn delete_before(
        &self,
        collection: Collection,
        before_ms: u64,
    ) -> Result<u64, StoreError> {
        self.on(move |shared| async move {
            let sql = "DELETE FROM item WHERE collection = $1 AND at_ms < $2";
            let session = shared.sessions.borrow().await?;
            session.execute(sql, &[&collection.as_str(), &before_ms.cast_signed()]).await
        })
        .await
    }
}

/// Writes an item, if the precondition holds. A replaced item keeps its place.
async fn put(
    session: &DbSession,
    collection: Collection,
    item: &StoredItem,
    expect: Precondition,
) -> Result<u64, StoreError> {
    let (key, text, at_ms) = (item.key.as_bytes(), item.text.as_bytes(), item.at_ms.cast_signed());
    let collection_name = collection.as_str();
    let written = match expect {
        Precondition::Anything => {
            session.query_opt(PUT, &[&collection_name, &key, &text, &at_ms]).await?
        }
        Precondition::Absent => {
            session.query_opt(ADD, &[&collection_name, &key, &text, &at_ms]).await?
        }
        Precondition::Version(version) => {
            let version = version.cast_signed();
            session.query_opt(REPLACE, &[&collection_name, &key, &text, &at_ms, &version]).await?
        }
    };
    if let Some(row) = written {
        return Ok(row.get::<_, i64>(0).unsigned_abs());
    }
    let version = get(session, collection, &item.key).await?.map(|there| there.version);
    Err(StoreError::Changed { key: item.key.clone(), version })
}

async fn get(
    session: &DbSession,
    collection: Collection,
    key: &Arc<str>,
) -> Result<Option<StoredItem>, StoreError> {
    let row = session.query_opt(GET, &[&collection.as_str(), &key.as_bytes()]).await?;
    row.map(|row| read(collection, &row)).transpose()
}

async fn list(
    session: &DbSession,
    collection: Collection,
    after: Option<u64>,
    limit: usize,
) -> Result<ItemPage, StoreError> {
    let after = after.map_or(i64::MIN, u64::cast_signed);
    let count = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.query(LIST, &[&collection.as_str(), &after, &count]).await?;
    let mut page = ItemPage::default();
    for row in &rows {
        match read(collection, row) {
            Ok(item) => page.items.push(item),
            Err(damage) => page.damaged.push(damage),
        }
    }
    let last = rows.last().filter(|_| rows.len() == limit);
    page.next = last.map(|row| row.get::<_, i64>(0).unsigned_abs());
    Ok(page)
}

fn read(collection: Collection, row: &Row) -> Result<StoredItem, StoreError> {
    let text = |column| std::str::from_utf8(row.get::<_, &[u8]>(column)).ok().map(Arc::<str>::from);
    let key = text(1);
    match (&key, text(2)) {
        (Some(key), Some(text)) => Ok(StoredItem {
            key: key.clone(),
            text,
            version: row.get::<_, i64>(3).unsigned_abs(),
            at_ms: row.get::<_, i64>(4).unsigned_abs(),
        }),
        _ => Err(StoreError::DamagedItem { collection, key: key.unwrap_or_default() }),
    }
}
