//! Code lenses: commands above a composition and above each test, for the extension to run.

use std::path::Path;

use gen_lsp_types as lsp;
use segue_core::document::{ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::source::Span;
use segue_core::testing::read_tests;
use serde_json::Value;

use super::answers::{DocumentView, Reply};
use super::documents::DocumentKind;
use super::session::LspSession;

/// Commands that the extension has. Their arguments: the path, and of a test its name.
const RUN: &str = "segue.run";
const DRY_RUN: &str = "segue.dryRun";
const TEST: &str = "segue.test";
const PREVIEW: &str = "segue.preview";

pub(super) fn code_lenses(
    session: &LspSession,
    params: &lsp::CodeLensParams,
) -> Reply<Option<Vec<lsp::CodeLens>>> {
    let view = session.view(&params.text_document.uri)?;
    // A command reads the file, so the document must have one.
    let Some(path) = view.document.path.as_deref() else { return Ok(Some(Vec::new())) };
    let mut lenses = match view.analysed.kind {
        DocumentKind::Composition => of_composition(&view, path),
        DocumentKind::Tests => of_tests(&view, path),
        DocumentKind::Configuration | DocumentKind::Other => Vec::new(),
    };
    lenses.retain(|lens| {
        let command = lens.command.as_ref().map(|command| &command.command);
        command.is_some_and(|command| session.client.commands.contains(command))
    });
    Ok(Some(lenses))
}

fn of_composition(view: &DocumentView<'_>, path: &Path) -> Vec<lsp::CodeLens> {
    let budget = ReadLimits::for_documents(&Limits::default());
    let root = read(&view.analysed.source, budget).ok();
    let name = root.map(|root| root.key_span("name")).unwrap_or_default();
    let tests = ["test.yaml", "test.yml", "test.json"].map(|ending| path.with_extension(ending));
    let tests = tests.iter().find(|tests| tests.is_file());
    let own = [("run", RUN), ("dry run", DRY_RUN), ("graph", PREVIEW)];
    let own = own.map(|(title, command)| lens(view, name, title, command, path, None));
    let test = tests.map(|tests| lens(view, name, "test", TEST, tests, None));
    own.into_iter().chain(test).collect()
}

fn of_tests(view: &DocumentView<'_>, path: &Path) -> Vec<lsp::CodeLens> {
    let (file, _) = read_tests(&view.analysed.source, &Limits::default());
    let tests = file.map(|file| file.tests).unwrap_or_default();
    let all = lens(view, Span::default(), "run all tests", TEST, path, None);
    let each = tests
        .iter()
        .map(|test| lens(view, test.name.span, "test", TEST, path, Some(&*test.name.value)));
    std::iter::once(all).chain(each).collect()
}

fn lens(
    view: &DocumentView<'_>,
    span: Span,
    title: &str,
    command: &str,
    path: &Path,
    test: Option<&str>,
) -> lsp::CodeLens {
    let path = Value::from(path.display().to_string());
    let arguments = std::iter::once(path).chain(test.map(Value::from));
    let command = lsp::Command {
        title: title.to_owned(),
        tooltip: None,
        command: command.to_owned(),
        arguments: Some(arguments.collect()),
    };
    lsp::CodeLens { range: view.document.range(span), command: Some(command), data: None }
}
