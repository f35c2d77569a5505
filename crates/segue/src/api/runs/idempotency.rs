//! Idempotency keys: a request that is repeated with its key finds the run that it started.
//!
//! The service stores a key, with the id of the run that it will have, before the run starts. A request
//! with the same key finds that run, also after a crash in between: then the run starts under that id.

use std::sync::Arc;

use segue_core::access::Principal;
use segue_core::diagnostic::Code;
use segue_core::document::read_json_value;
use segue_core::tool::hex_digest;
use segue_core::value::{Value, from_value};
use segue_runtime::driver::now_ms;
use segue_runtime::store::{Collection, Precondition, StoreError, StoredItem};
use serde::{Deserialize, Serialize};

use super::RunService;
use crate::api::error::{Error, ErrorKind};
use crate::api::result::json_of;

/// The longest key.
const KEY_CHARS_MAX: usize = 255;

/// The run that a key stands for.
pub(super) enum Claim {
    /// A run that has not started.
    New(Arc<str>),
    /// A run that has.
    Started(Arc<str>),
}

/// A key, as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredKey {
    /// The hash of the request.
    asked: String,
    /// The run that it starts.
    run_id: Arc<str>,
}

/// Claims a key for a request; `request` identifies it.
pub(super) async fn claim(
    service: &RunService,
    who: &Principal,
    key: &str,
    request: &Value,
) -> Result<Claim, Error> {
    if key.is_empty() || key.chars().count() > KEY_CHARS_MAX {
        return Err(Error::invalid(format!(
            "`Idempotency-Key` has 1 to {KEY_CHARS_MAX} characters"
        )));
    }
    let store = service.store();
    let shelves = store.key_value();
    let key: Arc<str> = hex_digest(format!("{}\n{key}", who.name).as_bytes()).into();
    let asked = hex_digest(request.to_canonical_json().as_bytes());
    let new = StoredKey { asked, run_id: service.new_run_id() };
    let text = json_of(&new).to_json().into();
    let item = StoredItem { key: key.clone(), text, version: 0, at_ms: now_ms() };
    match shelves.put(Collection::Answers, &item, Precondition::Absent).await {
        Ok(_) => return Ok(Claim::New(new.run_id)),
        Err(StoreError::Changed { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let stored = shelves.get(Collection::Answers, &key).await?;
    let stored = stored.and_then(|item| read_json_value(&item.text, &service.limits()).ok());
    let stored = stored.and_then(|value| from_value::<StoredKey>(&value).ok());
    let Some(StoredKey { run_id, .. }) = stored.filter(|stored| stored.asked == new.asked) else {
        let message = "this `Idempotency-Key` came with another body before";
        return Err(Error::new(ErrorKind::Invalid, Code::Conflict, message));
    };
    let has_started = service.handle(who, &run_id).is_some() || store.run(&run_id).await?.is_some();
    Ok(if has_started { Claim::Started(run_id) } else { Claim::New(run_id) })
}

/// Deletes keys that are older than `served_key_ms`.
pub async fn forget(service: &RunService) -> Result<u64, StoreError> {
    let before_ms = now_ms().saturating_sub(service.limits().served_key_ms);
    service.store().key_value().delete_before(Collection::Answers, before_ms).await
}
