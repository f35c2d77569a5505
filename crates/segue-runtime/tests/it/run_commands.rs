//! Commands to a run that another process drives, on every store.

use std::sync::Arc;

use segue_core::run::Question;
use segue_core::source::Source;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::confirm::{Confirmer, Decision, Defer};
use segue_runtime::driver::RunCommand;
use segue_runtime::engine::{Engine, EngineError, ResumeRequest, RunRequest};
use segue_runtime::store::{NewRun, RunQuery, Store, StoreError, TakeOver};

use crate::backings::Backing;
use crate::stores::record;

/// A confirmer that never answers.
struct Thinking;

#[async_trait::async_trait]
impl Confirmer for Thinking {
    async fn confirm(&self, _question: &Question) -> Option<Decision> {
        std::future::pending().await
    }
}

/// Two engines on one store, as two processes would have them, and the store of the first.
fn two_on(backing: &Backing) -> (Engine, Engine, Arc<dyn Store>) {
    let store = backing.open();
    let engine = |store| Engine::builder().store(store).build().0;
    (engine(store.clone()), engine(backing.open()), store)
}

/// The same in memory.
fn two() -> (Engine, Engine, Arc<dyn Store>) {
    two_on(&Backing::memory())
}

for_every_store! {
    a_cancel_reaches_the_process_that_drives_the_run
    a_question_is_answered_from_elsewhere
    a_command_to_a_run_without_an_owner_is_not_sent
}

async fn only_run(store: &dyn Store) -> Arc<str> {
    let statuses = vec![RunStatus::Running, RunStatus::Waiting];
    let query = RunQuery { statuses, limit: 1, ..RunQuery::default() };
    loop {
        if let Some(row) = store.runs(&query).await.unwrap().runs.first() {
            return row.run_id.clone();
        }
        tokio::task::yield_now().await;
    }
}

async fn run(engine: &Engine, text: &str) -> Result<RunView, EngineError> {
    let (plan, findings) = engine.plan(&Source::new("c.yaml", text));
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    let mut request = RunRequest::new(plan, Value::empty_object());
    request.confirmer = &Thinking;
    engine.run(request).await
}

const WAITS: &str = "name: c\nsteps: [{ id: rest, wait: 1h }]\n";

/// A4: a cancel reaches a run that another process drives, and one that this process drives.
async fn a_cancel_reaches_the_process_that_drives_the_run(backing: Backing) {
    for from_here in [false, true] {
        let (here, there, store) = two_on(&backing);
        let asks = async {
            let run_id = only_run(&*store).await;
            let asker = if from_here { &here } else { &there };
            assert!(
                asker
                    .send_command(&run_id, &RunCommand::Cancel { by: "ada".into() })
                    .await
                    .unwrap()
            );
            asker.follow(&run_id).await.unwrap()
        };
        let (view, seen) = tokio::join!(run(&here, WAITS), asks);
        assert_eq!(view.unwrap().status, RunStatus::Cancelled);
        assert_eq!(seen.status, RunStatus::Cancelled);
        assert_eq!(store.pending_commands().await.unwrap(), [], "the word was thrown away");
    }
}

/// A2, A4: another process answers a question while the local confirmer still thinks; an answer to
/// another question changes nothing.
async fn a_question_is_answered_from_elsewhere(backing: Backing) {
    let text =
        "name: c\nsteps: [{ id: ask, approve: { message: Sure? } }]\noutput: '{{ ask.by }}'\n";
    let (here, there, store) = two_on(&backing);
    let asks = async {
        let run_id = only_run(&*store).await;
        let stored = there.load_run(&run_id).await.unwrap();
        let mut question = stored.run.questions()[0].id;
        let answer = |question, by: &str| {
            let (by, data) = (by.into(), Value::Null);
            RunCommand::Decide { question, granted: true, by, data }
        };
        question.seq += 1;
        assert!(there.send_command(&run_id, &answer(question, "too early")).await.unwrap());
        question.seq -= 1;
        assert!(there.send_command(&run_id, &answer(question, "ada")).await.unwrap());
    };
    let (view, ()) = tokio::join!(run(&here, text), asks);
    assert_eq!(view.unwrap().output, Value::from("ada"));
}

/// The run has no owner: the command is removed, and the sender may resume the run.
async fn a_command_to_a_run_without_an_owner_is_not_sent(backing: Backing) {
    let (here, there, store) = two_on(&backing);
    let text = "name: c\nsteps: [{ id: ask, approve: { message: Sure? } }]\n";
    let (plan, _) = here.plan(&Source::new("c.yaml", text));
    let mut request = RunRequest::new(plan.unwrap(), Value::empty_object());
    request.confirmer = &Defer;
    let view = here.run(request).await.unwrap();
    assert_eq!(view.status, RunStatus::Waiting);
    assert!(
        !there.send_command(&view.run_id, &RunCommand::Cancel { by: "ada".into() }).await.unwrap()
    );
    assert_eq!(store.pending_commands().await.unwrap(), []);
    let mut request = ResumeRequest::new(view.run_id.clone());
    request.command = RunCommand::Cancel { by: "ada".into() };
    assert_eq!(there.resume(request).await.unwrap().status, RunStatus::Cancelled);
    let late = there.send_command(&view.run_id, &RunCommand::Cancel { by: "ada".into() }).await;
    assert!(matches!(late, Err(EngineError::Store(StoreError::Ended { .. }))));
}

