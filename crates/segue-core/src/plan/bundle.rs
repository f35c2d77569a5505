//! Serializes a plan to text, and restores the same plan from that text alone.
//!
//! A bundle holds the texts of the composition and its inner compositions, with the definition of
//! every tool that they were compiled against. Restoring compiles them again, so there is one path
//! from text to plan. The restored plan must have the original hash, or the bundle is rejected.
//!
//! Not here: storage of bundles.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Plan, plan};
use crate::catalog::{Catalog, ToolLookup};
use crate::compile::compile;
use crate::composition::tool::{Annotations, Backend, ConfirmPolicy, DeclaredRollback, ToolSpec};
use crate::composition::tool::{CodeTool, ConfirmWhen};
use crate::composition::{Composition, ResolvedRollback, Step, ToolCall};
use crate::diagnostic::Severity;
use crate::document::read_trusted_json;
use crate::id::ToolId;
use crate::limits::Limits;
use crate::schema::Schema;
use crate::source::{Edition, Source};
use crate::value::{Value, from_value};

/// The version of the bundle format.
pub const BUNDLE_FORMAT: u32 = 1;

/// Why a bundle cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// It is not a bundle, or a bundle of an unknown version.
    #[error("the stored plan cannot be read: {message}")]
    Unreadable {
        /// The reason.
        message: String,
    },
    /// This version of Segue no longer accepts the composition.
    #[error("the stored composition `{name}` does not compile any more: {message}")]
    Uncompiled {
        /// The composition.
        name: Arc<str>,
        /// The first error.
        message: String,
    },
    /// The composition compiles to a different plan.
    #[error("the stored plan has the hash {actual} now, but the run is bound to {expected}")]
    Changed {
        /// The hash that the run is bound to.
        expected: Arc<str>,
        /// The hash of the restored plan.
        actual: Arc<str>,
    },
}

#[derive(Serialize, Deserialize)]
struct Bundle {
    format: u32,
    plan_hash: Arc<str>,
    /// Each tool once.
    tools: Vec<BundledTool>,
    /// Each composition after those that it calls; the last one is the plan's own.
    compositions: Vec<BundledComposition>,
}

#[derive(Serialize, Deserialize)]
struct BundledComposition {
    name: Arc<str>,
    text: Arc<str>,
    /// Which composition of the text it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<Arc<str>>,
    /// The servers that another text names for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    servers: Vec<Arc<str>>,
    /// How the text was translated.
    #[serde(default, skip_serializing_if = "Edition::is_first")]
    edition: Edition,
    /// Positions of the tools that it was compiled against.
    tools: Vec<usize>,
}

#[derive(Serialize, Deserialize)]
struct BundledTool {
    id: ToolId,
    description: Arc<str>,
    input: Value,
    /// `null` means no schema; no schema is `null`.
    output: Value,
    annotations: Annotations,
    rollback: DeclaredRollback,
    confirm: ConfirmPolicy,
    /// Whether confirmation depends on the arguments. Code cannot be serialized: until the rule is
    /// bound again, every call that may need confirmation asks for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    asks_when: bool,
    scopes: Vec<Arc<str>>,
    tags: Vec<Arc<str>>,
    /// The position of its composition.
    composition: Option<usize>,
    /// The parts of a code tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    composed: Option<BundledParts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pin: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    behind: Option<Arc<str>>,
}

#[derive(Serialize, Deserialize)]
struct BundledParts {
    of: Vec<Arc<str>>,
    atomic: bool,
    is_destructive: bool,
    /// Positions of the parts, each before the tool that it belongs to.
    parts: Vec<usize>,
}

impl Plan {
    /// The plan as text; [`unbundle`] restores it.
    pub fn bundle(&self) -> String {
        let mut packing = BundleBuilder::default();
        packing.composition(&self.composition);
        let bundle = Bundle {
            format: BUNDLE_FORMAT,
            plan_hash: self.hash().clone(),
            tools: packing.tools.into_iter().map(|(_, bundled)| bundled).collect(),
            compositions: packing.compositions.into_iter().map(|(_, bundled)| bundled).collect(),
        };
        serde_json::to_string(&bundle).expect("every part of a bundle has a form in JSON")
    }

    /// Binds the confirmation rules of registered tools, which a bundle cannot hold.
    pub fn bind(&self, here: &Catalog) {
        for (id, tool) in self.callable_tools() {
            let live = here.get(&id).and_then(|live| live.confirm_when.as_ref());
            if let (Some(asks_when), Some(live)) = (&tool.confirm_when, live) {
                asks_when.bind(live);
            }
        }
    }
}

/// The parts serialized so far. Tools and compositions are identified by their address.
#[derive(Default)]
struct BundleBuilder {
    tools: Vec<(Arc<ToolSpec>, BundledTool)>,
    compositions: Vec<(Arc<Composition>, BundledComposition)>,
}

