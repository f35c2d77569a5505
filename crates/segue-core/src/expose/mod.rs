//! Exposure: a toolset → definitions of tools for other hosts, with a report of what was lost, and the
//! way back for what a model answers.
//!
//! Nothing is left out silently: whatever a host does not take is a [`Loss`] that says where it stood
//! and what was done about it. Everything comes in the order of the toolset; equal input gives equal
//! bytes. What a model writes for an exposed schema is brought back by [`Export::back`] and held
//! against the tool's own schema, so that a loss can never let wrong arguments through.
//!
//! Held by `tests/expose.rs`: where no loss is [`ArgumentsEffect::Wider`], arguments that fit the exposed schema
//! come back as arguments that fit the original.

mod convert;
mod flatten;
mod naming;
mod profile;
mod restore;
mod union;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::composition::tool::{Annotations, ToolSpec};
use crate::diagnostic::{Code, nearest_name};
use crate::id::ToolId;
use crate::limits::Limits;
use crate::schema::Violation;
use crate::toolset::Toolset;
use crate::value::{Map, Value};
use convert::Converter;
use profile::Profile;
use restore::RestoreRule;

/// The shapes in which hosts take tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// What an MCP server answers to `tools/list`.
    Mcp,
    /// OpenAI's Chat Completions.
    OpenAi,
    /// OpenAI's Responses.
    OpenAiResponses,
    /// Anthropic's Messages.
    Anthropic,
    /// Gemini.
    Gemini,
}

impl ExportFormat {
    /// Every format.
    pub const ALL: &'static [ExportFormat] = &[
        ExportFormat::Mcp,
        ExportFormat::OpenAi,
        ExportFormat::OpenAiResponses,
        ExportFormat::Anthropic,
        ExportFormat::Gemini,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            ExportFormat::Mcp => "mcp",
            ExportFormat::OpenAi => "openai",
            ExportFormat::OpenAiResponses => "openai-responses",
            ExportFormat::Anthropic => "anthropic",
            ExportFormat::Gemini => "gemini",
        }
    }

    /// The format of this name.
    pub fn parse(name: &str) -> Option<ExportFormat> {
        ExportFormat::ALL.iter().copied().find(|format| format.as_str() == name)
    }
}

/// What makes definitions of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// The shape.
    pub format: ExportFormat,
    /// Whether the host is asked to hold the model to the schema. Only OpenAI and Anthropic can.
    pub strict: bool,
}

impl Adapter {
    /// The plain form of a format.
    pub fn new(format: ExportFormat) -> Adapter {
        Adapter { format, strict: false }
    }

    /// The strict form of a format; nothing when it has none.
    pub fn strict(format: ExportFormat) -> Option<Adapter> {
        let has = !matches!(format, ExportFormat::Mcp | ExportFormat::Gemini);
        has.then_some(Adapter { format, strict: true })
    }
}

/// Why nothing could be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExposeError {
    /// No toolset was given.
    #[error("the export names no toolset")]
    NilToolset,
    /// No format was given.
    #[error("the export names no format")]
    NilAdapter,
}

impl ExposeError {
    /// The permanent name of this error.
    pub fn code(self) -> Code {
        match self {
            ExposeError::NilToolset => Code::NilToolset,
            ExposeError::NilAdapter => Code::NilAdapter,
        }
    }
}

/// What was done about a feature that a host does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossHandling {
    /// It was left out.
    Dropped,
    /// It was left out, and the description says so in words.
    Described,
    /// What it refers to stands in its place.
    Inlined,
    /// It became part of the schema around it.
    Merged,
    /// Something that says nearly the same stands in its place.
    Converted,
    /// The member must be given, and `null` stands for leaving it out.
    Required,
    /// Members that are not listed cannot be given.
    Closed,
    /// The value is given as the text of its JSON.
    Encoded,
    /// The arguments are given as a member of an object.
    Wrapped,
    /// It has another name.
    Renamed,
}

