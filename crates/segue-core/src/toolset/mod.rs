//! Toolsets: named selections of tools.
//!
//! `source → filters → policy → toolset`, always in this order. Filters select the tools, the
//! policy allows or denies their use. Building makes no calls: the caller passes the tools. A
//! toolset is immutable, so any number of threads may read it.
//!
//! Not here: the export of a toolset to a model's host ([`crate::expose`]), and its enforcement in
//! compositions ([`crate::catalog::Catalog::restrict`]).

mod filter;
mod guard;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::access::{INLINE, SERVED};
use crate::composition::Composition;
use crate::composition::tool::{COMPOSITION, ToolSpec};
use crate::diagnostic::Code;
use crate::id::ToolId;

pub use filter::{Filter, Policy, Predicate, ToolPattern};
use guard::SharedGuard;
pub use guard::{Guard, GuardError};
pub use search::search;

/// A toolset was built without a source of tools.
///
/// This is more likely a mistake than intended; an empty list is a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the toolset `{toolset}` has no source")]
pub struct NoToolSourceError {
    /// The toolset.
    pub toolset: Arc<str>,
}

impl NoToolSourceError {
    /// The permanent name of this error.
    pub fn code(&self) -> Code {
        Code::NoSource
    }
}

/// Limits on compositions of a toolset's tools; `None` means no limit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolsetGuards {
    /// Steps of a composition, bodies included.
    pub max_steps: Option<usize>,
    /// Calls that a run may make, attempts included.
    pub max_tool_calls: Option<u64>,
    /// The timeout of a run.
    pub timeout_ms: Option<u64>,
}

/// The configuration of a toolset.
#[derive(Clone, Debug)]
pub struct ToolsetBuilder {
    name: Arc<str>,
    source: Option<Vec<Arc<ToolSpec>>>,
    filters: Vec<Filter>,
    policy: Policy,
    guards: ToolsetGuards,
    custom_guards: Vec<SharedGuard>,
    is_whole: bool,
}

/// Equal if they select the same tools from the same source.
impl PartialEq for ToolsetBuilder {
    fn eq(&self, other: &ToolsetBuilder) -> bool {
        let tools = |of: &ToolsetBuilder| -> Option<Vec<*const ToolSpec>> {
            of.source.as_ref().map(|tools| tools.iter().map(Arc::as_ptr).collect())
        };
        self.name == other.name
            && self.filters == other.filters
            && self.policy == other.policy
            && self.guards == other.guards
            && self.custom_guards == other.custom_guards
            && self.is_whole == other.is_whole
            && tools(self) == tools(other)
    }
}

impl ToolsetBuilder {
    /// Takes these tools; of equal ids the last one wins.
    #[must_use]
    pub fn from_tools(mut self, tools: impl IntoIterator<Item = Arc<ToolSpec>>) -> ToolsetBuilder {
        self.source.get_or_insert_default().extend(tools);
        self
    }

    /// Keeps tools of this namespace.
    #[must_use]
    pub fn with_namespace(self, namespace: &str) -> ToolsetBuilder {
        self.filter(Filter::Namespaces(vec![namespace.into()]))
    }

