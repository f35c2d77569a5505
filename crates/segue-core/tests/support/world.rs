//! A world for the machine: tools that answer as `world.yaml` says, in simulated time.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt::Write as _;
use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::composition::Strategy;
use segue_core::diagnostic::Code;
use segue_core::document::{Node, ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::plan::{Plan, plan};
use segue_core::run::{
    Answer, Call, Effect, Entry, Event, EventKind, Fact, Failure, NodeId, Options, PartTarget,
    Question, QuestionKind, Run, Started, StepSelection,
};
use segue_core::source::Source;
use segue_core::types::Type;
use segue_core::value::{Map, Value};
use segue_core::view::RunView;

/// Default latency of a call, in milliseconds.
const LATENCY_DEFAULT: u64 = 10;

/// The tools and people around a run.
pub trait Around {
    /// The parameters of the run.
    fn started(&self) -> Started;
    /// The part of the composition that it performs, or why it cannot.
    fn selection(&self, _plan: &Arc<Plan>, _catalog: &Catalog) -> Result<StepSelection, String> {
        Ok(StepSelection::default())
    }
    /// When the run is cancelled, if at all.
    fn cancel_at(&self) -> Option<u64>;
    /// When a rollback is requested, if at all.
    fn roll_back_at(&self) -> Option<u64> {
        None
    }
    /// Whether the engine stops after this turn, counting from one.
    fn crashes_after(&self, _turn: usize) -> bool {
        false
    }
    /// How long the compilation of an expanded composition takes.
    fn check_ms(&self) -> u64 {
        0
    }
    /// How long a call takes.
    fn latency(&mut self, call: &Call) -> u64;
    /// How a call is answered.
    fn answer(&mut self, call: &Call, catalog: &Catalog) -> Answer;
    /// The resume handle of a call, if the tool returns one at once.
    fn handle(&self, _call: &Call) -> Option<Value> {
        None
    }
    /// The answer to a question, with its data; `None` if there is none.
    fn decide(&mut self, question: &Question) -> Option<(bool, Value)>;
}

/// What `world.yaml` says.
pub struct World {
    spec: Node,
    /// How often each step was answered.
    answered: BTreeMap<Arc<str>, usize>,
    /// Doubts that have an answer; there is no second one.
    cleared: BTreeSet<Arc<str>>,
}

/// A finished run and its journal.
pub struct Outcome {
    pub journal: Vec<Entry>,
    pub view: RunView,
    pub text: String,
    /// The length of the journal at each crash.
    pub crashes: Vec<usize>,
}

/// Something that happens at a time; of two at the same time, the one that was set first.
struct Pending {
    at_ms: u64,
    order: u64,
    kind: EventKind,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Pending) -> bool {
        (self.at_ms, self.order) == (other.at_ms, other.order)
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Pending) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Pending) -> std::cmp::Ordering {
        (other.at_ms, other.order).cmp(&(self.at_ms, self.order))
    }
}

impl World {
    pub fn parse(text: &str) -> World {
        let source = Source::new("world.yaml", text);
        let spec = read(&source, ReadLimits::for_documents(&Limits::default())).unwrap();
        World { spec, answered: BTreeMap::new(), cleared: BTreeSet::new() }
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.spec.get(name).map(Node::to_value)
    }
}

impl Around for World {
    fn check_ms(&self) -> u64 {
        self.value("check_ms").and_then(|ms| ms.as_u64()).unwrap_or(0)
    }

    fn started(&self) -> Started {
        let options = self.value("options").unwrap_or_default();
        let number = |name: &str| options.get(name).and_then(Value::as_u64);
        Started {
            run_id: "run".into(),
            request_id: "req".into(),
            plan_id: "plan".into(),
            chain_id: "chain".into(),
            input: self.value("input").unwrap_or_else(Value::empty_object),
            context: self.value("context").unwrap_or_else(Value::empty_object),
            options: Options {
                timeout_ms: number("timeout_ms"),
                max_concurrency: number("max_concurrency").map(|n| u32::try_from(n).unwrap()),
                strategy: options.get("strategy").and_then(Value::as_str).and_then(Strategy::parse),
                // Without `decide`, everything is approved in advance.
                approved: self.spec.get("decide").is_none()
                    || options.get("approved").and_then(Value::as_bool) == Some(true),
                consented: false,
                vouched: false,
            },
            plan_hash: None,
            engine: "test".into(),
            caller: None,
            trace: None,
            part: None,
        }
    }

