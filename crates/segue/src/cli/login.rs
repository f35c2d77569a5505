//! `segue login`

use clap::Args;

use super::app::App;
use super::upstream::ServerSelection;
use super::{Exit, Global, print_error, print_status};
use crate::print::escape_control;

/// Log in at an MCP server that has OAuth
#[derive(Args, Debug)]
pub(super) struct LoginArgs {
    /// The server, as `mcpServers` calls it
    server: String,
    /// Forget the login instead
    #[arg(long)]
    forget: bool,
}

pub(super) fn login(global: &Global, args: &LoginArgs) -> Exit {
    let app = match App::open(global, &ServerSelection::Recorded) {
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
        let help = format!("configured servers: {}", names.join(", "));
        print_error(&format!("there is no MCP server `{name}`"), Some(&help));
        return Exit::Usage;
    };
    if args.forget {
        server.forget_login();
        print_status(&format!("the login at `{name}` is forgotten"));
        return Exit::Success;
    }
    let tell = |page: &str| {
        print_status(&format!("open this page, and decide there:\n{}", escape_control(page)))
    };
    match app.runtime().block_on(server.login(tell)) {
        Ok(()) => {
            print_status(&format!("logged in at `{name}`"));
            Exit::Success
        }
        Err(why) => {
            print_error(&format!("no login at `{name}`: {}", escape_control(&why)), None);
            Exit::Unreachable
        }
    }
}