    /// Adds a filter. A tool must pass all filters, in this order.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> ToolsetBuilder {
        self.filters.push(filter);
        self
    }

    /// Sets the policy, which applies after the filters. By default everything is allowed.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> ToolsetBuilder {
        self.policy = policy;
        self
    }

    /// Sets the limits on compositions.
    #[must_use]
    pub fn guards(mut self, guards: ToolsetGuards) -> ToolsetBuilder {
        self.guards = guards;
        self
    }

    /// Adds a guard of the program. A composition must pass all guards, in this order.
    #[must_use]
    pub fn guard(mut self, guard: impl Guard + 'static) -> ToolsetBuilder {
        self.custom_guards.push(SharedGuard(Arc::new(guard)));
        self
    }

    /// Allows selected compositions to call tools that are not selected.
    #[must_use]
    pub fn with_inner_tools(mut self) -> ToolsetBuilder {
        self.is_whole = true;
        self
    }

    /// Whether a tool passes the filters and the policy.
    pub fn selects(&self, tool: &ToolSpec) -> bool {
        self.filters.iter().all(|filter| filter.keeps(tool)) && self.policy.allows(tool)
    }

    /// The toolset for inline compositions of a host on stdio: tools that only read, the served
    /// compositions with their inner tools, and the tools of the operator's toolset.
    pub fn inline(more: Option<&ToolsetBuilder>) -> ToolsetBuilder {
        let mut filters = vec![Filter::Reads, Filter::Namespaces(vec![COMPOSITION.into()])];
        filters.extend(more.map(|more| Filter::Chosen(Box::new(more.clone()))));
        let mut inline = Toolset::builder(INLINE)
            .filter(Filter::Any(filters))
            .guards(more.map_or_else(ToolsetGuards::default, |more| more.guards))
            .with_inner_tools();
        inline.custom_guards = more.map(|more| more.custom_guards.clone()).unwrap_or_default();
        inline
    }

    /// The toolset for compositions that a run makes for a principal without the right `compose`:
    /// the served compositions, with their inner tools.
    pub fn served() -> ToolsetBuilder {
        Toolset::builder(SERVED)
            .filter(Filter::Namespaces(vec![COMPOSITION.into()]))
            .with_inner_tools()
    }

    /// Builds the toolset.
    pub fn build(self) -> Result<Toolset, NoToolSourceError> {
        let Some(source) = self.source else {
            return Err(NoToolSourceError { toolset: self.name });
        };
        let mut tools: BTreeMap<ToolId, Arc<ToolSpec>> =
            source.into_iter().map(|tool| (tool.id.clone(), tool)).collect();
        tools.retain(|_, tool| self.filters.iter().all(|filter| filter.keeps(tool)));
        let mut denied = BTreeSet::new();
        tools.retain(|id, tool| {
            let allowed = self.policy.allows(tool);
            if !allowed {
                denied.insert(id.clone());
            }
            allowed
        });
        Ok(Toolset {
            name: self.name,
            tools: Arc::new(tools),
            denied: Arc::new(denied),
            guards: self.guards,
            custom_guards: self.custom_guards.into(),
            allows_inner_tools: self.is_whole,
        })
    }
}

/// Whether a toolset allows a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAccess {
    /// It may be used.
    Allowed,
    /// It is not in the toolset.
    Outside,
    /// It is selected, but the policy denies it.
    Denied,
}

/// A named selection of tools. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Toolset {
    name: Arc<str>,
    tools: Arc<BTreeMap<ToolId, Arc<ToolSpec>>>,
    denied: Arc<BTreeSet<ToolId>>,
    guards: ToolsetGuards,
    custom_guards: Arc<[SharedGuard]>,
    allows_inner_tools: bool,
}

