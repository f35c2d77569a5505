//! `segue convert`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use segue_core::compile;
use segue_core::limits::Limits;

use super::Exit;
use crate::config::documents::read_source;
use crate::print::{print_data, print_diagnostics, print_error};

/// Convert a document of another dialect to a composition
///
/// Prints the composition to standard output, and warnings to standard error.
#[derive(Args, Debug)]
pub(super) struct ConvertArgs {
    /// The document, of any dialect
    file: PathBuf,
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
    let source = match read_source(&args.file, limits.document_bytes_max) {
        Ok(source) => source,
        Err(message) => {
            print_error(&message, None);
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
