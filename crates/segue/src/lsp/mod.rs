//! The Language Server Protocol: an editor's messages → the language service of the core → answers.
//!
//! One loop reads messages in their order and answers at once, so a notification is never overtaken. It
//! only computes: `transport` reads and writes on threads of its own, and `workspaces` follows
//! configurations, files and MCP servers on others. A text is analysed once per version (`documents`).
//!
//! Not here: what is found and proposed (`segue_core::language`), where tools come from
//! (`app::language`), and commands, which the editor's extension runs.

mod answers;
mod client;
mod convert;
mod documents;
mod edits;
mod lenses;
mod parent;
mod positions;
mod session;
mod transport;
mod uri;
mod workspaces;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use lsp_server::Message;

use crate::app::AppOptions;
use session::LspSession;
use transport::Malformed;
use workspaces::NewTools;

/// What the loop handles.
enum Input {
    /// A message of the client.
    Message(Message),
    /// A body that is no message.
    Malformed(Malformed),
    /// Standard input has ended.
    Closed,
    /// New tools of a folder.
    Tools(NewTools),
    /// The process that started this one has ended.
    ParentGone,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The client said `shutdown` and `exit`.
    Orderly,
    /// It left without `shutdown`.
    Abrupt,
}

/// How long the last answers may take to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one client over standard input and output.
pub(crate) fn serve(options: AppOptions) -> SessionEnd {
    let (sender, inputs) = channel();
    let (outbox, all_written) = transport::write_stdout();
    transport::read_stdin(sender.clone());
    let mut session = LspSession::new(options, outbox, sender);
    let end = handle_all(&mut session, &inputs);
    session.leave();
    // Nothing is ever sent: it ends when the writer has written everything.
    let _ = all_written.recv_timeout(WRITE_TIMEOUT);
    end
}

fn handle_all(session: &mut LspSession, inputs: &Receiver<Input>) -> SessionEnd {
    let mut queue = VecDeque::new();
    loop {
        // Everything that is there, so that a cancelled request is found before it is answered.
        loop {
            match inputs.try_recv() {
                Ok(input) => session.queue(&mut queue, input),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return SessionEnd::Abrupt,
            }
        }
        let Some(input) = queue.pop_front() else {
            // Nothing is waiting, so there is time to look at changed texts.
            session.publish_changed();
            match inputs.recv() {
                Ok(input) => session.queue(&mut queue, input),
                Err(_) => return SessionEnd::Abrupt,
            }
            continue;
        };
        if let Some(end) = session.handle(input) {
            return end;
        }
    }
}
