//! Tools of ours beside the compositions: to check and run a composition that a caller writes, to
//! keep templates, to plan from words, to look at runs and end them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use segue_core::access::{Principal, Right};
use segue_core::diagnostic::Diagnostic;
use segue_core::source::Source;
use segue_core::tool::Annotations;
use segue_core::value::Value;
use segue_core::view::{PlanView, RunStatus};
use segue_runtime::engine::Engine;
use tokio::time::Instant;

use super::acting::seen;
use super::execution::{Execution, Undescribed, execution, keep_template, source};
use super::hall::Hall;
use super::threads::calculate;
use super::told::{Told, run_value};

/// How often a run is looked at that is not under way here.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Why nobody consents by calling a tool.
const APPROVED: &str = "`options.approved` is not for callers of a tool: what asks is put to the person, \
                        who answers through this host, `segue approve` or the API";

/// What one of our tools is.
pub struct Own {
    /// Its name.
    pub name: &'static str,
    /// What its caller needs.
    pub right: Right,
    /// What it does.
    pub description: &'static str,
    /// JSON Schema of its arguments, as text.
    pub input: &'static str,
    /// JSON Schema of its answer, as text.
    pub output: &'static str,
    /// What it does to the world.
    pub annotations: Annotations,
}

const READS: Annotations = Annotations {
    read_only: Some(true),
    destructive: Some(false),
    idempotent: Some(true),
    open_world: Some(false),
};
const WRITES: Annotations =
    Annotations { read_only: Some(false), destructive: Some(false), ..READS };
const DESTROYS: Annotations =
    Annotations { read_only: Some(false), destructive: Some(true), ..READS };
const ANYTHING: Annotations = Annotations {
    read_only: Some(false),
    destructive: Some(true),
    idempotent: Some(false),
    open_world: Some(true),
};

const RUN: &str = r#"{"type":"object","properties":{"run_id":{"type":"string"},"name":{"type":"string"},"status":{"type":"string","description":"pending, running, waiting, success, partial, failed, rolled_back, rollback_failed, cancelled, denied or dry_run"},"success":{"type":"boolean"},"output":{"description":"the composition's result"},"errors":{"type":"array"},"warnings":{"type":"array"},"waiting_for":{"type":"array","description":"what a person is asked"},"steps":{"type":"array"}},"required":["run_id","status"]}"#;
const TEMPLATE_ID: &str = r#"{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"additionalProperties":false}"#;
const TEMPLATE: &str = r#"{"type":"object","properties":{"id":{"type":"string"},"name":{"type":"string"},"description":{"type":"string"},"composition":{},"metadata":{"type":"object"}},"required":["id","composition"]}"#;

const PLANNED: &str = r#"{"type":"object","properties":{"request_id":{"type":"string"},"plan_id":{"type":"string"},"version":{"type":"integer"},"query":{"type":"string"},"state":{"enum":["pending","in-progress","completed","failed"]},"run_id":{"type":["string","null"]},"plan":{"type":"object","description":"the calls"},"checked":{"type":"object","description":"order, effects and what can be rolled back"},"result":{"type":"object","description":"its last run"}},"required":["request_id","plan_id","state"]}"#;

