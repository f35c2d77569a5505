//! The port on which Restate calls a worker: HTTP/2 without TLS, for Restate and nobody else.
//!
//! Our own listener, because the one of the SDK delays small answers (Nagle's algorithm: 47 ms a run instead
//! of 4), limits nothing, and cannot share its port.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Limited;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reqwest::Url;
use restate_sdk::endpoint::{Endpoint, HandleOptions, ProtocolMode};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Connections at once, of 128 requests each. A further one waits.
const CONNECTIONS_MAX: usize = 256;

/// Requests of one connection at once.
const STREAMS_MAX: u32 = 256;

/// Size of one request: the id of a run and what Restate wrote down about one handler.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// How often a silent connection is probed, and how long it may be silent then.
const PROBE_EVERY: Duration = Duration::from_secs(20);
const PROBE_MAX: Duration = Duration::from_secs(20);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// How long to wait when the system has no room for a connection.
const NO_ROOM: Duration = Duration::from_millis(50);

/// Where a worker listens: the port that Restate is told, at the address that it is told if that is one of
/// this machine alone, else at all addresses.
pub fn listen_address(advertise: &Url) -> SocketAddr {
    let port = advertise.port_or_known_default().unwrap_or(9080);
    let host = advertise.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let at = match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => ip,
        Ok(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        _ if host == "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(at, port)
}

/// Opens the port. Workers of one machine share it: the system gives each connection to one of them.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    #[cfg(unix)]
    {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Answers Restate until `leaving` becomes true and every request is answered.
pub(super) async fn answer(
    listener: TcpListener,
    endpoint: Endpoint,
    mut leaving: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = leaving.wait_for(|leaving| *leaving) => break,
        };
        match accepted {
            Ok((stream, permit)) => {
                let connection = answer_connection(stream, endpoint.clone(), leaving.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(NO_ROOM).await,
        }
    }
    // Other workers of this machine get the next connections.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

type Permit = tokio::sync::OwnedSemaphorePermit;

async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<(TcpStream, Permit)> {
    let permit = room.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Small answers are sent at once.
    stream.set_nodelay(true)?;
    Ok((stream, permit))
}

/// Answers the requests of one connection. A connection that breaks is no error: Restate tries again.
async fn answer_connection(
    stream: TcpStream,
    endpoint: Endpoint,
    mut leaving: watch::Receiver<bool>,
) {
    let answers = service_fn(move |request: hyper::Request<Incoming>| {
        let request = request.map(|body| Limited::new(body, REQUEST_BYTES_MAX));
        let options = HandleOptions { protocol_mode: ProtocolMode::BidiStream };
        let answer = endpoint.handle_with_options(request, options);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PROBE_EVERY)
        .keep_alive_timeout(PROBE_MAX)
        .serve_connection(TokioIo::new(stream), answers);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = leaving.wait_for(|leaving| *leaving) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(target: "segue::restate", "a connection of Restate ended: {error}");
    }
}
