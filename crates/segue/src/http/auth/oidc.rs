//! Tokens that an issuer has signed: OpenID Connect, as far as a server needs it.
//!
//! The server finds the issuer's keys through its discovery document and caches them. A token that names
//! an unknown key makes it fetch them again, at most once in ten seconds. The key decides the algorithm of
//! a signature, and never the token: otherwise a token could claim a public key as a shared secret, or
//! no signature at all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::RwLock;
use schemars::JsonSchema;
use segue_core::access::{GrantConflict, Principal, Rights, combine_grants};
use segue_runtime::tools::http::fetch;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::oidc_login::OIDC;
use super::signatures;
use super::stream_auth::Authenticated;
use super::token::{AuthError, Authenticator};
use crate::api::session::SignInMethods;
use crate::config::OidcConfig;
use crate::config::principals::is_secure;

/// The path of the metadata that names the issuer: RFC 9728.
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The path of an issuer's discovery document.
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// The largest document of an issuer, and how long it may take.
pub(super) const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
pub(super) const DOCUMENT_WAIT: Duration = Duration::from_secs(5);

/// How many keys of an issuer are cached.
const KEYS_MAX: usize = 100;

/// How long keys are cached, and the shortest time between two fetches.
const KEYS_LIFE: Duration = Duration::from_hours(1);
const FETCH_EVERY: Duration = Duration::from_secs(10);

/// How far clocks may be apart, in seconds.
const LEEWAY_SECONDS: u64 = 30;

/// The largest token and the longest name in it.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
const SUBJECT_CHARS_MAX: usize = 255;

/// Whether a token looks like a signed one.
pub(super) fn looks_signed(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// An issuer of tokens.
pub struct Issuer {
    config: OidcConfig,
    keys: RwLock<Arc<Keys>>,
    /// When the keys were fetched last, with the result. Locked while they are fetched.
    fetched: Mutex<Option<(Instant, Result<(), String>)>>,
    /// Where browsers sign in, and when that was fetched.
    endpoints: Mutex<Option<(Instant, Endpoints)>>,
}

/// Where browsers sign in, and where their codes become tokens.
#[derive(Clone)]
pub(super) struct Endpoints {
    pub(super) authorization: String,
    pub(super) token: String,
}

/// The keys of an issuer, by their ids.
#[derive(Default)]
struct Keys {
    by_id: HashMap<String, Arc<VerificationKey>>,
    fetched: Option<Instant>,
}

/// A key, and the one algorithm that it is for.
struct VerificationKey {
    key: DecodingKey,
    algorithm: Algorithm,
}

/// The claims of a token.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// Seconds since 1970, perhaps with a fraction. The validation checks that it is there.
    #[serde(default)]
    exp: f64,
    #[serde(default)]
    scope: Words,
    #[serde(default)]
    scp: Words,
}

/// Words in one text, or each by itself: issuers differ.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Words {
    Text(String),
    List(Vec<String>),
    #[default]
    None,
}

impl Words {
    fn iter(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Words::Text(text) => Box::new(text.split(' ')),
            Words::List(list) => Box::new(list.iter().map(String::as_str)),
            Words::None => Box::new(std::iter::empty()),
        }
    }
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    #[serde(default)]
    authorization_endpoint: String,
    #[serde(default)]
    token_endpoint: String,
}

/// The claims of an ID token.
#[derive(Deserialize)]
struct IdClaims {
    sub: String,
    #[serde(default)]
    nonce: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

impl Issuer {
    /// The configured issuer. Its keys are fetched when the first token arrives.
    pub fn new(config: OidcConfig) -> Issuer {
        signatures::install();
        let (fetched, endpoints) = (Mutex::default(), Mutex::default());
        Issuer { config, keys: RwLock::default(), fetched, endpoints }
    }

    /// Its configuration.
    pub fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// The principal of one of its tokens.
    pub(super) async fn authenticate(&self, token: &str) -> Result<Authenticated, AuthError> {
        let claims: Claims = self.verify(token, &self.config.audience).await?;
        let who = self.principal(&claims)?;
        let until = Duration::try_from_secs_f64(claims.exp).unwrap_or(Duration::MAX);
        let until = until.saturating_add(Duration::from_secs(LEEWAY_SECONDS));
        Ok(Authenticated { who, expires_ms: u64::try_from(until.as_millis()).ok() })
    }

    /// The subject of an ID token for a sign-in of ours.
    pub(super) async fn verify_id_token(
        &self,
        token: &str,
        client_id: &str,
        nonce: &str,
    ) -> Result<String, AuthError> {
        let claims: IdClaims = self.verify(token, &[client_id.to_owned()]).await?;
        if claims.nonce != nonce {
            return Err(AuthError::Invalid("it is of another sign-in".to_owned()));
        }
        Ok(claims.sub)
    }

