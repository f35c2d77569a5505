//! Injects faults, so that authors can see how their compositions handle failures.
//!
//! Faults happen at two open seams: a [`ToolRunner`] around each tool and a [`Store`] around the
//! store. The core and the driver do not know of them.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use segue_core::composition::{ResolvedRollback, Step, StepKind, ToolCall};
use segue_core::diagnostic::{Code, nearest_name};
use segue_core::duration::parse_duration;
use segue_core::id::{refers_to_step, without_iterations};
use segue_core::plan::{Plan, PlanStep};
use segue_core::run::Purpose;
use segue_core::value::Value;

use crate::store::{InterceptedStore, Operation, Store, StoreError, StoreInterceptor};
use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner, is_fallback};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A fault in the calls of a step.
    Step {
        /// The step: its id, or its path with or without iterations.
        step: String,
        /// The kind of fault.
        kind: StepFault,
    },
    /// The process crashes right after the n-th write of the journal.
    CrashAfter(u32),
}

/// A fault in the calls of a step. Its fallbacks work, so that authors can see them take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepFault {
    /// The first attempts, or all of them, fail and may be retried.
    Fail(Option<u32>),
    /// Every attempt takes this much longer.
    Slow(Duration),
    /// The first calls, or all of them, are made and their answers are lost.
    Lost(Option<u32>),
    /// The step's rollback fails.
    RollbackFail,
}

/// The syntax of faults.
pub const FAULTS: &str =
    "fail=STEP[:N], slow=STEP:DURATION, lost=STEP[:N], rollback-fail=STEP, crash-after=N";

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let unknown = || format!("`{text}` is not a fault: write {FAULTS}");
        let (word, what) = text.split_once('=').ok_or_else(unknown)?;
        let (step, tail) = match what.split_once(':') {
            Some((step, tail)) => (step, Some(tail)),
            None => (what, None),
        };
        let count = |tail: &str| {
            let count: Option<u32> = tail.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| format!("`{tail}` is not a whole number from 1"))
        };
        let kind = match (word, tail) {
            ("crash-after", None) => return Ok(Fault::CrashAfter(count(what)?)),
            ("fail", tail) => StepFault::Fail(tail.map(count).transpose()?),
            ("lost", tail) => StepFault::Lost(tail.map(count).transpose()?),
            ("rollback-fail", None) => StepFault::RollbackFail,
            ("slow", Some(tail)) => {
                let millis = parse_duration(tail)
                    .ok_or_else(|| format!("`{tail}` is not a duration, such as `500ms`"))?;
                StepFault::Slow(Duration::from_millis(millis))
            }
            _ => return Err(unknown()),
        };
        if step.is_empty() {
            return Err(unknown());
        }
        Ok(Fault::Step { step: step.to_owned(), kind })
    }
}

impl Fault {
    /// Checks that the plan has the step of this fault; the error may come with a suggestion.
    pub fn check(&self, plan: &Plan) -> Result<(), (String, Option<String>)> {
        let Fault::Step { step, kind } = self else { return Ok(()) };
        let mut places = Vec::new();
        add_places(plan, 0, "", &mut places);
        let is_there = |place: &&FaultTarget| names(step, &place.path, &place.id);
        let Some(place) = places.iter().find(is_there) else {
            let ids = places.iter().filter(|place| place.has(*kind)).map(|place| &*place.id);
            let near = nearest_name(step, ids).map(|near| format!("did you mean `{near}`?"));
            return Err((format!("there is no step `{step}`"), near));
        };
        if place.has(*kind) {
            return Ok(());
        }
        let missing = match kind {
            StepFault::RollbackFail => "no call rolls it back",
            _ => "it makes no call of its own",
        };
        Err((format!("nothing can be injected at `{step}`: {missing}"), None))
    }
}

/// A step of a plan, and which faults apply to it.
struct FaultTarget {
    /// Iterations are written as `[0]`.
    path: String,
    id: Arc<str>,
    calls: bool,
    is_rolled_back: bool,
}

impl FaultTarget {
    fn has(&self, kind: StepFault) -> bool {
        match kind {
            StepFault::RollbackFail => self.is_rolled_back,
            StepFault::Fail(_) | StepFault::Slow(_) | StepFault::Lost(_) => self.calls,
        }
    }
}

fn add_places(plan: &Plan, body: u32, outer: &str, places: &mut Vec<FaultTarget>) {
    for PlanStep { step, bodies, nested, .. } in plan.steps_of(body) {
        let path = format!("{outer}{}", step.id);
        let rollbacks = [&step.resolved_rollback].into_iter().chain(&step.fallback_rollbacks);
        places.push(FaultTarget {
            path: path.clone(),
            id: step.id.clone(),
            calls: calls_a_tool(step),
            is_rolled_back: rollbacks.into_iter().any(|rollback| match rollback {
                ResolvedRollback::Call(call) => is_tool(call),
                _ => false,
            }),
        });
        let iteration = if matches!(step.kind, StepKind::Loop(_)) { "[0]" } else { "" };
        let inside = format!("{path}{iteration}/");
        bodies.iter().for_each(|body| add_places(plan, *body, &inside, places));
        nested.values().for_each(|nested| add_places(nested, 0, &inside, places));
    }
}

fn calls_a_tool(step: &Step) -> bool {
    matches!(&step.kind, StepKind::Tool(call) if is_tool(call))
}

/// Whether the call is of a plain tool. A composition makes no call itself: its steps do.
fn is_tool(call: &ToolCall) -> bool {
    call.tool.as_ref().is_some_and(|tool| tool.composition.is_none())
}

/// Whether `name` means the step at `path` in a plan, in any iteration.
fn names(name: &str, path: &str, id: &str) -> bool {
    name == id || name == without_iterations(path) || with_first_iterations(name) == path
}

