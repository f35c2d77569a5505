//! The settings in force, without secrets, and where each comes from.

use std::path::Path;

use segue_core::document::{Member, Node, NodeKind, ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::tools::redact::Secrets;

use super::AppOptions;
use crate::api::installation::{Setting, SettingList};
use crate::config::{Config, TrustFile, mask_value};
use crate::print::display_path;

/// Sections whose members are settings of their own.
const SECTIONS: &[&str] = &["server", "limits", "builtins", "retention", "llm", "observe"];

/// The value of a setting that the configuration does not have.
const DEFAULT: &str = "default";

/// The settings of a configuration.
pub(super) fn settings(config: &Config, options: &AppOptions) -> SettingList {
    let mut settings = config.file.as_deref().map_or_else(Vec::new, |file| written(config, file));
    if options.store.is_some()
        && let Some(store) = config.store.shown()
    {
        settings.retain(|setting| setting.name != "store");
        settings.push(setting("store", Value::from(store), "command line"));
    }
    let has = |settings: &[Setting], name: &str| settings.iter().any(|it| it.name == name);
    if !has(&settings, "server.listen") {
        settings.push(setting("server.listen", Value::from("127.0.0.1:7433"), DEFAULT));
    }
    if !has(&settings, "store")
        && let Some(store) = config.store.shown()
    {
        settings.push(setting("store", Value::from(store), DEFAULT));
    }
    if config.has_found_compositions {
        let patterns = config.compositions.iter().map(|it| Value::from(it.as_written.as_str()));
        settings.push(setting("compositions", patterns.collect::<Vec<_>>().into(), DEFAULT));
    }
    let limits = serde_json::to_value(Limits::default()).map(Value::from).unwrap_or_default();
    for (name, value) in limits.as_object().into_iter().flat_map(|limits| limits.iter()) {
        let name = format!("limits.{name}");
        if !has(&settings, &name) {
            settings.push(setting(&name, value.clone(), DEFAULT));
        }
    }
    let file = config.file.as_deref().map(display_path);
    SettingList { file, trusted: TrustFile::load().allows(config), settings }
}

fn setting(name: &str, value: Value, from: &str) -> Setting {
    Setting { name: name.to_owned(), value, from: from.to_owned() }
}

/// The settings of the file, as written. One that cannot be read any more gives none.
fn written(config: &Config, file: &Path) -> Vec<Setting> {
    let Ok(text) = std::fs::read_to_string(file) else { return Vec::new() };
    let source = Source::new(display_path(file), text);
    let Ok(root) = read(&source, ReadLimits::for_documents(&config.limits)) else {
        return Vec::new();
    };
    let secrets = Secrets::new(config.secrets.iter().cloned());
    let from = |member: &Member| {
        format!("{}:{}", source.name(), source.position(member.key_span.start).line)
    };
    let mut settings = Vec::new();
    for member in root.members() {
        let is_section =
            SECTIONS.contains(&&*member.key) && matches!(member.value.kind, NodeKind::Object(_));
        if !is_section {
            let value = without_secrets(&secrets, &member.key, &member.value);
            settings.push(setting(&member.key, value, &from(member)));
            continue;
        }
        for inner in member.value.members() {
            let name = format!("{}.{}", member.key, inner.key);
            let value = without_secrets(&secrets, &inner.key, &inner.value);
            settings.push(setting(&name, value, &from(inner)));
        }
    }
    settings
}

/// A value as written: secrets by name, by form and by value are masked.
fn without_secrets(secrets: &Secrets, name: &str, node: &Node) -> Value {
    // A number or a flag is no secret, whatever its name.
    if let value @ (Value::Number(_) | Value::Bool(_)) = node.to_value() {
        return value;
    }
    let json = secrets.redact(&mask_value(name, &node.to_value()).to_json());
    serde_json::from_str::<serde_json::Value>(&json).map(Value::from).unwrap_or_default()
}
