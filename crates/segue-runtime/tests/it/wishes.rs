//! What somebody wants of a run that somebody else drives.

use std::sync::Arc;

use segue_core::compile::source::Source;
use segue_core::run::Question;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::driver::{Confirmer, Decision};
use segue_runtime::engine::{Engine, EngineError, RunRequest, Wish};
use segue_runtime::store::{MemoryStore, RunQuery, Store, StoreError};

/// Somebody who is asked and thinks about it for ever.
struct Thinking;

#[async_trait::async_trait]
impl Confirmer for Thinking {
    async fn confirm(&self, _question: &Question) -> Option<Decision> {
        std::future::pending().await
    }
}

/// Two engines on one store, as two processes would have them.
fn two() -> (Engine, Engine, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::default());
    let other: Arc<dyn Store> = Arc::new(store.peer());
    let engine = |store| Engine::builder().store(store).build().0;
    (engine(store.clone()), engine(other), store)
}

async fn only_run(store: &dyn Store) -> Arc<str> {
    let query = RunQuery { limit: 1, ..RunQuery::default() };
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
#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_whoever_drives_the_run() {
    for from_here in [false, true] {
        let (here, there, store) = two();
        let asks = async {
            let run_id = only_run(&*store).await;
            let asker = if from_here { &here } else { &there };
            assert!(asker.tell(&run_id, &Wish::Cancel).await.unwrap());
            asker.follow(&run_id).await.unwrap()
        };
        let (view, seen) = tokio::join!(run(&here, WAITS), asks);
        assert_eq!(view.unwrap().status, RunStatus::Cancelled);
        assert_eq!(seen.status, RunStatus::Cancelled);
        assert_eq!(store.words().await.unwrap(), [], "the word was thrown away");
    }
}

/// A2, A4: somebody elsewhere answers a question that somebody here thinks about; an answer to
/// another question changes nothing.
#[tokio::test(start_paused = true)]
async fn a_question_is_answered_from_elsewhere() {
    let text =
        "name: c\nsteps: [{ id: ask, approve: { message: Sure? } }]\noutput: '{{ ask.by }}'\n";
    let (here, there, store) = two();
    let asks = async {
        let run_id = only_run(&*store).await;
        let stored = there.stored(&run_id).await.unwrap();
        let mut question = stored.run.questions()[0].id;
        let answer = |question, by: &str| {
            let (by, data) = (by.into(), Value::Null);
            Wish::Decide { question, granted: true, by, data }
        };
        question.seq += 1;
        assert!(there.tell(&run_id, &answer(question, "too early")).await.unwrap());
        question.seq -= 1;
        assert!(there.tell(&run_id, &answer(question, "ada")).await.unwrap());
    };
    let (view, ()) = tokio::join!(run(&here, text), asks);
    assert_eq!(view.unwrap().output, Value::from("ada"));
}

/// Nobody is left to be told: the word is taken back, and whoever asks may go on with the run.
#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_drives_is_left_to_whoever_asks() {
    let (here, there, store) = two();
    let text = "name: c\nsteps: [{ id: ask, approve: { message: Sure? } }]\n";
    let (plan, _) = here.plan(&Source::new("c.yaml", text));
    let mut request = RunRequest::new(plan.unwrap(), Value::empty_object());
    request.confirmer = &segue_runtime::driver::Later;
    let view = here.run(request).await.unwrap();
    assert_eq!(view.status, RunStatus::Waiting);
    assert!(!there.tell(&view.run_id, &Wish::Cancel).await.unwrap());
    assert_eq!(store.words().await.unwrap(), []);
    let mut request = segue_runtime::engine::ResumeRequest::new(view.run_id.clone());
    request.wish = Wish::Cancel;
    assert_eq!(there.resume(request).await.unwrap().status, RunStatus::Cancelled);
    let late = there.tell(&view.run_id, &Wish::Cancel).await;
    assert!(matches!(late, Err(EngineError::Store(StoreError::Ended { .. }))));
}
