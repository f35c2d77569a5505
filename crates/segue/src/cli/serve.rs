//! `segue serve`

use std::io::{ErrorKind, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use segue_runtime::driver::now_ms;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::dev::{greet, open_browser};
use super::error::report_error;
use super::token::{TokenArgs, token};
use super::worker::require_shared;
use super::{Exit, Global, report, report_failure};
use crate::api::runs::RunService;
use crate::app::doctor::{EXPOSED, address, is_exposed, is_guessable};
use crate::app::reload::{FileStamps, Reloader};
use crate::app::service::{
    dispatcher, recover, run_service, share_runs, spawn_pruning, start_threads,
};
use crate::app::signals::{HangupSignals, interrupted_except_hangup};
use crate::app::{App, AppOptions, load_config};
use crate::config::tokens::TOO_SHORT;
use crate::config::{Config, ServeConfig, data_folder};
use crate::http::auth::{Authenticator, BrowserSessions, Issuer};
use crate::http::{bind, tls};
use crate::mcp::builtin;
use crate::print::{print_error, print_note, print_status, print_warning};
use crate::server::HttpServer;

/// The default address: reachable from this machine only.
const LISTEN: &str = "127.0.0.1:7433";

/// How long the last responses may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serve the configured compositions over HTTP: REST at `/api/v1`, GraphQL at `/graphql`, MCP at `/mcp`
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct ServeArgs {
    #[command(subcommand)]
    command: Option<ServeCommand>,
    /// The address and port to listen on [default: `server.listen`, else 127.0.0.1:7433]
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["host", "port"])]
    listen: Option<String>,
    /// The address to listen on, with the port as configured: `127.0.0.1`, `0.0.0.0`, `localhost`
    #[arg(long, value_name = "HOST", value_parser = parse_host)]
    host: Option<IpAddr>,
    /// The port to listen on, at the address as configured; 0 takes a free one
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Accept every request without a token; only on a loopback address
    #[arg(long, conflicts_with = "new_token")]
    no_token: bool,
    /// Generate a new token and revoke the old one
    #[arg(long)]
    new_token: bool,
    /// Also reload the configuration when its file changes; SIGHUP always reloads it
    #[arg(long)]
    watch: bool,
    /// Only take requests, and leave every run to the workers that share the store
    #[arg(long)]
    no_drive: bool,
}

#[derive(Subcommand, Clone, Debug)]
enum ServeCommand {
    Token(TokenArgs),
}

pub(super) fn serve(global: &Global, args: &ServeArgs) -> Exit {
    match &args.command {
        Some(ServeCommand::Token(args)) => token(global, args),
        None => start(&global.options(), args, ServeMode::Serve).unwrap_or_else(|exit| exit),
    }
}

/// For whom a server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServeMode {
    /// For clients: `segue serve`.
    Serve,
    /// For the person who starts it: `segue dev`.
    Dev {
        /// Whether to open the browser.
        opens_browser: bool,
        /// Whether to run an example when there is no run yet.
        runs_example: bool,
    },
}

impl ServeArgs {
    /// The arguments of `segue dev`.
    pub(super) fn for_dev(port: Option<u16>) -> ServeArgs {
        ServeArgs {
            command: None,
            listen: None,
            host: Some(Ipv4Addr::LOCALHOST.into()),
            port,
            no_token: false,
            new_token: false,
            watch: true,
            no_drive: false,
        }
    }
}

