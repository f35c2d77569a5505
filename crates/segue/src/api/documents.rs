//! Which composition a request means, as a plan: one that the caller wrote, a template, or a served one.
//!
//! A composition that the caller wrote, and a template that a caller stored, run with the tools that the
//! caller may compose of. Served compositions and the operator's templates run with the caller's own.

use std::sync::Arc;

use segue_core::access::{Principal, Right};
use segue_core::compile::read_header;
use segue_core::diagnostic::{Diagnostic, Severity, nearest_name};
use segue_core::plan::Plan;
use segue_core::source::Source;
use segue_core::template::TemplateOrigin;
use segue_core::view::PlanView;
use segue_runtime::engine::LoadError;

use super::catalog::plain_name;
use super::error::Error;
use super::requests::DocumentRef;
use super::responses::ValidationResult;
use super::runs::RunService;
use super::threads::calculate;
use crate::print::escape_control;

/// Why no composition of this name is served to a caller.
pub fn not_served(service: &RunService, who: &Principal, name: &str) -> Error {
    if let Some(failure) = load_failure(service, who, name) {
        return failure;
    }
    let error = Error::not_found(format!("no composition `{name}` is served"));
    let tools = service.catalog(who).tools;
    match nearest_name(name, tools.iter().map(|tool| &*tool.composition)) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// Why a configured composition could not be loaded, by its name or that of its tool. A caller that is
/// bound to a toolset does not learn of compositions outside it, so it gets no reason.
pub fn load_failure(service: &RunService, who: &Principal, name: &str) -> Option<Error> {
    if who.toolset.is_some() || !who.may(Right::Run) {
        return None;
    }
    let limits = service.limits();
    let broken = service.broken_compositions();
    let is_meant = |failed: &&LoadError| {
        let header = read_header(&failed.source, &limits);
        header.is_some_and(|header| *header.name == *name || plain_name(&header.name) == name)
    };
    let LoadError { diagnostics, .. } = broken.iter().find(is_meant)?;
    let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
    let first = diagnostics.iter().find(is_error);
    let reason = first.map_or("it cannot be read", |finding| &*finding.message);
    let message = format!("composition `{name}` could not be loaded: {}", escape_control(reason));
    let check = format!("`segue check {name}` names everything that is wrong with it");
    let help = match first.and_then(|finding| finding.help.as_deref()) {
        Some(help) => format!("{}; {check}", escape_control(help)),
        None => check,
    };
    Some(Error::not_found(message).help(help))
}

/// A composition that a request means. Only served ones are compiled already.
pub enum ResolvedDocument {
    /// One that the caller wrote.
    Inline(Source),
    /// A template that comes with Segue or from a file of the operator.
    Template(Source),
    /// A template that a caller stored.
    StoredTemplate(Source),
    /// A served composition.
    Served(Arc<Plan>),
}

impl ResolvedDocument {
    /// Finds the composition that a request means.
    pub async fn find(
        service: &RunService,
        who: &Principal,
        document: DocumentRef<'_>,
    ) -> Result<ResolvedDocument, Error> {
        let catalog = service.catalog(who);
        match document {
            DocumentRef::Inline(document) => Ok(ResolvedDocument::Inline(document.source())),
            DocumentRef::Template(id) => {
                let template = catalog.library.stored_template(id).await?;
                Ok(match template.origin {
                    TemplateOrigin::Shipped | TemplateOrigin::File => {
                        ResolvedDocument::Template(template.source)
                    }
                    TemplateOrigin::Store => ResolvedDocument::StoredTemplate(template.source),
                })
            }
            DocumentRef::Served(name) => {
                let tools = &catalog.tools;
                let tool = tools.get(name).or_else(|| tools.of_composition(name));
                let tool = tool.ok_or_else(|| not_served(service, who, name))?;
                Ok(ResolvedDocument::Served(tool.plan.clone()))
            }
        }
    }

    /// The same text as one that the caller wrote: a part of a composition is another composition than
    /// the one that the operator serves.
    #[must_use]
    pub fn written_by_caller(self) -> ResolvedDocument {
        match self {
            ResolvedDocument::Served(plan) => {
                ResolvedDocument::Inline(plan.composition.source.clone())
            }
            ResolvedDocument::Inline(source)
            | ResolvedDocument::Template(source)
            | ResolvedDocument::StoredTemplate(source) => ResolvedDocument::Inline(source),
        }
    }

    /// The principal that it runs as. A model that stores a template runs it as its author.
    pub fn runs_as(&self, who: &Principal) -> Principal {
        match self {
            ResolvedDocument::Inline(_) | ResolvedDocument::StoredTemplate(_) => who.as_author(),
            ResolvedDocument::Template(_) | ResolvedDocument::Served(_) => who.clone(),
        }
    }

    /// Its plan, with the tools of the principal that runs it.
    pub fn plan(self, service: &RunService, runs_as: &Principal) -> Result<Arc<Plan>, Error> {
        match self {
            ResolvedDocument::Served(plan) => Ok(plan),
            ResolvedDocument::Inline(source)
            | ResolvedDocument::Template(source)
            | ResolvedDocument::StoredTemplate(source) => {
                let engine = service.catalog(runs_as).engine;
                let (plan, diagnostics) = calculate(|| engine.plan(&source));
                plan.ok_or_else(|| Error::findings(&source, &diagnostics))
            }
        }
    }
}

/// Plans the composition that a request means.
pub async fn plan(
    service: &RunService,
    who: &Principal,
    document: DocumentRef<'_>,
) -> Result<Arc<Plan>, Error> {
    let composition = ResolvedDocument::find(service, who, document).await?;
    let runs_as = composition.runs_as(who);
    composition.plan(service, &runs_as)
}

/// Checks the composition that a request means, and runs nothing.
pub async fn validate(
    service: &RunService,
    who: &Principal,
    document: DocumentRef<'_>,
) -> Result<ValidationResult, Error> {
    let composition = ResolvedDocument::find(service, who, document).await?;
    let runs_as = composition.runs_as(who);
    let (plan, diagnostics) = match composition {
        ResolvedDocument::Served(plan) => (Some(plan), Vec::new()),
        ResolvedDocument::Inline(source)
        | ResolvedDocument::Template(source)
        | ResolvedDocument::StoredTemplate(source) => {
            let engine = service.catalog(&runs_as).engine;
            let (plan, diagnostics) = calculate(|| engine.plan(&source));
            (plan, diagnostics.iter().map(|finding| finding.view(&source)).collect())
        }
    };
    let plan = plan.map(|plan| PlanView::from_plan(&plan));
    Ok(ValidationResult { ok: plan.is_some(), diagnostics, plan })
}
