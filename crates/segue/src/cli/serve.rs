//! `segue serve`

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::app::App;
use super::load::load_config;
use super::mcp::{pools, recover, run_service, spawn_pruning};
use super::reload::{FileStamps, Reloader};
use super::signals::{HangupSignals, interrupted_for_good};
use super::token::{TokenArgs, token};
use super::{Exit, Global, print_error, print_status, print_warning};
use crate::config::tokens::{TOKEN_CHARS_MIN, TOO_SHORT};
use crate::config::{Config, ServeConfig, data_folder};
use crate::http::auth::{Authenticator, Issuer};
use crate::http::{bind, tls};
use crate::server::HttpServer;

/// Where it listens unless told otherwise: on this machine only.
const LISTEN: &str = "127.0.0.1:7433";

/// How long last answers may take to arrive.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serve the configured compositions over HTTP: REST at `/api/v1`, GraphQL at `/graphql`, MCP at `/mcp`
#[derive(Args, Clone, Debug)]
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
    /// Follow the configuration, too, as it changes; SIGHUP has it read again in any case
    #[arg(long)]
    watch: bool,
}

#[derive(Subcommand, Clone, Debug)]
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
    let at = match listens_at(args, &config) {
        Ok(at) => at,
        Err(exit) => return exit,
    };
    let tls = match encryption(&config) {
        Ok(tls) => tls,
        Err(exit) => return exit,
    };
    let seen = FileStamps::of(&config);
    let mut app = match App::open_served(global) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let pools = match pools() {
        Ok(pools) => pools,
        Err(exit) => return exit,
    };
    let (service, runtime) =
        (run_service(&app, &pools, app.served_observers()), app.runtime().clone());
    runtime.block_on(async {
        if let Err(error) = app.engine.store().try_write().await {
            print_error(&error.to_string(), Some("name one that can be written with `--store`"));
            return Exit::Usage;
        }
        recover(global, &app, &service, None).await;
        spawn_pruning(&app);
        let listener = {
            // The thread that serves connections hears of new ones.
            let _there = service.threads().connections.enter();
            bind(at)
        };
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                print_error(&format!("cannot listen at {at}: {error}"), None);
                return Exit::Usage;
            }
        };
        // Nothing stands in the way any more: a token that is made up now is shown.
        let (authenticator, told) = match authenticator(args, &config, None) {
            Ok(authenticator) => authenticator,
            Err(exit) => return exit,
        };
        let authenticator = watch::Sender::new(Arc::new(authenticator));
        let at = listener.local_addr().unwrap_or(at);
        say_where(at, &config);
        if let Some(told) = told {
            print_status(&told);
        }
        let (leave, leaving) = watch::channel(false);
        let server = HttpServer {
            service: service.clone(),
            at,
            authenticator: authenticator.subscribe(),
            allowed_origins: config.server.allowed_origins.clone(),
            allowed_hosts: config.server.allowed_hosts.clone(),
            tls,
        };
        // Not here, where files are read again: that may take a while.
        let serving = service.threads().connections.spawn(server.serve(listener, leaving));
        let hangups = Some(HangupSignals::new());
        let store = app.engine.store().clone();
        let watch = Reloader { app: &mut app, service: &service, seen, follows_config: args.watch };
        let started = config.server.clone();
        tokio::select! {
            () = interrupted_for_good(store) => {}
            () = watch.watch(global, hangups, |now| let_in(args, now, &started, &authenticator)) => {}
        }
        // Nobody new comes in. Who waits for a run is told how it ended, or where it stands.
        leave.send_replace(true);
        let patience = Duration::from_millis(service.limits().served_leave_ms);
        service.settle(patience).await;
        service.detach_all().await;
        let _ = tokio::time::timeout(FAREWELL, serving).await;
        Exit::Success
    })
}

/// The address to listen at, unless the arguments or the configuration forbid to serve there.
fn listens_at(args: &ServeArgs, config: &Config) -> Result<SocketAddr, Exit> {
    let refuse = |what: &str, help: &str| {
        print_error(what, Some(help));
        Err(Exit::Usage)
    };
    let listen = args.listen.as_deref().or(config.server.listen.as_deref()).unwrap_or(LISTEN);
    let Some(at) = address(listen) else {
        let help = "write an address and a port, such as `127.0.0.1:7433`";
        return refuse(&format!("`{listen}` is no address"), help);
    };
    if args.new_token && config.server.token.is_some() {
        let help = "change `server.token`, or leave it out to have one made up";
        return refuse("`--new-token` makes up no token: the configuration has one", help);
    }
    if !args.no_token {
        refuse_guessable(config)?;
    } else if !at.ip().is_loopback() {
        let help = "set `server.token`, or listen at 127.0.0.1";
        return refuse("without a token only this machine may be served", help);
    }
    Ok(at)
}

