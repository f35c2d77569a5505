//! Requests to Restate: runs that are due to its ingress, the address of the workers to its admin API.
//!
//! A request holds the id of a run and when it is due, and nothing else of the run. Errors hold an address of
//! the configuration and why it did not work, and nothing of an answer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::HeaderName;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use segue_runtime::driver::now_ms;
use segue_runtime::store::Due;
use segue_runtime::tools::http::tls_for;
use serde::Deserialize;
use serde_json::json;

use super::object::{HANDLER, OBJECT, Wake, wake_key};
use crate::api::runs::dispatch::{DispatchError, Dispatcher};

/// How long a connection to Restate may take, and a request in all.
const CONNECT_MAX: Duration = Duration::from_secs(3);
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// How long a registration may take: Restate connects to the workers meanwhile.
const REGISTER_MAX: Duration = Duration::from_secs(30);

/// Size of an answer. Restate answers in some hundred bytes.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Why there was no answer: the connection broke.
const ENDED: &str = "the connection ended";

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Why Restate did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestateError {
    /// An address of the configuration cannot be one.
    #[error("`{name}` is not an address such as `{example}`")]
    Address {
        /// The name of the setting.
        name: &'static str,
        /// What could stand there.
        example: &'static str,
    },
    /// No connection, or no answer in time.
    #[error("`{at}` cannot be reached: {reason}")]
    Unreachable {
        /// The address of the configuration.
        at: Arc<str>,
        /// Why.
        reason: &'static str,
    },
    /// An answer that is no success.
    #[error("`{at}` answered {status}")]
    Refused {
        /// The address of the configuration.
        at: Arc<str>,
        /// The status of the answer.
        status: u16,
    },
    /// Restate does not know the workers.
    #[error("no worker is registered")]
    NotRegistered,
}

/// One Restate, and the address at which it reaches the workers.
pub struct RestateClient {
    http: Client,
    ingress: Url,
    admin: Url,
    advertise: Url,
}

/// What the admin API tells of the object of the workers.
#[derive(Deserialize)]
struct ServiceAnswer {
    deployment_id: String,
}

/// What it tells of a deployment.
#[derive(Deserialize)]
struct DeploymentAnswer {
    uri: Option<String>,
}

/// What it tells of itself.
#[derive(Deserialize)]
struct VersionAnswer {
    version: String,
}

