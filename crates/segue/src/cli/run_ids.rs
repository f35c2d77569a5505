//! Run ids as people write and read them: in full, shortened, or `last`.

use std::sync::Arc;

use segue_runtime::store::{RunQuery, RunRow};

use super::error::store_error;
use crate::api::error::Error;
use crate::app::App;

/// How many runs are searched for the end of an id, or compared to shorten ids.
const SEARCHED_MAX: usize = 10_000;

/// How many of them are read from the store at once.
const SEARCHED_TOGETHER: usize = 200;

/// The shortest id that a list shows.
const SHORT_CHARS_MIN: usize = 8;

/// How many ambiguous runs an error names.
const NAMED_MAX: usize = 5;

/// Ids are UUIDv7. Runs with the same first `SHORT_CHARS_MIN` characters started within 65.5 seconds; the
/// rest allows for a run that starts some time after its id was made.
const SAME_PREFIX_MS: u64 = 120_000;

/// Finds a run by its id, the start or the end of its id, or `last`.
pub(super) async fn find(app: &App, text: &str) -> Result<Arc<str>, Error> {
    let store = app.engine.store();
    let exact: Arc<str> = text.into();
    if store.run(&exact).await.map_err(store_error)?.is_some() {
        return Ok(exact);
    }
    let newest = async |limit| {
        let query = RunQuery { limit, ..RunQuery::default() };
        Ok::<_, Error>(store.runs(&query).await.map_err(store_error)?.runs)
    };
    let mut matching = if text == "last" {
        newest(1).await?
    } else {
        store.runs_with_prefix(text, SEARCHED_MAX).await.map_err(store_error)?
    };
    if matching.is_empty() && text != "last" {
        // No index helps with the end of an id.
        matching = newest(SEARCHED_MAX).await?;
        matching.retain(|run| run.run_id.ends_with(text));
    }
    match &*matching {
        [run] => Ok(run.run_id.clone()),
        [] => Err(Error::not_found(format!("there is no run `{text}`; `segue runs` lists them"))),
        several => Err(Error::invalid(ambiguous(text, several))),
    }
}

fn ambiguous(text: &str, runs: &[RunRow]) -> String {
    let named = runs.iter().take(NAMED_MAX);
    let named: Vec<String> = named.map(|run| format!("{} ({})", run.run_id, run.name)).collect();
    let more = if runs.len() > NAMED_MAX { ", …" } else { "" };
    format!("`{text}` means {} runs, write more of the id: {}{more}", runs.len(), named.join(", "))
}

/// How many characters of a listed id name that run and no other run of the store.
pub(super) async fn short_length(app: &App, listed: &[RunRow]) -> Result<usize, Error> {
    let Some(oldest) = listed.iter().map(|run| run.started_ms).min() else { return Ok(0) };
    let since_ms = oldest.saturating_sub(SAME_PREFIX_MS);
    let mut near = Vec::new();
    let mut after = None;
    // The store lists the newest first; older runs than these share no beginning with a listed one.
    while near.len() < SEARCHED_MAX {
        let query = RunQuery { after, limit: SEARCHED_TOGETHER, ..RunQuery::default() };
        let page = app.engine.store().runs(&query).await.map_err(store_error)?;
        let is_last = page.runs.last().is_none_or(|run| run.started_ms < since_ms);
        near.extend(page.runs);
        after = page.next;
        if is_last || after.is_none() {
            break;
        }
    }
    let ids = near.iter().chain(listed).map(|run| &*run.run_id);
    Ok(distinct_length(ids.collect()))
}

/// How many characters tell these ids apart.
fn distinct_length(mut ids: Vec<&str>) -> usize {
    ids.sort_unstable();
    ids.dedup();
    let common = |pair: &[&str]| {
        pair[0].chars().zip(pair[1].chars()).take_while(|(one, other)| one == other).count()
    };
    let shared = ids.windows(2).map(common).max();
    let length = shared.map_or(0, |shared| shared + 1).max(SHORT_CHARS_MIN);
    // A hyphen at the end would look like a mistake.
    let ends_in_hyphen = ids.iter().any(|id| id.chars().nth(length - 1) == Some('-'));
    length + usize::from(ends_in_hyphen)
}

/// The first characters of an id.
pub(super) fn shortened(run_id: &str, length: usize) -> &str {
    run_id.char_indices().nth(length).map_or(run_id, |(end, _)| &run_id[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_short_as_they_may_be() {
        let length = |ids: &[&str]| distinct_length(ids.to_vec());
        assert_eq!(length(&["0199d3a1-7c5e-7aaa", "0299d3a1-7c5e-7bbb"]), 8);
        // The first difference is at the ninth character, which is a hyphen in both.
        assert_eq!(length(&["0199d3a1-7c5e-7aaa", "0199d3a1-8c5e-7bbb"]), 10);
        assert_eq!(length(&["0199d3a1-7c5e-7aaa", "0199d3a1-7c5e-7aab"]), 18);
        assert_eq!(length(&["0199d3a1-7c5e-7aaa", "0199d3a1-7c5e-7aaa"]), 8);
        assert_eq!(length(&["0199d3a1-7c5e-7aaa", "0199d3a1-7c5e-8bbb", "0199d3a2"]), 15);
        assert_eq!(shortened("0199d3a1-7c5e", 8), "0199d3a1");
        assert_eq!(shortened("short", 8), "short");
    }
}
