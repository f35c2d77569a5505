//! `segue convert`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use segue_core::compile;
use segue_core::limits::Limits;

use super::Exit;
use crate::config::documents::{DocumentSearch, file_and_part};
use crate::print::{print_data, print_diagnostics, print_error};

/// Convert a document of another dialect to a composition
///
/// Prints the composition to standard output, and warnings to standard error.
#[derive(Args, Debug)]
pub(super) struct ConvertArgs {
    /// The document, of any dialect; `FILE#NAME` is one of several in a file
    file: String,
    /// The dialect to write
    #[arg(long, value_enum, default_value = "composition")]
    to: Target,
}

/// The dialects that can be written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// The native dialect
    Composition,
}

pub(super) fn convert(args: &ConvertArgs) -> Exit {
    let limits = Limits::default();
    let search = DocumentSearch { configured: &[], limits: &limits };
    let (path, part) = file_and_part(&args.file).unwrap_or((PathBuf::from(&args.file), None));
    let source = match search.read_one(&path, part) {
        Ok(source) => source,
        Err((message, help)) => {
            print_error(&message, help.as_deref());
            return Exit::Usage;
        }
    };
    let Target::Composition = args.to;
    let converted = compile::convert(&source, &limits);
    print_diagnostics(&converted.diagnostics, &source);
    match converted.text {
        Some(text) => {
            print_data(&text);
            Exit::Success
        }
        None => Exit::Usage,
    }
}
