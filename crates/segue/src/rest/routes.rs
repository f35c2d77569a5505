//! The table of REST's routes. To add one, add a row; its handler is the only other place.

use schemars::SchemaGenerator;
use segue_core::access::Right;
use segue_core::expose::ExportFormat;
use segue_core::planner::PlanState;
use segue_core::view::TemplateView;
use segue_core::view::{PlanView, RunStatus, RunView};

use super::run_routes::RUN_ROUTES;
use super::{compositions, events, plans, runs, server, templates, tools};
use crate::api::requests::{
    ApproveRun, CreatePlan, ExecuteComposition, ExecutePlan, PlanComposition, PutTemplate,
    ResumeRun,
};
use crate::api::responses::{
    CompositionList, CompositionResult, PlanDetails, PlanList, Readiness, RunList, TemplateList,
    ValidationResult,
};
use crate::api::runs::inspect::RunDetails;
use crate::api::tools::{ExportReport, ToolDetails, ToolList};
use crate::http::auth::ProtectedResource;
use crate::http::route::{
    Handler, Parameter, ParameterKind, ResponseContent, ResponseSpec, Route, Verb, json, needed,
    optional, parameter, route,
};

fn statuses() -> Vec<&'static str> {
    RunStatus::ALL.iter().map(|status| status.as_str()).collect()
}

fn plan_states() -> Vec<&'static str> {
    PlanState::ALL.iter().map(|state| state.as_str()).collect()
}

fn formats() -> Vec<&'static str> {
    ExportFormat::ALL.iter().map(|format| format.as_str()).collect()
}

/// The last moment that every reader of JSON keeps exactly.
const TIME_MAX: u64 = (1 << 53) - 1;

pub(super) const PREFER: (&str, &str) = (
    "Prefer",
    "`respond-async`: answer at once, with 202 and the location of the run, or with 200 and the result if the run has \
     finished. `wait=5`: the same after five seconds",
);

pub(super) const IDEMPOTENCY_KEY: (&str, &str) = (
    "Idempotency-Key",
    "the same key with the same body is the same run and answer, also after a restart",
);

pub(super) const UNDER_WAY: &str =
    "the run goes on, or waits for a person; `Location` has its address";

const SHOWS_RUN: &[ResponseSpec] = &[
    json(200, "the run, which has finished", SchemaGenerator::subschema_for::<RunView>),
    json(202, UNDER_WAY, SchemaGenerator::subschema_for::<RunView>),
];

/// Every route.
pub const ROUTES: &[Route] = &joined();

/// The rows of both tables.
const fn joined() -> [Route; RESOURCE_ROUTES.len() + RUN_ROUTES.len()] {
    let mut all = [RESOURCE_ROUTES[0]; RESOURCE_ROUTES.len() + RUN_ROUTES.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < RESOURCE_ROUTES.len() {
            RESOURCE_ROUTES[at]
        } else {
            RUN_ROUTES[at - RESOURCE_ROUTES.len()]
        };
        at += 1;
    }
    all
}