impl RestateClient {
    /// A client of the Restate with this ingress and this admin API, which reaches the workers at `advertise`.
    /// Opens no connection.
    pub fn new(ingress: &str, admin: &str, advertise: &str) -> Result<RestateClient, RestateError> {
        let ingress = address("ingress", "http://restate:8080", ingress)?;
        let admin = address("admin", "http://restate:9070", admin)?;
        let advertise = address("advertise", "http://workers:9080", advertise)?;
        let encrypted = [&ingress, &admin].into_iter().find(|url| url.scheme() == "https");
        let http = Client::builder()
            .tls_backend_preconfigured(tls_for(encrypted.unwrap_or(&ingress).as_str()))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_MAX)
            .timeout(REQUEST_MAX)
            .user_agent(concat!("segue/", env!("CARGO_PKG_VERSION")))
            .build();
        let http = http.map_err(|error| unreachable_at(&ingress, &error))?;
        Ok(RestateClient { http, ingress, admin, advertise })
    }

    /// The address at which Restate reaches the workers.
    pub fn advertise(&self) -> &Url {
        &self.advertise
    }

    /// Registers the workers. Forced: Restate asks for the options of the object again, also if it knows the
    /// address, so that another version of Segue may change them. Requests under way go on.
    pub async fn register(&self) -> Result<(), RestateError> {
        let body = json!({ "uri": self.advertise.as_str(), "force": true });
        let request = self.http.post(below(&self.admin, &["deployments"])).timeout(REGISTER_MAX);
        answered(&self.admin, request.json(&body)).await.map(drop)
    }

    /// The address at which Restate reaches the workers, as it knows it.
    pub async fn registered_at(&self) -> Result<Option<String>, RestateError> {
        let service = match self.read::<ServiceAnswer>(&["services", OBJECT]).await {
            Err(RestateError::Refused { status: 404, .. }) => return Ok(None),
            answer => answer?,
        };
        let at = ["deployments", &service.deployment_id];
        Ok(self.read::<DeploymentAnswer>(&at).await?.uri)
    }

    /// The version of Restate.
    pub async fn version(&self) -> Result<String, RestateError> {
        self.read::<VersionAnswer>(&["version"]).await.map(|answer| answer.version)
    }

    /// Whether the ingress takes requests.
    pub async fn check_ingress(&self) -> Result<(), RestateError> {
        let request = self.http.get(below(&self.ingress, &["restate", "health"]));
        answered(&self.ingress, request).await.map(drop)
    }

    async fn read<T: for<'de> Deserialize<'de>>(&self, path: &[&str]) -> Result<T, RestateError> {
        let mut answer = answered(&self.admin, self.http.get(below(&self.admin, path))).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) =
            answer.chunk().await.map_err(|error| unreachable_at(&self.admin, &error))?
        {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(strange(&self.admin));
            }
            bytes.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&bytes).map_err(|_| strange(&self.admin))
    }

    async fn send(&self, run_id: &str, due_ms: Option<u64>) -> Result<(), RestateError> {
        let mut at = below(&self.ingress, &[OBJECT, run_id, HANDLER, "send"]);
        let delay_ms = due_ms.map_or(0, |due_ms| due_ms.saturating_sub(now_ms()));
        if delay_ms > 0 {
            at.query_pairs_mut().append_pair("delay", &format!("{delay_ms}ms"));
        }
        let mut request = self.http.post(at).json(&Wake { due_ms });
        if let Some(key) = due_ms.and_then(|due_ms| wake_key(run_id, due_ms)) {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        let again = request.try_clone();
        match (answered(&self.ingress, request).await, again) {
            // A connection that was kept from an earlier request and that Restate has closed meanwhile.
            (Err(RestateError::Unreachable { reason: ENDED, .. }), Some(again)) => {
                answered(&self.ingress, again).await.map(drop)
            }
            (sent, _) => sent.map(drop),
        }
    }
}

#[async_trait]
impl Dispatcher for RestateClient {
    async fn dispatch(&self, run_id: &Arc<str>, due: Due) -> Result<(), DispatchError> {
        let due_ms = match due {
            Due::Now => None,
            Due::At(due_ms) => Some(due_ms),
            // The process that sends the command dispatches the run.
            Due::OnCommand => return Ok(()),
        };
        let sent = self.send(run_id, due_ms).await;
        sent.map_err(|error| DispatchError(error.to_string().into()))
    }
}

/// An address of the configuration. It has no password: errors show it.
fn address(name: &'static str, example: &'static str, text: &str) -> Result<Url, RestateError> {
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    url.ok_or(RestateError::Address { name, example })
}

/// An address below another one; parts are escaped.
fn below(base: &Url, parts: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(parts);
    }
    url
}

/// Sends a request, and fails unless the answer is a success.
async fn answered(at: &Url, request: RequestBuilder) -> Result<Response, RestateError> {
    let answer = request.send().await.map_err(|error| unreachable_at(at, &error))?;
    match answer.status() {
        status if status.is_success() => Ok(answer),
        status => Err(RestateError::Refused { at: at.as_str().into(), status: status.as_u16() }),
    }
}

/// Words of our own: the library's text has the address of the request, which has the id of a run.
fn unreachable_at(at: &Url, error: &reqwest::Error) -> RestateError {
    let reason = match error {
        error if error.is_timeout() => "no answer in time",
        error if error.is_connect() => "no connection",
        error if error.is_builder() => "no client for it could be made",
        _ => ENDED,
    };
    RestateError::Unreachable { at: at.as_str().into(), reason }
}

/// An answer that Restate does not give.
fn strange(at: &Url) -> RestateError {
    RestateError::Refused { at: at.as_str().into(), status: StatusCode::BAD_GATEWAY.as_u16() }
}
