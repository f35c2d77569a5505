//! The language service for editors: a text and a position → what is known there, and what can be changed.
//!
//! Everything is decided in [`segue_core::language`]; here are the catalog of the caller, the values of a
//! run that it may read, and the positions of editors. Nothing is called and nothing is stored.

mod positions;
pub mod requests;
pub mod views;

use std::path::Path;
use std::sync::Arc;

use segue_core::access::Principal;
use segue_core::diagnostic::{Code, Diagnostic};
use segue_core::language::edit::{Edited, edit};
use segue_core::language::{
    Analysis, CodeAction, EditError, LinkTarget, Observations, OutlineItem, OutlineKind,
    PreviewedField, RunData, TextEdit, VersionComparison, compare, pin,
};
use segue_core::limits::Limits;
use segue_core::plan;
use segue_core::source::Source;
use segue_core::tool::hex_digest;
use segue_core::view::PlanView;
use segue_core::view::cut::CutBudget;
use segue_core::view::source::{INLINE_NAME, Places, StepPlaceView};
use segue_runtime::engine::Engine;

use super::error::{Error, ErrorKind};
use super::files::EditableFiles;
use super::runs::RunService;
use super::threads::calculate;
use positions::Positions;
use requests::{
    AnalyzeText, CompareTexts, CompleteText, EditText, FindActions, FindReferences, HoverText,
    PinOutput, PreviewStep, RenameSymbol,
};
use views::{
    ActionList, ActionView, CompletionList, CompletionView, EditList, HoverView, LinkRange,
    LinkView, OutlineEntry, PreviewFieldView, PreviewView, ReferenceList, StepRange, TextAnalysis,
    TextEditView, TextFinding, TextRange, TokenRange, completion_kind, outline_kind, token_kind,
};

/// How many bytes of values a preview shows.
const PREVIEW_BYTES_MAX: usize = 1024 * 1024;

/// A text of a caller, with the tools that the caller may compose of.
struct Text {
    source: Source,
    engine: Engine,
}

impl Text {
    fn new(
        service: &RunService,
        who: &Principal,
        text: &str,
        name: Option<&Arc<str>>,
    ) -> Result<Text, Error> {
        check_size(text, &service.limits())?;
        let name = name.cloned().unwrap_or_else(|| INLINE_NAME.into());
        let engine = service.catalog(&who.as_author()).engine;
        Ok(Text { source: Source::new(name, text), engine })
    }

