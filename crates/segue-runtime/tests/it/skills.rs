//! Skills with a planner of the program: its options, its guards and its runner.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use segue_core::composition::Composition;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::toolset::{Guard, GuardError};
use segue_core::value::Value;
use segue_runtime::skills::{Planner, PlannerOptions, SkillError};
use segue_runtime::tools::{ToolError, ToolRequest, ToolRunner};

/// A runner that records its calls and returns their arguments.
#[derive(Clone, Default)]
struct Recording(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl ToolRunner for Recording {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        self.0.lock().unwrap().push(format!("{} {}", call.tool, call.args));
        if call.args.get("fails").is_some() { Err(ToolError::failed("no")) } else { Ok(call.args) }
    }
}

fn tools() -> Vec<Arc<ToolSpec>> {
    let spec = |name| {
        let mut spec = ToolSpec::new(ToolId::new("mine", name), "for a test", Schema::any_object());
        spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
        Arc::new(spec)
    };
    vec![spec("one"), spec("two")]
}

const SKILL: &str = "
name: pair
steps:
  - { id: second, tool_id: 'mine:two', inputs: { n: '{{ first.n }}' } }
  - { id: first, tool_id: 'mine:one', inputs: { n: 1 } }
";

fn skill(text: &str) -> Source {
    Source::new("skill.yaml", text)
}

/// Refuses skills that call `mine:two`.
fn no_two(skill: &Composition) -> Result<(), GuardError> {
    let mut refused = Ok(());
    skill.body.walk_calls(&mut |call| {
        if call.tool.as_ref().is_some_and(|tool| tool.id.name() == "two") {
            refused = Err(GuardError::policy("`two` is not for skills"));
        }
    });
    refused
}

fn options(guards: Vec<Box<dyn Guard>>) -> PlannerOptions {
    PlannerOptions { tools: tools(), guards, ..PlannerOptions::default() }
}

/// S2-47, S2-58: a planner takes a runner, guards and limits, each of them optional. Its runner gets
/// the calls of its plans; what failed comes with the results before it.
#[tokio::test]
async fn a_planner_takes_its_options() {
    let calls = Recording::default();
    let with_runner =
        |guards| PlannerOptions { runner: Some(Arc::new(calls.clone())), ..options(guards) };
    let planner = Planner::new(with_runner(Vec::new()));
    let plan = planner.plan(&skill(SKILL)).unwrap();
    let view = planner.execute(plan, Value::empty_object()).await.unwrap();
    assert!(view.success, "{:?}", view.errors);
    assert_eq!(*calls.0.lock().unwrap(), [r#"mine:one {"n":1}"#, r#"mine:two {"n":1}"#]);

    let failing = SKILL.replace("n: '{{ first.n }}'", "fails: true");
    let plan = planner.plan(&skill(&failing)).unwrap();
    let view = planner.execute(plan, Value::empty_object()).await.unwrap();
    assert_eq!(view.errors[0].step.as_deref(), Some("second"));
    assert!(view.results.contains_key("first"), "{:?}", view.results);

    let refused = Planner::new(with_runner(vec![Box::new(no_two)])).plan(&skill(SKILL));
    assert!(refused.unwrap_err().is(Code::PolicyViolation));
    let limits = Limits { steps_max: 1, ..Limits::default() };
    let narrow = Planner::new(PlannerOptions { limits, ..with_runner(Vec::new()) });
    assert!(narrow.plan(&skill(SKILL)).unwrap_err().is(Code::MaxStepsExceeded));
    assert!(Planner::new(PlannerOptions::default()).plan(&skill(SKILL)).is_err());
}

/// S2-59: without a runner a skill is planned and not executed, with an error of its own kind.
#[tokio::test]
async fn a_planner_without_a_runner_only_plans() {
    let planner = Planner::new(options(Vec::new()));
    let plan = planner.plan(&skill(SKILL)).unwrap();
    let error = planner.execute(plan.clone(), Value::empty_object()).await.unwrap_err();
    assert!(matches!(error, SkillError::InvalidRunner), "{error}");
    assert!(!error.is(Code::UnknownTool));
    let calls = Recording::default();
    let runner: Option<Arc<dyn ToolRunner>> = Some(Arc::new(calls.clone()));
    let other = Planner::new(PlannerOptions { runner, ..options(Vec::new()) });
    assert!(other.execute(plan, Value::empty_object()).await.unwrap().success);
    assert_eq!(calls.0.lock().unwrap().len(), 2);
}

/// S2-39, S2-48, S2-49: a skill is validated first, then the guards check it. They check the same
/// skill as often as it is planned, with the same result; a check leaves no trace in the skill, in
/// the planner, or in the result for another skill.
#[test]
fn guards_are_functions_of_a_skill() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let recording = move |skill: &Composition| {
        kept.lock().unwrap().push(format!("{skill:?}"));
        no_two(skill)
    };
    let planner = Planner::new(options(vec![Box::new(recording)]));
    let other = SKILL.replace("mine:two", "mine:one");
    let hash = planner.plan(&skill(&other)).unwrap().hash().clone();
    let bare = Planner::new(options(Vec::new())).plan(&skill(&other)).unwrap();
    assert_eq!(&hash, bare.hash(), "a guard that passes changes no plan");
    let mut errors = Vec::new();
    for _ in 0..3 {
        errors.push(planner.plan(&skill(SKILL)).unwrap_err().to_string());
        assert_eq!(planner.plan(&skill(&other)).unwrap().hash(), &hash);
    }
    assert!(errors[0].contains("`two` is not for skills"), "{errors:?}");
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 7, "one check for each plan");
    assert!(seen[1..].chunks(2).all(|pair| pair == &seen[1..3]), "each check sees the same skill");
    drop(seen);

    let checks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&checks);
    let counting = move |_: &Composition| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let planner = Planner::new(options(vec![Box::new(counting)]));
    for (unsound, code) in [
        ("name: none\nsteps: []\n".to_owned(), Code::NoSteps),
        (SKILL.replace("mine:two", "mine:three"), Code::UnknownTool),
        (format!("guards: {{ max_steps: 1 }}\n{SKILL}"), Code::MaxStepsExceeded),
    ] {
        let error = planner.plan(&skill(&unsound)).unwrap_err();
        assert!(error.is(code), "{error}");
    }
    assert_eq!(checks.load(Ordering::SeqCst), 0, "a guard sees only valid skills");
}

/// S2-50, S2-56: a planner is shared, and several threads are inside its guard at the same time. A guard
/// that threads cannot share is no [`Guard`].
#[test]
fn threads_share_a_guard() {
    fn is_shared<T: ?Sized + Send + Sync>() {}
    is_shared::<dyn Guard>();
    is_shared::<Planner>();
    const THREADS: usize = 2;
    let inside = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, seen) = (Arc::clone(&inside), Arc::clone(&most));
    let meeting = move |skill: &Composition| {
        now.fetch_add(1, Ordering::SeqCst);
        let deadline = Instant::now() + Duration::from_secs(20);
        // Leaves when all threads were inside at once; a lock around the guard would prevent it.
        while seen.fetch_max(now.load(Ordering::SeqCst), Ordering::SeqCst) < THREADS
            && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
        now.fetch_sub(1, Ordering::SeqCst);
        no_two(skill)
    };
    let planner = Planner::new(options(vec![Box::new(meeting)]));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                assert!(planner.plan(&skill(SKILL)).unwrap_err().is(Code::PolicyViolation));
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), THREADS);
}
