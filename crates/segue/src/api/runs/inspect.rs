//! A run in pieces that are small however large the run is: a preview of all of it, parts of its
//! values, pages of its steps, one step with everything that is known of it, its plan and its text.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::Principal;
use segue_core::composition::Dialect;
use segue_core::diagnostic::Code;
use segue_core::run::StepInspection;
use segue_core::value::{Map, Value};
use segue_core::view::compare::{StepsComparison, compare};
use segue_core::view::cut::{CutBudget, ValuePage, at_pointer};
use segue_core::view::source::{StepPlaceView, file_name, format_name, step_places};
use segue_core::view::{ErrorView, PlanView, RunView, StepStatus, StepView};
use serde::Serialize;

use super::RunService;
use super::loaded::ReadRun;
use super::summaries::is_interrupted;
use crate::api::error::Error;
use crate::api::responses::RunSummary;
use crate::api::result::json_of;

/// How many bytes of values a preview of a run, or a page of steps, shows.
const SHOWN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many iterations of a loop a preview shows.
const ITERATIONS_MAX: usize = 100;

/// How many steps a preview shows.
const STEPS_MAX: usize = 5_000;

/// How many errors and warnings a preview shows, each.
const ERRORS_MAX: usize = 100;

/// How many groups of failures a page of steps names.
const GROUPS_MAX: usize = 50;

/// A run, with what only its store and its journal know.
#[derive(Serialize, JsonSchema)]
pub struct RunDetails {
    /// The run.
    #[serde(flatten)]
    pub view: RunView,
    /// The principal that started it; null for a run of the command line.
    pub principal: Option<Arc<str>>,
    /// Whether it has not ended and no process runs it.
    pub interrupted: bool,
    /// Why it is set aside until a person resumes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<Arc<str>>,
    /// The number of entries in its journal: `GET /events?run=ID@ENTRIES` tells what comes after.
    pub entries: u64,
    /// In a preview: its input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// In a preview: the context that its caller gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// In a preview: how many steps are not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_left_out: Option<usize>,
    /// In a preview: how many errors are not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors_left_out: Option<usize>,
}

impl RunService {
    /// A run of the caller; with `is_preview` its values are cut and the later iterations of its loops
    /// left out.
    pub async fn run_details(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
        is_preview: bool,
    ) -> Result<RunDetails, Error> {
        let read = self.read_run(who, run_id).await?;
        let row = &read.loaded.row;
        let interrupted = match self.handle(who, &row.run_id) {
            Some(_) => false,
            None => is_interrupted(&*self.store(), row).await?,
        };
        let mut details = RunDetails {
            view: super::act::brought_up_to_date(self, who, read.view().clone()),
            principal: row.caller.as_ref().map(|caller| caller.principal.clone()),
            interrupted,
            set_aside: row.set_aside.clone(),
            entries: row.length,
            input: None,
            context: None,
            steps_left_out: None,
            errors_left_out: None,
        };
        if is_preview {
            cut_details(&mut details, &read);
        }
        Ok(details)
    }
}

/// Cuts values, and leaves out later iterations.
fn cut_details(details: &mut RunDetails, read: &ReadRun) {
    let mut budget = CutBudget::new(SHOWN_BYTES_MAX);
    let (input, context) = read.loaded.run.input_and_context();
    details.input = Some(budget.cut(&read.loaded.run.redact_value(input)));
    details.context = Some(budget.cut(&read.loaded.run.redact_value(context)));
    let view = &mut details.view;
    view.output = budget.cut(&view.output);
    view.results = cut_map(&mut budget, &view.results).into();
    view.state = cut_map(&mut budget, &view.state);
    view.dialect_result = view.dialect_result.as_ref().map(|result| budget.cut(result));
    for wait in &mut view.waiting_for {
        // What a person decides about is shown as far as one value may be.
        wait.args = budget.cut(&wait.args);
        for covered in &mut wait.covers {
            covered.arguments = covered.arguments.as_ref().map(|given| budget.cut(given));
        }
    }
    details.errors_left_out = Some(view.errors.len().saturating_sub(ERRORS_MAX));
    view.errors.truncate(ERRORS_MAX);
    view.warnings.truncate(ERRORS_MAX);
    let texts = view.errors.iter_mut().map(|error| &mut error.message);
    texts.chain(&mut view.warnings).for_each(|text| budget.cut_text(text));
    let all = view.steps.len();
    view.steps.retain(|step| !is_later_iteration(&step.id));
    view.steps.truncate(STEPS_MAX);
    details.steps_left_out = Some(all - view.steps.len());
    view.steps.iter_mut().for_each(|step| cut_step(&mut budget, step));
}

