//! GraphQL at `/graphql`.
//!
//! ```text
//! query.rs, mutation.rs, subscription.rs      the three roots; types/: what they return, per topic
//! cost.rs                                     what a document costs, before anything is executed
//! context.rs, json.rs                         rights, pages and errors; our values as GraphQL has them
//! ```
//!
//! Its route has the authentication, the rights and the limits of every other route. A field calls the
//! function that REST calls, and an error has its code in `extensions.code`. Subscriptions, and other
//! operations with `Accept: text/event-stream`, are answered with server-sent events: each is a request of
//! its own, with its own token.

#![allow(
    clippy::unused_async,
    reason = "the functions behind fields are asynchronous, also simple ones"
)]

mod context;
mod cost;
mod json;
mod mutation;
mod query;
mod subscription;
mod types;

use std::any::Any;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{DocumentOperations, ExecutableDocument, OperationType};
use async_graphql::{
    ErrorExtensionValues, Name, PathSegment, Request, Response as Executed, SDLExportOptions,
    Schema, ServerError,
};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use schemars::{JsonSchema, SchemaGenerator};
use segue_core::access::Right;
use segue_core::diagnostic::Code;
use segue_core::value::{Map, Value};
use serde::{Deserialize, Serialize};

use crate::api::error::Error;
use crate::api::requests::impl_request;
use crate::api::threads::log_panic;
use crate::http::request::{ApiRequest, HandlerResult, HandlerState};
use crate::http::route::{
    BodySpec, Handler, Route, Verb, json as json_response, mount, needed, route,
};
use context::CallerContext;
use cost::DocumentError;
use mutation::Mutation;
use query::Query;
use subscription::Subscription;

/// The path.
pub const PATH: &str = "/graphql";

/// How often a stream without events sends a comment.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

type GraphqlSchema = Schema<Query, Mutation, Subscription>;

fn schema() -> &'static GraphqlSchema {
    static SCHEMA: OnceLock<GraphqlSchema> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::new(Query, Mutation, Subscription))
}

/// The schema, as text.
pub fn sdl() -> String {
    let options = SDLExportOptions::new().sorted_enum_items();
    format!("{}\n", schema().sdl_with_options(options).trim())
}

/// The format of a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResponseFormat {
    /// JSON, with status 200 also when nothing was executed.
    Json,
    /// The newer media type, whose status says whether anything was executed.
    Graphql,
    /// Server-sent events.
    Events,
}

impl ResponseFormat {
    fn of(accept: Option<&str>) -> ResponseFormat {
        let accept = accept.unwrap_or("").to_ascii_lowercase();
        if accept.contains("text/event-stream") {
            ResponseFormat::Events
        } else if accept.contains("application/graphql-response+json") {
            ResponseFormat::Graphql
        } else {
            ResponseFormat::Json
        }
    }
}

/// One operation of GraphQL.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "GraphQLRequest")]
struct GraphqlRequest {
    /// The document.
    query: String,
    /// Which of its operations, when it has several.
    operation_name: Option<String>,
    /// The values of its variables.
    variables: Option<Map>,
    /// Ignored.
    #[serde(rename = "extensions")]
    _extensions: Option<Map>,
}

impl_request!(GraphqlRequest);

/// The routes.
pub const ROUTES: &[Route] = &[Route {
    about: "GraphQL: one operation",
    more: "The schema is in `schema/segue.graphql`; introspection returns it, too. A mutation needs the right \
           of the REST route that does the same. `Accept: text/event-stream` returns events; subscriptions \
           need it.",
    body: Some(BodySpec {
        limit: Some(("graphql_body_bytes_max", |limits| limits.graphql_body_bytes_max)),
        ..needed(SchemaGenerator::subschema_for::<GraphqlRequest>)
    }),
    responses: &[json_response(
        200,
        "the data, and the errors",
        SchemaGenerator::subschema_for::<GraphqlResult>,
    )],
    handler: Handler::Worker(|request| Box::pin(execute(request))),
    ..route(Verb::Post, PATH, Right::Read, "graphql")
}];

/// The router.
pub fn router(state: &Arc<HandlerState>) -> Router {
    mount(ROUTES, state)
}

/// `POST /graphql`
async fn execute(request: ApiRequest) -> HandlerResult {
    let format = ResponseFormat::of(request.header("accept"));
    let operation: GraphqlRequest = request.read()?;
    let document = match cost::read(&operation.query, &request.service().limits()) {
        Ok(document) => document,
        Err(error) => return Ok(refused(format, error)),
    };
    let is_subscription = is_subscription(&document, operation.operation_name.as_deref());
    if format != ResponseFormat::Events && is_subscription {
        let message =
            "a subscription is answered with events: `Accept: text/event-stream`".to_owned();
        let error = DocumentError { code: Code::InvalidField, message, locations: Vec::new() };
        return Ok(refused(format, error));
    }
    let caller = CallerContext {
        service: request.service().clone(),
        readers: request.state.readers.clone(),
        who: request.who.clone(),
        origin: request.origin.clone(),
    };
    let mut executed =
        Request::new(operation.query).variables(json::variables(operation.variables));
    executed.operation_name = operation.operation_name;
    executed.set_parsed_query(document);
    let executed = executed.data(request.who.clone()).data(caller);
    if format == ResponseFormat::Events {
        return Ok(events(schema().execute_stream(executed), is_subscription));
    }
    let executed = AssertUnwindSafe(schema().execute(executed)).catch_unwind().await;
    Ok(whole(format, executed.unwrap_or_else(|panic| panicked(&*panic))))
}

