//! Every request of the service, as one type: what REST, GraphQL and MCP read, check and document.
//!
//! [`read`] is the only parser. It checks a value against the schema of its type first, so that a
//! finding names its place, and then reads it. Free-form parts are [`Value`]s, which keep every digit
//! of a number. The schema of a type is also what OpenAPI and MCP publish.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema as Generated, SchemaGenerator, json_schema};
use segue_core::access::Principal;
use segue_core::composition::Strategy;
use segue_core::document::read_trusted_json;
use segue_core::duration::parse_duration;
use segue_core::run::Options;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::value::{Map, Value, from_value};
use segue_runtime::engine::{PlanningRequest, Reuse};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer, Serialize};

use super::error::Error;
use super::result::json_of;

/// A request, whose schema is compiled once.
pub trait Request: DeserializeOwned + JsonSchema {
    /// The schema that a value is checked against before it is read.
    fn schema() -> &'static Schema;
}

/// Compiles the schema of each request at its first use.
#[macro_export]
#[doc(hidden)]
macro_rules! impl_request {
    ($($request:ty),+ $(,)?) => {$(
        impl $crate::api::requests::Request for $request {
            fn schema() -> &'static segue_core::schema::Schema {
                static SCHEMA: std::sync::OnceLock<segue_core::schema::Schema> =
                    std::sync::OnceLock::new();
                SCHEMA.get_or_init($crate::api::requests::compile_schema::<$request>)
            }
        }
    )+};
}
pub use impl_request;

impl_request!(
    ExecuteComposition,
    PlanComposition,
    CreatePlan,
    ExecutePlan,
    PutTemplate,
    ApproveRun,
    ResumeRun,
    RerunRun,
    TestComposition,
    SaveFile,
    RenameFile,
);

/// The schema of a type in one piece, compiled.
pub fn compile_schema<T: JsonSchema>() -> Schema {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = T::json_schema(&mut settings.into_generator());
    let text = serde_json::to_string(&schema).unwrap_or_default();
    let json = read_trusted_json(&text).map(|node| node.to_value());
    Schema::new(json.expect("a schema is JSON"))
}

/// Reads a request.
pub fn read<T: Request>(value: &Value) -> Result<T, Error> {
    if value.as_array().is_some() {
        let message = "a request holds one thing: the body is an object, not a list of them";
        return Err(Error::invalid(message));
    }
    read_with(T::schema(), "body", value)
}

/// Reads a value that was sent as the `place` of a request, and has to fit a schema.
pub fn read_with<T: DeserializeOwned>(
    schema: &Schema,
    place: &str,
    value: &Value,
) -> Result<T, Error> {
    if let Some(violation) = schema.violations(value).first() {
        let verb = if place.ends_with('s') { "do" } else { "does" };
        return Err(Error::invalid(format!("the {place} {verb} not fit: {violation}")));
    }
    from_value(value).map_err(|error| Error::invalid(error.to_string()))
}

/// Starts a run: one of `composition`, `template_id` and `name`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompositionRequest")]
pub struct ExecuteComposition {
    /// The id of a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_id: Option<Arc<str>>,
    /// A composition of any dialect, as an object or as YAML or JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composition: Option<Document>,
    /// The name of a served composition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The input of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Map>,
    /// The context that the composition requires of its caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Map>,
    /// How to run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<ExecutionOptions>,
    /// Run only this step and the steps that it depends on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Arc<str>>,
    /// Run only this step, on the values of the run `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Arc<str>>,
    /// With `only`: the id of an earlier run of the same composition. Its input and context are used
    /// unless others are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<str>>,
    /// Outputs of steps, by id. These steps are not called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mocks: Option<BTreeMap<Arc<str>, StepMock>>,
}

/// The output of a step that is not called, as the `tools` of a test file have it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepMock {
    /// The output.
    pub returns: Value,
}

/// The part of a composition that a request asks for.
#[derive(Clone, Copy, Debug)]
pub enum RequestedPart<'a> {
    /// Every step.
    Whole,
    /// A step, and the steps that it depends on.
    Until(&'a Arc<str>),
    /// One step, on the values of an earlier run.
    Only {
        /// The step.
        step: &'a Arc<str>,
        /// The earlier run.
        run: &'a Arc<str>,
    },
}

