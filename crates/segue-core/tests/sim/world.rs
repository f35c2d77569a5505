//! The world of a seed: how long calls take, how they are answered, what people say, and what time
//! it is on the wall.
//!
//! What happens to a call depends on the seed, the call's key and its attempt alone. So it does not
//! depend on the order of calls, is the same again after a crash, and stays the same when a step is
//! taken out of the composition.

use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::plan::Plan;
use segue_core::run::{Answer, Call, Failure, Options, Purpose, Question, QuestionKind, Started};
use segue_core::value::Value;

use crate::case;
use crate::dice::Dice;

/// The wall clock, unless it jumps.
pub(crate) const EPOCH_MS: u64 = 1_700_000_000_000;

/// The longest that a call takes to answer or to end.
pub(crate) const LATENCY_MAX: u64 = 300;

const TEN_YEARS_MS: u64 = 10 * 365 * 24 * 3600 * 1000;

/// A world.
#[derive(Clone)]
pub(crate) struct World {
    seed: u64,
    /// Of a hundred answers, how many are failures.
    failures: u64,
    /// Whether all failures are transient.
    mild: bool,
    approved: bool,
    /// Whether the clock on the wall jumps.
    jumpy: bool,
    /// When the run is cancelled, and how often.
    cancels: Vec<u64>,
    latency_max: u64,
    /// How long calls that write take at most.
    writing_max: u64,
}

/// The environment of a run.
pub(crate) trait Surroundings {
    /// The parameters of the run.
    fn started(&self) -> Started;
    /// When the run is cancelled.
    fn cancels(&self) -> &[u64];
    /// What the clock on the wall shows at a moment.
    fn wall(&self, now: u64, turn: usize) -> u64;
    /// Random bits for a turn.
    fn entropy(&self, turn: usize) -> u64;
    /// How long the run is interrupted after the engine stopped.
    fn pause(&self, turn: usize) -> u64;
    /// What becomes of a call: the same whenever it is asked.
    /// `done_in`: when the work of its step is done, if it ever is, which a probe finds out.
    fn fate(&self, call: &Call, done_in: Option<u64>) -> Fate;
    /// The answer to the n-th question of a step; `None` if there is none. A person who is asked
    /// about a doubt looks closely.
    fn reply(&self, question: &Question, asked: u32, done_in: Option<u64>) -> Option<Reply>;
    /// Whether it keeps a ledger of effects that its people and probes know.
    fn keeps_ledger(&self) -> bool {
        true
    }
    /// The plan of a composition that was made at run time.
    fn expand(&self, document: &Value) -> Result<Arc<Plan>, Failure>;
}

/// What becomes of one call.
#[derive(Clone)]
pub(crate) struct Fate {
    pub(crate) latency: u64,
    pub(crate) answer: Answer,
    /// When the same answer comes a second time, after the first.
    pub(crate) again: Option<u64>,
    /// When it ends after an abort; absent if it continues to its own answer.
    pub(crate) ends: Option<u64>,
    /// Whether a call that timed out answers nevertheless, too late.
    pub(crate) late: bool,
    /// Its resume handle, and when the tool returns it.
    pub(crate) handle: Option<(u64, Value)>,
    /// When its effect lands, whatever becomes of the answer.
    pub(crate) lands: Option<u64>,
    /// Whether giving it up stops an effect that has not landed.
    pub(crate) is_stopped: bool,
    /// Whether it says nothing more once it is asked to settle.
    pub(crate) is_silent: bool,
    /// When its time is over, once it was made.
    pub(crate) deadline: Option<u64>,
}

