//! Where answers meet those who wait for them, as they came.
//!
//! The typed messages of the protocol library keep the fields that it knows, sort keys and round
//! large numbers. So the answers that matter are taken off the wire here, raw, and the library gets
//! an empty answer in their place: it still matches requests and answers, and counts nobody out.
//! What a server says unasked is sorted here too, so that a flood of it ends here.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData,
    GetExtensions as _, GetMeta as _, ProgressToken, RequestId, RequestMetaObject,
    ServerJsonRpcMessage, ServerResult,
};
use segue_core::schema::Schema;
use segue_core::value::Value;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::definition::strip_invisible;
use super::frame::guess_id;
use super::progress::{ProgressNotice, ProgressState};
use super::tail::Tail;
use crate::tools::CallChannel;

/// Requests of a server that may wait for our answer at once.
const REQUESTS_MAX: usize = 64;

/// Length of a question to a person.
const QUESTION_CHARS_MAX: usize = 2_000;

/// Length of what an error says beyond its message.
const DATA_CHARS_MAX: usize = 2_000;

/// Messages in one batch.
const BATCH_MAX: usize = 1_000;

/// Where the ids of our own requests begin. The library counts its own from zero.
const OWN_IDS_FROM: i64 = 1_000_000_000;

/// An answer as it came.
#[derive(Clone, Debug)]
pub(super) enum RpcAnswer {
    /// What was asked for.
    Result(Box<RawValue>),
    /// The server says no.
    Error {
        /// A code of JSON-RPC.
        code: i64,
        /// In its words.
        message: String,
    },
    /// There was an answer, and it is larger than anybody may send.
    TooLarge,
    /// There was an answer, and nobody can read it.
    Malformed(String),
    /// There will be none.
    Lost(String),
}

/// What a server wants to know from a person.
pub(super) struct ElicitationForm {
    /// In its words.
    pub(super) message: String,
    /// What an answer looks like.
    pub(super) schema: Value,
}

/// A request that waits for its answer. It travels with the request, if the library sends it, and
/// stays with who asked.
#[derive(Debug, Default)]
pub(super) struct PendingRequest {
    /// The arguments of a call, exactly.
    pub(super) arguments: Option<Value>,
    /// For how long the call is wanted as a task, in milliseconds, if it is.
    pub(super) task_ms: Option<u64>,
    /// How a call reaches a person.
    asker: Option<CallChannel>,
    /// Questions to a person that are not answered.
    asking: AtomicUsize,
    sent: AtomicBool,
    answer: OnceLock<RpcAnswer>,
    /// Whether the library knows nothing of the request.
    is_own: bool,
    /// There is an answer, or there will be none.
    settled: Notify,
    progressed: Notify,
    progress: Mutex<ProgressState>,
}

impl PendingRequest {
    pub(super) fn new(arguments: Option<Value>, asker: Option<CallChannel>) -> Arc<PendingRequest> {
        Arc::new(PendingRequest { arguments, asker, ..PendingRequest::default() })
    }

    /// For a call that is made as a task.
    pub(super) fn of_task(
        arguments: Value,
        asker: Option<CallChannel>,
        task_ms: Option<u64>,
    ) -> Arc<PendingRequest> {
        Arc::new(PendingRequest {
            arguments: Some(arguments),
            asker,
            task_ms,
            ..PendingRequest::default()
        })
    }

    /// For a call that goes past the library.
    pub(super) fn own(asker: Option<CallChannel>) -> Arc<PendingRequest> {
        Arc::new(PendingRequest { asker, is_own: true, ..PendingRequest::default() })
    }

    /// Asks a person on behalf of the call; nothing when nobody answers as the schema wants it.
    pub(super) async fn ask_person(&self, server: &str, form: &ElicitationForm) -> Option<Value> {
        let asker = self.asker.as_ref()?;
        let message = strip_invisible(&form.message, QUESTION_CHARS_MAX);
        let message = format!("the MCP server `{server}` asks: {message}");
        let schema = Arc::new(Schema::new(form.schema.clone()));
        self.asking.fetch_add(1, Ordering::SeqCst);
        let answer = asker.ask(message.into(), schema).await;
        self.asking.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    /// Whether the library knows nothing of the request.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether a person thinks about a question, so that nobody else may become impatient.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.load(Ordering::SeqCst) > 0
    }

    /// The request begins to leave: from now on it may have been heard.
    pub(super) fn mark_sent(&self) {
        self.sent.store(true, Ordering::SeqCst);
    }

    /// The request surely did not leave.
    pub(super) fn mark_unsent(&self) {
        self.sent.store(false, Ordering::SeqCst);
    }

