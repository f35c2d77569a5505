//! `segue convert`

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use segue_core::compile;
use segue_core::diagnostic::DiagnosticView;
use segue_core::limits::Limits;
use serde::Serialize;

use super::{Exit, Global, print_json};
use crate::config::documents::{DocumentSearch, file_and_part};
use crate::print::{print_data, print_diagnostics, print_error};

/// Convert a document of another dialect to a composition
///
/// Prints the composition to standard output, and warnings to standard error. With `--json` it prints one
/// document with both.
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

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    /// Whether it could be converted.
    ok: bool,
    /// The composition, as YAML or JSON.
    composition: Option<Arc<str>>,
    diagnostics: Vec<DiagnosticView>,
}

pub(super) fn convert(global: &Global, args: &ConvertArgs) -> Exit {
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
    let exit = if converted.text.is_some() { Exit::Success } else { Exit::Usage };
    if global.is_json() {
        let findings = converted.diagnostics.iter().map(|finding| finding.view(&source));
        let report = Report {
            ok: converted.text.is_some(),
            diagnostics: findings.collect(),
            composition: converted.text,
        };
        print_json(global, &report);
        return exit;
    }
    print_diagnostics(&converted.diagnostics, &source);
    converted.text.iter().for_each(|text| print_data(text));
    exit
}