/// What becomes of one question.
pub(crate) struct Reply {
    pub(crate) latency: u64,
    pub(crate) granted: bool,
    /// Data that comes with it: the value of a call in doubt.
    pub(crate) data: Value,
    /// A second reply that contradicts the first, and when.
    pub(crate) contradicted: Option<u64>,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut dice = Dice::for_thing(seed, "world");
        let failures = *dice.pick(&[0, 4, 15, 15, 30, 50]);
        let mut cancels = Vec::new();
        if dice.one_in(7) {
            cancels.push(dice.below(90));
            if dice.one_in(2) {
                cancels.push(cancels[0] + dice.below(40));
            }
        }
        World {
            seed,
            failures,
            mild: false,
            approved: dice.one_in(2),
            jumpy: dice.one_in(3),
            cancels,
            latency_max: *dice.pick(&[1, 10, 25, 60]),
            writing_max: *dice.pick(&[1, 10, 60, LATENCY_MAX, LATENCY_MAX]),
        }
    }

    /// A world in which some of a hundred calls fail, in a way that passes.
    pub(crate) fn mild(seed: u64, failures: u64) -> World {
        World {
            seed,
            failures,
            mild: true,
            approved: true,
            jumpy: false,
            cancels: Vec::new(),
            latency_max: 25,
            writing_max: 25,
        }
    }

    /// The same world with a clock that does not jump, or does.
    pub(crate) fn with_clock(&self, jumpy: bool) -> World {
        World { jumpy, ..self.clone() }
    }

    pub(crate) fn is_jumpy(&self) -> bool {
        self.jumpy
    }

    fn answer(&self, call: &Call, dice: &mut Dice) -> Answer {
        if dice.below(100) >= self.failures {
            return Answer::Value(self.value(call));
        }
        let passing = Failure::transient(Code::ToolError, "chance");
        if self.mild {
            return Answer::Failure(passing);
        }
        match dice.below(20) {
            0..=2 => Answer::Failure(Failure::permanent(Code::ToolError, "for good")),
            // What only reads has done nothing that could be in doubt.
            3..=5 if call.tool.name() != "read" => {
                let lost = Failure::transient(Code::InDoubt, "lost");
                Answer::Failure(Failure { in_doubt: true, ..lost })
            }
            6 | 7 => {
                let wait = Some(dice.below(100_000));
                Answer::Failure(Failure { retry_after_ms: wait, ..passing })
            }
            8 => Answer::Value(Value::Null),
            9 => Answer::Value(Value::from("not what was expected")),
            10 => Answer::Failure(Failure::permanent(Code::Denied, "the tool says no")),
            _ => Answer::Failure(passing),
        }
    }

    /// The answer to a resumed call: its own, or that the source does not know it.
    fn found(&self, call: &Call, dice: &mut Dice) -> Answer {
        let answer = self.answer(call, dice);
        match dice.below(6) {
            0 => Answer::Failure(Failure::transient(Code::Unreachable, "nobody is there")),
            1 => {
                let gone = Failure::transient(Code::InDoubt, "nobody knows of it");
                Answer::Failure(Failure { in_doubt: true, ..gone })
            }
            _ => answer,
        }
    }

    /// What a tool returns when it works: the same for the same work.
    fn value(&self, call: &Call) -> Value {
        let got = call.args.get("v").cloned().unwrap_or_default();
        if call.tool.name() == "plan" {
            return made(&mut Dice::for_thing(self.seed, &call.key), self.mild);
        }
        self.thing(&call.key, &got)
    }

    fn thing(&self, name: &str, got: &Value) -> Value {
        let mut dice = Dice::for_thing(self.seed, name);
        let id = format!("i{}", dice.below(1000));
        let mut n = i64::try_from(dice.below(10)).unwrap();
        if self.mild {
            n = n.min(8);
        }
        let list: Vec<Value> = (0..dice.below(4)).map(Value::from).collect();
        Value::object([
            ("id", Value::from(id)),
            ("n", Value::from(n)),
            ("list", Value::from(list)),
            ("got", got.clone()),
        ])
    }

    pub(crate) fn somebody() -> Arc<str> {
        "somebody".into()
    }
}

impl Surroundings for World {
    fn cancels(&self) -> &[u64] {
        &self.cancels
    }

    fn started(&self) -> Started {
        Started {
            run_id: format!("run-{}", self.seed).into(),
            request_id: "req".into(),
            plan_id: "plan".into(),
            chain_id: "chain".into(),
            input: Value::empty_object(),
            context: Value::empty_object(),
            options: Options { approved: self.approved, ..Options::default() },
            plan_hash: None,
            engine: "test".into(),
            caller: None,
            trace: None,
            part: None,
        }
    }

    fn wall(&self, now: u64, turn: usize) -> u64 {
        if !self.jumpy {
            return EPOCH_MS + now;
        }
        let mut dice = Dice::for_thing(self.seed, &format!("clock {turn}"));
        EPOCH_MS + now + dice.below(2 * TEN_YEARS_MS) - TEN_YEARS_MS
    }

    fn entropy(&self, turn: usize) -> u64 {
        Dice::for_thing(self.seed, &format!("entropy {turn}")).roll()
    }

