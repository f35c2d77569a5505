//! `segue test`

mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use segue_core::catalog::Catalog;
use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::id::ToolId;
use segue_core::plan::{Plan, plan_text};
use segue_core::source::{Source, Span};
use segue_core::testing::read_tests;
use segue_core::testing::{TestFile, TestRun, catalog_for, check, compare};
use segue_runtime::tools::builtin;

use super::{Exit, Global, print_json};
use crate::app::{App, ServerSelection};
use crate::config::documents::{is_test_file, read_source};
use crate::print::{print_data, print_diagnostics, print_error};
use report::{FileReport, TestReport, TestsReport};

const EXAMPLES: &str = "\
Examples:
  segue test                          every `*.test.yaml` and `*.test.json` below this folder
  segue test orders --filter refund   tests below `orders` whose name contains `refund`
  segue test --junit report.xml       a report for a build server

Tools are mocked and time is simulated: no tool is called, and no test waits.";

/// Test compositions with mocked tools against expected calls and results
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct TestArgs {
    /// Test files, or folders that contain test files
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Run only tests whose name contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Also write a JUnit report to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

pub(super) fn test(global: &Global, args: &TestArgs) -> Exit {
    let files = match find(&args.paths) {
        Ok(files) if !files.is_empty() => files,
        Ok(_) => {
            let help = "a test of `hello.yaml` is written in `hello.test.yaml` beside it, or by \
                        `segue run hello.yaml --record hello.test.yaml`";
            print_error("there are no tests", Some(help));
            return Exit::Usage;
        }
        Err(message) => {
            print_error(&message, None);
            return Exit::Usage;
        }
    };
    let app = match global.open(&ServerSelection::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let runner =
        TestRunner { global, app: &app, pure: builtin::pure(), filter: args.filter.as_deref() };
    let report = TestsReport::of(files.iter().map(|file| runner.file(file)).collect());
    if report.is_empty() {
        let filter = args.filter.as_deref().unwrap_or_default();
        print_error(&format!("there is no test with `{filter}` in its name"), None);
        return Exit::Usage;
    }
    if global.is_json() {
        print_json(global, &report);
    } else {
        print_data(&report.summary());
    }
    if let Some(file) = &args.junit
        && let Err(error) = std::fs::write(file, report.junit())
    {
        print_error(&format!("cannot write `{}`: {error}", file.display()), None);
        return Exit::Usage;
    }
    report.exit()
}

/// The test files, sorted by path. Hidden folders and build output are skipped.
fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = Vec::new();
    for path in paths {
        if path.is_dir() {
            folders.push(path.clone());
        } else if path.is_file() {
            found.push(path.clone());
        } else {
            return Err(format!("there is no file and no folder `{}`", path.display()));
        }
    }
    while let Some(folder) = folders.pop() {
        let wrong = |error| format!("cannot read `{}`: {error}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(wrong)?);
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_source = !name.starts_with('.') && name != "target" && name != "node_modules";
            if kind.is_dir() && is_source {
                folders.push(path);
            } else if !kind.is_dir() && is_test_file(&path) {
                found.push(path);
            }
        }
    }
    let mut found: Vec<PathBuf> =
        found.iter().map(|path| path.strip_prefix(".").unwrap_or(path).to_owned()).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// The findings about a test file and its composition, without running its tests; nothing if
/// there are none.
pub(super) fn check_file(
    global: &Global,
    app: &App,
    path: &Path,
) -> Option<(Source, Vec<Diagnostic>)> {
    TestRunner { global, app, pure: builtin::pure(), filter: None }.prepare(path).err()
}

struct TestRunner<'a> {
    global: &'a Global,
    app: &'a App,
    /// Tools without effects, which tests call for real.
    pure: Vec<ToolId>,
    filter: Option<&'a str>,
}

/// Why the tests of a file cannot run: a text and its findings.
type BrokenFile = (Source, Vec<Diagnostic>);

impl TestRunner<'_> {
    /// Runs the tests of a file, and prints the result of each as soon as it ends.
    fn file(&self, path: &Path) -> FileReport {
        let mut report = FileReport::new(path);
        match self.prepare(path) {
            Ok(ready) => {
                for at in 0..ready.file.tests.len() {
                    let name = &ready.file.tests[at].name.value;
                    if self.filter.is_none_or(|filter| name.contains(filter)) {
                        let test = self.run(&ready, at);
                        self.print(&test.summary_line(path));
                        report.tests.push(test);
                    }
                }
            }
            Err((source, diagnostics)) => {
                self.print(&format!("BROKEN  {}", path.display()));
                if !self.global.is_json() {
                    print_diagnostics(&diagnostics, &source);
                }
                report.diagnostics = diagnostics.iter().map(|d| d.view(&source)).collect();
            }
        }
        report
    }

    fn print(&self, text: &str) {
        if !self.global.is_json() {
            print_data(text);
        }
    }

    /// Reads a test file and its composition.
    fn prepare(&self, path: &Path) -> Result<ReadyFile, BrokenFile> {
        let limits = self.app.engine.limits();
        let unreadable = |message: String| {
            let name = Source::new(path.display().to_string(), "");
            (name, vec![Diagnostic::error(Code::NotFound, message, Span::default())])
        };
        let source = read_source(path, limits.document_bytes_max).map_err(unreadable)?;
        let (file, findings) = read_tests(&source, limits);
        let Some(file) = file else { return Err((source, findings)) };
        let composition = match self.composition(path, &file) {
            Ok(composition) => composition,
            Err(message) => {
                let span = file.composition.map(|name| name.span).unwrap_or_default();
                return Err((source, vec![Diagnostic::error(Code::NotFound, message, span)]));
            }
        };
        let catalog = catalog_for(&file, &composition, self.app.engine.catalog(), limits);
        let (plan, findings) = plan_text(&composition, &catalog, limits);
        let Some(plan) = plan else {
            let mut errors = findings;
            errors.retain(|finding| finding.severity == Severity::Error);
            return Err((composition, errors));
        };
        let findings = check(&file, &plan, &catalog, &self.pure);
        if !findings.is_empty() {
            return Err((source, findings));
        }
        Ok(ReadyFile { source, file, catalog, plan })
    }

    /// The composition under test: the one that the file names, or the one beside it.
    fn composition(&self, path: &Path, file: &TestFile) -> Result<Source, String> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let bytes_max = self.app.engine.limits().document_bytes_max;
        if let Some(name) = &file.composition {
            let beside = folder.join(&*name.value);
            return if beside.is_file() {
                read_source(&beside, bytes_max)
            } else {
                self.app.find(&name.value).map_err(|error| error.message())
            };
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.rsplitn(3, '.').last().unwrap_or_default();
        let names = ["yaml", "yml", "json"].map(|extension| format!("{stem}.{extension}"));
        let found = names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
        match found {
            Some(found) => read_source(&found, bytes_max),
            None => {
                Err(format!("there is no `{stem}.yaml` beside it, and it names no `composition`"))
            }
        }
    }

    fn run(&self, ready: &ReadyFile, at: usize) -> TestReport {
        let ReadyFile { source, file, catalog, plan } = ready;
        let test = &file.tests[at];
        let begun = Instant::now();
        let play = TestRun::new(test, &file.mocks, plan, catalog, self.app.engine.limits());
        let played = self.app.runtime().block_on(self.app.engine.play(play));
        let misses = compare(test, &played, catalog);
        TestReport::new(source, test, &played.view, &misses, begun.elapsed())
    }
}

/// A file whose tests can run.
struct ReadyFile {
    source: Source,
    file: TestFile,
    catalog: Catalog,
    plan: Arc<Plan>,
}