fn cut_map(budget: &mut CutBudget, members: &Map) -> Map {
    let shown = members.iter().take(segue_core::view::cut::ENTRIES_MAX);
    shown.map(|(name, value)| (name.clone(), budget.cut(value))).collect()
}

fn cut_step(budget: &mut CutBudget, step: &mut StepView) {
    step.input = budget.cut(&step.input);
    step.output = budget.cut(&step.output);
    if let Some(error) = &mut step.error {
        budget.cut_text(&mut error.message);
    }
}

/// Whether a path lies in an iteration that a preview does not show.
fn is_later_iteration(path: &str) -> bool {
    let indexes = path.split('[').skip(1).filter_map(|rest| rest.split(']').next());
    indexes.filter_map(|index| index.parse::<usize>().ok()).any(|index| index >= ITERATIONS_MAX)
}

/// Which value of a run or of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuePart {
    /// The input of the run, or the arguments of the step.
    Input,
    /// The context of the run.
    Context,
    /// The result.
    Output,
    /// The failure.
    Error,
}

impl ValuePart {
    /// The names of the parts.
    pub const WORDS: &'static [&'static str] = &["input", "context", "output", "error"];

    /// The part of this name.
    pub fn parse(word: &str) -> Option<ValuePart> {
        match word {
            "input" => Some(ValuePart::Input),
            "context" => Some(ValuePart::Context),
            "output" => Some(ValuePart::Output),
            "error" => Some(ValuePart::Error),
            _ => None,
        }
    }
}

/// Asks for a value of a run.
#[derive(Clone, Debug)]
pub struct ReadValue<'a> {
    /// The step; without one, the run itself.
    pub step: Option<&'a str>,
    /// Which value.
    pub part: ValuePart,
    /// The place in it, as a JSON Pointer.
    pub pointer: &'a str,
}

impl RunService {
    /// A value of a run of the caller, whole.
    pub async fn run_value(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
        wanted: &ReadValue<'_>,
    ) -> Result<Value, Error> {
        let read = self.read_run(who, run_id).await?;
        let value = match wanted.step {
            None => run_part(&read, wanted.part),
            Some(path) => {
                let step = find_step(read.view(), path)?;
                match wanted.part {
                    ValuePart::Input => step.input.clone(),
                    ValuePart::Output => step.output.clone(),
                    ValuePart::Error => step.error.as_ref().map_or(Value::Null, json_of),
                    ValuePart::Context => Value::Null,
                }
            }
        };
        let nothing = || Error::not_found(format!("there is no value at `{}`", wanted.pointer));
        at_pointer(&value, wanted.pointer).cloned().ok_or_else(nothing)
    }

    /// A part of such a value.
    pub async fn value_page(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
        wanted: &ReadValue<'_>,
        (offset, limit): (usize, Option<usize>),
    ) -> Result<ValuePage, Error> {
        let value = self.run_value(who, run_id, wanted).await?;
        Ok(ValuePage::of(&value, offset, limit))
    }
}

fn run_part(read: &ReadRun, part: ValuePart) -> Value {
    let run = &read.loaded.run;
    let (input, context) = run.input_and_context();
    match part {
        ValuePart::Input => run.redact_value(input),
        ValuePart::Context => run.redact_value(context),
        ValuePart::Output => read.view().output.clone(),
        ValuePart::Error => json_of(&read.view().errors),
    }
}

