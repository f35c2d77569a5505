//! One HTTP server with every surface: the page, REST, GraphQL and MCP behind one authentication.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::api::runs::events::EventReaders;
use crate::api::runs::{RunService, idempotency};
use crate::http::acceptor::Acceptor;
use crate::http::auth::{
    AuthFailureLog, AuthLayer, Authenticator, BrowserSessions, CredentialCheck, ResourceMetadata,
    WebOrigin, authenticate,
};
use crate::http::public::PublicRoutes;
use crate::http::readiness::StoreProbe;
use crate::http::request::HandlerState;
use crate::http::route::Route;
use crate::mcp::AllowedOrigins;
use crate::{graphql, mcp, page, rest};

/// How often old idempotency keys are deleted.
const CLEANUP_EVERY: Duration = Duration::from_hours(1);

/// Every route of every surface.
pub fn routes() -> Vec<&'static Route> {
    let rest = rest::routes::ROUTES.iter().chain(rest::page_routes::ROUTES);
    let rest = rest.chain(rest::file_routes::ROUTES).chain(rest::language_routes::ROUTES);
    rest.chain(graphql::ROUTES).chain(mcp::ROUTES).chain(page::ROUTES).collect()
}

/// The OpenAPI document, as text.
pub fn openapi() -> &'static str {
    rest::openapi::text(&routes())
}

/// An HTTP server at one address.
pub struct HttpServer {
    /// The service.
    pub service: Arc<RunService>,
    /// The address.
    pub at: SocketAddr,
    /// Which tokens are accepted, now.
    pub authenticator: watch::Receiver<Arc<Authenticator>>,
    /// The sessions of browsers.
    pub sessions: Arc<BrowserSessions>,
    /// Origins of web pages that may call, beside our own.
    pub allowed_origins: Vec<String>,
    /// Host names of this server, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// The key of the states that MCP clients carry, when several servers share it.
    pub state_key: Option<String>,
    /// The TLS settings.
    pub tls: Option<TlsAcceptor>,
}

impl HttpServer {
    /// Serves connections until `leaving` becomes true and every request is answered.
    pub async fn serve(self, listener: TcpListener, leaving: watch::Receiver<bool>) {
        let service = self.service.clone();
        let (tls, limits) = (self.tls.clone(), service.limits());
        let metrics = service.observing().metrics.clone();
        let router = self.router(leaving.clone());
        let acceptor = Acceptor { router, tls, limits, leaving, metrics };
        tokio::select! {
            () = acceptor.serve(listener) => {}
            () = clean_up(&service) => {}
        }
    }

    /// Every surface behind the auth layer.
    fn router(self, leaving: watch::Receiver<bool>) -> Router {
        let (hosts, origins) = self.allowed_names();
        let is_encrypted = self.tls.is_some();
        let HttpServer { service, authenticator, sessions, state_key, .. } = self;
        let credentials = CredentialCheck { authenticator: authenticator.clone(), sessions };
        let routes = routes();
        let public = Arc::new(PublicRoutes::of(&routes));
        let auth = AuthLayer {
            credentials: credentials.clone(),
            is_encrypted,
            hosts: hosts.clone(),
            origins: origins.iter().filter_map(|origin| WebOrigin::parse(origin)).collect(),
            public: public.clone(),
            service: service.clone(),
            metrics: service.observing().metrics.clone(),
            failures: AuthFailureLog::default(),
        };
        let allowed = AllowedOrigins { hosts, origins };
        let mcp = mcp::router(service.clone(), allowed, state_key.as_deref());
        let state = Arc::new(HandlerState {
            readers: EventReaders::new(service.clone(), leaving),
            service,
            credentials,
            metadata: ResourceMetadata { authenticator, is_encrypted },
            store_probe: StoreProbe::default(),
            routes,
        });
        mcp.merge(rest::router(&state))
            .merge(graphql::router(&state))
            .merge(page::router(&public))
            .layer(from_fn_with_state(Arc::new(auth), authenticate))
    }

    /// The host names of this server, and the origins that may call it.
    fn allowed_names(&self) -> (Vec<String>, Vec<String>) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned()];
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let own = names.iter().map(|name| format!("{scheme}://{name}:{}", self.at.port()));
        let origins = own.chain(self.allowed_origins.iter().cloned()).collect();
        let mut hosts: Vec<String> = names.into_iter().chain(["::1".to_owned()]).collect();
        hosts.extend(self.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()));
        match self.at.ip() {
            ip if ip.is_unspecified() => {}
            ip if ip.is_ipv6() => hosts.push(format!("[{ip}]")),
            ip => hosts.push(ip.to_string()),
        }
        (hosts, origins)
    }
}

async fn clean_up(service: &RunService) {
    loop {
        // A store that is unavailable now is asked again the next time.
        let _ = idempotency::forget(service).await;
        tokio::time::sleep(CLEANUP_EVERY).await;
    }
}