    /// `part` says it: `until`, or `only` on the values of a run in the world `earlier`, and `mocks`.
    fn selection(&self, plan: &Arc<Plan>, catalog: &Catalog) -> Result<StepSelection, String> {
        let Some(part) = self.spec.get("part") else { return Ok(StepSelection::default()) };
        let limits = Arc::new(Limits::default());
        let mocks = part.get("mocks").map_or(&[][..], Node::members);
        let mocks: Vec<(Arc<str>, Value)> =
            mocks.iter().map(|mock| (mock.key.clone(), mock.value.to_value())).collect();
        let text = |name: &str| part.get(name).and_then(Node::as_str);
        let earlier = part.get("earlier").map(|spec| {
            let spec = spec.clone();
            let mut world = World { spec, answered: BTreeMap::new(), cleared: BTreeSet::new() };
            let earlier = simulate(plan, &mut world, catalog);
            Run::replay(plan.clone(), limits.clone(), &earlier.journal).unwrap()
        });
        let target = match (text("until"), text("only"), &earlier) {
            (Some(step), ..) => PartTarget::Until(step),
            (None, Some(step), Some(earlier)) => PartTarget::Only { step, earlier },
            _ => PartTarget::Whole,
        };
        StepSelection::new(plan, target, &mocks, &limits).map_err(|errors| {
            let shown = errors.iter().map(|error| {
                let hint = error.hint.iter().map(|hint| format!(" ({hint})"));
                format!("{}: {}{}", error.code, error.message, hint.collect::<String>())
            });
            shown.collect::<Vec<_>>().join("\n")
        })
    }

    fn cancel_at(&self) -> Option<u64> {
        self.value("cancel_at").and_then(|at| at.as_u64())
    }

    fn roll_back_at(&self) -> Option<u64> {
        self.value("roll_back_at").and_then(|at| at.as_u64())
    }

    fn handle(&self, call: &Call) -> Option<Value> {
        self.spec.get("handles")?.get(&call.step).map(Node::to_value)
    }

    fn crashes_after(&self, turn: usize) -> bool {
        let turns = self.spec.get("crash_after").map_or(&[][..], Node::items);
        turns.iter().any(|at| at.to_value().as_u64() == Some(turn as u64))
    }

    /// Approvals are answered as `decide` says, doubts as `doubts` says: true, false, or a value
    /// that comes with a yes. What is null there, or a doubt that is not there, stays open.
    fn decide(&mut self, question: &Question) -> Option<(bool, Value)> {
        let is_doubt = matches!(question.kind, QuestionKind::Doubt { .. });
        if is_doubt && !self.cleared.insert(question.step.clone()) {
            return None;
        }
        let answers = self.spec.get(if is_doubt { "doubts" } else { "decide" });
        let answer = answers.and_then(|answers| answers.get(&question.step)).map(Node::to_value);
        match answer {
            None => (!is_doubt).then_some((false, Value::Null)),
            Some(Value::Bool(granted)) => Some((granted, Value::Null)),
            Some(Value::Null) => None,
            Some(data) => Some((true, data)),
        }
    }

    fn latency(&mut self, call: &Call) -> u64 {
        let step = &*call.step;
        let short = step.rsplit('/').next().unwrap_or(step);
        let latency =
            self.spec.get("latency").and_then(|node| node.get(step).or_else(|| node.get(short)));
        latency.and_then(|node| node.to_value().as_u64()).unwrap_or(LATENCY_DEFAULT)
    }

    /// The next answer of a step: what the world says, repeating the last one; else a value that
    /// matches the tool's schema. A step that a chain visits again continues with its answers.
    fn answer(&mut self, call: &Call, catalog: &Catalog) -> Answer {
        let path = match call.step.rsplit_once('#') {
            Some((path, _)) => path,
            None => &call.step,
        };
        let turn = self.answered.entry(path.into()).or_default();
        *turn += 1;
        let short = path.rsplit('/').next().unwrap_or(path);
        let answers = self.spec.get("answers");
        let said = answers.and_then(|a| a.get(path).or_else(|| a.get(short)));
        let said = said.map(|answers| {
            let items = answers.items();
            items[(*turn - 1).min(items.len() - 1)].clone()
        });
        match said {
            Some(said) => said_answer(&said),
            None => Answer::Value(stand_in(call, catalog)),
        }
    }
}

