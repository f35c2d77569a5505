//! Matches raw answers to pending requests.
//!
//! The protocol library's types drop unknown fields, sort keys and round large numbers. The router
//! therefore takes the answers that matter off the wire, raw, and passes the library an empty
//! answer in their place, so that its own bookkeeping of requests stays correct. It also filters
//! notifications, so that a flood of them ends here.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData,
    GetExtensions as _, GetMeta as _, ProgressToken, RequestId, RequestMetaObject,
    ServerJsonRpcMessage, ServerResult,
};
use segue_core::value::Value;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame::guess_id;
use super::pending::{PendingRequest, RpcAnswer, WireError, object};
use super::progress::ProgressNotice;
use crate::tools::mcp::process_output::Tail;

/// How many requests of a server may wait for an answer.
const REQUESTS_MAX: usize = 64;

/// How many messages a batch may have.
const BATCH_MAX: usize = 1_000;

/// The first id of direct requests. The library counts its own from zero.
const OWN_IDS_FROM: i64 = 1_000_000_000;

/// The router of one connection.
pub(crate) struct MessageRouter {
    waiting: Mutex<PendingRequests>,
    /// The id of the next direct request.
    next_id: AtomicI64,
    /// The client metadata of every request: JSON members, each followed by a comma.
    client_meta: OnceLock<String>,
    /// The server announced a change of its tools.
    changed: AtomicBool,
    /// The server is of the modern era, but answered the question too late.
    late_modern: AtomicBool,
    /// `initialize` was sent.
    greeted: AtomicBool,
    /// The server accepts calls as tasks, according to its `initialize` result.
    takes_tasks: AtomicBool,
    /// Requests of the server that were forwarded and not answered yet.
    asked: AtomicUsize,
    /// The last question to a person that was declined.
    declined: Mutex<Option<String>>,
    /// The server's output that is no message.
    pub(crate) noise: Tail,
}

impl Default for MessageRouter {
    fn default() -> MessageRouter {
        MessageRouter {
            waiting: Mutex::default(),
            next_id: AtomicI64::new(OWN_IDS_FROM),
            client_meta: OnceLock::new(),
            changed: AtomicBool::default(),
            late_modern: AtomicBool::default(),
            greeted: AtomicBool::default(),
            takes_tasks: AtomicBool::default(),
            asked: AtomicUsize::default(),
            declined: Mutex::default(),
            noise: Tail::default(),
        }
    }
}

#[derive(Default)]
struct PendingRequests {
    /// The connection has ended.
    is_over: bool,
    slots: HashMap<RequestId, Weak<PendingRequest>>,
    tokens: HashMap<ProgressToken, (RequestId, Weak<PendingRequest>)>,
    /// The library's own requests, whose answers it reads.
    plain: HashSet<RequestId>,
    /// The question for the server's era, once it was abandoned.
    late_probe: Option<RequestId>,
    /// The question for the server's era, while it is open.
    probe: Option<RequestId>,
}

impl PendingRequests {
    fn of_token(&self, token: &ProgressToken) -> Option<Arc<PendingRequest>> {
        match self.tokens.get(token) {
            Some((_, slot)) => slot.upgrade(),
            None => self.slots.get(&token.0)?.upgrade().filter(|slot| slot.is_own),
        }
    }

    fn remove(&mut self, id: &RequestId) -> Option<Arc<PendingRequest>> {
        self.plain.remove(id);
        let slot = self.slots.remove(id)?.upgrade();
        // The progress token of a direct request is its id.
        if slot.as_ref().is_none_or(|slot| !slot.is_own) {
            self.tokens.retain(|_, (of, _)| of != id);
        }
        slot
    }
}

/// The messages that go on to the library.
pub(crate) type ForwardedMessages = Vec<ServerJsonRpcMessage>;

