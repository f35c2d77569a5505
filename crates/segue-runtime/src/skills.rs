//! Skills for a program that calls tools itself: a planner over the program's tools, guards and
//! runner, without a configuration or a server.

use std::sync::Arc;

use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::source::Source;
use segue_core::tool::ToolSpec;
use segue_core::toolset::{Guard, Toolset};
use segue_core::value::Value;
use segue_core::view::RunView;

use crate::engine::{Engine, EngineError, RunRequest};
use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner};

/// The options of a [`Planner`]. Each is optional; without tools no step can be planned.
#[derive(Default)]
pub struct PlannerOptions {
    /// The tools that skills may call.
    pub tools: Vec<Arc<ToolSpec>>,
    /// Calls the tools. A planner without a runner plans, and executes nothing.
    pub runner: Option<Arc<dyn ToolRunner>>,
    /// Checks that a skill must pass beyond its own `guards`.
    pub guards: Vec<Box<dyn Guard>>,
    /// The limits on skills and runs.
    pub limits: Limits,
}

/// Why a skill was not planned or did not run.
#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    /// The skill has errors, or a guard refuses it.
    #[error("the skill cannot be planned: {}", messages(.findings))]
    Refused {
        /// Every error.
        findings: Vec<Diagnostic>,
    },
    /// The planner has no runner.
    #[error("the planner has no runner to execute a plan with")]
    InvalidRunner,
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl SkillError {
    /// Whether the skill was refused for this reason.
    pub fn is(&self, code: Code) -> bool {
        matches!(self, SkillError::Refused { findings } if findings.iter().any(|f| f.code == code))
    }
}

fn messages(findings: &[Diagnostic]) -> String {
    findings.iter().map(|finding| &*finding.message).collect::<Vec<_>>().join("; ")
}

/// Plans skills and executes their plans. Its options never change, so many threads may share it.
pub struct Planner {
    engine: Engine,
    has_runner: bool,
}

impl Planner {
    /// A planner with these options.
    pub fn new(options: PlannerOptions) -> Planner {
        let has_runner = options.runner.is_some();
        let runner = options.runner.unwrap_or_else(|| Arc::new(NoRunner));
        let tools =
            options.tools.into_iter().map(|spec| Tool { spec, runner: Arc::clone(&runner) });
        let toolset = Toolset::builder("planner");
        let toolset = options
            .guards
            .into_iter()
            .fold(toolset, |toolset, guard| toolset.guard(move |skill: &_| guard.check(skill)));
        let builder = Engine::builder().tools(tools).toolset(toolset).limits(options.limits);
        Planner { engine: builder.build().0, has_runner }
    }

    /// Validates a skill, then applies the guards, then plans it.
    pub fn plan(&self, skill: &Source) -> Result<Arc<Plan>, SkillError> {
        let (plan, mut findings) = self.engine.plan(skill);
        findings.retain(|finding| finding.severity == Severity::Error);
        plan.ok_or(SkillError::Refused { findings })
    }

    /// Executes a plan with the planner's runner. The view of a failed run has the results before
    /// the failure, and the error. Questions are denied.
    pub async fn execute(&self, plan: Arc<Plan>, input: Value) -> Result<RunView, SkillError> {
        if !self.has_runner {
            return Err(SkillError::InvalidRunner);
        }
        Ok(self.engine.run(RunRequest::new(plan, input)).await?)
    }
}

/// Stands in tools of a planner that only plans.
struct NoRunner;

#[async_trait::async_trait]
impl ToolRunner for NoRunner {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        Err(ToolError::refused(Code::UnknownTool, format!("`{}` has no runner", call.tool)))
    }
}