    /// The claims of a token for one of these audiences, once its signature and its times are verified.
    async fn verify<T: for<'de> Deserialize<'de>>(
        &self,
        token: &str,
        audience: &[String],
    ) -> Result<T, AuthError> {
        let unfit = |why: &str| AuthError::Invalid(why.to_owned());
        if token.len() > TOKEN_BYTES_MAX {
            return Err(unfit("it is too large"));
        }
        let header = decode_header(token).map_err(|_| unfit("it cannot be read"))?;
        let verification_key = self.key(header.kid.as_deref()).await?;
        if header.alg != verification_key.algorithm {
            return Err(unfit("it is not signed in the way that its key is for"));
        }
        let mut validation = Validation::new(verification_key.algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(audience);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let read = decode::<T>(token, &verification_key.key, &validation);
        Ok(read.map_err(|error| AuthError::Invalid(reason(&error)))?.claims)
    }

    /// The principal of these claims. Unknown scopes give no right.
    fn principal(&self, claims: &Claims) -> Result<Principal, AuthError> {
        let subject = &claims.sub;
        let is_plain = !subject.is_empty()
            && subject.chars().count() <= SUBJECT_CHARS_MAX
            && !subject.chars().any(char::is_control);
        if !is_plain {
            return Err(AuthError::Invalid("its subject is no name".to_owned()));
        }
        let scopes = claims.scope.iter().chain(claims.scp.iter());
        let grants = scopes.filter_map(|scope| self.config.scopes.get(scope));
        // No configured principal has a colon in its name.
        let name = format!("oidc:{subject}");
        match combine_grants(grants) {
            Ok(grant) => {
                Ok(Principal { toolset: grant.toolset, ..Principal::new(name, grant.rights) })
            }
            Err(GrantConflict::Nothing) => Ok(Principal::new(name, Rights::NONE)),
            Err(GrantConflict::Toolsets) => {
                Err(AuthError::Insufficient("its scopes speak of different toolsets".to_owned()))
            }
        }
    }

    /// The key of an id. A token that names none means the only one.
    async fn key(&self, id: Option<&str>) -> Result<Arc<VerificationKey>, AuthError> {
        let known = self.keys();
        let is_fresh = known.fetched.is_some_and(|fetched| fetched.elapsed() < KEYS_LIFE);
        if let Some(found) = known.find(id).filter(|_| is_fresh) {
            return Ok(found);
        }
        let refreshed = self.refresh(&known).await;
        match (self.keys().find(id), refreshed) {
            (Some(found), _) => Ok(found),
            (None, Ok(())) => Err(AuthError::Invalid("its key is unknown".to_owned())),
            (None, Err(why)) => Err(AuthError::Unavailable(why)),
        }
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().clone()
    }

    /// Fetches the keys, unless another request just did. `known` are those that were not enough.
    async fn refresh(&self, known: &Arc<Keys>) -> Result<(), String> {
        let mut last = self.fetched.lock().await;
        // Another request fetched them while this one waited for the lock.
        if !Arc::ptr_eq(known, &self.keys()) {
            return Ok(());
        }
        if let Some((at, came)) = &*last
            && at.elapsed() < FETCH_EVERY
        {
            return came.clone();
        }
        let fetched = self.fetch().await;
        let came = fetched.map(|keys| {
            *self.keys.write() = Arc::new(keys);
        });
        *last = Some((Instant::now(), came.clone()));
        came
    }

    /// Where browsers sign in.
    pub(super) async fn endpoints(&self) -> Result<Endpoints, String> {
        let mut known = self.endpoints.lock().await;
        if let Some((_, endpoints)) = known.as_ref().filter(|(at, _)| at.elapsed() < KEYS_LIFE) {
            return Ok(endpoints.clone());
        }
        let Discovery { authorization_endpoint, token_endpoint, .. } = self.discover().await?;
        if !is_secure(&authorization_endpoint) || !is_secure(&token_endpoint) {
            return Err("the issuer names no encrypted address where browsers sign in".to_owned());
        }
        let endpoints = Endpoints { authorization: authorization_endpoint, token: token_endpoint };
        *known = Some((Instant::now(), endpoints.clone()));
        Ok(endpoints)
    }

    async fn discover(&self) -> Result<Discovery, String> {
        let issuer = &self.config.issuer;
        let at = format!("{}{DISCOVERY}", issuer.trim_end_matches('/'));
        let found: Discovery = self.document(&at).await?;
        if found.issuer != *issuer {
            return Err(format!("`{at}` speaks of another issuer"));
        }
        if !is_secure(&found.jwks_uri) {
            return Err(format!("`{at}` names an address for its keys that is not encrypted"));
        }
        Ok(found)
    }

    async fn fetch(&self) -> Result<Keys, String> {
        let found = self.discover().await?;
        let set: KeySet = self.document(&found.jwks_uri).await?;
        // Keys of other kinds are ignored.
        let keys = set.keys.into_iter().take(KEYS_MAX);
        let keys = keys.filter_map(|key| verification_key(&serde_json::from_value(key).ok()?));
        Ok(Keys { by_id: keys.collect(), fetched: Some(Instant::now()) })
    }

    async fn document<T: for<'de> Deserialize<'de>>(&self, url: &str) -> Result<T, String> {
        let opened = &self.config.issuer;
        let bytes = fetch::document(url, opened, DOCUMENT_BYTES_MAX, DOCUMENT_WAIT).await?;
        serde_json::from_slice(&bytes).map_err(|_| format!("`{url}` is not what it should be"))
    }
}

impl Keys {
    fn find(&self, id: Option<&str>) -> Option<Arc<VerificationKey>> {
        let found = match id {
            Some(id) => self.by_id.get(id),
            None if self.by_id.len() == 1 => self.by_id.values().next(),
            None => None,
        };
        found.cloned()
    }
}

/// A key that can verify signatures. A secret key, or one for another use, is none.
fn verification_key(key: &Jwk) -> Option<(String, Arc<VerificationKey>)> {
    let common = &key.common;
    if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    let usual = match &key.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            Algorithm::ES256
        }
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P384 => {
            Algorithm::ES384
        }
        AlgorithmParameters::OctetKeyPair(_) => Algorithm::EdDSA,
        _ => return None,
    };
    let said = match common.key_algorithm {
        None => usual,
        Some(KeyAlgorithm::RS256) => Algorithm::RS256,
        Some(KeyAlgorithm::RS384) => Algorithm::RS384,
        Some(KeyAlgorithm::RS512) => Algorithm::RS512,
        Some(KeyAlgorithm::PS256) => Algorithm::PS256,
        Some(KeyAlgorithm::PS384) => Algorithm::PS384,
        Some(KeyAlgorithm::PS512) => Algorithm::PS512,
        Some(KeyAlgorithm::ES256) => Algorithm::ES256,
        Some(KeyAlgorithm::ES384) => Algorithm::ES384,
        Some(KeyAlgorithm::EdDSA) => Algorithm::EdDSA,
        Some(_) => return None,
    };
    if said.family() != usual.family() {
        return None;
    }
    let verification_key =
        VerificationKey { key: DecodingKey::from_jwk(key).ok()?, algorithm: said };
    Some((common.key_id.clone().unwrap_or_default(), Arc::new(verification_key)))
}

