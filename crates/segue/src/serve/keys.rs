//! Keys of requests that may come twice.
//!
//! A key is claimed, with the id of the run that it will have, before the run begins. Whoever comes with
//! it again finds that run, also after a crash in between: then it begins, under the id that it was
//! given.

use std::sync::Arc;

use segue_core::access::Principal;
use segue_core::document::read_json_value;
use segue_core::tool::hex_digest;
use segue_core::value::Value;
use segue_runtime::driver::now_ms;
use segue_runtime::store::{Collection, Precondition, StoreError, StoredItem};

use super::hall::Hall;

/// The longest key.
const KEY_CHARS_MAX: usize = 255;

/// Why a key is of no use.
#[derive(Debug)]
pub enum Unclaimed {
    /// It is empty or too long.
    Unfit {
        /// How many characters it may have.
        chars_max: usize,
    },
    /// It came with something else before.
    Taken,
    /// It cannot be kept, or looked up.
    Store(StoreError),
}

impl From<StoreError> for Unclaimed {
    fn from(error: StoreError) -> Unclaimed {
        Unclaimed::Store(error)
    }
}

/// What a key stands for.
pub(super) enum Claim {
    /// A run that has not begun.
    New(Arc<str>),
    /// A run that has.
    Begun(Arc<str>),
}

/// Claims a key for a request.
pub(super) async fn claim(
    hall: &Hall,
    who: &Principal,
    key: &str,
    body: &Value,
) -> Result<Claim, Unclaimed> {
    if key.is_empty() || key.chars().count() > KEY_CHARS_MAX {
        return Err(Unclaimed::Unfit { chars_max: KEY_CHARS_MAX });
    }
    let store = hall.store();
    let shelves = store.key_value();
    let key: Arc<str> = hex_digest(format!("{}\n{key}", who.name).as_bytes()).into();
    let asked = hex_digest(body.to_canonical_json().as_bytes());
    let run_id = hall.new_run_id();
    let text = Value::object([
        ("asked", Value::from(asked.as_str())),
        ("run_id", Value::String(run_id.clone())),
    ]);
    let item =
        StoredItem { key: key.clone(), text: text.to_json().into(), version: 0, at_ms: now_ms() };
    match shelves.put(Collection::Answers, &item, Precondition::Absent).await {
        Ok(_) => return Ok(Claim::New(run_id)),
        Err(StoreError::Changed { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let kept = shelves.get(Collection::Answers, &key).await?;
    let kept = kept.and_then(|item| read_json_value(&item.text, &hall.limits()).ok());
    let kept = kept.unwrap_or_default();
    if kept.get("asked").and_then(Value::as_str) != Some(&asked) {
        return Err(Unclaimed::Taken);
    }
    let run_id: Arc<str> = kept.get("run_id").and_then(Value::as_str).unwrap_or("").into();
    let has_begun = hall.active(who, &run_id).is_some() || store.run(&run_id).await?.is_some();
    Ok(if has_begun { Claim::Begun(run_id) } else { Claim::New(run_id) })
}

/// Forgets keys that nobody comes with any more.
pub async fn forget(hall: &Hall) -> Result<u64, StoreError> {
    let before_ms = now_ms().saturating_sub(hall.limits().served_key_ms);
    hall.store().key_value().delete_before(Collection::Answers, before_ms).await
}