fn find_step<'a>(view: &'a RunView, path: &str) -> Result<&'a StepView, Error> {
    // Of several attempts of a body, the last one.
    let found = view.steps.iter().rev().find(|step| *step.id == *path);
    found.ok_or_else(|| Error::not_found(format!("the run has no step `{path}`")))
}

/// Which steps of a run to list.
#[derive(Clone, Debug, Default)]
pub struct ListSteps<'a> {
    /// Those inside this step; without one, those of the composition itself.
    pub parent: Option<&'a str>,
    /// Also those inside them, at any depth.
    pub is_deep: bool,
    /// Only those with one of these statuses; empty means all.
    pub statuses: Vec<StepStatus>,
    /// How many to skip.
    pub offset: usize,
    /// How many at most.
    pub limit: usize,
}

/// A page of steps.
#[derive(Serialize, JsonSchema)]
pub struct StepList {
    /// In the order of the run. Large values are cut.
    pub steps: Vec<StepView>,
    /// How many fit in all.
    pub total: usize,
    /// How many of the steps there have each status, whichever statuses were asked for.
    pub counts: BTreeMap<&'static str, usize>,
    /// The failures of the steps there by their messages, the most frequent first.
    pub failed_groups: Vec<FailedGroup>,
}

/// Failures with the same message.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FailedGroup {
    /// The kind of failure.
    pub code: Code,
    /// The message.
    pub message: String,
    /// How many steps failed with it.
    pub count: usize,
    /// The first of them.
    pub first: Arc<str>,
}

impl RunService {
    /// Steps of a run of the caller.
    pub async fn run_steps(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
        wanted: &ListSteps<'_>,
    ) -> Result<StepList, Error> {
        let read = self.read_run(who, run_id).await?;
        let view = read.view();
        if let Some(parent) = wanted.parent {
            find_step(view, parent)?;
        }
        let inside = view.steps.iter().filter(|step| is_inside(&step.id, wanted));
        let inside: Vec<&StepView> = inside.collect();
        let mut counts = BTreeMap::new();
        for step in &inside {
            *counts.entry(step.status.as_str()).or_default() += 1;
        }
        let has_status = |step: &&&StepView| {
            wanted.statuses.is_empty() || wanted.statuses.contains(&step.status)
        };
        let fitting: Vec<&StepView> = inside.iter().filter(has_status).copied().collect();
        let mut budget = CutBudget::new(SHOWN_BYTES_MAX);
        let page = fitting.iter().skip(wanted.offset).take(wanted.limit);
        let steps = page.map(|step| {
            let mut step = (*step).clone();
            cut_step(&mut budget, &mut step);
            step
        });
        Ok(StepList {
            steps: steps.collect(),
            total: fitting.len(),
            counts,
            failed_groups: failed_groups(&inside),
        })
    }
}

/// Whether a path is directly inside a step, or anywhere inside it.
fn is_inside(path: &str, wanted: &ListSteps<'_>) -> bool {
    let depth = match wanted.parent {
        None => path.matches('/').count(),
        Some(parent) => match path.strip_prefix(parent) {
            Some(rest) if rest.starts_with(['/', '[', '~']) => rest.matches('/').count() - 1,
            _ => return false,
        },
    };
    wanted.is_deep || depth == 0
}

