//! `segue check`

use std::path::{Path, PathBuf};

use clap::Args;
use segue_core::diagnostic::{Code, Diagnostic, DiagnosticView, Severity};
use segue_core::source::{Source, Span};
use serde::Serialize;

use super::test::check_file;
use super::{Exit, Global, print_json};
use crate::app::{App, AppError, ReportedFiles, ServerSelection};
use crate::config::documents::{DocumentSearch, composition_paths, file_and_part, is_test_file};
use crate::print::{print_diagnostics, print_error, print_note, print_status};

/// Report every error in compositions, without running them
///
/// Checks names, types, parameters and references against the schemas of the tools.
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Composition files, or names of configured compositions; `FILE#NAME` is one of several in a file
    /// [default: all configured ones]
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
    let mut options = global.options_reporting(&names);
    if args.files.is_empty() {
        options.reported = ReportedFiles::All;
    }
    let app = match App::open(&options, &selection) {
        Ok(app) => app,
        Err(error) => return super::report(&error),
    };
    if args.offline && !global.quiet && !app.upstream.recorded.is_empty() {
        let servers: Vec<&str> = app.upstream.recorded.iter().map(|name| &**name).collect();
        let servers = servers.join("`, `");
        print_note(&format!("using recorded definitions of `{servers}`; nothing was started"));
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
            if let Some((source, diagnostics)) = check_file(&app, file) {
                (report.ok, has_other_errors) = (false, true);
                report.add(global, &source, &diagnostics);
            }
            continue;
        }
        let sources = match find(&app, file) {
            Ok(sources) => sources,
            Err(error) => {
                error.print();
                (report.ok, has_other_errors) = (false, true);
                report.diagnostics.push(unreadable(file, error.message()));
                continue;
            }
        };
        // A composition may be given by its name; its text knows its file.
        let path = sources.first().map_or_else(PathBuf::new, |it| PathBuf::from(&**it.name()));
        let mut clashes = app.name_clashes(&path);
        report.ok &= clashes.is_empty();
        has_other_errors |= !clashes.is_empty();
        for source in &sources {
            let (plan, mut diagnostics, unreachable) = app.plan(source);
            report.ok &= plan.is_some();
            has_other_errors |= plan.is_none() && !unreachable;
            diagnostics.append(&mut clashes);
            report.add(global, source, &diagnostics);
        }
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

/// The compositions of a file that were named or that it refers to, or a configured composition or
/// template that is given by its name.
fn find(app: &App, file: &Path) -> Result<Vec<Source>, AppError> {
    let name = file.display().to_string();
    if file.is_dir() {
        let help = format!("name its files: `segue check {}/*.yaml`", name.trim_end_matches('/'));
        return Err(AppError::new(format!("`{name}` is a folder"), Some(help)));
    }
    let Some((path, part)) = file_and_part(&name) else {
        return app.find(&name).map(|source| vec![source]);
    };
    let configured = composition_paths(&app.config);
    let search = DocumentSearch { configured: &configured, limits: &app.config.limits };
    search.read(&path, part).map_err(|message| AppError::new(message, None))
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
