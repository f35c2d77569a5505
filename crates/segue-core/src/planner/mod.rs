//! Words → plan: what somebody wants, in their own words, becomes a plan that a model proposes and
//! the compiler accepts.
//!
//! A [`Conversation`] is a machine that performs no I/O, like a run: what happened comes in, what to do
//! next goes out. A model's answer is text from outside. It is read strictly and compiled on the one
//! path that everything takes, against tools that have nothing but what they declare; findings become
//! the next message. So a plan that comes out names no tool, no parameter and no declared field that
//! does not exist, whatever the model wrote or was talked into.
//!
//! Not here: models and their protocols, ids and clocks (the runtime's), where plans are kept.

mod declared_only;
mod model_answer;
mod prompt;
mod search;
mod stored_plan;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::Catalog;
use crate::compile::{Compiled, compile};
use crate::composition::{Backoff, Composition};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::limits::Limits;
use crate::run::{Failure, delay_ms};
use crate::source::{Source, Span};
use crate::value::Value;
use model_answer::ProposedPlan;

pub use prompt::{INSTRUCTIONS, PromptTools};
pub use search::{is_same_query, rank_similar};
pub use stored_plan::{PlanOrigin, PlanState, PlannedView, StoredPlan};

/// How long to rest before a model is asked once more. Models that are busy are so for seconds.
const BACKOFF: Backoff = Backoff { initial_ms: 2_000, factor: 2.0, max_ms: 30_000, jitter: true };

/// What is wanted, and what the plan will be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanQuery {
    /// In somebody's own words.
    pub query: Arc<str>,
    /// `req_…`
    pub request_id: Arc<str>,
    /// `plan_…`
    pub plan_id: Arc<str>,
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We do.
    User,
    /// The model does.
    Assistant,
}

/// What a model is to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What was said, in order. The instructions come before it.
    pub messages: Vec<(Role, Arc<str>)>,
    /// Tokens that its answer may have.
    pub answer_tokens_max: usize,
}

/// Tokens that were paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// What the model read.
    pub input_tokens: u64,
    /// What it wrote.
    pub output_tokens: u64,
}

impl Usage {
    /// Both.
    pub fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// Why a model stopped writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It had said everything.
    Finished,
    /// It may not write more.
    Length,
    /// It will not do this, perhaps saying why.
    Refused(Arc<str>),
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReply {
    /// Its words.
    pub text: Arc<str>,
    /// Why there are no more of them.
    pub stop: StopReason,
    /// What they cost.
    pub usage: Usage,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum ConversationEvent {
    /// The model answered.
    Answered(ModelReply),
    /// It did not.
    Failed {
        /// Why, and whether asking again may help.
        failure: Failure,
        /// Random bits, for the length of the rest.
        entropy: u64,
    },
    /// The rest is over.
    BackoffElapsed,
}

/// What to do next.
#[derive(Debug)]
pub enum ConversationEffect {
    /// Ask the model.
    Ask(Prompt),
    /// Wait, then say so.
    Backoff {
        /// How long.
        ms: u64,
    },
    /// Nothing: this is what came of it.
    Finish(Result<Proposal, PlanningFailure>),
}

/// A plan that a model proposed and the compiler accepted.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The plan, as it is kept and can be written to a file.
    pub document: Value,
    /// What is worth knowing of it.
    pub findings: Vec<Diagnostic>,
    /// How it came about.
    pub cost: PlanningCost,
}

/// Why there is no plan.
#[derive(Clone, Debug)]
pub struct PlanningFailure {
    /// `llm`, or what kept the model from being asked.
    pub code: Code,
    /// In a sentence.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// What was wrong with the last answer.
    pub findings: Vec<Diagnostic>,
    /// What it cost nevertheless.
    pub cost: PlanningCost,
}

/// What a conversation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanningCost {
    /// Answers that were looked at.
    pub rounds: u32,
    /// Tokens.
    pub usage: Usage,
    /// Tools that the model was told of.
    pub tools_shown: usize,
    /// Tools that there are.
    pub tools: usize,
}

/// The way from words to a plan.
pub struct Conversation {
    request: PlanQuery,
    /// What answers are held against.
    catalog: Catalog,
    limits: Arc<Limits>,
    messages: Vec<(Role, Arc<str>)>,
    cost: PlanningCost,
    /// Failures in a row.
    failures: u32,
}

impl Conversation {
    /// A conversation about this, with these tools, and what to do first.
    pub fn start(
        asked: PlanQuery,
        catalog: &Catalog,
        limits: Arc<Limits>,
    ) -> (Conversation, ConversationEffect) {
        let shown = PromptTools::select(&asked.query, catalog, &limits);
        let first = prompt::first_message(&asked.query, &shown);
        let cost =
            PlanningCost { tools_shown: shown.count(), tools: shown.of, ..PlanningCost::default() };
        let mut conversation = Conversation {
            catalog: declared_only::with_closed_schemas(catalog),
            messages: vec![(Role::User, first.into())],
            failures: 0,
            request: asked,
            limits,
            cost,
        };
        let effect = conversation.check_query(&shown);
        (conversation, effect)
    }

