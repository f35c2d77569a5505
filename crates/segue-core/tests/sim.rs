//! Random compositions in random worlds: whatever fails and whenever, the machine keeps its promises.
//!
//! A seed makes a composition of all kinds of steps and a world with latencies, failures, lost
//! answers and cancels. The run's journal is then checked against the invariants, which are named
//! as in the manual of reliability: J journal, E steps, S rollback, C cancelling. The same seed gives
//! the same bytes. `SEGUE_SIM_SEEDS=100000 cargo test --release --test sim` goes further.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use segue_core::compile::compile;
use segue_core::compile::source::Source;
use segue_core::composition::Undo;
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::plan::{Plan, plan};
use segue_core::run::{
    Answer, Call, Entry, Fact, Failure, NodeId, Options, Question, QuestionKind, Run, Started,
};
use segue_core::tool::Catalog;
use segue_core::value::Value;
use segue_core::view::{RunStatus, StepStatus};
use support::catalog;
use support::world::{Around, Outcome, simulate, stand_in};

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Writes a random composition.
struct Author {
    dice: Dice,
    text: String,
    next: usize,
}

impl Author {
    fn composition(seed: u64) -> String {
        let mut author = Author { dice: Dice(seed), text: String::new(), next: 0 };
        let strategy = ["fail_fast", "partial_success", "rollback", "retry"][author.small(4)];
        let (concurrency, rollback) = (1 + author.small(4), author.dice.one_in(2));
        let _ = writeln!(
            author.text,
            "name: sim\nmax_concurrency: {concurrency}\nerror_handling: {{ failure_strategy: {strategy}, \
             rollback_on_failure: {rollback}, backoff: {{ initial: 3ms, jitter: false }} }}"
        );
        if author.dice.one_in(8) {
            let timeout = 20 + author.small(100);
            let _ = writeln!(author.text, "timeout: {timeout}ms");
        }
        author.text.push_str("steps:\n");
        author.steps(1, 0);
        author.text
    }

    fn small(&mut self, n: u64) -> usize {
        usize::try_from(self.dice.below(n)).unwrap()
    }

    fn steps(&mut self, indent: usize, depth: usize) {
        let count = 1 + self.small(if depth == 0 { 6 } else { 3 });
        let mut ids = Vec::new();
        for _ in 0..count {
            let id = format!("s{}", self.next);
            self.next += 1;
            self.step(&id, &ids, indent, depth);
            ids.push(id);
        }
    }

    fn line(&mut self, indent: usize, text: &str) {
        let _ = writeln!(self.text, "{}{text}", "  ".repeat(indent));
    }

    fn step(&mut self, id: &str, before: &[String], indent: usize, depth: usize) {
        self.line(indent, &format!("- id: {id}"));
        let inside = indent + 1;
        if !before.is_empty() && !self.dice.one_in(3) {
            let need = before[self.small(before.len() as u64)].clone();
            self.line(inside, &format!("depends_on: [{need}]"));
        }
        if self.dice.one_in(10) {
            let truth = self.dice.one_in(2);
            self.line(inside, &format!("when: \"{{{{ {} < 2 }}}}\"", if truth { 1 } else { 3 }));
        }
        if self.dice.one_in(7) {
            self.line(inside, "on_failure: { action: continue, default: {} }");
        }
        let kinds = if depth < 2 { 12 } else { 7 };
        match self.small(kinds) {
            0..=3 => self.tool(inside),
            4 => self.line(inside, "set: { name_ID: 1 }".replace("ID", id).as_str()),
            5 => self.line(inside, "wait: 7ms"),
            6 => self.undoable(inside),
            7 | 8 => self.parallel(inside, depth),
            9 => self.each(inside, depth),
            10 => self.choose(inside, depth),
            _ => self.repeat(inside, depth),
        }
    }

    fn tool(&mut self, indent: usize) {
        self.line(indent, "tool: misc:anything");
        self.attempts(indent);
        if self.dice.one_in(5) {
            self.line(indent, "fallback: [{ tool: \"misc:anything\" }]");
        }
    }

    fn attempts(&mut self, indent: usize) {
        if self.dice.one_in(2) {
            let retries = self.small(3);
            self.line(indent, &format!("retry_count: {retries}"));
        }
        if self.dice.one_in(6) {
            let timeout = 5 + self.small(30);
            self.line(indent, &format!("timeout_ms: {timeout}"));
        }
    }

    fn undoable(&mut self, indent: usize) {
        self.line(indent, "tool: shop:reserve_stock");
        self.line(indent, "parameters: { sku: a, quantity: 1 }");
        self.attempts(indent);
    }

    fn parallel(&mut self, indent: usize, depth: usize) {
        let wait_for = ["all", "any", "first_success"][self.small(3)];
        self.line(indent, &format!("wait_for: {wait_for}"));
        self.line(indent, "parallel:");
        for branch in 0..2 + self.small(2) {
            let name = self.next;
            self.line(indent + 1, &format!("- id: b{name}_{branch}"));
            self.line(indent + 2, "steps:");
            self.steps(indent + 3, depth + 1);
        }
    }

