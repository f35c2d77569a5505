//! The one table of routes. To add one, add a row; its handler is the only other place.

use axum::http::Method;
use futures_util::future::BoxFuture;
use schemars::{Schema, SchemaGenerator};
use segue_core::access::Right;
use segue_core::expose::ExportFormat;
use segue_core::limits::Limits;
use segue_core::planner::PlanState;
use segue_core::view::TemplateView;
use segue_core::view::{PlanView, RunStatus, RunView};

use super::visit::{Answer, Visit};
use super::{compositions, events, plans, runs, server, shapes, templates, tools};
use crate::serve::graphql;

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Looks; `HEAD` is answered too.
    Get,
    /// Does something.
    Post,
    /// Puts something in a place.
    Put,
    /// Takes something away.
    Delete,
}

impl Verb {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Delete => "DELETE",
        }
    }

    /// Whether a request of this method is answered by it.
    pub fn answers(self, method: &Method) -> bool {
        method.as_str() == self.as_str() || (self == Verb::Get && method == Method::HEAD)
    }
}

/// Gives a schema for documentation and checks.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

/// Who answers.
#[derive(Clone, Copy)]
pub enum Handler {
    /// A function here, at once.
    Now(fn(&Visit) -> Answer),
    /// A function here that may have to wait, and to calculate: beside the thread that serves.
    Later(fn(Visit) -> BoxFuture<'static, Answer>),
    /// A function here that may have to wait, and never calculates.
    Soon(fn(Visit) -> BoxFuture<'static, Answer>),
    /// Another door, which has the same guards.
    Elsewhere,
}

/// What a parameter may be.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Number(u64, u64),
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// Any of these words; may be repeated.
    Words(fn() -> Vec<&'static str>),
}

impl Kind {
    /// What is wrong with a value.
    pub fn misfit(self, value: &str) -> Option<String> {
        match self {
            Kind::Text => None,
            Kind::Flag if matches!(value, "true" | "false") => None,
            Kind::Flag => Some("is `true` or `false`".to_owned()),
            Kind::Number(least, most) => {
                let fits = value.parse().is_ok_and(|number| (least..=most).contains(&number));
                (!fits).then(|| format!("is a whole number from {least} to {most}"))
            }
            Kind::Word(words) | Kind::Words(words) => {
                (!words().contains(&value)).then(|| format!("is one of {}", words().join(", ")))
            }
        }
    }
}

/// A parameter of a query.
#[derive(Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub about: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// Whether it has to be there.
    pub is_required: bool,
}

/// A limit: its name and where it stands.
pub type BodyLimit = (&'static str, fn(&Limits) -> usize);

/// A body that is sent.
#[derive(Clone, Copy)]
pub struct Body {
    /// What it may be.
    pub shape: Shape,
    /// Whether it has to be there.
    pub is_required: bool,
    /// The limit that it has beyond that of every body.
    pub limit: Option<BodyLimit>,
}

/// An answer that may come, beside problems.
#[derive(Clone, Copy)]
pub struct Outcome {
    /// Its status.
    pub status: u16,
    /// When it comes.
    pub about: &'static str,
    /// What it holds.
    pub content: Content,
}

/// What an answer holds.
#[derive(Clone, Copy)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// JSON of this shape.
    Json(Shape),
    /// Anything of this media type.
    Other(&'static str),
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Route {
    /// The method.
    pub verb: Verb,
    /// The path, with its parts in braces.
    pub path: &'static str,
    /// What the caller must be allowed to.
    pub right: Right,
    /// What programs call it.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// More about it.
    pub more: &'static str,
    /// Parameters of its query.
    pub parameters: &'static [Parameter],
    /// Headers that mean something to it.
    pub headers: &'static [(&'static str, &'static str)],
    /// What is sent.
    pub body: Option<Body>,
    /// What may be answered, beside problems.
    pub outcomes: &'static [Outcome],
    /// Statuses of problems that only it has.
    pub problems: &'static [u16],
    /// Who answers.
    pub handler: Handler,
}

impl Route {
    /// Whether it changes anything, so that it is said who did it.
    pub fn is_audited(&self) -> bool {
        self.verb != Verb::Get && self.right != Right::Read
    }

    /// Whether it is answered here, and not by another door.
    pub fn is_ours(&self) -> bool {
        !matches!(self.handler, Handler::Elsewhere)
    }

    /// The parts of its path that stand for something.
    pub fn parts(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}

const fn route(verb: Verb, path: &'static str, right: Right, name: &'static str) -> Route {
    Route {
        verb,
        path,
        right,
        name,
        about: "",
        more: "",
        parameters: &[],
        headers: &[],
        body: None,
        outcomes: &[],
        problems: &[],
        handler: Handler::Elsewhere,
    }
}

const fn needed(shape: Shape) -> Body {
    Body { shape, is_required: true, limit: None }
}

const fn optional(shape: Shape) -> Body {
    Body { shape, is_required: false, limit: None }
}

const fn json(status: u16, about: &'static str, shape: Shape) -> Outcome {
    Outcome { status, about, content: Content::Json(shape) }
}

const fn parameter(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, about, kind, is_required: false }
}

fn statuses() -> Vec<&'static str> {
    RunStatus::ALL.iter().map(|status| status.as_str()).collect()
}

fn plan_states() -> Vec<&'static str> {
    PlanState::ALL.iter().map(|state| state.as_str()).collect()
}

fn formats() -> Vec<&'static str> {
    ExportFormat::ALL.iter().map(|format| format.as_str()).collect()
}