/// Says where it listens.
fn say_where(at: SocketAddr, config: &Config) {
    if is_exposed(at, config) {
        print_warning(EXPOSED.0, EXPOSED.1);
    }
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    print_status(&format!(
        "listening at {scheme}://{at} (REST at /api/v1, GraphQL at /graphql, MCP at /mcp, described \
         at /docs)"
    ));
}

/// What is said of a server that others can reach and whose connections are not encrypted.
pub(super) const EXPOSED: (&str, &str) = (
    "it listens beyond this machine without TLS: whoever is on the way reads tokens and values",
    "set `server.tls`, or listen at 127.0.0.1 behind a proxy that encrypts",
);

/// Whether others can reach it there, and read what is sent.
fn is_exposed(at: SocketAddr, config: &Config) -> bool {
    !at.ip().is_loopback() && config.server.tls.is_none()
}

/// Whether it would be so at the address that is configured.
pub(super) fn would_be_exposed(config: &Config) -> bool {
    let at = config.server.listen.as_deref().and_then(address);
    at.is_some_and(|at| is_exposed(at, config))
}

/// Whether the configured token could be guessed.
pub(super) fn is_guessable(config: &Config) -> bool {
    let token = config.server.token.as_ref();
    token.is_some_and(|token| token.chars().count() < TOKEN_CHARS_MIN)
}

fn refuse_guessable(config: &Config) -> Result<(), Exit> {
    if is_guessable(config) {
        print_error(&format!("`server.token`: {}", TOO_SHORT.0), Some(TOO_SHORT.1));
        return Err(Exit::Usage);
    }
    Ok(())
}

/// Where to listen. Of names only that of this machine is known: others could be anybody's.
fn address(listen: &str) -> Option<SocketAddr> {
    let port = listen.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let here = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    listen.parse().ok().or(here)
}

/// What connections are encrypted with, where that is wanted.
fn encryption(config: &Config) -> Result<Option<TlsAcceptor>, Exit> {
    let Some(files) = &config.server.tls else { return Ok(None) };
    tls(&files.cert, &files.key).map(Some).map_err(|message| {
        print_error(&message, Some("`server.tls` names a certificate and its key, as PEM"));
        Exit::Usage
    })
}

/// Lets in whom another configuration says, from now on.
fn let_in(
    args: &ServeArgs,
    config: &Config,
    started: &ServeConfig,
    authenticator: &watch::Sender<Arc<Authenticator>>,
) {
    let now = &config.server;
    let is_same = now.listen == started.listen
        && now.tls == started.tls
        && now.allowed_hosts == started.allowed_hosts
        && now.allowed_origins == started.allowed_origins;
    if !is_same {
        print_status("note: where it listens, and for which names, changes with the next start");
    }
    // Nobody wants yet another token because a file was changed.
    let args = &ServeArgs { new_token: false, ..args.clone() };
    let before = authenticator.borrow().clone();
    if let Ok((now, _)) = self::authenticator(args, config, Some(&before)) {
        authenticator.send_replace(Arc::new(now));
    }
}

/// Who is let in, and what is said of it. `before` is who was: an issuer that stays keeps its keys.
fn authenticator(
    args: &ServeArgs,
    config: &Config,
    before: Option<&Authenticator>,
) -> Result<(Authenticator, Option<String>), Exit> {
    let (authenticator, told) = administrator(args, config)?;
    let issuer = config.server.oidc.as_ref().map(|oidc| {
        let known = before.and_then(Authenticator::issuer).filter(|known| known.config() == oidc);
        known.cloned().unwrap_or_else(|| Arc::new(Issuer::new(oidc.clone())))
    });
    let authenticator =
        authenticator.with(config.server.principals.iter().cloned()).with_issuer(issuer);
    if let Some((one, other)) = authenticator.clash() {
        let message = format!("`{}` and `{}` come with the same token", one.name, other.name);
        print_error(&message, Some("`segue serve token NAME` makes one for each"));
        return Err(Exit::Usage);
    }
    Ok((authenticator, told))
}

/// Who looks after the server, and what is said of it.
fn administrator(
    args: &ServeArgs,
    config: &Config,
) -> Result<(Authenticator, Option<String>), Exit> {
    if args.no_token {
        return Ok((Authenticator::everybody(), None));
    }
    refuse_guessable(config)?;
    if let Some(token) = &config.server.token {
        return Ok((Authenticator::of(token), None));
    }
    let told = |token: String| format!("token: {token} (shown once; `--new-token` makes another)");
    match data_folder().map(|folder| Authenticator::stored(&folder, args.new_token)) {
        Some(Ok((authenticator, token))) => Ok((authenticator, token.map(told))),
        Some(Err(error)) => {
            print_error(&format!("the token cannot be kept: {error}"), Some("set `server.token`"));
            Err(Exit::Usage)
        }
        None => {
            let (authenticator, token) = Authenticator::for_this_process();
            Ok((authenticator, Some(told(token))))
        }
    }
}
