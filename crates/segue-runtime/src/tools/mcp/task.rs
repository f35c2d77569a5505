//! Calls that a server makes into tasks, polled to their end.
//!
//! There are two generations. Until 2025-11-25 the client asks for a task and fetches the result
//! with another request; questions come while it waits for that. In the extension of 2026-07-28 the
//! server decides, and the state of a task holds its questions and its result. A dropped call
//! cancels its task, unless its run was only interrupted: the resumed run then finds the task by
//! its handle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CancelTaskParams, CancelTaskRequest, ClientRequest, CustomRequest, GetTaskParams,
    GetTaskRequest, RequestMetaObject, UpdateTaskParams, UpdateTaskRequest,
};
use segue_core::value::Value;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::calls::pending::{ElicitationForm, PendingRequest, RpcAnswer, WireError, object};
use super::calls::progress::PROGRESS_CHARS_MAX;
use super::calls::result::forms_in;
use super::calls::{CANCEL_MAX, RequestError, Timeouts};
use super::connection::Connection;
use super::definition::strip_invisible;
use crate::tools::{CallChannel, Progress};

/// The pause between two polls of a task: the shortest, the default, the longest.
const POLL: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(15)];

/// How many questions one task may ask.
const QUESTIONS_MAX: usize = 32;

/// Whether a tool is called as a task, in the generation where the client decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskSupport {
    /// Never.
    #[default]
    Forbidden,
    /// The client decides.
    Optional,
    /// Always.
    Required,
}

impl TaskSupport {
    /// Reads it from a definition.
    pub(super) fn of(definition: &Value) -> TaskSupport {
        let said = definition.get("execution").and_then(|execution| execution.get("taskSupport"));
        match said.and_then(Value::as_str) {
            Some("required") => TaskSupport::Required,
            Some("optional") => TaskSupport::Optional,
            _ => TaskSupport::Forbidden,
        }
    }
}

/// The generations of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    /// Of 2025-11-25.
    Core,
    /// The extension of 2026-07-28.
    Extension,
}

/// The state of a task, as the server reports it.
#[derive(Deserialize)]
struct TaskState<'a> {
    #[serde(rename = "taskId")]
    id: String,
    status: String,
    #[serde(default, rename = "statusMessage")]
    message: Option<String>,
    #[serde(default, alias = "pollInterval", rename = "pollIntervalMs")]
    poll_ms: Option<f64>,
    #[serde(borrow, default, rename = "inputRequests")]
    questions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl TaskState<'_> {
    fn pause(&self) -> Duration {
        let said = self.poll_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1_000.0).ok());
        said.unwrap_or(POLL[1]).clamp(POLL[0], POLL[2])
    }
}

/// A task that a server started in place of an answer.
#[derive(Debug)]
pub(super) struct TaskHandle {
    generation: Generation,
    id: String,
    pause: Duration,
}

impl TaskHandle {
    /// The handle that is stored in the journal.
    pub(super) fn handle(&self) -> Value {
        let generation = match self.generation {
            Generation::Core => "core",
            Generation::Extension => "extension",
        };
        Value::object([("task", Value::from(&*self.id)), ("generation", Value::from(generation))])
    }

    /// The task of a stored handle; it is polled soon.
    pub(super) fn found(handle: &Value) -> Option<TaskHandle> {
        let text = |name: &str| handle.get(name).and_then(Value::as_str);
        let generation = match text("generation")? {
            "core" => Generation::Core,
            "extension" => Generation::Extension,
            _ => return None,
        };
        Some(TaskHandle { generation, id: text("task")?.to_owned(), pause: POLL[0] })
    }
}

/// The task of an answer, if it is one.
pub(super) fn begun(raw: &RawValue) -> Option<TaskHandle> {
    #[derive(Deserialize)]
    struct Created<'a> {
        #[serde(rename = "resultType")]
        kind: Option<String>,
        #[serde(borrow, default)]
        task: Option<&'a RawValue>,
        #[serde(borrow, default)]
        content: Option<&'a RawValue>,
    }
    let created: Created<'_> = object(raw).ok()?;
    let (generation, state) = match (created.kind.as_deref(), created.task, created.content) {
        (Some("task"), None, _) => (Generation::Extension, raw),
        (None, Some(task), None) => (Generation::Core, task),
        _ => return None,
    };
    let state: TaskState<'_> = object(state).ok()?;
    Some(TaskHandle { generation, pause: state.pause(), id: state.id })
}

/// Why a task has no answer.
pub(super) enum TaskError {
    /// It timed out, and was cancelled.
    TimedOut(Duration),
    /// Its outcome is unknown.
    NoAnswer(String),
    /// The server does not know it.
    Unknown(String),
    /// It asked a question that was not answered, and was cancelled.
    Declined(String),
    /// The server cancelled it.
    Cancelled,
}

