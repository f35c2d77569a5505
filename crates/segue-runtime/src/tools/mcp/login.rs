//! Login to a server: OAuth, with the tokens in a file of the user.
//!
//! The protocol library finds the authorization server, registers Segue, proves the origin of the
//! request and refreshes expired tokens. This module stores tokens: one file per server and URL,
//! readable only by the user. A token is sent only to the URL that it was issued for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, CredentialStore,
    StoredCredentials,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{ServerConfig, ServerTransport};

/// How long a person may take to log in.
const PERSON_MAX: Duration = Duration::from_mins(10);

/// The size limit of the browser's request.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// The path that the browser is redirected to.
const CALLBACK: &str = "/callback";

/// The token file of a server.
pub(super) struct TokenFile {
    file: PathBuf,
    url: String,
}

#[derive(Serialize, Deserialize)]
struct SavedTokens {
    url: String,
    credentials: StoredCredentials,
}

impl TokenFile {
    pub(super) fn new(file: &Path, url: &str) -> TokenFile {
        TokenFile { file: file.to_owned(), url: url.to_owned() }
    }

    fn read(&self) -> Option<StoredCredentials> {
        let text = std::fs::read_to_string(&self.file).ok()?;
        let saved: SavedTokens = serde_json::from_str(&text).ok()?;
        (saved.url == self.url).then_some(saved.credentials)
    }

    /// Writes a temporary file and renames it, so that a reader never sees an incomplete one.
    fn write(&self, credentials: StoredCredentials) -> io::Result<()> {
        let saved = SavedTokens { url: self.url.clone(), credentials };
        let text = serde_json::to_string(&saved)?;
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let beside = self.file.with_extension(format!("{}.new", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        io::Write::write_all(&mut options.open(&beside)?, text.as_bytes())?;
        std::fs::rename(&beside, &self.file)
    }
}

#[async_trait]
impl CredentialStore for TokenFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.read())
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let written = self.write(credentials);
        written.map_err(|error| AuthError::CredentialStoreError(error.to_string()))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        // A missing file counts as removed.
        let _ = std::fs::remove_file(&self.file);
        Ok(())
    }
}

/// The provider of tokens for a URL, if the user has logged in.
pub(super) async fn saved_login(
    file: &Path,
    url: &str,
) -> Result<Option<Arc<AuthorizationManager>>, String> {
    let tokens = TokenFile::new(file, url);
    if tokens.read().is_none() {
        return Ok(None);
    }
    let mut manager = manager(url).await?;
    manager.set_credential_store(tokens);
    let is_there = manager.initialize_from_store().await;
    let is_there = is_there.map_err(|error| format!("its login cannot be used: {error}"))?;
    Ok(is_there.then(|| Arc::new(manager)))
}

/// The tokens stored for a URL, to be redacted.
pub(super) fn secrets_in(file: &Path, url: &str) -> Vec<String> {
    let Some(response) = TokenFile::new(file, url).read().and_then(|kept| kept.token_response)
    else {
        return Vec::new();
    };
    let response = serde_json::to_value(response).unwrap_or_default();
    let token = |name: &str| Some(response.get(name)?.as_str()?.to_owned());
    ["access_token", "refresh_token"].into_iter().filter_map(token).collect()
}

async fn manager(url: &str) -> Result<AuthorizationManager, String> {
    // The library makes its own clients, which use the process-wide provider. If one was installed
    // before, it is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    AuthorizationManager::new(url).await.map_err(|error| error.to_string())
}

/// Logs in to a server: `tell` shows a person the page to open, and the tokens are stored in a
/// file. The error is a message for people.
pub(super) async fn login(
    server: &ServerConfig,
    file: &Path,
    tell: impl FnOnce(&str),
) -> Result<(), String> {
    let ServerTransport::Http(http) = &server.reach else {
        return Err("it is a local program and has no login".to_owned());
    };
    let failed = |error: AuthError| error.to_string();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let mut manager = manager(&http.url).await?;
    manager.set_credential_store(TokenFile::new(file, &http.url));
    let found = manager.resolve_metadata().await.map_err(failed)?;
    manager.set_metadata(found.metadata);
    let request = AuthorizationRequest::new(format!("http://127.0.0.1:{port}{CALLBACK}"))
        .with_client_name("Segue")
        .with_initial_scope_selection();
    let session = AuthorizationSession::new(manager, request).await;
    let session = session.map_err(|(_, error)| failed(error))?;
    tell(session.get_authorization_url());
    let target = tokio::time::timeout(PERSON_MAX, wait_for_callback(&listener)).await;
    let target = target.map_err(|_| "the login was not completed in time".to_owned())??;
    let url = format!("http://127.0.0.1:{port}{target}");
    session.handle_callback_url(&url).await.map(drop).map_err(failed)
}

/// Waits for the person's browser, and returns the target of its redirect.
async fn wait_for_callback(listener: &TcpListener) -> Result<String, String> {
    loop {
        let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
        if let Some(target) = read_callback(stream).await {
            return Ok(target);
        }
    }
}

/// Answers one request; `None` when it is not the callback.
async fn read_callback(mut stream: TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < REQUEST_BYTES_MAX {
        let count = stream.read_buf(&mut head).await.ok()?;
        if count == 0 {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    let target = std::str::from_utf8(line).ok()?.strip_prefix("GET ")?.split(' ').next()?;
    let is_ours = target.strip_prefix(CALLBACK).is_some_and(|rest| rest.starts_with('?'));
    let (status, text) = if is_ours {
        ("200 OK", "Segue has received the answer. You may close this page.")
    } else {
        ("404 Not Found", "There is nothing here.")
    };
    let length = text.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    is_ours.then(|| target.to_owned())
}
