//! `segue serve`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::sync::watch;

use super::app::{App, load_config};
use super::mcp::{hall, look_after, recover, stamps};
use super::run::interrupted;
use super::token::{TokenArgs, token};
use super::upstream::Wanted;
use super::{Exit, Global, complain, say};
use crate::config::{Config, data_folder};
use crate::serve::http::{House, Issuer, Keyring, bind, tls};

/// Where it listens unless told otherwise: on this machine only.
const LISTEN: &str = "127.0.0.1:7433";

/// How long last answers may take to arrive.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serve the configured compositions over HTTP: REST at `/api/v1`, MCP at `/mcp`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ServeArgs {
    #[command(subcommand)]
    command: Option<ServeCommand>,
    /// The address to listen at [default: `server.listen`, or 127.0.0.1:7433]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Let in whoever can reach the address; on this machine only
    #[arg(long, conflicts_with = "new_token")]
    no_token: bool,
    /// Make up another token and show it; the one before is worth nothing from then on
    #[arg(long)]
    new_token: bool,
}

#[derive(Subcommand, Debug)]
enum ServeCommand {
    /// Make up a token for somebody, and the entry of `server.principals` that lets them in
    Token(TokenArgs),
}

pub(super) fn serve(global: &Global, args: &ServeArgs) -> Exit {
    if let Some(ServeCommand::Token(args)) = &args.command {
        return token(global, args);
    }
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
    let (keyring, told) = match keyring(args, &config, None) {
        Ok(keyring) => keyring,
        Err(exit) => return exit,
    };
    let tls = match config.server.tls.as_ref().map(|files| tls(&files.cert, &files.key)) {
        None => None,
        Some(Ok(tls)) => Some(tls),
        Some(Err(message)) => {
            complain(&message, Some("`server.tls` names a certificate and its key, as PEM"));
            return Exit::Usage;
        }
    };
    let keyring = watch::Sender::new(Arc::new(keyring));
    let seen = stamps(&config);
    let app = match App::open_stored(global, &Wanted::Served, &[]) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let hall = hall(&app);
    app.runtime().block_on(async {
        recover(global, &hall).await;
        let listener = match bind(at) {
            Ok(listener) => listener,
            Err(error) => {
                complain(&format!("cannot listen at {at}: {error}"), None);
                return Exit::Usage;
            }
        };
        let at = listener.local_addr().unwrap_or(at);
        let scheme = if tls.is_some() { "https" } else { "http" };
        say(&format!(
            "listening at {scheme}://{at} (REST at /api/v1, MCP at /mcp, described at /docs)"
        ));
        if let Some(told) = told {
            say(&told);
        }
        let (leave, leaving) = watch::channel(false);
        let house = House {
            hall: hall.clone(),
            at,
            keyring: keyring.subscribe(),
            allowed_origins: config.server.allowed_origins.clone(),
            allowed_hosts: config.server.allowed_hosts.clone(),
            tls,
            audit: say,
        };
        let serving = tokio::spawn(house.serve(listener, leaving));
        tokio::select! {
            () = interrupted() => {}
            () = look_after(global, &app.config, &hall, seen) => {}
        }
        // Nobody new comes in. Who waits for a run is told how it ended, or where it stands.
        leave.send_replace(true);
        let patience = Duration::from_millis(hall.limits().served_leave_ms);
        hall.settle(patience).await;
        hall.abandon().await;
        let _ = tokio::time::timeout(FAREWELL, serving).await;
        Exit::Success
    })
}

/// Who is let in, and what is said of it. `before` is who was: an issuer that stays keeps its keys.
fn keyring(
    args: &ServeArgs,
    config: &Config,
    before: Option<&Keyring>,
) -> Result<(Keyring, Option<String>), Exit> {
    let (keyring, told) = administrator(args, config)?;
    let issuer = config.server.oidc.as_ref().map(|oidc| {
        let known = before.and_then(Keyring::issuer).filter(|known| known.config() == oidc);
        known.cloned().unwrap_or_else(|| Arc::new(Issuer::new(oidc.clone())))
    });
    let keys = config.server.principals.iter().cloned();
    Ok((keyring.with(keys).with_issuer(issuer), told))
}

/// Who looks after the server, and what is said of it.
fn administrator(args: &ServeArgs, config: &Config) -> Result<(Keyring, Option<String>), Exit> {
    if args.no_token {
        return Ok((Keyring::everybody(), None));
    }
    if let Some(token) = &config.server.token {
        return Ok((Keyring::of(token), None));
    }
    let told = |token: String| format!("token: {token} (shown once; `--new-token` makes another)");
    match data_folder().map(|folder| Keyring::kept(&folder, args.new_token)) {
        Some(Ok((keyring, token))) => Ok((keyring, token.map(told))),
        Some(Err(error)) => {
            complain(&format!("the token cannot be kept: {error}"), Some("set `server.token`"));
            Err(Exit::Usage)
        }
        None => {
            let (keyring, token) = Keyring::for_this_time();
            Ok((keyring, Some(told(token))))
        }
    }
}
