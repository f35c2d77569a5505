//! The calls of a connection. This folder is ours: a call does not pass through the protocol library.
//!
//! | ours, in this folder | of the library (`rmcp`), in the files beside it |
//! |---|---|
//! | `tools/call`: its text, its answer, its timeouts | handshake: `server/discover`, `initialize` |
//! | `notifications/progress` of a call | sessions and headers of HTTP, OAuth |
//! | which answer belongs to which request | `tools/list`, subscriptions: sent by it, their answers read here |
//! | elicitation in an answer (`inputRequests`) | `elicitation/create`: read and answered by it |
//! | limits on lines, bodies, events and batches | `tasks/…`: sent by it, their answers read here |
//! | when a call is cancelled | `notifications/cancelled`: sent by it |
//!
//! The boundary is [`router::MessageRouter`]. Every message that a server sends passes it, except
//! what answers a POST of the library itself. It keeps the raw answers that Segue waits for, and
//! gives the rest to the library. Over HTTP the library sends the calls whose headers only it can
//! build: those with arguments in headers, those whose tool name a header cannot carry, and one
//! whose session has expired, after it began a new session. The router keeps their answers, too.
//!
//! ```text
//! mod.rs           CallClient: sends a call, waits, cancels
//! pending.rs       a request that waits, and its answer as received
//! router.rs        messages of a server → answers, progress, or the library
//! request_line.rs  a request → its JSON text        result.rs         an answer → the value of a call
//! pipe.rs          lines to and from a process      frame.rs          bytes → lines, with a limit
//! http.rs          one POST and its answer          body_limit.rs     bodies and events, with a limit
//! progress.rs      how often progress is told       exact_numbers.rs  numbers that the library would round
//! ```
//!
//! `DESIGN.md` says why calls bypass the library.

pub(super) mod body_limit;
pub(super) mod exact_numbers;
pub(super) mod frame;
pub(super) mod http;
pub(super) mod pending;
pub(super) mod pipe;
pub(super) mod progress;
pub(super) mod request_line;
pub(super) mod result;
pub(super) mod router;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CancelledNotificationParam, ClientRequest, InputResponses, Request,
    RequestId, RequestMetaObject,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient};
use segue_core::value::Value;
use tokio::sync::RwLock;
use tokio::time::Instant;

use super::error_text::{failure, with_named_output};
use super::frames::FrameSink;
use super::process_output::ProcessOutput;
use crate::tools::CallChannel;
use http::HttpPoster;
use pending::{PendingRequest, RpcAnswer};
use pipe::Input;
use request_line::{KEY, TRACEPARENT};
use router::MessageRouter;

/// How long a caller that stopped waiting tries to send its cancellation.
pub(super) const CANCEL_MAX: Duration = Duration::from_millis(200);

/// How long the library may take to release a lost server.
const CLOSE_MAX: Duration = Duration::from_secs(4);

/// How calls reach a server, bypassing the library.
#[derive(Clone)]
pub(super) enum CallTransport {
    /// Written to its stdin.
    Pipes(Input),
    /// Posted over HTTP.
    Http(HttpPoster),
}

/// Why a request has no answer.
pub(super) enum RequestError {
    /// It was not sent.
    Unsent(String),
    /// It was sent, and its outcome is unknown.
    NoAnswer(String),
    /// It timed out, and the server was told to cancel it.
    TimedOut(Duration),
}

/// The timeouts of a request.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    /// Without progress.
    pub(super) idle: Duration,
    /// In total.
    pub(super) total: Duration,
}

/// The parameters of one call.
pub(super) struct CallParams<'a> {
    pub(super) tool: &'a str,
    pub(super) args: Value,
    /// Whether some arguments are also sent as headers, over HTTP.
    pub(super) has_headers: bool,
    pub(super) key: &'a str,
    pub(super) traceparent: Option<&'a str>,
    pub(super) asker: Option<CallChannel>,
    /// A person's answers to the server's earlier questions, and the state that it wants back.
    pub(super) answers: Option<(InputResponses, Option<String>)>,
    /// The lifetime in milliseconds of the task that the call should become, if any.
    pub(super) task_ms: Option<u64>,
    /// Records the messages of the call.
    pub(super) frames: Option<Arc<FrameSink>>,
}

/// Sends calls and other requests of one connection, and waits for their answers.
#[derive(Clone)]
pub(super) struct CallClient {
    /// The library's half of the connection.
    pub(super) peer: Peer<RoleClient>,
    pub(super) router: Arc<MessageRouter>,
    pub(super) output: Arc<ProcessOutput>,
    pub(super) transport: CallTransport,
    /// Read-locked while a cancellation is sent: the connection is not closed before.
    cancelling: Arc<RwLock<()>>,
}

