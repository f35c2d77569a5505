//! Every run of the corpus, stopped after every single turn and taken over by another engine: it
//! ends as it did, or as doubt demands. ENUM of J9, J10, E1, S7.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::composition::{Composition, CompositionGuards, Flow};
use segue_core::limits::Limits;
use segue_core::plan::{Plan, plan};
use segue_core::run::{Call, Fact, Failure, Question, Started};
use segue_core::value::Value;

use crate::examine::{Broken, promises};
use crate::story::{Story, Word, play, play_with_crashes};
use crate::support::world::{Around, World, expand};
use crate::support::{cases, catalog, composition_of, with_compositions};
use crate::world::{EPOCH_MS, Fate, Reply, Surroundings};

/// Compositions whose crash points must be enumerated at least.
const CASES_MIN: usize = 60;

/// The world of a case. It gives the same answer to the same call, also when a lost call is
/// repeated.
struct Written {
    world: RefCell<World>,
    catalog: Catalog,
    cancels: Vec<u64>,
    said: RefCell<BTreeMap<(Arc<str>, u32), Fate>>,
    replied: RefCell<BTreeMap<(Arc<str>, u32), Option<(bool, Value)>>>,
}

impl Surroundings for Written {
    fn started(&self) -> Started {
        self.world.borrow().started()
    }

    fn cancels(&self) -> &[u64] {
        &self.cancels
    }

    fn wall(&self, now: u64, _turn: usize) -> u64 {
        EPOCH_MS + now
    }

    fn entropy(&self, _turn: usize) -> u64 {
        0
    }

    fn pause(&self, _turn: usize) -> u64 {
        0
    }

    fn keeps_ledger(&self) -> bool {
        false
    }

    fn fate(&self, call: &Call, _done_in: Option<u64>) -> Fate {
        let mut said = self.said.borrow_mut();
        let fate = said.entry((call.key.clone(), call.attempt)).or_insert_with(|| {
            let mut world = self.world.borrow_mut();
            let (latency, answer) = (world.latency(call), world.answer(call, &self.catalog));
            let handle = world.handle(call).map(|handle| (0, handle));
            let (again, ends, late) = (None, Some(1), false);
            let (lands, is_stopped, is_silent, deadline) = (None, false, false, None);
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
                deadline,
            }
        });
        fate.clone()
    }

    fn reply(&self, question: &Question, asked: u32, _done_in: Option<u64>) -> Option<Reply> {
        let mut replied = self.replied.borrow_mut();
        let reply = replied
            .entry((question.step.clone(), asked))
            .or_insert_with(|| self.world.borrow_mut().decide(question));
        let (granted, data) = reply.clone()?;
        Some(Reply { latency: 0, granted, data, contradicted: None })
    }

    fn expand(&self, document: &Value) -> Result<Arc<Plan>, Failure> {
        expand(document, &self.catalog, &Limits::default())
    }
}

/// A case: its plan, the tools that it knows and the text of its world.
struct Case {
    plan: Arc<Plan>,
    catalog: Catalog,
    text: String,
}

impl Case {
    fn open(case: &Path, catalog: &Catalog) -> Case {
        let limits = Limits::default();
        let catalog = with_compositions(case, catalog);
        let compiled = compile(&composition_of(case), &catalog, &limits);
        let plan = Arc::new(plan(&compiled.composition.unwrap(), &limits).unwrap());
        let text = fs::read_to_string(case.join("world.yaml")).unwrap_or_else(|_| "{}".to_owned());
        Case { plan, catalog, text }
    }

    fn world(&self) -> Written {
        let world = World::parse(&self.text);
        let cancels = world.cancel_at().into_iter().collect();
        Written {
            world: RefCell::new(world),
            catalog: self.catalog.clone(),
            cancels,
            said: RefCell::default(),
            replied: RefCell::default(),
        }
    }

