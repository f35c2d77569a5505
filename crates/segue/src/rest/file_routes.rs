//! The table of the routes of files.

use schemars::SchemaGenerator;
use segue_core::access::Right;

use super::files;
use crate::api::files::{FileList, FileText, SavedFile};
use crate::api::requests::{RenameFile, SaveFile};
use crate::http::route::{
    Handler, ResponseContent, ResponseSpec, Route, Verb, json, needed, route,
};

const IF_MATCH: (&str, &str) =
    ("If-Match", "the hash of the text that was read, in double quotes: the text that is replaced");

const IF_NONE_MATCH: (&str, &str) = ("If-None-Match", "`*` for a new file");

/// Every route.
pub const ROUTES: &[Route] = &[
    Route {
        about: "List the files of compositions, tests and templates",
        more: "Those that the patterns of `compositions` and `templates` match below the folder of the \
               configuration. `writable` says whether the caller may save them. A caller that is bound to a \
               toolset sees those whose compositions it may run.",
        responses: &[json(200, "by path", SchemaGenerator::subschema_for::<FileList>)],
        handler: Handler::Worker(|request| Box::pin(async move { files::list(&request) })),
        ..route(Verb::Get, "/api/v1/files", Right::Read, "listFiles")
    },
    Route {
        about: "Get a file, with its text",
        more: "The path is one part of the address: `/` is written `%2F`. `ETag` is the hash.",
        responses: &[json(200, "the file", SchemaGenerator::subschema_for::<FileText>)],
        problems: &[404, 409],
        handler: Handler::Worker(|request| Box::pin(async move { files::get(&request) })),
        ..route(Verb::Get, "/api/v1/files/{path}", Right::Read, "getFile")
    },
    Route {
        about: "Save a file",
        more: "With `If-Match: \"HASH\"` it replaces the text with this hash; with `If-None-Match: *` it is \
               new. If the file holds another text, nothing is written: the problem has the status 412, and \
               its `text` and `hash` are what is on disk. Needs `compose`, too: others run the composition. \
               Only where files may be changed: in `segue dev`, and with `server.edit: true`.",
        headers: &[IF_MATCH, IF_NONE_MATCH],
        body: Some(needed(SchemaGenerator::subschema_for::<SaveFile>)),
        responses: &[
            json(200, "the file was replaced", SchemaGenerator::subschema_for::<SavedFile>),
            json(
                201,
                "the file is new; `Location` has its address",
                SchemaGenerator::subschema_for::<SavedFile>,
            ),
        ],
        problems: &[404, 409, 412],
        handler: Handler::Worker(|request| Box::pin(async move { files::put(&request) })),
        ..route(Verb::Put, "/api/v1/files/{path}", Right::Write, "putFile")
    },
    Route {
        about: "Delete a file",
        more: "With `If-Match: \"HASH\"`, as for saving. Needs `compose`, too.",
        headers: &[IF_MATCH],
        responses: &[ResponseSpec {
            status: 204,
            about: "deleted",
            content: ResponseContent::Nothing,
        }],
        problems: &[404, 409, 412, 422],
        handler: Handler::Worker(|request| Box::pin(async move { files::delete(&request) })),
        ..route(Verb::Delete, "/api/v1/files/{path}", Right::Write, "deleteFile")
    },
    Route {
        about: "Rename a file",
        more: "With `If-Match: \"HASH\"`, as for saving; there must be no file at the new path. Needs \
               `compose`, too.",
        headers: &[IF_MATCH],
        body: Some(needed(SchemaGenerator::subschema_for::<RenameFile>)),
        responses: &[json(
            200,
            "the file under its new path",
            SchemaGenerator::subschema_for::<SavedFile>,
        )],
        problems: &[404, 409, 412],
        handler: Handler::Worker(|request| Box::pin(async move { files::rename(&request) })),
        ..route(Verb::Post, "/api/v1/files/{path}/rename", Right::Write, "renameFile")
    },
];
