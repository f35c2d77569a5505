//! What happens in a run, as it happens: server-sent events.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use segue_core::diagnostic::Code;

use super::problem::Problem;
use super::visit::{Answer, Visit};
use crate::serve::following::{Follower, News};

/// How soon a client that lost us should come back, in milliseconds.
const RETRY: &str = "retry: 1000\n\n";

/// What is sent in one piece, about.
const PIECE: usize = 16 * 1024;

/// `GET /api/v1/runs/{id}/events`
pub(super) async fn follow(visit: Visit) -> Answer {
    let next = match visit.header("last-event-id").map(str::parse::<u64>) {
        None => 0,
        Some(Ok(last)) => last.saturating_add(1),
        Some(Err(_)) => {
            let detail = "`Last-Event-ID` is the number of an event";
            return Err(Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, detail));
        }
    };
    let (followers, who) = (&visit.rest.followers, &visit.who);
    let follower = Follower::open(followers, who, visit.part("id"), next).await?;
    if follower.is_silent_for_good() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let events = stream::unfold(follower, |mut follower| async {
        let mut bytes = message(&follower.next().await?);
        while bytes.len() < PIECE
            && let Some(news) = follower.more()
        {
            bytes.push_str(&message(&news));
        }
        Some((Ok::<_, Infallible>(Bytes::from(bytes)), follower))
    });
    let retry = stream::once(async { Ok(Bytes::from_static(RETRY.as_bytes())) });
    let mut response = Response::new(Body::from_stream(retry.chain(events)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// JSON has no line breaks outside of texts, where they are escaped, so a line holds it.
fn message(news: &News) -> String {
    match news {
        News::Event(event) => {
            let (id, name, data) = (event.seq, event.event, event.json_line());
            // Whoever comes back asks for what is behind an entry; this is none.
            if event.is_transient() {
                return format!("event: {name}\ndata: {data}\n\n");
            }
            format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
        }
        News::End { seq, view } => {
            let data = serde_json::to_string(view).unwrap_or_default();
            format!("id: {seq}\nevent: run\ndata: {data}\n\n")
        }
        News::Silence => ": still here\n\n".into(),
    }
}