impl ExecuteComposition {
    /// The document that it names.
    pub fn document(&self) -> Result<DocumentRef<'_>, Error> {
        DocumentRef::of(self.composition.as_ref(), self.template_id.as_ref(), self.name.as_ref())
    }

    /// The part of the composition that it asks for.
    pub fn part(&self) -> Result<RequestedPart<'_>, Error> {
        let part = match (&self.until, &self.only, &self.run) {
            (None, None, None) => RequestedPart::Whole,
            (Some(step), None, None) => RequestedPart::Until(step),
            (None, Some(step), Some(run)) => RequestedPart::Only { step, run },
            (Some(_), Some(_), _) => {
                return Err(Error::invalid("give one of `until` and `only`"));
            }
            (None, Some(_), None) => {
                return Err(Error::invalid(
                    "`only` needs `run`, the run whose values the step reads",
                ));
            }
            (_, None, Some(_)) => return Err(Error::invalid("`run` is for `only`")),
        };
        let is_dry_run = self.options.as_ref().is_some_and(|options| options.dry_run);
        if is_dry_run && self.is_part() {
            let message = "a dry run shows the whole composition";
            return Err(Error::invalid(message).help("leave out `until`, `only` and `mocks`"));
        }
        Ok(part)
    }

    /// Whether it leaves steps out, or gives values of some.
    pub fn is_part(&self) -> bool {
        self.until.is_some() || self.only.is_some() || self.mocks.is_some()
    }
}

/// How to run a composition.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutionOptions {
    /// The timeout of the whole run: text such as `30s` or `2m`, or whole nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Timeout>,
    /// How many steps may run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<MaxConcurrency>,
    /// Override the composition's error strategy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_strategy: Option<ErrorStrategy>,
    /// Call nothing, and show what would be called.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub dry_run: bool,
    /// Consent to every call that would ask a person.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub approved: bool,
}