    /// What follows from what happened.
    pub fn handle(&mut self, event: ConversationEvent) -> ConversationEffect {
        match event {
            ConversationEvent::BackoffElapsed => self.ask(),
            ConversationEvent::Failed { failure, entropy } => self.model_failed(&failure, entropy),
            ConversationEvent::Answered(reply) => {
                self.failures = 0;
                self.cost.rounds += 1;
                let usage = &mut self.cost.usage;
                usage.input_tokens = usage.input_tokens.saturating_add(reply.usage.input_tokens);
                usage.output_tokens = usage.output_tokens.saturating_add(reply.usage.output_tokens);
                self.model_replied(&reply)
            }
        }
    }

    fn check_query(&mut self, shown: &PromptTools) -> ConversationEffect {
        let bytes_max = self.limits.llm_query_bytes_max;
        if self.request.query.trim().is_empty() {
            let message = "there is nothing to plan: the query is empty";
            return self.refuse(Code::InvalidField, message, None);
        }
        if self.request.query.len() > bytes_max {
            let message = format!("the query is over {bytes_max} bytes");
            return self.refuse(Code::Limit, message, Some("`llm_query_bytes_max` bounds it"));
        }
        if shown.count() == 0 {
            let help = "`segue tools` lists them; a toolset may leave none";
            return self.give_up("there are no tools to plan with", Some(help), Vec::new());
        }
        self.ask()
    }

    fn ask(&mut self) -> ConversationEffect {
        let answer_tokens_max = self.limits.llm_answer_tokens_max;
        let spent = self.cost.usage.total();
        if spent >= self.limits.llm_tokens_max {
            let message = format!("no plan came of {spent} tokens");
            let help = "`llm_tokens_max` bounds what one request may cost";
            return self.give_up(message, Some(help), Vec::new());
        }
        ConversationEffect::Ask(Prompt { messages: self.messages.clone(), answer_tokens_max })
    }

    fn model_failed(&mut self, failure: &Failure, entropy: u64) -> ConversationEffect {
        self.failures += 1;
        let longest = self.limits.retry_after_ms_max;
        if let Some(after) = failure.retry_after_ms.filter(|after| *after > longest) {
            // Asked earlier, it would say the same.
            let seconds = after.div_ceil(1_000);
            let message = format!(
                "the model did not answer: {}; it wants to be asked again in {seconds} s",
                failure.message
            );
            let help = "ask again then; `retry_after_ms_max` bounds how long it is waited for";
            return self.give_up(message, Some(help), Vec::new());
        }
        if failure.retryable && self.failures <= self.limits.llm_retries_max {
            let next = self.failures + 1;
            return ConversationEffect::Backoff {
                ms: delay_ms(&BACKOFF, failure, next, entropy, &self.limits),
            };
        }
        let message = match self.failures {
            1 => format!("the model did not answer: {}", failure.message),
            times => format!("the model did not answer {times} times: {}", failure.message),
        };
        self.give_up(message, failure.hint.as_deref(), Vec::new())
    }

    fn model_replied(&mut self, reply: &ModelReply) -> ConversationEffect {
        if let StopReason::Refused(why) = &reply.stop {
            let why = if why.trim().is_empty() { &reply.text } else { why };
            let message = format!("the model refused: {}", excerpt(why));
            return self.give_up(message, Some("say it differently, or ask another"), Vec::new());
        }
        if reply.stop == StopReason::Length {
            let tokens = self.limits.llm_answer_tokens_max;
            let finding = llm_error(format!("the answer was cut off after {tokens} tokens"))
                .help("answer with a shorter plan, and keep `reasoning` short");
            return self.request_correction(reply, vec![finding]);
        }
        let answer = match model_answer::read(&reply.text, &self.limits) {
            Ok(answer) => answer,
            Err(findings) => return self.request_correction(reply, findings),
        };
        if answer.is_empty() {
            let why = excerpt(&answer.reasoning);
            let message = if why.is_empty() {
                "the model found no tools for it".to_owned()
            } else {
                format!("the model found no tools for it: {why}")
            };
            return self.give_up(message, Some("`segue tools` lists what there is"), Vec::new());
        }
        self.check(reply, &answer)
    }