#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl MessageRouter {
    /// Whether the server announced a change of its tools, since the last call of this function.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::SeqCst)
    }

    /// Whether the server announced a change of its tools that was not handled yet.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::SeqCst)
    }

    pub(crate) fn mark_changed(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }

    /// A call that can reach a person, on whose behalf the server may be asking. The server does
    /// not say which one; all of them are ours.
    pub(crate) fn asking_call(&self) -> Option<Arc<PendingRequest>> {
        let waiting = self.waiting.lock();
        let mut calls = waiting.slots.values().filter_map(Weak::upgrade);
        calls.find(|slot| slot.asker.is_some())
    }

    /// The last question that was declined, since the last call of this function.
    pub(crate) fn take_declined(&self) -> Option<String> {
        self.declined.lock().take()
    }

    /// Registers a direct request. Its id is its progress token, too. `None` when the connection is
    /// lost.
    pub(crate) fn register(&self, slot: &Arc<PendingRequest>) -> Option<i64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        if waiting.is_over {
            return None;
        }
        waiting.slots.insert(RequestId::Number(id), Arc::downgrade(slot));
        Some(id)
    }

    /// Resolves when a direct request is answered. The error says why there is no answer.
    pub(crate) async fn settled(&self, slot: &PendingRequest) -> Result<(), String> {
        while slot.answer().is_none() {
            if self.is_over() {
                return Err("the connection was lost".to_owned());
            }
            slot.settled.notified().await;
        }
        Ok(())
    }

    /// Ends the connection, and wakes every pending request.
    pub(crate) fn end(&self) {
        let slots: Vec<Arc<PendingRequest>> = {
            let mut waiting = self.waiting.lock();
            waiting.is_over = true;
            waiting.slots.values().filter_map(Weak::upgrade).collect()
        };
        for slot in slots {
            slot.settled.notify_one();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.waiting.lock().is_over
    }

    /// The client metadata of every request.
    pub(crate) fn client_meta(&self) -> &str {
        self.client_meta.get().map_or("", String::as_str)
    }

    /// Copies the client metadata from a request of the library.
    fn set_client_meta(&self, meta: &RequestMetaObject) {
        self.client_meta.get_or_init(|| {
            let members = meta.iter().filter(|(name, _)| *name != "progressToken");
            members.fold(String::new(), |mut manner, (name, value)| {
                Value::from(name.as_str()).write_json(&mut manner);
                manner.push(':');
                Value::from(value.clone()).write_json(&mut manner);
                manner.push(',');
                manner
            })
        });
    }

    /// Registers an outgoing message. Returns the slot that it carries.
    pub(crate) fn outgoing(&self, message: &ClientJsonRpcMessage) -> Option<Arc<PendingRequest>> {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let mut waiting = self.waiting.lock();
                let Some(slot) = request.request.extensions().get::<Arc<PendingRequest>>() else {
                    match request.request {
                        ClientRequest::DiscoverRequest(_) => {
                            waiting.probe = Some(request.id.clone());
                        }
                        ClientRequest::InitializeRequest(_) => {
                            self.greeted.store(true, Ordering::SeqCst);
                        }
                        _ => {}
                    }
                    waiting.plain.insert(request.id.clone());
                    return None;
                };
                if matches!(request.request, ClientRequest::ListToolsRequest(_)) {
                    self.set_client_meta(request.request.get_meta());
                }
                if let Some(token) = request.request.get_meta().get_progress_token() {
                    let entry = (request.id.clone(), Arc::downgrade(slot));
                    waiting.tokens.insert(token, entry);
                }
                waiting.slots.insert(request.id.clone(), Arc::downgrade(slot));
                Some(slot.clone())
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.waiting.lock().remove(id);
                }
                None
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {
                let _ = self.asked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |asked| {
                    Some(asked.saturating_sub(1))
                });
                None
            }
        }
    }

    /// Abandons the question for the server's era.
    pub(crate) fn give_up_probe(&self, id: &RequestId) {
        let mut waiting = self.waiting.lock();
        waiting.remove(id);
        waiting.late_probe = Some(id.clone());
    }

    /// Whether `initialize` was sent, as in the legacy era.
    pub(crate) fn is_initialized(&self) -> bool {
        self.greeted.load(Ordering::SeqCst)
    }

    /// Whether the server accepts calls as tasks.
    pub(crate) fn takes_tasks(&self) -> bool {
        self.takes_tasks.load(Ordering::SeqCst)
    }

    /// Reads an `initialize` result that does not pass through `incoming`.
    pub(crate) fn note_initialize(&self, text: &[u8]) {
        if let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(text) {
            self.note_tasks(envelope.result);
        }
    }

    /// Reads which tasks the server accepts: the library ignores tasks of the legacy era.
    fn note_tasks(&self, greeting: Option<&RawValue>) {
        let greeting = greeting.filter(|raw| raw.get().contains("\"tasks\""));
        let read = |raw: &RawValue| serde_json::from_str::<serde_json::Value>(raw.get()).ok();
        let takes = greeting.and_then(read).is_some_and(|greeting| {
            greeting.pointer("/capabilities/tasks/requests/tools/call").is_some()
        });
        if takes {
            self.takes_tasks.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the abandoned question was answered after all: the server is modern and slow.
    pub(crate) fn is_late_modern(&self) -> bool {
        self.late_modern.load(Ordering::SeqCst)
    }

    /// Removes a request whose answer is no longer awaited.
    pub(crate) fn remove(&self, id: &RequestId) {
        self.waiting.lock().remove(id);
    }

    /// Routes a line, and returns what goes on to the library; the error ends the connection.
    pub(crate) fn incoming(&self, line: &[u8]) -> Result<ForwardedMessages, String> {
        let Ok(text) = std::str::from_utf8(line) else {
            return Ok(self.broken(line, "is not UTF-8"));
        };
        if text.starts_with('[') {
            let Ok(batch) = serde_json::from_str::<Vec<&RawValue>>(text) else {
                return Ok(self.log_noise(line));
            };
            if batch.len() > BATCH_MAX {
                return Err(format!("a batch has more than {BATCH_MAX} messages"));
            }
            let mut all = Vec::new();
            for message in batch {
                all.extend(self.message(message.get())?);
            }
            return Ok(all);
        }
        self.message(text)
    }

    /// Handles one end of a line that was too long.
    pub(crate) fn too_long(&self, end: &[u8]) -> Option<ServerJsonRpcMessage> {
        self.settle_seeming(end, || RpcAnswer::TooLarge)
    }

    /// Handles a line that was too long and names no request: it is the answer, if only one request
    /// is pending.
    pub(crate) fn too_long_for_all(&self) -> Option<ServerJsonRpcMessage> {
        let only = {
            let waiting = self.waiting.lock();
            let mut ids = waiting.slots.keys();
            ids.next().filter(|_| waiting.slots.len() == 1).cloned()
        };
        let id = only?;
        let slot = self.waiting.lock().remove(&id)?;
        answer_request(&slot, id, RpcAnswer::TooLarge)
    }

    fn message(&self, text: &str) -> Result<ForwardedMessages, String> {
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(text) else {
            return Ok(self.broken(text.as_bytes(), "is not a message"));
        };
        if envelope.jsonrpc.as_deref() != Some("2.0") {
            return Ok(self.broken(text.as_bytes(), "is not JSON-RPC 2.0"));
        }
        match (&envelope.method, envelope.id) {
            (Some(method), Some(_)) => self.request(text, method, envelope.params),
            (Some(method), None) => Ok(self.notification(text, method, envelope.params)),
            (None, Some(id)) => Ok(self.response(text, id, envelope.result, envelope.error)),
            (None, None) => Ok(self.log_noise(text.as_bytes())),
        }
    }

    fn request(
        &self,
        text: &str,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<ForwardedMessages, String> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        if asked >= REQUESTS_MAX {
            return Err(format!("it has more than {REQUESTS_MAX} open requests"));
        }
        if method == "elicitation/create" {
            #[derive(Deserialize)]
            struct Elicitation {
                message: String,
            }
            let params = params.and_then(|p| object::<Elicitation>(p).ok());
            let wanted = params.map_or_else(|| "input".to_owned(), |p| p.message);
            *self.declined.lock() = Some(wanted);
        }
        match serde_json::from_str(text) {
            Ok(message) => Ok(vec![message]),
            Err(_) => {
                self.asked.fetch_sub(1, Ordering::SeqCst);
                Ok(self.log_noise(text.as_bytes()))
            }
        }
    }

    fn notification(
        &self,
        text: &str,
        method: &str,
        params: Option<&RawValue>,
    ) -> ForwardedMessages {
        match method {
            "notifications/progress" => {
                let params = params.and_then(|p| object::<ProgressNotice>(p).ok());
                if let Some(said) = params
                    && let Some(slot) = self.waiting.lock().of_token(&said.token)
                {
                    slot.record(false, text);
                    slot.note_progress(&said);
                }
                Vec::new()
            }
            // Once is enough until the list was read again.
            "notifications/tools/list_changed" => {
                let known = self.changed.swap(true, Ordering::SeqCst);
                if known { Vec::new() } else { serde_json::from_str(text).into_iter().collect() }
            }
            "notifications/subscriptions/acknowledged" => {
                serde_json::from_str(text).into_iter().collect()
            }
            // Log messages, other lists, unknown extensions.
            _ => Vec::new(),
        }
    }

    fn response(
        &self,
        text: &str,
        id: &RawValue,
        result: Option<&RawValue>,
        error: Option<&RawValue>,
    ) -> ForwardedMessages {
        let Ok(id) = serde_json::from_str::<RequestId>(id.get()) else {
            return self.log_noise(text.as_bytes());
        };
        let (slot, plain) = {
            let mut waiting = self.waiting.lock();
            let plain = waiting.plain.remove(&id);
            (waiting.remove(&id), plain)
        };
        if let Some(slot) = slot {
            slot.record(false, text);
            let answer = match (result, error) {
                (Some(result), None) => RpcAnswer::Result(result.to_owned()),
                (None, Some(error)) => match object::<WireError>(error) {
                    Ok(error) => error.into(),
                    Err(_) => RpcAnswer::Malformed("its error has no code and message".to_owned()),
                },
                (Some(_), Some(_)) => {
                    RpcAnswer::Malformed("it has both a result and an error".to_owned())
                }
                (None, None) => {
                    RpcAnswer::Malformed("it has neither a result nor an error".to_owned())
                }
            };
            return Vec::from_iter(answer_request(&slot, id, answer));
        }
        if plain {
            self.note_tasks(result);
            let error = || ErrorData::internal_error("the answer cannot be read", None);
            let message = serde_json::from_str(text);
            let is_probe = self.waiting.lock().probe.as_ref() == Some(&id);
            if is_probe && message.as_ref().is_ok_and(is_placeholder) {
                return vec![not_known(id)];
            }
            return vec![message.unwrap_or_else(|_| unreadable(error(), id))];
        }
        if result.is_some() && self.waiting.lock().late_probe.as_ref() == Some(&id) {
            self.late_modern.store(true, Ordering::SeqCst);
        }
        // No such request, or it was answered already.
        Vec::new()
    }

    /// Handles a line that does not parse; if it seems to be an answer, its request fails.
    fn broken(&self, line: &[u8], why: &str) -> ForwardedMessages {
        if line.trim_ascii_start().starts_with(b"{") {
            let settled = self.settle_seeming(line, || RpcAnswer::Malformed(format!("it {why}")));
            if let Some(message) = settled {
                return vec![message];
            }
        }
        self.log_noise(line)
    }

    fn log_noise(&self, line: &[u8]) -> ForwardedMessages {
        self.noise.push(line);
        self.noise.push(b"\n");
        Vec::new()
    }

    fn settle_seeming(
        &self,
        piece: &[u8],
        answer: impl FnOnce() -> RpcAnswer,
    ) -> Option<ServerJsonRpcMessage> {
        let id: RequestId = serde_json::from_str(&guess_id(piece)?).ok()?;
        let (plain, slot) = {
            let mut waiting = self.waiting.lock();
            (waiting.plain.contains(&id), waiting.remove(&id))
        };
        if let Some(slot) = slot {
            return answer_request(&slot, id, answer());
        }
        plain.then(|| unreadable(ErrorData::internal_error("the answer cannot be read", None), id))
    }
}

/// Answers a pending request. Returns the message for the library, if it waits too.
fn answer_request(
    slot: &PendingRequest,
    id: RequestId,
    answer: RpcAnswer,
) -> Option<ServerJsonRpcMessage> {
    slot.set_answer(answer);
    (!slot.is_own).then(|| placeholder(id))
}

/// Whether an answer is an empty result.
pub(crate) fn is_placeholder(message: &ServerJsonRpcMessage) -> bool {
    matches!(
        message,
        ServerJsonRpcMessage::Response(response)
            if matches!(response.result, ServerResult::EmptyResult(_))
    )
}

/// The error in place of an empty answer to the question for the era: a server that accepts every
/// method does not know the modern one.
pub(crate) fn not_known(id: RequestId) -> ServerJsonRpcMessage {
    unreadable(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "server/discover", None), id)
}

/// The empty answer that the library gets in place of a raw one.
pub(crate) fn placeholder(id: RequestId) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::response(ServerResult::empty(()), id)
}

fn unreadable(error: ErrorData, id: RequestId) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(error, Some(id))
}