impl CallClient {
    pub(super) fn new(
        peer: Peer<RoleClient>,
        router: Arc<MessageRouter>,
        output: Arc<ProcessOutput>,
        transport: CallTransport,
    ) -> CallClient {
        CallClient { peer, router, output, transport, cancelling: Arc::default() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.peer.is_transport_closed() || self.router.is_over()
    }

    /// Waits until the cancellations that are being sent have left.
    pub(super) async fn settle_cancellations(&self) {
        let _ = tokio::time::timeout(CANCEL_MAX, self.cancelling.write()).await;
    }

    /// Calls a tool once.
    pub(super) async fn call(
        &self,
        calling: &CallParams<'_>,
        patience: Timeouts,
    ) -> Result<Arc<PendingRequest>, RequestError> {
        let past = match &self.transport {
            CallTransport::Http(_) if calling.has_headers => None,
            way => self.call_direct(way, calling, patience).await?,
        };
        match past {
            Some(slot) => Ok(slot),
            None => Box::pin(self.call_with_library(calling, patience)).await,
        }
    }

    /// Calls a tool, bypassing the library. `None` when that is impossible and the server has not
    /// received it.
    async fn call_direct(
        &self,
        way: &CallTransport,
        calling: &CallParams<'_>,
        patience: Timeouts,
    ) -> Result<Option<Arc<PendingRequest>>, RequestError> {
        let slot = PendingRequest::own(calling.asker.clone(), calling.frames.clone());
        let Some(id) = self.router.register(&slot) else {
            let why =
                Box::pin(with_named_output("the connection was lost", &self.output, &self.router))
                    .await;
            return Err(RequestError::Unsent(why));
        };
        let text = request_line::call(id, calling, self.router.client_meta());
        slot.record(true, &text);
        let guard = self.cancel_guard(RequestId::Number(id), &slot);
        let mut is_heard = true;
        match way {
            CallTransport::Pipes(input) => {
                let answered = pin!(async {
                    let written = input.write(text, Some(&slot)).await;
                    written.map_err(|error| error.to_string())?;
                    self.router.settled(&slot).await
                });
                self.wait(guard, answered, patience).await?;
            }
            CallTransport::Http(post) => {
                let mut answered = Box::pin(async {
                    tokio::select! {
                        biased;
                        heard = post.call(calling.tool, id, text, &slot) => is_heard = heard,
                        // The answer may come in another stream.
                        settled = self.router.settled(&slot) => settled?,
                    }
                    Ok(())
                });
                let waited = self.wait(guard, answered.as_mut(), patience).await;
                drop(answered);
                if is_heard {
                    waited?;
                } else {
                    self.router.remove(&RequestId::Number(id));
                }
            }
        }
        Ok(is_heard.then_some(slot))
    }

    /// Calls a tool through the library, which copies some arguments into headers.
    async fn call_with_library(
        &self,
        calling: &CallParams<'_>,
        patience: Timeouts,
    ) -> Result<Arc<PendingRequest>, RequestError> {
        let mut params = CallToolRequestParams::new(calling.tool.to_owned());
        if let serde_json::Value::Object(map) = serde_json::Value::from(&calling.args) {
            params = params.with_arguments(map);
        }
        if let Some((responses, state)) = calling.answers.clone() {
            params.input_responses = Some(responses);
            params.request_state = state;
        }
        let (args, asker, frames) =
            (calling.args.clone(), calling.asker.clone(), calling.frames.clone());
        let slot = PendingRequest::of_task(args, asker, calling.task_ms, frames);
        let mut request = Request::new(params);
        request.extensions.insert(slot.clone());
        let mut meta = RequestMetaObject::new();
        meta.insert(KEY.to_owned(), calling.key.into());
        if let Some(traceparent) = calling.traceparent {
            meta.insert(TRACEPARENT.to_owned(), traceparent.into());
        }
        let request = ClientRequest::CallToolRequest(request);
        self.request(request, &slot, meta, patience).await?;
        Ok(slot)
    }

    /// Tells the server to cancel a task.
    pub(super) async fn cancel_task(&self, cancellation: ClientRequest) {
        if let Ok(handle) =
            self.peer.send_request_with_option(cancellation, PeerRequestOptions::no_options()).await
        {
            let _ = handle.rx.await;
        }
    }

    /// The same for a caller that cannot await; the connection is not closed before.
    pub(super) fn cancel_task_later(
        &self,
        runtime: &tokio::runtime::Handle,
        cancellation: ClientRequest,
    ) {
        let turn = self.cancelling.clone().try_read_owned();
        let calls = self.clone();
        runtime.spawn(async move {
            let _turn = turn;
            let cancelling = calls.cancel_task(cancellation);
            let _ = tokio::time::timeout(CANCEL_MAX, cancelling).await;
        });
    }

    /// Sends a request and waits for its answer, which the slot then holds.
    pub(super) async fn request(
        &self,
        request: ClientRequest,
        slot: &Arc<PendingRequest>,
        meta: RequestMetaObject,
        patience: Timeouts,
    ) -> Result<(), RequestError> {
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let handle = self.peer.send_request_with_option(request, options).await;
        let RequestHandle { id, rx, .. } =
            handle.map_err(|error| RequestError::Unsent(failure(&error)))?;
        let answered = pin!(async {
            match rx.await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(failure(&error)),
                Err(_) => Err("the connection was lost".to_owned()),
            }
        });
        self.wait(self.cancel_guard(id, slot), answered, patience).await
    }

