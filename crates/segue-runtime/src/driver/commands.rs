//! What reaches a run from outside while it is driven: at once from this process, and through the
//! store from any other.
//!
//! A run listens from the first time that it has to wait. Words in the store are looked for now and
//! then, for all runs together; there are hardly ever any. One is thrown away only when what follows
//! from it is written down, so a word may be heard twice after a crash, which changes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use segue_core::composition::Backoff;
use segue_core::run::{EventKind, QuestionId};
use segue_core::value::Value;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::evaluations::Evaluations;
use crate::store::{PendingCommand, Store, StoreError};

/// How long between two looks at the words in the store: at first, and at most.
const PAUSES: Backoff = Backoff::doubling(50, 1_000);

/// What somebody wants of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "wish", rename_all = "snake_case")]
pub enum RunCommand {
    /// That it goes on where it was.
    #[serde(rename = "go_on")]
    Resume,
    /// That it ends.
    Cancel {
        /// Who wants it.
        #[serde(default = "unknown_caller")]
        by: Arc<str>,
    },
    /// That what it did is taken back.
    RollBack {
        /// Who wants it.
        by: Arc<str>,
    },
    /// That a question of it has this answer.
    Decide {
        /// Which question.
        question: QuestionId,
        /// Yes or no. Of a call in doubt: whether it did its work.
        granted: bool,
        /// Whose answer it is.
        by: Arc<str>,
        /// What comes with it.
        data: Value,
    },
}

/// Who left a word before it was written down who does.
fn unknown_caller() -> Arc<str> {
    "somebody".into()
}

impl RunCommand {
    /// What happens to the run; nothing when it only goes on.
    pub(crate) fn into_event(self) -> Option<EventKind> {
        Some(match self {
            RunCommand::Resume => return None,
            RunCommand::Cancel { by } => EventKind::Cancel { by },
            RunCommand::RollBack { by } => EventKind::RollBack { by },
            RunCommand::Decide { question, granted, by, data } => {
                EventKind::Decided { question, granted, by, data }
            }
        })
    }
}

/// A wish that has reached its run.
pub(crate) struct Received {
    /// What happens to the run.
    pub(crate) event: EventKind,
    /// The word in the store that it came by.
    pub(crate) command: Option<u64>,
    /// Told once what follows from it is durable; dropped when that never happens.
    pub(crate) recorded: Option<oneshot::Sender<()>>,
}

/// The runs of this process that listen.
pub(crate) struct CommandRouter {
    mailboxes: Mutex<BTreeMap<Arc<str>, Mailbox>>,
    store: Arc<dyn Store>,
    /// What they evaluate.
    pub(crate) evaluations: Arc<Evaluations>,
}

struct Mailbox {
    sender: UnboundedSender<Received>,
    /// The last word from the store.
    last: u64,
}

/// A run that listens, until dropped.
pub(crate) struct MailboxReceiver {
    receiver: UnboundedReceiver<Received>,
    run_id: Arc<str>,
    router: Arc<CommandRouter>,
}

impl CommandRouter {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<CommandRouter> {
        Arc::new(CommandRouter { mailboxes: Mutex::default(), store, evaluations: Arc::default() })
    }

    /// Begins to listen for a run.
    pub(crate) fn register(self: &Arc<CommandRouter>, run_id: &Arc<str>) -> MailboxReceiver {
        let (to, from) = unbounded_channel();
        let is_first = {
            let mut open = self.mailboxes.lock();
            let is_first = open.is_empty();
            open.insert(run_id.clone(), Mailbox { sender: to, last: 0 });
            is_first
        };
        if is_first {
            tokio::spawn(watch_store(Arc::downgrade(self)));
        }
        MailboxReceiver { receiver: from, run_id: run_id.clone(), router: self.clone() }
    }

    /// Tells a run of this process what is wanted; nothing when none of that name listens. The answer
    /// comes once that is durable, and never when the run is left before.
    pub(crate) fn deliver(
        &self,
        run_id: &Arc<str>,
        event: EventKind,
    ) -> Option<oneshot::Receiver<()>> {
        let (recorded, is_recorded) = oneshot::channel();
        let ends = is_stop(&event);
        let heard = Received { event, command: None, recorded: Some(recorded) };
        let open = self.mailboxes.lock();
        let mailbox = open.get(run_id)?;
        if ends {
            // Before the run can hear of it: hearing takes the stop back.
            self.evaluations.stop(run_id);
        }
        mailbox.sender.send(heard).ok()?;
        Some(is_recorded)
    }

    /// The words in the store for a run that nobody drives yet, and what they want of it.
    pub(crate) async fn pending_for(
        &self,
        run_id: &Arc<str>,
    ) -> Result<(Vec<u64>, Vec<EventKind>), StoreError> {
        let words =
            self.store.pending_commands().await?.into_iter().filter(|word| word.run_id == *run_id);
        Ok(words.filter_map(|word| Some((word.number, decode(&word)?))).unzip())
    }

    /// Looks for words in the store. Whether there may be any later.
    async fn poll_store(&self) -> bool {
        // A store that cannot be read now is looked at again.
        let words = self.store.pending_commands().await.unwrap_or_default();
        let mut open = self.mailboxes.lock();
        for word in words {
            let Some(mailbox) =
                open.get_mut(&word.run_id).filter(|mailbox| mailbox.last < word.number)
            else {
                continue;
            };
            mailbox.last = word.number;
            if let Some(event) = decode(&word) {
                if is_stop(&event) {
                    self.evaluations.stop(&word.run_id);
                }
                let _ = mailbox.sender.send(Received {
                    event,
                    command: Some(word.number),
                    recorded: None,
                });
            }
        }
        !open.is_empty()
    }
}

/// Whether an event ends what the run does, so that nobody waits for what it evaluates.
pub(crate) fn is_stop(event: &EventKind) -> bool {
    matches!(event, EventKind::Cancel { .. } | EventKind::RollBack { .. })
}

/// What a word wants. What nobody can read is left by nobody that is known here.
fn decode(word: &PendingCommand) -> Option<EventKind> {
    serde_json::from_str(&word.text).ok().and_then(RunCommand::into_event)
}

/// Looks for words as long as a run listens.
async fn watch_store(commands: Weak<CommandRouter>) {
    for nth in 1.. {
        tokio::time::sleep(Duration::from_millis(PAUSES.wait_ms(nth))).await;
        let Some(commands) = commands.upgrade() else { return };
        if !commands.poll_store().await {
            return;
        }
    }
}

impl MailboxReceiver {
    /// The next wish.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        self.receiver.poll_recv(cx)
    }
}

impl Drop for MailboxReceiver {
    fn drop(&mut self) {
        self.router.mailboxes.lock().remove(&self.run_id);
    }
}