/// Every one of them.
pub const OWN: &[Own] = &[
    Own {
        name: "composition_create_template",
        right: Right::Write,
        description: "Keeps a composition as a template under an id, after checking it. Runs nothing.",
        input: r#"{"type":"object","properties":{"id":{"type":"string","description":"small letters, digits, - and _"},"name":{"type":"string"},"description":{"type":"string"},"composition":{"type":["object","string"],"description":"the composition, as an object or as YAML or JSON text"},"metadata":{"type":"object"},"replace":{"type":"boolean","default":false}},"required":["id","composition"],"additionalProperties":false}"#,
        output: TEMPLATE,
        annotations: WRITES,
    },
    Own {
        name: "composition_delete_template",
        right: Right::Write,
        description: "Forgets a template.",
        input: TEMPLATE_ID,
        output: r#"{"type":"object","properties":{"id":{"type":"string"},"deleted":{"type":"boolean"}},"required":["id","deleted"]}"#,
        annotations: DESTROYS,
    },
    Own {
        name: "composition_execute",
        right: Right::Run,
        description: "Runs a composition: one that you write, a template, or a served one by name. Steps that may destroy something ask a person first. Check a draft with composition_validate. With options.dry_run nothing is called and what would be called is shown.",
        input: r#"{"type":"object","properties":{"composition":{"type":["object","string"],"description":"the composition, as an object or as YAML or JSON text"},"template_id":{"type":"string"},"name":{"type":"string","description":"of a served composition"},"input":{"type":"object","description":"its input","default":{}},"context":{"type":"object","description":"what it requires of its caller"},"options":{"type":"object","properties":{"timeout":{"type":"string","description":"for the whole run, such as 30s or 2m"},"max_concurrency":{"type":"integer","minimum":1,"maximum":1024},"error_strategy":{"enum":["fail_fast","partial_success","rollback","retry"]},"dry_run":{"type":"boolean"}},"additionalProperties":false}},"additionalProperties":false}"#,
        output: RUN,
        annotations: ANYTHING,
    },
    Own {
        name: "composition_get_template",
        right: Right::Read,
        description: "A template, with its composition.",
        input: TEMPLATE_ID,
        output: TEMPLATE,
        annotations: READS,
    },
    Own {
        name: "composition_list_templates",
        right: Right::Read,
        description: "The templates: compositions to start from, with how often they were used and how well that went.",
        input: r#"{"type":"object","properties":{"search":{"type":"string","description":"words that it should have"}},"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{"templates":{"type":"array","items":{"type":"object"}}},"required":["templates"]}"#,
        annotations: READS,
    },
    Own {
        name: "composition_validate",
        right: Right::Read,
        description: "Checks a composition without running anything: every mistake at its line with a suggestion, and when there is none, the plan: order, effects and what can be rolled back.",
        input: r#"{"type":"object","properties":{"composition":{"type":["object","string"],"description":"the composition, as an object or as YAML or JSON text"}},"required":["composition"],"additionalProperties":false}"#,
        output: r#"{"type":"object","properties":{"ok":{"type":"boolean"},"diagnostics":{"type":"array","items":{"type":"object"}},"plan":{"type":"object"}},"required":["ok","diagnostics"]}"#,
        annotations: READS,
    },
    Own {
        name: "plan_ask",
        right: Right::Compose,
        description: "Has a model plan calls of the tools for what somebody wants, in their own words. The plan is checked and kept; nothing is called. Show it, then run it with plan_execute. The same words get the plan that worked before, unless fresh.",
        input: r#"{"type":"object","properties":{"query":{"type":"string","description":"what is wanted"},"request_id":{"type":"string","description":"req_…: make another plan for this request"},"use":{"type":"string","description":"plan_…: take this plan, which worked before"},"fresh":{"type":"boolean","default":false}},"required":["query"],"additionalProperties":false}"#,
        output: PLANNED,
        annotations: Annotations { open_world: Some(true), idempotent: Some(false), ..WRITES },
    },
    Own {
        name: "plan_execute",
        right: Right::Compose,
        description: "Executes a plan of plan_ask, once: the plan, or the last one of a request. Calls that may destroy something ask a person first. With again it is executed once more.",
        input: r#"{"type":"object","properties":{"plan_id":{"type":"string"},"request_id":{"type":"string"},"again":{"type":"boolean","default":false}},"additionalProperties":false}"#,
        output: RUN,
        annotations: ANYTHING,
    },
    Own {
        name: "plan_get",
        right: Right::Read,
        description: "A plan of plan_ask: the calls, how it stands (pending, in-progress, completed or failed) and, when it was executed, its result. By its id, or the last one of a request.",
        input: r#"{"type":"object","properties":{"plan_id":{"type":"string"},"request_id":{"type":"string"}},"additionalProperties":false}"#,
        output: PLANNED,
        annotations: READS,
    },
    Own {
        name: "run_cancel",
        right: Right::Run,
        description: "Ends a run. What it did stays, unless its composition rolls back.",
        input: r#"{"type":"object","properties":{"run_id":{"type":"string"}},"required":["run_id"],"additionalProperties":false}"#,
        output: RUN,
        annotations: DESTROYS,
    },
    Own {
        name: "run_get",
        right: Right::Read,
        description: "How a run stands and, when it is over, its result. With wait_ms it waits so long for the end.",
        input: r#"{"type":"object","properties":{"run_id":{"type":"string"},"wait_ms":{"type":"integer","minimum":0,"maximum":45000,"default":0},"steps":{"type":"boolean","default":false,"description":"with every step"}},"required":["run_id"],"additionalProperties":false}"#,
        output: RUN,
        annotations: READS,
    },
    Own {
        name: "run_resume",
        right: Right::Run,
        description: "Goes on with a run that waits for a person, also after a restart: the person at this host is asked what it waits for. You cannot answer in their place.",
        input: r#"{"type":"object","properties":{"run_id":{"type":"string"}},"required":["run_id"],"additionalProperties":false}"#,
        output: RUN,
        annotations: ANYTHING,
    },
];

