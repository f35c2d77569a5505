//! The runs of the core's corpus on every store: a real engine, tools that answer as `world.yaml` says, and
//! the same final states as in the simulation of the core.
//!
//! The simulation of a case says which calls it makes, how they are answered, and how long the journal is at
//! each crash. The engine makes the same calls, in paused time; a crash drops it and its store, and another
//! engine on another handle goes on.

#![allow(clippy::disallowed_methods, reason = "the modules of the core's tests")]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use regex::Regex;
use segue_core::catalog::Catalog;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{Answer, Call, Entry, Question, Run, Started};
use segue_core::source::Source;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::confirm::{Confirmer, Decision};
use segue_runtime::driver::RunCommand;
use segue_runtime::engine::{Engine, EngineError, ResumeRequest, RunRequest};
use segue_runtime::store::{
    InterceptedStore, Operation, Store, StoreError, StoreInterceptor, TakeOver,
};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use tokio::sync::{Notify, oneshot};

use crate::backings::Backing;
use crate::core_support::world::{Around, World, simulate};
use crate::core_support::{cases, catalog, composition_of};

/// Cases that no engine drives as the simulation does.
const SIMULATED_ONLY: &[&str] = &[
    // An engine's own message names the composition.
    "expand-does-not-compile",
    // An engine compiles at once.
    "expand-takes-too-long-to-be-checked",
    "expand-crash",
    // An engine writes two answers of the same moment in one turn.
    "crash-in-a-loop",
    // Only MCP servers give handles: `resumed_tasks` of the program's tests has these.
    "found-after-a-crash",
    "found-after-a-crash-and-failed",
    "found-undo-after-a-crash",
    "not-found-after-a-crash",
    "not-found-after-a-crash-and-repeated",
    "not-found-undo-after-a-crash",
];

/// The answer of one call, and after how long. None if the call times out before.
type Scripted = (u64, Option<Answer>);

/// A world that writes down which calls the simulation makes.
struct Recorded {
    world: World,
    script: BTreeMap<Arc<str>, VecDeque<Scripted>>,
}

impl Around for Recorded {
    fn started(&self) -> Started {
        self.world.started()
    }

    fn cancel_at(&self) -> Option<u64> {
        self.world.cancel_at()
    }

    fn roll_back_at(&self) -> Option<u64> {
        self.world.roll_back_at()
    }

    fn crashes_after(&self, turn: usize) -> bool {
        self.world.crashes_after(turn)
    }

    fn check_ms(&self) -> u64 {
        self.world.check_ms()
    }

    fn latency(&mut self, call: &Call) -> u64 {
        let latency = self.world.latency(call);
        self.script.entry(call.step.clone()).or_default().push_back((latency, None));
        latency
    }

    fn answer(&mut self, call: &Call, catalog: &Catalog) -> Answer {
        let answer = self.world.answer(call, catalog);
        let calls = self.script.get_mut(&call.step).unwrap();
        calls.back_mut().unwrap().1 = Some(answer.clone());
        answer
    }

    fn handle(&self, call: &Call) -> Option<Value> {
        self.world.handle(call)
    }

    fn decide(&mut self, question: &Question) -> Option<(bool, Value)> {
        self.world.decide(question)
    }
}

/// The tools and the people around the runs of one case.
struct Scene {
    script: Mutex<BTreeMap<Arc<str>, VecDeque<Scripted>>>,
    world: Mutex<World>,
    /// Whether the run ends while a question is open: nobody waits for an answer.
    ends_waiting: bool,
    /// Calls that the simulation did not make.
    surprises: Mutex<Vec<String>>,
}

#[async_trait]
impl ToolRunner for Scene {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let next = self.script.lock().unwrap().get_mut(&call.step).and_then(VecDeque::pop_front);
        let Some((after_ms, answer)) = next else {
            self.surprises.lock().unwrap().push(format!("{} with {}", call.step, call.args));
            return Err(ToolError::failed("the simulation makes no such call"));
        };
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        match answer {
            Some(Answer::Value(value)) => Ok(value),
            Some(Answer::Failure(failure)) => Err(failure.into()),
            _ => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Confirmer for Scene {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        // A process that stops now gets no answer any more.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let decided = self.world.lock().unwrap().decide(question);
        match decided {
            Some((granted, data)) => Some(Decision { granted, by: "somebody".into(), data }),
            None if self.ends_waiting => None,
            None => std::future::pending().await,
        }
    }
}

/// Stops the process after the turn with which its journal has so many entries, and holds the paused time while a store writes.
struct Stops {
    at: Option<usize>,
    written: Mutex<usize>,
    stopped: Notify,
    writing: Mutex<Option<mpsc::Sender<()>>>,
}

#[async_trait]
impl StoreInterceptor for Stops {
    async fn before(&self, operation: Operation<'_>) -> Result<(), StoreError> {
        if matches!(operation, Operation::Append { .. }) {
            let (done, is_done) = mpsc::channel();
            *self.writing.lock().unwrap() = Some(done);
            // Paused time stands still while a thread for blocking work is busy.
            tokio::task::spawn_blocking(move || is_done.recv());
        }
        Ok(())
    }

