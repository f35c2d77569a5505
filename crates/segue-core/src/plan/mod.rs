//! Composition → [`Plan`]: dependencies, the effect of each step, and pinned tools.
//!
//! A plan is self-contained: it holds the steps, the definitions of the tools that they call and
//! the plans of inner compositions, so no change outside can change a run. Its hash covers the
//! meaning only: notation, key order, comments and descriptions do not count.
//!
//! Not here: scheduling of steps ([`crate::run`]), rendering ([`crate::view::explain`]).

pub mod bundle;
mod declared_calls;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::compile;
use crate::composition::tool::{Annotations, COMPOSITION, Impact, ToolSpec, hex_digest};
use crate::composition::{
    Body, Composition, Flow, Next, ResolvedRollback, Step, StepKind, StepRollback, Strategy,
    Target, ToolCall, Transitions, Unresolved,
};
use crate::expr::{Expr, StepIndex, Template};
use crate::id::ToolId;
use crate::limits::Limits;
use crate::schema::Schema;
use crate::value::{Map, Value};

pub use declared_calls::{DeclaredCall, reachable_calls};
pub use text::plan_text;

/// The position of a body in its plan; the composition's own steps are body 0.
pub type BodyIndex = u32;

/// A composition, ready to run.
#[derive(Debug)]
pub struct Plan {
    /// The planned composition.
    pub composition: Arc<Composition>,
    /// Every step, bodies included, by index.
    pub steps: Vec<PlanStep>,
    /// Every body.
    pub bodies: Vec<PlanBody>,
    /// The tool definitions that the run is bound to.
    pub tools: BTreeMap<ToolId, Arc<ToolSpec>>,
    hash: OnceLock<Arc<str>>,
}

/// A body, by the indices of its steps.
#[derive(Debug)]
pub struct PlanBody {
    /// In the order of the text.
    pub steps: Vec<StepIndex>,
    /// The step that contains this body.
    pub owner: Option<StepIndex>,
    /// How its steps follow each other.
    pub flow: Flow,
    /// In a program, the next position after each step in sequence.
    pub sequence: Vec<Option<u32>>,
}

/// A step with its dependencies and its effect.
#[derive(Debug)]
pub struct PlanStep {
    /// The step.
    pub step: Arc<Step>,
    /// Its body.
    pub body: BodyIndex,
    /// Its position in the body.
    pub position: u32,
    /// Its nested bodies, in the order of the text.
    pub bodies: Vec<BodyIndex>,
    /// Positions in its body of the steps that depend on it.
    pub dependants: Vec<u32>,
    /// Number of steps on the longest path from here to the end of its body, itself included.
    pub height: u32,
    /// Estimated duration from here to the end of its body, as far as durations are known.
    pub remaining_ms: u64,
    /// Its effect, at worst.
    pub effect: Impact,
    /// Plans of the compositions that it calls: 0 for its tool, n for its n-th fallback.
    pub nested: BTreeMap<u16, Arc<Plan>>,
    /// Plans of the compositions that roll it back, by the same keys.
    pub rollback_plans: BTreeMap<u16, Arc<Plan>>,
}

/// Tools by id, with the definitions that a run is bound to.
pub type PinnedTools = BTreeMap<ToolId, Arc<ToolSpec>>;

impl Plan {
    /// Every tool that a run may call, including those of inner compositions.
    pub fn callable_tools(&self) -> PinnedTools {
        let mut found = PinnedTools::new();
        self.collect_tools(false, &mut found);
        found
    }

    /// The tools that roll steps back.
    pub fn rollback_tools(&self) -> PinnedTools {
        let mut found = PinnedTools::new();
        self.collect_tools(true, &mut found);
        found
    }

    /// Whether a run that fails or is cancelled rolls steps back by itself.
    pub fn may_roll_back(&self) -> bool {
        let handling = &self.composition.error_handling;
        handling.rollback_on_failure
            || handling.strategy == Strategy::Rollback
            || self.steps.iter().any(|step| step.nested.values().any(|plan| plan.may_roll_back()))
    }