    /// Analyses it, and asks the analysis something, within the evaluation timeout.
    fn analyzed<T>(
        &self,
        seen: Observations,
        ask: impl FnOnce(&Analysis, &Positions<'_>) -> T,
    ) -> T {
        let work = || {
            // Tools outside of the caller's toolset are unknown to it.
            let (catalog, limits) = (self.engine.catalog().allowed(), self.engine.limits());
            let analysis = Analysis::new(&self.source, &catalog, limits).with_observations(seen);
            ask(&analysis, &Positions::new(self.source.text()))
        };
        calculate(|| self.engine.bounded(work))
    }
}

fn check_size(text: &str, limits: &Limits) -> Result<(), Error> {
    let bytes_max = limits.document_bytes_max;
    if text.len() <= bytes_max {
        return Ok(());
    }
    let message = format!("the text is larger than the limit of {bytes_max} bytes");
    Err(Error::new(ErrorKind::TooLarge, Code::Limit, message))
}

/// What a run of the caller showed; nothing without a run.
async fn observations(
    service: &Arc<RunService>,
    who: &Principal,
    run: Option<&Arc<str>>,
) -> Result<Observations, Error> {
    let Some(run) = run else { return Ok(Observations::default()) };
    let read = service.read_run(who, run).await?;
    Ok(calculate(|| Observations::of_run(&read.loaded.plan, read.view())))
}

/// Analyses a text.
pub fn analyze(
    service: &RunService,
    who: &Principal,
    request: &AnalyzeText,
) -> Result<TextAnalysis, Error> {
    let text = Text::new(service, who, &request.text, request.name.as_ref())?;
    let files = service.files();
    let limits = text.engine.limits().clone();
    Ok(text.analyzed(Observations::default(), |analysis, positions| {
        let source = analysis.source();
        let finding = |finding: &Diagnostic| {
            let (start, end) = positions.of_span(finding.span);
            TextFinding { finding: finding.view(source), start, end }
        };
        let mut findings = analysis.findings().to_vec();
        text.engine.unavailable().explain(&mut findings, source);
        let outline = analysis.outline();
        let mut spans = Vec::new();
        add_steps(&outline, &Places::new(source), positions, &mut spans);
        let tokens = analysis.tokens().into_iter().map(|token| {
            let (start, end) = positions.of_span(token.span);
            TokenRange { start, end, kind: token_kind(token.kind) }
        });
        let links = analysis.links().into_iter().filter_map(|link| {
            let (start, end) = positions.of_span(link.span);
            Some(LinkRange { start, end, target: link_view(link.target, &files)? })
        });
        let composition = analysis.composition();
        let plan = composition.and_then(|composition| plan::plan(composition, &limits).ok());
        TextAnalysis {
            hash: hex_digest(source.text().as_bytes()),
            valid: plan.is_some(),
            findings: findings.iter().map(finding).collect(),
            steps: analysis.steps().to_vec(),
            spans,
            outline: outline.into_iter().map(|item| outline_entry(item, positions)).collect(),
            tokens: tokens.collect(),
            links: links.collect(),
            inputs: plan
                .as_ref()
                .and_then(|plan| Some(plan.composition.input.as_ref()?.json().clone())),
            plan: plan.as_ref().map(PlanView::from_plan),
        }
    }))
}

/// The place of each step of an outline, in the order of the text.
fn add_steps(
    outline: &[OutlineItem],
    places: &Places<'_>,
    positions: &Positions<'_>,
    found: &mut Vec<StepRange>,
) {
    for item in outline {
        if item.kind == OutlineKind::Step {
            let (start, end) = positions.of_span(item.span);
            let place =
                StepPlaceView { step: item.name.as_str().into(), place: places.place(item.span) };
            found.push(StepRange { place, start, end });
        }
        add_steps(&item.children, places, positions, found);
    }
}

fn outline_entry(item: OutlineItem, positions: &Positions<'_>) -> OutlineEntry {
    let (start, end) = positions.of_span(item.span);
    let (name_start, name_end) = positions.of_span(item.name_span);
    let children = item.children.into_iter().map(|child| outline_entry(child, positions)).collect();
    let (name, kind, detail) = (item.name, outline_kind(item.kind), item.detail);
    OutlineEntry { name, kind, detail, start, end, name_start, name_end, children }
}

/// Where a link leads for a client: a path of the server only as that of a file within reach.
fn link_view(target: LinkTarget, files: &EditableFiles) -> Option<LinkView> {
    match target {
        LinkTarget::Composition { source } => {
            let path = files.path_of(Path::new(&*source))?;
            Some(LinkView::File { path })
        }
        LinkTarget::ErrorPage { code } => Some(LinkView::Error { code }),
        LinkTarget::Url(url) => Some(LinkView::Url { url }),
    }
}

/// What can be written at a position.
pub async fn complete(
    service: &Arc<RunService>,
    who: &Principal,
    request: &CompleteText,
) -> Result<CompletionList, Error> {
    let text = Text::new(service, who, &request.text, request.name.as_ref())?;
    let seen = observations(service, who, request.run.as_ref()).await?;
    let items = text.analyzed(seen, |analysis, positions| {
        let items = analysis.completions(positions.to_byte(request.at)).into_iter();
        let views = items.map(|item| {
            let TextEditView { start, end, text } = edit_view(item.edit, positions);
            CompletionView {
                label: item.label,
                kind: completion_kind(item.kind),
                detail: item.detail,
                documentation: item.documentation,
                required: item.required,
                start,
                end,
                text,
            }
        });
        views.collect()
    });
    Ok(CompletionList { items })
}

/// What is known about the part of a text at a position.
pub async fn hover(
    service: &Arc<RunService>,
    who: &Principal,
    request: &HoverText,
) -> Result<Option<HoverView>, Error> {
    let text = Text::new(service, who, &request.text, request.name.as_ref())?;
    let seen = observations(service, who, request.run.as_ref()).await?;
    Ok(text.analyzed(seen, |analysis, positions| {
        let hover = analysis.hover(positions.to_byte(request.at))?;
        let (start, end) = positions.of_span(hover.span);
        let (ty, contents, schema) = (hover.ty, hover.contents, hover.schema);
        Some(HoverView { start, end, ty, contents, schema })
    }))
}

/// Where the name at a position stands.
pub fn references(
    service: &RunService,
    who: &Principal,
    request: &FindReferences,
) -> Result<ReferenceList, Error> {
    let text = Text::new(service, who, &request.text, request.name.as_ref())?;
    Ok(text.analyzed(Observations::default(), |analysis, positions| {
        let at = positions.to_byte(request.at);
        let range = |span| {
            let (start, end) = positions.of_span(span);
            TextRange { start, end }
        };
        ReferenceList {
            definition: analysis.definition(at).map(range),
            references: analysis.references(at).into_iter().map(range).collect(),
        }
    }))
}

/// The edits that rename what the name at a position means.
pub fn rename(
    service: &RunService,
    who: &Principal,
    request: &RenameSymbol,
) -> Result<EditList, Error> {
    let text = Text::new(service, who, &request.text, request.name.as_ref())?;
    let renamed = text.analyzed(Observations::default(), |analysis, positions| {
        let edits = analysis.rename(positions.to_byte(request.at), &request.to)?;
        Ok(edit_views(edits, positions))
    });
    Ok(EditList { edits: renamed.map_err(not_edited)?, extracted: None })
}

/// What can be fixed in a part of a text.
pub fn actions(
    service: &RunService,
    who: &Principal,
    request: &FindActions,
) -> Result<ActionList, Error> {
    let text = Text::new(service, who, &request.text, request.name.as_ref())?;
    let actions =
        text.analyzed(Observations::default(), |analysis, positions| {
            let actions =
                analysis.actions(positions.to_span(request.start, request.end)).into_iter();
            let views = actions.map(|CodeAction { title, code, preferred, edits, .. }| {
                ActionView { title, code, preferred, edits: edit_views(edits, positions) }
            });
            views.collect()
        });
    Ok(ActionList { actions })
}

/// How a text changes with a change of its composition.
pub fn edit_text(
    service: &RunService,
    who: &Principal,
    request: &EditText,
) -> Result<EditList, Error> {
    let Text { source, engine } = Text::new(service, who, &request.text, request.name.as_ref())?;
    let work = || edit(&source, &request.edit, &engine.catalog().allowed(), engine.limits());
    let Edited { edits, extracted } = calculate(|| engine.bounded(work)).map_err(not_edited)?;
    Ok(EditList { edits: edit_views(edits, &Positions::new(source.text())), extracted })
}

/// What the arguments of a step, or a template, would be with the data of a run of the caller.
pub async fn preview(
    service: &Arc<RunService>,
    who: &Principal,
    request: &PreviewStep,
) -> Result<PreviewView, Error> {
    let text = Text::new(service, who, &request.text, request.name.as_ref())?;
    let data = run_data(service, who, request).await?;
    let (step, template) = (request.step.as_deref(), request.template.as_ref());
    let fields = text.analyzed(Observations::default(), |analysis, _| {
        let fields = analysis.preview(step, template, &data)?.into_iter();
        let is_wanted = |field: &PreviewedField| {
            request.field.as_ref().is_none_or(|wanted| field.field == **wanted)
        };
        let mut budget = CutBudget::new(PREVIEW_BYTES_MAX);
        let views = fields.filter(is_wanted).map(|PreviewedField { field, ty, value }| {
            let (value, error) = match value {
                Ok(value) => (Some(budget.cut(&value)), None),
                Err(message) => (None, Some(message)),
            };
            PreviewFieldView { field, ty: ty.to_string(), value, error }
        });
        Ok(views.collect())
    });
    Ok(PreviewView { fields: fields.map_err(not_edited)? })
}

/// The data of the run that a preview names.
async fn run_data(
    service: &Arc<RunService>,
    who: &Principal,
    request: &PreviewStep,
) -> Result<RunData, Error> {
    let Some(run) = &request.run else { return Ok(RunData::default()) };
    let read = service.read_run(who, run).await?;
    let item = request.item.unwrap_or(0) as usize;
    Ok(calculate(|| {
        let loaded = &read.loaded.run;
        let (input, context) = loaded.input_and_context();
        let given = (loaded.redact_value(input), loaded.redact_value(context));
        RunData::of_run(&read.loaded.plan, read.view(), given, item)
    }))
}

/// How a test file keeps the output of a step as a mock.
pub fn pin_output(service: &RunService, request: &PinOutput) -> Result<EditList, Error> {
    let limits = service.limits();
    let text = request.test_text.as_deref().unwrap_or("");
    check_size(text, &limits)?;
    let source = Source::new("test", text);
    let edits =
        calculate(|| pin(&source, &request.composition, &request.step, &request.output, &limits));
    let edits = edit_views(edits.map_err(not_edited)?, &Positions::new(text));
    Ok(EditList { edits, extracted: None })
}

/// What changed between two versions of a composition.
pub fn compare_texts(
    service: &RunService,
    who: &Principal,
    request: &CompareTexts,
) -> Result<VersionComparison, Error> {
    let name = request.name.as_ref();
    let Text { source: before, .. } = Text::new(service, who, &request.before, name)?;
    let Text { source: after, engine } = Text::new(service, who, &request.after, name)?;
    let work = || compare(&before, &after, &engine.catalog().allowed(), engine.limits());
    Ok(calculate(|| engine.bounded(work)))
}

fn edit_views(edits: Vec<TextEdit>, positions: &Positions<'_>) -> Vec<TextEditView> {
    edits.into_iter().map(|edit| edit_view(edit, positions)).collect()
}

fn edit_view(edit: TextEdit, positions: &Positions<'_>) -> TextEditView {
    let (start, end) = positions.of_span(edit.span);
    TextEditView { start, end, text: edit.text }
}

/// Why a text is not edited: the request makes no sense for it.
fn not_edited(error: EditError) -> Error {
    let refused = Error::new(ErrorKind::Invalid, error.code, error.message);
    match error.help {
        Some(help) => refused.help(help),
        None => refused,
    }
}