    fn each(&mut self, indent: usize, depth: usize) {
        let items: Vec<String> = (0..self.small(5)).map(|n| n.to_string()).collect();
        let policy = ["stop", "continue"][self.small(2)];
        let at_once = 1 + self.small(3);
        self.line(indent, "loop:");
        self.line(indent + 1, &format!("over: [{}]", items.join(", ")));
        self.line(indent + 1, &format!("max_concurrency: {at_once}"));
        self.line(indent + 1, &format!("on_item_failure: {policy}"));
        self.line(indent + 1, "steps:");
        self.steps(indent + 2, depth + 1);
    }

    fn choose(&mut self, indent: usize, depth: usize) {
        let limit = [1, 3][self.small(2)];
        self.line(indent, "choose:");
        self.line(indent + 1, &format!("- when: \"{{{{ {limit} < 2 }}}}\""));
        self.line(indent + 2, "steps:");
        self.steps(indent + 3, depth + 1);
        self.line(indent + 1, "- otherwise:");
        self.steps(indent + 3, depth + 1);
    }

    fn repeat(&mut self, indent: usize, depth: usize) {
        let rounds = 1 + self.small(3);
        let limit = [1, 3][self.small(2)];
        self.line(indent, "repeat:");
        self.line(indent + 1, &format!("until: \"{{{{ {limit} < 2 }}}}\""));
        self.line(indent + 1, &format!("max_iterations: {rounds}"));
        if self.dice.one_in(2) {
            self.line(indent + 1, "delay: 4ms");
        }
        self.line(indent + 1, "steps:");
        self.steps(indent + 2, depth + 1);
    }
}

/// A world that answers by chance, and remembers who was called when.
struct Chaos {
    dice: Dice,
    cancel_at: Option<u64>,
}

impl Chaos {
    fn new(seed: u64) -> Chaos {
        let mut dice = Dice(seed ^ 0xC0FF_EE00);
        let cancel_at = dice.one_in(8).then(|| dice.below(80));
        Chaos { dice, cancel_at }
    }
}

impl Around for Chaos {
    fn started(&self) -> Started {
        Started {
            run_id: "run".into(),
            request_id: "req".into(),
            plan_id: "plan".into(),
            chain_id: "chain".into(),
            input: Value::empty_object(),
            context: Value::empty_object(),
            options: Options { approved: true, ..Options::default() },
            plan_hash: None,
            engine: "test".into(),
        }
    }

    fn cancel_at(&self) -> Option<u64> {
        self.cancel_at
    }

    fn latency(&mut self, _call: &Call) -> u64 {
        self.dice.below(25)
    }

    fn answer(&mut self, call: &Call, catalog: &Catalog) -> Answer {
        match self.dice.below(20) {
            0..=2 => Answer::Failure(Failure::passing(Code::ToolError, "chance")),
            3 => Answer::Failure(Failure::lasting(Code::ToolError, "for good")),
            4 => {
                let failure = Failure::passing(Code::InDoubt, "lost");
                Answer::Failure(Failure { in_doubt: true, ..failure })
            }
            _ => Answer::Value(stand_in(call, catalog)),
        }
    }

    fn decide(&mut self, question: &Question) -> Option<(bool, Value)> {
        let is_doubt = matches!(question.kind, QuestionKind::Doubt { .. });
        Some((!is_doubt || self.dice.one_in(2), Value::object([("held", Value::from(1))])))
    }
}

/// What must hold of a finished run. Each line names the invariant that it checks.
fn check(plan: &Arc<Plan>, outcome: &Outcome) {
    let journal = &outcome.journal;
    for (at, entry) in journal.iter().enumerate() {
        assert_eq!(entry.seq, at as u64, "J2: no gap, no reorder");
    }
    let finished = journal.iter().filter(|e| matches!(e.fact, Fact::Finished { .. })).count();
    assert_eq!(finished, 1, "J6, J10: every run ends, once");
    assert!(
        matches!(journal.last().unwrap().fact, Fact::Finished { .. }),
        "J6: and nothing follows"
    );
    replays(plan, outcome);
    concurrency(plan, journal);
    calls(journal);
    rollback(plan, outcome);
    for step in &outcome.view.steps {
        let settled = !matches!(step.status, StepStatus::Pending | StepStatus::Running);
        assert!(settled, "J10: step `{}` is left {:?}", step.id, step.status);
    }
}

/// J3: a journal that is cut anywhere replays to a state, and the whole one to the same view.
fn replays(plan: &Arc<Plan>, outcome: &Outcome) {
    let limits = Arc::new(Limits::default());
    for cut in 0..=outcome.journal.len() {
        let run = Run::replay(plan.clone(), limits.clone(), &outcome.journal[..cut]).unwrap();
        assert_eq!(run.is_finished(), cut == outcome.journal.len(), "J3 at {cut}");
    }
}

