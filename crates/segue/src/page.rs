//! The page: files that are embedded in the program, gzipped as they are served.
//!
//! `index.html` is the answer to `/` and to every path of the page's own routes; `assets/` holds files
//! whose names contain a hash of their content. `SEGUE_UI_DIR` names a folder to serve in place of the
//! embedded files, for work on the page.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use segue_core::access::Right;
use segue_core::tool::hex_digest;

use crate::http::problem::Problem;
use crate::http::public::{NoCors, PublicRoutes};
use crate::http::route::{MatchedRoute, Route, Verb, find, not_found, route};

/// The paths of the page and of its files.
const ROOT: &str = "/";
const ASSET: &str = "/assets/{file}";

/// The routes of the page.
pub const ROUTES: &[Route] = &[
    Route { about: "The page", ..route(Verb::Get, ROOT, Right::Public, "getPage") },
    Route { about: "A file of the page", ..route(Verb::Get, ASSET, Right::Public, "getPageFile") },
];

/// The embedded files, gzipped, by name.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The variable that names a folder to serve in place of the embedded files.
const FOLDER: &str = "SEGUE_UI_DIR";

const INDEX: &str = "index.html";

/// Where `index.html` wants the nonce of its response. Styles that a script adds carry it.
const NONCE: &str = "__CSP_NONCE__";

/// How large a file of the page may be, inflated.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The answer of a build without the page.
const NO_PAGE: &str = "This build of Segue has no page: it was built without the feature `ui`.\n\
The manual of its API is at /docs.\n";

/// The source of the files.
enum PageFiles {
    Embedded,
    Folder(PathBuf),
}

/// A file of the page.
struct PageFile {
    bytes: Bytes,
    is_gzipped: bool,
}

impl PageFiles {
    fn open() -> PageFiles {
        let folder = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty());
        folder.map_or(PageFiles::Embedded, |folder| PageFiles::Folder(folder.into()))
    }

    fn find(&self, name: &str) -> Option<PageFile> {
        match self {
            PageFiles::Embedded => {
                let (_, bytes) = FILES.iter().find(|(known, _)| *known == name)?;
                Some(PageFile { bytes: Bytes::from_static(bytes), is_gzipped: true })
            }
            PageFiles::Folder(folder) => {
                let read = |path: &Path| std::fs::read(path).ok().map(Bytes::from);
                let plain = read(&folder.join(name));
                let plain = plain.map(|bytes| PageFile { bytes, is_gzipped: false });
                let gzipped = || read(&folder.join(format!("{name}.gz")));
                plain.or_else(|| gzipped().map(|bytes| PageFile { bytes, is_gzipped: true }))
            }
        }
    }
}

impl PageFile {
    /// The inflated bytes; nothing when they are damaged or too large.
    fn inflated(&self) -> Option<Bytes> {
        if !self.is_gzipped {
            return Some(self.bytes.clone());
        }
        let mut plain = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(&*self.bytes).take(FILE_BYTES_MAX + 1);
        reader.read_to_end(&mut plain).ok()?;
        (plain.len() as u64 <= FILE_BYTES_MAX).then(|| plain.into())
    }
}

/// The router of the page, with the fallback of every router: a path of the page's own routes gets
/// `index.html`, any other path a problem.
pub fn router(public: &Arc<PublicRoutes>) -> Router {
    let files = Arc::new(PageFiles::open());
    let (of_index, of_assets, of_fallback) = (files.clone(), files.clone(), files);
    let index =
        move |request: Request| async move { answer(ROOT, &request, |r| index(&of_index, r)) };
    let asset =
        move |request: Request| async move { answer(ASSET, &request, |r| asset(&of_assets, r)) };
    let public = public.clone();
    Router::new().route(ROOT, any(index)).route(ASSET, any(asset)).fallback(
        move |request: Request| async move {
            let (parts, body) = request.into_parts();
            if !public.is_page(&parts) {
                return not_found().await;
            }
            let request = Request::from_parts(parts, body);
            answer(ROOT, &request, |request| self::index(&of_fallback, request))
        },
    )
}

/// Answers a request for one of the paths in the table.
fn answer(path: &str, request: &Request, file: impl FnOnce(&Request) -> Response) -> Response {
    match find(ROUTES, path, request.method()) {
        Ok(route) => {
            let mut response = file(request);
            response.extensions_mut().insert(MatchedRoute(route));
            response
        }
        Err(problem) => problem.into_response(),
    }
}

