//! What a call that is under way asks for: an answer of a person, or a call of another tool.
//!
//! Asking goes to whoever makes the call, and ends with it. So a tool that keeps its way to ask holds
//! nothing: there is nobody at the other end any more.

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

/// How a call reaches beyond itself.
#[derive(Clone, Debug)]
pub struct CallChannel {
    to: UnboundedSender<CallMessage>,
    /// What no question may tell.
    secrets: Option<Secrets>,
    /// The call of a run that it belongs to.
    of: Option<(Arc<CallUpdates>, CallId)>,
}

/// What a call asks for.
#[derive(Debug)]
pub(crate) enum CallMessage {
    /// What a person knows.
    Person { message: Arc<str>, schema: Arc<Schema>, reply: oneshot::Sender<Option<Decision>> },
    /// A call of another tool.
    Part { name: Arc<str>, args: Value, reply: oneshot::Sender<Result<Value, ToolError>> },
    /// Nothing: it has something to tell.
    Update(CallUpdate),
}

impl CallChannel {
    /// The two ends, for a call of a run, if it is one.
    pub(crate) fn pair(
        of: Option<(Arc<CallUpdates>, CallId)>,
    ) -> (CallChannel, UnboundedReceiver<CallMessage>) {
        // Every call has one and hardly any uses it: this kind has room for nothing at first.
        let (to, from) = unbounded();
        (CallChannel { to, secrets: None, of }, from)
    }

    /// Tells how the call is found again, should the engine stop. What must not be written down is
    /// not told.
    pub(crate) fn send_handle(&self, handle: Value) {
        let clean = self.secrets.as_ref().map(|secrets| secrets.redact_value(handle.clone()));
        if clean.is_none_or(|clean| clean == handle) {
            // Whoever made the call may have gone.
            let _ = self.to.unbounded_send(CallMessage::Update(CallUpdate::Handle(handle)));
        }
    }

    /// Tells how far the call has got.
    pub fn send_progress(&self, mut progress: Progress) {
        if let (Some(secrets), Some(message)) = (&self.secrets, &mut progress.message) {
            *message = secrets.redact(message).into();
        }
        let _ = self.to.unbounded_send(CallMessage::Update(CallUpdate::Progress(progress)));
    }

    /// Whether somebody will look for the call, although nobody waits for it now.
    pub(crate) fn is_findable(&self) -> bool {
        self.of.as_ref().is_some_and(|(updates, call)| updates.is_findable(*call))
    }

    /// The same, whose questions tell nothing of these.
    pub(crate) fn redacting(self, secrets: &Secrets) -> CallChannel {
        CallChannel { secrets: Some(secrets.clone()), ..self }
    }

    /// What a person gives; nothing when nobody is there, says no, or gives what does not fit.
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

    /// What another tool answers, if it may be called.
    pub(crate) async fn call(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        let is_over = || {
            let message = format!("the call that was allowed to call `{name}` is over");
            ToolError::refused(Code::ToolNotAllowed, message)
        };
        let (reply, answer) = oneshot::channel();
        let asking = CallMessage::Part { name: name.into(), args, reply };
        self.to.unbounded_send(asking).map_err(|_| is_over())?;
        answer.await.map_err(|_| is_over())?
    }
}
