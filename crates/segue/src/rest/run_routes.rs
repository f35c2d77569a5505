//! The rows of the table for a run in pieces, and for compositions with their text.

use schemars::SchemaGenerator;
use segue_core::access::Right;
use segue_core::view::PlanView;
use segue_core::view::StepStatus;
use segue_core::view::cut::ValuePage;

use super::routes::{IDEMPOTENCY_KEY, PREFER, UNDER_WAY};
use super::{compositions, run_parts, runs};
use crate::api::composition_tests::TestsReport;
use crate::api::compositions::CompositionDetails;
use crate::api::requests::{RerunRun, TestComposition};
use crate::api::responses::CompositionResult;
use crate::api::runs::inspect::{RunComparison, RunSource, StepDetails, StepList, ValuePart};
use crate::http::route::{
    Handler, Parameter, ParameterKind, Route, Verb, json, optional, parameter, route,
};

fn parts() -> Vec<&'static str> {
    ValuePart::WORDS.to_vec()
}

fn step_statuses() -> Vec<&'static str> {
    StepStatus::ALL.iter().map(|status| status.as_str()).collect()
}

/// The largest offset.
const OFFSET_MAX: u64 = 1 << 40;

pub(super) const RUN_ROUTES: &[Route] = &[
    Route {
        about: "Get a served composition: its text with the place of each step, its plan, findings and tests",
        responses: &[json(
            200,
            "the composition",
            SchemaGenerator::subschema_for::<CompositionDetails>,
        )],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(async move { compositions::get(&request) })),
        ..route(Verb::Get, "/api/v1/compositions/{name}", Right::Read, "getComposition")
    },
    Route {
        about: "Run the tests of a served composition, or one of them",
        more: "Tools are mocked and time is simulated: no tool is called, and no test waits.",
        body: Some(optional(SchemaGenerator::subschema_for::<TestComposition>)),
        responses: &[json(200, "the results", SchemaGenerator::subschema_for::<TestsReport>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(compositions::test(request))),
        ..route(Verb::Post, "/api/v1/compositions/{name}/test", Right::Run, "testComposition")
    },
    Route {
        about: "Run a run again, from its start or from one of its steps",
        more: "With `from` the steps that do not depend on that step keep their values. The earlier input \
               and context are used where the request gives none. The text of the run is compiled again \
               with the tools that the caller may use; if it is not served as it was, this needs `compose`. \
               Otherwise it is like executing a composition.",
        headers: &[PREFER, IDEMPOTENCY_KEY],
        body: Some(optional(SchemaGenerator::subschema_for::<RerunRun>)),
        responses: &[
            json(200, "the result", SchemaGenerator::subschema_for::<CompositionResult>),
            json(202, UNDER_WAY, SchemaGenerator::subschema_for::<CompositionResult>),
        ],
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(runs::rerun(request))),
        ..route(Verb::Post, "/api/v1/runs/{id}/rerun", Right::Run, "rerunRun")
    },
    Route {
        about: "Get a part of a value of a run",
        more: "The entries of an array or object, or the characters of a text, a page at a time. Large \
               entries are cut: `{\"$cut\": {\"kind\", \"bytes\", \"length\", \"preview\"}}`; `pointer` \
               leads to them. With `download=true` the answer is the whole value, as a file.",
        parameters: &[
            parameter("step", ParameterKind::Text, "the step's path; without it, the run itself"),
            parameter("part", ParameterKind::Word(parts), "which value; `output` unless given"),
            parameter("pointer", ParameterKind::Text, "the place in the value, as a JSON Pointer"),
            parameter("offset", ParameterKind::Number(0, OFFSET_MAX), "how many entries to skip"),
            parameter(
                "limit",
                ParameterKind::Number(1, 1_000_000),
                "the page size: 100 entries, at most 1,000, or 10,000 characters, unless given",
            ),
            parameter("download", ParameterKind::Flag, "answer with the whole value, as a file"),
        ],
        responses: &[json(200, "the part; with `download` the value itself", |generator| {
            let page = generator.subschema_for::<ValuePage>();
            schemars::json_schema!({ "anyOf": [page, true] })
        })],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(run_parts::value(request))),
        ..route(Verb::Get, "/api/v1/runs/{id}/value", Right::Read, "getRunValue")
    },
    Route {
        about: "List the steps of a run, or those inside one of its steps",
        more: "Large values are cut. `failed_groups` counts failures with the same message.",
        parameters: &[
            parameter(
                "parent",
                ParameterKind::Text,
                "the path of the step whose inner steps to list; without it, those of the composition",
            ),
            parameter("deep", ParameterKind::Flag, "also those inside them, at any depth"),
            parameter("status", ParameterKind::Words(step_statuses), "filter by status"),
            parameter("offset", ParameterKind::Number(0, OFFSET_MAX), "how many steps to skip"),
            parameter("limit", ParameterKind::Number(1, 1000), "the page size; 100 unless given"),
        ],
        responses: &[json(200, "a page", SchemaGenerator::subschema_for::<StepList>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(run_parts::steps(request))),
        ..route(Verb::Get, "/api/v1/runs/{id}/steps", Right::Read, "listRunSteps")
    },
    Route {
        about: "Get a step of a run: arguments as written, place in the text, attempts, decisions, rollback",
        more: "A `/` in the path of a step is written as `%2F`.",
        responses: &[json(200, "the step", SchemaGenerator::subschema_for::<StepDetails>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(run_parts::step(request))),
        ..route(Verb::Get, "/api/v1/runs/{id}/steps/{path}", Right::Read, "getRunStep")
    },
    Route {
        about: "Get the plan of a run: its own, also if its file has changed since",
        responses: &[json(200, "the plan", SchemaGenerator::subschema_for::<PlanView>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(run_parts::plan(request))),
        ..route(Verb::Get, "/api/v1/runs/{id}/plan", Right::Read, "getRunPlan")
    },
    Route {
        about: "Get the text that a run was made from, with the place of each step",
        responses: &[json(200, "the text", SchemaGenerator::subschema_for::<RunSource>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(run_parts::source(request))),
        ..route(Verb::Get, "/api/v1/runs/{id}/source", Right::Read, "getRunSource")
    },
    Route {
        about: "Compare two runs: which steps ended otherwise, and where their values differ",
        parameters: &[Parameter {
            is_required: true,
            ..parameter("with", ParameterKind::Text, "the id of the other run")
        }],
        responses: &[json(
            200,
            "both runs beside each other",
            SchemaGenerator::subschema_for::<RunComparison>,
        )],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(run_parts::compare(request))),
        ..route(Verb::Get, "/api/v1/runs/{id}/compare", Right::Read, "compareRuns")
    },
];