    /// Holds a plan against the tools, as everything is that anybody writes.
    fn check(&mut self, reply: &ModelReply, answer: &ProposedPlan) -> ConversationEffect {
        let document = plan_document(&self.request, answer);
        let source = Source::new("answer.json", document.to_json());
        let Compiled { composition, diagnostics } = compile(&source, &self.catalog, &self.limits);
        let (objections, findings): (Vec<_>, Vec<_>) =
            diagnostics.into_iter().partition(is_blocking);
        if composition.is_some() && objections.is_empty() {
            let document = composition
                .map_or_else(|| document.clone(), |known| in_execution_order(&document, &known));
            let proposal = Proposal { document, findings, cost: self.cost };
            return ConversationEffect::Finish(Ok(proposal));
        }
        self.request_correction(reply, objections)
    }

    /// Tells the model what is wrong, unless that has been tried often enough.
    fn request_correction(
        &mut self,
        reply: &ModelReply,
        findings: Vec<Diagnostic>,
    ) -> ConversationEffect {
        let rounds = self.cost.rounds;
        if rounds >= self.limits.llm_rounds_max {
            let message = match rounds {
                1 => "the model's answer is no plan that could run".to_owned(),
                rounds => format!("the model gave no plan that could run in {rounds} answers"),
            };
            let help = match reply.stop {
                StopReason::Length => "`llm_answer_tokens_max` bounds how long an answer may be",
                _ => "say more precisely what is wanted, or offer fewer tools with a toolset",
            };
            return self.give_up(message, Some(help), findings);
        }
        self.messages.push((Role::Assistant, reply.text.clone()));
        self.messages.push((Role::User, prompt::correction_message(&findings).into()));
        self.ask()
    }

    /// What nobody needs a model to see.
    fn refuse(
        &self,
        code: Code,
        message: impl Into<String>,
        help: Option<&str>,
    ) -> ConversationEffect {
        let (message, help) = (message.into(), help.map(ToOwned::to_owned));
        let (findings, cost) = (Vec::new(), self.cost);
        ConversationEffect::Finish(Err(PlanningFailure { code, message, help, findings, cost }))
    }

    fn give_up(
        &self,
        message: impl Into<String>,
        help: Option<&str>,
        findings: Vec<Diagnostic>,
    ) -> ConversationEffect {
        ConversationEffect::Finish(Err(PlanningFailure {
            code: Code::Llm,
            message: message.into(),
            help: help.map(ToOwned::to_owned),
            findings,
            cost: self.cost,
        }))
    }
}

/// Whether a finding keeps a model's plan from being taken. A person may know better than a schema;
/// of a model nobody can ask what it meant, so what is doubtful is refused, too.
fn is_blocking(finding: &Diagnostic) -> bool {
    let is_advice = matches!(finding.code, Code::Practice | Code::Irreversible | Code::Unused);
    match finding.severity {
        Severity::Error => true,
        Severity::Warning => !is_advice,
        Severity::Hint => false,
    }
}

/// The plan document of an answer.
fn plan_document(asked: &PlanQuery, answer: &ProposedPlan) -> Value {
    let text = |text: &Arc<str>| Value::String(text.clone());
    let mut members = vec![
        ("dialect", Value::from("plan")),
        ("name", Value::from("plan")),
        ("query", text(&asked.query)),
        ("requestId", text(&asked.request_id)),
        ("planId", text(&asked.plan_id)),
    ];
    if !answer.reasoning.trim().is_empty() {
        members.push(("reasoning", text(&answer.reasoning)));
    }
    members.push(("tools", answer.tools.clone()));
    members.push(("executionOrder", answer.order.clone()));
    Value::object(members)
}

/// The same plan with the order in which its calls will be made: what a call needs comes first, whatever
/// the answer says of it, and otherwise the answer's order holds.
fn in_execution_order(document: &Value, composition: &Composition) -> Value {
    let Value::Object(members) = document else { return document.clone() };
    let steps = &composition.body.steps;
    let mut order: Vec<usize> = Vec::with_capacity(steps.len());
    while let Some(next) = (0..steps.len()).find(|at| {
        let is_ready = || steps[*at].needs.iter().all(|need| order.contains(&need.position));
        !order.contains(at) && is_ready()
    }) {
        order.push(next);
    }
    let ids = order.iter().map(|at| Value::String(steps[*at].id.clone()));
    let mut members = (**members).clone();
    members.insert("executionOrder".into(), Value::from(ids.collect::<Vec<_>>()));
    members.into()
}

/// The same plan for another request.
pub fn copy_for_query(document: &Value, asked: &PlanQuery) -> Value {
    let Value::Object(members) = document else { return document.clone() };
    let mut members = (**members).clone();
    for (name, value) in
        [("query", &asked.query), ("requestId", &asked.request_id), ("planId", &asked.plan_id)]
    {
        members.insert(name.into(), Value::String(value.clone()));
    }
    members.into()
}

fn llm_error(message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(Code::Llm, message, Span::default())
}

/// The beginning of what a model said, for an error.
fn excerpt(text: &str) -> String {
    const BYTES_MAX: usize = 500;
    let text = text.trim();
    if text.len() <= BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(BYTES_MAX)])
}