/// What a loss means for arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentsEffect {
    /// The same arguments are possible.
    Same,
    /// Some that the tool would take cannot be given.
    Narrower,
    /// Some can be given that the tool will refuse.
    Wider,
}

/// A feature of a tool's definition that a host does not take.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Loss {
    /// The tool.
    pub tool: ToolId,
    /// Where the feature stands: a JSON pointer into the definition, through references.
    pub path: String,
    /// Which feature: a keyword of JSON Schema, or a part of the definition.
    pub feature: String,
    /// The format that the definition came in.
    pub from: &'static str,
    /// The format that it was converted to.
    pub to: &'static str,
    /// What was done about it.
    pub done: LossHandling,
    /// What that means for arguments.
    pub arguments: ArgumentsEffect,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { tool, path, feature, from, to, done, arguments } = self;
        let done = format!("{done:?}").to_lowercase();
        write!(f, "Feature {feature} lost converting {from} → {to}: `{tool}` at {path}, {done}")?;
        match arguments {
            ArgumentsEffect::Same => Ok(()),
            ArgumentsEffect::Narrower => f.write_str("; fewer arguments are possible"),
            ArgumentsEffect::Wider => {
                f.write_str("; the tool may refuse what the model is allowed")
            }
        }
    }
}

/// A tool that could not be converted. The others are not affected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConversionFailure {
    /// The tool.
    pub tool: ToolId,
    /// Always [`Code::Conversion`].
    pub code: Code,
    /// Why.
    pub message: String,
}

/// A tool as a host sees it.
#[derive(Clone, Debug)]
pub struct ExportedTool {
    /// What the host calls it.
    pub name: Arc<str>,
    /// Its definition in the host's shape.
    pub definition: Value,
    /// The schema that the host is given for its arguments.
    pub input: Value,
    spec: Arc<ToolSpec>,
    way: RestoreRule,
}

impl ExportedTool {
    /// The tool behind it.
    pub fn id(&self) -> &ToolId {
        &self.spec.id
    }
}

/// Why a call that a model wrote cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// No exposed tool has this name.
    #[error("no exported tool is called `{name}`")]
    UnknownName {
        /// The name.
        name: String,
        /// What was perhaps meant.
        nearest: Option<String>,
    },
    /// The arguments do not fit the tool's own schema.
    #[error("the arguments do not fit `{tool}`: {}", violations[0])]
    Unfit {
        /// The tool.
        tool: ToolId,
        /// How they do not fit, at least one.
        violations: Vec<Violation>,
    },
}

/// A toolset in the shape of a host. It never changes.
#[derive(Clone, Debug)]
pub struct Export {
    /// For whom.
    pub adapter: Adapter,
    /// The tools that could be converted, in the order of the toolset.
    pub tools: Vec<ExportedTool>,
    /// What was lost, by tool, place and feature.
    pub losses: Vec<Loss>,
    /// The tools that could not be converted, in the order of the toolset.
    pub errors: Vec<ConversionFailure>,
    limits: Limits,
}

/// Converts a toolset. Whoever has no toolset or no adapter at hand is told so.
pub fn export(
    toolset: Option<&Toolset>,
    adapter: Option<Adapter>,
    limits: &Limits,
) -> Result<Export, ExposeError> {
    let toolset = toolset.ok_or(ExposeError::NilToolset)?;
    let adapter = adapter.ok_or(ExposeError::NilAdapter)?;
    let mut export = Export {
        adapter,
        tools: Vec::new(),
        losses: Vec::new(),
        errors: Vec::new(),
        limits: limits.clone(),
    };
    let names = naming::names(toolset.ids(), adapter.format);
    for (spec, name) in toolset.tools().zip(names) {
        let mut losses = Vec::new();
        match name.and_then(|name| expose(spec, &name, adapter, limits, &mut losses)) {
            Ok(exposed) => export.tools.push(exposed),
            Err(message) => {
                let (tool, code) = (spec.id.clone(), Code::Conversion);
                export.errors.push(ConversionFailure { tool, code, message });
                continue;
            }
        }
        let (from, to) = (spec.backend.format(), adapter.format.as_str());
        let lost = losses.into_iter().map(|UnattributedLoss { path, feature, done, arguments }| {
            Loss { tool: spec.id.clone(), path, feature, from, to, done, arguments }
        });
        export.losses.extend(lost);
    }
    export.losses.sort();
    export.losses.dedup();
    Ok(export)
}

