//! Served compositions with their text, their findings and their tests, and the files that could not be
//! served.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::{Principal, Right};
use segue_core::composition::Dialect;
use segue_core::diagnostic::DiagnosticView;
use segue_core::source::Source;
use segue_core::view::PlanView;
use segue_core::view::source::{StepPlaceView, format_name, step_places};
use segue_runtime::engine::LoadError;
use serde::Serialize;

use super::catalog::ServedTool;
use super::composition_tests::{TestFileReport, TestRunner, TestsReport, test_files};
use super::documents::not_served;
use super::error::Error;
use super::requests::TestComposition;
use super::responses::{CompositionList, CompositionSummary};
use super::runs::RunService;
use super::threads::calculate;
use super::tools::compositions;

/// A served composition, with its text.
#[derive(Serialize, JsonSchema)]
pub struct CompositionDetails {
    /// What a list shows of it.
    pub summary: CompositionSummary,
    /// Its text.
    pub text: Arc<str>,
    /// Its file: the path for administrators, the name for others.
    pub file: Option<Arc<str>>,
    /// `yaml` or `json`.
    pub format: &'static str,
    /// Its dialect.
    pub dialect: Dialect,
    /// The place of each step.
    pub spans: Vec<StepPlaceView>,
    /// Its plan.
    pub plan: PlanView,
    /// Warnings, at their places.
    pub findings: Vec<DiagnosticView>,
    /// Its tests.
    pub tests: Vec<TestName>,
}

/// A test of a composition.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TestName {
    /// Its name.
    pub name: Arc<str>,
    /// Its file.
    pub file: Arc<str>,
}

/// A configured file that is not served.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BrokenComposition {
    /// The file.
    pub file: Arc<str>,
    /// What is wrong.
    pub findings: Vec<DiagnosticView>,
}

/// The served compositions; for administrators, also the files that could not be served.
pub fn list(service: &RunService, who: &Principal) -> CompositionList {
    let view = |LoadError { source, diagnostics }: &LoadError| BrokenComposition {
        file: source.name().clone(),
        findings: diagnostics.iter().map(|finding| finding.view(source)).collect(),
    };
    let broken = service.broken_compositions();
    let broken = broken.iter().filter(|_| who.may(Right::Admin)).map(view).collect();
    CompositionList { compositions: compositions(service, who), broken }
}

fn find(service: &RunService, who: &Principal, name: &str) -> Result<Arc<ServedTool>, Error> {
    let tools = service.catalog(who).tools;
    if let Some(tool) = tools.of_composition(name).or_else(|| tools.get(name)) {
        return Ok(tool.clone());
    }
    Err(not_served(service, who, name))
}

/// A composition that is served to a caller.
pub fn get(service: &RunService, who: &Principal, name: &str) -> Result<CompositionDetails, Error> {
    let tool = find(service, who, name)?;
    let composition = &tool.plan.composition;
    let source = &composition.source;
    let engine = service.catalog(who).engine;
    let (_, findings) = calculate(|| engine.plan(source));
    let summary = compositions(service, who).into_iter().find(|it| it.name == tool.composition);
    Ok(CompositionDetails {
        summary: summary.ok_or_else(|| not_served(service, who, name))?,
        text: source.text().into(),
        file: file_of(source).map(|path| shown(who, &path)),
        format: format_name(source),
        dialect: composition.dialect,
        spans: step_places(composition),
        plan: PlanView::from_plan(&tool.plan),
        findings: findings.iter().map(|finding| finding.view(source)).collect(),
        tests: test_names(service, who, source),
    })
}

/// The file of a served composition; one that wraps a tool has none.
fn file_of(source: &Source) -> Option<PathBuf> {
    let path = PathBuf::from(&**source.name());
    path.is_file().then_some(path)
}

/// A path as a caller may see it.
fn shown(who: &Principal, path: &Path) -> Arc<str> {
    let name = || path.file_name().map(|name| name.to_string_lossy().into_owned());
    let whole = || path.display().to_string();
    let shown = if who.may(Right::Admin) { whole() } else { name().unwrap_or_default() };
    shown.into()
}

fn test_names(service: &RunService, who: &Principal, source: &Source) -> Vec<TestName> {
    let engine = service.catalog(who).engine;
    let files = file_of(source).map(|path| test_files(&path)).unwrap_or_default();
    let find = |name: &str| served_source(service, who, name);
    let runner = TestRunner::new(&engine).only_of(file_of(source).unwrap_or_default());
    let mut names = Vec::new();
    for file in files {
        let shown = shown(who, &file);
        // A broken file is reported by running its tests.
        if let Ok(ready) = calculate(|| runner.prepare(&file, &find)) {
            names.extend(
                ready.names().map(|name| TestName { name: name.into(), file: shown.clone() }),
            );
        }
    }
    names
}

fn served_source(service: &RunService, who: &Principal, name: &str) -> Result<Source, String> {
    let tool = find(service, who, name).map_err(|error| error.text())?;
    Ok(tool.plan.composition.source.clone())
}

/// Runs the tests of a composition that is served to a caller, or one of them. They call no tool with an
/// effect.
pub async fn test(
    service: &RunService,
    who: &Principal,
    name: &str,
    request: &TestComposition,
) -> Result<TestsReport, Error> {
    let tool = find(service, who, name)?;
    let engine = service.catalog(who).engine;
    let find = |name: &str| served_source(service, who, name);
    let own = file_of(&tool.plan.composition.source);
    let runner = TestRunner::new(&engine).only_of(own.clone().unwrap_or_default());
    let files = own.map(|path| test_files(&path));
    let mut reports = Vec::new();
    for file in files.unwrap_or_default() {
        let mut report = TestFileReport::new(Path::new(&*shown(who, &file)));
        match calculate(|| runner.prepare(&file, &find)) {
            Ok(ready) => {
                for (at, name) in ready.names().enumerate() {
                    if request.test.as_deref().is_none_or(|wanted| wanted == name) {
                        report.tests.push(runner.run(&ready, at).await);
                    }
                }
            }
            Err((source, diagnostics)) => {
                report.diagnostics = diagnostics.iter().map(|d| d.view(&source)).collect();
            }
        }
        reports.push(report);
    }
    let report = TestsReport::of(reports);
    if report.passed + report.failed + report.broken == 0 {
        let message = match &request.test {
            Some(test) => format!("`{name}` has no test `{test}`"),
            None => format!("`{name}` has no tests"),
        };
        return Err(Error::not_found(message));
    }
    Ok(report)
}