pub(super) fn start(options: &AppOptions, args: &ServeArgs, mode: ServeMode) -> Result<Exit, Exit> {
    let config = load_config(options).map_err(|error| report(&error))?;
    let at = listen_address(args, &config)?;
    let tls = load_tls(&config)?;
    if args.no_drive {
        require_shared(&config.store, "`--no-drive`").map_err(|error| report_error(&error))?;
    }
    let dispatcher = dispatcher(&config).map_err(|error| report(&error))?;
    // Before the files are read, so that no change is missed.
    let seen = FileStamps::of(&config);
    let mut app = App::open_served(options).map_err(|error| report(&error))?;
    let pools = start_threads().map_err(|error| report_failure(&error))?;
    let service = run_service(&app, &pools, app.served_observers(), builtin::names());
    if let Some(dispatcher) = dispatcher {
        service.set_dispatcher(dispatcher);
    }
    let runtime = app.runtime().clone();
    runtime.block_on(async {
        if let Err(error) = app.engine.store().try_write().await {
            print_error(&error.to_string(), Some("name a writable store with `--store`"));
            return Err(Exit::Usage);
        }
        recover(&app, &service, None).await;
        spawn_pruning(&app);
        share_runs(&service, if args.no_drive { 0 } else { config.worker.runs });
        let listener = listen(&service, at, args.port.is_none() && mode != ServeMode::Serve)?;
        // Only now that nothing else can fail: a token that is generated here is shown once.
        let (authenticator, token_note) = authenticator(args, &config, None)?;
        let authenticator = watch::Sender::new(Arc::new(authenticator));
        let at = listener.local_addr().unwrap_or(at);
        print_address(at, &config);
        if let Some(note) = token_note {
            print_status(&note);
        }
        let sessions = Arc::new(BrowserSessions::new(at.port()));
        greet_browser(args, &config, at, &sessions, mode);
        if let ServeMode::Dev { runs_example, .. } = mode {
            greet(&app, &service, runs_example).await;
        }
        let (leave, leaving) = watch::channel(false);
        let server = HttpServer {
            service: service.clone(),
            at,
            authenticator: authenticator.subscribe(),
            sessions,
            allowed_origins: config.server.allowed_origins.clone(),
            allowed_hosts: config.server.allowed_hosts.clone(),
            state_key: config.server.state_key.clone(),
            tls,
        };
        // On its own thread, so that reading files again here delays no connection.
        let serving = service.threads().connections.spawn(server.serve(listener, leaving));
        let interrupted = interrupted_except_hangup(app.engine.store());
        let (watches_config, shows_findings) = (args.watch, mode != ServeMode::Serve);
        let reloader =
            Reloader { app: &mut app, service: &service, seen, watches_config, shows_findings };
        let started = config.server.clone();
        let hangups = Some(HangupSignals::new());
        tokio::select! {
            () = interrupted => {}
            () = reloader.watch(hangups, |now| update_access(args, now, &started, &authenticator)) => {}
        }
        // No new connections. Clients that wait for a run get its result or its current state.
        leave.send_replace(true);
        service.stop_claiming().await;
        service.settle(Duration::from_millis(service.limits().served_leave_ms)).await;
        service.detach_all().await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, serving).await;
        Ok(Exit::Success)
    })
}

/// Prints the link that signs a browser in, and opens it. A server without a terminal prints none: its output is
/// stored, and the link stands for the administrator.
fn greet_browser(
    args: &ServeArgs,
    config: &Config,
    at: SocketAddr,
    sessions: &BrowserSessions,
    mode: ServeMode,
) {
    if mode == ServeMode::Serve && !std::io::stderr().is_terminal() {
        return;
    }
    let mut address = page_address(at, config);
    if !args.no_token {
        let code = sessions.new_code(&config.limits, now_ms());
        address = format!("{address}/sign-in#{code}");
        let minutes = config.limits.served_code_ms / 60_000;
        print_status(&format!("sign in: {address} (works once, for {minutes} minutes)"));
    }
    if matches!(mode, ServeMode::Dev { opens_browser: true, .. }) {
        open_browser(&address);
    }
}