    fn collect_tools(&self, only_rollbacks: bool, found: &mut PinnedTools) {
        let mut add = |tool: &Arc<ToolSpec>| {
            if tool.composition.is_none() {
                found.insert(tool.id.clone(), tool.clone());
            }
        };
        if !only_rollbacks {
            self.tools.values().for_each(&mut add);
        }
        for PlanStep { step, .. } in &self.steps {
            for rollback in std::iter::once(&step.resolved_rollback).chain(&step.fallback_rollbacks)
            {
                if let ResolvedRollback::Call(ToolCall { tool: Some(tool), .. }) = rollback {
                    add(tool);
                }
            }
        }
        for step in &self.steps {
            step.nested.values().for_each(|plan| plan.collect_tools(only_rollbacks, found));
            step.rollback_plans.values().for_each(|plan| plan.collect_tools(false, found));
        }
    }
}

/// Why a composition cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Compositions call compositions too deeply.
    #[error("compositions nest deeper than the limit of {max}")]
    TooDeep {
        /// The limit.
        max: usize,
    },
}

/// Plans a composition that came out of [`crate::compile::compile`] without errors.
pub fn plan(composition: &Arc<Composition>, limits: &Limits) -> Result<Plan, PlanError> {
    plan_at(composition, limits, 0, &mut PlannedCompositions::new())
}

/// Plans of inner compositions by the composition's address, so that each is planned once.
type PlannedCompositions = BTreeMap<usize, Arc<Plan>>;

fn plan_at(
    composition: &Arc<Composition>,
    limits: &Limits,
    depth: usize,
    planned: &mut PlannedCompositions,
) -> Result<Plan, PlanError> {
    if depth > limits.nesting_depth_max {
        return Err(PlanError::TooDeep { max: limits.nesting_depth_max });
    }
    let mut builder = PlanBuilder {
        steps: Vec::new(),
        bodies: Vec::new(),
        tools: BTreeMap::new(),
        planned,
        limits,
        depth,
    };
    builder.body(&composition.body, None)?;
    Ok(Plan {
        composition: composition.clone(),
        steps: builder.steps,
        bodies: builder.bodies,
        tools: builder.tools,
        hash: OnceLock::new(),
    })
}

/// The effect of a composition as a tool: read-only if all its calls are, destructive if any may
/// be, unknown if any is unknown.
pub fn annotations_of(composition: &Composition) -> Annotations {
    let (mut worst, mut idempotent, mut open_world) = (Impact::None, true, false);
    composition.body.walk_calls(&mut |call| {
        let known = call.tool.as_ref().map_or_else(Annotations::default, |tool| tool.annotations);
        worst = worst.max(known.impact());
        idempotent &= known.read_only == Some(true) || known.idempotent == Some(true);
        open_world |= known.open_world != Some(false);
    });
    // A composition that is expanded at run time has an unknown effect.
    composition.body.walk(&mut |step| {
        if matches!(step.kind, StepKind::Expand(_)) {
            (worst, idempotent, open_world) = (Impact::Unknown, false, true);
        }
    });
    // The author's hints count only where they are more cautious.
    let hints = composition.metadata.get("annotations");
    let says = |name: &str, value: bool| {
        hints.and_then(|hints| hints.get(name)) == Some(&Value::Bool(value))
    };
    let is_destructive = says("destructiveHint", true);
    let only_reads = matches!(worst, Impact::None | Impact::Reads);
    Annotations {
        read_only: Some(only_reads && !is_destructive && !says("readOnlyHint", false)),
        destructive: match worst {
            _ if is_destructive => Some(true),
            Impact::Unknown => None,
            worst => Some(worst == Impact::Destroys),
        },
        idempotent: Some(idempotent && !says("idempotentHint", false)),
        open_world: Some(open_world || says("openWorldHint", true)),
    }
}