/// The routes of each resource; those of a run in pieces are in `run_routes.rs`.
const RESOURCE_ROUTES: &[Route] = &[
    Route {
        about: "List the served compositions",
        responses: &[json(200, "by name", SchemaGenerator::subschema_for::<CompositionList>)],
        handler: Handler::Inline(compositions::list),
        ..route(Verb::Get, "/api/v1/compositions", Right::Read, "listCompositions")
    },
    Route {
        about: "Run a composition",
        more: "The run belongs to the server: a client that disconnects loses nothing. A call that needs a \
               confirmation leaves the run `waiting` for an approval, unless `options.approved` is true, \
               which needs the right `approve`. Running a composition in the request needs `compose`; a dry \
               run of one does not. A run that failed is a response with `success: false`; a run that could \
               not start is a problem.",
        headers: &[PREFER, IDEMPOTENCY_KEY],
        body: Some(needed(SchemaGenerator::subschema_for::<ExecuteComposition>)),
        responses: &[
            json(200, "the result", SchemaGenerator::subschema_for::<CompositionResult>),
            json(202, UNDER_WAY, SchemaGenerator::subschema_for::<CompositionResult>),
        ],
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(compositions::execute(request))),
        ..route(Verb::Post, "/api/v1/compositions/execute", Right::Run, "executeComposition")
    },
    Route {
        about: "Check a composition, and run nothing",
        more: "Every mistake at its line with a suggestion, and when there is none, the plan.",
        body: Some(needed(SchemaGenerator::subschema_for::<ExecuteComposition>)),
        responses: &[json(
            200,
            "every finding",
            SchemaGenerator::subschema_for::<ValidationResult>,
        )],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(compositions::validate(request))),
        ..route(Verb::Post, "/api/v1/compositions/validate", Right::Read, "validateComposition")
    },
    Route {
        about: "List the templates: compositions to start from, with their usage and success rate",
        parameters: &[parameter(
            "search",
            ParameterKind::Text,
            "filter by words; the best match first",
        )],
        responses: &[json(200, "by id", SchemaGenerator::subschema_for::<TemplateList>)],
        handler: Handler::Worker(|request| Box::pin(templates::list(request))),
        ..route(Verb::Get, "/api/v1/compositions/templates", Right::Read, "listTemplates")
    },
    Route {
        about: "Store a new template",
        more: "Its composition is checked first. Needs `compose`, too: others run it.",
        body: Some(needed(SchemaGenerator::subschema_for::<PutTemplate>)),
        responses: &[json(
            201,
            "the stored template; `Location` has its address",
            SchemaGenerator::subschema_for::<TemplateView>,
        )],
        problems: &[409],
        handler: Handler::Worker(|request| Box::pin(templates::create(request))),
        ..route(Verb::Post, "/api/v1/compositions/templates", Right::Write, "createTemplate")
    },
    Route {
        about: "Get a template, with its composition",
        responses: &[json(200, "the template", SchemaGenerator::subschema_for::<TemplateView>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(templates::get(request))),
        ..route(Verb::Get, "/api/v1/compositions/templates/{id}", Right::Read, "getTemplate")
    },
    Route {
        about: "Store a template under this id, in place of the old one",
        more: "Needs `compose`, too: others run it.",
        body: Some(needed(SchemaGenerator::subschema_for::<PutTemplate>)),
        responses: &[
            json(200, "the stored template", SchemaGenerator::subschema_for::<TemplateView>),
            json(
                201,
                "the stored template, when there was none",
                SchemaGenerator::subschema_for::<TemplateView>,
            ),
        ],
        problems: &[409],
        handler: Handler::Worker(|request| Box::pin(templates::put(request))),
        ..route(Verb::Put, "/api/v1/compositions/templates/{id}", Right::Write, "putTemplate")
    },
    Route {
        about: "Delete a template",
        more: "Templates that come with Segue or from files cannot be deleted.",
        responses: &[ResponseSpec {
            status: 204,
            about: "deleted",
            content: ResponseContent::Nothing,
        }],
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(templates::delete(request))),
        ..route(Verb::Delete, "/api/v1/compositions/templates/{id}", Right::Write, "deleteTemplate")
    },
    Route {
        about: "Plan a composition: order, effects and rollback",
        body: Some(needed(SchemaGenerator::subschema_for::<PlanComposition>)),
        responses: &[json(200, "the plan", SchemaGenerator::subschema_for::<PlanView>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(plans::plan(request))),
        ..route(Verb::Post, "/api/v1/plans", Right::Read, "planComposition")
    },
    Route {
        about: "List stored plans, newest first",
        more: "The plans of one request come from the first version to the last.",
        parameters: &[
            parameter("request_id", ParameterKind::Text, "filter by request: its versions"),
            parameter("state", ParameterKind::Word(plan_states), "filter by state"),
            parameter("limit", ParameterKind::Number(1, 1000), "the page size; 50 unless given"),
            parameter("cursor", ParameterKind::Text, "`next` of the page before"),
        ],
        responses: &[json(200, "a page", SchemaGenerator::subschema_for::<PlanList>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(plans::list(request))),
        ..route(Verb::Get, "/api/v1/plans", Right::Read, "listPlans")
    },
    Route {
        about: "Ask the model for a plan, and call nothing",
        more: "The configured model proposes the plan; Segue checks it against the tools that exist, and \
               stores it under the id of a request. With `request_id` it is another version. The same \
               words get the plan that succeeded before, unless `fresh`. Disconnecting cancels planning.",
        body: Some(needed(SchemaGenerator::subschema_for::<CreatePlan>)),
        responses: &[json(
            201,
            "the plan; `Location` has its address",
            SchemaGenerator::subschema_for::<PlanDetails>,
        )],
        problems: &[404, 409, 502],
        handler: Handler::Worker(|request| Box::pin(plans::create(request))),
        ..route(Verb::Post, "/api/v1/plans/ask", Right::Compose, "askPlan")
    },
    Route {
        about: "Get a stored plan, its state and its last run",
        more: "By its id, or by the id of a request: then it is the last version.",
        responses: &[json(200, "the plan", SchemaGenerator::subschema_for::<PlanDetails>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(plans::get(request))),
        ..route(Verb::Get, "/api/v1/plans/{id}", Right::Read, "getPlan")
    },
    Route {
        about: "Delete a stored plan",
        responses: &[ResponseSpec {
            status: 204,
            about: "deleted",
            content: ResponseContent::Nothing,
        }],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(plans::delete(request))),
        ..route(Verb::Delete, "/api/v1/plans/{id}", Right::Write, "deletePlan")
    },
    Route {
        about: "Get a stored plan as a composition",
        more: "To keep in a repository, edit and serve; it needs no model.",
        parameters: &[parameter("name", ParameterKind::Text, "the name of the composition")],
        responses: &[ResponseSpec {
            status: 200,
            about: "the composition",
            content: ResponseContent::Other("application/yaml"),
        }],
        problems: &[404, 422],
        handler: Handler::Worker(|request| Box::pin(plans::composition(request))),
        ..route(Verb::Get, "/api/v1/plans/{id}/composition", Right::Read, "getPlanComposition")
    },
    Route {
        about: "Execute a stored plan, once unless `again`",
        more: "By its id, or by the id of a request: then it is the last version. It is checked against \
               the tools that exist now; otherwise it is like executing a composition.",
        headers: &[PREFER, IDEMPOTENCY_KEY],
        body: Some(optional(SchemaGenerator::subschema_for::<ExecutePlan>)),
        responses: &[
            json(200, "the result", SchemaGenerator::subschema_for::<CompositionResult>),
            json(202, UNDER_WAY, SchemaGenerator::subschema_for::<CompositionResult>),
        ],
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(plans::execute(request))),
        ..route(Verb::Post, "/api/v1/plans/{id}/execute", Right::Compose, "executePlan")
    },
    Route {
        about: "Hear of everything that changes, in one stream",
        more: "Server-sent events. `ready` comes first; with `gap: true` the client may have missed \
               something and reads its lists again. `run` holds the summary of a run that is new or has \
               changed, whichever process runs it. `questions` says how many questions wait, `changed` \
               that what is served has changed. For each `run` that is asked for: `step` holds `run_id` \
               and the line that `segue run -o ndjson` prints, and `ended` the status. A client that \
               reconnects with `Last-Event-ID` or `after` misses nothing.",
        parameters: &[
            parameter(
                "run",
                ParameterKind::Texts,
                "a run whose steps to tell; `ID@SEQ` from this entry of its journal on; at most 16",
            ),
            parameter("after", ParameterKind::Text, "the `id` of the last event that was received"),
        ],
        headers: &[("Last-Event-ID", "the last event that was received")],
        responses: &[ResponseSpec {
            status: 200,
            about: "the events",
            content: ResponseContent::Other("text/event-stream"),
        }],
        problems: &[404, 422],
        handler: Handler::Worker(|request| Box::pin(events::all(request))),
        ..route(Verb::Get, "/api/v1/events", Right::Read, "followAll")
    },
    Route {
        about: "List runs, newest first",
        parameters: &[
            parameter("status", ParameterKind::Words(statuses), "filter by status"),
            parameter("name", ParameterKind::Text, "filter by a part of the composition's name"),
            parameter(
                "text",
                ParameterKind::Text,
                "search in names, ids, tools, inputs, outputs and failures. A page reads at most 1,000 \
                 runs, for about a second: `searched` says how many, and `next` goes on",
            ),
            parameter("tool", ParameterKind::Text, "search in the tools of the plan"),
            parameter(
                "since_ms",
                ParameterKind::Number(0, TIME_MAX),
                "filter by start: then or later, in milliseconds since 1970",
            ),
            parameter(
                "before_ms",
                ParameterKind::Number(0, TIME_MAX),
                "filter by start: before then, in milliseconds since 1970",
            ),
            parameter("limit", ParameterKind::Number(1, 1000), "the page size; 50 unless given"),
            parameter("cursor", ParameterKind::Text, "`next` of the page before"),
        ],
        responses: &[json(200, "a page", SchemaGenerator::subschema_for::<RunList>)],
        handler: Handler::Worker(|request| Box::pin(runs::list(request))),
        ..route(Verb::Get, "/api/v1/runs", Right::Read, "listRuns")
    },
    Route {
        about: "Get a run: steps, attempts, inputs, outputs, timings",
        more: "With `preview=true` the answer is small however large the run is: texts are cut at 200 \
               characters, arrays and objects at 100 entries, and each value at 64 KB. A value that was \
               cut is `{\"$cut\": {\"kind\", \"bytes\", \"length\", \"preview\"}}`. The steps of later \
               iterations of a loop than the first 100 are left out, and `steps_left_out` counts them.",
        parameters: &[parameter("preview", ParameterKind::Flag, "cut large values and long loops")],
        responses: &[json(200, "the run", SchemaGenerator::subschema_for::<RunDetails>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(runs::get(request))),
        ..route(Verb::Get, "/api/v1/runs/{id}", Right::Read, "getRun")
    },
    Route {
        about: "Follow the events of a run",
        more: "Server-sent events: `id` is the number of the journal's entry, `data` the line that \
               `segue run -o ndjson` prints. The last one, `event: run`, holds the whole run. A client \
               that reconnects with `Last-Event-ID` misses no event and gets none twice.",
        headers: &[("Last-Event-ID", "the last event that was received")],
        responses: &[
            ResponseSpec {
                status: 200,
                about: "the events",
                content: ResponseContent::Other("text/event-stream"),
            },
            ResponseSpec {
                status: 204,
                about: "the run has finished, and every event was received",
                content: ResponseContent::Nothing,
            },
        ],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(events::follow(request))),
        ..route(Verb::Get, "/api/v1/runs/{id}/events", Right::Read, "followRun")
    },
    Route {
        about: "Cancel a run",
        more: "What it did stays, unless its composition rolls back.",
        headers: &[PREFER],
        responses: SHOWS_RUN,
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(runs::cancel(request))),
        ..route(Verb::Post, "/api/v1/runs/{id}/cancel", Right::Run, "cancelRun")
    },
    Route {
        about: "Resume a run that was interrupted",
        more: "`assume` says what became of a call that was never answered.",
        headers: &[PREFER],
        body: Some(optional(SchemaGenerator::subschema_for::<ResumeRun>)),
        responses: SHOWS_RUN,
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(runs::resume(request))),
        ..route(Verb::Post, "/api/v1/runs/{id}/resume", Right::Run, "resumeRun")
    },
    Route {
        about: "Roll a run back",
        headers: &[PREFER],
        responses: SHOWS_RUN,
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(runs::rollback(request))),
        ..route(Verb::Post, "/api/v1/runs/{id}/rollback", Right::Run, "rollbackRun")
    },
    Route {
        about: "Answer the question that a run waits for, and resume it",
        headers: &[PREFER],
        body: Some(needed(SchemaGenerator::subschema_for::<ApproveRun>)),
        responses: SHOWS_RUN,
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(runs::approve(request))),
        ..route(Verb::Post, "/api/v1/runs/{id}/approve", Right::Approve, "approveRun")
    },
    Route {
        about: "List the tools that the caller may use",
        parameters: &[parameter(
            "search",
            ParameterKind::Text,
            "filter by words of the name and the description",
        )],
        responses: &[json(200, "by id", SchemaGenerator::subschema_for::<ToolList>)],
        handler: Handler::Inline(tools::list),
        ..route(Verb::Get, "/api/v1/tools", Right::Read, "listTools")
    },
    Route {
        about: "Get a tool: its definition, its effect and its statistics",
        responses: &[json(200, "the tool", SchemaGenerator::subschema_for::<ToolDetails>)],
        problems: &[404],
        handler: Handler::Inline(tools::get),
        ..route(Verb::Get, "/api/v1/tools/{id}", Right::Read, "getTool")
    },
    Route {
        about: "Export the definitions of a toolset's tools for another host, with a loss report",
        more: "The toolset `all` holds every tool that the caller may use.",
        parameters: &[
            Parameter {
                is_required: true,
                ..parameter("format", ParameterKind::Word(formats), "the shape that the host takes")
            },
            parameter("strict", ParameterKind::Flag, "make the host hold its model to the schemas"),
        ],
        responses: &[json(200, "the definitions", SchemaGenerator::subschema_for::<ExportReport>)],
        problems: &[404, 422],
        handler: Handler::Inline(tools::export),
        ..route(Verb::Get, "/api/v1/toolsets/{name}/export", Right::Read, "exportToolset")
    },
    Route {
        about: "Get the issuer of tokens for this server (RFC 9728)",
        more: "Only where `server.oidc` is configured.",
        responses: &[json(
            200,
            "the issuer, and its scopes",
            SchemaGenerator::subschema_for::<ProtectedResource>,
        )],
        problems: &[404],
        handler: Handler::Inline(server::resource),
        ..route(
            Verb::Get,
            "/.well-known/oauth-protected-resource",
            Right::Public,
            "getProtectedResource",
        )
    },
    Route {
        about: "Get the issuer of tokens for `/mcp`",
        responses: &[json(
            200,
            "the issuer, and its scopes",
            SchemaGenerator::subschema_for::<ProtectedResource>,
        )],
        problems: &[404],
        handler: Handler::Inline(server::resource_of_mcp),
        ..route(
            Verb::Get,
            "/.well-known/oauth-protected-resource/mcp",
            Right::Public,
            "getProtectedResourceOfMcp",
        )
    },
    Route {
        about: "Check whether the server is alive",
        responses: &[ResponseSpec {
            status: 200,
            about: "it is",
            content: ResponseContent::Other("text/plain"),
        }],
        handler: Handler::Inline(server::health),
        ..route(Verb::Get, "/healthz", Right::Public, "getHealth")
    },
    Route {
        about: "Check whether runs can start: the store can be written",
        responses: &[json(200, "they can", SchemaGenerator::subschema_for::<Readiness>)],
        handler: Handler::InlineAsync(|request| Box::pin(server::readiness(request))),
        ..route(Verb::Get, "/readyz", Right::Read, "getReadiness")
    },
    Route {
        about: "Get the metrics, for Prometheus",
        more: "Runs, steps and attempts by their outcome, with durations; the store, the MCP servers, \
               requests and the process. See the manual, `docs/operating.md`.",
        responses: &[ResponseSpec {
            status: 200,
            about: "OpenMetrics",
            content: ResponseContent::Other("application/openmetrics-text"),
        }],
        handler: Handler::InlineAsync(|request| Box::pin(server::metrics(request))),
        ..route(Verb::Get, "/metrics", Right::Metrics, "getMetrics")
    },
    Route {
        about: "Get this document",
        responses: &[ResponseSpec {
            status: 200,
            about: "OpenAPI 3.1",
            content: ResponseContent::Other("application/json"),
        }],
        handler: Handler::Inline(server::document),
        ..route(Verb::Get, "/openapi.json", Right::Read, "getOpenApi")
    },
    Route {
        about: "Get this document as a page for people",
        responses: &[ResponseSpec {
            status: 200,
            about: "the page",
            content: ResponseContent::Other("text/html"),
        }],
        handler: Handler::Inline(server::page),
        ..route(Verb::Get, "/docs", Right::Public, "getDocs")
    },
    Route {
        about: "Get the style of that page",
        responses: &[ResponseSpec {
            status: 200,
            about: "its style",
            content: ResponseContent::Other("text/css"),
        }],
        handler: Handler::Inline(server::style),
        ..route(Verb::Get, "/docs/style.css", Right::Public, "getDocsStyle")
    },
];