impl BundleBuilder {
    fn composition(&mut self, composition: &Arc<Composition>) -> usize {
        if let Some(at) = self.compositions.iter().position(|(c, _)| Arc::ptr_eq(c, composition)) {
            return at;
        }
        let called = tools_of(composition);
        let catalog = Catalog::new(called.iter().cloned());
        let mut tools = Vec::with_capacity(called.len());
        for tool in &called {
            tools.push(self.tool(tool, &rollback_of(tool, composition, &catalog)));
        }
        let bundled = BundledComposition {
            name: composition.source.name().clone(),
            text: composition.source.text().into(),
            part: composition.source.part().cloned(),
            servers: composition.source.servers().to_vec(),
            edition: composition.source.edition(),
            tools,
        };
        self.compositions.push((composition.clone(), bundled));
        self.compositions.len() - 1
    }

    fn tool(&mut self, tool: &Arc<ToolSpec>, rollback: &DeclaredRollback) -> usize {
        let same = |(packed, bundled): &(Arc<ToolSpec>, BundledTool)| {
            Arc::ptr_eq(packed, tool) && bundled.rollback == *rollback
        };
        if let Some(at) = self.tools.iter().position(same) {
            return at;
        }
        let composition = tool.composition.as_ref().map(|inner| self.composition(inner));
        let composed = tool.code_tool.as_ref().map(|composed| self.parts(composed));
        let bundled = BundledTool {
            id: tool.id.clone(),
            description: tool.description.clone(),
            input: tool.input.json().clone(),
            output: tool.output.as_ref().map_or(Value::Null, |schema| schema.json().clone()),
            annotations: tool.annotations,
            rollback: rollback.clone(),
            confirm: tool.confirm,
            asks_when: tool.confirm_when.is_some(),
            scopes: tool.scopes.clone(),
            tags: tool.tags.clone(),
            composition,
            composed,
            pin: tool.pin.clone(),
            behind: tool.backend_hash.clone(),
        };
        self.tools.push((tool.clone(), bundled));
        self.tools.len() - 1
    }

    fn parts(&mut self, composed: &CodeTool) -> BundledParts {
        let CodeTool { declared_parts: of, atomic, parts, is_destructive } = composed;
        let parts = parts.values().map(|part| self.tool(part, &part.rollback)).collect();
        let (atomic, is_destructive) = (*atomic, *is_destructive);
        BundledParts { of: of.clone(), atomic, is_destructive, parts }
    }
}

/// Every tool that a composition was compiled against, including rollbacks, by id.
fn tools_of(composition: &Composition) -> Vec<Arc<ToolSpec>> {
    let mut catalog = Catalog::default();
    composition.body.walk(&mut |step| {
        for call in step.calls().into_iter().chain(rollback_calls(step)) {
            if let Some(tool) = &call.tool {
                catalog.insert(tool.clone());
            }
        }
    });
    catalog.tools().cloned().collect()
}

fn resolved_rollbacks(step: &Step) -> impl Iterator<Item = &ResolvedRollback> {
    std::iter::once(&step.resolved_rollback).chain(&step.fallback_rollbacks)
}

fn rollback_calls(step: &Step) -> impl Iterator<Item = &ToolCall> {
    resolved_rollbacks(step).filter_map(|rollback| match rollback {
        ResolvedRollback::Call(call) => Some(call),
        _ => None,
    })
}

/// The rollback that a tool declares, with the full id of the other tool: among the fewer tools of
/// a bundle, a short name could resolve differently.
fn rollback_of(tool: &ToolSpec, composition: &Composition, catalog: &Catalog) -> DeclaredRollback {
    let DeclaredRollback::Call { tool: name, parameters } = &tool.rollback else {
        return tool.rollback.clone();
    };
    let mut meant = None;
    composition.body.walk(&mut |step| {
        let is_meant = |rollback: &&ToolCall| {
            rollback.name == *name
                || rollback.tool.as_ref().is_some_and(|tool| tool.id.shared() == name)
        };
        let rollback = rollback_calls(step).find(is_meant);
        meant = meant.take().or_else(|| rollback.and_then(|rollback| rollback.tool.clone()));
    });
    match (meant, catalog.find(name)) {
        (Some(meant), _) => DeclaredRollback::Call {
            tool: meant.id.as_str().into(),
            parameters: parameters.clone(),
        },
        // It was not usable, and must not become usable.
        (None, ToolLookup::Found(_)) => DeclaredRollback::Unknown,
        (None, _) => tool.rollback.clone(),
    }
}