/// The maximum size of the inferred output schema of a composition.
const OUTPUT_SCHEMA_BYTES_MAX: usize = 256 * 1024;

/// A composition as a tool that other compositions can call.
pub fn composition_tool(composition: &Arc<Composition>) -> ToolSpec {
    let id = ToolId::new(COMPOSITION, &composition.name);
    let input = composition.input.clone().unwrap_or_else(Schema::any_object);
    let mut spec = ToolSpec::new(id, composition.description.clone(), input);
    // A type that unfolds nested types repeatedly is too large to be useful.
    let output = compile::output_type(composition).to_schema();
    if output.size() <= OUTPUT_SCHEMA_BYTES_MAX {
        spec.output = Some(Arc::new(Schema::new(output)));
    }
    spec.annotations = annotations_of(composition);
    spec.composition = Some(composition.clone());
    spec
}

struct PlanBuilder<'a> {
    steps: Vec<PlanStep>,
    bodies: Vec<PlanBody>,
    tools: BTreeMap<ToolId, Arc<ToolSpec>>,
    planned: &'a mut PlannedCompositions,
    limits: &'a Limits,
    depth: usize,
}

impl PlanBuilder<'_> {
    fn body(&mut self, body: &Body, owner: Option<StepIndex>) -> Result<BodyIndex, PlanError> {
        let index = index(self.bodies.len());
        let steps = body.steps.iter().map(|step| step.index).collect();
        let sequence = if body.flow == Flow::Program { sequence(body) } else { Vec::new() };
        self.bodies.push(PlanBody { steps, owner, flow: body.flow, sequence });
        for (position, step) in body.steps.iter().enumerate() {
            debug_assert_eq!(self.steps.len(), step.index as usize, "indices have no gaps");
            for call in step.calls() {
                self.pin(call);
            }
            let nested = self.nested(step)?;
            let rollback_plans = self.rollback_plans(step)?;
            self.steps.push(PlanStep {
                step: step.clone(),
                body: index,
                position: self::index(position),
                bodies: Vec::new(),
                dependants: Vec::new(),
                height: 1,
                remaining_ms: 0,
                effect: Impact::None,
                nested,
                rollback_plans,
            });
            let inner: Result<Vec<BodyIndex>, PlanError> = step
                .kind
                .bodies()
                .into_iter()
                .map(|body| self.body(body, Some(step.index)))
                .collect();
            self.steps[step.index as usize].bodies = inner?;
            self.steps[step.index as usize].effect = self.effect(step);
            self.steps[step.index as usize].remaining_ms = self.typical_ms(step);
        }
        self.order(body);
        Ok(index)
    }

    /// Pins the tool of a call, and its rollback.
    fn pin(&mut self, call: &ToolCall) {
        if let Some(tool) = &call.tool
            && !self.tools.contains_key(&tool.id)
        {
            self.tools.insert(tool.id.clone(), tool.clone());
        }
    }

    fn nested(&mut self, step: &Step) -> Result<BTreeMap<u16, Arc<Plan>>, PlanError> {
        for rollback in std::iter::once(&step.resolved_rollback).chain(&step.fallback_rollbacks) {
            if let ResolvedRollback::Call(rollback) = rollback {
                self.pin(rollback);
            }
        }
        let mut nested = BTreeMap::new();
        let StepKind::Tool(call) = &step.kind else { return Ok(nested) };
        for (candidate, call) in (0..).zip(std::iter::once(call).chain(&step.fallback)) {
            if let Some(plan) = self.plan_of(call)? {
                nested.insert(candidate, plan);
            }
        }
        Ok(nested)
    }

    fn rollback_plans(&mut self, step: &Step) -> Result<BTreeMap<u16, Arc<Plan>>, PlanError> {
        let mut plans = BTreeMap::new();
        for (candidate, rollback) in
            (0..).zip(std::iter::once(&step.resolved_rollback).chain(&step.fallback_rollbacks))
        {
            if let ResolvedRollback::Call(call) = rollback
                && let Some(plan) = self.plan_of(call)?
            {
                plans.insert(candidate, plan);
            }
        }
        Ok(plans)
    }

    /// The plan of the composition that a call runs, if it is one.
    fn plan_of(&mut self, call: &ToolCall) -> Result<Option<Arc<Plan>>, PlanError> {
        let inner = call.tool.as_ref().and_then(|tool| tool.composition.as_ref());
        let Some(inner) = inner else { return Ok(None) };
        let address = Arc::as_ptr(inner) as usize;
        let plan = match self.planned.get(&address) {
            Some(plan) => plan.clone(),
            None => Arc::new(plan_at(inner, self.limits, self.depth + 1, self.planned)?),
        };
        self.planned.insert(address, plan.clone());
        Ok(Some(plan))
    }

    fn effect(&self, step: &Step) -> Impact {
        let planned = &self.steps[step.index as usize];
        let own = step.calls().into_iter().map(|call| {
            call.tool.as_ref().map_or(Impact::Unknown, |tool| tool.annotations.impact())
        });
        let inner = planned.bodies.iter().flat_map(|body| {
            self.bodies[*body as usize].steps.iter().map(|inner| self.steps[*inner as usize].effect)
        });
        let expands = matches!(step.kind, StepKind::Expand(_)).then_some(Impact::Unknown);
        own.chain(inner).chain(expands).max().unwrap_or(Impact::None)
    }

    /// The typical duration of a step by itself; an unknown one counts as zero.
    fn typical_ms(&self, step: &Step) -> u64 {
        let planned = &self.steps[step.index as usize];
        if let StepKind::Tool(call) = &step.kind {
            let nested = planned.nested.get(&0).map(|plan| plan.typical_ms());
            let observed = call.tool.as_ref().and_then(|tool| tool.observed.as_ref());
            let known = observed.filter(|seen| seen.has_enough_calls()).map(|seen| seen.p50_ms);
            return known.or(nested).unwrap_or(0);
        }
        let bodies = planned.bodies.iter().map(|body| {
            let steps = self.bodies[*body as usize].steps.iter();
            steps.map(|inner| self.steps[*inner as usize].remaining_ms).max().unwrap_or(0)
        });
        bodies.max().unwrap_or(0)
    }

    /// Computes dependants and the length of the path to the end. Needs have no cycles, so the
    /// reverse order of completion visits every dependant first.
    fn order(&mut self, body: &Body) {
        let mut waiting: Vec<u32> = vec![0; body.steps.len()];
        let mut longest: Vec<u64> = vec![0; body.steps.len()];
        for (position, step) in body.steps.iter().enumerate() {
            for need in &step.needs {
                let needed = body.steps[need.position].index as usize;
                self.steps[needed].dependants.push(index(position));
                waiting[need.position] += 1;
            }
        }
        let mut free: Vec<usize> = (0..waiting.len()).filter(|at| waiting[*at] == 0).collect();
        while let Some(at) = free.pop() {
            let PlanStep { height, remaining_ms, .. } = self.steps[body.steps[at].index as usize];
            for need in &body.steps[at].needs {
                let needed = body.steps[need.position].index as usize;
                let needed = &mut self.steps[needed];
                needed.height = needed.height.max(height + 1);
                longest[need.position] = longest[need.position].max(remaining_ms);
                waiting[need.position] -= 1;
                if waiting[need.position] == 0 {
                    needed.remaining_ms =
                        needed.remaining_ms.saturating_add(longest[need.position]);
                    free.push(need.position);
                }
            }
        }
    }
}

