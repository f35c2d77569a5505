//! Delivers commands to runs: directly within this process, through the store from other processes.
//!
//! A run opens its mailbox the first time that it waits. One task polls the store's pending
//! commands for all runs of the process. A command leaves the store only after its entries are
//! durable, so a crash can deliver it twice; the second time changes nothing.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::select;
use parking_lot::Mutex;
use segue_core::composition::Backoff;
use segue_core::run::{EventKind, QuestionId};
use segue_core::value::Value;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::evaluations::Evaluations;
use crate::store::{PendingCommand, Store, StoreError};

/// The first and the longest pause between two polls of the store.
const PAUSES: Backoff = Backoff::doubling(50, 1_000);

/// A command to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "wish", rename_all = "snake_case")]
pub enum RunCommand {
    /// Resume the run.
    #[serde(rename = "go_on")]
    Resume,
    /// Cancel the run.
    Cancel {
        /// Who cancels it.
        #[serde(default = "unknown_caller")]
        by: Arc<str>,
    },
    /// Roll back the run's finished steps.
    RollBack {
        /// Who rolls it back.
        by: Arc<str>,
    },
    /// Answer a question of the run.
    Decide {
        /// The question.
        question: QuestionId,
        /// Yes or no. Of a call in doubt: whether it did its work.
        granted: bool,
        /// Who answers.
        by: Arc<str>,
        /// Data that comes with the answer.
        data: Value,
    },
}

/// The caller in commands that were stored before commands named one.
fn unknown_caller() -> Arc<str> {
    "an unknown caller".into()
}

impl RunCommand {
    /// The event for the run; `None` for a plain resume.
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

/// A command that reached its run.
pub(crate) struct Received {
    /// The event for the run.
    pub(crate) event: EventKind,
    /// The command's number, if it came through the store.
    pub(crate) command: Option<u64>,
    /// Fires once the command's entries are durable; dropped when the driver stops before that.
    pub(crate) recorded: Option<oneshot::Sender<()>>,
}

/// Delivers commands to the runs of this process that have a mailbox.
pub(crate) struct CommandRouter {
    mailboxes: Mutex<BTreeMap<Arc<str>, Mailbox>>,
    store: Arc<dyn Store>,
    /// The evaluations of the runs.
    pub(crate) evaluations: Arc<Evaluations>,
}

struct Mailbox {
    sender: UnboundedSender<Received>,
    /// The last command delivered from the store.
    last: u64,
}

/// A run's end of its mailbox; dropping it closes the mailbox.
pub(crate) struct MailboxReceiver {
    receiver: UnboundedReceiver<Received>,
    run_id: Arc<str>,
    router: Arc<CommandRouter>,
}

impl CommandRouter {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<CommandRouter> {
        Arc::new(CommandRouter { mailboxes: Mutex::default(), store, evaluations: Arc::default() })
    }

    /// Opens the mailbox of a run.
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

    /// Delivers an event to a run of this process; `None` when the run has no mailbox. The receiver
    /// fires once the event is durable; it fails when the driver stops before that.
    pub(crate) fn deliver(
        &self,
        run_id: &Arc<str>,
        event: EventKind,
    ) -> Option<oneshot::Receiver<()>> {
        let (recorded, is_recorded) = oneshot::channel();
        let ends = is_stop(&event);
        let received = Received { event, command: None, recorded: Some(recorded) };
        let open = self.mailboxes.lock();
        let mailbox = open.get(run_id)?;
        if ends {
            // Before the run can receive the event: receiving it clears the stop.
            self.evaluations.stop(run_id);
        }
        mailbox.sender.send(received).ok()?;
        Some(is_recorded)
    }

    /// The stored commands for a run that no process drives yet: their numbers and events.
    pub(crate) async fn pending_for(
        &self,
        run_id: &Arc<str>,
    ) -> Result<(Vec<u64>, Vec<EventKind>), StoreError> {
        let pending = self
            .store
            .pending_commands()
            .await?
            .into_iter()
            .filter(|command| command.run_id == *run_id);
        Ok(pending.filter_map(|command| Some((command.number, decode(&command)?))).unzip())
    }

    /// Delivers stored commands. Returns whether any mailbox is open.
    async fn poll_store(&self) -> bool {
        // A store that cannot be read now is polled again.
        let pending = self.store.pending_commands().await.unwrap_or_default();
        let mut open = self.mailboxes.lock();
        for command in pending {
            let Some(mailbox) =
                open.get_mut(&command.run_id).filter(|mailbox| mailbox.last < command.number)
            else {
                continue;
            };
            mailbox.last = command.number;
            if let Some(event) = decode(&command) {
                if is_stop(&event) {
                    self.evaluations.stop(&command.run_id);
                }
                let _ = mailbox.sender.send(Received {
                    event,
                    command: Some(command.number),
                    recorded: None,
                });
            }
        }
        !open.is_empty()
    }
}

/// Whether an event ends the run's work, so that its evaluations need not finish.
pub(crate) fn is_stop(event: &EventKind) -> bool {
    matches!(event, EventKind::Cancel { .. } | EventKind::RollBack { .. })
}

/// The event of a stored command. A command that does not parse has no event: no version wrote it.
fn decode(command: &PendingCommand) -> Option<EventKind> {
    serde_json::from_str(&command.text).ok().and_then(RunCommand::into_event)
}

/// Polls the store while any mailbox is open.
async fn watch_store(commands: Weak<CommandRouter>) {
    let Some(signal) = commands.upgrade().map(|router| router.store.command_signal()) else {
        return;
    };
    for nth in 1.. {
        let pause = tokio::time::sleep(Duration::from_millis(PAUSES.wait_ms(nth)));
        match &signal {
            // A notification may be lost, so that the store is polled all the same.
            Some(signal) => {
                select(pin!(pause), pin!(signal.notified())).await;
            }
            None => pause.await,
        }
        let Some(commands) = commands.upgrade() else { return };
        if !commands.poll_store().await {
            return;
        }
    }
}

impl MailboxReceiver {
    /// Receives the next command.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Received>> {
        self.receiver.poll_recv(cx)
    }
}

impl Drop for MailboxReceiver {
    fn drop(&mut self) {
        self.router.mailboxes.lock().remove(&self.run_id);
    }
}
