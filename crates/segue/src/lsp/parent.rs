//! Ends the session when the editor's process has ended without closing standard input, as when another
//! process inherited it.

use std::sync::mpsc::Sender;

use super::Input;

/// Watches a process.
#[cfg(unix)]
pub(super) fn watch(process: i32, inputs: Sender<Input>) {
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    /// The time between two looks.
    const INTERVAL: Duration = Duration::from_secs(1);

    let Some(process) = Pid::from_raw(process).filter(|it| it.as_raw_nonzero().get() > 0) else {
        return;
    };
    std::thread::spawn(move || {
        loop {
            if test_kill_process(process) == Err(Errno::SRCH) {
                let _ = inputs.send(Input::ParentGone);
                return;
            }
            std::thread::sleep(INTERVAL);
        }
    });
}

/// On other systems only standard input says that the editor has ended.
#[cfg(not(unix))]
pub(super) fn watch(_process: i32, _inputs: Sender<Input>) {}