impl Export {
    /// The definitions, as a host takes them.
    pub fn definitions(&self) -> Value {
        let tools: Vec<Value> = self.tools.iter().map(|tool| tool.definition.clone()).collect();
        match self.adapter.format {
            ExportFormat::Mcp => Value::object([("tools", Value::from(tools))]),
            ExportFormat::OpenAi | ExportFormat::OpenAiResponses | ExportFormat::Anthropic => {
                tools.into()
            }
            ExportFormat::Gemini => {
                vec![Value::object([("functionDeclarations", Value::from(tools))])].into()
            }
        }
    }

    /// The call that a model means: which tool, with which arguments. They fit its own schema.
    pub fn restore_arguments(
        &self,
        name: &str,
        args: &Value,
    ) -> Result<(&ToolId, Value), RestoreError> {
        let Some(tool) = self.tools.iter().find(|tool| *tool.name == *name) else {
            let names = self.tools.iter().map(|tool| &*tool.name);
            let nearest = nearest_name(name, names).map(str::to_owned);
            return Err(RestoreError::UnknownName { name: name.to_owned(), nearest });
        };
        let args = tool.way.apply(args, &self.limits);
        let violations = tool.spec.input.violations(&args);
        if violations.is_empty() {
            return Ok((tool.id(), args));
        }
        Err(RestoreError::Unfit { tool: tool.id().clone(), violations })
    }
}

/// A loss, before it is known whose.
struct UnattributedLoss {
    path: String,
    feature: String,
    done: LossHandling,
    arguments: ArgumentsEffect,
}

impl UnattributedLoss {
    fn new(
        path: &str,
        feature: &str,
        done: LossHandling,
        arguments: ArgumentsEffect,
    ) -> UnattributedLoss {
        UnattributedLoss { path: path.to_owned(), feature: feature.to_owned(), done, arguments }
    }
}

/// Where the schemas stand in a definition.
const INPUT: &str = "/input_schema";
const OUTPUT: &str = "/output_schema";

fn expose(
    spec: &Arc<ToolSpec>,
    name: &Arc<str>,
    adapter: Adapter,
    limits: &Limits,
    lost: &mut Vec<UnattributedLoss>,
) -> Result<ExportedTool, String> {
    if !naming::is_unchanged(&spec.id, name) {
        lost.push(UnattributedLoss::new(
            "/id",
            "name",
            LossHandling::Renamed,
            ArgumentsEffect::Same,
        ));
    }
    let Some(profile) = Profile::of(adapter) else {
        let input = convert::object_schema(spec.input.json())?;
        let definition = mcp_definition(spec, name, &input);
        return Ok(ExportedTool {
            name: name.clone(),
            definition,
            input,
            spec: spec.clone(),
            way: RestoreRule::Same,
        });
    };
    let mut converter = Converter::new(profile, spec.input.json(), limits);
    let (input, way, strict) = match converter.arguments(INPUT) {
        Ok((input, way)) => (input, way, adapter.strict),
        // What cannot be strict is exported nevertheless, and says so.
        Err(wrong) if wrong.is_only_strict && adapter.strict => {
            let plain = Adapter::new(adapter.format);
            let profile = Profile::of(plain).ok_or(wrong.message)?;
            converter = Converter::new(profile, spec.input.json(), limits);
            let (input, way) = converter.arguments(INPUT).map_err(|wrong| wrong.message)?;
            lost.push(UnattributedLoss::new(
                INPUT,
                "strict",
                LossHandling::Dropped,
                ArgumentsEffect::Wider,
            ));
            (input, way, false)
        }
        Err(wrong) => return Err(wrong.message),
    };
    lost.append(&mut converter.lost);
    let output = exposed_output(spec, adapter, profile, limits, lost);
    if spec.annotations != Annotations::default() {
        lost.push(UnattributedLoss::new(
            "/annotations",
            "annotations",
            LossHandling::Dropped,
            ArgumentsEffect::Same,
        ));
    }
    let definition = definition(spec, name, adapter, strict, &input, output);
    Ok(ExportedTool { name: name.clone(), definition, input, spec: spec.clone(), way })
}