/// The next position after each step of a program in sequence.
fn sequence(body: &Body) -> Vec<Option<u32>> {
    let following = |ways: &Transitions| match ways.in_sequence {
        Target::Step(position) => Some(position),
        Target::End => None,
    };
    body.transitions().iter().map(following).collect()
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a composition has far fewer than 2^32 steps")
}

impl Plan {
    /// A step by its index.
    pub fn step(&self, index: StepIndex) -> &PlanStep {
        &self.steps[index as usize]
    }

    /// The steps of a body, in the order of the text.
    pub fn steps_of(&self, body: BodyIndex) -> impl Iterator<Item = &PlanStep> {
        self.bodies[body as usize].steps.iter().map(|index| self.step(*index))
    }

    /// The composition's own step at a position.
    pub fn own_step(&self, position: u32) -> &PlanStep {
        self.step(self.bodies[0].steps[position as usize])
    }

    /// The position of the composition's own step that a step is, or is inside of.
    pub fn own_position(&self, planned: &PlanStep) -> u32 {
        let mut at = planned;
        while let Some(owner) = self.bodies[at.body as usize].owner {
            at = self.step(owner);
        }
        at.position
    }

    /// The typical duration of a run, as far as durations are known.
    pub fn typical_ms(&self) -> u64 {
        self.steps_of(0).map(|step| step.remaining_ms).max().unwrap_or(0)
    }