/// The names of them all.
pub fn names() -> BTreeSet<&'static str> {
    OWN.iter().map(|own| own.name).collect()
}

/// One of them.
pub fn find(name: &str) -> Option<&'static Own> {
    OWN.iter().find(|own| own.name == name)
}

impl Own {
    /// Whether there is something that it could do, and for them: planning needs a model.
    pub fn is_offered(&self, who: &Principal, engine: &Engine) -> bool {
        self.missing(who, engine).is_none()
    }

    /// What it would take to offer it to somebody, where it is not.
    pub fn missing(&self, who: &Principal, engine: &Engine) -> Option<String> {
        if !who.may(self.right) {
            return Some(format!("for `{}`: it needs `{}`", who.name, self.right.as_str()));
        }
        let has_model = !self.name.starts_with("plan_") || engine.has_model();
        (!has_model).then(|| "without a model: `llm` configures one".to_owned())
    }

    /// JSON Schema of its arguments.
    pub fn input_schema(&self) -> Value {
        schema(self.input)
    }

    /// JSON Schema of its answer, which may also be a reference to a run.
    pub fn output_schema(&self) -> Value {
        schema(self.output)
    }

    /// What is wrong with arguments.
    pub fn violation(&self, args: &Value) -> Option<String> {
        if args.get("options").and_then(|options| options.get("approved")).is_some() {
            return Some(APPROVED.to_owned());
        }
        let schema = segue_core::schema::Schema::new(self.input_schema());
        schema.violations(args).first().map(|v| format!("the arguments do not fit: {v}"))
    }
}

fn schema(text: &str) -> Value {
    let node = segue_core::document::read_trusted_json(text);
    node.map(|node| node.to_value()).expect("our schemas are JSON")
}

/// What our tools work with.
pub struct Desk<'a> {
    /// The hall.
    pub hall: &'a Arc<Hall>,
    /// Who calls.
    pub who: &'a Principal,
}