    async fn after(&self, operation: Operation<'_>) -> Result<(), StoreError> {
        let Operation::Append { entries, .. } = operation else { return Ok(()) };
        self.writing.lock().unwrap().take();
        let written = {
            let mut written = self.written.lock().unwrap();
            *written += entries.len();
            *written
        };
        if self.at.is_some_and(|at| written >= at) {
            // The driver still begins the calls of this turn, before it is polled again.
            self.stopped.notify_one();
        }
        Ok(())
    }
}

/// One case, ready to be driven.
struct Case {
    name: String,
    run_id: Arc<str>,
    source: Source,
    inner: Vec<Source>,
    expected: RunView,
    crashes: Vec<usize>,
    scene: Arc<Scene>,
}

fn read_world(folder: &Path) -> World {
    let text = fs::read_to_string(folder.join("world.yaml"));
    World::parse(&text.unwrap_or_else(|_| "{}".to_owned()))
}

fn inner(folder: &Path) -> Vec<Source> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<_> = files.filter(|path| name(path).starts_with("inner")).collect();
    files.sort();
    files.iter().map(|path| Source::new(name(path), fs::read_to_string(path).unwrap())).collect()
}

impl Case {
    /// Simulates a case.
    fn read(folder: &Path, tools: &Catalog) -> Case {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let (source, inner) = (composition_of(folder), inner(folder));
        let mut recorded = Recorded { world: read_world(folder), script: BTreeMap::new() };
        let catalog = crate::core_support::with_compositions(folder, tools);
        let compiled =
            segue_core::compile::compile(&source, &catalog, &Limits::default()).composition;
        let plan = segue_core::plan::plan(&compiled.unwrap(), &Limits::default()).unwrap();
        let outcome = simulate(&Arc::new(plan), &mut recorded, &catalog);
        let scene = Scene {
            script: Mutex::new(recorded.script),
            world: Mutex::new(read_world(folder)),
            ends_waiting: outcome.view.status == RunStatus::Waiting,
            surprises: Mutex::default(),
        };
        Case {
            run_id: format!("corpus-{name}").into(),
            name,
            source,
            inner,
            expected: outcome.view,
            crashes: outcome.crashes,
            scene: Arc::new(scene),
        }
    }

    /// An engine on a store, as a new process has it.
    fn engine(&self, store: Arc<dyn Store>, tools: &Catalog) -> Engine {
        let tool =
            |spec: &Arc<_>| Tool { spec: Arc::clone(spec), runner: self.scene.clone() as Arc<_> };
        let engine = Engine::builder().tools(tools.tools().map(tool));
        let (engine, unloaded) = engine.compositions(self.inner.clone()).store(store).build();
        assert!(unloaded.is_empty(), "{}: {unloaded:?}", self.name);
        engine
    }

    fn plan(&self, engine: &Engine) -> Arc<Plan> {
        let (plan, findings) = engine.plan(&self.source);
        plan.unwrap_or_else(|| panic!("{}: {findings:?}", self.name))
    }

    /// Drives the case to its end; each process has a handle of its own when one of them dies.
    async fn drive(
        &self,
        backing: &Backing,
        shared: &Arc<dyn Store>,
        tools: &Catalog,
    ) -> Result<RunView, EngineError> {
        let mut written = 0;
        let mut crashes = self.crashes.iter().copied().map(Some).chain([None]);
        for nth in 0.. {
            let at = crashes.next().unwrap();
            let is_alone = !self.crashes.is_empty();
            let store = if is_alone { backing.open() } else { shared.clone() };
            let stops = Arc::new(Stops {
                at,
                written: Mutex::new(written),
                stopped: Notify::new(),
                writing: Mutex::default(),
            });
            let engine = self.engine(Arc::new(InterceptedStore::new(store, stops.clone())), tools);
            let driven = tokio::select! {
                biased;
                () = stops.stopped.notified() => None,
                view = self.drive_once(&engine, nth == 0) => Some(view),
            };
            if let Some(view) = driven {
                return view;
            }
            written = *stops.written.lock().unwrap();
        }
        unreachable!()
    }

    async fn drive_once(&self, engine: &Engine, is_first: bool) -> Result<RunView, EngineError> {
        let (started, cancel_at, roll_back_at) = {
            let world = self.scene.world.lock().unwrap();
            (world.started(), world.cancel_at(), world.roll_back_at())
        };
        let after = |ms: u64| tokio::time::sleep(Duration::from_millis(ms));
        if !is_first {
            let request = ResumeRequest::new(self.run_id.clone());
            return engine.resume(ResumeRequest { confirmer: &*self.scene, ..request }).await;
        }
        let request = RunRequest {
            context: started.context,
            options: started.options,
            run_id: Some(self.run_id.clone()),
            confirmer: &*self.scene,
            cancel: Box::pin(async move {
                match cancel_at {
                    Some(at) => after(at).await,
                    None => std::future::pending().await,
                }
                "somebody".into()
            }),
            ..RunRequest::new(self.plan(engine), started.input)
        };
        let Some(at) = roll_back_at else { return engine.run(request).await };
        let command = || RunCommand::RollBack { by: "somebody".into() };
        let (run, rolled_back) = tokio::join!(engine.run(request), async {
            after(at).await;
            engine.send_command(&self.run_id, &command()).await
        });
        if matches!(rolled_back, Ok(true)) {
            return run;
        }
        let request = ResumeRequest {
            command: command(),
            take_over: TakeOver::Reopen,
            confirmer: &*self.scene,
            ..ResumeRequest::new(self.run_id.clone())
        };
        engine.resume(request).await
    }

