//! The door for programs that say what they want to see: GraphQL at `/graphql`.
//!
//! ```text
//! guard.rs                                    what a document may cost, before anything is executed
//! query.rs, mutation.rs, subscription.rs      the three roots; types/: what they answer, per topic
//! caller.rs, json.rs                          rights, pages and errors; our values as GraphQL has them
//! ```
//!
//! It is a row of the table of routes, so it has the guards, the rights and the bounds of every other
//! row. What a field does is done by the functions that REST has, and errors are its problems with
//! `extensions.code`. Subscriptions, and whatever else is asked for with `Accept: text/event-stream`,
//! come as server-sent events: each is a request of its own, with its own token.

#![allow(
    clippy::unused_async,
    reason = "the functions behind fields are asynchronous, also simple ones"
)]

mod caller;
mod guard;
mod json;
mod mutation;
mod query;
mod subscription;
mod types;

use std::any::Any;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::time::Duration;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{DocumentOperations, ExecutableDocument, OperationType};
use async_graphql::{
    ErrorExtensionValues, Name, PathSegment, Request, Response as Executed, SDLExportOptions,
    Schema, ServerError,
};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use segue_core::diagnostic::Code;
use segue_core::value::Value;
use serde::Serialize;

use super::rest::problem::Problem;
use super::rest::visit::{Answer, Visit};
use super::threads;
use caller::Caller;
use guard::Refusal;
use mutation::Mutation;
use query::Query;
use subscription::Subscription;

/// Where it is.
pub const PATH: &str = "/graphql";

/// The longest silence of a stream.
const SILENCE_MAX: Duration = Duration::from_secs(15);

type Whole = Schema<Query, Mutation, Subscription>;

fn schema() -> &'static Whole {
    static SCHEMA: OnceLock<Whole> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::new(Query, Mutation, Subscription))
}

/// The schema, as text.
pub fn sdl() -> String {
    let options = SDLExportOptions::new().sorted_enum_items();
    format!("{}\n", schema().sdl_with_options(options).trim())
}

/// How an answer is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As JSON; what could not be executed is an answer, too.
    Json,
    /// As the newer media type has it, where the status says whether anything was executed.
    Graphql,
    /// As server-sent events.
    Events,
}

impl Form {
    fn of(accept: Option<&str>) -> Form {
        let accept = accept.unwrap_or("").to_ascii_lowercase();
        if accept.contains("text/event-stream") {
            Form::Events
        } else if accept.contains("application/graphql-response+json") {
            Form::Graphql
        } else {
            Form::Json
        }
    }
}

/// `POST /graphql`
pub(super) async fn answer(visit: Visit) -> Answer {
    let form = Form::of(visit.header("accept"));
    let text = |name: &str| visit.body.get(name).and_then(Value::as_str);
    let query = text("query").unwrap_or("");
    let document = match guard::read(query, &visit.rest.hall.limits()) {
        Ok(document) => document,
        Err(refusal) => return Ok(refused(form, refusal)),
    };
    let follows = is_subscription(&document, text("operationName"));
    if form != Form::Events && follows {
        let message = "a subscription is answered with events: `Accept: text/event-stream`";
        let refusal =
            Refusal { code: Code::InvalidField, message: message.to_owned(), places: Vec::new() };
        return Ok(refused(form, refusal));
    }
    let mut request = Request::new(query).variables(json::variables(visit.body.get("variables")));
    request.operation_name = text("operationName").map(str::to_owned);
    request.set_parsed_query(document);
    let caller =
        Caller { rest: visit.rest.clone(), who: visit.who.clone(), origin: visit.origin.clone() };
    let request = request.data(visit.who.clone()).data(caller);
    if form == Form::Events {
        return Ok(events(schema().execute_stream(request), follows));
    }
    let executed = AssertUnwindSafe(schema().execute(request)).catch_unwind().await;
    Ok(whole(form, executed.unwrap_or_else(|panic| panicked(&*panic))))
}