/// A run that has waited for a person for so many hours, in its own store.
async fn waiting_since(text: &str, hours: u64) -> (Engine, Arc<str>) {
    let (before, ..) = two();
    let (plan, findings) = before.plan(&Source::new("c.yaml", text));
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    let request = RunRequest::new(plan.clone(), Value::empty_object());
    let view = before.run(RunRequest { confirmer: &Defer, ..request }).await.unwrap();
    assert_eq!(view.status, RunStatus::Waiting);
    let mut journal = before.store().load(&view.run_id).await.unwrap();
    journal.iter_mut().for_each(|entry| entry.at_ms -= hours * 3_600_000);
    let (engine, ..) = two();
    let run = NewRun { run_id: &view.run_id, plan: &plan };
    let first = record(0, &journal, RunStatus::Waiting);
    let lease = engine.store().create(run, first).await.unwrap();
    engine.store().release(&lease).await.unwrap();
    (engine, view.run_id)
}

/// A2, A4: expired timeouts of a question or of the run apply before any command, whichever process
/// resumes the run first. A question that has not timed out is answered as usual.
#[tokio::test]
async fn an_answer_that_comes_too_late_changes_nothing() {
    let text = |run: &str, question: &str| {
        let ask = format!("{{ id: ask, approve: {{ message: Sure?{question} }} }}");
        format!("name: c\n{run}steps: [{ask}]\noutput: '{{{{ ask.by }}}}'\n")
    };
    let cases = [
        ("", ", timeout: 1h", RunStatus::Denied),
        ("", ", timeout: 1h, on_timeout: approve", RunStatus::Success),
        ("timeout: 1h\n", "", RunStatus::Failed),
        ("timeout: 3h\n", ", timeout: 3h", RunStatus::Success),
    ];
    for (run, question, status) in cases {
        for answers in [true, false] {
            let is_late = !run.contains("3h");
            let (engine, run_id) = waiting_since(&text(run, question), 2).await;
            let goes_on_at = engine.resumes_at(&run_id).await.unwrap().unwrap();
            assert_eq!(goes_on_at <= segue_runtime::driver::now_ms(), is_late);
            let id = engine.load_run(&run_id).await.unwrap().run.questions()[0].id;
            let (by, data) = ("ada".into(), Value::Null);
            let answer = RunCommand::Decide { question: id, granted: true, by, data };
            let wish = if answers { answer } else { RunCommand::Resume };
            let request = ResumeRequest { command: wish, ..ResumeRequest::new(run_id.clone()) };
            let view = engine.resume(request).await.unwrap();
            let expected = if answers || is_late { status } else { RunStatus::Waiting };
            assert_eq!(view.status, expected, "{run}{question} {answers}");
            let is_by_ada = view.output == Value::from("ada");
            assert_eq!(is_by_ada, answers && !is_late, "{:?}", view.output);
        }
    }
}

/// C1: an owner that hangs receives nothing, and the sender gets an error. A stored command applies
/// first when another process resumes the run.
#[tokio::test(start_paused = true)]
async fn a_command_to_an_owner_that_hangs_is_withdrawn() {
    let (here, there, store) = two();
    let (plan, _) = here.plan(&Source::new("c.yaml", WAITS));
    let run_id: Arc<str> = "hangs".into();
    let run = async {
        let request = RunRequest::new(plan.unwrap(), Value::empty_object());
        here.run(RunRequest { run_id: Some(run_id.clone()), ..request }).await.unwrap();
    };
    // It has begun, and is never asked again.
    let mut run = Box::pin(run);
    assert!(futures_util::poll!(&mut run).is_pending());
    let unheard =
        there.send_command(&run_id, &RunCommand::Cancel { by: "ada".into() }).await.unwrap_err();
    assert_eq!(unheard, EngineError::NotReceived { run_id: run_id.clone() });
    assert_eq!(store.pending_commands().await.unwrap(), [], "nothing happens later");
    let word = serde_json::to_string(&RunCommand::Cancel { by: "ada".into() }).unwrap();
    there.store().send_command(&run_id, &word.into()).await.unwrap();
    let request = ResumeRequest::new(run_id.clone());
    let request = ResumeRequest { take_over: TakeOver::Force, ..request };
    assert_eq!(there.resume(request).await.unwrap().status, RunStatus::Cancelled);
    assert_eq!(store.pending_commands().await.unwrap(), []);
}
