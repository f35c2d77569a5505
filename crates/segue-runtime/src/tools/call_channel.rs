//! Requests of a call in flight: a question to a person, or a call of another tool.
//!
//! They go to the scope that serves the call, and end with it. A tool that keeps its channel holds
//! nothing: the receiver is gone.

use std::sync::Arc;

use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use segue_core::diagnostic::Code;
use segue_core::run::CallId;
use segue_core::schema::Schema;
use segue_core::value::Value;
use tokio::sync::oneshot;

use super::ToolError;
use super::call_updates::{CallUpdate, CallUpdates, Progress};
use super::redact::Secrets;
use crate::confirm::Decision;

/// A call's channel to people, other tools and the driver.
#[derive(Clone, Debug)]
pub struct CallChannel {
    to: UnboundedSender<CallMessage>,
    /// Redacted from every question.
    secrets: Option<Secrets>,
    /// The call of a run that the channel belongs to.
    of: Option<(Arc<CallUpdates>, CallId)>,
}

/// A message from a call in flight.
#[derive(Debug)]
pub(crate) enum CallMessage {
    /// Asks a person for data.
    Person { message: Arc<str>, schema: Arc<Schema>, reply: oneshot::Sender<Option<Decision>> },
    /// Calls another tool.
    Part { name: Arc<str>, args: Value, reply: oneshot::Sender<Result<Value, ToolError>> },
    /// Sends an update; no reply.
    Update(CallUpdate),
}

impl CallChannel {
    /// The two ends of a channel, and the call of a run, if it is one.
    pub(crate) fn pair(
        of: Option<(Arc<CallUpdates>, CallId)>,
    ) -> (CallChannel, UnboundedReceiver<CallMessage>) {
        // Almost no call sends a message; this kind of channel allocates nothing before the first.
        let (to, from) = unbounded();
        (CallChannel { to, secrets: None, of }, from)
    }

    /// Sends the handle by which the call can be found again after a restart. A handle that
    /// contains a secret must not be stored, so it is not sent.
    pub(crate) fn send_handle(&self, handle: Value) {
        let clean = self.secrets.as_ref().map(|secrets| secrets.redact_value(handle.clone()));
        if clean.is_none_or(|clean| clean == handle) {
            // The scope may be gone.
            let _ = self.to.unbounded_send(CallMessage::Update(CallUpdate::Handle(handle)));
        }
    }

    /// Reports progress.
    pub fn send_progress(&self, mut progress: Progress) {
        if let (Some(secrets), Some(message)) = (&self.secrets, &mut progress.message) {
            *message = secrets.redact(message).into();
        }
        let _ = self.to.unbounded_send(CallMessage::Update(CallUpdate::Progress(progress)));
    }

    /// Whether a resumed run would find the call again.
    pub(crate) fn is_findable(&self) -> bool {
        self.of.as_ref().is_some_and(|(updates, call)| updates.is_findable(*call))
    }

    /// The same channel, with these secrets redacted from questions and updates.
    pub(crate) fn redacting(self, secrets: &Secrets) -> CallChannel {
        CallChannel { secrets: Some(secrets.clone()), ..self }
    }

    /// A person's answer; `None` when there is none, when it is a denial, or when it does not fit
    /// the schema.
    pub async fn ask(&self, message: Arc<str>, schema: Arc<Schema>) -> Option<Value> {
        let (message, schema) = match &self.secrets {
            None => (message, schema),
            Some(secrets) => (
                secrets.redact(&message).into(),
                Arc::new(Schema::new(secrets.redact_value(schema.json().clone()))),
            ),
        };
        let (reply, answer) = oneshot::channel();
        self.to
            .unbounded_send(CallMessage::Person { message, schema: schema.clone(), reply })
            .ok()?;
        let decision = answer.await.ok().flatten().filter(|decision| decision.granted)?;
        let data = match decision.data {
            Value::Null => Value::empty_object(),
            data => data,
        };
        let data = schema.with_defaults(data);
        schema.violations(&data).is_empty().then_some(data)
    }

    /// Calls another tool, if the call may.
    pub(crate) async fn call(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        let is_over = || {
            let message = format!("the call that could use `{name}` has ended");
            ToolError::refused(Code::ToolNotAllowed, message)
        };
        let (reply, answer) = oneshot::channel();
        let asking = CallMessage::Part { name: name.into(), args, reply };
        self.to.unbounded_send(asking).map_err(|_| is_over())?;
        answer.await.map_err(|_| is_over())?
    }
}
