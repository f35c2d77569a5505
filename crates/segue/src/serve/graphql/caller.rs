//! Who asks: what they may do, what they send, and what they are told when it does not work.

use std::sync::Arc;
use std::time::Duration;

use async_graphql::{Context, Error, ErrorExtensionValues, Guard, Result};
use axum::http::StatusCode;
use segue_core::access::{Principal, Right};
use segue_core::diagnostic::Code;
use segue_core::value::{Map, Value};

use super::json::written;
use crate::observe::RequestOrigin;
use crate::serve::audit;
use crate::serve::hall::{Hall, Served};
use crate::serve::listing::page;
use crate::serve::own::json_of;
use crate::serve::rest::problem::Problem;
use crate::serve::rest::{self, Rest};

/// Items on a page unless said otherwise.
pub(super) const PAGE: usize = 50;

/// Somebody who asks.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) rest: Arc<Rest>,
    pub(super) who: Principal,
    /// Where what they ask for comes from.
    pub(super) origin: RequestOrigin,
}

impl Caller {
    /// The one who asks.
    pub(super) fn of<'c>(ctx: &Context<'c>) -> Result<&'c Caller> {
        ctx.data::<Caller>()
    }

    pub(super) fn hall(&self) -> &Arc<Hall> {
        &self.rest.hall
    }

    /// What is served to them.
    pub(super) fn served(&self) -> Served {
        self.hall().served(&self.who)
    }

    /// How long they wait for a run.
    pub(super) fn patience(&self, is_async: bool) -> Duration {
        let longest = Duration::from_millis(self.hall().limits().served_wait_ms_max);
        if is_async { Duration::ZERO } else { longest }
    }

    /// How many items are wanted on a page.
    fn page_size(&self, first: Option<i32>) -> Result<usize> {
        let most = self.hall().limits().graphql_page_max;
        let Some(first) = first else { return Ok(PAGE.min(most)) };
        let first = usize::try_from(first).ok().filter(|first| (1..=most).contains(first));
        first.ok_or_else(|| {
            let detail = format!("`first` is from 1 to {most} (`graphql_page_max`)");
            fault(Problem::new(StatusCode::BAD_REQUEST, Code::Limit, detail))
        })
    }

    /// A page of what is there, and where the next one begins.
    pub(super) fn page<T: Clone>(
        &self,
        items: &[T],
        wanted: &Wanted,
        key: impl Fn(&T) -> &str,
    ) -> Result<(Vec<T>, Option<String>)> {
        let size = self.page_size(wanted.first)?;
        let found = page(items, wanted.after.as_deref(), size, key);
        let (items, next) = found.ok_or_else(unknown_page)?;
        Ok((items, next.map(|next| next.to_string())))
    }

    /// The same for what is read a page at a time.
    pub(super) fn window(&self, wanted: &Wanted) -> Result<(usize, Option<u64>)> {
        let after = wanted.after.as_deref().map(str::parse).transpose();
        Ok((self.page_size(wanted.first)?, after.map_err(|_| unknown_page())?))
    }

    /// Says what was done, and by whom.
    pub(super) fn audit(&self, what: &str, run_id: Option<&str>, status: StatusCode) {
        let (status, id) =
            (audit::Status::Code(status.as_u16()), self.origin.request_id.as_deref());
        audit::tell(&self.who, what, super::PATH, run_id, status, id);
    }
}

/// Which page is wanted.
pub(super) struct Wanted {
    pub(super) first: Option<i32>,
    pub(super) after: Option<String>,
}

fn unknown_page() -> Error {
    let detail = "`after` is `next` of the page before";
    fault(Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, detail))
}

/// A field that is for those who have this right.
pub(super) struct May(pub(super) Right);

impl Guard for May {
    async fn check(&self, ctx: &Context<'_>) -> Result<()> {
        let who = ctx.data::<Principal>()?;
        rest::may(who, self.0).map_err(|problem| {
            // Who tried to change something is said, as REST does.
            if let (true, Ok(caller)) = (self.0 != Right::Read, Caller::of(ctx)) {
                caller.audit(ctx.field().name(), None, problem.status());
            }
            fault(problem)
        })
    }
}

/// What went wrong, as GraphQL has it. `extensions.code` is one of our error codes.
pub(super) fn fault(problem: impl Into<Problem>) -> Error {
    let problem = problem.into();
    let view = problem.view();
    let mut extensions = ErrorExtensionValues::default();
    extensions.set("code", view.code.to_string());
    if let Some(help) = &view.help {
        extensions.set("help", help.as_str());
    }
    if let Some(run_id) = &view.run_id {
        extensions.set("runId", run_id.as_str());
    }
    if !view.diagnostics.is_empty() {
        extensions.set("diagnostics", written(&json_of(&view.diagnostics)));
    }
    if !view.used_before.is_empty() {
        extensions.set("usedBefore", written(&json_of(&view.used_before)));
    }
    if !view.errors.is_empty() {
        extensions.set("errors", written(&json_of(&view.errors)));
    }
    Error { message: view.detail.clone(), source: None, extensions: Some(extensions) }
}

/// An object of those members that are there.
pub(super) fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let members = members.into_iter().filter_map(|(name, value)| Some((name.into(), value?)));
    members.collect::<Map>().into()
}
