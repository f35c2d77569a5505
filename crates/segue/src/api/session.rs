//! The session of a browser: who is signed in, with which rights, and until when.

use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::{Principal, Right};
use segue_core::view::Timestamp;
use serde::{Deserialize, Serialize};

use super::requests::impl_request;

/// Signs in: with a token, or with the code of a sign-in link.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// A token that this server accepts.
    pub token: Option<Arc<str>>,
    /// The code of a sign-in link, which works once.
    pub code: Option<Arc<str>>,
}

impl_request!(SignIn);

/// The caller: its rights, and its session if it has one.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Session {
    /// The principal.
    pub principal: Arc<str>,
    /// Its rights; an administrator has all of them.
    pub rights: Vec<&'static str>,
    /// The toolset that restricts it; null means every tool.
    pub toolset: Option<Arc<str>>,
    /// The value of the header `X-Segue-CSRF`, which requests with the session's cookie need unless they are a
    /// `GET`. Only the response to a sign-in tells it: `GET` returns it to a caller that sent it. Null without
    /// a cookie.
    pub csrf: Option<Arc<str>>,
    /// When the session or the token ends, as RFC 3339; null if never.
    pub expires_at: Option<Timestamp>,
    /// Whether the principal may create and delete templates.
    pub writable: bool,
    /// The version of the server.
    pub version: &'static str,
    /// The ways to sign in.
    pub sign_in: SignInMethods,
}

/// The ways to sign in, beside a token and a sign-in link.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SignInMethods {
    /// The path that leads to the OpenID Connect issuer; null where none is configured for browsers.
    pub oidc: Option<&'static str>,
}

impl Session {
    /// The session of a principal.
    pub fn of(
        who: &Principal,
        csrf: Option<Arc<str>>,
        expires_ms: Option<u64>,
        sign_in: SignInMethods,
    ) -> Session {
        let rights = Right::GRANTABLE.iter().filter(|right| who.may(**right));
        Session {
            principal: who.name.clone(),
            rights: rights.map(|right| right.as_str()).collect(),
            toolset: who.toolset.clone(),
            csrf,
            expires_at: expires_ms.map(Timestamp),
            writable: who.may(Right::Write),
            version: env!("CARGO_PKG_VERSION"),
            sign_in,
        }
    }
}
