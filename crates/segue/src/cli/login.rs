//! `segue login`

use clap::Args;

use super::{Exit, Global};
use crate::app::ServerSelection;
use crate::print::{escape_control, print_error, print_status};

/// Log in to an MCP server with OAuth
///
/// Prints the address of the login page and waits until you have logged in there.
#[derive(Args, Debug)]
pub(super) struct LoginArgs {
    /// The name of the server in `mcpServers`
    server: String,
    /// Delete the stored login
    #[arg(long)]
    forget: bool,
}

pub(super) fn login(global: &Global, args: &LoginArgs) -> Exit {
    let app = match global.open(&ServerSelection::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let name = &*args.server;
    if let Some(why) = app.upstream.failed.get(name) {
        print_error(&format!("the MCP server `{name}` cannot be used: {why}"), None);
        return Exit::Unreachable;
    }
    let Some(server) = app.upstream.servers().find(|server| &**server.name() == name) else {
        let names: Vec<&str> = app.upstream.servers().map(|server| &**server.name()).collect();
        let help = match names.join(", ") {
            names if names.is_empty() => {
                "`mcpServers` in `segue.yaml` configures servers".to_owned()
            }
            names => format!("configured servers: {names}"),
        };
        print_error(&format!("there is no MCP server `{name}`"), Some(&help));
        return Exit::Usage;
    };
    if args.forget {
        server.forget_login();
        print_status(&format!("deleted the login to `{name}`"));
        return Exit::Success;
    }
    let show_page =
        |page: &str| print_status(&format!("open this page to log in:\n{}", escape_control(page)));
    match app.runtime().block_on(server.login(show_page)) {
        Ok(()) => {
            print_status(&format!("logged in to `{name}`"));
            Exit::Success
        }
        Err(why) => {
            print_error(&format!("cannot log in to `{name}`: {}", escape_control(&why)), None);
            Exit::Unreachable
        }
    }
}