    /// Waits until the library has released a lost server: only then is its exit status known.
    async fn close_lost(&self) {
        let until = Instant::now() + CLOSE_MAX;
        while self.router.is_over() && !self.peer.is_transport_closed() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The error with the end of the server's output.
    async fn with_process_output(&self, why: &str) -> String {
        self.close_lost().await;
        with_named_output(why, &self.output, &self.router).await
    }

    fn cancel_guard(&self, id: RequestId, slot: &Arc<PendingRequest>) -> CancelGuard {
        let (peer, router) = (self.peer.clone(), self.router.clone());
        let cancelling = self.cancelling.clone();
        CancelGuard { id: Some(id), slot: slot.clone(), peer, router, cancelling }
    }

    /// Waits until a request is answered; its slot holds the answer.
    async fn wait(
        &self,
        mut guard: CancelGuard,
        mut answered: Pin<&mut impl Future<Output = Result<(), String>>>,
        patience: Timeouts,
    ) -> Result<(), RequestError> {
        let slot = guard.slot.clone();
        let begun = Instant::now();
        let (until, mut idle) = (begun + patience.total, begun + patience.idle);
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut answered => break outcome,
                () = slot.progressed() => {
                    idle = Instant::now() + patience.idle;
                    slot.send_progress();
                }
                () = tokio::time::sleep_until(idle.min(until)) => {
                    if slot.is_asking() && Instant::now() < until {
                        idle = Instant::now() + patience.idle;
                        continue;
                    }
                    Box::pin(guard.cancel()).await;
                    let time = if until <= idle { patience.total } else { patience.idle };
                    return Err(if slot.was_sent() {
                        RequestError::TimedOut(time)
                    } else {
                        RequestError::Unsent(format!("it could not be sent within {} ms", time.as_millis()))
                    });
                }
            }
        };
        guard.id = None;
        match (slot.answer(), outcome) {
            (Some(RpcAnswer::Lost(why)), _) if slot.was_sent() => {
                Err(RequestError::NoAnswer(why.clone()))
            }
            (Some(RpcAnswer::Lost(why)), _) => Err(RequestError::Unsent(why.clone())),
            (Some(_), _) => Ok(()),
            (None, Ok(())) => Err(RequestError::NoAnswer("there is no answer".to_owned())),
            (None, Err(why)) => {
                let why = Box::pin(self.with_process_output(&why)).await;
                Err(if slot.was_sent() {
                    RequestError::NoAnswer(why)
                } else {
                    RequestError::Unsent(why)
                })
            }
        }
    }
}

/// A pending request. Dropping it tells the server to cancel it.
struct CancelGuard {
    /// `None` once the answer is no longer awaited.
    id: Option<RequestId>,
    slot: Arc<PendingRequest>,
    peer: Peer<RoleClient>,
    router: Arc<MessageRouter>,
    cancelling: Arc<RwLock<()>>,
}

impl CancelGuard {
    async fn cancel(&mut self) {
        if let Some(cancelling) = self.cancellation("the caller stopped waiting") {
            let _ = tokio::time::timeout(CANCEL_MAX, cancelling).await;
        }
    }

    /// The cancellation, if the server may have received the request.
    fn cancellation(&mut self, why: &str) -> Option<impl Future<Output = ()> + Send + 'static> {
        let id = self.id.take()?;
        if self.slot.is_own() {
            self.router.remove(&id);
            if !self.slot.was_sent() {
                return None;
            }
        }
        let peer = self.peer.clone();
        let params = CancelledNotificationParam::new(Some(id), Some(why.to_owned()));
        Some(async move {
            let _ = peer.notify_cancelled(params).await;
        })
    }
}

impl Drop for CancelGuard {
    // In `Drop`, because a call ends when its future is dropped.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Some(cancelling) = self.cancellation("the caller is gone") else { return };
        let turn = self.cancelling.clone().try_read_owned();
        runtime.spawn(async move {
            let _turn = turn;
            cancelling.await;
        });
    }
}