    /// The effect of a run, at worst.
    pub fn impact(&self) -> Impact {
        self.steps.iter().map(|step| step.effect).max().unwrap_or(Impact::None)
    }

    /// The longest chain of dependent steps.
    pub fn longest_path(&self) -> Vec<&PlanStep> {
        let mut path = Vec::new();
        let mut at =
            self.steps_of(0).max_by_key(|step| (step.height, std::cmp::Reverse(step.position)));
        while let Some(step) = at {
            path.push(step);
            let next = step.dependants.iter().map(|position| {
                self.step(self.bodies[step.body as usize].steps[*position as usize])
            });
            at = next.max_by_key(|next| (next.height, std::cmp::Reverse(next.position)));
        }
        path
    }

    /// For each step of a body, the minimal number of steps before it.
    pub fn levels(&self, body: BodyIndex) -> Vec<usize> {
        let steps = &self.bodies[body as usize].steps;
        let mut levels = vec![0; steps.len()];
        let mut order: Vec<usize> = (0..steps.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.step(steps[*at]).height));
        for at in order {
            for dependant in &self.step(steps[at]).dependants {
                let dependant = *dependant as usize;
                levels[dependant] = levels[dependant].max(levels[at] + 1);
            }
        }
        levels
    }

    /// The hash of the plan's meaning, in hex. Computed once, on first use.
    pub fn hash(&self) -> &Arc<str> {
        self.hash.get_or_init(|| hex_digest(self.meaning().to_canonical_json().as_bytes()).into())
    }

    fn meaning(&self) -> Value {
        let composition = &self.composition;
        let handling = &composition.error_handling;
        let tools = self.tools.iter().map(|(id, tool)| (id.as_str(), Value::from(tool.hash())));
        // Newer fields are omitted at their default, so that old hashes stay valid.
        let max_calls = composition.guards.max_tool_calls;
        let max_calls = max_calls.map(|max| ("max_tool_calls", Value::from(u64::from(max))));
        let keeps = composition.unresolved == Unresolved::Keep;
        let keeps = keeps.then(|| ("unresolved", Value::from("keep")));
        let overwrites = &composition.overwrites;
        let overwrites = (!overwrites.is_empty()).then(|| ("overwrites", texts(overwrites)));
        let capabilities = &composition.requires_capabilities;
        let capabilities =
            (!capabilities.is_empty()).then(|| ("requires_capabilities", texts(capabilities)));
        let meaning = [
            ("name", Value::String(composition.name.clone())),
            ("input", composition.input.as_ref().map_or(Value::Null, |s| s.json().clone())),
            ("requires", texts(&composition.requires_context)),
            ("atomic", Value::Bool(composition.atomic)),
            ("timeout_ms", optional(composition.timeout_ms)),
            ("max_concurrency", Value::from(u64::from(composition.max_concurrency))),
            ("steps", body_meaning(&composition.body)),
            ("output", composition.output.as_ref().map_or(Value::Null, Template::to_value)),
            ("strategy", Value::from(handling.strategy.as_str())),
            ("rollback_on_failure", Value::Bool(handling.rollback_on_failure)),
            ("max_retries", optional(handling.max_retries.map(u64::from))),
            ("backoff", backoff(&handling.backoff)),
            ("tools", Value::object(tools.collect::<Vec<_>>())),
            (
                "nested",
                self.steps
                    .iter()
                    .flat_map(|step| step.nested.values())
                    .map(|nested| Value::String(nested.hash().clone()))
                    .collect::<Vec<_>>()
                    .into(),
            ),
        ];
        let newer = max_calls.into_iter().chain(keeps).chain(overwrites).chain(capabilities);
        Value::object(meaning.into_iter().chain(newer))
    }
}

