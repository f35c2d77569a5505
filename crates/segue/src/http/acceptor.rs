//! Accepts connections: TCP, TLS, HTTP/1.1, and their end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use axum::response::IntoResponse as _;
use futures_util::FutureExt as _;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use segue_core::limits::Limits;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::connections::{ConnectionLimiter, ConnectionSlot};
use super::write_timeout::WriteTimeout;
use crate::api::error::Error;
use crate::api::threads::{log_join_panic, log_panic};
use crate::http::problem::Problem;
use crate::observe::metrics::Metrics;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 4_096;

/// How long to wait when the system has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(50);

/// The response when all connections are busy.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\
Connection: close\r\n\r\n";

/// Listens at an address.
pub fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise a server that has just ended would keep the next one from starting.
    if cfg!(unix) {
        socket.set_reuseaddr(true)?;
    }
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// The TLS settings: a certificate and its key, as PEM.
pub fn tls(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let said = |file: &Path, error: &dyn std::fmt::Display| {
        format!("`{}` cannot be used: {error}", file.display())
    };
    let certificates = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| said(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| said(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, private))
        .map_err(|error| said(certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections and serves them.
#[derive(Clone)]
pub(crate) struct Acceptor {
    /// The routes.
    pub(crate) router: Router,
    /// The TLS settings.
    pub(crate) tls: Option<TlsAcceptor>,
    /// The limits.
    pub(crate) limits: Arc<Limits>,
    /// Becomes true when connections should end: requests that have arrived are still answered.
    pub(crate) leaving: watch::Receiver<bool>,
    /// The metrics.
    pub(crate) metrics: Option<Arc<Metrics>>,
}

impl Acceptor {
    /// Serves connections until the server leaves and each of them has ended.
    pub(crate) async fn serve(mut self, listener: TcpListener) {
        let limiter = ConnectionLimiter::new(self.limits.served_connections_max);
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // A client that disconnected is no error; a system without room is.
                        if !is_of_the_client(&error) {
                            tokio::time::sleep(NO_ROOM).await;
                        }
                        continue;
                    }
                },
                // Connections that have ended.
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    if let Err(error) = ended {
                        log_join_panic("a connection", error);
                    }
                    continue;
                }
                _ = self.leaving.changed() => break,
            };
            // Small responses are sent at once.
            let _ = stream.set_nodelay(true);
            limit_send_buffer(&stream);
            match limiter.reserve() {
                Some(slot) => drop(connections.spawn(self.clone().accept_connection(stream, slot))),
                None => {
                    self.metrics.iter().for_each(|metrics| metrics.count_refused());
                    drop(connections.spawn(refuse(stream)));
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn accept_connection(self, stream: TcpStream, slot: Arc<ConnectionSlot>) {
        let stream = WriteTimeout::new(stream, Duration::from_millis(self.limits.served_stall_ms));
        let Some(acceptor) = self.tls.clone() else {
            return self.serve_connection(stream, slot).await;
        };
        let patience = Duration::from_millis(self.limits.served_header_ms);
        let greeting = tokio::time::timeout(patience, acceptor.accept(stream));
        tokio::select! {
            greeted = greeting => if let Ok(Ok(stream)) = greeted {
                self.serve_connection(stream, slot).await;
            },
            () = slot.evicted() => {}
        }
    }

    async fn serve_connection<S>(mut self, stream: S, slot: Arc<ConnectionSlot>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let inner = TowerToHyperService::new(self.router.clone());
        let of_slot = slot.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            of_slot.begin_request();
            let active = ActiveRequest(of_slot.clone());
            let response = inner.call(request);
            async move { Ok::<_, hyper::Error>(tracked(answered(response).await, active)) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_millis(self.limits.served_header_ms))
            .max_header_size(self.limits.served_header_bytes_max)
            .max_buf_size(self.limits.served_header_bytes_max.max(MIN_BUFFER))
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = slot.evicted() => {}
            _ = self.leaving.wait_for(|leaving| *leaving) => {}
        }
        // A request that has arrived is answered.
        if slot.is_idle() {
            return;
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// How many unsent bytes the system keeps for a client.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 64 * 1024;

/// Limits the bytes that the system buffers for a client that does not read. Otherwise it would take
/// megabytes for each, and their streams would go on until then.
fn limit_send_buffer(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// The smallest buffer that the HTTP library takes.
const MIN_BUFFER: usize = 16 * 1024;

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn refuse(mut stream: TcpStream) {
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(FULL)).await;
}

/// The response to a request; a panic gives one, too.
async fn answered(
    response: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Result<Response<Body>, Infallible> {
    AssertUnwindSafe(response).catch_unwind().await.unwrap_or_else(|panic| {
        log_panic("a request", &*panic);
        Ok(Problem::from(Error::panicked()).into_response())
    })
}

/// A connection has a request as long as this lives: until the whole response is sent.
struct ActiveRequest(Arc<ConnectionSlot>);

impl Drop for ActiveRequest {
    // Work in `Drop`, because a response also ends when its client disconnects.
    fn drop(&mut self) {
        self.0.end_request();
    }
}

fn tracked(
    response: Result<Response<Body>, Infallible>,
    active: ActiveRequest,
) -> Response<TrackedBody> {
    let Ok(response) = response;
    response.map(|body| TrackedBody { body, _active: active })
}

/// A body during which its connection has a request.
struct TrackedBody {
    body: Body,
    _active: ActiveRequest,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