/// A pending task. Dropping it tells the server to cancel it.
pub(super) struct Task {
    connection: Arc<Connection>,
    server: Arc<str>,
    asker: Option<CallChannel>,
    patience: Timeouts,
    begun: TaskHandle,
    /// Questions that were answered: a server may still report them for a while.
    answered: BTreeSet<String>,
    /// The server's last progress message.
    said: Option<String>,
    is_over: bool,
}

/// The result of one poll.
enum TaskUpdate {
    Working(Duration),
    Asking(BTreeMap<String, ElicitationForm>, Duration),
    AskingInResult,
    Ended(RpcAnswer),
    EndedElsewhere,
}

impl Task {
    pub(super) fn new(
        connection: Arc<Connection>,
        server: Arc<str>,
        asker: Option<CallChannel>,
        patience: Timeouts,
        begun: TaskHandle,
    ) -> Task {
        let answered = BTreeSet::new();
        Task { connection, server, asker, patience, begun, answered, said: None, is_over: false }
    }

    /// Polls the task to its end.
    pub(super) async fn wait_for_end(mut self) -> Result<RpcAnswer, TaskError> {
        let until = Instant::now() + self.patience.total;
        let ended = tokio::time::timeout_at(until, self.followed()).await;
        let ended = ended.unwrap_or(Err(TaskError::TimedOut(self.patience.total)));
        if matches!(ended, Err(TaskError::TimedOut(_) | TaskError::Declined(_))) {
            let cancelling = self.connection.calls.cancel_task(self.cancellation());
            let _ = tokio::time::timeout(CANCEL_MAX, cancelling).await;
        }
        self.is_over = true;
        ended
    }

    async fn followed(&mut self) -> Result<RpcAnswer, TaskError> {
        let mut pause = self.begun.pause;
        let mut heard = Instant::now();
        loop {
            tokio::time::sleep(pause).await;
            match self.poll().await {
                Ok(TaskUpdate::Working(next)) => pause = next,
                Ok(TaskUpdate::Asking(forms, next)) => {
                    self.answer_forms(forms).await?;
                    pause = next;
                }
                Ok(TaskUpdate::Ended(answer)) => return Ok(answer),
                Ok(TaskUpdate::AskingInResult | TaskUpdate::EndedElsewhere) => {
                    return self.result().await;
                }
                // A poll changes nothing, so it is repeated until the idle timeout.
                Err(TaskError::NoAnswer(why)) => {
                    if self.connection.is_closed() || heard.elapsed() > self.patience.idle {
                        return Err(TaskError::NoAnswer(why));
                    }
                    continue;
                }
                Err(unended) => return Err(unended),
            }
            heard = Instant::now();
        }
    }

    /// Polls once.
    async fn poll(&mut self) -> Result<TaskUpdate, TaskError> {
        let mut request = GetTaskRequest::new(GetTaskParams::new(self.begun.id.clone()));
        let slot = PendingRequest::new(None, None);
        request.extensions.insert(slot.clone());
        let request = ClientRequest::GetTaskRequest(request);
        self.asked(request, &slot, Timeouts { total: self.patience.idle, ..self.patience }).await?;
        let raw = match slot.answer() {
            Some(RpcAnswer::Result(raw)) => raw,
            Some(RpcAnswer::Error { code: -32602 | -32601, message }) => {
                return Err(TaskError::Unknown(message.clone()));
            }
            Some(RpcAnswer::Error { message, .. }) => {
                return Err(TaskError::NoAnswer(message.clone()));
            }
            _ => {
                return Err(TaskError::NoAnswer("the state of the task cannot be read".to_owned()));
            }
        };
        let unread = |why: String| TaskError::NoAnswer(format!("the state of the task: {why}"));
        let state: TaskState<'_> = object(raw).map_err(unread)?;
        let core = self.begun.generation == Generation::Core;
        self.tell_progress(state.message.as_deref());
        Ok(match state.status.as_str() {
            "working" | "submitted" => TaskUpdate::Working(state.pause()),
            "input_required" if core => TaskUpdate::AskingInResult,
            "input_required" => {
                let forms = state.questions.and_then(forms_in);
                let Some(mut forms) = forms else {
                    return Err(TaskError::Declined("a question that is not a form".to_owned()));
                };
                forms.retain(|name, _| !self.answered.contains(name));
                TaskUpdate::Asking(forms, state.pause())
            }
            "cancelled" => return Err(TaskError::Cancelled),
            "completed" | "failed" if core => TaskUpdate::EndedElsewhere,
            "completed" => match state.result {
                Some(result) => TaskUpdate::Ended(RpcAnswer::Result(result.to_owned())),
                None => TaskUpdate::Ended(RpcAnswer::Malformed(
                    "the finished task has no result".into(),
                )),
            },
            "failed" => match state.error.map(object::<WireError>) {
                Some(Ok(error)) => TaskUpdate::Ended(error.into()),
                _ => TaskUpdate::Ended(RpcAnswer::Malformed("the failed task has no error".into())),
            },
            other => {
                let other = strip_invisible(other, 64);
                TaskUpdate::Ended(RpcAnswer::Malformed(format!(
                    "its task has the unknown status `{other}`"
                )))
            }
        })
    }