impl Plan {
    /// Whether the plan or an inner one calls a tool of one of these sources, rollbacks included.
    pub fn calls_any_of(&self, sources: &BTreeSet<Arc<str>>) -> bool {
        let inside = |step: &PlanStep| {
            let mut plans = step.nested.values().chain(step.rollback_plans.values());
            plans.any(|plan| plan.calls_any_of(sources))
        };
        self.tools.keys().any(|id| sources.contains(id.namespace()))
            || self.steps.iter().any(inside)
    }
}

fn texts(items: &[Arc<str>]) -> Value {
    items.iter().map(|item| Value::String(item.clone())).collect::<Vec<_>>().into()
}

fn optional(number: Option<u64>) -> Value {
    number.map_or(Value::Null, Value::from)
}

fn backoff(backoff: &crate::composition::Backoff) -> Value {
    Value::from(format!(
        "{} {} {} {}",
        backoff.initial_ms, backoff.factor, backoff.max_ms, backoff.jitter
    ))
}

fn body_meaning(body: &Body) -> Value {
    let steps = body.steps.iter().map(|step| step_meaning(step)).collect::<Vec<_>>().into();
    match body.flow {
        Flow::Graph => steps,
        Flow::Program => Value::object([("program", steps)]),
    }
}

/// The meaning of a step; absent fields are omitted, so that a new field changes no old hash.
fn step_meaning(step: &Step) -> Value {
    let mut map = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            map.insert(name.into(), value);
        }
    };
    let expr =
        |expr: &Option<Expr>| expr.as_ref().map_or(Value::Null, |e| Value::from(e.text().trim()));
    put("id", Value::String(step.id.clone()));
    put("kind", kind_meaning(&step.kind));
    put(
        "needs",
        step.needs.iter().map(|need| Value::from(need.position)).collect::<Vec<_>>().into(),
    );
    put("when", expr(&step.when));
    put(
        "output_key",
        step.output_key.as_ref().map_or(Value::Null, |(k, _)| Value::String(k.clone())),
    );
    put("timeout_ms", optional(step.timeout_ms));
    put("retries", optional(step.retry.max.map(u64::from)));
    put("backoff", step.retry.backoff.as_ref().map_or(Value::Null, backoff));
    put(
        "retry_on",
        step.retry.on.iter().map(|code| Value::from(code.as_str())).collect::<Vec<_>>().into(),
    );
    put("success_when", expr(&step.success_when));
    put("fail_when", expr(&step.fail_when));
    put("fallback", step.fallback.iter().map(call_meaning).collect::<Vec<_>>().into());
    put(
        "map_outputs",
        pairs(step.on_success.map_outputs.iter().map(|(k, v)| (k, Value::String(v.clone())))),
    );
    put("transform", pairs(step.on_success.transform.iter().map(|(k, v)| (k, v.to_value()))));
    put("on_failure", Value::from(format!("{:?}", step.on_failure.action)));
    put("next", next_meaning(step.on_success.next.as_ref()));
    put("next_on_failure", next_meaning(step.on_failure.next.as_ref()));
    put("falls_through", if step.falls_through { Value::Bool(true) } else { Value::Null });
    put("default", step.on_failure.default.as_ref().map_or(Value::Null, Template::to_value));
    put(
        "rollback",
        match &step.rollback {
            StepRollback::Declared => Value::Null,
            StepRollback::NotNeeded => Value::from("none"),
            StepRollback::Call(call) => call_meaning(call),
            StepRollback::Impossible { reason } => Value::String(reason.clone()),
        },
    );
    put("idempotent", step.idempotent.map_or(Value::Null, Value::Bool));
    put("probe", step.probe.as_ref().map_or(Value::Null, |probe| call_meaning(&probe.call)));
    let found = step.probe.as_ref().and_then(|probe| probe.output.as_ref());
    put("probe_output", found.map_or(Value::Null, Template::to_value));
    put("done_when", step.probe.as_ref().map_or(Value::Null, |p| Value::from(p.done_when.text())));
    put("sensitive", texts(&step.sensitive));
    map.into()
}

