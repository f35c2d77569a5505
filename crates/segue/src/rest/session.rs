//! The session of a browser: sign in, look, sign out.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_runtime::driver::now_ms;

use crate::api::error::Error;
use crate::api::session::{Session, SignIn, SignInMethods};
use crate::http::auth::{AuthError, Identity, LoginRedirect, SignInFailure, sign_in_problem};
use crate::http::request::{ApiRequest, HandlerResult, json, no_content};

/// `POST /api/v1/session`
pub(super) async fn sign_in(request: ApiRequest) -> HandlerResult {
    let given: SignIn = request.read()?;
    let (credentials, limits) = (&request.state.credentials, request.service().limits());
    let is_secure = is_secure(&request);
    let opened = credentials.sign_in(&given, &limits, now_ms(), is_secure).await;
    let opened = opened.map_err(|error| sign_in_problem(&error, methods(&request)))?;
    // The session before ends: its cookie is replaced.
    if let Some(before) = request.identity.as_ref().and_then(|before| before.session.as_ref()) {
        credentials.sessions.end(before);
    }
    let mut response = json(StatusCode::OK, &session(&request, &opened.identity));
    if let Some(cookie) = opened.cookie {
        set_cookie(&mut response, &cookie);
    }
    Ok(response)
}

/// `GET /api/v1/session`
pub(super) fn get(request: &ApiRequest) -> HandlerResult {
    match &request.identity {
        Some(identity) => Ok(json(StatusCode::OK, &session(request, identity))),
        None => Err(sign_in_problem(&AuthError::Absent, methods(request))),
    }
}

/// `DELETE /api/v1/session`
pub(super) fn sign_out(request: &ApiRequest) -> HandlerResult {
    let sessions = &request.state.credentials.sessions;
    if let Some(session) = request.identity.as_ref().and_then(|it| it.session.as_ref()) {
        sessions.end(session);
    }
    let mut response = no_content();
    set_cookie(&mut response, &sessions.forget_cookie(is_secure(request)));
    Ok(response)
}

/// `GET /api/v1/session/oidc`
pub(super) async fn oidc_begin(request: ApiRequest) -> HandlerResult {
    if methods(&request).oidc.is_none() {
        let message = "no issuer is configured for browsers (`server.oidc.client_id`)";
        return Err(Error::not_found(message).into());
    }
    let begun = request.state.credentials.begin_login(&own_origin(&request), now_ms()).await;
    let LoginRedirect { location, cookie } =
        begun.map_err(|error| sign_in_problem(&error, methods(&request)))?;
    let mut response = redirect(&location);
    set_cookie(&mut response, &cookie);
    Ok(response)
}

/// `GET /api/v1/session/oidc/callback`
pub(super) async fn oidc_finish(request: ApiRequest) -> HandlerResult {
    let answer = (request.query("code"), request.query("state"));
    let (Some(code), Some(state)) = answer else {
        return Ok(redirect("/sign-in?problem=refused"));
    };
    let (cookies, limits) = (request.header("cookie").unwrap_or(""), request.service().limits());
    let credentials = &request.state.credentials;
    match credentials.finish_login((code, state), cookies, &limits, now_ms()).await {
        Ok(opened) => {
            // Behind `#`, where only the page reads it: no other response has the value.
            let csrf = opened.identity.session.as_ref().map_or("", |session| &session.csrf);
            let mut response = redirect(&format!("/sign-in#csrf={csrf}"));
            if let Some(cookie) = opened.cookie {
                set_cookie(&mut response, &credentials.forget_login(cookie.ends_with("; Secure")));
                set_cookie(&mut response, &cookie);
            }
            Ok(response)
        }
        Err(error) => {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("problem", &error.to_string())
                .finish();
            let mut response = redirect(&format!("/sign-in?{query}"));
            response.extensions_mut().insert(SignInFailure(error));
            Ok(response)
        }
    }
}

/// The origin at which the browser reached this server. A name that is not of this machine is reached over TLS,
/// here or at a proxy.
fn own_origin(request: &ApiRequest) -> String {
    let host = request.header("host").unwrap_or("");
    let is_here = ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| {
        host.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    });
    let is_plain = is_here && !request.state.metadata.is_encrypted();
    format!("{}://{host}", if is_plain { "http" } else { "https" })
}

fn redirect(location: &str) -> Response {
    let mut response = no_content();
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn session(request: &ApiRequest, identity: &Identity) -> Session {
    let csrf = identity.session.as_ref().map(|session| session.csrf.clone());
    let authenticated = &identity.authenticated;
    Session::of(&authenticated.who, csrf, authenticated.expires_ms, methods(request))
}

fn methods(request: &ApiRequest) -> SignInMethods {
    request.state.metadata.sign_in_methods()
}

/// Whether the browser's connection is encrypted: here, or by a proxy in front of this server.
fn is_secure(request: &ApiRequest) -> bool {
    let origin = request.header(header::ORIGIN.as_str()).unwrap_or("");
    request.state.metadata.is_encrypted() || origin.starts_with("https://")
}

fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}
