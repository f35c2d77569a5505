//! Exports a toolset as tool definitions for other hosts, with a report of losses, and restores the
//! arguments that a model writes.
//!
//! No feature is dropped silently: each one that a host does not support becomes a [`Loss`] with
//! its path and how it was handled. The order is that of the toolset, and equal input gives equal
//! bytes. [`Export::restore_arguments`] converts a model's arguments back and validates them
//! against the tool's own schema, so a loss never lets wrong arguments through.
//!
//! Held by `tests/expose.rs`: if no loss is [`ArgumentsEffect::Wider`], arguments that match the
//! exported schema are restored to arguments that match the original.

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

/// The formats in which hosts take tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// The answer of an MCP server to `tools/list`.
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

/// A target format and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// The shape.
    pub format: ExportFormat,
    /// Whether the host should constrain the model to the schema. Only OpenAI and Anthropic can.
    pub strict: bool,
}

impl Adapter {
    /// The plain form of a format.
    pub fn new(format: ExportFormat) -> Adapter {
        Adapter { format, strict: false }
    }

    /// The strict form of a format; `None` if it has none.
    pub fn strict(format: ExportFormat) -> Option<Adapter> {
        let has = !matches!(format, ExportFormat::Mcp | ExportFormat::Gemini);
        has.then_some(Adapter { format, strict: true })
    }
}

/// Why an export fails as a whole.
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

/// How an unsupported feature was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossHandling {
    /// It was left out.
    Dropped,
    /// It was left out, and the description says so in words.
    Described,
    /// The target of a reference replaces it.
    Inlined,
    /// It was merged into the enclosing schema.
    Merged,
    /// A similar feature replaces it.
    Converted,
    /// The member is required, and `null` means absent.
    Required,
    /// Unlisted members cannot be passed.
    Closed,
    /// The value is passed as JSON text.
    Encoded,
    /// The arguments are passed as a member of an object.
    Wrapped,
    /// It has another name.
    Renamed,
}

/// The effect of a loss on the possible arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentsEffect {
    /// The same arguments are possible.
    Same,
    /// Some arguments that the tool accepts cannot be passed.
    Narrower,
    /// Some arguments can be passed that the tool will reject.
    Wider,
}

/// A feature of a tool's definition that a host does not support.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Loss {
    /// The tool.
    pub tool: ToolId,
    /// Its path: a JSON Pointer into the definition, through references.
    pub path: String,
    /// The feature: a JSON Schema keyword, or a part of the definition.
    pub feature: String,
    /// The source format.
    pub from: &'static str,
    /// The target format.
    pub to: &'static str,
    /// How it was handled.
    pub done: LossHandling,
    /// The effect on arguments.
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
                f.write_str("; the tool may reject arguments that the model may write")
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
    /// The reason.
    pub message: String,
}

/// A tool as a host sees it.
#[derive(Clone, Debug)]
pub struct ExportedTool {
    /// Its name for the host.
    pub name: Arc<str>,
    /// Its definition in the host's format.
    pub definition: Value,
    /// The schema of its arguments for the host.
    pub input: Value,
    spec: Arc<ToolSpec>,
    way: RestoreRule,
}

impl ExportedTool {
    /// The original tool.
    pub fn id(&self) -> &ToolId {
        &self.spec.id
    }
}

/// Why a model's call cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// No exposed tool has this name.
    #[error("no exported tool is called `{name}`")]
    UnknownName {
        /// The name.
        name: String,
        /// The nearest known name.
        nearest: Option<String>,
    },
    /// The arguments do not fit the tool's own schema.
    #[error("the arguments do not fit `{tool}`: {}", violations[0])]
    Unfit {
        /// The tool.
        tool: ToolId,
        /// The violations, at least one.
        violations: Vec<Violation>,
    },
}

/// A toolset in a host's format. Immutable.
#[derive(Clone, Debug)]
pub struct Export {
    /// The target format.
    pub adapter: Adapter,
    /// The tools that could be converted, in the order of the toolset.
    pub tools: Vec<ExportedTool>,
    /// Losses, by tool, path and feature.
    pub losses: Vec<Loss>,
    /// The tools that could not be converted, in the order of the toolset.
    pub errors: Vec<ConversionFailure>,
    limits: Limits,
}

/// Exports a toolset. A missing toolset or adapter is an error.
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
    /// The definitions in the host's format.
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

    /// Resolves a model's call to the tool and its arguments, which are validated against the
    /// tool's own schema.
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

/// A loss that is not yet attributed to a tool.
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

/// Paths of the schemas in a definition.
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
        // A tool without a strict form is exported anyway, with a loss.
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

/// The output schema of a tool, for the one host that supports it.
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
            // Losses of the output do not affect arguments.
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