impl From<&ExecutionOptions> for Options {
    fn from(options: &ExecutionOptions) -> Options {
        Options {
            timeout_ms: options.timeout.as_ref().and_then(Timeout::millis),
            max_concurrency: options.max_concurrency.map(MaxConcurrency::get),
            strategy: options.error_strategy.map(Into::into),
            approved: options.approved,
            ..Options::default()
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A composition: an object, or YAML or JSON text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Document(Value);

impl Document {
    /// Its text, which is compiled.
    pub fn source(&self) -> Source {
        match &self.0 {
            Value::String(text) => Source::new("composition", text.clone()),
            other => {
                Source::new("composition", serde_json::to_string_pretty(other).unwrap_or_default())
            }
        }
    }

    /// The text or the object, as it was sent.
    pub fn value(&self) -> &Value {
        &self.0
    }
}

impl TryFrom<Value> for Document {
    type Error = Error;

    fn try_from(value: Value) -> Result<Document, Error> {
        match value {
            Value::String(_) | Value::Object(_) => Ok(Document(value)),
            other => {
                let message = "a composition is an object, or YAML or JSON text, and not";
                Err(Error::invalid(format!("{message} {}", other.kind())))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Document, D::Error> {
        Document::try_from(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl JsonSchema for Document {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Document".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Generated {
        json_schema!({
            "type": ["object", "string"],
            "description": "A composition: an object, or YAML or JSON text."
        })
    }
}

/// Which composition a request means.
#[derive(Clone, Copy, Debug)]
pub enum DocumentRef<'a> {
    /// The one that it holds.
    Inline(&'a Document),
    /// The template with this id.
    Template(&'a Arc<str>),
    /// The served composition with this name.
    Served(&'a Arc<str>),
}

impl<'a> DocumentRef<'a> {
    fn of(
        composition: Option<&'a Document>,
        template_id: Option<&'a Arc<str>>,
        name: Option<&'a Arc<str>>,
    ) -> Result<DocumentRef<'a>, Error> {
        match (composition, template_id, name) {
            (Some(document), None, None) => Ok(DocumentRef::Inline(document)),
            (None, Some(id), None) => Ok(DocumentRef::Template(id)),
            (None, None, Some(name)) => Ok(DocumentRef::Served(name)),
            _ => Err(Error::invalid("give one of `composition`, `template_id` and `name`")),
        }
    }
}

/// A duration: text such as `500ms`, `30s` or `2m`, or whole nanoseconds, as Go writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Timeout {
    /// Text such as `30s`, which can be read.
    Text(Arc<str>),
    /// Whole nanoseconds; zero means no timeout.
    Nanoseconds(u64),
}

impl Timeout {
    /// A timeout that is written as text.
    pub fn parse(text: &str) -> Result<Timeout, Error> {
        match parse_duration(text) {
            Some(_) => Ok(Timeout::Text(text.into())),
            None => Err(Error::invalid(format!("`{text}` is no duration; write `30s` or `2m`"))),
        }
    }

    /// The timeout in milliseconds; nothing when there is none.
    pub fn millis(&self) -> Option<u64> {
        match self {
            Timeout::Text(text) => parse_duration(text),
            Timeout::Nanoseconds(nanos) => (*nanos > 0).then(|| nanos.div_ceil(1_000_000)),
        }
    }
}

impl<'de> Deserialize<'de> for Timeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timeout, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_u64(), value.as_str()) {
            (Some(nanos), _) => Ok(Timeout::Nanoseconds(nanos)),
            (None, Some(text)) => Timeout::parse(text).map_err(D::Error::custom),
            (None, None) => {
                let message = format!("`{}` is no duration; write `30s` or `2m`", value.to_json());
                Err(D::Error::custom(message))
            }
        }
    }
}

impl JsonSchema for Timeout {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timeout".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Generated {
        json_schema!({
            "anyOf": [
                { "type": "string", "description": "Text such as `500ms`, `30s` or `2m`." },
                { "type": "integer", "minimum": 0, "description": "Whole nanoseconds." }
            ],
            "description": "A duration."
        })
    }
}

/// How many steps of a run may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct MaxConcurrency(u32);

impl MaxConcurrency {
    const MOST: u32 = 1024;

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<Value> for MaxConcurrency {
    type Error = Error;

    fn try_from(number: Value) -> Result<MaxConcurrency, Error> {
        let most = MaxConcurrency::MOST;
        let number = number.as_u64().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| (1..=most).contains(number)).map(MaxConcurrency).ok_or_else(|| {
            Error::invalid(format!("`max_concurrency` is a whole number from 1 to {most}"))
        })
    }
}

impl<'de> Deserialize<'de> for MaxConcurrency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MaxConcurrency, D::Error> {
        MaxConcurrency::try_from(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl JsonSchema for MaxConcurrency {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MaxConcurrency".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Generated {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": MaxConcurrency::MOST })
    }
}

/// What a run does when a step has failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorStrategy {
    /// It starts nothing more.
    FailFast,
    /// It goes on with the steps that do not need the failed one.
    PartialSuccess,
    /// It rolls back.
    Rollback,
    /// It retries, then stops.
    Retry,
}

// Not derived: that would list each value as a schema of its own.
impl JsonSchema for ErrorStrategy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ErrorStrategy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Generated {
        json_schema!({
            "type": "string",
            "enum": Strategy::WORDS,
            "description": "What a run does when a step has failed for good."
        })
    }
}

impl ErrorStrategy {
    /// The strategy that a word means.
    pub fn parse(word: &str) -> Result<ErrorStrategy, Error> {
        let parsed = ErrorStrategy::deserialize(word.into_deserializer());
        parsed.map_err(|_: serde::de::value::Error| {
            Error::invalid(format!("write one of {}", Strategy::WORDS.join(", ")))
        })
    }
}

impl From<ErrorStrategy> for Strategy {
    fn from(strategy: ErrorStrategy) -> Strategy {
        match strategy {
            ErrorStrategy::FailFast => Strategy::FailFast,
            ErrorStrategy::PartialSuccess => Strategy::PartialSuccess,
            ErrorStrategy::Rollback => Strategy::Rollback,
            ErrorStrategy::Retry => Strategy::Retry,
        }
    }
}

/// Plans a composition: one of `composition`, `template_id` and `name`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PlanRequest")]
pub struct PlanComposition {
    /// The id of a template.
    pub template_id: Option<Arc<str>>,
    /// A composition of any dialect, as an object or as YAML or JSON text.
    pub composition: Option<Document>,
    /// The name of a served composition.
    pub name: Option<Arc<str>>,
}

impl PlanComposition {
    /// The document that it names.
    pub fn document(&self) -> Result<DocumentRef<'_>, Error> {
        DocumentRef::of(self.composition.as_ref(), self.template_id.as_ref(), self.name.as_ref())
    }
}

