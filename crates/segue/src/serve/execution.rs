//! A run that somebody describes: which composition, with what, and how.
//!
//! Every door takes the same words for it: one of `composition`, `template_id` and `name`, then
//! `input`, `context` and `options`. What somebody wrote, and a template that somebody kept, runs for
//! those who may compose, held to what they may compose of.

use std::sync::Arc;

use segue_core::access::{Principal, Right};
use segue_core::composition::{StepKind, Strategy};
use segue_core::diagnostic::{Diagnostic, Severity};
use segue_core::document::{self, ReadLimits};
use segue_core::duration::parse_duration;
use segue_core::plan::Plan;
use segue_core::run::Options;
use segue_core::source::Source;
use segue_core::template::TemplateOrigin;
use segue_core::value::{Map, Value};
use segue_core::view::TemplateView;
use segue_runtime::engine::Engine;
use segue_runtime::library::LibraryError;

use super::hall::Hall;
use super::threads::calculate;

/// A run that somebody asks for.
pub struct Execution {
    /// What to run.
    pub plan: Arc<Plan>,
    /// Its input.
    pub input: Value,
    /// What it requires of its caller.
    pub context: Value,
    /// What else is asked for.
    pub options: Options,
    /// Whether nothing is to be called.
    pub dry_run: bool,
    /// Whose run it is, held to the tools that it may use.
    pub who: Principal,
}

/// Why a description describes nothing that can run.
#[derive(Debug)]
pub enum Undescribed {
    /// It makes no sense.
    Wrong(String),
    /// It names a composition that is not served.
    Unknown(String),
    /// Whoever describes it may not have it.
    Forbidden(String),
    /// The template cannot be had, or kept.
    Library(LibraryError),
    /// The composition does not compile.
    Findings {
        /// Its text.
        source: Source,
        /// Everything that was found.
        diagnostics: Vec<Diagnostic>,
    },
}

impl std::fmt::Display for Undescribed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Undescribed::Wrong(message)
            | Undescribed::Unknown(message)
            | Undescribed::Forbidden(message) => f.write_str(message),
            Undescribed::Library(error) => write!(f, "{error}"),
            Undescribed::Findings { source, diagnostics } => {
                f.write_str("the composition does not compile:\n")?;
                let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error);
                for finding in errors {
                    let view = finding.view(source);
                    let help = finding.help.as_ref().map(|h| format!(" ({h})")).unwrap_or_default();
                    writeln!(f, "- line {}: {} [{}]{help}", view.line, view.message, view.code)?;
                }
                Ok(())
            }
        }
    }
}

/// The run that is described.
pub async fn execution(
    hall: &Hall,
    who: &Principal,
    described: &Value,
) -> Result<Execution, Undescribed> {
    let (subject, dry_run) = (subject(hall, who, described).await?, is_dry(described));
    // A dry run calls nothing: it is a way to check.
    if matches!(subject, Subject::Own(_)) && !dry_run {
        needs(
            who,
            Right::Compose,
            "run a composition that it wrote",
            "what is served needs `run`",
        )?;
    }
    let who = subject.runs_as(who);
    let plan = planned(hall, &who, subject)?;
    // Nothing, and the word for it, are the same.
    let given = |name| described.get(name).filter(|value| !value.is_null()).cloned();
    let or_empty = |name| given(name).unwrap_or_else(Value::empty_object);
    Ok(Execution {
        plan,
        input: or_empty("input"),
        context: or_empty("context"),
        options: options(&who, described)?,
        dry_run,
        who,
    })
}

/// Says what is missing, unless somebody has a right.
fn needs(who: &Principal, right: Right, what: &str, instead: &str) -> Result<(), Undescribed> {
    if who.may(right) {
        return Ok(());
    }
    let message =
        format!("`{}` may not {what}: it needs `{}`; {instead}", who.name, right.as_str());
    Err(Undescribed::Forbidden(message))
}

/// How a run is described: its `options`.
pub fn options(who: &Principal, described: &Value) -> Result<Options, Undescribed> {
    let given = |name| described.get("options")?.get(name).cloned();
    let approved = given("approved").and_then(|yes| yes.as_bool()).unwrap_or(false);
    if approved {
        let instead = "without `approved` the run asks, and waits for somebody who may";
        needs(who, Right::Approve, "consent beforehand with `options.approved`", instead)?;
    }
    let concurrency = given("max_concurrency").and_then(|n| n.as_u64());
    Ok(Options {
        timeout_ms: timeout_ms(given("timeout").as_ref())?,
        max_concurrency: concurrency.and_then(|n| u32::try_from(n).ok()),
        strategy: given("error_strategy").and_then(|word| Strategy::parse(word.as_str()?)),
        approved,
        ..Options::default()
    })
}

/// Whether a description says that nothing is to be called.
pub fn is_dry(described: &Value) -> bool {
    let options = described.get("options");
    options.and_then(|options| options.get("dry_run")?.as_bool()).unwrap_or(false)
}

/// The plan that is described, of whatever is there: a composition, a template, or a name.
pub async fn described_plan(
    hall: &Hall,
    who: &Principal,
    described: &Value,
) -> Result<Arc<Plan>, Undescribed> {
    let subject = subject(hall, who, described).await?;
    planned(hall, &subject.runs_as(who), subject)
}

