//! The table of the routes of the language service. Positions are UTF-16 offsets from the beginning of the
//! text, as editors in a browser count.

use schemars::SchemaGenerator;
use segue_core::access::Right;
use segue_core::language::VersionComparison;

use super::language;
use crate::api::language::requests::{
    AnalyzeText, CompareTexts, CompleteText, EditText, FindActions, FindReferences, HoverText,
    PinOutput, PreviewStep, RenameSymbol,
};
use crate::api::language::views::{
    ActionList, CompletionList, EditList, HoverView, PreviewView, ReferenceList, TextAnalysis,
};
use crate::http::route::{Handler, Route, Verb, json, needed, route};

/// Every route.
pub const ROUTES: &[Route] = &[
    Route {
        about: "Analyse a text: findings, steps, outline, plan",
        more: "Also of a text that does not parse: what can be read still counts. Positions are UTF-16 \
               offsets, here and in every route of the language service. Tools are those that the caller \
               may compose of.",
        body: Some(needed(SchemaGenerator::subschema_for::<AnalyzeText>)),
        responses: &[json(200, "the analysis", SchemaGenerator::subschema_for::<TextAnalysis>)],
        handler: Handler::Worker(|request| Box::pin(async move { language::analyze(&request) })),
        ..route(Verb::Post, "/api/v1/language/analyze", Right::Read, "analyzeText")
    },
    Route {
        about: "Complete a text at a position",
        more: "With `run`, members of values are those that the steps of this run returned.",
        body: Some(needed(SchemaGenerator::subschema_for::<CompleteText>)),
        responses: &[json(200, "the proposals", SchemaGenerator::subschema_for::<CompletionList>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(language::complete(request))),
        ..route(Verb::Post, "/api/v1/language/complete", Right::Read, "completeText")
    },
    Route {
        about: "Explain the part of a text at a position: type, description, last value",
        body: Some(needed(SchemaGenerator::subschema_for::<HoverText>)),
        responses: &[json(
            200,
            "what is known; null if nothing is",
            SchemaGenerator::subschema_for::<Option<HoverView>>,
        )],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(language::hover(request))),
        ..route(Verb::Post, "/api/v1/language/hover", Right::Read, "hoverText")
    },
    Route {
        about: "Find where the name at a position is declared and used",
        body: Some(needed(SchemaGenerator::subschema_for::<FindReferences>)),
        responses: &[json(200, "the places", SchemaGenerator::subschema_for::<ReferenceList>)],
        handler: Handler::Worker(|request| Box::pin(async move { language::references(&request) })),
        ..route(Verb::Post, "/api/v1/language/references", Right::Read, "findReferences")
    },
    Route {
        about: "Rename what the name at a position means, everywhere in the text",
        body: Some(needed(SchemaGenerator::subschema_for::<RenameSymbol>)),
        responses: &[json(200, "the edits", SchemaGenerator::subschema_for::<EditList>)],
        handler: Handler::Worker(|request| Box::pin(async move { language::rename(&request) })),
        ..route(Verb::Post, "/api/v1/language/rename", Right::Read, "renameSymbol")
    },
    Route {
        about: "List the fixes of the findings in a part of a text",
        body: Some(needed(SchemaGenerator::subschema_for::<FindActions>)),
        responses: &[json(200, "the fixes", SchemaGenerator::subschema_for::<ActionList>)],
        handler: Handler::Worker(|request| Box::pin(async move { language::actions(&request) })),
        ..route(Verb::Post, "/api/v1/language/actions", Right::Read, "findActions")
    },
    Route {
        about: "Change a composition: the smallest edits of its text",
        more: "Everything that the change does not mean keeps its bytes. Nothing is saved.",
        body: Some(needed(SchemaGenerator::subschema_for::<EditText>)),
        responses: &[json(200, "the edits", SchemaGenerator::subschema_for::<EditList>)],
        handler: Handler::Worker(|request| Box::pin(async move { language::edit(&request) })),
        ..route(Verb::Post, "/api/v1/language/edit", Right::Read, "editText")
    },
    Route {
        about: "Preview the arguments of a step with the data of a run",
        more: "Each argument with its type and its value, or why it has none. With `template`, that value at \
               the place of the step. Nothing is called. Values are cut as in previews of runs, and sensitive \
               ones are left out. A step in a loop is shown at the item with the number `item`.",
        body: Some(needed(SchemaGenerator::subschema_for::<PreviewStep>)),
        responses: &[json(200, "each argument", SchemaGenerator::subschema_for::<PreviewView>)],
        problems: &[404],
        handler: Handler::Worker(|request| Box::pin(language::preview(request))),
        ..route(Verb::Post, "/api/v1/language/preview", Right::Read, "previewStep")
    },
    Route {
        about: "Keep the output of a step as a mock: the edits of a test file",
        more: "Nothing is saved: save the new text as a file.",
        body: Some(needed(SchemaGenerator::subschema_for::<PinOutput>)),
        responses: &[json(200, "the edits", SchemaGenerator::subschema_for::<EditList>)],
        handler: Handler::Worker(|request| Box::pin(async move { language::pin(&request) })),
        ..route(Verb::Post, "/api/v1/language/pin", Right::Read, "pinOutput")
    },
    Route {
        about: "Compare two versions of a composition",
        more: "Its steps, and its input and output, as callers see them.",
        body: Some(needed(SchemaGenerator::subschema_for::<CompareTexts>)),
        responses: &[json(
            200,
            "what changed",
            SchemaGenerator::subschema_for::<VersionComparison>,
        )],
        handler: Handler::Worker(|request| Box::pin(async move { language::compare(&request) })),
        ..route(Verb::Post, "/api/v1/language/compare", Right::Read, "compareTexts")
    },
];