/// Asks the model for a plan.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AskRequest")]
pub struct CreatePlan {
    /// What the plan is for, in the caller's own words.
    pub query: Arc<str>,
    /// `req_…`: make another version for this request.
    pub request_id: Option<Arc<str>>,
    /// `plan_…`: use this plan, which succeeded before.
    #[serde(rename = "use")]
    pub used_plan: Option<Arc<str>>,
    /// Ask the model even if an earlier plan succeeded for the same words.
    #[serde(default)]
    pub fresh: bool,
}

impl CreatePlan {
    /// The request to the engine, on behalf of a caller.
    pub fn planning_request(self, principal: Option<Principal>) -> PlanningRequest<'static> {
        let reuse = match self.used_plan {
            Some(plan_id) => Reuse::This(plan_id),
            None if self.fresh => Reuse::Nothing,
            None => Reuse::Same,
        };
        let request_id = self.request_id;
        PlanningRequest { request_id, reuse, principal, ..PlanningRequest::new(self.query) }
    }
}

/// Executes a stored plan.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ExecutePlanRequest")]
pub struct ExecutePlan {
    /// Execute it although it was executed already.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub again: bool,
    /// The context that it requires of its caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Map>,
    /// How to run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<ExecutionOptions>,
}

/// Stores a template.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TemplateRequest")]
pub struct PutTemplate {
    /// Small letters, digits, `-` and `_`; in the path when a template is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Arc<str>>,
    /// The title; the composition's name unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// What it is for; the composition's description unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Arc<str>>,
    /// A composition of any dialect, as an object or as YAML or JSON text.
    pub composition: Document,
    /// Category, tags and other facts about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map>,
    /// What it needs: `required_tools`, `min_version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Map>,
}

/// Answers the question that a run waits for.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ApproveRequest")]
pub struct ApproveRun {
    /// Yes or no.
    pub approved: bool,
    /// The step that asks, when several do.
    pub step: Option<Arc<str>>,
    /// The data of a yes, where the question has a schema.
    pub data: Option<Value>,
}

/// Resumes a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ResumeRequest")]
pub struct ResumeRun {
    /// What became of a call that was never answered.
    pub assume: Option<Assume>,
    /// With `assume: done`: what the call returned.
    pub value: Option<Value>,
    /// The step that is in doubt, when several are.
    pub step: Option<Arc<str>>,
}

/// Runs the tests of a composition.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TestRequest")]
pub struct TestComposition {
    /// The name of one test; without it, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<Arc<str>>,
}

/// Saves a file.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SaveFileRequest")]
pub struct SaveFile {
    /// Its whole text.
    pub text: String,
}

/// Renames a file.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RenameFileRequest")]
pub struct RenameFile {
    /// Its new path, relative to the folder of the configuration.
    pub to: Arc<str>,
}

/// Runs a run again.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RerunRequest")]
pub struct RerunRun {
    /// The step to start from; the steps that do not depend on it keep their values. Without it, the
    /// whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Arc<str>>,
    /// Members of the input that replace those of the earlier run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Map>,
    /// Members of the context that replace those of the earlier run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Map>,
    /// How to run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<ExecutionOptions>,
}

/// What became of a call that was never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Assume {
    /// It did its work.
    Done,
    /// It did nothing.
    Failed,
}

/// What identifies a request for idempotency: two requests are the same when this is.
pub fn fingerprint(request: &impl Serialize) -> Value {
    json_of(request)
}

/// An object for a free-form part that must be one.
pub fn object(name: &str, value: Value) -> Result<Map, Error> {
    match value {
        Value::Object(members) => Ok(members.unwrap_or_clone()),
        other => Err(Error::invalid(format!("`{name}` is an object, and not {}", other.kind()))),
    }
}
