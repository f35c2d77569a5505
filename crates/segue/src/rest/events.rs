//! The events of a run, as they happen: server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::header;
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, Sse};
use futures_util::{StreamExt as _, stream};

use crate::api::error::Error;
use crate::api::runs::events::{EventReader, StreamItem};
use crate::http::request::{ApiRequest, HandlerResult, no_content};

/// How soon a client that lost the connection should come back.
const RETRY: Duration = Duration::from_secs(1);

/// `GET /api/v1/runs/{id}/events`
pub(super) async fn follow(request: ApiRequest) -> HandlerResult {
    let last = request.header("last-event-id").map(str::parse::<u64>).transpose();
    let last = last.map_err(|_| Error::malformed("`Last-Event-ID` is the number of an event"))?;
    let next = last.map_or(0, |last| last.saturating_add(1));
    let (readers, who) = (&request.state.readers, &request.who);
    let reader = EventReader::open(readers, who, request.part("id"), next).await?;
    if reader.is_finished() {
        return Ok(no_content());
    }
    let retry = stream::once(async { Event::default().retry(RETRY) });
    let events =
        stream::unfold(reader, |mut reader| async { Some((event(&reader.next().await?), reader)) });
    let mut response = Sse::new(retry.chain(events).map(Ok::<_, Infallible>)).into_response();
    // Every response has `no-store`, which is stricter than what the library sets here.
    response.headers_mut().remove(header::CACHE_CONTROL);
    Ok(response)
}

fn event(item: &StreamItem) -> Event {
    match item {
        StreamItem::Event(event) => {
            // A client resumes behind an entry of the journal, and progress has none.
            let sent = Event::default();
            let sent = if event.is_transient() { sent } else { sent.id(event.seq.to_string()) };
            sent.event(event.event).data(event.json_line())
        }
        StreamItem::End { seq, view } => {
            let data = serde_json::to_string(view).unwrap_or_default();
            Event::default().id(seq.to_string()).event("run").data(data)
        }
        StreamItem::KeepAlive => Event::default().comment("still here"),
    }
}
