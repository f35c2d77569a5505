//! A request that waits for its answer, and the answer as received.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rmcp::model::InputResponses;
use segue_core::schema::Schema;
use segue_core::value::Value;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::exact_numbers::mark_numbers;
use super::progress::{ProgressNotice, ProgressState};
use crate::tools::CallChannel;
use crate::tools::mcp::definition::strip_invisible;
use crate::tools::mcp::frames::FrameSink;

/// The longest question to a person.
const QUESTION_CHARS_MAX: usize = 2_000;

/// The longest `data` of an error.
const DATA_CHARS_MAX: usize = 2_000;

/// An answer as received.
#[derive(Clone, Debug)]
pub(crate) enum RpcAnswer {
    /// The result.
    Result(Box<RawValue>),
    /// The server refused.
    Error {
        /// The JSON-RPC code.
        code: i64,
        /// The server's message.
        message: String,
    },
    /// The answer is over the size limit.
    TooLarge,
    /// The answer does not parse.
    Malformed(String),
    /// There will be no answer.
    Lost(String),
}

/// A server's question to a person.
pub(crate) struct ElicitationForm {
    /// The server's message.
    pub(crate) message: String,
    /// The schema of the answer.
    pub(crate) schema: Value,
}

/// A pending request. The caller holds it; a request of the library carries it, too.
#[derive(Debug, Default)]
pub(crate) struct PendingRequest {
    /// The exact arguments of a call.
    pub(crate) arguments: Option<Value>,
    /// The lifetime in milliseconds of the task that the call should become, if any.
    pub(crate) task_ms: Option<u64>,
    /// How the call reaches a person.
    pub(crate) asker: Option<CallChannel>,
    /// How many questions to a person are open.
    asking: AtomicUsize,
    sent: AtomicBool,
    answer: OnceLock<RpcAnswer>,
    /// Whether the request bypasses the library.
    pub(crate) is_own: bool,
    /// Fires when the answer is there, or when there will be none.
    pub(crate) settled: Notify,
    progressed: Notify,
    progress: Mutex<ProgressState>,
    /// Records the messages of the call.
    frames: Option<Arc<FrameSink>>,
}

impl PendingRequest {
    pub(crate) fn new(arguments: Option<Value>, asker: Option<CallChannel>) -> Arc<PendingRequest> {
        Arc::new(PendingRequest { arguments, asker, ..PendingRequest::default() })
    }

    /// For a call that is made as a task.
    pub(crate) fn of_task(
        arguments: Value,
        asker: Option<CallChannel>,
        task_ms: Option<u64>,
        frames: Option<Arc<FrameSink>>,
    ) -> Arc<PendingRequest> {
        Arc::new(PendingRequest {
            arguments: Some(arguments),
            asker,
            task_ms,
            frames,
            ..PendingRequest::default()
        })
    }

    /// For a call that bypasses the library.
    pub(crate) fn own(
        asker: Option<CallChannel>,
        frames: Option<Arc<FrameSink>>,
    ) -> Arc<PendingRequest> {
        Arc::new(PendingRequest { asker, frames, is_own: true, ..PendingRequest::default() })
    }

    /// Records a message of the request, if its run is recorded.
    pub(crate) fn record(&self, is_sent: bool, text: &str) {
        self.frames.iter().for_each(|frames| frames.record(is_sent, text));
    }

    /// Asks a person on behalf of the call; `None` without an answer that fits the schema.
    pub(crate) async fn ask_person(&self, server: &str, form: &ElicitationForm) -> Option<Value> {
        let asker = self.asker.as_ref()?;
        let message = strip_invisible(&form.message, QUESTION_CHARS_MAX);
        let message = format!("the MCP server `{server}` asks: {message}");
        let schema = Arc::new(Schema::new(form.schema.clone()));
        self.asking.fetch_add(1, Ordering::SeqCst);
        let answer = asker.ask(message.into(), schema).await;
        self.asking.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    /// Asks a person everything that a server wants to know. The error is the question that was
    /// declined.
    pub(crate) async fn answer_forms(
        &self,
        server: &str,
        forms: BTreeMap<String, ElicitationForm>,
    ) -> Result<InputResponses, String> {
        let mut responses = InputResponses::new();
        for (name, form) in forms {
            let data = self.ask_person(server, &form).await.ok_or(form.message)?;
            let data = mark_numbers(&data);
            responses.insert(name, serde_json::json!({ "action": "accept", "content": data }));
        }
        Ok(responses)
    }

    /// Whether the request bypasses the library.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether a question to a person is open: timeouts are suspended meanwhile.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.load(Ordering::SeqCst) > 0
    }

    /// Marks that sending begins: from now on the server may have received it.
    pub(crate) fn mark_sent(&self) {
        self.sent.store(true, Ordering::SeqCst);
    }

    /// Marks that the request was not sent.
    pub(crate) fn mark_unsent(&self) {
        self.sent.store(false, Ordering::SeqCst);
    }

    pub(crate) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::SeqCst)
    }

    /// Sets the answer; only the first one counts.
    pub(crate) fn set_answer(&self, answer: RpcAnswer) {
        let _ = self.answer.set(answer);
        self.settled.notify_one();
    }

    pub(crate) fn answer(&self) -> Option<&RpcAnswer> {
        self.answer.get()
    }

    /// Resolves at the next progress.
    pub(crate) async fn progressed(&self) {
        self.progressed.notified().await;
    }

    /// Records a progress notification.
    pub(crate) fn note_progress(&self, said: &ProgressNotice) {
        let mut heard = self.progress.lock();
        if heard.note(said) {
            self.progressed.notify_one();
        }
    }

    /// Forwards progress to the caller, at a limited rate.
    pub(crate) fn send_progress(&self) {
        let Some(asker) = &self.asker else { return };
        let mut heard = self.progress.lock();
        heard.take().into_iter().for_each(|progress| asker.send_progress(progress));
    }
}

/// A JSON-RPC error.
#[derive(Deserialize)]
pub(crate) struct WireError {
    code: i64,
    message: String,
    #[serde(default)]
    data: serde_json::Value,
}

impl From<WireError> for RpcAnswer {
    fn from(WireError { code, message, data }: WireError) -> RpcAnswer {
        // Often only `data` explains the error.
        let message = match data {
            serde_json::Value::Null => message,
            data => format!("{message}: {}", strip_invisible(&data.to_string(), DATA_CHARS_MAX)),
        };
        RpcAnswer::Error { code, message }
    }
}

/// Parses an object. A list is refused, although serde would take its items for the fields.
pub(crate) fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, String> {
    if !raw.get().starts_with('{') {
        return Err("it is not an object".to_owned());
    }
    serde_json::from_str(raw.get()).map_err(|error| error.to_string())
}
