//! The events of a run, and of all runs, as they happen: server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::header;
use axum::response::IntoResponse as _;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value as Json, json};

use crate::api::error::Error;
use crate::api::runs::all_events::{AllEvents, Cursor, FollowRequest, ServiceEvent};
use crate::api::runs::events::{EventReader, StreamItem};
use crate::http::request::{ApiRequest, HandlerResult, no_content};

/// How soon a client that lost the connection should come back.
const RETRY: Duration = Duration::from_secs(1);

/// How long the stream of everything may be silent.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

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

/// `GET /api/v1/events`
pub(super) async fn all(request: ApiRequest) -> HandlerResult {
    let bad_run = || Error::malformed("`run` is the id of a run, or `ID@SEQ`");
    let followed =
        request.queries("run").map(|text| FollowRequest::parse(text).ok_or_else(bad_run));
    let followed = followed.collect::<Result<Vec<_>, _>>()?;
    let after = request.header("last-event-id").or(request.query("after"));
    let bad_cursor = || Error::malformed("`after` is the id of an event of this stream");
    let after = after.map(|text| Cursor::parse(text).ok_or_else(bad_cursor)).transpose()?;
    let all = AllEvents::open(&request.state.readers, &request.who, followed, after).await?;
    let retry = stream::once(async { Event::default().retry(RETRY) });
    let events = all.into_stream().map(|(event, cursor)| {
        // A client resumes behind an entry of the journal, and progress has none.
        let is_transient =
            matches!(&event, ServiceEvent::Step { event, .. } if event.is_transient());
        let sent = sse_event(&event);
        if is_transient { sent } else { sent.id(cursor.to_string()) }
    });
    let events = retry.chain(events);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_EVERY).text("still here");
    let events = Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(keep_alive);
    let mut response = events.into_response();
    response.headers_mut().remove(header::CACHE_CONTROL);
    Ok(response)
}

fn sse_event(event: &ServiceEvent) -> Event {
    match event {
        ServiceEvent::Ready { is_gap } => {
            Event::default().event("ready").data(data(&json!({ "gap": is_gap })))
        }
        ServiceEvent::Run(run) => Event::default().event("run").data(&run.json),
        ServiceEvent::Questions(count) => {
            Event::default().event("questions").data(data(&json!({ "count": count })))
        }
        ServiceEvent::Step { run_id, event } => {
            // The line of the event is made once for all clients.
            let members = event.json_line().trim_start_matches('{');
            let run_id = json!(run_id);
            Event::default().event("step").data(format!("{{\"run_id\":{run_id},{members}"))
        }
        ServiceEvent::Ended { run_id, status } => {
            let ended = json!({ "run_id": run_id, "status": status.as_str() });
            Event::default().event("ended").data(data(&ended))
        }
        ServiceEvent::Catalog => {
            Event::default().event("changed").data(data(&json!({ "compositions": true })))
        }
    }
}

fn data(value: &Json) -> String {
    value.to_string()
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