    fn fate(&self, call: &Call, done_in: Option<u64>) -> Fate {
        let mut dice = Dice::for_thing(self.seed, &format!("{} {}", call.key, call.attempt));
        let writes = !matches!(call.tool.name(), "read" | "plan");
        let latency_max = if writes { self.writing_max } else { self.latency_max };
        let latency = dice.below(latency_max);
        let seen_in = done_in.filter(|_| call.purpose == Purpose::Probe);
        let latency = latency.max(seen_in.unwrap_or(0));
        let again = (!self.mild && dice.one_in(12)).then(|| latency + dice.below(30));
        let ends = (!dice.one_in(3)).then(|| dice.below(4));
        let late = dice.one_in(2);
        let answer = match &call.resume_handle {
            None => self.answer(call, &mut dice),
            Some(_) => self.found(call, &mut dice),
        };
        let answer = true_to(call, answer, done_in.is_some());
        let handle = Dice::for_thing(self.seed, &format!("handle {}", call.key))
            .one_in(3)
            .then(|| (latency / 2, Value::from(&*call.key)));
        let lands = match &answer {
            Answer::Value(_) => Some(dice.below(latency + 1)),
            Answer::Failure(failure) if !failure.in_doubt => None,
            _ => dice.one_in(2).then(|| dice.below(2 * latency_max + 40)),
        };
        // A resumed call was sent before: it is the same work.
        let sends = writes && (call.resume_handle.is_none() || matches!(answer, Answer::Value(_)));
        let lands = lands.filter(|_| sends);
        let (is_stopped, is_silent) = (dice.one_in(2), dice.one_in(3));
        Fate {
            latency,
            answer,
            again,
            ends,
            late,
            handle,
            lands,
            is_stopped,
            is_silent,
            deadline: None,
        }
    }

    /// The answer to the n-th question of a step. After some questions a person gives up.
    fn reply(&self, question: &Question, asked: u32, done_in: Option<u64>) -> Option<Reply> {
        let name = format!("ask {} {:?} {asked}", question.step, question.id.node);
        let mut dice = Dice::for_thing(self.seed, &name);
        let is_doubt = matches!(question.kind, QuestionKind::Doubt { .. });
        let latency = dice.below(40).max(done_in.filter(|_| is_doubt).unwrap_or(0));
        let granted = if is_doubt { done_in.is_some() } else { self.mild || !dice.one_in(4) };
        let contradicted = dice.one_in(8).then(|| latency + dice.below(20));
        let data = match (is_doubt && granted && asked <= 3, dice.below(4)) {
            (false, _) | (true, 0) => Value::Null,
            (true, 1) => Value::from("nobody knows"),
            (true, _) => self.thing(&name, &Value::Null),
        };
        Some(Reply { latency, granted, data, contradicted })
    }

    fn pause(&self, turn: usize) -> u64 {
        self.entropy(turn) % 40
    }

    fn expand(&self, document: &Value) -> Result<Arc<Plan>, Failure> {
        case::expanded(document)
    }
}

/// An answer that does not contradict the world: a probe tells the truth, if it answers, and a
/// resumed call that did its work does not report a failure.
fn true_to(call: &Call, answer: Answer, is_done: bool) -> Answer {
    match answer {
        Answer::Value(Value::Object(mut found)) if call.purpose == Purpose::Probe => {
            let n = found.get("n").and_then(Value::as_u64).unwrap_or(0) % 5;
            let n = if is_done { 5 + n } else { n };
            found.insert("n".into(), Value::from(n));
            Answer::Value(Value::Object(found))
        }
        Answer::Failure(failure) if is_done && call.resume_handle.is_some() => {
            Answer::Failure(Failure { in_doubt: true, ..failure })
        }
        other => other,
    }
}

/// A composition that a tool makes; some are wrong, unless the world is mild.
fn made(dice: &mut Dice, mild: bool) -> Value {
    let strategy = *dice.pick(&["fail_fast", "rollback", "partial_success"]);
    let tools = ["t:read", "t:add", "t:put", "t:send", "t:strict", "t:missing"];
    let known = if dice.one_in(8) && !mild { tools.len() } else { tools.len() - 1 };
    let steps = (0..=dice.small(3)).map(|at| {
        let tool = Value::from(*dice.pick(&tools[..known]));
        let id = Value::from(format!("m{at}"));
        Value::object([("id", id), ("tool", tool)])
    });
    let steps: Vec<Value> = steps.collect();
    let retries = Value::from(if mild { 3 } else { 0 });
    let handling =
        Value::object([("failure_strategy", Value::from(strategy)), ("max_retries", retries)]);
    let composition = Value::object([
        ("name", Value::from("made")),
        ("error_handling", handling),
        ("steps", Value::from(steps)),
    ]);
    let n = Value::from(dice.below(10));
    let nothing = Value::from(Vec::new());
    Value::object([("id", Value::from("made")), ("n", n), ("list", nothing), ("made", composition)])
}