/// The schema of a tool's value, for the one host that takes it.
fn exposed_output(
    spec: &ToolSpec,
    adapter: Adapter,
    profile: &'static Profile,
    limits: &Limits,
    lost: &mut Vec<UnattributedLoss>,
) -> Option<Value> {
    let output = spec.output.as_ref()?;
    let converted = match adapter.format {
        ExportFormat::Gemini => {
            let mut converter = Converter::new(profile, output.json(), limits);
            let converted = converter.value(OUTPUT).ok();
            // What a value may look like is no matter of arguments.
            let losses = converter.lost.into_iter();
            lost.extend(
                losses.map(|lost| UnattributedLoss { arguments: ArgumentsEffect::Same, ..lost }),
            );
            converted
        }
        _ => None,
    };
    if converted.is_none() {
        lost.push(UnattributedLoss::new(
            OUTPUT,
            "outputSchema",
            LossHandling::Dropped,
            ArgumentsEffect::Same,
        ));
    }
    converted
}

fn mcp_definition(spec: &ToolSpec, name: &Arc<str>, input: &Value) -> Value {
    let mut definition = head(spec, name);
    definition.insert("inputSchema".into(), input.clone());
    if let Some(output) = &spec.output {
        definition.insert("outputSchema".into(), output.json().clone());
    }
    let Annotations { read_only, destructive, idempotent, open_world } = spec.annotations;
    let hints = [
        ("readOnlyHint", read_only),
        ("destructiveHint", destructive),
        ("idempotentHint", idempotent),
        ("openWorldHint", open_world),
    ];
    let hints = hints.into_iter().filter_map(|(hint, flag)| Some((hint, Value::Bool(flag?))));
    let hints = Value::object(hints);
    if hints != Value::empty_object() {
        definition.insert("annotations".into(), hints);
    }
    let id = Value::from(spec.id.as_str());
    definition.insert("_meta".into(), Value::object([("segue/id", id)]));
    definition.into()
}

fn head(spec: &ToolSpec, name: &Arc<str>) -> Map {
    let mut head = Map::new();
    head.insert("name".into(), Value::String(name.clone()));
    head.insert("description".into(), Value::String(spec.description.clone()));
    head
}

fn definition(
    spec: &ToolSpec,
    name: &Arc<str>,
    adapter: Adapter,
    strict: bool,
    input: &Value,
    output: Option<Value>,
) -> Value {
    let mut own = head(spec, name);
    match adapter.format {
        ExportFormat::Mcp => mcp_definition(spec, name, input),
        ExportFormat::OpenAi => {
            own.insert("parameters".into(), input.clone());
            own.insert("strict".into(), Value::Bool(strict));
            Value::object([("type", Value::from("function")), ("function", own.into())])
        }
        ExportFormat::OpenAiResponses => {
            own.insert("parameters".into(), input.clone());
            own.insert("strict".into(), Value::Bool(strict));
            own.shift_insert(0, "type".into(), Value::from("function"));
            own.into()
        }
        ExportFormat::Anthropic => {
            own.insert("input_schema".into(), input.clone());
            if strict {
                own.insert("strict".into(), Value::Bool(true));
            }
            own.into()
        }
        ExportFormat::Gemini => {
            own.insert("parametersJsonSchema".into(), input.clone());
            if let Some(output) = output {
                own.insert("responseJsonSchema".into(), output);
            }
            own.into()
        }
    }
}
