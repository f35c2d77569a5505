//! The examples of the library, each run.

#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
#[path = "../../examples/chain.rs"]
mod chain;
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
#[path = "../../examples/engine.rs"]
mod engine;
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
#[path = "../../examples/own_store.rs"]
mod own_store;
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
#[path = "../../examples/own_tools.rs"]
mod own_tools;

use segue_core::value::Value;
use segue_core::view::RunStatus;

#[tokio::test]
async fn an_engine_runs_a_composition() {
    assert_eq!(engine::greet("Ada").await, Ok(Value::from("Hello, Ada (10 characters)")));
}

#[tokio::test]
async fn own_tools_ask_an_own_confirmer() {
    let policy = own_tools::MailPolicy::default();
    let (view, sent) = own_tools::send(&["ada@here", "bob@here"], &policy).await.unwrap();
    assert_eq!((view.status, sent.len()), (RunStatus::Success, 3));
    let asked = policy.asked.lock().unwrap().clone();
    let expected = [("local:send_all".to_owned(), 1), ("local:send".to_owned(), 0)];
    assert_eq!(asked, expected);
    let policy = own_tools::MailPolicy::default();
    let (view, sent) = own_tools::send(&["ada@here", "eve@elsewhere"], &policy).await.unwrap();
    assert_eq!((view.status, sent.len()), (RunStatus::Denied, 0));
}

#[tokio::test]
async fn an_own_store_sees_every_entry() {
    let log = own_store::audited().await.unwrap();
    assert!(log[0].contains("Started") && log.last().unwrap().contains("Finished"), "{log:?}");
}

#[tokio::test]
async fn steps_run_with_one_call() {
    let state = chain::final_state("one two three").await.unwrap();
    assert_eq!(state.get("slug"), Some(&Value::from("one-two-three")));
}