fn index(files: &PageFiles, request: &Request) -> Response {
    let Some(file) = files.find(INDEX) else {
        let mut response = (StatusCode::NOT_FOUND, NO_PAGE).into_response();
        response.extensions_mut().insert(NoCors);
        return response;
    };
    let text = file.inflated();
    let text = text.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    if let Some(text) = text.filter(|text| text.contains(NONCE)) {
        // Another nonce each time, so neither the committed bytes nor an `ETag` can be sent.
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let text = text.replace(NONCE, &nonce);
        return page_response(INDEX, text.into(), &policy(Some(&nonce)));
    }
    file_response(INDEX, &file, request.headers(), "no-cache")
}

fn asset(files: &PageFiles, request: &Request) -> Response {
    let name = request.uri().path().trim_start_matches('/');
    let file = if is_plain_asset(name) { files.find(name) } else { None };
    match file {
        Some(file) => {
            file_response(name, &file, request.headers(), "public, max-age=31536000, immutable")
        }
        None => Problem::not_found("the page has no such file").into_response(),
    }
}

/// Whether a path is a file directly below `assets`, and none that a system hides or resolves.
fn is_plain_asset(path: &str) -> bool {
    let Some(name) = path.strip_prefix("assets/") else { return false };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// A file, gzipped for clients that accept it; 304 for one that the client has.
fn file_response(
    name: &str,
    file: &PageFile,
    headers: &HeaderMap,
    cache: &'static str,
) -> Response {
    let sends_gzip = file.is_gzipped && accepts_gzip(headers);
    let body = if sends_gzip { Some(file.bytes.clone()) } else { file.inflated() };
    let Some(body) = body else {
        return Problem::not_found("this file of the page is damaged").into_response();
    };
    let tag = format!("\"{}\"", &hex_digest(&body)[..32]);
    let has_it = headers.get(header::IF_NONE_MATCH).and_then(|given| given.to_str().ok());
    let has_it = has_it.is_some_and(|given| given.split(',').any(|one| one.trim() == tag));
    let body = if has_it { Bytes::new() } else { body };
    let mut response = page_response(name, body, &policy(None));
    if has_it {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
    if sends_gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn page_response(name: &str, body: Bytes, policy: &str) -> Response {
    let mut response = Response::new(Body::from(body));
    response.extensions_mut().insert(NoCors);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(name)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let policy = HeaderValue::from_str(policy).ok();
    headers.extend(policy.map(|policy| (header::CONTENT_SECURITY_POLICY, policy)));
    response
}

/// Nothing of another origin, no inline script, and inline style only with this nonce.
fn policy(nonce: Option<&str>) -> String {
    let styles = nonce.map(|nonce| format!(" 'nonce-{nonce}'")).unwrap_or_default();
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'{styles}; img-src 'self' data:; \
         connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; \
         frame-ancestors 'none'"
    )
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or("") {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Whether a client accepts gzip: it names it, and not with the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::ACCEPT_ENCODING).iter();
    let given = given.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    let mut accepts = false;
    for coding in given {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or("");
        let weight = parts.find_map(|part| part.strip_prefix("q=")).unwrap_or("1");
        let is_refused = weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0);
        if name.eq_ignore_ascii_case("gzip") {
            return !is_refused;
        }
        accepts |= name == "*" && !is_refused;
    }
    accepts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(text))])
    }

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        for yes in ["gzip", "br, GZIP", "*", "gzip;q=0.5", "deflate;q=0, gzip"] {
            assert!(accepts_gzip(&accepting(yes)), "{yes}");
        }
        for no in ["", "br", "identity", "gzip;q=0", "*;q=0", "*, gzip;q=0.0"] {
            assert!(!accepts_gzip(&accepting(no)), "{no}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    /// A folder in place of the embedded files gives no file outside of it, and none that is hidden.
    #[test]
    fn only_files_of_the_page_are_served() {
        for name in ["assets/index-B2x_9.js", "assets/a.css", "assets/a..b"] {
            assert!(is_plain_asset(name), "{name}");
        }
        for name in [
            "assets/",
            "assets/..",
            "assets/.env",
            "assets/../x",
            "assets/a/b",
            "assets/%2e",
            "index.html",
        ] {
            assert!(!is_plain_asset(name), "{name}");
        }
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("assets")).unwrap();
        std::fs::write(folder.path().join("assets/a.js"), "1").unwrap();
        let files = PageFiles::Folder(folder.path().to_owned());
        assert_eq!(&*files.find("assets/a.js").unwrap().bytes, b"1");
        assert!(files.find("assets/b.js").is_none());
    }
}
