//! `segue lsp`

use clap::Args;

use super::{Exit, Global};
use crate::lsp::{SessionEnd, serve};

/// Serve the Language Server Protocol to an editor, over standard input and output
///
/// Editors start this command themselves: findings while you type, completion of tools, parameters and
/// expressions, hover, definition, references, rename, quick fixes and outline. Each folder with a
/// `segue.yaml` has its own tools. MCP servers start in the background, and only those of a trusted
/// configuration: `segue trust`. docs/editors.md says how to set up each editor.
#[derive(Args, Debug)]
pub(super) struct LspArgs {
    /// Accepted and ignored: some clients add it, and there is no other transport
    #[arg(long, hide = true)]
    stdio: bool,
}

pub(super) fn lsp(global: &Global, _args: &LspArgs) -> Exit {
    match serve(global.options()) {
        SessionEnd::Orderly => Exit::Success,
        SessionEnd::Abrupt => Exit::RunFailed,
    }
}
