//! `file:` addresses ↔ paths. Documents with other addresses have no path.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use gen_lsp_types::Uri;

use crate::percent;

/// The path of a `file:` address of this machine.
pub(super) fn path(uri: &Uri) -> Option<PathBuf> {
    let rest = uri.0.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").filter(|it| it.starts_with('/')).unwrap_or(rest);
    let path = String::from_utf8(percent::decode(path.strip_prefix('/')?)?).ok()?;
    let is_drive = |text: &str| {
        let mut letters = text.chars();
        letters.next().is_some_and(|it| it.is_ascii_alphabetic()) && letters.next() == Some(':')
    };
    Some(if cfg!(windows) && is_drive(&path) { path.into() } else { format!("/{path}").into() })
}

/// The address of a path.
pub(super) fn of_path(path: &Path) -> Uri {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.to_string_lossy();
    let text = if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() };
    let slash = if text.starts_with('/') { "" } else { "/" };
    Uri(format!("file://{slash}{}", encode(&text)))
}

fn encode(path: &str) -> String {
    path.bytes().fold(String::with_capacity(path.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/:@!$&'()*+,;=".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn paths_go_there_and_back() {
        for path_text in ["/a/b.yaml", "/with space/ü#1%.yaml", "/a:b/[c].yaml"] {
            let uri = of_path(Path::new(path_text));
            assert!(uri.0.is_ascii() && !uri.0.contains([' ', '#']), "{}", uri.0);
            assert_eq!(path(&uri).as_deref(), Some(Path::new(path_text)));
        }
        let from = |text: &str| path(&Uri(text.to_owned()));
        assert_eq!(from("file://localhost/a"), Some("/a".into()));
        assert_eq!(from("file:///c%3A/x%20y"), Some("/c:/x y".into()));
        assert_eq!(from("untitled:Untitled-1"), None);
        assert_eq!(from("file://elsewhere/a").map(|_| ()), None);
    }
}
