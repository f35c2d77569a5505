//! Which requests need no token.

use std::collections::BTreeSet;

use axum::http::request::Parts;
use axum::http::{Method, header};
use segue_core::access::Right;

use super::route::Route;

/// A response that no page of another origin may read, although it is allowed to call.
#[derive(Clone, Copy)]
pub struct NoCors;

/// The routes that need no token, and the paths that belong to the page.
pub struct PublicRoutes {
    /// Paths whose routes are all public.
    paths: Vec<&'static str>,
    /// The first segments of every route.
    segments: BTreeSet<&'static str>,
}

impl PublicRoutes {
    /// The public ones of these routes.
    pub fn of(routes: &[&'static Route]) -> PublicRoutes {
        let is_public = |path: &str| {
            routes.iter().filter(|route| route.path == path).all(|r| r.right == Right::Public)
        };
        let paths = routes.iter().map(|route| route.path).filter(|path| is_public(path));
        let segments = routes.iter().map(|route| first_segment(route.path));
        PublicRoutes { paths: paths.collect(), segments: segments.collect() }
    }

    /// Whether a request needs no token.
    pub fn contains(&self, request: &Parts) -> bool {
        let path = request.uri.path();
        self.paths.iter().any(|template| fits(template, path)) || self.is_page(request)
    }

    /// Whether a request is for the page: a browser asks for a path that is not below any route.
    pub fn is_page(&self, request: &Parts) -> bool {
        let accepted = request.headers.get_all(header::ACCEPT).iter();
        let mut accepted = accepted.filter_map(|value| value.to_str().ok());
        matches!(request.method, Method::GET | Method::HEAD)
            && accepted.any(|value| value.to_ascii_lowercase().contains("text/html"))
            && !self.segments.contains(first_segment(request.uri.path()))
    }
}

fn first_segment(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or("")
}

/// Whether a path is one of a template, whose parts in braces stand for one segment each.
fn fits(template: &str, path: &str) -> bool {
    let (parts, given) = (template.split('/'), path.split('/'));
    parts.clone().count() == given.clone().count()
        && parts.zip(given).all(|(part, given)| part.starts_with('{') || part == given)
}
