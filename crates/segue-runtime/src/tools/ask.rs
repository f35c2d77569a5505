//! A call that is under way asks a person: its server wants to know something before it goes on.

use std::sync::Arc;

use segue_core::run::{NodeId, Question, QuestionId, QuestionKind};
use segue_core::schema::Schema;
use segue_core::value::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::ToolError;
use crate::driver::{Confirmer, Decision};

/// The number of a question that no journal knows: it ends with its call.
const UNWRITTEN: u64 = u64::MAX;

/// How a call reaches a person.
#[derive(Clone, Debug)]
pub struct Asker(UnboundedSender<Asking>);

/// A question of a call.
#[derive(Debug)]
pub(crate) struct Asking {
    message: Arc<str>,
    schema: Arc<Schema>,
    reply: oneshot::Sender<Option<Decision>>,
}

impl Asker {
    /// The two ends.
    pub(crate) fn pair() -> (Asker, UnboundedReceiver<Asking>) {
        let (to, from) = unbounded_channel();
        (Asker(to), from)
    }

    /// What a person gives; nothing when nobody is there, says no, or gives what does not fit.
    pub async fn ask(&self, message: Arc<str>, schema: Arc<Schema>) -> Option<Value> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Asking { message, schema: schema.clone(), reply }).ok()?;
        let decision = answer.await.ok().flatten().filter(|decision| decision.granted)?;
        let data = match decision.data {
            Value::Null => Value::empty_object(),
            data => data,
        };
        let data = schema.with_defaults(data);
        schema.violations(&data).is_empty().then_some(data)
    }
}

/// Waits for a call, and puts its questions one after the other. The call goes on while somebody
/// thinks; when it ends, its question has no place any more.
pub(crate) async fn with_questions(
    mut work: futures_util::future::BoxFuture<'_, Result<Value, ToolError>>,
    mut asked: UnboundedReceiver<Asking>,
    confirmer: &dyn Confirmer,
    (node, step): (NodeId, Arc<str>),
) -> Result<Value, ToolError> {
    loop {
        let asking = tokio::select! {
            biased;
            answer = &mut work => return answer,
            Some(asking) = asked.recv() => asking,
        };
        let Asking { message, schema, reply } = asking;
        let question = Question {
            id: QuestionId { node, seq: UNWRITTEN },
            step: step.clone(),
            kind: QuestionKind::Approval { message, schema: Some(schema) },
        };
        tokio::select! {
            biased;
            answer = &mut work => return answer,
            decision = confirmer.confirm(&question) => {
                let _ = reply.send(decision);
            }
        }
    }
}
