//! Fetches a small document from a configured address, or from an address that such a document
//! names.
//!
//! Redirects are not followed. Of addresses that are not public, only the configured origin is
//! open.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{StatusCode, Url};

use super::address::AddressPolicy;
use super::connect::Connector;

/// The document at `url`, limited in size and time. `opened` is the configured address that it
/// belongs to.
pub async fn document(
    url: &str,
    opened: &str,
    bytes_max: usize,
    time: Duration,
) -> Result<Vec<u8>, String> {
    fetch(url, opened, None, bytes_max, time).await
}

/// The answer to a form that is posted to `url`, limited in size and time. `opened` is the configured address that it
/// belongs to.
pub async fn post_form(
    url: &str,
    opened: &str,
    form: String,
    bytes_max: usize,
    time: Duration,
) -> Result<Vec<u8>, String> {
    fetch(url, opened, Some(form), bytes_max, time).await
}

async fn fetch(
    url: &str,
    opened: &str,
    form: Option<String>,
    bytes_max: usize,
    time: Duration,
) -> Result<Vec<u8>, String> {
    let said = |what: String| format!("`{url}` cannot be read: {what}");
    let parse = |text: &str| Url::parse(text).map_err(|error| said(error.to_string()));
    let (url, opened) = (parse(url)?, parse(opened)?);
    let port = opened.port_or_known_default().unwrap_or(0);
    let policy = AddressPolicy::for_origin(opened.host_str().unwrap_or(""), port);
    let fetching = async {
        let connector = Connector::new(policy);
        let port = connector.check(&url).map_err(|error| error.to_string())?;
        let client = connector.client(&url, port, time).await.map_err(|error| error.to_string())?;
        let request = match form {
            None => client.get(url.clone()),
            Some(form) => client
                .post(url.clone())
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form),
        };
        let answer = request.send().await;
        let mut answer = answer.map_err(|error| error.without_url().to_string())?;
        if answer.status() != StatusCode::OK {
            return Err(format!("the answer is {}", answer.status()));
        }
        let mut bytes = Vec::new();
        loop {
            match answer.chunk().await.map_err(|error| error.without_url().to_string())? {
                None => return Ok(bytes),
                Some(chunk) if bytes.len() + chunk.len() > bytes_max => {
                    return Err(format!("it is larger than {bytes_max} bytes"));
                }
                Some(chunk) => bytes.extend_from_slice(&chunk),
            }
        }
    };
    match tokio::time::timeout(time, fetching).await {
        Ok(fetched) => fetched.map_err(said),
        Err(_) => Err(said(format!("no answer within {} s", time.as_secs()))),
    }
}