/// Why a token is invalid, without anything of it.
fn reason(error: &jsonwebtoken::errors::Error) -> String {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not good yet",
        ErrorKind::InvalidIssuer => "its issuer does not match",
        ErrorKind::InvalidAudience => "its audience does not match",
        ErrorKind::InvalidSignature => "its signature is not that of its key",
        ErrorKind::MissingRequiredClaim(_) => "it does not say everything that it should",
        _ => "it cannot be read",
    }
    .to_owned()
}

/// Where clients get a token for this server: RFC 9728.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProtectedResource {
    /// The address of this server.
    pub resource: String,
    /// The issuers of tokens for it.
    pub authorization_servers: Vec<String>,
    /// The scopes that give rights here.
    pub scopes_supported: Vec<String>,
    /// How a token is sent.
    pub bearer_methods_supported: Vec<String>,
}

/// Where clients get tokens for this server.
pub struct ResourceMetadata {
    pub(crate) authenticator: watch::Receiver<Arc<Authenticator>>,
    pub(crate) is_encrypted: bool,
}

impl ResourceMetadata {
    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// The ways to sign in, beside a token and a sign-in link.
    pub fn sign_in_methods(&self) -> SignInMethods {
        let authenticator = self.authenticator.borrow().clone();
        let client = authenticator.issuer().and_then(|it| it.config().client_id.as_ref());
        SignInMethods { oidc: client.map(|_| OIDC) }
    }

    /// The metadata of one of our addresses; nothing where no issuer is configured.
    pub fn of(&self, host: &str, path: &str) -> Option<ProtectedResource> {
        let authenticator = self.authenticator.borrow().clone();
        let config = authenticator.issuer()?.config();
        let scheme = if self.is_encrypted { "https" } else { "http" };
        Some(ProtectedResource {
            resource: format!("{scheme}://{host}{path}"),
            authorization_servers: vec![config.issuer.clone()],
            scopes_supported: config.scopes.keys().map(ToString::to_string).collect(),
            bearer_methods_supported: vec!["header".to_owned()],
        })
    }
}