/// `each[2]/parse` → `each[0]/parse`
fn with_first_iterations(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.split_once('[') {
        Some((id, rest)) if rest.strip_suffix(']').is_some_and(|n| n.parse::<u32>().is_ok()) => {
            format!("{id}[0]")
        }
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The faults of an engine.
#[derive(Clone, Default)]
pub struct Faults {
    faults: Arc<Vec<Fault>>,
    met: Arc<Mutex<HitCounts>>,
}

/// How often each fault has hit each step of a run.
type HitCounts = BTreeMap<(usize, Arc<str>, Arc<str>), u32>;

impl Faults {
    /// An engine's faults, in the order in which they apply.
    pub fn new(faults: Vec<Fault>) -> Faults {
        Faults { faults: Arc::new(faults), met: Arc::default() }
    }

    /// Wraps a tool with the faults.
    pub(crate) fn wrap_tool(&self, tool: Tool) -> Tool {
        let runner = FaultyTool { inner: tool.runner, faults: self.clone() };
        Tool { spec: tool.spec, runner: Arc::new(runner) }
    }

    /// Wraps the store with the faults.
    pub(crate) fn wrap_store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let crash = self.faults.iter().find_map(|fault| match fault {
            Fault::CrashAfter(appends) => Some(*appends),
            Fault::Step { .. } => None,
        });
        match crash {
            None => store,
            Some(appends) => {
                let crash = Arc::new(CrashAfter { left: AtomicU32::new(appends) });
                Arc::new(InterceptedStore::new(store, crash))
            }
        }
    }

    /// Whether a fault that hits the first `times` calls hits this one.
    fn happens(&self, fault: usize, call: &ToolRequest, times: Option<u32>) -> bool {
        let Some(times) = times else { return true };
        let mut met = self.met.lock();
        let met = met.entry((fault, call.run_id.clone(), call.step.clone())).or_default();
        *met += 1;
        *met <= times
    }
}

struct FaultyTool {
    inner: Arc<dyn ToolRunner>,
    faults: Faults,
}

#[async_trait]
impl ToolRunner for FaultyTool {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let mut is_lost = false;
        for (at, fault) in self.faults.faults.iter().enumerate() {
            let Fault::Step { step, kind } = fault else { continue };
            let is_meant = match kind {
                StepFault::RollbackFail => call.purpose == Purpose::Rollback,
                _ => call.purpose == Purpose::Work && !is_fallback(&call),
            };
            if !is_meant || !refers_to_step(step, &call.step) {
                continue;
            }
            match kind {
                StepFault::Slow(delay) => tokio::time::sleep(*delay).await,
                StepFault::Fail(times) if self.faults.happens(at, &call, *times) => {
                    return Err(ToolError::failed("injected failure"));
                }
                StepFault::Lost(times) if self.faults.happens(at, &call, *times) => is_lost = true,
                StepFault::RollbackFail => {
                    return Err(ToolError::refused(Code::ToolError, "injected failure"));
                }
                StepFault::Fail(_) | StepFault::Lost(_) => {}
            }
        }
        let answer = self.inner.call(call).await;
        if is_lost {
            return Err(ToolError::NoAnswer {
                message: "the answer was lost (injected)".to_owned(),
            });
        }
        answer
    }

    fn may_ask(&self) -> bool {
        self.inner.may_ask()
    }
}

/// Kills the process after a number of appends.
struct CrashAfter {
    left: AtomicU32,
}

#[async_trait]
impl StoreInterceptor for CrashAfter {
    async fn after(&self, operation: Operation<'_>) -> Result<(), StoreError> {
        let is_append = matches!(operation, Operation::Append { .. });
        if is_append && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            crash();
        }
        Ok(())
    }
}

/// Ends the process as `kill -9` does: nothing is flushed, nothing is cleaned up.
fn crash() {
    #[cfg(unix)]
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let step = |kind| Fault::Step { step: "ship".to_owned(), kind };
        let read = |text: &str| text.parse::<Fault>();
        assert_eq!(read("fail=ship"), Ok(step(StepFault::Fail(None))));
        assert_eq!(read("fail=ship:2"), Ok(step(StepFault::Fail(Some(2)))));
        assert_eq!(read("lost=ship:1"), Ok(step(StepFault::Lost(Some(1)))));
        let half = Duration::from_millis(500);
        assert_eq!(read("slow=ship:500ms"), Ok(step(StepFault::Slow(half))));
        assert_eq!(read("rollback-fail=ship"), Ok(step(StepFault::RollbackFail)));
        assert_eq!(read("crash-after=5"), Ok(Fault::CrashAfter(5)));
        for wrong in ["", "fail", "fail=", "fail=ship:0", "fail=ship:x", "slow=ship", "slow=ship:5"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for wrong in ["crash-after=ship", "crash-after=0", "crash-after=1:2", "rollback-fail=a:1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn steps_are_meant_by_id_and_by_path() {
        assert!(refers_to_step("parse", "each[2]/parse"));
        assert!(refers_to_step("each/parse", "each[2]/parse"));
        assert!(refers_to_step("each[2]/parse", "each[2]/parse"));
        assert!(!refers_to_step("each[1]/parse", "each[2]/parse"));
        assert!(!refers_to_step("each", "each[2]/parse"));
        assert!(!refers_to_step("arse", "parse"));
        for name in ["parse", "each/parse", "each[7]/parse"] {
            assert!(names(name, "each[0]/parse", "parse"), "{name}");
        }
        for name in ["each", "each[x]/parse", "each/parse[1]", "each[]/parse"] {
            assert!(!names(name, "each[0]/parse", "parse"), "{name}");
        }
    }
}
