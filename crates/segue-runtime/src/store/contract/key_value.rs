//! Key-value collections beside the runs.

use std::sync::Arc;

use async_trait::async_trait;

use super::StoreError;

/// A collection of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collection {
    /// Compositions to start from.
    Templates,
    /// Plans made from natural language, by plan id.
    Plans,
    /// Requests for plans in natural language, by request id.
    Requests,
    /// Answers to requests with an idempotency key, by that key.
    Answers,
}

impl Collection {
    /// Every collection.
    pub const ALL: [Collection; 4] =
        [Collection::Templates, Collection::Plans, Collection::Requests, Collection::Answers];

    /// Its name in a store.
    pub fn as_str(self) -> &'static str {
        match self {
            Collection::Templates => "templates",
            Collection::Plans => "plans",
            Collection::Requests => "requests",
            Collection::Answers => "answers",
        }
    }
}

/// A text under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// Unique in its collection.
    pub key: Arc<str>,
    /// The text; the store does not read it.
    pub text: Arc<str>,
    /// Grows each time the text is replaced, from 1.
    pub version: u64,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A page of a collection, and the damaged items in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemPage {
    /// In the order in which their keys were first written.
    pub items: Vec<StoredItem>,
    /// Items that are set aside because they are damaged.
    pub damaged: Vec<StoreError>,
    /// Where the next page begins, unless this is known to be the last one.
    pub next: Option<u64>,
}

/// What must be under a key for a write to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Anything or nothing.
    Anything,
    /// Nothing.
    Absent,
    /// This version.
    Version(u64),
}

/// Collections of texts, each under a key.
#[async_trait]
pub trait KeyValueStore: Send + Sync {
    /// Writes a text under the key of `item`, if the precondition holds; returns its new version,
    /// whatever that of `item` is. Durable when this returns.
    async fn put(
        &self,
        collection: Collection,
        item: &StoredItem,
        expect: Precondition,
    ) -> Result<u64, StoreError>;

    /// The item under a key.
    async fn get(
        &self,
        collection: Collection,
        key: &Arc<str>,
    ) -> Result<Option<StoredItem>, StoreError>;

    /// The items of a collection behind `after`, so many at most.
    async fn list(
        &self,
        collection: Collection,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ItemPage, StoreError>;

    /// Deletes the item under a key, damaged or not; returns whether there was one.
    async fn delete(&self, collection: Collection, key: &Arc<str>) -> Result<bool, StoreError>;

    /// Deletes the items that were written before then; returns how many.
    async fn delete_before(
        &self,
        collection: Collection,
        before_ms: u64,
    ) -> Result<u64, StoreError>;
}
