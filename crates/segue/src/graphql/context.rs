//! The caller of an operation: its rights, its pages and its errors.

use std::sync::Arc;
use std::time::Duration;

use async_graphql::{Context, Error as GraphqlError, ErrorExtensionValues, Guard, Result};
use axum::http::StatusCode;
use segue_core::access::{Principal, Right};
use segue_core::diagnostic::Code;

use super::json::to_graphql;
use crate::api::audit;
use crate::api::error::{Error, ErrorKind, require};
use crate::api::result::json_of;
use crate::api::runs::RunService;
use crate::api::runs::events::EventReaders;
use crate::api::runs::start::CallOptions;
use crate::api::tools::page;
use crate::http::problem::status;
use crate::observe::RequestOrigin;

/// The default page size.
const PAGE: usize = 50;

/// The caller.
#[derive(Clone)]
pub(super) struct CallerContext {
    pub(super) service: Arc<RunService>,
    pub(super) readers: Arc<EventReaders>,
    pub(super) who: Principal,
    /// The ids of the request, for logs and traces.
    pub(super) origin: RequestOrigin,
}

impl CallerContext {
    /// The caller of an operation.
    pub(super) fn of<'c>(ctx: &Context<'c>) -> Result<&'c CallerContext> {
        ctx.data::<CallerContext>()
    }

    /// How long the caller waits for a run.
    pub(super) fn timeout(&self, is_async: bool) -> Duration {
        let longest = Duration::from_millis(self.service.limits().served_wait_ms_max);
        if is_async { Duration::ZERO } else { longest }
    }

    /// How the caller waits for a run that it starts.
    pub(super) fn call_options<'a>(
        &'a self,
        key: Option<&'a str>,
        is_async: bool,
    ) -> CallOptions<'a> {
        CallOptions { origin: &self.origin, key, timeout: self.timeout(is_async) }
    }

    fn page_size(&self, first: Option<i32>) -> Result<usize> {
        let most = self.service.limits().graphql_page_max;
        let Some(first) = first else { return Ok(PAGE.min(most)) };
        let first = usize::try_from(first).ok().filter(|first| (1..=most).contains(first));
        first.ok_or_else(|| {
            let message = format!("`first` is from 1 to {most} (`graphql_page_max`)");
            graphql_error(Error::new(ErrorKind::Malformed, Code::Limit, message))
        })
    }

    /// A page of these items, and where the next one begins.
    pub(super) fn page<T: Clone>(
        &self,
        items: &[T],
        args: &PageArgs,
        key: impl Fn(&T) -> &str,
    ) -> Result<(Vec<T>, Option<String>)> {
        let size = self.page_size(args.first)?;
        let found = page(items, args.after.as_deref(), size, key);
        let (items, next) = found.ok_or_else(unknown_page)?;
        Ok((items, next.map(|next| next.to_string())))
    }

    /// The size and the cursor of a page that the store reads.
    pub(super) fn window(&self, args: &PageArgs) -> Result<(usize, Option<u64>)> {
        let after = args.after.as_deref().map(str::parse).transpose();
        Ok((self.page_size(args.first)?, after.map_err(|_| unknown_page())?))
    }

    /// Writes an action to the audit log.
    pub(super) fn audit(&self, action: &str, run_id: Option<&str>, status: StatusCode) {
        let (status, id) =
            (audit::Status::Code(status.as_u16()), self.origin.request_id.as_deref());
        audit::log(&self.who, action, super::PATH, run_id, status, id);
    }
}

/// Which page a caller wants.
pub(super) struct PageArgs {
    pub(super) first: Option<i32>,
    pub(super) after: Option<String>,
}

fn unknown_page() -> GraphqlError {
    graphql_error(Error::malformed("`after` is `next` of the page before"))
}

/// The guard of a field that needs a right.
pub(super) struct RequireRight(pub(super) Right);

impl Guard for RequireRight {
    async fn check(&self, ctx: &Context<'_>) -> Result<()> {
        let who = ctx.data::<Principal>()?;
        require(who, self.0).map_err(|error| {
            // A refused mutation is in the audit log, as with REST.
            if let (true, Ok(caller)) = (self.0 != Right::Read, CallerContext::of(ctx)) {
                caller.audit(ctx.field().name(), None, status(error.kind));
            }
            graphql_error(error)
        })
    }
}

/// An error as GraphQL has it. `extensions.code` is one of our error codes.
pub(super) fn graphql_error(error: impl Into<Error>) -> GraphqlError {
    let error = error.into();
    let mut extensions = ErrorExtensionValues::default();
    extensions.set("code", error.code.to_string());
    if let Some(help) = &error.help {
        extensions.set("help", help.as_str());
    }
    if let Some(run_id) = &error.run_id {
        extensions.set("runId", &**run_id);
    }
    if !error.diagnostics.is_empty() {
        extensions.set("diagnostics", to_graphql(&json_of(&error.diagnostics)));
    }
    if !error.used_before.is_empty() {
        extensions.set("usedBefore", to_graphql(&json_of(&error.used_before)));
    }
    if !error.errors.is_empty() {
        extensions.set("errors", to_graphql(&json_of(&error.errors)));
    }
    GraphqlError { message: error.message.clone(), source: None, extensions: Some(extensions) }
}