    /// Forwards the server's progress message, if it is new.
    fn tell_progress(&mut self, message: Option<&str>) {
        let Some(message) = message.filter(|message| self.said.as_deref() != Some(message)) else {
            return;
        };
        self.said = Some(message.to_owned());
        if let Some(asker) = &self.asker {
            let message = strip_invisible(message, PROGRESS_CHARS_MAX).into();
            asker.send_progress(Progress { progress: None, total: None, message: Some(message) });
        }
    }

    /// Asks people the questions of the task, and sends their answers to the server.
    async fn answer_forms(
        &mut self,
        forms: BTreeMap<String, ElicitationForm>,
    ) -> Result<(), TaskError> {
        let person = PendingRequest::new(None, self.asker.clone());
        let words = person.answer_forms(&self.server, forms).await.map_err(TaskError::Declined)?;
        self.answered.extend(words.keys().cloned());
        if self.answered.len() > QUESTIONS_MAX {
            return Err(TaskError::Declined(format!("more than {QUESTIONS_MAX} questions")));
        }
        if words.is_empty() {
            return Ok(());
        }
        let params = UpdateTaskParams::new(self.begun.id.clone(), words);
        let mut request = UpdateTaskRequest::new(params);
        let slot = PendingRequest::new(None, None);
        request.extensions.insert(slot.clone());
        let request = ClientRequest::UpdateTaskRequest(request);
        let patience = Timeouts { total: self.patience.idle, ..self.patience };
        self.asked(request, &slot, patience).await?;
        match slot.answer() {
            Some(RpcAnswer::Error { message, .. }) => {
                Err(TaskError::NoAnswer(format!("the server rejected the answer: {message}")))
            }
            _ => Ok(()),
        }
    }

    /// The result, in the generation where it is fetched. It arrives when the task ends; until then
    /// the server may ask.
    async fn result(&self) -> Result<RpcAnswer, TaskError> {
        let params = serde_json::json!({ "taskId": self.begun.id });
        let mut request = CustomRequest::new("tasks/result", Some(params));
        let slot = PendingRequest::new(None, self.asker.clone());
        request.extensions.insert(slot.clone());
        let request = ClientRequest::CustomRequest(request);
        let patience = Timeouts { idle: self.patience.total, total: self.patience.total };
        self.asked(request, &slot, patience).await?;
        slot.answer().cloned().ok_or_else(|| TaskError::NoAnswer("there is no answer".to_owned()))
    }

    async fn asked(
        &self,
        request: ClientRequest,
        slot: &Arc<PendingRequest>,
        patience: Timeouts,
    ) -> Result<(), TaskError> {
        let asked =
            self.connection.calls.request(request, slot, RequestMetaObject::new(), patience).await;
        asked.map_err(|lost| match lost {
            RequestError::Unsent(why) | RequestError::NoAnswer(why) => TaskError::NoAnswer(why),
            RequestError::TimedOut(time) => {
                TaskError::NoAnswer(format!("no state of its task within {} ms", time.as_millis()))
            }
        })
    }

    fn cancellation(&self) -> ClientRequest {
        let params = CancelTaskParams::new(self.begun.id.clone());
        ClientRequest::CancelTaskRequest(CancelTaskRequest::new(params))
    }
}

impl Drop for Task {
    // In `Drop`, because a call ends when its future is dropped.
    fn drop(&mut self) {
        if self.is_over || self.asker.as_ref().is_some_and(CallChannel::is_findable) {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.connection.calls.cancel_task_later(&runtime, self.cancellation());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<(Generation, String, u128)> {
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        begun(&raw).map(|begun| (begun.generation, begun.id, begun.pause.as_millis()))
    }

    #[test]
    fn a_task_is_told_from_a_result() {
        let core = r#"{"task":{"taskId":"a","status":"working","ttl":60000,"pollInterval":200}}"#;
        assert_eq!(read(core), Some((Generation::Core, "a".to_owned(), 200)));
        let extension = r#"{"resultType":"task","taskId":"b","status":"working","ttlMs":null}"#;
        assert_eq!(read(extension), Some((Generation::Extension, "b".to_owned(), 1_000)));
        for other in [
            r#"{"content":[],"task":{"taskId":"a","status":"working"}}"#,
            r#"{"resultType":"complete","taskId":"a","status":"working"}"#,
            r#"{"resultType":"task","task":{"taskId":"1","status":"working"}}"#,
            r#"{"resultType":"task"}"#,
            r#"{"task":7}"#,
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn a_server_is_not_asked_all_the_time_nor_hardly_ever() {
        for (said, pause) in [("0", 50), ("-5", 1_000), ("1e300", 1_000), ("900000", 15_000)] {
            let json = format!(
                r#"{{"resultType":"task","taskId":"b","status":"working","pollIntervalMs":{said}}}"#
            );
            assert_eq!(read(&json).unwrap().2, pause, "{said}");
        }
    }
}