    /// What is wrong with the outcome, if anything.
    async fn check(&self, view: Result<RunView, EngineError>, other: &dyn Store) -> Vec<String> {
        let view = match view {
            Ok(view) => view,
            Err(error) => return vec![format!("{}: {error}", self.name)],
        };
        let mut wrong = Vec::new();
        let (expected, is) = (final_state(&self.expected), final_state(&view));
        for (expected, is) in expected.iter().zip(&is).filter(|(expected, is)| expected != is) {
            wrong.push(format!("{}:\n  expected {expected}\n  is       {is}", self.name));
        }
        if expected.len() != is.len() {
            wrong.push(format!("{}: {expected:?}\n  is {is:?}", self.name));
        }
        for call in &*self.scene.surprises.lock().unwrap() {
            wrong.push(format!("{}: an additional call of {call}", self.name));
        }
        for (step, left) in &*self.scene.script.lock().unwrap() {
            if !left.is_empty() {
                wrong.push(format!("{}: {} calls of {step} are missing", self.name, left.len()));
            }
        }
        // J3: another process reads the same run from the store.
        let limits = Arc::new(Limits::default());
        let plan = other.plan(&self.run_id, &limits).await.unwrap();
        let journal: Vec<Entry> = other.load(&self.run_id).await.unwrap();
        let again = Run::replay(plan, limits, &journal).unwrap().view();
        if final_state(&again) != is {
            wrong.push(format!("{}: the store has {:?}", self.name, final_state(&again)));
        }
        wrong
    }
}

/// What a run came to, without ids and times.
fn final_state(view: &RunView) -> Vec<String> {
    let time = Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z\b").unwrap();
    let chain = format!("\"{}\"", view.chain_id);
    let text = |value: &dyn std::fmt::Display| {
        let text = value.to_string().replace(&chain, "\"chain\"");
        time.replace_all(&text, "TIME").replace(&*view.run_id, "run")
    };
    let mut lines = vec![
        format!("status {}", view.status.as_str()),
        format!("output {}", text(&view.output)),
        format!("state {}", text(&Value::from(view.state.clone()))),
        format!("warnings {:?}", view.warnings),
        format!(
            "{} ran, {} succeeded, {} failed",
            view.steps_executed, view.steps_succeeded, view.steps_failed
        ),
    ];
    for error in &view.errors {
        let step = error.step.as_deref().unwrap_or("-");
        lines.push(format!(
            "error of {step}: {} after {}, in doubt {}: {}",
            error.code, error.attempts, error.in_doubt, error.message
        ));
    }
    for step in &view.steps {
        lines.push(format!(
            "{} {} after {}: {}",
            step.id,
            step.status.as_str(),
            step.attempts,
            text(&step.output)
        ));
    }
    lines
}

for_every_store! { the_corpus_ends_as_it_is_written }

/// Every case of the corpus ends in the same states on every store, with the same calls.
async fn the_corpus_ends_as_it_is_written(backing: Backing) {
    // Paused time needs a runtime of one thread.
    let whole = move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(drive_all(&backing))
    };
    let (driven, wrong) = tokio::task::spawn_blocking(whole).await.unwrap();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(driven >= 300, "only {driven} cases");
}

async fn drive_all(backing: &Backing) -> (usize, Vec<String>) {
    let (tools, shared, other) = (catalog(), backing.open(), backing.open());
    let (mut driven, mut wrong) = (0, Vec::new());
    for folder in cases("run") {
        let case = Case::read(&folder, &tools);
        if SIMULATED_ONLY.contains(&&*case.name) {
            continue;
        }
        let (done, hangs) = within(Duration::from_mins(1));
        tokio::select! {
            view = case.drive(backing, &shared, &tools) => wrong.extend(case.check(view, &*other).await),
            Ok(()) = hangs => wrong.push(format!("{}: it never ends", case.name)),
        }
        drop(done);
        driven += 1;
    }
    (driven, wrong)
}

/// Resolves after a time by a real clock, unless the sender is dropped before. A timer of the paused clock would
/// fire as soon as a store on another thread is waited for.
fn within(time: Duration) -> (mpsc::Sender<()>, oneshot::Receiver<()>) {
    let (done, is_done) = mpsc::channel();
    let (late, is_late) = oneshot::channel();
    std::thread::spawn(move || {
        if is_done.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = late.send(());
        }
    });
    (done, is_late)
}