/// The answer when our own code panicked.
fn panicked(panic: &(dyn Any + Send)) -> Executed {
    threads::tell("a request", panic);
    let mut error = ServerError::new(Problem::panicked().view().detail.clone(), None);
    error.extensions = Some(coded(Code::Internal));
    Executed::from_errors(vec![error])
}

/// Whether the operation that is meant is a subscription.
fn is_subscription(document: &ExecutableDocument, name: Option<&str>) -> bool {
    let operation = match (&document.operations, name) {
        (DocumentOperations::Single(operation), _) => Some(operation),
        (DocumentOperations::Multiple(all), Some(name)) => all.get(name),
        (DocumentOperations::Multiple(all), None) => all.values().next(),
    };
    operation.is_some_and(|operation| operation.node.ty == OperationType::Subscription)
}

/// An answer about a document of which nothing is executed.
fn refused(form: Form, refusal: Refusal) -> Response {
    let mut error = ServerError::new(refusal.message, None);
    error.locations = refusal.places;
    error.extensions = Some(coded(refusal.code));
    let executed = Executed::from_errors(vec![error]);
    match form {
        Form::Events => events(stream::once(async { executed }).boxed(), false),
        Form::Json | Form::Graphql => whole(form, executed),
    }
}

fn coded(code: Code) -> ErrorExtensionValues {
    let mut extensions = ErrorExtensionValues::default();
    extensions.set("code", code.to_string());
    extensions
}

/// What is sent of an answer.
#[derive(Serialize)]
struct Sent {
    /// Absent when nothing was executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<async_graphql::Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ServerError>,
}

impl Sent {
    /// What is sent of an answer. What is followed has no field that could be null.
    fn of(executed: Executed, follows: bool) -> Sent {
        let mut errors = executed.errors;
        // What is about no field was found before anything was executed.
        let is_about_document = |error: &ServerError| error.path.is_empty();
        let is_executed = errors.is_empty() || !errors.iter().all(is_about_document);
        let mut data = executed.data;
        if !follows {
            errors.iter().for_each(|error| place_null(&mut data, &error.path));
        }
        for error in &mut errors {
            let code = if error.path.is_empty() { Code::InvalidField } else { Code::Internal };
            error.extensions.get_or_insert_with(|| coded(code));
        }
        Sent { data: is_executed.then_some(data), errors }
    }
}

/// Puts a null where a field failed, which the library leaves out. Every field that can fail may be null.
fn place_null(data: &mut async_graphql::Value, path: &[PathSegment]) {
    use async_graphql::Value;
    let Some((first, rest)) = path.split_first() else { return };
    // Of several fields that all failed it leaves nothing at all.
    if *data == Value::Null {
        *data = Value::Object(IndexMap::default());
    }
    let inner = match (data, first) {
        (Value::Object(members), PathSegment::Field(name)) => {
            Some(members.entry(Name::new(name)).or_insert(Value::Null))
        }
        (Value::List(items), PathSegment::Index(at)) => items.get_mut(*at),
        _ => None,
    };
    if let Some(inner) = inner.filter(|_| !rest.is_empty()) {
        place_null(inner, rest);
    }
}

