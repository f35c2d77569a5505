//! Planning from natural language: a model proposes a plan for a user's request, and the compiler
//! accepts or rejects it.
//!
//! A [`Conversation`] is a state machine without I/O, like a run: events come in, the next effect
//! goes out. A model's answer is untrusted text. It is read strictly and compiled like every other
//! text, against tools with closed schemas; findings become the next message to the model. So an
//! accepted plan names only existing tools, parameters and declared fields, whatever the model
//! wrote.
//!
//! Not here: models and their protocols, ids and clocks (all in the runtime), storage of plans.

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

/// Delays before a model is called again. An overloaded model recovers in seconds.
const BACKOFF: Backoff = Backoff { initial_ms: 2_000, factor: 2.0, max_ms: 30_000, jitter: true };

/// The request, and the ids of its plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanQuery {
    /// The user's request.
    pub query: Arc<str>,
    /// `req_…`
    pub request_id: Arc<str>,
    /// `plan_…`
    pub plan_id: Arc<str>,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Segue, for the user.
    User,
    /// The model.
    Assistant,
}

/// The messages for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What the model is to do; comes before the messages. It never contains external text.
    pub instructions: &'static str,
    /// The messages, in order.
    pub messages: Vec<(Role, Arc<str>)>,
    /// The maximum length of its answer, in tokens.
    pub answer_tokens_max: usize,
}

/// Tokens used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens that the model read.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
}

impl Usage {
    /// The sum of both.
    pub fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// Why a model stopped writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The answer is complete.
    Finished,
    /// The answer reached the maximum length.
    Length,
    /// The model refused, perhaps with a reason.
    Refused(Arc<str>),
}

/// A model's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReply {
    /// Its text.
    pub text: Arc<str>,
    /// Why it ends.
    pub stop: StopReason,
    /// Its cost.
    pub usage: Usage,
}

/// An event of a conversation.
#[derive(Clone, Debug)]
pub enum ConversationEvent {
    /// The model answered.
    Answered(ModelReply),
    /// The model did not answer.
    Failed {
        /// The failure, and whether it is retryable.
        failure: Failure,
        /// Random bits for the jitter of the delay.
        entropy: u64,
    },
    /// The delay is over.
    BackoffElapsed,
}

/// The next action.
#[derive(Debug)]
pub enum ConversationEffect {
    /// Call the model.
    Ask(Prompt),
    /// Wait, then send [`ConversationEvent::BackoffElapsed`].
    Backoff {
        /// The delay.
        ms: u64,
    },
    /// The conversation is over, with this result.
    Finish(Result<Proposal, PlanningFailure>),
}

/// A plan that a model proposed and the compiler accepted.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The plan document, for the store or a file.
    pub document: Value,
    /// Warnings and hints.
    pub findings: Vec<Diagnostic>,
    /// The cost of planning.
    pub cost: PlanningCost,
}

/// Why planning failed.
#[derive(Clone, Debug)]
pub struct PlanningFailure {
    /// `llm`, or the reason why the model was not called.
    pub code: Code,
    /// The message.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Errors of the last answer.
    pub findings: Vec<Diagnostic>,
    /// The cost of planning.
    pub cost: PlanningCost,
}

/// The cost of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanningCost {
    /// Answers that the model gave.
    pub rounds: u32,
    /// Tokens.
    pub usage: Usage,
    /// Tools in the prompt.
    pub tools_shown: usize,
    /// Tools available.
    pub tools: usize,
}

/// The conversation with a model that leads to a plan.
pub struct Conversation {
    request: PlanQuery,
    /// The tools that answers are checked against.
    catalog: Catalog,
    limits: Arc<Limits>,
    messages: Vec<(Role, Arc<str>)>,
    cost: PlanningCost,
    /// Consecutive failures.
    failures: u32,
}

impl Conversation {
    /// Starts a conversation with these tools, and returns the first action.
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

    /// Handles an event, and returns the next action.
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
            return self.refuse(Code::Limit, message, Some("`llm_query_bytes_max` is the limit"));
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
            let message = format!("{spent} tokens gave no plan");
            let help = "`llm_tokens_max` is the limit of one request";
            return self.give_up(message, Some(help), Vec::new());
        }
        let (instructions, messages) = (INSTRUCTIONS, self.messages.clone());
        ConversationEffect::Ask(Prompt { instructions, messages, answer_tokens_max })
    }

    fn model_failed(&mut self, failure: &Failure, entropy: u64) -> ConversationEffect {
        self.failures += 1;
        let longest = self.limits.retry_after_ms_max;
        if let Some(after) = failure.retry_after_ms.filter(|after| *after > longest) {
            // An earlier retry would get the same answer.
            let seconds = after.div_ceil(1_000);
            let message = format!(
                "the model did not answer: {}; it asks to retry in {seconds} s",
                failure.message
            );
            let help = "retry then; `retry_after_ms_max` is the longest wait";
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
            return self.give_up(
                message,
                Some("rephrase the request, or use another model"),
                Vec::new(),
            );
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
                "the model found no tools for the request".to_owned()
            } else {
                format!("the model found no tools for the request: {why}")
            };
            return self.give_up(
                message,
                Some("`segue tools` lists what is available"),
                Vec::new(),
            );
        }
        self.check(reply, &answer)
    }

    /// Compiles a proposed plan against the tools, like every other text.
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

    /// Sends the findings to the model, unless the limit of rounds is reached.
    fn request_correction(
        &mut self,
        reply: &ModelReply,
        findings: Vec<Diagnostic>,
    ) -> ConversationEffect {
        let rounds = self.cost.rounds;
        if rounds >= self.limits.llm_rounds_max {
            let message = match rounds {
                1 => "the model's answer is not a valid plan".to_owned(),
                rounds => format!("the model gave no valid plan in {rounds} answers"),
            };
            let help = match reply.stop {
                StopReason::Length => "`llm_answer_tokens_max` is the limit of an answer",
                _ => "make the request more precise, or offer fewer tools with a toolset",
            };
            return self.give_up(message, Some(help), findings);
        }
        self.messages.push((Role::Assistant, reply.text.clone()));
        self.messages.push((Role::User, prompt::correction_message(&findings).into()));
        self.ask()
    }

    /// Ends the conversation before a model is called.
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

/// Whether a finding blocks a model's plan. A person may know better than a schema; a model cannot
/// be asked what it meant, so doubtful findings block too.
fn is_blocking(finding: &Diagnostic) -> bool {
    let is_advice = matches!(finding.code, Code::Practice | Code::Irreversible | Code::Unused);
    match finding.severity {
        Severity::Error => true,
        Severity::Warning => !is_advice,
        Severity::Hint => false,
    }
}

/// How many calls of a plan from words may run together.
const TOGETHER_MAX: u32 = 8;

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
    if let Some(count) = answer.max_concurrency.filter(|count| *count > 1) {
        let count = count.min(u64::from(TOGETHER_MAX));
        members.push(("max_concurrency", Value::from(count)));
    }
    Value::object(members)
}

/// The same plan with its effective execution order: dependencies first, otherwise the order of the
/// answer.
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

/// A copy of the plan for another request.
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

/// The beginning of a model's text, for an error.
fn excerpt(text: &str) -> String {
    const BYTES_MAX: usize = 500;
    let text = text.trim();
    if text.len() <= BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(BYTES_MAX)])
}