/// The last moment that every reader of JSON takes exactly.
const TIME_MAX: u64 = (1 << 53) - 1;

const PREFER: (&str, &str) = (
    "Prefer",
    "`respond-async`: answer at once with 202 and where the run is, or 200 with the result when the run is over by \
     then. `wait=5`: the same after five seconds",
);

const IDEMPOTENCY_KEY: (&str, &str) = (
    "Idempotency-Key",
    "the same key with the same body is the same run and answer, also after a restart",
);

const UNDER_WAY: &str = "the run goes on, or waits for a person; `Location` is where it is";

const SHOWS_RUN: &[Outcome] = &[
    json(200, "the run, which is over", SchemaGenerator::subschema_for::<RunView>),
    json(202, UNDER_WAY, SchemaGenerator::subschema_for::<RunView>),
];

/// Every route.
pub const ROUTES: &[Route] = &[
    Route {
        about: "The compositions that are served",
        outcomes: &[json(
            200,
            "by name",
            SchemaGenerator::subschema_for::<shapes::CompositionList>,
        )],
        handler: Handler::Now(compositions::list),
        ..route(Verb::Get, "/api/v1/compositions", Right::Read, "listCompositions")
    },
    Route {
        about: "Runs a composition",
        more: "The run belongs to the server: who goes away loses nothing. A call that needs a \
               confirmation leaves the run `waiting` with an approval to give, unless \
               `options.approved` is true, which needs the right `approve`. Running a composition that \
               is sent needs `compose`; a dry run of one does not. A run that failed is an answer, with \
               `success: false`; what could not begin is a problem.",
        headers: &[PREFER, IDEMPOTENCY_KEY],
        body: Some(needed(SchemaGenerator::subschema_for::<shapes::CompositionRequest>)),
        outcomes: &[
            json(
                200,
                "what became of it",
                SchemaGenerator::subschema_for::<shapes::CompositionResult>,
            ),
            json(202, UNDER_WAY, SchemaGenerator::subschema_for::<shapes::CompositionResult>),
        ],
        problems: &[404, 409],
        handler: Handler::Later(|visit| Box::pin(compositions::execute(visit))),
        ..route(Verb::Post, "/api/v1/compositions/execute", Right::Run, "executeComposition")
    },
    Route {
        about: "Checks a composition, and runs nothing",
        more: "Every mistake at its line with a suggestion, and when there is none, the plan.",
        body: Some(needed(SchemaGenerator::subschema_for::<shapes::CompositionRequest>)),
        outcomes: &[json(
            200,
            "every finding",
            SchemaGenerator::subschema_for::<shapes::ValidationResult>,
        )],
        problems: &[404],
        handler: Handler::Later(|visit| Box::pin(compositions::validate(visit))),
        ..route(Verb::Post, "/api/v1/compositions/validate", Right::Read, "validateComposition")
    },
    Route {
        about: "The templates: compositions to start from, with how well that went",
        parameters: &[parameter(
            "search",
            Kind::Text,
            "only those with these words, the best first",
        )],
        outcomes: &[json(200, "by id", SchemaGenerator::subschema_for::<shapes::TemplateList>)],
        handler: Handler::Later(|visit| Box::pin(templates::list(visit))),
        ..route(Verb::Get, "/api/v1/compositions/templates", Right::Read, "listTemplates")
    },
    Route {
        about: "Keeps a new template",
        more: "Its composition is checked first. Needs `compose`, too: others run it.",
        body: Some(needed(SchemaGenerator::subschema_for::<shapes::TemplateRequest>)),
        outcomes: &[json(
            201,
            "as it is kept; `Location` is where",
            SchemaGenerator::subschema_for::<TemplateView>,
        )],
        problems: &[409],
        handler: Handler::Later(|visit| Box::pin(templates::create(visit))),
        ..route(Verb::Post, "/api/v1/compositions/templates", Right::Write, "createTemplate")
    },
    Route {
        about: "A template, with its composition",
        outcomes: &[json(200, "the template", SchemaGenerator::subschema_for::<TemplateView>)],
        problems: &[404],
        handler: Handler::Later(|visit| Box::pin(templates::get(visit))),
        ..route(Verb::Get, "/api/v1/compositions/templates/{id}", Right::Read, "getTemplate")
    },
    Route {
        about: "Keeps a template under this id, in place of what was there",
        more: "Needs `compose`, too: others run it.",
        body: Some(needed(SchemaGenerator::subschema_for::<shapes::TemplateRequest>)),
        outcomes: &[
            json(200, "as it is kept", SchemaGenerator::subschema_for::<TemplateView>),
            json(
                201,
                "as it is kept, when there was none",
                SchemaGenerator::subschema_for::<TemplateView>,
            ),
        ],
        problems: &[409],
        handler: Handler::Later(|visit| Box::pin(templates::put(visit))),
        ..route(Verb::Put, "/api/v1/compositions/templates/{id}", Right::Write, "putTemplate")
    },
    Route {
        about: "Forgets a template",
        more: "Those that come with Segue or from files stay.",
        outcomes: &[Outcome { status: 204, about: "forgotten", content: Content::Nothing }],
        problems: &[404, 409],
        handler: Handler::Later(|visit| Box::pin(templates::delete(visit))),
        ..route(Verb::Delete, "/api/v1/compositions/templates/{id}", Right::Write, "deleteTemplate")
    },
    Route {
        about: "Plans a composition: order, effects and what can be rolled back",
        body: Some(needed(SchemaGenerator::subschema_for::<shapes::PlanRequest>)),
        outcomes: &[json(200, "the plan", SchemaGenerator::subschema_for::<PlanView>)],
        problems: &[404],
        handler: Handler::Later(|visit| Box::pin(plans::plan(visit))),
        ..route(Verb::Post, "/api/v1/plans", Right::Read, "planComposition")
    },
    Route {
        about: "Plans that were made of words, newest first",
        more: "Those of a request come from the first version to the last.",
        parameters: &[
            parameter("request_id", Kind::Text, "only those of this request: its versions"),
            parameter("state", Kind::Word(plan_states), "only those that stand so"),
            parameter("limit", Kind::Number(1, 1000), "how many at most; 50 unless given"),
            parameter("cursor", Kind::Text, "`next` of the page before"),
        ],
        outcomes: &[json(200, "a page", SchemaGenerator::subschema_for::<shapes::PlanList>)],
        problems: &[404],
        handler: Handler::Later(|visit| Box::pin(plans::list(visit))),
        ..route(Verb::Get, "/api/v1/plans", Right::Read, "listPlans")
    },
    Route {
        about: "Makes a plan of words, and calls nothing",
        more: "The configured model proposes it; it is checked against the tools that exist, and kept \
               under the id of a request. With `request_id` it is another version. The same words get \
               the plan that worked before, unless `fresh`. Who goes away before the answer stops it.",
        body: Some(needed(SchemaGenerator::subschema_for::<shapes::AskRequest>)),
        outcomes: &[json(
            201,
            "the plan; `Location` is where",
            SchemaGenerator::subschema_for::<shapes::KeptPlan>,
        )],
        problems: &[404, 409, 502],
        handler: Handler::Later(|visit| Box::pin(plans::ask(visit))),
        ..route(Verb::Post, "/api/v1/plans/ask", Right::Compose, "askPlan")
    },
    Route {
        about: "A plan that was made of words, how it stands and what came of it",
        more: "By its id, or that of a request: then it is the last version.",
        outcomes: &[json(200, "the plan", SchemaGenerator::subschema_for::<shapes::KeptPlan>)],
        problems: &[404],
        handler: Handler::Later(|visit| Box::pin(plans::get(visit))),
        ..route(Verb::Get, "/api/v1/plans/{id}", Right::Read, "getPlan")
    },
    Route {
        about: "Throws a plan away",
        outcomes: &[Outcome { status: 204, about: "forgotten", content: Content::Nothing }],
        problems: &[404],
        handler: Handler::Later(|visit| Box::pin(plans::delete(visit))),
        ..route(Verb::Delete, "/api/v1/plans/{id}", Right::Write, "deletePlan")
    },
    Route {
        about: "A plan as a composition of its own",
        more: "To keep in a repository, edit and serve; it needs no model any more.",
        parameters: &[parameter("name", Kind::Text, "what the composition is called")],
        outcomes: &[Outcome {
            status: 200,
            about: "the composition",
            content: Content::Other("application/yaml"),
        }],
        problems: &[404, 422],
        handler: Handler::Later(|visit| Box::pin(plans::composition(visit))),
        ..route(Verb::Get, "/api/v1/plans/{id}/composition", Right::Read, "getPlanComposition")
    },
    Route {
        about: "Executes a plan, once unless `again`",
        more: "By its id, or that of a request: then it is the last version. It is checked against \
               the tools as they are now; otherwise it is like executing a composition.",
        headers: &[PREFER, IDEMPOTENCY_KEY],
        body: Some(optional(SchemaGenerator::subschema_for::<shapes::ExecutePlanRequest>)),
        outcomes: &[
            json(
                200,
                "what became of it",
                SchemaGenerator::subschema_for::<shapes::CompositionResult>,
            ),
            json(202, UNDER_WAY, SchemaGenerator::subschema_for::<shapes::CompositionResult>),
        ],
        problems: &[404, 409],
        handler: Handler::Later(|visit| Box::pin(plans::execute(visit))),
        ..route(Verb::Post, "/api/v1/plans/{id}/execute", Right::Compose, "executePlan")
    },
    Route {
        about: "Runs, newest first",
        parameters: &[
            parameter("status", Kind::Words(statuses), "only those that stand so"),
            parameter("name", Kind::Text, "only those whose composition's name contains this"),
            parameter(
                "since_ms",
                Kind::Number(0, TIME_MAX),
                "only those that began then or later, in milliseconds since 1970",
            ),
            parameter(
                "before_ms",
                Kind::Number(0, TIME_MAX),
                "only those that began before then, in milliseconds since 1970",
            ),
            parameter("limit", Kind::Number(1, 1000), "how many at most; 50 unless given"),
            parameter("cursor", Kind::Text, "`next` of the page before"),
        ],
        outcomes: &[json(200, "a page", SchemaGenerator::subschema_for::<shapes::RunList>)],
        handler: Handler::Later(|visit| Box::pin(runs::list(visit))),
        ..route(Verb::Get, "/api/v1/runs", Right::Read, "listRuns")
    },
    Route {
        about: "A run: steps, attempts, inputs, outputs, timings",
        outcomes: &[json(200, "the run", SchemaGenerator::subschema_for::<RunView>)],
        problems: &[404],
        handler: Handler::Later(|visit| Box::pin(runs::get(visit))),
        ..route(Verb::Get, "/api/v1/runs/{id}", Right::Read, "getRun")
    },
    Route {
        about: "What happens in a run, as it happens",
        more: "Server-sent events: `id` is the number of the journal's entry, `data` the line that \
               `segue run -o ndjson` prints. The last one, `event: run`, holds the whole run. Who \
               comes back with `Last-Event-ID` misses nothing and hears nothing twice.",
        headers: &[("Last-Event-ID", "the last event that was heard")],
        outcomes: &[
            Outcome {
                status: 200,
                about: "the events",
                content: Content::Other("text/event-stream"),
            },
            Outcome {
                status: 204,
                about: "the run is over, and everything was heard",
                content: Content::Nothing,
            },
        ],
        problems: &[404],
        handler: Handler::Later(|visit| Box::pin(events::follow(visit))),
        ..route(Verb::Get, "/api/v1/runs/{id}/events", Right::Read, "followRun")
    },
    Route {
        about: "Ends a run",
        more: "What it did stays, unless its composition rolls back.",
        headers: &[PREFER],
        outcomes: SHOWS_RUN,
        problems: &[404, 409],
        handler: Handler::Later(|visit| Box::pin(runs::cancel(visit))),
        ..route(Verb::Post, "/api/v1/runs/{id}/cancel", Right::Run, "cancelRun")
    },
    Route {
        about: "Goes on with a run that was interrupted",
        more: "With `assume`, what is known of a call that was never answered.",
        headers: &[PREFER],
        body: Some(optional(SchemaGenerator::subschema_for::<shapes::ResumeRequest>)),
        outcomes: SHOWS_RUN,
        problems: &[404, 409],
        handler: Handler::Later(|visit| Box::pin(runs::resume(visit))),
        ..route(Verb::Post, "/api/v1/runs/{id}/resume", Right::Run, "resumeRun")
    },
    Route {
        about: "Takes back what a run did",
        headers: &[PREFER],
        outcomes: SHOWS_RUN,
        problems: &[404, 409],
        handler: Handler::Later(|visit| Box::pin(runs::rollback(visit))),
        ..route(Verb::Post, "/api/v1/runs/{id}/rollback", Right::Run, "rollbackRun")
    },
    Route {
        about: "Answers the question that a run waits for, and goes on",
        headers: &[PREFER],
        body: Some(needed(SchemaGenerator::subschema_for::<shapes::ApproveRequest>)),
        outcomes: SHOWS_RUN,
        problems: &[404, 409],
        handler: Handler::Later(|visit| Box::pin(runs::approve(visit))),
        ..route(Verb::Post, "/api/v1/runs/{id}/approve", Right::Approve, "approveRun")
    },
    Route {
        about: "The tools that may be used",
        parameters: &[parameter(
            "search",
            Kind::Text,
            "only those whose name and description have all of these words",
        )],
        outcomes: &[json(200, "by id", SchemaGenerator::subschema_for::<shapes::ToolList>)],
        handler: Handler::Now(tools::list),
        ..route(Verb::Get, "/api/v1/tools", Right::Read, "listTools")
    },
    Route {
        about: "Everything that is known of one tool",
        outcomes: &[json(200, "the tool", SchemaGenerator::subschema_for::<shapes::Tool>)],
        problems: &[404],
        handler: Handler::Now(tools::get),
        ..route(Verb::Get, "/api/v1/tools/{id}", Right::Read, "getTool")
    },
    Route {
        about: "Definitions of a toolset's tools for another host, and what is lost on the way",
        more: "The toolset `all` holds every tool that may be used.",
        parameters: &[
            Parameter {
                is_required: true,
                ..parameter("format", Kind::Word(formats), "the shape that the host takes")
            },
            parameter("strict", Kind::Flag, "have the host hold its model to the schemas"),
        ],
        outcomes: &[json(
            200,
            "the definitions",
            SchemaGenerator::subschema_for::<shapes::ExportReport>,
        )],
        problems: &[404, 422],
        handler: Handler::Now(tools::export),
        ..route(Verb::Get, "/api/v1/toolsets/{name}/export", Right::Read, "exportToolset")
    },
    Route {
        about: "GraphQL: one operation",
        more: "The schema is in `schema/segue.graphql`, and the schema itself says what it is. What a \
               mutation does needs the right of the route that does the same. `Accept: \
               text/event-stream` has the answer come as events; subscriptions need it.",
        body: Some(Body {
            limit: Some(("graphql_body_bytes_max", |limits| limits.graphql_body_bytes_max)),
            ..needed(SchemaGenerator::subschema_for::<shapes::GraphqlRequest>)
        }),
        outcomes: &[json(
            200,
            "what was asked for, or what is wrong with the question",
            SchemaGenerator::subschema_for::<shapes::GraphqlResponse>,
        )],
        handler: Handler::Later(|visit| Box::pin(graphql::answer(visit))),
        ..route(Verb::Post, graphql::PATH, Right::Read, "graphql")
    },
    Route {
        about: "MCP, in both eras of the protocol",
        more: "Not a resource: see the manual, `docs/serving.md`.",
        ..route(Verb::Post, "/mcp", Right::Read, "mcp")
    },
    Route {
        about: "What an MCP server says by itself",
        ..route(Verb::Get, "/mcp", Right::Read, "mcpStream")
    },
    Route { about: "Ends an MCP session", ..route(Verb::Delete, "/mcp", Right::Read, "mcpEnd") },
    Route {
        about: "Who gives tokens for this server, as RFC 9728 has it",
        more: "Only where `server.oidc` is configured.",
        outcomes: &[json(
            200,
            "the issuer, and the scopes that it knows",
            SchemaGenerator::subschema_for::<shapes::ProtectedResource>,
        )],
        problems: &[404],
        handler: Handler::Now(server::resource),
        ..route(
            Verb::Get,
            "/.well-known/oauth-protected-resource",
            Right::Public,
            "getProtectedResource",
        )
    },
    Route {
        about: "The same for `/mcp`",
        outcomes: &[json(
            200,
            "the issuer, and the scopes that it knows",
            SchemaGenerator::subschema_for::<shapes::ProtectedResource>,
        )],
        problems: &[404],
        handler: Handler::Now(server::resource_of_mcp),
        ..route(
            Verb::Get,
            "/.well-known/oauth-protected-resource/mcp",
            Right::Public,
            "getProtectedResourceOfMcp",
        )
    },
    Route {
        about: "Whether the server is there",
        outcomes: &[Outcome { status: 200, about: "it is", content: Content::Other("text/plain") }],
        handler: Handler::Now(server::health),
        ..route(Verb::Get, "/healthz", Right::Public, "getHealth")
    },
    Route {
        about: "Whether runs can be begun: the store can be written",
        outcomes: &[json(200, "they can", SchemaGenerator::subschema_for::<shapes::Readiness>)],
        handler: Handler::Soon(|visit| Box::pin(server::readiness(visit))),
        ..route(Verb::Get, "/readyz", Right::Read, "getReadiness")
    },
    Route {
        about: "What is counted, as Prometheus reads it",
        more: "Runs, steps and attempts by their outcome, with durations; the store, the MCP servers, \
               requests and the process. See the manual, `docs/operating.md`.",
        outcomes: &[Outcome {
            status: 200,
            about: "OpenMetrics",
            content: Content::Other("application/openmetrics-text"),
        }],
        handler: Handler::Soon(|visit| Box::pin(server::metrics(visit))),
        ..route(Verb::Get, "/metrics", Right::Metrics, "getMetrics")
    },
    Route {
        about: "This document",
        outcomes: &[Outcome {
            status: 200,
            about: "OpenAPI 3.1",
            content: Content::Other("application/json"),
        }],
        handler: Handler::Now(server::document),
        ..route(Verb::Get, "/openapi.json", Right::Read, "getOpenApi")
    },
    Route {
        about: "The same for people",
        outcomes: &[Outcome {
            status: 200,
            about: "a page that needs nothing from elsewhere",
            content: Content::Other("text/html"),
        }],
        handler: Handler::Now(server::page),
        ..route(Verb::Get, "/docs", Right::Public, "getDocs")
    },
    Route {
        about: "How that page looks",
        outcomes: &[Outcome {
            status: 200,
            about: "its style",
            content: Content::Other("text/css"),
        }],
        handler: Handler::Now(server::style),
        ..route(Verb::Get, "/docs/style.css", Right::Public, "getDocsStyle")
    },
];
