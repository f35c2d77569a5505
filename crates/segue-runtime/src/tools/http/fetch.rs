//! A small document from an address that the operator named, or that was named there.
//!
//! Nothing is followed: who moved has to be named anew. What is opened although it is not public is the
//! one origin that the operator wrote down.

use std::time::Duration;

use reqwest::{StatusCode, Url};

use super::address::AddressPolicy;
use super::connect::Connector;

/// The document at `url`, of so many bytes at most and within this time. `opened` is the address in the
/// configuration that it belongs to.
pub async fn document(
    url: &str,
    opened: &str,
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
        let answer = client.get(url.clone()).send().await;
        let mut answer = answer.map_err(|error| error.without_url().to_string())?;
        if answer.status() != StatusCode::OK {
            return Err(format!("the answer is {}", answer.status()));
        }
        let mut bytes = Vec::new();
        loop {
            match answer.chunk().await.map_err(|error| error.without_url().to_string())? {
                None => return Ok(bytes),
                Some(chunk) if bytes.len() + chunk.len() > bytes_max => {
                    return Err(format!("it has more than {bytes_max} bytes"));
                }
                Some(chunk) => bytes.extend_from_slice(&chunk),
            }
        }
    };
    match tokio::time::timeout(time, fetching).await {
        Ok(fetched) => fetched.map_err(said),
        Err(_) => Err(said(format!("nothing came within {} s", time.as_secs()))),
    }
}
