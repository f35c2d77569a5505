//! Definitions that were seen before, in files of the user: what can be known of a server without
//! starting it.
//!
//! A file is a convenience. One that cannot be read or written is as good as none.

use std::path::{Path, PathBuf};

use segue_core::compile::document::read_own_json;
use segue_core::value::Value;

/// The eras of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// With a handshake, until 2025-11-25.
    Legacy,
    /// Without, since 2026-07-28.
    Modern,
}

/// What was seen of a server.
pub(super) struct Record {
    pub(super) era: Era,
    pub(super) tools: Vec<Value>,
}

/// Where the definitions of a server are kept.
pub(super) fn file(folder: &Path, server: &str, identity: &str) -> PathBuf {
    folder.join(format!("{server}-{}.json", &identity[..identity.len().min(16)]))
}

pub(super) fn read(file: &Path) -> Option<Record> {
    let text = std::fs::read_to_string(file).ok()?;
    let whole = read_own_json(&text).ok()?.to_value();
    let era = match whole.get("era")?.as_str()? {
        "legacy" => Era::Legacy,
        "modern" => Era::Modern,
        _ => return None,
    };
    Some(Record { era, tools: whole.get("tools")?.as_array()?.to_vec() })
}

/// Writes beside the file and puts it in place, so that nobody ever reads half of it.
pub(super) fn write(file: &Path, era: Era, tools: &[Value]) {
    let era = match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    };
    let whole = Value::object([
        ("format", Value::from(1)),
        ("era", Value::from(era)),
        ("tools", Value::from(tools.to_vec())),
    ]);
    let text = whole.to_json();
    if std::fs::read_to_string(file).is_ok_and(|present| present == text) {
        return;
    }
    let Some(folder) = file.parent() else { return };
    let beside = file.with_extension(format!("{}.tmp", std::process::id()));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&beside, text))
        .and_then(|()| std::fs::rename(&beside, file));
    if written.is_err() {
        let _ = std::fs::remove_file(beside);
    }
}