    /// Whether the model covers it: a graph without guards and sensitive values, without
    /// compositions that roll steps back, and without atomic ones inside.
    fn is_modelled(&self) -> bool {
        let composition = &self.plan.composition;
        let input = composition.input.as_ref();
        let is_sensitive = input.is_some_and(|schema| !schema.sensitive().is_empty())
            || self.plan.steps.iter().any(|planned| !planned.step.sensitive.is_empty());
        if composition.guards != CompositionGuards::default() || is_sensitive {
            return false;
        }
        let graph = self.plan.bodies.iter().all(|body| body.flow == Flow::Graph);
        graph
            && self.plan.steps.iter().all(|step| {
                step.rollback_plans.is_empty()
                    && step.nested.values().all(|inner| !inner.composition.atomic)
            })
    }
}

/// Whether a time decides something: a crash may then change what happens.
fn is_timed(composition: &Composition, world: &str) -> bool {
    let mut timed = composition.timeout_ms.is_some()
        || world.contains("cancel_at")
        || world.contains("timeout_ms");
    composition.body.walk(&mut |step| timed |= step.timeout_ms.is_some());
    timed
}

/// How a run ended: its status, its output, and how each step stands.
fn ending(story: &Story) -> (String, String, BTreeMap<String, String>) {
    let steps = story
        .view
        .steps
        .iter()
        .map(|step| (step.id.to_string(), format!("{} {}", step.status.as_str(), step.output)));
    (story.view.status.as_str().to_owned(), story.view.output.to_string(), steps.collect())
}

/// The result of stopping after every turn of one case.
#[derive(Default)]
struct Points {
    same: usize,
    doubtful: usize,
    timed: usize,
}

fn enumerate(name: &str, case: &Case) -> Result<Points, String> {
    let plan = &case.plan;
    let base = play(plan, &case.world());
    let mut points = Points::default();
    let turns = base.turns.iter().take_while(|turn| !turn.after_the_end).count();
    for point in 0..turns {
        for again in [false, true] {
            let mut crashes = BTreeSet::from([point]);
            if again {
                crashes.insert(point + 1);
            }
            let world = case.world();
            let base = play(plan, &world);
            let story = play_with_crashes(plan, &world, crashes.clone());
            let at = || format!("{name}, stopped after {crashes:?}");
            let broken = if case.is_modelled() { promises(&story) } else { Vec::new() };
            if let Some(Broken { promise, how, .. }) = broken.first() {
                return Err(format!("{}: {promise}: {how}", at()));
            }
            let in_doubt = story.journal.iter().any(|entry| match &entry.fact {
                Fact::Doubted { .. } | Fact::Probed { .. } => true,
                Fact::Failed { failure, .. } => failure.in_doubt,
                _ => false,
            });
            // A lost rollback is repeated, and the world may answer differently; or it is reported
            // as in doubt.
            let rollback_lost = story.turns.windows(2).any(|turns| {
                matches!(turns[1].word, Word::Resumed)
                    && story.journal[turns[1].entries.clone()].iter().any(|entry| {
                        matches!(
                            entry.fact,
                            Fact::RollbackCalled { .. } | Fact::RollbackFailed { .. }
                        )
                    })
            });
            if ending(&story) == ending(&base) {
                points.same += 1;
            } else if in_doubt || rollback_lost {
                points.doubtful += 1;
            } else if is_timed(&plan.composition, &case.text) {
                points.timed += 1;
            } else {
                let (is, was) = (ending(&story), ending(&base));
                return Err(format!(
                    "{} ends as {is:?}\nand not as {was:?}\n{}",
                    at(),
                    story.text()
                ));
            }
        }
    }
    Ok(points)
}

#[test]
fn every_crash_point_of_the_corpus_ends_as_it_must() {
    let all = cases("run");
    let mut total = Points::default();
    let mut wrong = Vec::new();
    let tools = catalog();
    for case in &all {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        match enumerate(&name, &Case::open(case, &tools)) {
            Ok(Points { same, doubtful, timed }) => {
                total.same += same;
                total.doubtful += doubtful;
                total.timed += timed;
            }
            Err(how) => wrong.push(how),
        }
    }
    let points = total.same + total.doubtful + total.timed;
    println!(
        "{} compositions, {points} crash points: {} end as if nothing had happened, {} as doubt \
         demands, {} where time decides",
        all.len(),
        total.same,
        total.doubtful,
        total.timed
    );
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n\n"));
    assert!(all.len() >= CASES_MIN, "only {} compositions", all.len());
}