fn next_meaning(next: Option<&Next>) -> Value {
    match next.map(|next| next.target) {
        None => Value::Null,
        Some(Target::End) => Value::from("end"),
        Some(Target::Step(position)) => Value::from(u64::from(position)),
    }
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a Arc<str>, Value)>) -> Value {
    Value::object(pairs.map(|(key, value)| (key.clone(), value)))
}

fn call_meaning(call: &ToolCall) -> Value {
    let id = call.tool.as_ref().map_or(&*call.name, |tool| tool.id.as_str());
    Value::object([("tool", Value::from(id)), ("parameters", call.parameters.template.to_value())])
}

fn kind_meaning(kind: &StepKind) -> Value {
    let word = |word: &str| Value::from(word);
    let details = match kind {
        StepKind::Tool(call) => call_meaning(call),
        StepKind::Parallel { branches, wait_for } => Value::object([
            ("wait_for", word(&format!("{wait_for:?}"))),
            (
                "branches",
                branches
                    .iter()
                    .map(|b| Value::from(vec![Value::String(b.id.clone()), body_meaning(&b.body)]))
                    .collect::<Vec<_>>()
                    .into(),
            ),
        ]),
        StepKind::Loop(each) => Value::object([
            ("over", each.over.to_value()),
            ("as", Value::String(each.item.clone())),
            ("steps", body_meaning(&each.body)),
            ("output", each.output.as_ref().map_or(Value::Null, Template::to_value)),
            ("max_concurrency", Value::from(u64::from(each.max_concurrency))),
            ("max_iterations", optional(each.max_iterations.map(u64::from))),
            ("on_item_failure", word(&format!("{:?}", each.on_item_failure))),
        ]),
        StepKind::Repeat(repeat) => Value::object([
            ("steps", body_meaning(&repeat.body)),
            ("until", word(repeat.until.text().trim())),
            ("max_iterations", Value::from(u64::from(repeat.max_iterations))),
            ("delay_ms", Value::from(repeat.delay_ms)),
        ]),
        StepKind::Choose { cases, otherwise } => Value::object([
            (
                "cases",
                cases
                    .iter()
                    .map(|case| {
                        Value::from(vec![word(case.when.text().trim()), body_meaning(&case.body)])
                    })
                    .collect::<Vec<_>>()
                    .into(),
            ),
            ("otherwise", otherwise.as_ref().map_or(Value::Null, body_meaning)),
        ]),
        StepKind::Set(names) => pairs(names.iter().map(|(name, value)| (name, value.to_value()))),
        StepKind::Approve { message, schema, timeout_ms, on_timeout } => Value::object([
            ("message", message.to_value()),
            ("schema", schema.as_ref().map_or(Value::Null, |schema| schema.json().clone())),
            ("timeout_ms", optional(*timeout_ms)),
            ("on_timeout", word(&format!("{on_timeout:?}"))),
        ]),
        StepKind::Wait { duration } => duration.to_value(),
        StepKind::Expand(template) => template.to_value(),
    };
    Value::object([(kind.keyword(), details)])
}