fn said_answer(said: &Node) -> Answer {
    if said.get("silent").is_some() {
        let mut failure = Failure::transient(Code::InDoubt, "the connection was lost");
        failure.in_doubt = true;
        return Answer::Failure(failure);
    }
    if let Some(message) = said.get("fail").and_then(Node::as_str) {
        let lasting = said.get("lasting").is_some();
        let mut failure = Failure::transient(Code::ToolError, message.clone());
        failure.retryable = !lasting;
        failure.retry_after_ms =
            said.get("retry_after_ms").and_then(|node| node.to_value().as_u64());
        return Answer::Failure(failure);
    }
    match said.get("value") {
        Some(value) => Answer::Value(value.to_value()),
        None => Answer::Value(said.to_value()),
    }
}

/// A valid answer: echoes the arguments without a schema, else the least value of the schema's
/// type.
pub fn stand_in(call: &Call, catalog: &Catalog) -> Value {
    let spec = catalog.get(&call.tool).unwrap();
    match &spec.output {
        None => call.args.clone(),
        Some(_) if call.tool.name().ends_with("echo") => call.args.clone(),
        Some(schema) => least(schema.ty()),
    }
}

fn least(ty: &Type) -> Value {
    match ty {
        Type::Any | Type::Null => Value::Null,
        Type::Bool => Value::Bool(true),
        Type::Integer | Type::Number => Value::from(1),
        Type::String => Value::from("x"),
        Type::Array(_) => Value::from(Vec::new()),
        Type::Object(object) => {
            let members = object.properties.iter().filter(|(_, p)| p.required);
            members.map(|(name, p)| (name.clone(), least(&p.ty))).collect::<Map>().into()
        }
        Type::OneOf(parts) => least(&parts[0]),
    }
}

/// Runs a plan in a world to its end, or until nothing more can happen.
pub fn simulate(planned: &Arc<Plan>, world: &mut dyn Around, catalog: &Catalog) -> Outcome {
    let limits = Arc::new(Limits::default());
    let mut run = Run::new(planned.clone(), limits.clone());
    let (mut journal, mut crashes) = (Vec::new(), Vec::new());
    let mut pending = BinaryHeap::new();
    let mut order = 0;
    let mut push = |pending: &mut BinaryHeap<Pending>, at_ms: u64, kind: EventKind| {
        order += 1;
        pending.push(Pending { at_ms, order, kind });
    };
    match world.selection(planned, catalog) {
        Ok(selection) => {
            let started = Box::new(world.started());
            push(&mut pending, 1, EventKind::StartPart { started, selection });
        }
        Err(why) => {
            return Outcome {
                journal,
                view: run.view(),
                text: format!("refused\n{why}\n"),
                crashes,
            };
        }
    }
    if let Some(at) = world.cancel_at() {
        push(&mut pending, at + 1, EventKind::Cancel { by: "somebody".into() });
    }
    if let Some(at) = world.roll_back_at() {
        push(&mut pending, at + 1, EventKind::RollBack { by: "somebody".into() });
    }
    let mut turns = 0;
    while let Some(Pending { at_ms, kind, .. }) = pending.pop() {
        if run.is_finished() && !matches!(kind, EventKind::RollBack { .. }) {
            continue;
        }
        turns += 1;
        let turn = run.handle(Event { at_ms, entropy: 0, kind });
        for effect in turn.perform {
            match effect {
                Effect::Call(call) => {
                    if let Some(handle) =
                        world.handle(&call).filter(|_| call.resume_handle.is_none())
                    {
                        let followed = EventKind::HandleReceived { call: call.id, handle };
                        push(&mut pending, at_ms, followed);
                    }
                    let took = world.latency(&call);
                    let (after, answer) = match call.timeout_ms {
                        Some(timeout) if timeout < took => (timeout, Answer::TimedOut),
                        _ => (took, world.answer(&call, catalog)),
                    };
                    push(
                        &mut pending,
                        at_ms + after,
                        EventKind::Answered { call: call.id, answer },
                    );
                }
                // Its answer arrives at its own time.
                Effect::Settle(_) => {}
                // An aborted call ends at once.
                Effect::Abort(call) => {
                    push(
                        &mut pending,
                        at_ms,
                        EventKind::Answered { call, answer: Answer::Aborted },
                    );
                }
                Effect::Ask(question) => {
                    if let Some((granted, data)) = world.decide(&question) {
                        let (question, by) = (question.id, "somebody".into());
                        let decided = EventKind::Decided { question, granted, by, data };
                        push(&mut pending, at_ms, decided);
                    }
                }
                Effect::Expand { node, document } => {
                    let outcome = expand(&document, catalog, &limits);
                    let at_ms = at_ms + world.check_ms();
                    push(&mut pending, at_ms, EventKind::Expanded { node, outcome });
                }
                Effect::SetTimer { timer, at_ms } => {
                    push(&mut pending, at_ms, EventKind::TimerFired(timer));
                }
            }
        }
        // As stored: without sensitive values.
        journal.extend(run.redacted(&turn.record).into_owned());
        if world.crashes_after(turns) {
            // Running calls are lost; another engine reads the journal a second later.
            crashes.push(journal.len());
            pending.clear();
            run = Run::replay(planned.clone(), limits.clone(), &journal).unwrap();
            push(&mut pending, at_ms + 1_000, EventKind::Resumed);
        }
    }
    // J3: the journal replays to the same run.
    let again = Run::replay(planned.clone(), limits, &journal).unwrap();
    assert_eq!(
        serde_json::to_string(&again.view()).unwrap(),
        serde_json::to_string(&run.view()).unwrap(),
        "a replayed journal gives another run"
    );
    let text = describe(&run, &journal);
    Outcome { view: run.view(), journal, text, crashes }
}

