//! Chains for a program that makes them while it goes: planned chains, active chains, and one call
//! that runs steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use segue_core::diagnostic::{Diagnostic, Severity};
use segue_core::plan::Plan;
use segue_core::result;
use segue_core::source::Source;
use segue_core::value::{Map, Value};
use segue_core::view::{ErrorView, RunView};

use crate::confirm::{Confirmer, DenyAll};
use crate::engine::{Engine, EngineError, RunRequest};

/// The name of a chain whose caller gives none.
const NAME_DEFAULT: &str = "chain";

/// A tool that the program plans to call.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTool {
    /// The tool's name.
    pub name: Arc<str>,
    /// The tool's arguments.
    pub parameters: Value,
}

/// A chain that was planned and has not run yet.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedChain {
    /// The tools, in order.
    pub tools: Vec<PlannedTool>,
    /// Why the program chose these tools.
    pub reasoning: Option<Arc<str>>,
    /// The chain's name.
    pub name: Option<Arc<str>>,
}

/// Why a chain failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChainError {
    /// The steps do not compile to a chain.
    #[error("the chain cannot run: {}", .findings.join("; "))]
    Unsound {
        /// Every error that the compiler found.
        findings: Vec<String>,
    },
    /// A step failed.
    #[error("step {index} (`{step}`) failed: {}", .cause.message)]
    Failed {
        /// The position of the step.
        index: usize,
        /// Its name.
        step: Arc<str>,
        /// How it failed.
        cause: Box<ErrorView>,
        /// The chain's result up to the failure.
        result: Box<Value>,
    },
    /// The chain did not start, or was stopped from outside.
    #[error("the chain was stopped: {}", .cause.message)]
    Stopped {
        /// Why.
        cause: Box<ErrorView>,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The chains of one caller: its context, and the chains that it planned.
pub struct Chains {
    engine: Engine,
    context: Value,
    confirmer: Arc<dyn Confirmer>,
    planned: Mutex<BTreeMap<Arc<str>, PlannedChain>>,
}

impl Engine {
    /// The chains of a caller with this context. Questions are denied: see
    /// [`Chains::confirmed_by`].
    pub fn chains(&self, context: Value) -> Chains {
        let confirmer = Arc::new(DenyAll);
        Chains { engine: self.clone(), context, confirmer, planned: Mutex::default() }
    }
}

impl Chains {
    /// Sets the confirmer, which answers before a destructive call.
    #[must_use]
    pub fn confirmed_by(mut self, confirmer: Arc<dyn Confirmer>) -> Chains {
        self.confirmer = confirmer;
        self
    }

    /// Stores which tools the program plans to call, and returns the chain's id.
    pub fn plan_tool_chain(
        &self,
        tools: Vec<PlannedTool>,
        reasoning: Option<&str>,
        chain_name: Option<&str>,
    ) -> Arc<str> {
        let chain_id = self.engine.chain_id();
        let (reasoning, name) = (reasoning.map(Arc::from), chain_name.map(Arc::from));
        self.planned.lock().insert(chain_id.clone(), PlannedChain { tools, reasoning, name });
        chain_id
    }

    /// The ids of named chains that have not finished, by name.
    pub fn active_chains(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let planned = self.planned.lock();
        let named =
            planned.iter().filter_map(|(id, chain)| Some((chain.name.clone()?, id.clone())));
        named.collect()
    }

    /// The tools that a planned chain will call.
    pub fn next_planned_tools(&self, chain_id: &str) -> Vec<PlannedTool> {
        self.planned.lock().get(chain_id).map_or_else(Vec::new, |chain| chain.tools.clone())
    }

    /// Runs steps as a chain and returns its result. Each step has the form of a step in a chain
    /// document. The state starts as a copy of `initial_state`.
    pub async fn execute_chain(
        &self,
        steps: &[Value],
        initial_state: Option<&Value>,
        chain_name: Option<&str>,
    ) -> Result<Value, ChainError> {
        let plan = self.plan(steps, chain_name)?;
        let tools = steps.iter().filter_map(planned_tool).collect();
        let chain_id = self.plan_tool_chain(tools, None, chain_name);
        let outcome = self.run(plan, initial_state, &chain_id).await;
        self.planned.lock().remove(&chain_id);
        outcome
    }

    fn plan(&self, steps: &[Value], chain_name: Option<&str>) -> Result<Arc<Plan>, ChainError> {
        let document = Value::object([
            ("name", Value::from(chain_name.unwrap_or(NAME_DEFAULT))),
            ("dialect", Value::from("chain")),
            ("steps", Value::from(steps.to_vec())),
        ]);
        let (plan, findings) = self.engine.plan(&Source::new("chain.json", document.to_json()));
        plan.ok_or_else(|| {
            let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
            let errors = findings.iter().filter(is_error);
            ChainError::Unsound {
                findings: errors.map(|finding| finding.message.clone()).collect(),
            }
        })
    }

    async fn run(
        &self,
        plan: Arc<Plan>,
        initial_state: Option<&Value>,
        chain_id: &Arc<str>,
    ) -> Result<Value, ChainError> {
        let input = initial_state.cloned().unwrap_or_else(Value::empty_object);
        let request = RunRequest {
            context: self.context.clone(),
            confirmer: &*self.confirmer,
            ..RunRequest::new(plan.clone(), input)
        };
        let view = self.engine.run_as(request, Some(chain_id.clone())).await?;
        if let (None, Some(cause)) = (&view.started_at, view.errors.first()) {
            return Err(ChainError::Stopped { cause: Box::new(cause.clone()) });
        }
        let stored = self.engine.load_run(&view.run_id).await?;
        let result: Map =
            result::chain_result(&view, result::history(&stored.run, &stored.journal));
        if view.success {
            return Ok(result.into());
        }
        Err(failed(&plan, &view, result.into()))
    }
}

/// The failure that ended the chain. It is the last one: the chain recovered from those before it.
fn failed(plan: &Plan, view: &RunView, result: Value) -> ChainError {
    let Some(cause) = view.errors.last().cloned().map(Box::new) else {
        let findings = vec!["the chain did not succeed".to_owned()];
        return ChainError::Unsound { findings };
    };
    let outermost = |path: &Arc<str>| {
        let head = path.split(['/', '#']).next().unwrap_or(path);
        plan.composition.body.steps.iter().position(|step| *step.id == *head)
    };
    match cause.step.clone().and_then(|step| Some((outermost(&step)?, step))) {
        Some((index, step)) => ChainError::Failed { index, step, cause, result: Box::new(result) },
        None => ChainError::Stopped { cause },
    }
}

fn planned_tool(step: &Value) -> Option<PlannedTool> {
    let name = step.get("tool")?.as_str()?.into();
    let inputs = step.get("inputs").or_else(|| step.get("parameters"));
    Some(PlannedTool { name, parameters: inputs.cloned().unwrap_or_else(Value::empty_object) })
}