    pub(super) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::SeqCst)
    }

    /// The first answer counts.
    pub(super) fn set_answer(&self, answer: RpcAnswer) {
        let _ = self.answer.set(answer);
        self.settled.notify_one();
    }

    pub(super) fn answer(&self) -> Option<&RpcAnswer> {
        self.answer.get()
    }

    /// Resolves when the server has got further since the last time.
    pub(super) async fn progressed(&self) {
        self.progressed.notified().await;
    }

    /// A server says how far it is.
    fn note_progress(&self, said: &ProgressNotice) {
        let mut heard = self.progress.lock();
        if heard.note(said) {
            self.progressed.notify_one();
        }
    }

    /// Tells who makes the call how far it has got, but not too often.
    pub(super) fn send_progress(&self) {
        let Some(asker) = &self.asker else { return };
        let mut heard = self.progress.lock();
        heard.take().into_iter().for_each(|progress| asker.send_progress(progress));
    }
}

/// The desk of one connection.
pub(super) struct MessageRouter {
    waiting: Mutex<PendingRequests>,
    /// The id of our own next request.
    next_id: AtomicI64,
    /// What every request tells of us: members of its metadata, in JSON, each with a comma behind it.
    client_meta: OnceLock<String>,
    /// The server said that its tools changed.
    changed: AtomicBool,
    /// The server is of the modern era, and said so too late.
    late_modern: AtomicBool,
    /// The server was greeted with `initialize`.
    greeted: AtomicBool,
    /// The server takes calls as tasks, in the era where it says so when it is greeted.
    takes_tasks: AtomicBool,
    /// Requests of the server that were passed on and not answered yet.
    asked: AtomicUsize,
    /// What a person was last asked for, and declined.
    declined: Mutex<Option<String>>,
    /// What the server said where only messages belong.
    pub(super) noise: Tail,
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
    /// Nothing more comes.
    is_over: bool,
    slots: HashMap<RequestId, Weak<PendingRequest>>,
    tokens: HashMap<ProgressToken, (RequestId, Weak<PendingRequest>)>,
    /// Requests of the library itself, whose answers it reads.
    plain: HashSet<RequestId>,
    /// The question which era the server is of, when it was given up.
    late_probe: Option<RequestId>,
    /// The same question, while it is asked.
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
        // The token of our own requests is their id.
        if slot.as_ref().is_none_or(|slot| !slot.is_own) {
            self.tokens.retain(|_, (of, _)| of != id);
        }
        slot
    }
}

/// What a message turned out to be.
pub(super) type ForwardedMessages = Vec<ServerJsonRpcMessage>;

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

/// An error of JSON-RPC.
#[derive(Deserialize)]
pub(super) struct WireError {
    code: i64,
    message: String,
    #[serde(default)]
    data: serde_json::Value,
}

impl From<WireError> for RpcAnswer {
    fn from(WireError { code, message, data }: WireError) -> RpcAnswer {
        // What a server says beyond its message is often the only thing that helps.
        let message = match data {
            serde_json::Value::Null => message,
            data => format!("{message}: {}", strip_invisible(&data.to_string(), DATA_CHARS_MAX)),
        };
        RpcAnswer::Error { code, message }
    }
}