/// Compiles an expanded composition.
pub fn expand(document: &Value, catalog: &Catalog, limits: &Limits) -> Result<Arc<Plan>, Failure> {
    let source = Source::new("expanded.json", document.to_string());
    let compiled = compile(&source, catalog, limits);
    match compiled.composition {
        Some(composition) => Ok(Arc::new(plan(&composition, limits).unwrap())),
        None => {
            let first = &compiled.diagnostics[0];
            Err(Failure::permanent(first.code, first.message.clone()))
        }
    }
}

/// A journal and its result as text, one fact a line.
fn describe(run: &Run, journal: &[Entry]) -> String {
    let mut out = String::new();
    for entry in journal {
        let _ = writeln!(out, "{:>5} {}", entry.at_ms - 1, fact(run, &entry.fact));
    }
    let view = run.view();
    let _ = writeln!(out, "\nstatus: {}", view.status.as_str());
    let _ = writeln!(out, "output: {}", view.output);
    for error in &view.errors {
        let step = error.step.as_deref().unwrap_or("-");
        let doubt = if error.in_doubt { " (in doubt)" } else { "" };
        let _ = writeln!(
            out,
            "error: {step} {} after {} attempts: {}{doubt}",
            error.code, error.attempts, error.message
        );
    }
    for warning in &view.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    let (ran, ok, bad) = (view.steps_executed, view.steps_succeeded, view.steps_failed);
    let _ = writeln!(out, "steps: {ran} ran, {ok} succeeded, {bad} failed");
    out
}

