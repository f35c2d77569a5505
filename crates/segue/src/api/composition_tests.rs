//! The tests of a composition: the files beside it, and their results. Tools are mocked and time is
//! simulated, so that running a test calls nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use segue_core::catalog::Catalog;
use segue_core::diagnostic::{Code, Diagnostic, DiagnosticView, Severity};
use segue_core::id::ToolId;
use segue_core::plan::{Plan, plan_text};
use segue_core::source::{Source, Span};
use segue_core::testing::{
    Test, TestFile, TestRun, UnmetExpectation, catalog_for, check, compare, read_tests,
};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::engine::Engine;
use segue_runtime::tools::builtin;
use serde::Serialize;

use crate::config::documents::{DocumentSearch, file_and_part, read_source};

/// The results of all files.
#[derive(Serialize, JsonSchema)]
pub struct TestsReport {
    /// Whether all tests passed.
    pub ok: bool,
    /// How many passed.
    pub passed: usize,
    /// How many failed.
    pub failed: usize,
    /// Files whose tests cannot run.
    pub broken: usize,
    /// The files.
    pub files: Vec<TestFileReport>,
}

impl TestsReport {
    /// The report of these files.
    pub fn of(files: Vec<TestFileReport>) -> TestsReport {
        let tests = || files.iter().flat_map(|file| &file.tests);
        let passed = tests().filter(|test| test.ok).count();
        let failed = tests().count() - passed;
        let broken = files.iter().filter(|file| !file.diagnostics.is_empty()).count();
        TestsReport { ok: failed + broken == 0, passed, failed, broken, files }
    }
}

/// The tests of a file.
#[derive(Serialize, JsonSchema)]
pub struct TestFileReport {
    /// The file.
    pub file: String,
    /// Why its tests cannot run.
    pub diagnostics: Vec<DiagnosticView>,
    /// The tests.
    pub tests: Vec<TestReport>,
}

impl TestFileReport {
    /// A file without tests so far.
    pub fn new(file: &Path) -> TestFileReport {
        let file = file.display().to_string();
        TestFileReport { file, diagnostics: Vec::new(), tests: Vec::new() }
    }
}

/// One test.
#[derive(Serialize, JsonSchema)]
pub struct TestReport {
    /// Its name.
    pub name: String,
    /// Its line.
    pub line: usize,
    /// Whether it passed.
    pub ok: bool,
    /// The status of the run.
    pub status: RunStatus,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The expectations that were not met.
    pub misses: Vec<MissReport>,
}

/// An expectation that was not met.
#[derive(Serialize, JsonSchema)]
pub struct MissReport {
    /// Its line.
    pub line: usize,
    /// Its column.
    pub column: usize,
    /// What happened instead.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The expected value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
    /// The actual value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<Value>,
}

impl TestReport {
    fn new(
        source: &Source,
        test: &Test,
        view: &RunView,
        misses: &[UnmetExpectation],
        took: Duration,
    ) -> TestReport {
        let miss = |miss: &UnmetExpectation| {
            let place = source.position(miss.span.start);
            let (expected, actual) = match &miss.difference {
                Some(values) => (Some(values.expected.clone()), Some(values.actual.clone())),
                None => (None, None),
            };
            MissReport {
                line: place.line,
                column: place.column,
                message: miss.message.clone(),
                help: miss.help.clone(),
                expected,
                actual,
            }
        };
        TestReport {
            name: test.name.value.to_string(),
            line: source.position(test.name.span.start).line,
            ok: misses.is_empty(),
            status: view.status,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            misses: misses.iter().map(miss).collect(),
        }
    }
}

/// Why the tests of a file cannot run: a text and its findings.
pub type BrokenFile = (Source, Vec<Diagnostic>);

/// Finds a composition by its name.
pub type FindComposition<'a> = &'a dyn Fn(&str) -> Result<Source, String>;

/// Reads and runs the tests of files.
pub struct TestRunner<'a> {
    engine: &'a Engine,
    /// Tools without effects, which tests call for real.
    pure: Vec<ToolId>,
    /// The only file that a test file may name; any, if there is none.
    own: Option<PathBuf>,
}

/// A file whose tests can run.
pub struct ReadyTests {
    source: Source,
    file: TestFile,
    catalog: Catalog,
    plan: Arc<Plan>,
}

impl ReadyTests {
    /// The names of the tests.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.file.tests.iter().map(|test| &*test.name.value)
    }
}

impl<'a> TestRunner<'a> {
    /// Tests with the tools of an engine.
    pub fn new(engine: &'a Engine) -> TestRunner<'a> {
        TestRunner { engine, pure: builtin::pure(), own: None }
    }

    /// The same for tests that a caller of the server may have written: of files, they reach only that of
    /// their composition.
    #[must_use]
    pub fn only_of(mut self, own: PathBuf) -> TestRunner<'a> {
        self.own = Some(own);
        self
    }

