//! `segue test`

mod report;

use std::path::{Path, PathBuf};

use clap::Args;
use segue_core::diagnostic::Diagnostic;
use segue_core::source::Source;

use super::{Exit, Global, print_json};
use crate::api::composition_tests::{TestFileReport, TestRunner, TestsReport};
use crate::app::{App, ServerSelection};
use crate::config::documents::is_test_file;
use crate::print::{print_data, print_diagnostics, print_error};

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
    /// Test files, compositions with a test file beside them, or folders that contain test files
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
    let runner = TestRunner::new(&app.engine);
    let runner = TestPrinter { global, app: &app, runner, filter: args.filter.as_deref() };
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
            found.push(tests_beside(path).unwrap_or_else(|| path.clone()));
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

/// The test file beside a composition, for a person who names the composition.
fn tests_beside(path: &Path) -> Option<PathBuf> {
    let endings = ["test.yaml", "test.yml", "test.json"];
    let mut tests = endings.into_iter().map(|ending| path.with_extension(ending));
    tests.find(|tests| !is_test_file(path) && tests.is_file())
}

/// The findings about a test file and its composition, without running its tests; nothing if
/// there are none.
pub(super) fn check_file(app: &App, path: &Path) -> Option<(Source, Vec<Diagnostic>)> {
    TestRunner::new(&app.engine).prepare(path, &find_composition(app)).err()
}

/// Finds the compositions that tests name.
fn find_composition(app: &App) -> impl Fn(&str) -> Result<Source, String> {
    |name| app.find(name).map_err(|error| error.message())
}

/// Runs the tests of files, and prints their results.
struct TestPrinter<'a> {
    global: &'a Global,
    app: &'a App,
    runner: TestRunner<'a>,
    filter: Option<&'a str>,
}

impl TestPrinter<'_> {
    /// Runs the tests of a file, and prints the result of each as soon as it ends.
    fn file(&self, path: &Path) -> TestFileReport {
        let mut report = TestFileReport::new(path);
        match self.runner.prepare(path, &find_composition(self.app)) {
            Ok(ready) => {
                for (at, name) in ready.names().enumerate() {
                    if self.filter.is_none_or(|filter| name.contains(filter)) {
                        let test = self.app.runtime().block_on(self.runner.run(&ready, at));
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
}
