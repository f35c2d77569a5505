//! `segue serve`

use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use clap::Args;

use super::app::{App, load_config};
use super::mcp::{hall, look_after, recover, stamps};
use super::run::interrupted;
use super::upstream::Wanted;
use super::{Exit, Global, complain, say};
use crate::serve::http::House;

/// Where it listens unless told otherwise: on this machine only.
const LISTEN: &str = "127.0.0.1:7433";

/// Serve the configured compositions over HTTP: MCP at `/mcp`
#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    /// The address to listen at [default: `server.listen`, or 127.0.0.1:7433]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Let in whoever can reach the address; on this machine only
    #[arg(long)]
    no_token: bool,
}

pub(super) fn serve(global: &Global, args: &ServeArgs) -> Exit {
    let config = match load_config(global) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    let listen = args.listen.as_deref().or(config.server.listen.as_deref()).unwrap_or(LISTEN);
    let at: SocketAddr = match listen.parse() {
        Ok(at) => at,
        Err(_) => {
            let help = "write an address and a port, such as `127.0.0.1:7433`";
            complain(&format!("`{listen}` is no address"), Some(help));
            return Exit::Usage;
        }
    };
    if args.no_token && !at.ip().is_loopback() {
        let help = "set `server.token`, or listen at 127.0.0.1";
        complain("without a token only this machine may be served", Some(help));
        return Exit::Usage;
    }
    let (token, is_new) = match (args.no_token, &config.server.token) {
        (true, _) => (None, false),
        (false, Some(token)) => (Some(token.clone()), false),
        (false, None) => (Some(uuid::Uuid::new_v4().simple().to_string()), true),
    };
    let seen = stamps(&config);
    let app = match App::open_stored(global, &Wanted::Served, &[]) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let hall = hall(&app);
    app.runtime().block_on(async {
        recover(global, &hall).await;
        let listener = match tokio::net::TcpListener::bind(at).await {
            Ok(listener) => listener,
            Err(error) => {
                complain(&format!("cannot listen at {at}: {error}"), None);
                return Exit::Usage;
            }
        };
        let at = listener.local_addr().unwrap_or(at);
        say(&format!("listening at http://{at}/mcp"));
        if let Some(token) = token.as_ref().filter(|_| is_new) {
            say(&format!("token for this time: {token} (`server.token` sets one for every time)"));
        }
        let house = House {
            hall: hall.clone(),
            at,
            token,
            allowed_origins: config.server.allowed_origins.clone(),
            allowed_hosts: config.server.allowed_hosts.clone(),
        };
        // Small answers leave at once.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        tokio::select! {
            served = axum::serve(listener, house.router()) => {
                if let Err(error) = served {
                    complain(&error.to_string(), None);
                    return Exit::RunFailed;
                }
            }
            () = interrupted() => {}
            () = look_after(global, &app.config, &hall, seen) => {}
        }
        hall.settle(Duration::from_millis(hall.limits().served_leave_ms)).await;
        hall.abandon().await;
        Exit::Success
    })
}
