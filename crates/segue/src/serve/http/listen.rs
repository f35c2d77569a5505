//! Connections: how many, how slow, and how they end.

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

use super::crowd::{Crowd, Guest};
use super::stream::Impatient;
use crate::observe::metrics::Metrics;
use crate::serve::rest::problem::Problem;
use crate::serve::threads;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4_096;

/// How long to leave the system alone when it has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(50);

/// Who comes when everybody is busy is told so in as few words as possible.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\
Connection: close\r\n\r\n";

/// Listens at an address.
pub fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Otherwise one that has just ended would keep the next from starting.
    if cfg!(unix) {
        socket.set_reuseaddr(true)?;
    }
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// What connections are encrypted with: a certificate and its key, as PEM.
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

/// Whoever answers connections.
#[derive(Clone)]
pub(super) struct Host {
    /// What is answered.
    pub(super) router: Router,
    /// What connections are encrypted with.
    pub(super) tls: Option<TlsAcceptor>,
    /// Bounds.
    pub(super) limits: Arc<Limits>,
    /// Changes when connections should end: what is asked is still answered, nothing new is.
    pub(super) leaving: watch::Receiver<bool>,
    /// Who counts.
    pub(super) metrics: Option<Arc<Metrics>>,
}

impl Host {
    /// Answers connections until it is time to leave and each has ended.
    pub(super) async fn serve(mut self, listener: TcpListener) {
        let crowd = Crowd::new(self.limits.served_connections_max);
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // A client that is gone already is nothing; a system without room is.
                        if !is_of_the_client(&error) {
                            tokio::time::sleep(NO_ROOM).await;
                        }
                        continue;
                    }
                },
                // Those that have ended are forgotten.
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    if let Err(error) = ended {
                        threads::tell_panic("a connection", error);
                    }
                    continue;
                }
                _ = self.leaving.changed() => break,
            };
            // Small answers leave at once.
            let _ = stream.set_nodelay(true);
            keep_little(&stream);
            match crowd.enter() {
                Some(guest) => drop(connections.spawn(self.clone().welcome(stream, guest))),
                None => {
                    self.metrics.iter().for_each(|metrics| metrics.count_refused());
                    drop(connections.spawn(refuse(stream)));
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn welcome(self, stream: TcpStream, guest: Arc<Guest>) {
        let stream = Impatient::new(stream, Duration::from_millis(self.limits.served_stall_ms));
        let Some(acceptor) = self.tls.clone() else { return self.answer(stream, guest).await };
        let patience = Duration::from_millis(self.limits.served_header_ms);
        let greeting = tokio::time::timeout(patience, acceptor.accept(stream));
        tokio::select! {
            greeted = greeting => if let Ok(Ok(stream)) = greeted {
                self.answer(stream, guest).await;
            },
            () = guest.has_to_go() => {}
        }
    }

    async fn answer<S>(mut self, stream: S, guest: Arc<Guest>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let inner = TowerToHyperService::new(self.router.clone());
        let of_guest = guest.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            of_guest.asks();
            let asking = Asking(of_guest.clone());
            let answer = inner.call(request);
            async move { Ok::<_, hyper::Error>(tracked(answered(answer).await, asking)) }
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
            () = guest.has_to_go() => {}
            _ = self.leaving.wait_for(|leaving| *leaving) => {}
        }
        // What was asked in the meantime is answered.
        if guest.is_silent() {
            return;
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// What the system keeps for a client beyond what is on its way to it.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 64 * 1024;

/// Has the system say early that a client does not read. Else it would take megabytes for each, and
/// each would have to be told until then all that happens.
fn keep_little(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// The smallest buffer that the protocol library takes.
const MIN_BUFFER: usize = 16 * 1024;

fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn refuse(mut stream: TcpStream) {
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(FULL)).await;
}

/// The answer to a request. A panic on the way to it is one, too.
async fn answered(
    answer: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Result<Response<Body>, Infallible> {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|panic| {
        threads::tell("a request", &*panic);
        Ok(Problem::panicked().into_response())
    })
}

/// A guest asks something as long as this lives: until the whole answer is sent.
struct Asking(Arc<Guest>);

impl Drop for Asking {
    // Work in `Drop`, because an answer also ends when its reader goes away.
    fn drop(&mut self) {
        self.0.falls_silent();
    }
}

fn tracked(answer: Result<Response<Body>, Infallible>, asking: Asking) -> Response<Tracked> {
    let Ok(answer) = answer;
    answer.map(|body| Tracked { body, _asking: asking })
}

/// A body during which its guest asks something.
struct Tracked {
    body: Body,
    _asking: Asking,
}

impl HttpBody for Tracked {
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