fn fact(run: &Run, fact: &Fact) -> String {
    let path = |node: &NodeId| run.path(*node);
    match fact {
        Fact::Started(started) => format!("started with {}", started.input),
        Fact::ConsentAsked => "the run asks once".to_owned(),
        Fact::Consented { by } => format!("the run is approved by {by}"),
        Fact::Opened { node, item, .. } => match item {
            Some(item) => format!("{} opens item {} = {}", path(node), item.index, item.value),
            None => format!("{} opens a body", path(node)),
        },
        Fact::Entered { node, input, .. } => {
            format!("{} enters its composition with {input}", path(node))
        }
        Fact::Looped { node, items } => format!("{} loops over {} items", path(node), items.len()),
        Fact::Asked { node, args, .. } => format!("{} asks before {args}", path(node)),
        Fact::Granted { node, by } => format!("{} is granted by {by}", path(node)),
        Fact::Called { node, candidate: 0, args } => format!("{} called with {args}", path(node)),
        Fact::Called { node, candidate, args } => {
            format!("{} fallback {candidate} called with {args}", path(node))
        }
        Fact::BackedOff { node, failure, until_ms } => {
            format!("{} backs off until {}: {}", path(node), until_ms - 1, failure.message)
        }
        Fact::Woke { node } => format!("{} wakes", path(node)),
        Fact::GaveUp { node, failure } => format!("{} gives up: {}", path(node), failure.message),
        Fact::Reused { node, output, .. } => format!("{} is reused as {output}", path(node)),
        Fact::Pinned { node, output, .. } => format!("{} is given as {output}", path(node)),
        Fact::LeftOut { node } => format!("{} is left out", path(node)),
        Fact::Visited { frame, position } => format!("body {frame} continues with step {position}"),
        Fact::Expanding { node, document } => format!("{} has {document} checked", path(node)),
        Fact::Expanded { node, plan, input } => {
            format!("{} becomes `{}` with {input}", path(node), plan.composition.name)
        }
        Fact::Probed { node, failure, args } => {
            format!("{} is in doubt ({}), probed with {args}", path(node), failure.message)
        }
        Fact::Doubted { node, failure } => {
            format!("{} is in doubt, a person is asked: {}", path(node), failure.message)
        }
        Fact::Resolved { node, done, by } => {
            let what = if *done { "was done" } else { "was not done" };
            format!("{} {what}, says {by}", path(node))
        }
        Fact::Lost { node } => format!("{} was lost and is called again", path(node)),
        Fact::HandleReceived { node, handle } => format!("{} has the handle {handle}", path(node)),
        Fact::ResumeSent { node } => format!("{} is resumed by its handle", path(node)),
        Fact::Paused { node, until_ms } => format!("{} pauses until {}", path(node), until_ms - 1),
        Fact::Refused { node: None, by } => format!("{by} refuses the run"),
        Fact::Refused { node: Some(node), by } => format!("{} is refused by {by}", path(node)),
        Fact::CancelAsked { by } => format!("{by} cancels the run"),
        Fact::RollbackAsked { by } => format!("{by} requests a rollback"),
        Fact::Slept { node, until_ms } => format!("{} waits until {}", path(node), until_ms - 1),
        Fact::Succeeded { node, output, given } => {
            let given = given.as_ref().map_or_else(String::new, |given| {
                format!(", giving {}", Value::Object(given.clone()))
            });
            format!("{} succeeded with {output}{given}", path(node))
        }
        Fact::Tolerated { node, failure, output } => {
            format!("{} failed, tolerated as {output}: {}", path(node), failure.message)
        }
        Fact::Failed { node, failure } => format!("{} failed: {}", path(node), failure.message),
        Fact::Skipped { node, reason, .. } => format!("{} skipped: {reason}", path(node)),
        Fact::Cancelled { node, in_doubt } => {
            let doubt = if *in_doubt { ", in doubt" } else { "" };
            format!("{} cancelled{doubt}", path(node))
        }
        Fact::TimedOut { node, failure } => format!("{} ends: {}", path(node), failure.message),
        Fact::FailureDecided { node, failure } => {
            format!("{} will end: {}", path(node), failure.message)
        }
        Fact::AttemptRollbackStarted { node, failure, .. } => {
            format!("{} rolls its attempt back: {}", path(node), failure.message)
        }
        Fact::Stopped { frame, failure } => format!("body {frame} stops: {}", failure.message),
        Fact::Closed { frame, failed, .. } => {
            format!("body {frame} is over{}", if *failed { ", failed" } else { "" })
        }
        Fact::RollbackStarted { frame: 0, failure, .. } => {
            format!("rolls back: {}", failure.message)
        }
        Fact::RollbackStarted { frame, failure, .. } => {
            format!("body {frame} rolls back: {}", failure.message)
        }
        Fact::RollbackCalled { node, args } => {
            format!("{} rollback called with {args}", path(node))
        }
        Fact::RollbackEntered { node, input } => {
            format!("{} rollback enters its composition with {input}", path(node))
        }
        Fact::RollbackBackedOff { node, failure, until_ms } => {
            format!("{} rollback backs off until {}: {}", path(node), until_ms - 1, failure.message)
        }
        Fact::RolledBack { node } => format!("{} rolled back", path(node)),
        Fact::RollbackFailed { node, failure } => {
            format!("{} not rolled back: {}", path(node), failure.message)
        }
        Fact::ReferencesKept { node, references } => {
            format!("{} keeps {}", path(node), references.join(" and "))
        }
        Fact::AnsweredLate { node, attempt } => {
            format!("{} answer to attempt {attempt} came late", path(node))
        }
        Fact::Finished { status, .. } => format!("finished: {}", status.as_str()),
    }
}
