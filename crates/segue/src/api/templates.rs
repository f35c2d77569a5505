//! Templates: compositions to start from, which the service lists, stores and deletes.

use std::sync::Arc;

use segue_core::access::{Principal, Right};
use segue_core::composition::StepKind;
use segue_core::document::{self, ReadLimits};
use segue_core::source::Source;
use segue_core::value::{Map, Value};
use segue_core::view::TemplateView;
use segue_runtime::engine::Engine;

use super::error::{Error, require_for};
use super::requests::PutTemplate;
use super::result::json_of;
use super::runs::RunService;
use super::threads::calculate;

/// The templates with these words, the best first; all of them, by id, without words.
pub async fn list(
    service: &RunService,
    who: &Principal,
    search: &str,
) -> Result<Vec<TemplateView>, Error> {
    Ok(service.catalog(who).library.list(search).await?)
}

/// A template, with its composition.
pub async fn find(service: &RunService, who: &Principal, id: &str) -> Result<TemplateView, Error> {
    Ok(service.catalog(who).library.get(id).await?)
}

/// Stores a new template under the id that the request holds; `may_replace` replaces an old one.
pub async fn create(
    service: &RunService,
    who: &Principal,
    template: PutTemplate,
    may_replace: bool,
) -> Result<TemplateView, Error> {
    if template.id.is_none() {
        return Err(Error::invalid("a new template needs an `id`"));
    }
    store(service, who, template, may_replace).await
}

/// Stores a template under an id, in place of the old one; whether there was none.
pub async fn put(
    service: &RunService,
    who: &Principal,
    id: &str,
    mut template: PutTemplate,
) -> Result<(TemplateView, bool), Error> {
    if template.id.as_deref().is_some_and(|given| given != id) {
        return Err(Error::invalid("`id` is another one than that of the path"));
    }
    template.id = Some(id.into());
    let is_new = service.catalog(who).library.stored_template(id).await.is_err();
    Ok((store(service, who, template, true).await?, is_new))
}

/// Deletes a template from the store.
pub async fn delete(service: &RunService, who: &Principal, id: &str) -> Result<(), Error> {
    Ok(service.catalog(who).library.remove(id).await?)
}

/// Stores a template. Others run it without the right to compose, so its author needs that right, and
/// it uses only tools that the author may compose of.
async fn store(
    service: &RunService,
    who: &Principal,
    template: PutTemplate,
    may_replace: bool,
) -> Result<TemplateView, Error> {
    let why = "the author of a template decides what others run";
    require_for(who, Right::Compose, "store a template", why)?;
    let text = template_text(service, &template)?;
    let catalog = service.catalog(&who.as_author());
    if has_toolset(who) && expands(&catalog.engine, &text) {
        let message = "a template of an author with a toolset has no `expand`: others would run the composition \
                       that it makes, with tools that the author may not use";
        return Err(Error::forbidden(message));
    }
    Ok(catalog.library.put(&text, may_replace).await?)
}

/// The template as JSON, with its composition as an object.
fn template_text(service: &RunService, template: &PutTemplate) -> Result<Arc<str>, Error> {
    let mut members: Map = match json_of(template) {
        Value::Object(members) => members.unwrap_or_clone(),
        _ => Map::new(),
    };
    if let Value::String(text) = template.composition.value() {
        let source = Source::new("composition", text.clone());
        let budget = ReadLimits::for_documents(&service.limits());
        let node = document::read(&source, budget)
            .map_err(|diagnostics| Error::findings(&source, &diagnostics))?;
        members.insert("composition".into(), node.to_value());
    }
    Ok(Value::from(members).to_json().into())
}

/// Whether the author of a template may use fewer tools than those who run it.
fn has_toolset(who: &Principal) -> bool {
    who.toolset.is_some() || who.inline.is_some()
}

/// Whether a template makes compositions as it runs, which cannot be checked before.
fn expands(engine: &Engine, template: &str) -> bool {
    let (plan, _) = calculate(|| engine.plan(&Source::new("template", template)));
    let mut found = false;
    if let Some(plan) = plan {
        let body = &plan.composition.body;
        body.walk(&mut |step| found |= matches!(step.kind, StepKind::Expand(_)));
    }
    found
}
