//! `segue schema`

use clap::{Args, ValueEnum};
use segue_core::compile::dialect::{Draft, composition_schema, test_schema};

use super::{Exit, Global, print_json};
use crate::graphql;
use crate::print::print_data;
use crate::server;

/// Print the JSON Schema of compositions or tests, the OpenAPI document, or the GraphQL schema
#[derive(Args, Debug)]
pub(super) struct SchemaArgs {
    /// The JSON Schema draft; older editors need draft 7
    #[arg(long, value_enum, default_value = "2020-12")]
    draft: DraftName,
    /// Print the schema of test files
    #[arg(long, conflicts_with = "openapi")]
    test: bool,
    /// Print the OpenAPI document of `segue serve`
    #[arg(long, conflicts_with = "draft")]
    openapi: bool,
    /// Print the GraphQL schema of `segue serve`
    #[arg(long, conflicts_with_all = ["draft", "test", "openapi"])]
    graphql: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DraftName {
    /// The current draft
    #[value(name = "2020-12")]
    Draft2020,
    /// For older editors
    #[value(name = "07", alias = "draft-07", alias = "7")]
    Draft07,
}

pub(super) fn schema(global: &Global, args: &SchemaArgs) -> Exit {
    if args.openapi {
        print_data(server::openapi().trim_end());
        return Exit::Success;
    }
    if args.graphql {
        print_data(graphql::sdl().trim_end());
        return Exit::Success;
    }
    let draft = match args.draft {
        DraftName::Draft2020 => Draft::Draft2020,
        DraftName::Draft07 => Draft::Draft07,
    };
    let schema = if args.test { test_schema(draft) } else { composition_schema(draft) };
    print_json(global, &schema);
    Exit::Success
}
