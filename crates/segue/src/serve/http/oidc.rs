//! Tokens that an issuer has signed: OpenID Connect, as far as a server needs it.
//!
//! The issuer's keys are found by its discovery document and kept. A token that names another key has
//! them fetched again, but not more often than now and then, so that nobody can have us ask all day.
//! Which algorithm a signature has is said by the key and never by the token: a public key is no secret
//! that something could be signed with, and no signature is no signature.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use segue_core::access::{GrantConflict, Principal, Rights, combine_grants};
use segue_runtime::tools::http::fetch;
use serde::Deserialize;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::pass::Pass;
use super::ring_keys;
use super::token::{Keyring, Refusal};
use crate::config::OidcConfig;
use crate::config::principals::is_secure;
use crate::serve::rest::shapes::ProtectedResource;

/// Where it is said who gives tokens for us: RFC 9728.
pub const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Where an issuer says where its keys are.
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// The largest document of an issuer, and how long it may take.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;
const DOCUMENT_WAIT: Duration = Duration::from_secs(5);

/// Keys that are kept of an issuer.
const KEYS_MAX: usize = 100;

/// How long keys are good without another look, and how long between two looks at least.
const KEYS_LIFE: Duration = Duration::from_hours(1);
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How far clocks may be apart, in seconds.
const LEEWAY_SECONDS: u64 = 30;

/// The largest token and the longest name in it.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
const SUBJECT_CHARS_MAX: usize = 255;