impl Toolset {
    /// A builder for a toolset.
    pub fn builder(name: impl Into<Arc<str>>) -> ToolsetBuilder {
        ToolsetBuilder {
            name: name.into(),
            source: None,
            filters: Vec::new(),
            policy: Policy::AllowAll,
            guards: ToolsetGuards::default(),
            custom_guards: Vec::new(),
            is_whole: false,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The limits on compositions.
    pub fn guards(&self) -> ToolsetGuards {
        self.guards
    }

    /// The ids of its tools, in byte order.
    pub fn ids(&self) -> impl Iterator<Item = &ToolId> {
        self.tools.keys()
    }

    /// Its tools, in byte order of their ids.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.tools.values()
    }

    /// The same without the compositions that may not run with it.
    pub fn usable_tools(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        let may_run = |composition| self.run_error(composition).is_none();
        self.tools().filter(move |tool| tool.composition.as_deref().is_none_or(may_run))
    }

    /// The tool of this id.
    pub fn get(&self, id: &ToolId) -> Option<&Arc<ToolSpec>> {
        self.tools.get(id)
    }

    /// How many tools it has.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether it allows a tool. An unknown tool is outside.
    pub fn access(&self, id: &ToolId) -> ToolAccess {
        if self.tools.contains_key(id) {
            ToolAccess::Allowed
        } else if self.denied.contains(id) {
            ToolAccess::Denied
        } else {
            ToolAccess::Outside
        }
    }

    /// Why a tool may not be used, if so: a code and a message.
    pub fn access_error(&self, id: &ToolId) -> Option<(Code, String)> {
        let name = &self.name;
        match self.access(id) {
            ToolAccess::Allowed => None,
            ToolAccess::Outside => {
                Some((Code::ToolNotAllowed, format!("`{id}` is not in the toolset `{name}`")))
            }
            ToolAccess::Denied => Some((
                Code::PolicyViolation,
                format!("the policy of the toolset `{name}` does not allow `{id}`"),
            )),
        }
    }

    /// Whether its compositions may call inner tools that it does not have.
    pub fn allows_inner_tools(&self) -> bool {
        self.allows_inner_tools
    }

    /// The same tools, with the narrower limits and the guards of both.
    #[must_use]
    pub fn bounded_by(mut self, outer: &Toolset) -> Toolset {
        let (own, other) = (self.guards, outer.guards);
        self.guards = ToolsetGuards {
            max_steps: own.max_steps.into_iter().chain(other.max_steps).min(),
            max_tool_calls: own.max_tool_calls.into_iter().chain(other.max_tool_calls).min(),
            timeout_ms: own.timeout_ms.into_iter().chain(other.timeout_ms).min(),
        };
        let both = outer.custom_guards.iter().chain(self.custom_guards.iter());
        self.custom_guards = both.cloned().collect();
        self
    }

    /// Why a composition may not run with it, if so: its size, a tool that it or an inner
    /// composition calls, or a guard. Listings use it too, so only compositions that may run are
    /// offered.
    pub fn run_error(&self, composition: &Composition) -> Option<(Code, String)> {
        self.size_error(composition)
            .or_else(|| self.inner_tools_error(composition))
            .or_else(|| self.guard_error(composition).map(|error| (error.code, error.message)))
    }

    /// Why a guard of the program refuses a composition or one that it calls, if so.
    pub(crate) fn guard_error(&self, composition: &Composition) -> Option<GuardError> {
        guard::refusal(&self.custom_guards, composition)
    }

    /// Why a composition has too many steps, if so.
    pub(crate) fn size_error(&self, composition: &Composition) -> Option<(Code, String)> {
        let (max, mut count) = (self.guards.max_steps?, 0);
        composition.body.walk(&mut |_| count += 1);
        let name = &self.name;
        (count > max).then(|| {
            let message =
                format!("the composition has {count} steps, the toolset `{name}` allows {max}");
            (Code::MaxStepsExceeded, message)
        })
    }

    /// Why a tool that a composition calls may not be used, if so.
    pub(crate) fn inner_tools_error(&self, composition: &Composition) -> Option<(Code, String)> {
        let mut refusal = None;
        if self.allows_inner_tools {
            return None;
        }
        composition.body.walk_calls(&mut |call| {
            if let (None, Some(tool)) = (&refusal, &call.tool) {
                let inside = || self.inner_tools_error(tool.composition.as_ref()?);
                refusal = self.access_error(&tool.id).or_else(inside);
            }
        });
        refusal
    }

    /// A toolset of the tools that pass a filter.
    #[must_use]
    pub fn filtered(&self, filter: &Filter) -> Toolset {
        let kept = self.tools.iter().filter(|(_, tool)| filter.keeps(tool));
        let tools = kept.map(|(id, tool)| (id.clone(), tool.clone())).collect();
        Toolset { tools: Arc::new(tools), ..self.clone() }
    }
}
