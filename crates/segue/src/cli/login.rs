//! `segue login`

use clap::Args;

use super::app::App;
use super::upstream::Wanted;
use super::{Exit, Global, complain, say};
use crate::print::clean;

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
    let app = match App::open(global, &Wanted::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let name = &*args.server;
    if let Some(why) = app.upstream.failed.get(name) {
        complain(&format!("the MCP server `{name}` cannot be used: {why}"), None);
        return Exit::Unreachable;
    }
    let Some(server) = app.upstream.servers().find(|server| &**server.name() == name) else {
        let names: Vec<&str> = app.upstream.servers().map(|server| &**server.name()).collect();
        let help = format!("configured servers: {}", names.join(", "));
        complain(&format!("there is no MCP server `{name}`"), Some(&help));
        return Exit::Usage;
    };
    if args.forget {
        server.forget_login();
        say(&format!("the login at `{name}` is forgotten"));
        return Exit::Success;
    }
    let tell = |page: &str| say(&format!("open this page, and decide there:\n{}", clean(page)));
    match app.runtime().block_on(server.login(tell)) {
        Ok(()) => {
            say(&format!("logged in at `{name}`"));
            Exit::Success
        }
        Err(why) => {
            complain(&format!("no login at `{name}`: {}", clean(&why)), None);
            Exit::Unreachable
        }
    }
}