/// An answer in one piece.
fn whole(form: Form, executed: Executed) -> Response {
    let sent = Sent::of(executed, false);
    let (kind, refused) = match form {
        Form::Graphql => ("application/graphql-response+json", StatusCode::BAD_REQUEST),
        Form::Json | Form::Events => ("application/json", StatusCode::OK),
    };
    let mut response = Response::new(Body::from(serde_json::to_string(&sent).unwrap_or_default()));
    *response.status_mut() = if sent.data.is_some() { StatusCode::OK } else { refused };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An answer as events: `next` for each that comes, `complete` at the end.
fn events(executed: BoxStream<'static, Executed>, follows: bool) -> Response {
    let bytes = stream::unfold(Some(executed), move |executed| async move {
        let mut executed = executed?;
        let message = match tokio::time::timeout(SILENCE_MAX, executed.next()).await {
            Err(_) => ":\n\n".into(),
            Ok(Some(next)) => {
                let data = serde_json::to_string(&Sent::of(next, follows)).unwrap_or_default();
                format!("event: next\ndata: {data}\n\n")
            }
            Ok(None) => {
                let end = Bytes::from_static(b"event: complete\ndata:\n\n");
                return Some((Ok::<_, Infallible>(end), None));
            }
        };
        Some((Ok(Bytes::from(message)), Some(executed)))
    });
    let mut response = Response::new(Body::from_stream(bytes));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use segue_core::access::{Principal, Right, Rights};

    use super::*;

    const QUERIES: [&str; 9] = [
        "plan{planId}",
        "plans{next}",
        "run(runId:1){runId}",
        "runs{next}",
        "tools{next}",
        "tool(id:1){id}",
        "templates{next}",
        "template(id:1){id}",
        "compositions{next}",
    ];

    const COMPOSES: [&str; 2] =
        ["createPlanWithRequestId(query:\"x\"){planId}", "executePlan{planId}"];

    const RUNS: [&str; 4] = [
        "executeComposition(request:{}){runId}",
        "cancelRun(runId:1){runId}",
        "resumeRun(runId:1){runId}",
        "rollbackRun(runId:1){runId}",
    ];

    const APPROVES: [&str; 1] = ["approveRun(runId:1,approved:true){runId}"];

    const CHANGES: [&str; 3] = [
        "deletePlan(planId:1)",
        "createTemplate(template:{id:1,composition:{}}){id}",
        "deleteTemplate(id:1)",
    ];

    /// The code of the one error that somebody with these rights gets. What lies behind the guard is not
    /// there, so that whoever passes it gets another one.
    async fn code(kind: &str, field: &str, rights: Rights) -> String {
        let who = Principal::new("somebody", rights);
        let request = Request::new(format!("{kind}{{{field}}}")).data(who);
        let executed = schema().execute_stream(request).next().await.expect("an answer");
        let sent = serde_json::to_value(Sent::of(executed, kind == "subscription")).expect("JSON");
        sent["errors"][0]["extensions"]["code"].as_str().unwrap_or_default().to_owned()
    }

    async fn names(root: &str) -> Vec<String> {
        let query = format!("{{__type(name:\"{root}\"){{fields{{name}}}}}}");
        let data = schema().execute(query.as_str()).await.data.into_json().expect("JSON");
        let fields = data["__type"]["fields"].as_array().expect("fields");
        fields.iter().map(|field| field["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Every field of every root asks for its right, and for no other.
    #[tokio::test]
    async fn no_field_is_open_to_who_may_not() {
        let all = [
            ("query", &QUERIES[..], Right::Read),
            ("mutation", &COMPOSES, Right::Compose),
            ("mutation", &RUNS, Right::Run),
            ("mutation", &APPROVES, Right::Approve),
            ("mutation", &CHANGES, Right::Write),
            ("subscription", &["runEvents(runId:1){seq}"], Right::Read),
        ];
        let mut known = Vec::new();
        for (kind, fields, right) in all {
            for field in fields {
                known.push(field.split(['(', '{']).next().unwrap_or_default().to_owned());
                let others =
                    [Right::Read, Right::Run, Right::Compose, Right::Approve, Right::Write];
                let others = others.into_iter().filter(|other| *other != right).collect();
                let own = [right].into_iter().collect();
                assert_eq!(code(kind, field, others).await, "unauthorized", "{field}");
                assert_eq!(code(kind, field, own).await, "internal", "{field}");
            }
        }
        for root in ["Query", "Mutation", "Subscription"] {
            for name in names(root).await {
                assert!(known.contains(&name), "{root}.{name} is not tried");
            }
        }
    }
}
