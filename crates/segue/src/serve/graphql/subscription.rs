//! What can be followed.

use async_graphql::{Context, ID, Result, Subscription as Following};
use axum::http::StatusCode;
use futures_util::Stream;
use futures_util::stream;
use segue_core::access::Right;
use segue_core::diagnostic::Code;

use super::caller::{Caller, May, fault};
use super::types::run::RunEvent;
use crate::serve::following::{Follower, News};
use crate::serve::rest::problem::Problem;

/// What can be followed.
pub(super) struct Subscription;

#[Following]
impl Subscription {
    /// What happens in a run, as it happens, from its beginning. The last event, `run`, has the whole run.
    #[graphql(guard = "May(Right::Read)")]
    async fn run_events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(desc = "`seq` of the last event that was heard")] after: Option<i64>,
    ) -> Result<impl Stream<Item = RunEvent> + use<>> {
        let Caller { rest, who, .. } = Caller::of(ctx)?;
        let after = after.map(u64::try_from).transpose().map_err(|_| {
            let detail = "`after` is the `seq` of an event, from 0 on";
            fault(Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, detail))
        })?;
        let next = after.map_or(0, |after| after.saturating_add(1));
        let follower = Follower::open(&rest.followers, who, &run_id, next).await.map_err(fault)?;
        Ok(stream::unfold(follower, |mut follower| async {
            loop {
                let event = match follower.next().await? {
                    News::Event(event) => RunEvent::from(&*event),
                    News::End { seq, view } => RunEvent::end(seq, *view),
                    // How a silence is broken is a matter of the connection.
                    News::Silence => continue,
                };
                return Some((event, follower));
            }
        }))
    }
}