/// Restores a plan from its text.
pub fn unbundle(text: &str, limits: &Limits) -> Result<Arc<Plan>, BundleError> {
    let unreadable = |message: String| BundleError::Unreadable { message };
    let written =
        read_trusted_json(text).map_err(|finding| unreadable(finding.message))?.to_value();
    match written.get("format").and_then(Value::as_u64) {
        Some(format) if format == u64::from(BUNDLE_FORMAT) => {}
        format => return Err(unreadable(format!("format {format:?} is not supported"))),
    }
    let bundle: Bundle = from_value(&written).map_err(|error| unreadable(error.to_string()))?;
    let mut compiled: Vec<Arc<Composition>> = Vec::with_capacity(bundle.compositions.len());
    let mut tools: Vec<Option<Arc<ToolSpec>>> = vec![None; bundle.tools.len()];
    for composition in &bundle.compositions {
        let mut catalog = Catalog::default();
        for at in &composition.tools {
            catalog.insert(unpacked(&bundle.tools, *at, &mut tools, &compiled)?);
        }
        compiled.push(compile_again(composition, &catalog, limits)?);
    }
    let own = compiled.last().ok_or_else(|| unreadable("there is no composition".to_owned()))?;
    let plan = plan(own, limits).map_err(|error| BundleError::Uncompiled {
        name: own.name.clone(),
        message: error.to_string(),
    })?;
    if *plan.hash() != bundle.plan_hash {
        let (expected, actual) = (bundle.plan_hash, plan.hash().clone());
        return Err(BundleError::Changed { expected, actual });
    }
    Ok(Arc::new(plan))
}

/// The tool at a position, with its parts.
fn unpacked(
    bundled: &[BundledTool],
    at: usize,
    tools: &mut [Option<Arc<ToolSpec>>],
    compiled: &[Arc<Composition>],
) -> Result<Arc<ToolSpec>, BundleError> {
    let unreadable = |message: String| BundleError::Unreadable { message };
    let own = bundled.get(at).ok_or_else(|| unreadable(format!("there is no tool {at}")))?;
    if let Some(tool) = &tools[at] {
        return Ok(tool.clone());
    }
    let mut tool = spec(own, compiled)?;
    // Occurrences of the same tool share their confirmation rule.
    if let Some(known) = tools.iter().flatten().find(|known| known.id == tool.id) {
        tool.confirm_when =
            tool.confirm_when.and_then(|own| known.confirm_when.clone().or(Some(own)));
    }
    if let Some(composed) = &own.composed {
        let mut parts = BTreeMap::new();
        for part in &composed.parts {
            if *part >= at {
                return Err(unreadable(format!("`{}` comes before its parts", own.id)));
            }
            let part = unpacked(bundled, *part, tools, compiled)?;
            parts.insert(part.id.clone(), part);
        }
        tool.code_tool = Some(CodeTool {
            declared_parts: composed.of.clone(),
            atomic: composed.atomic,
            is_destructive: composed.is_destructive,
            parts,
        });
    }
    let tool = Arc::new(tool);
    tools[at] = Some(tool.clone());
    Ok(tool)
}

fn spec(bundled: &BundledTool, compiled: &[Arc<Composition>]) -> Result<ToolSpec, BundleError> {
    let composition = match bundled.composition {
        None => None,
        Some(at) => Some(compiled.get(at).cloned().ok_or_else(|| BundleError::Unreadable {
            message: format!("`{}` comes before its composition", bundled.id),
        })?),
    };
    let schema = |json: &Value| Arc::new(Schema::new(json.clone()));
    Ok(ToolSpec {
        id: bundled.id.clone(),
        description: bundled.description.clone(),
        input: schema(&bundled.input),
        output: (!bundled.output.is_null()).then(|| schema(&bundled.output)),
        annotations: bundled.annotations,
        rollback: bundled.rollback.clone(),
        confirm: bundled.confirm,
        confirm_when: bundled.asks_when.then(ConfirmWhen::default),
        scopes: bundled.scopes.clone(),
        tags: bundled.tags.clone(),
        // Permissions were checked when the plan was made.
        category: None,
        backend: Backend::default(),
        composition,
        code_tool: None,
        // Observations change over time and are no part of a plan.
        observed: None,
        pin: bundled.pin.clone(),
        backend_hash: bundled.behind.clone(),
    })
}

fn compile_again(
    bundled: &BundledComposition,
    catalog: &Catalog,
    limits: &Limits,
) -> Result<Arc<Composition>, BundleError> {
    let source = Source::new(bundled.name.clone(), bundled.text.clone())
        .with_part(bundled.part.clone())
        .with_servers(bundled.servers.clone())
        .with_edition(bundled.edition);
    let compiled = compile(&source, catalog, limits);
    compiled.composition.ok_or_else(|| {
        let error = compiled.diagnostics.iter().find(|d| d.severity == Severity::Error);
        let message = error.map_or_else(String::new, |error| error.message.clone());
        BundleError::Uncompiled { name: bundled.name.clone(), message }
    })
}
