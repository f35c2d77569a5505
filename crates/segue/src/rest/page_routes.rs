//! The table of the routes that the page needs beyond those for runs and compositions: sessions, questions, sources of
//! tools, calls, checks, settings.

use schemars::SchemaGenerator;
use segue_core::access::Right;

use super::routes::{PREFER, UNDER_WAY};
use super::{installation, session};
use crate::api::calls::{CallTool, ToolCallResult};
use crate::api::inbox::QuestionList;
use crate::api::installation::{DoctorReport, ServerList, SettingList};
use crate::api::session::{Session, SignIn};
use crate::http::auth::{OIDC, OIDC_CALLBACK, SESSION};
use crate::http::route::{
    Handler, Parameter, ParameterKind, ResponseContent, ResponseSpec, Route, Verb, json, needed,
    parameter, route,
};

const SEE_OTHER: ResponseSpec = ResponseSpec {
    status: 303,
    about: "`Location` is where the browser goes on",
    content: ResponseContent::Nothing,
};

/// What issuers append to the address of the callback.
const OIDC_ANSWER: &[Parameter] = &[
    parameter("code", ParameterKind::Text, "the code that becomes tokens"),
    parameter("state", ParameterKind::Text, "the state of the request"),
    parameter("error", ParameterKind::Text, "why the issuer refused"),
    parameter("error_description", ParameterKind::Text, "ignored"),
    parameter("error_uri", ParameterKind::Text, "ignored"),
    parameter("iss", ParameterKind::Text, "ignored"),
    parameter("scope", ParameterKind::Text, "ignored"),
    parameter("session_state", ParameterKind::Text, "ignored"),
    parameter("authuser", ParameterKind::Text, "ignored"),
    parameter("hd", ParameterKind::Text, "ignored"),
    parameter("prompt", ParameterKind::Text, "ignored"),
];

/// Every route.
pub const ROUTES: &[Route] = &[
    Route {
        about: "Sign in: open a session, for browsers",
        more: "With a token, or with the code of a sign-in link, which works once. The response sets a cookie \
               that stands for the token from then on. A request with the cookie that is not a `GET` also needs the \
               header `X-Segue-CSRF` with the value of `csrf`.",
        body: Some(needed(SchemaGenerator::subschema_for::<SignIn>)),
        responses: &[json(200, "the session", SchemaGenerator::subschema_for::<Session>)],
        problems: &[401, 403, 429],
        handler: Handler::InlineAsync(|request| Box::pin(session::sign_in(request))),
        ..route(Verb::Post, SESSION, Right::Public, "signIn")
    },
    Route {
        about: "Get the caller: its rights and its session",
        more: "Without a session or a token the answer is 401 with the ways to sign in.",
        responses: &[json(200, "the session", SchemaGenerator::subschema_for::<Session>)],
        problems: &[401],
        handler: Handler::Inline(session::get),
        ..route(Verb::Get, SESSION, Right::Public, "getSession")
    },
    Route {
        about: "Sign out: end the session",
        responses: &[ResponseSpec {
            status: 204,
            about: "ended",
            content: ResponseContent::Nothing,
        }],
        problems: &[403],
        handler: Handler::Inline(session::sign_out),
        ..route(Verb::Delete, SESSION, Right::Public, "signOut")
    },
    Route {
        about: "Sign in at the OpenID Connect issuer, for browsers",
        more: "Only where `server.oidc.client_id` is configured.",
        responses: &[SEE_OTHER],
        problems: &[401, 404, 429],
        handler: Handler::InlineAsync(|request| Box::pin(session::oidc_begin(request))),
        ..route(Verb::Get, OIDC, Right::Public, "beginOidc")
    },
    Route {
        about: "Take the issuer's answer, and open a session",
        parameters: OIDC_ANSWER,
        responses: &[SEE_OTHER],
        handler: Handler::InlineAsync(|request| Box::pin(session::oidc_finish(request))),
        ..route(Verb::Get, OIDC_CALLBACK, Right::Public, "finishOidc")
    },
    Route {
        about: "Call a tool",
        more: "A run of one step, `call`: it is recorded, asks a person where a step would, and is cancelled like any \
               run. Also needs `compose`; `approved` needs `approve`. With `frames` the response has the messages \
               to and from the MCP server, without secrets.",
        headers: &[PREFER],
        body: Some(needed(SchemaGenerator::subschema_for::<CallTool>)),
        responses: &[
            json(200, "the result", SchemaGenerator::subschema_for::<ToolCallResult>),
            json(202, UNDER_WAY, SchemaGenerator::subschema_for::<ToolCallResult>),
        ],
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(installation::call(request))),
        ..route(Verb::Post, "/api/v1/tools/{id}/call", Right::Run, "callTool")
    },
    Route {
        about: "List the questions that wait for a person",
        more: "Of all runs that the caller may see. `POST /api/v1/runs/{id}/approve` answers one.",
        responses: &[json(
            200,
            "of the newest run first",
            SchemaGenerator::subschema_for::<QuestionList>,
        )],
        handler: Handler::Worker(|request| Box::pin(installation::questions(request))),
        ..route(Verb::Get, "/api/v1/questions", Right::Read, "listQuestions")
    },
    Route {
        about: "List the sources of tools: MCP servers with their state, and the others",
        responses: &[json(200, "by name", SchemaGenerator::subschema_for::<ServerList>)],
        handler: Handler::Inline(installation::servers),
        ..route(Verb::Get, "/api/v1/servers", Right::Read, "listServers")
    },
    Route {
        about: "Check this installation",
        more: "As `segue doctor` does, but without starting a server.",
        responses: &[json(200, "each check", SchemaGenerator::subschema_for::<DoctorReport>)],
        handler: Handler::Worker(|request| Box::pin(installation::doctor(request))),
        ..route(Verb::Get, "/api/v1/doctor", Right::Admin, "getDoctor")
    },
    Route {
        about: "Get the settings in force, without secrets, and where each comes from",
        responses: &[json(200, "each setting", SchemaGenerator::subschema_for::<SettingList>)],
        handler: Handler::Inline(installation::settings),
        ..route(Verb::Get, "/api/v1/settings", Right::Admin, "getSettings")
    },
];