/// What is described, as whoever it runs as would run it.
fn planned(hall: &Hall, who: &Principal, subject: Subject) -> Result<Arc<Plan>, Undescribed> {
    match subject {
        Subject::Served(plan) => Ok(plan),
        Subject::Own(source) | Subject::Template(source) | Subject::KeptTemplate(source) => {
            let engine = hall.served(who).engine;
            let (plan, diagnostics) = calculate(|| engine.plan(&source));
            plan.ok_or(Undescribed::Findings { source, diagnostics })
        }
    }
}

/// What is described. What is not served may compile.
pub enum Subject {
    /// A composition that whoever describes it wrote.
    Own(Source),
    /// A template that comes with Segue or from a file of the operator.
    Template(Source),
    /// A template that somebody kept.
    KeptTemplate(Source),
    /// A composition that is served.
    Served(Arc<Plan>),
}

impl Subject {
    /// Whoever runs it, held to what it may use. A model that keeps a template runs it as its author.
    pub fn runs_as(&self, who: &Principal) -> Principal {
        match self {
            Subject::Own(_) | Subject::KeptTemplate(_) => who.as_author(),
            Subject::Template(_) | Subject::Served(_) => who.clone(),
        }
    }
}

/// What is described, uncompiled.
pub async fn subject(
    hall: &Hall,
    who: &Principal,
    described: &Value,
) -> Result<Subject, Undescribed> {
    let given = |name| described.get(name).filter(|value| !value.is_null());
    match ["composition", "template_id", "name"].map(given) {
        [Some(composition), None, None] => Ok(Subject::Own(source(composition))),
        [None, Some(id), None] => {
            let library = hall.served(who).library;
            let volume = library.stored_template(id.as_str().unwrap_or("")).await?;
            Ok(match volume.origin {
                TemplateOrigin::Shipped | TemplateOrigin::File => Subject::Template(volume.source),
                TemplateOrigin::Store => Subject::KeptTemplate(volume.source),
            })
        }
        [None, None, Some(name)] => {
            let name = name.as_str().unwrap_or("");
            let served = hall.served(who);
            let offer = served.offers.get(name).or_else(|| served.offers.of_composition(name));
            let unknown = || Undescribed::Unknown(format!("no composition `{name}` is served"));
            Ok(Subject::Served(offer.ok_or_else(unknown)?.plan.clone()))
        }
        _ => {
            let message = "give one of `composition`, `template_id` and `name`";
            Err(Undescribed::Wrong(message.to_owned()))
        }
    }
}

/// Keeps a template, whose composition may be text. Others run it without a right to compose, so whoever
/// keeps one needs that right, and is held to what they may compose of.
pub async fn keep_template(
    hall: &Hall,
    who: &Principal,
    mut template: Map,
    may_replace: bool,
) -> Result<TemplateView, Undescribed> {
    needs(who, Right::Compose, "keep a template", "whoever keeps one says what others run")?;
    if let Some(Value::String(text)) = template.get("composition") {
        let source = Source::new("composition", text.clone());
        let composition = match document::read(&source, ReadLimits::for_documents(&hall.limits())) {
            Ok(node) => node.to_value(),
            Err(diagnostics) => return Err(Undescribed::Findings { source, diagnostics }),
        };
        template.insert("composition".into(), composition);
    }
    let text = Value::from(template).to_json();
    let served = hall.served(&who.as_author());
    if who.inline.is_some() && makes_compositions(&served.engine, &text) {
        let message = "a template that a host keeps has no `expand`: others would run what it makes, with \
                       tools that the host may not use";
        return Err(Undescribed::Forbidden(message.to_owned()));
    }
    Ok(served.library.put(&text, may_replace).await?)
}

/// Whether a template makes compositions as it runs, which nobody can check before.
fn makes_compositions(engine: &Engine, template: &str) -> bool {
    let (plan, _) = calculate(|| engine.plan(&Source::new("template", template)));
    let mut found = false;
    if let Some(plan) = plan {
        let body = &plan.composition.body;
        body.walk(&mut |step| found |= matches!(step.kind, StepKind::Expand(_)));
    }
    found
}

impl From<LibraryError> for Undescribed {
    fn from(error: LibraryError) -> Undescribed {
        match error {
            LibraryError::InvalidTemplate { text: source, diagnostics } => {
                Undescribed::Findings { source, diagnostics }
            }
            other => Undescribed::Library(other),
        }
    }
}

/// The text of a composition that came as text or as an object.
pub fn source(composition: &Value) -> Source {
    match composition {
        Value::String(text) => Source::new("composition", text.clone()),
        other => {
            Source::new("composition", serde_json::to_string_pretty(other).unwrap_or_default())
        }
    }
}

/// A duration: words such as `30s`, or a whole number of nanoseconds, as Go writes them.
fn timeout_ms(timeout: Option<&Value>) -> Result<Option<u64>, Undescribed> {
    let Some(timeout) = timeout.filter(|timeout| !timeout.is_null()) else { return Ok(None) };
    let wrong =
        || Undescribed::Wrong(format!("`{}` is no duration; write `30s` or `2m`", shown(timeout)));
    if let Some(nanos) = timeout.as_u64() {
        // Zero is Go's word for none.
        return Ok((nanos > 0).then(|| nanos.div_ceil(1_000_000)));
    }
    timeout.as_str().and_then(parse_duration).map(Some).ok_or_else(wrong)
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_json(), str::to_owned)
}
