//! Subscriptions.

use async_graphql::{Context, ID, Result, Subscription as GraphqlSubscription};
use futures_util::Stream;
use futures_util::stream;
use segue_core::access::Right;

use super::context::{CallerContext, RequireRight, graphql_error};
use super::types::run::RunEvent;
use crate::api::error::Error;
use crate::api::runs::events::{EventReader, StreamItem};

/// The root of subscriptions.
pub(super) struct Subscription;

#[GraphqlSubscription]
impl Subscription {
    /// The events of a run, as they happen, from its start. The last event, `run`, has the whole run.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn run_events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(desc = "`seq` of the last event that was received")] after: Option<i64>,
    ) -> Result<impl Stream<Item = RunEvent> + use<>> {
        let CallerContext { readers, who, .. } = CallerContext::of(ctx)?;
        let after = after.map(u64::try_from).transpose().map_err(|_| {
            graphql_error(Error::malformed("`after` is the `seq` of an event, from 0 on"))
        })?;
        let next = after.map_or(0, |after| after.saturating_add(1));
        let reader = EventReader::open(readers, who, &run_id, next).await.map_err(graphql_error)?;
        Ok(stream::unfold(reader, |mut reader| async {
            loop {
                let event = match reader.next().await? {
                    StreamItem::Event(event) => RunEvent::from(&*event),
                    StreamItem::End { seq, view } => RunEvent::end(seq, *view),
                    // The connection sends its own keep-alives.
                    StreamItem::KeepAlive => continue,
                };
                return Some((event, reader));
            }
        }))
    }
}