/// E9: never more calls under way than allowed.
fn concurrency(plan: &Arc<Plan>, journal: &[Entry]) {
    let max = plan.composition.max_concurrency as usize;
    let mut under_way = BTreeSet::new();
    for entry in journal {
        match &entry.fact {
            Fact::Called { node, .. } => {
                assert!(under_way.insert(*node), "E: two attempts of one step at once");
                assert!(under_way.len() <= max, "E9: {} calls at once", under_way.len());
            }
            Fact::Doubted { node, .. }
            | Fact::Rested { node, .. }
            | Fact::GaveUp { node, .. }
            | Fact::Succeeded { node, .. }
            | Fact::Tolerated { node, .. }
            | Fact::Failed { node, .. }
            | Fact::Cancelled { node, .. } => {
                under_way.remove(node);
            }
            Fact::RollbackStarted { .. } => {
                assert!(under_way.is_empty(), "S4: the way back begins while a call is under way");
            }
            _ => {}
        }
    }
}

/// E1, S5, C1: a settled step is not called again, and nothing starts in a body that has stopped.
fn calls(journal: &[Entry]) {
    let (mut settled, mut stopped) = (BTreeSet::new(), BTreeSet::new());
    for entry in journal {
        match &entry.fact {
            Fact::Called { node, .. } | Fact::Opened { node, .. } | Fact::Asked { node, .. } => {
                assert!(!settled.contains(node), "E1: {node:?} is called after it was settled");
                assert!(
                    !stopped.contains(&node.frame),
                    "S5, C1: {node:?} starts in a stopped body"
                );
            }
            Fact::Succeeded { node, .. }
            | Fact::Tolerated { node, .. }
            | Fact::Failed { node, .. }
            | Fact::Skipped { node, .. }
            | Fact::Cancelled { node, .. } => {
                assert!(settled.insert(*node), "{node:?} is settled twice");
            }
            Fact::Stopped { frame, .. } => {
                stopped.insert(*frame);
            }
            _ => {}
        }
    }
}

/// S1, S3, S6, S7: exactly what was done is undone, once, last first.
fn rollback(plan: &Arc<Plan>, outcome: &Outcome) {
    let mut settled: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut undos: Vec<NodeId> = Vec::new();
    let mut ended = BTreeSet::new();
    for entry in &outcome.journal {
        match &entry.fact {
            Fact::Succeeded { node, .. }
            | Fact::Failed { node, .. }
            | Fact::Tolerated { node, .. }
            | Fact::Cancelled { node, .. } => {
                settled.insert(*node, entry.seq);
            }
            Fact::UndoCalled { node, .. } | Fact::UndoFailed { node, .. } => {
                assert!(!ended.contains(node), "S7: {node:?} is undone again");
                assert!(settled.contains_key(node), "S6: {node:?} never started");
                if undos.last() != Some(node) {
                    undos.push(*node);
                }
                if matches!(entry.fact, Fact::UndoFailed { .. }) {
                    ended.insert(*node);
                }
            }
            Fact::Undone { node } => {
                ended.insert(*node);
            }
            _ => {}
        }
    }
    let order: Vec<u64> = undos.iter().map(|node| settled[node]).collect();
    assert!(order.windows(2).all(|pair| pair[0] > pair[1]), "S3: undone out of order: {order:?}");
    if outcome.view.status == RunStatus::RolledBack {
        let left = outcome.view.steps.iter().find(|step| {
            step.tool.as_deref() == Some("shop:reserve_stock") && step.status == StepStatus::Success
        });
        assert!(left.is_none(), "S1: `{}` was not undone", left.unwrap().id);
        let named = outcome.view.steps.iter().any(|step| step.status == StepStatus::RollbackFailed);
        assert!(!named, "S1: rolled back, though something is left");
    }
    let may_undo = plan.steps.iter().any(|step| !matches!(step.step.undo, Undo::NotNeeded));
    assert!(may_undo || undos.is_empty(), "S6: nothing to undo, and undone");
}

#[test]
fn the_machine_keeps_its_promises_in_every_world() {
    let seeds: u64 =
        std::env::var("SEGUE_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_500);
    let first: u64 =
        std::env::var("SEGUE_SIM_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let (catalog, limits) = (catalog(), Limits::default());
    for seed in first..first + seeds {
        let text = Author::composition(seed);
        let compiled = compile(&Source::new("sim.yaml", text.as_str()), &catalog, &limits);
        let composition = compiled
            .composition
            .unwrap_or_else(|| panic!("seed {seed}: {:?}\n{text}", compiled.diagnostics));
        let plan = Arc::new(plan(&composition, &limits).unwrap());
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let outcome = simulate(&plan, &mut Chaos::new(seed), &catalog);
            check(&plan, &outcome);
            // J4: the same seed gives the same journal, to the byte.
            assert_eq!(outcome.text, simulate(&plan, &mut Chaos::new(seed), &catalog).text);
        }));
        if let Err(panic) = result {
            let message = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("?");
            panic!("seed {seed}: {message}\n{text}");
        }
    }
}