/// The address of the page for a browser on this machine.
fn page_address(mut at: SocketAddr, config: &Config) -> String {
    if at.ip().is_unspecified() {
        at.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{at}")
}

/// Opens the socket on the thread that serves connections. If the port is taken, `takes_any` takes a free one.
fn listen(service: &RunService, at: SocketAddr, takes_any: bool) -> Result<TcpListener, Exit> {
    let _guard = service.threads().connections.enter();
    let bound = bind(at).or_else(|error| {
        let is_taken = error.kind() == ErrorKind::AddrInUse;
        if takes_any && is_taken { bind(SocketAddr::new(at.ip(), 0)) } else { Err(error) }
    });
    bound.map_err(|error| {
        let is_taken = error.kind() == ErrorKind::AddrInUse;
        let help = is_taken.then_some("another process listens there; `--port` names another port");
        print_error(&format!("cannot listen on {at}: {error}"), help);
        Exit::Usage
    })
}

/// The address to listen on, unless the arguments or the configuration forbid it.
fn listen_address(args: &ServeArgs, config: &Config) -> Result<SocketAddr, Exit> {
    let refuse = |message: &str, help: &str| {
        print_error(message, Some(help));
        Err(Exit::Usage)
    };
    let listen = args.listen.as_deref().or(config.server.listen.as_deref()).unwrap_or(LISTEN);
    let Some(mut at) = address(listen) else {
        let help = "write an address and a port, such as `127.0.0.1:7433`";
        return refuse(&format!("`{listen}` is not an address"), help);
    };
    at.set_ip(args.host.unwrap_or(at.ip()));
    at.set_port(args.port.unwrap_or(at.port()));
    if args.new_token && config.server.token.is_some() {
        let help = "change `server.token`, or leave it out to have one generated";
        return refuse("`--new-token` has no effect: the configuration sets `server.token`", help);
    }
    if !args.no_token {
        refuse_guessable(config)?;
    } else if !at.ip().is_loopback() {
        let help = "set `server.token`, or listen on 127.0.0.1";
        return refuse("without a token only a loopback address is allowed", help);
    }
    Ok(at)
}

/// Prints the address, and a warning if it is exposed.
fn print_address(at: SocketAddr, config: &Config) {
    if is_exposed(at, config) {
        print_warning(EXPOSED.0, EXPOSED.1);
    }
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    print_status(&format!(
        "listening at {scheme}://{at} (page at /, REST at /api/v1, GraphQL at /graphql, MCP at \
         /mcp, manual at /docs)"
    ));
}

fn refuse_guessable(config: &Config) -> Result<(), Exit> {
    if is_guessable(config) {
        print_error(&format!("`server.token`: {}", TOO_SHORT.0), Some(TOO_SHORT.1));
        return Err(Exit::Usage);
    }
    Ok(())
}

/// Parses a host. `localhost` is the only name: others would need a lookup.
fn parse_host(host: &str) -> Result<IpAddr, String> {
    match host {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => host.parse().map_err(|_| "write an IP address, or `localhost`".to_owned()),
    }
}

/// The certificate and key of `server.tls`.
fn load_tls(config: &Config) -> Result<Option<TlsAcceptor>, Exit> {
    let Some(files) = &config.server.tls else { return Ok(None) };
    tls(&files.cert, &files.key).map(Some).map_err(|message| {
        print_error(&message, Some("`server.tls` names a certificate and its key, as PEM"));
        Exit::Usage
    })
}

/// Applies the tokens and the issuer of a new configuration.
fn update_access(
    args: &ServeArgs,
    config: &Config,
    started: &ServeConfig,
    authenticator: &watch::Sender<Arc<Authenticator>>,
) {
    let now = &config.server;
    let is_same = now.listen == started.listen
        && now.tls == started.tls
        && now.allowed_hosts == started.allowed_hosts
        && now.state_key == started.state_key
        && now.allowed_origins == started.allowed_origins;
    if !is_same {
        print_note(
            "changes to `listen`, `tls`, `state_key`, `allowed_hosts` and `allowed_origins` take effect at the next start",
        );
    }
    // A reload must not generate another token.
    let args = &ServeArgs { new_token: false, ..args.clone() };
    let before = authenticator.borrow().clone();
    if let Ok((now, _)) = self::authenticator(args, config, Some(&before)) {
        authenticator.send_replace(Arc::new(now));
    }
}

/// The accepted tokens, and the note that shows a generated one. An issuer that `before` has already
/// keeps its keys.
fn authenticator(
    args: &ServeArgs,
    config: &Config,
    before: Option<&Authenticator>,
) -> Result<(Authenticator, Option<String>), Exit> {
    let (authenticator, note) = administrator(args, config)?;
    let issuer = config.server.oidc.as_ref().map(|oidc| {
        let known = before.and_then(Authenticator::issuer).filter(|known| known.config() == oidc);
        known.cloned().unwrap_or_else(|| Arc::new(Issuer::new(oidc.clone())))
    });
    let authenticator =
        authenticator.with(config.server.principals.iter().cloned()).with_issuer(issuer);
    if let Some((one, other)) = authenticator.clash() {
        let message = format!("`{}` and `{}` have the same token", one.name, other.name);
        print_error(&message, Some("`segue serve token NAME` generates one"));
        return Err(Exit::Usage);
    }
    Ok((authenticator, note))
}

/// The administrator's token, and the note that shows a generated one.
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
    let note =
        |token: String| format!("token: {token} (shown once; `--new-token` generates a new one)");
    match data_folder().map(|folder| Authenticator::stored(&folder, args.new_token)) {
        Some(Ok((authenticator, token))) => {
            let stored =
                || "token: the one of an earlier start (`--new-token` generates a new one)";
            Ok((authenticator, Some(token.map_or_else(|| stored().to_owned(), note))))
        }
        Some(Err(error)) => {
            print_error(&format!("cannot store the token: {error}"), Some("set `server.token`"));
            Err(Exit::Usage)
        }
        None => {
            let (authenticator, token) = Authenticator::for_this_process();
            Ok((authenticator, Some(note(token))))
        }
    }
}