    fn may_read(&self, path: &Path) -> bool {
        let Some(own) = &self.own else { return true };
        path.canonicalize().ok().is_some_and(|path| own.canonicalize().ok() == Some(path))
    }

    /// Reads a test file and its composition. `find` finds a composition that it names.
    pub fn prepare(
        &self,
        path: &Path,
        find: FindComposition<'_>,
    ) -> Result<ReadyTests, BrokenFile> {
        let limits = self.engine.limits();
        let unreadable = |message: String| {
            let name = Source::new(path.display().to_string(), "");
            (name, vec![Diagnostic::error(Code::NotFound, message, Span::default())])
        };
        let source = read_source(path, limits.document_bytes_max).map_err(unreadable)?;
        let (file, findings) = read_tests(&source, limits);
        let Some(file) = file else { return Err((source, findings)) };
        self.prepare_read(source, file, path, find)
    }

    /// The findings about the text of a test file, for an editor. A composition with errors is one finding.
    pub fn findings(
        &self,
        source: &Source,
        path: &Path,
        find: FindComposition<'_>,
    ) -> Vec<Diagnostic> {
        let (file, mut findings) = read_tests(source, self.engine.limits());
        let Some(file) = file else { return findings };
        let named = file.composition.as_ref().map(|name| name.span).unwrap_or_default();
        match self.prepare_read(source.clone(), file, path, find) {
            Ok(_) => {}
            Err((about, found)) if about.name() == source.name() => findings.extend(found),
            Err((about, found)) => findings.extend(self.broken_composition(&about, found, named)),
        }
        findings
    }

    /// The finding that a composition cannot be tested. A tool that is not known now may be known later.
    fn broken_composition(
        &self,
        about: &Source,
        mut found: Vec<Diagnostic>,
        named: Span,
    ) -> Option<Diagnostic> {
        self.engine.unavailable().explain(&mut found, about);
        let is_certain =
            |it: &&Diagnostic| !matches!(it.code, Code::UnknownTool | Code::AmbiguousTool);
        let first = found.iter().find(is_certain)?;
        let line = about.position(first.span.start).line;
        let file = Path::new(&**about.name()).file_name().unwrap_or_default().display();
        let message = format!("`{file}` cannot be tested: line {line}: {}", first.message);
        Some(Diagnostic::error(first.code, message, named))
    }

    fn prepare_read(
        &self,
        source: Source,
        file: TestFile,
        path: &Path,
        find: FindComposition<'_>,
    ) -> Result<ReadyTests, BrokenFile> {
        let limits = self.engine.limits();
        let composition = match self.composition(path, &file, find) {
            Ok(composition) => composition,
            Err(message) => {
                let span = file.composition.map(|name| name.span).unwrap_or_default();
                return Err((source, vec![Diagnostic::error(Code::NotFound, message, span)]));
            }
        };
        let catalog = catalog_for(&file, &composition, self.engine.catalog(), limits);
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
        Ok(ReadyTests { source, file, catalog, plan })
    }

    /// The composition under test: the one that the file names, or the one beside it.
    fn composition(
        &self,
        path: &Path,
        file: &TestFile,
        find: FindComposition<'_>,
    ) -> Result<Source, String> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let search = DocumentSearch { configured: &[], limits: self.engine.limits() };
        let read = |path: &Path, part| search.read_one(path, part).map_err(|(message, _)| message);
        if let Some(name) = &file.composition {
            let beside = folder.join(&*name.value).display().to_string();
            return match file_and_part(&beside) {
                Some((path, _)) if !self.may_read(&path) => Err(format!(
                    "`{}` is not the file of the composition; name a served composition, or none",
                    name.value
                )),
                Some((path, part)) => read(&path, part),
                None => find(&name.value),
            };
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.rsplitn(3, '.').last().unwrap_or_default();
        let names = ["yaml", "yml", "json"].map(|extension| format!("{stem}.{extension}"));
        let found = names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
        match found {
            Some(found) => read(&found, None),
            None => {
                Err(format!("there is no `{stem}.yaml` beside it, and it names no `composition`"))
            }
        }
    }

    /// Runs one test, by its position in the file.
    pub async fn run(&self, ready: &ReadyTests, at: usize) -> TestReport {
        let ReadyTests { source, file, catalog, plan } = ready;
        let test = &file.tests[at];
        let begun = Instant::now();
        let play = TestRun::new(test, &file.mocks, plan, catalog, self.engine.limits());
        let played = self.engine.play(play).await;
        let misses = compare(test, &played, catalog);
        TestReport::new(source, test, &played.view, &misses, begun.elapsed())
    }
}

/// The test files beside a composition: `NAME.test.yaml`, `.yml` and `.json`.
pub fn test_files(composition: &Path) -> Vec<PathBuf> {
    let Some(stem) = composition.file_stem().and_then(|stem| stem.to_str()) else {
        return Vec::new();
    };
    let folder = composition.parent().unwrap_or(Path::new(""));
    let names = ["yaml", "yml", "json"].map(|extension| format!("{stem}.test.{extension}"));
    names.iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect()
}
