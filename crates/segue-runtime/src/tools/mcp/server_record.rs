//! Recorded tool definitions of a server, in a file of the user: its tools can be known without
//! starting it.
//!
//! The first definition of a tool is accepted. A later change is not, until the user accepts it;
//! the file holds both the accepted and the current definition. A file that cannot be read or
//! written counts as missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::compile::document::read_trusted_json;
use segue_core::value::Value;

/// The eras of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolEra {
    /// With a handshake, until 2025-11-25.
    Legacy,
    /// Without, since 2026-07-28.
    Modern,
}

/// The record of a server.
#[derive(Clone)]
pub(super) struct ServerRecord {
    pub(super) era: ProtocolEra,
    /// All definitions as last received.
    pub(super) tools: Vec<Value>,
    /// The accepted definitions of tools that have changed or are gone.
    pub(super) accepted: BTreeMap<Arc<str>, Value>,
}

impl ServerRecord {
    /// The record after the server has listed these tools.
    pub(super) fn seen(
        before: Option<ServerRecord>,
        era: ProtocolEra,
        tools: &[Value],
    ) -> ServerRecord {
        let Some(before) = before else {
            return ServerRecord { era, tools: tools.to_vec(), accepted: BTreeMap::new() };
        };
        let mut accepted = by_name(&before.tools);
        accepted.extend(before.accepted);
        let now = by_name(tools);
        accepted.retain(|name, definition| now.get(name) != Some(definition));
        ServerRecord { era, tools: tools.to_vec(), accepted }
    }
}

/// Definitions by tool name.
pub(super) fn by_name(tools: &[Value]) -> BTreeMap<Arc<str>, Value> {
    let named = |tool: &Value| Some((Arc::from(tool.get("name")?.as_str()?), tool.clone()));
    tools.iter().filter_map(named).collect()
}

/// The file of a server's record.
pub(super) fn file(folder: &Path, server: &str, identity: &str) -> PathBuf {
    folder.join(format!("{server}-{}.json", &identity[..identity.len().min(16)]))
}

pub(super) fn read(file: &Path) -> Option<ServerRecord> {
    let text = std::fs::read_to_string(file).ok()?;
    let whole = read_trusted_json(&text).ok()?.to_value();
    let era = match whole.get("era")?.as_str()? {
        "legacy" => ProtocolEra::Legacy,
        "modern" => ProtocolEra::Modern,
        _ => return None,
    };
    let tools = whole.get("tools")?.as_array()?.to_vec();
    let accepted = whole.get("accepted").and_then(Value::as_array).map(|all| by_name(all));
    Some(ServerRecord { era, tools, accepted: accepted.unwrap_or_default() })
}

/// Writes a temporary file and renames it, so that a reader never sees an incomplete one.
pub(super) fn write(file: &Path, record: &ServerRecord) {
    let era = match record.era {
        ProtocolEra::Legacy => "legacy",
        ProtocolEra::Modern => "modern",
    };
    let whole = Value::object([
        ("format", Value::from(1)),
        ("era", Value::from(era)),
        ("tools", Value::from(record.tools.clone())),
        ("accepted", Value::from(record.accepted.values().cloned().collect::<Vec<_>>())),
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