impl MessageRouter {
    /// Whether the server said that its tools changed, since this was last asked.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::SeqCst)
    }

    /// Whether the server said that its tools changed, and nobody has looked yet.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::SeqCst)
    }

    pub(super) fn mark_changed(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }

    /// A call that can reach a person, on whose behalf the server may be asking. It does not say
    /// which one; all of them are ours.
    pub(super) fn asking_call(&self) -> Option<Arc<PendingRequest>> {
        let waiting = self.waiting.lock();
        let mut calls = waiting.slots.values().filter_map(Weak::upgrade);
        calls.find(|slot| slot.asker.is_some())
    }

    /// What the server wanted to know from a person, since this was last asked.
    pub(super) fn take_declined(&self) -> Option<String> {
        self.declined.lock().take()
    }

    /// Takes in a request of our own. Its id is its progress token too. Nothing when the connection
    /// is lost.
    pub(super) fn register(&self, slot: &Arc<PendingRequest>) -> Option<i64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        if waiting.is_over {
            return None;
        }
        waiting.slots.insert(RequestId::Number(id), Arc::downgrade(slot));
        Some(id)
    }

    /// Resolves when a request of our own has its answer. The error is why there is none.
    pub(super) async fn settled(&self, slot: &PendingRequest) -> Result<(), String> {
        while slot.answer().is_none() {
            if self.is_over() {
                return Err("the connection was lost".to_owned());
            }
            slot.settled.notified().await;
        }
        Ok(())
    }

    /// Nothing more comes: whoever waits is told.
    pub(super) fn end(&self) {
        let slots: Vec<Arc<PendingRequest>> = {
            let mut waiting = self.waiting.lock();
            waiting.is_over = true;
            waiting.slots.values().filter_map(Weak::upgrade).collect()
        };
        for slot in slots {
            slot.settled.notify_one();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.waiting.lock().is_over
    }

    /// What every request tells of us.
    pub(super) fn client_meta(&self) -> &str {
        self.client_meta.get().map_or("", String::as_str)
    }

    /// Learns from a request of the library what every request tells of us.
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

    /// Notes what is about to leave. Returns the slot that it carries.
    pub(super) fn outgoing(&self, message: &ClientJsonRpcMessage) -> Option<Arc<PendingRequest>> {
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

    /// The question which era the server is of is not waited for any longer.
    pub(super) fn give_up_probe(&self, id: &RequestId) {
        let mut waiting = self.waiting.lock();
        waiting.remove(id);
        waiting.late_probe = Some(id.clone());
    }

    /// Whether the server was greeted as those of the era with `initialize` are.
    pub(super) fn is_initialized(&self) -> bool {
        self.greeted.load(Ordering::SeqCst)
    }

    /// Whether the server said that it takes calls as tasks.
    pub(super) fn takes_tasks(&self) -> bool {
        self.takes_tasks.load(Ordering::SeqCst)
    }

    /// Takes note of an answer to the greeting that does not come by here otherwise.
    pub(super) fn note_initialize(&self, text: &[u8]) {
        if let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(text) {
            self.note_tasks(envelope.result);
        }
    }

    /// The library passes over what a server says of tasks of the legacy era.
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

    /// Whether that question was answered after all: the server is modern and slow.
    pub(super) fn is_late_modern(&self) -> bool {
        self.late_modern.load(Ordering::SeqCst)
    }

    /// A request whose answer is not waited for any longer.
    pub(super) fn remove(&self, id: &RequestId) {
        self.waiting.lock().remove(id);
    }

    /// Sorts a line. What is returned goes on to the library; the error ends the connection.
    pub(super) fn incoming(&self, line: &[u8]) -> Result<ForwardedMessages, String> {
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

    /// What is left of a line that was too long: one of its ends.
    pub(super) fn too_long(&self, end: &[u8]) -> Option<ServerJsonRpcMessage> {
        self.settle_seeming(end, || RpcAnswer::TooLarge)
    }

    /// What may be said of a line that was too long and says nowhere whom it answers: it is the
    /// answer if only one is waited for.
    pub(super) fn too_long_for_all(&self) -> Option<ServerJsonRpcMessage> {
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
            return Err(format!("it asks for more than {REQUESTS_MAX} things at once"));
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
                    slot.note_progress(&said);
                }
                Vec::new()
            }
            // Once is enough until somebody has looked.
            "notifications/tools/list_changed" => {
                let known = self.changed.swap(true, Ordering::SeqCst);
                if known { Vec::new() } else { serde_json::from_str(text).into_iter().collect() }
            }
            "notifications/subscriptions/acknowledged" => {
                serde_json::from_str(text).into_iter().collect()
            }
            // Log messages, other lists, other people's extensions.
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
        // Nobody asked, or it was answered already.
        Vec::new()
    }

    /// A line that cannot be read; if it seems to be an answer, who waits for it is told.
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

/// Gives an answer to who waits for it. What is returned is what the library gets, if it waits too.
fn answer_request(
    slot: &PendingRequest,
    id: RequestId,
    answer: RpcAnswer,
) -> Option<ServerJsonRpcMessage> {
    slot.set_answer(answer);
    (!slot.is_own).then(|| placeholder(id))
}

/// Reads an object. A list is none, although its items could be taken for the fields.
pub(super) fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, String> {
    if !raw.get().starts_with('{') {
        return Err("it is no object".to_owned());
    }
    serde_json::from_str(raw.get()).map_err(|error| error.to_string())
}

/// Whether an answer is a result without anything in it.
pub(super) fn is_placeholder(message: &ServerJsonRpcMessage) -> bool {
    matches!(
        message,
        ServerJsonRpcMessage::Response(response)
            if matches!(response.result, ServerResult::EmptyResult(_))
    )
}

/// What such an answer to the question about the era means: a server that says yes to everything
/// knows nothing of the modern one.
pub(super) fn not_known(id: RequestId) -> ServerJsonRpcMessage {
    unreadable(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "server/discover", None), id)
}

/// What the library gets in place of an answer that was kept here.
pub(super) fn placeholder(id: RequestId) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::response(ServerResult::empty(()), id)
}

fn unreadable(error: ErrorData, id: RequestId) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(error, Some(id))
}