/// The response when our own code panicked.
fn panicked(panic: &(dyn Any + Send)) -> Executed {
    log_panic("a request", panic);
    let mut error = ServerError::new(Error::panicked().to_string(), None);
    error.extensions = Some(coded(Code::Internal));
    Executed::from_errors(vec![error])
}

/// Whether the operation is a subscription.
fn is_subscription(document: &ExecutableDocument, name: Option<&str>) -> bool {
    let operation = match (&document.operations, name) {
        (DocumentOperations::Single(operation), _) => Some(operation),
        (DocumentOperations::Multiple(all), Some(name)) => all.get(name),
        (DocumentOperations::Multiple(all), None) => all.values().next(),
    };
    operation.is_some_and(|operation| operation.node.ty == OperationType::Subscription)
}

/// The response to a document that is not executed.
fn refused(format: ResponseFormat, error: DocumentError) -> Response {
    let mut server_error = ServerError::new(error.message, None);
    server_error.locations = error.locations;
    server_error.extensions = Some(coded(error.code));
    let executed = Executed::from_errors(vec![server_error]);
    match format {
        ResponseFormat::Events => events(stream::once(async { executed }).boxed(), false),
        ResponseFormat::Json | ResponseFormat::Graphql => whole(format, executed),
    }
}

fn coded(code: Code) -> ErrorExtensionValues {
    let mut extensions = ErrorExtensionValues::default();
    extensions.set("code", code.to_string());
    extensions
}

/// The result of an operation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GraphQLResponse")]
struct GraphqlResult {
    /// The data; absent when nothing was executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    data: Option<async_graphql::Value>,
    /// The errors; each has `extensions.code`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<BTreeMap<String, Value>>")]
    errors: Vec<ServerError>,
}

impl GraphqlResult {
    /// The result of an operation. The field of a subscription cannot be null.
    fn of(executed: Executed, is_subscription: bool) -> GraphqlResult {
        let mut errors = executed.errors;
        // Errors without a path were found before anything was executed.
        let is_about_document = |error: &ServerError| error.path.is_empty();
        let is_executed = errors.is_empty() || !errors.iter().all(is_about_document);
        let mut data = executed.data;
        if !is_subscription {
            errors.iter().for_each(|error| place_null(&mut data, &error.path));
        }
        for error in &mut errors {
            let code = if error.path.is_empty() { Code::InvalidField } else { Code::Internal };
            error.extensions.get_or_insert_with(|| coded(code));
        }
        GraphqlResult { data: is_executed.then_some(data), errors }
    }
}

/// Puts a null where a field failed, which the library leaves out. Every field that can fail may be null.
fn place_null(data: &mut async_graphql::Value, path: &[PathSegment]) {
    use async_graphql::Value;
    let Some((first, rest)) = path.split_first() else { return };
    // If all fields failed, the library leaves nothing at all.
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

/// A response in one piece.
fn whole(format: ResponseFormat, executed: Executed) -> Response {
    let sent = GraphqlResult::of(executed, false);
    let (kind, refused) = match format {
        ResponseFormat::Graphql => ("application/graphql-response+json", StatusCode::BAD_REQUEST),
        ResponseFormat::Json | ResponseFormat::Events => ("application/json", StatusCode::OK),
    };
    let mut response = Response::new(Body::from(serde_json::to_string(&sent).unwrap_or_default()));
    *response.status_mut() = if sent.data.is_some() { StatusCode::OK } else { refused };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A response of events: `next` for each result, `complete` at the end. Written here, because axum's `Sse`
/// sends no event without data, and `complete` has none.
fn events(executed: BoxStream<'static, Executed>, is_subscription: bool) -> Response {
    let bytes = stream::unfold(Some(executed), move |executed| async move {
        let mut executed = executed?;
        let message = match tokio::time::timeout(KEEP_ALIVE_EVERY, executed.next()).await {
            Err(_) => ":\n\n".into(),
            Ok(Some(next)) => {
                let result = GraphqlResult::of(next, is_subscription);
                let data = serde_json::to_string(&result).unwrap_or_default();
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

    const COMPOSES: [&str; 3] = [
        "createPlanWithRequestId(query:\"x\"){planId}",
        "executePlan{planId}",
        "executeByRequestId(requestId:1){planId}",
    ];

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

    /// The code of the one error that a principal with these rights gets. The service is absent, so that a
    /// principal that passes the guard gets another one.
    async fn code(kind: &str, field: &str, rights: Rights) -> String {
        let who = Principal::new("caller", rights);
        let request = Request::new(format!("{kind}{{{field}}}")).data(who);
        let executed = schema().execute_stream(request).next().await.expect("an answer");
        let sent = serde_json::to_value(GraphqlResult::of(executed, kind == "subscription"))
            .expect("JSON");
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
    async fn every_field_needs_its_right() {
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