/// Whether a token is one that somebody signed, by its looks.
pub(super) fn looks_signed(token: &str) -> bool {
    token.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// An issuer of tokens.
pub struct Issuer {
    config: OidcConfig,
    keys: RwLock<Arc<Keys>>,
    /// When its keys were asked for last, and what came of it. Held while they are asked for.
    asked: Mutex<Option<(Instant, Result<(), String>)>>,
}

/// The keys of an issuer, by their ids.
#[derive(Default)]
struct Keys {
    by_id: HashMap<String, Arc<SignedBy>>,
    fetched: Option<Instant>,
}

/// A key, and the one algorithm that it is for.
struct SignedBy {
    key: DecodingKey,
    algorithm: Algorithm,
}

/// What a token says.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// Seconds since 1970, perhaps with a fraction. That it is there is looked at with the others.
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
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

impl Issuer {
    /// The issuer that is configured. Nothing is asked of it before somebody comes with its token.
    pub fn new(config: OidcConfig) -> Issuer {
        ring_keys::install();
        Issuer { config, keys: RwLock::default(), asked: Mutex::default() }
    }

    /// What is configured of it.
    pub fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// Who comes with a token of it.
    pub(super) async fn who(&self, token: &str) -> Result<Pass, Refusal> {
        let unfit = |why: &str| Refusal::Unfit(why.to_owned());
        if token.len() > TOKEN_BYTES_MAX {
            return Err(unfit("it is too large"));
        }
        let header = decode_header(token).map_err(|_| unfit("it cannot be read"))?;
        let signed_by = self.key(header.kid.as_deref()).await?;
        if header.alg != signed_by.algorithm {
            return Err(unfit("it is not signed in the way that its key is for"));
        }
        let mut validation = Validation::new(signed_by.algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&self.config.audience);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let read = decode::<Claims>(token, &signed_by.key, &validation);
        let claims = read.map_err(|error| Refusal::Unfit(reason(&error)))?.claims;
        let who = self.principal(&claims)?;
        let until = Duration::try_from_secs_f64(claims.exp).unwrap_or(Duration::MAX);
        let until = until.saturating_add(Duration::from_secs(LEEWAY_SECONDS));
        Ok(Pass { who, expires_ms: u64::try_from(until.as_millis()).ok() })
    }

    /// What its claims come to here. Scopes that mean nothing here give nothing.
    fn principal(&self, claims: &Claims) -> Result<Principal, Refusal> {
        let subject = &claims.sub;
        let is_plain = !subject.is_empty()
            && subject.chars().count() <= SUBJECT_CHARS_MAX
            && !subject.chars().any(char::is_control);
        if !is_plain {
            return Err(Refusal::Unfit("its subject is no name".to_owned()));
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
                Err(Refusal::Insufficient("its scopes speak of different toolsets".to_owned()))
            }
        }
    }

    /// The key of an id. A token that names none means the only one.
    async fn key(&self, id: Option<&str>) -> Result<Arc<SignedBy>, Refusal> {
        let known = self.keys();
        let is_fresh = known.fetched.is_some_and(|fetched| fetched.elapsed() < KEYS_LIFE);
        if let Some(found) = known.find(id).filter(|_| is_fresh) {
            return Ok(found);
        }
        let asked = self.ask(&known).await;
        match (self.keys().find(id), asked) {
            (Some(found), _) => Ok(found),
            (None, Ok(())) => Err(Refusal::Unfit("nobody knows the key that it names".to_owned())),
            (None, Err(why)) => Err(Refusal::Undecided(why)),
        }
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for the keys, unless somebody just did. `known` are those that were not enough.
    async fn ask(&self, known: &Arc<Keys>) -> Result<(), String> {
        let mut asked = self.asked.lock().await;
        // Somebody else asked while this one waited for its turn.
        if !Arc::ptr_eq(known, &self.keys()) {
            return Ok(());
        }
        if let Some((at, came)) = &*asked
            && at.elapsed() < LOOK_AGAIN
        {
            return came.clone();
        }
        let fetched = self.fetch().await;
        let came = fetched.map(|keys| {
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        });
        *asked = Some((Instant::now(), came.clone()));
        came
    }

    async fn fetch(&self) -> Result<Keys, String> {
        let issuer = &self.config.issuer;
        let at = format!("{}{DISCOVERY}", issuer.trim_end_matches('/'));
        let found: Discovery = self.document(&at).await?;
        if found.issuer != *issuer {
            return Err(format!("`{at}` speaks of another issuer"));
        }
        if !is_secure(&found.jwks_uri) {
            return Err(format!("`{at}` has its keys where somebody could change them"));
        }
        let set: KeySet = self.document(&found.jwks_uri).await?;
        // Keys of kinds that are not known here are for others.
        let keys = set.keys.into_iter().take(KEYS_MAX);
        let keys = keys.filter_map(|key| signed_by(&serde_json::from_value(key).ok()?));
        Ok(Keys { by_id: keys.collect(), fetched: Some(Instant::now()) })
    }

    async fn document<T: for<'de> Deserialize<'de>>(&self, url: &str) -> Result<T, String> {
        let opened = &self.config.issuer;
        let bytes = fetch::document(url, opened, DOCUMENT_BYTES_MAX, DOCUMENT_WAIT).await?;
        serde_json::from_slice(&bytes).map_err(|_| format!("`{url}` is not what it should be"))
    }
}

impl Keys {
    fn find(&self, id: Option<&str>) -> Option<Arc<SignedBy>> {
        let found = match id {
            Some(id) => self.by_id.get(id),
            None if self.by_id.len() == 1 => self.by_id.values().next(),
            None => None,
        };
        found.cloned()
    }
}

/// A key that signatures can be held against. What is secret or for something else is none.
fn signed_by(key: &Jwk) -> Option<(String, Arc<SignedBy>)> {
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
    let signed_by = SignedBy { key: DecodingKey::from_jwk(key).ok()?, algorithm: said };
    Some((common.key_id.clone().unwrap_or_default(), Arc::new(signed_by)))
}

/// Why a token is not good, without anything of it.
fn reason(error: &jsonwebtoken::errors::Error) -> String {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not good yet",
        ErrorKind::InvalidIssuer => "somebody else gave it",
        ErrorKind::InvalidAudience => "it is for somebody else",
        ErrorKind::InvalidSignature => "its signature is not that of its key",
        ErrorKind::MissingRequiredClaim(_) => "it does not say everything that it should",
        _ => "it cannot be read",
    }
    .to_owned()
}

/// What we are to those who look for somebody to give them a token.
pub struct Resource {
    pub(super) keyring: watch::Receiver<Arc<Keyring>>,
    pub(super) is_encrypted: bool,
}

impl Resource {
    /// What is said of one of our addresses; nothing where no issuer is configured.
    pub fn metadata(&self, host: &str, path: &str) -> Option<ProtectedResource> {
        let keyring = self.keyring.borrow().clone();
        let config = keyring.issuer()?.config();
        let scheme = if self.is_encrypted { "https" } else { "http" };
        Some(ProtectedResource {
            resource: format!("{scheme}://{host}{path}"),
            authorization_servers: vec![config.issuer.clone()],
            scopes_supported: config.scopes.keys().map(ToString::to_string).collect(),
            bearer_methods_supported: vec!["header".to_owned()],
        })
    }
}
