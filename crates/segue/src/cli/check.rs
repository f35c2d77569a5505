//! `segue check`

use std::path::{Path, PathBuf};

use clap::Args;
use segue_core::diagnostic::{Code, Diagnostic, DiagnosticView, Severity};
use segue_core::source::{Source, Span};
use serde::Serialize;

use super::test::check_file;
use super::{Exit, Global, print_json};
use crate::app::ServerSelection;
use crate::config::documents::{composition_paths, is_test_file, read_source};
use crate::print::{print_diagnostics, print_error, print_status};

/// Report every error in compositions, without running them
///
/// Checks names, types, parameters and references against the schemas of the tools.
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Composition files [default: all configured ones]
    files: Vec<PathBuf>,
    /// Start no MCP server; use the tool definitions that were recorded before
    #[arg(long)]
    offline: bool,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    diagnostics: Vec<DiagnosticView>,
}

impl Report {
    /// Adds findings about a text, and prints them for people.
    fn add(&mut self, global: &Global, source: &Source, diagnostics: &[Diagnostic]) {
        if !global.is_json() {
            print_diagnostics(diagnostics, source);
        }
        self.diagnostics.extend(diagnostics.iter().map(|finding| finding.view(source)));
    }
}

pub(super) fn check(global: &Global, args: &CheckArgs) -> Exit {
    let compositions = args.files.iter().filter(|file| !is_test_file(file));
    let names: Vec<String> = compositions.map(|file| file.display().to_string()).collect();
    let selection = if args.offline {
        ServerSelection::Recorded
    } else if args.files.is_empty() {
        ServerSelection::Everything
    } else {
        ServerSelection::Compositions(names.iter().map(String::as_str).collect())
    };
    let app = match global.open(&selection) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    if args.offline && !global.quiet && !app.upstream.recorded.is_empty() {
        let servers: Vec<&str> = app.upstream.recorded.iter().map(|name| &**name).collect();
        let servers = servers.join("`, `");
        print_status(&format!(
            "note: using recorded definitions of `{servers}`; nothing was started"
        ));
    }
    let mut has_other_errors = false;
    let mut report = Report { ok: true, diagnostics: Vec::new() };
    let files =
        if args.files.is_empty() { composition_paths(&app.config) } else { args.files.clone() };
    if files.is_empty() {
        print_error("there is nothing to check", Some("name a file, or configure `compositions`"));
        return Exit::Usage;
    }
    for file in &files {
        if is_test_file(file) {
            // Its composition is checked with it.
            if let Some((source, diagnostics)) = check_file(global, &app, file) {
                (report.ok, has_other_errors) = (false, true);
                report.add(global, &source, &diagnostics);
            }
            continue;
        }
        let source = match read_source(file, app.config.limits.document_bytes_max) {
            Ok(source) => source,
            Err(message) => {
                print_error(&message, None);
                (report.ok, has_other_errors) = (false, true);
                report.diagnostics.push(unreadable(file, message));
                continue;
            }
        };
        let (plan, mut diagnostics, unreachable) = app.plan(&source);
        let clashes = app.name_clashes(file);
        report.ok &= plan.is_some() && clashes.is_empty();
        has_other_errors |= (plan.is_none() && !unreachable) || !clashes.is_empty();
        diagnostics.extend(clashes);
        report.add(global, &source, &diagnostics);
    }
    if global.is_json() {
        print_json(global, &report);
    } else if !global.quiet {
        print_status(&summary(&report, files.len()));
    }
    match (report.ok, has_other_errors) {
        (true, _) => Exit::Success,
        (false, true) => Exit::Usage,
        (false, false) => Exit::Unreachable,
    }
}

/// The finding about a file that cannot be read.
fn unreadable(file: &Path, message: String) -> DiagnosticView {
    let source = Source::new(file.display().to_string(), "");
    Diagnostic::error(Code::NotFound, message, Span::default()).view(&source)
}

fn summary(report: &Report, files: usize) -> String {
    let count = |severity: Severity, word: &str| {
        let count = report.diagnostics.iter().filter(|d| d.severity == severity).count();
        let plural = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {word}{plural}"))
    };
    let found: Vec<String> = [
        count(Severity::Error, "error"),
        count(Severity::Warning, "warning"),
        count(Severity::Hint, "hint"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
    if found.is_empty() {
        format!("{files} checked, nothing found")
    } else {
        format!("{files} checked: {}", found.join(", "))
    }
}