fn failed_groups(steps: &[&StepView]) -> Vec<FailedGroup> {
    let mut groups: Vec<FailedGroup> = Vec::new();
    let mut known: HashMap<(Code, &str), usize> = HashMap::new();
    let failed = steps.iter().filter_map(|step| Some((*step, step.error.as_ref()?)));
    for (step, ErrorView { code, message, .. }) in failed {
        let at = *known.entry((*code, message)).or_insert_with(|| {
            let message = message.clone();
            groups.push(FailedGroup { code: *code, message, count: 0, first: step.id.clone() });
            groups.len() - 1
        });
        groups[at].count += 1;
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups.truncate(GROUPS_MAX);
    let mut budget = CutBudget::new(SHOWN_BYTES_MAX);
    groups.iter_mut().for_each(|group| budget.cut_text(&mut group.message));
    groups
}

/// A step of a run, with everything that is known of it.
#[derive(Serialize, JsonSchema)]
pub struct StepDetails {
    /// The step. Large values are cut.
    pub step: StepView,
    /// What its journal and its plan know.
    #[serde(flatten)]
    pub inspection: StepInspection,
}

/// The text of a run's composition.
#[derive(Serialize, JsonSchema)]
pub struct RunSource {
    /// The text that the run was made from.
    pub text: Arc<str>,
    /// Its file; null if it came with a request.
    pub file: Option<Arc<str>>,
    /// `yaml` or `json`.
    pub format: &'static str,
    /// Its dialect.
    pub dialect: Dialect,
    /// Whether a composition of this name is served with the same text now.
    pub current: bool,
    /// The place of each step.
    pub spans: Vec<StepPlaceView>,
}

/// Two runs beside each other.
#[derive(Serialize, JsonSchema)]
pub struct RunComparison {
    /// The one run.
    pub left: RunSummary,
    /// The other run.
    pub right: RunSummary,
    /// Whether both have the same plan.
    pub same_plan: bool,
    /// Their results and steps.
    #[serde(flatten)]
    pub comparison: StepsComparison,
}

impl RunService {
    /// A step of a run of the caller.
    pub async fn run_step(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
        path: &str,
    ) -> Result<StepDetails, Error> {
        let read = self.read_run(who, run_id).await?;
        let mut step = find_step(read.view(), path)?.clone();
        let unknown = || Error::not_found(format!("the run has no step `{path}`"));
        let run = &read.loaded.run;
        let node = run.find_step(path).ok_or_else(unknown)?;
        let mut inspection = run.inspect(node, &read.loaded.journal);
        let mut budget = CutBudget::new(SHOWN_BYTES_MAX);
        cut_step(&mut budget, &mut step);
        inspection.template = budget.cut(&inspection.template);
        for event in &mut inspection.rollback.events {
            event.arguments = budget.cut(&event.arguments);
        }
        Ok(StepDetails { step, inspection })
    }

    /// The plan of a run of the caller.
    pub async fn run_plan(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
    ) -> Result<PlanView, Error> {
        Ok(PlanView::from_plan(&self.read_run(who, run_id).await?.loaded.plan))
    }

    /// The text of a run of the caller.
    pub async fn run_source(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
    ) -> Result<RunSource, Error> {
        let read = self.read_run(who, run_id).await?;
        let composition = &read.loaded.plan.composition;
        let source = &composition.source;
        let served = self.catalog(who).tools.of_composition(&composition.name).cloned();
        let is_same = |text: &str| text == source.text();
        Ok(RunSource {
            text: source.text().into(),
            file: file_name(source),
            format: format_name(source),
            dialect: composition.dialect,
            current: served.is_some_and(|it| is_same(it.plan.composition.source.text())),
            spans: step_places(composition),
        })
    }

    /// Two runs of the caller beside each other.
    pub async fn compare_runs(
        self: &Arc<RunService>,
        who: &Principal,
        left: &str,
        right: &str,
    ) -> Result<RunComparison, Error> {
        let (left, right) = (self.read_run(who, left).await?, self.read_run(who, right).await?);
        Ok(RunComparison {
            left: self.summary(&left.loaded.row).await,
            right: self.summary(&right.loaded.row).await,
            same_plan: left.loaded.row.plan_hash == right.loaded.row.plan_hash,
            comparison: compare(left.view(), right.view()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_inside_others_by_their_paths() {
        let inside = |path, parent, is_deep| {
            is_inside(path, &ListSteps { parent, is_deep, ..ListSteps::default() })
        };
        assert!(inside("a", None, false) && !inside("a[1]/b", None, false));
        assert!(inside("a[1]/b", None, true) && inside("a[1]/b", Some("a"), false));
        assert!(!inside("a[1]/b/c", Some("a"), false) && inside("a[1]/b/c", Some("a[1]/b"), false));
        assert!(!inside("ab/c", Some("a"), true) && !inside("a", Some("a"), true));
        assert!(is_later_iteration("a[3]/b[100]/c") && !is_later_iteration("a[99]/b"));
    }
}