impl Desk<'_> {
    /// What `composition_execute` is to run; the error is the answer.
    pub async fn execution(&self, args: &Value) -> Result<Execution, Told> {
        execution(self.hall, self.who, args).await.map_err(|error| refused(&error))
    }

    /// What our other tools answer.
    pub async fn answer(&self, own: &Own, args: &Value) -> Told {
        let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or("");
        match own.name {
            "composition_validate" => self.validate(args.get("composition")),
            "composition_list_templates" => {
                let library = self.hall.served(self.who).library;
                match library.list(text("search")).await {
                    Ok(list) => self.told(Value::object([("templates", json_of(&list))])),
                    Err(error) => refused(&error.into()),
                }
            }
            "composition_get_template" => {
                match self.hall.served(self.who).library.get(text("id")).await {
                    Ok(template) => self.told(json_of(&template)),
                    Err(error) => refused(&error.into()),
                }
            }
            "composition_create_template" => self.create(args).await.unwrap_or_else(|told| told),
            "composition_delete_template" => {
                match self.hall.served(self.who).library.remove(text("id")).await {
                    Err(error) => refused(&error.into()),
                    Ok(()) => self.told(Value::object([
                        ("id", Value::from(text("id"))),
                        ("deleted", Value::Bool(true)),
                    ])),
                }
            }
            "run_cancel" => match self.hall.cancel(self.who, text("run_id")).await {
                Ok(view) => self.told(run_value(&view, false)),
                Err(error) => Told::error(error.to_string()),
            },
            "run_get" => self.run(args).await,
            "plan_ask" => self.ask(args).await,
            "plan_get" => self.look_at_plan(args).await,
            other => Told::error(format!("`{other}` is none of our tools")),
        }
    }

    async fn run(&self, args: &Value) -> Told {
        let run_id = args.get("run_id").and_then(Value::as_str).unwrap_or("");
        let wait = args.get("wait_ms").and_then(Value::as_u64).unwrap_or(0);
        let with_steps = args.get("steps").and_then(Value::as_bool).unwrap_or(false);
        let until = Instant::now() + Duration::from_millis(wait);
        let stored = loop {
            if let Some(active) = self.hall.active(self.who, run_id) {
                let _ = tokio::time::timeout_at(until, active.ended()).await;
            }
            let stored = self.hall.stored(self.who, run_id).await;
            // One that is not under way here may soon be, or is so elsewhere.
            let goes_on = stored.as_ref().is_ok_and(|stored| {
                matches!(stored.view().status, RunStatus::Pending | RunStatus::Running)
            });
            if !goes_on || Instant::now() >= until {
                break stored;
            }
            tokio::time::sleep_until(until.min(Instant::now() + LOOK_EVERY)).await;
        };
        match stored {
            Err(error) => Told::error(error.to_string()),
            Ok(stored) => {
                let mut view = seen(self.hall, self.who, &stored);
                if view.status == RunStatus::Pending {
                    view.status = RunStatus::Running;
                }
                let bytes_max = self.hall.limits().served_result_bytes_max;
                Told::run(&view, with_steps, bytes_max)
            }
        }
    }

    fn validate(&self, composition: Option<&Value>) -> Told {
        let source = source(composition.unwrap_or(&Value::Null));
        let engine = self.hall.served(&self.who.as_author()).engine;
        let (plan, diagnostics) = calculate(|| engine.plan(&source));
        let findings: Vec<Value> =
            diagnostics.iter().map(|finding| shown(finding, &source)).collect();
        let mut answer =
            vec![("ok", Value::Bool(plan.is_some())), ("diagnostics", Value::from(findings))];
        if let Some(plan) = plan {
            answer.push(("plan", json_of(&PlanView::from_plan(&plan))));
        }
        self.told(Value::object(answer))
    }

    async fn create(&self, args: &Value) -> Result<Told, Told> {
        let mut template = (**args.as_object().expect("arguments are an object")).clone();
        let may_replace =
            template.shift_remove("replace").is_some_and(|r| r.as_bool() == Some(true));
        let kept = keep_template(self.hall, self.who, template, may_replace).await;
        kept.map(|template| self.told(json_of(&template))).map_err(|error| refused(&error))
    }

    pub(super) fn told(&self, value: Value) -> Told {
        Told::value(value, self.hall.limits().served_result_bytes_max, None)
    }
}

fn shown(finding: &Diagnostic, source: &Source) -> Value {
    json_of(&finding.view(source))
}

pub(super) fn json_of(view: &impl serde::Serialize) -> Value {
    let text = serde_json::to_string(view).unwrap_or_default();
    let node = segue_core::document::read_trusted_json(&text);
    node.map(|node| node.to_value()).unwrap_or_default()
}

fn refused(error: &Undescribed) -> Told {
    Told::error(error.to_string())
}
