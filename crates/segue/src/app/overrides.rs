//! Applies `tools` of a configuration to the tools.

use std::sync::Arc;

use segue_core::diagnostic::nearest_name;
use segue_core::tool::ToolSpec;
use segue_runtime::tools::Tool;

use super::UpstreamServers;
use crate::config::{Config, ToolOverride};

/// Applies the configured overrides to the tools. Returns notes for people; the error is a mistake in
/// the configuration.
pub(super) fn apply(
    config: &Config,
    tools: &mut [Tool],
    upstream: &UpstreamServers,
) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for (name, known) in &config.tools {
        match tools.iter_mut().find(|tool| matches(tool, name)) {
            Some(tool) => apply_override(tool, known),
            None => notes.extend(missing_tool(tools, name, known, upstream)?),
        }
    }
    Ok(notes)
}

/// Whether a key of `tools` names this tool, by its id or its short name.
pub(super) fn matches(tool: &Tool, name: &str) -> bool {
    tool.spec.id.as_str() == name || tool.spec.id.name() == name
}

/// An override for a tool that does not exist is a mistake, unless a server that this command does not
/// start may have the tool. If that server did not list it last time, a note says so.
fn missing_tool(
    tools: &[Tool],
    name: &str,
    known: &ToolOverride,
    upstream: &UpstreamServers,
) -> Result<Option<String>, String> {
    let place = &known.place;
    let is_listed =
        |server: &str, short: &str| upstream.listed.get(server).map(|names| names.contains(short));
    let may_exist = match name.split_once(':') {
        _ if upstream.unavailable().changed_tool(name).is_some() => true,
        Some((server, short)) if upstream.is_server(server) => match is_listed(server, short) {
            Some(is_listed) => is_listed,
            None if tools.iter().any(|tool| tool.spec.id.namespace() == server) => {
                return Ok(Some(format!(
                    "{place}: `tools` names `{name}`, which `{server}` did not list last time"
                )));
            }
            None => true,
        },
        Some(_) => false,
        None => {
            let may_have = |server: &Arc<str>| is_listed(server, name) != Some(false);
            upstream.servers().any(|server| may_have(server.name())) || !upstream.failed.is_empty()
        }
    };
    if may_exist {
        return Ok(None);
    }
    let near = nearest_name(name, tools.iter().map(|tool| tool.spec.id.as_str()));
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(format!("{place}: `tools` names `{name}`, which does not exist{near}"))
}

fn apply_override(tool: &mut Tool, known: &ToolOverride) {
    let mut spec: ToolSpec = (*tool.spec).clone();
    let annotations = &mut spec.annotations;
    annotations.read_only = known.read_only.or(annotations.read_only);
    annotations.destructive = known.destructive.or(annotations.destructive);
    annotations.idempotent = known.idempotent.or(annotations.idempotent);
    spec.confirm = known.confirm.unwrap_or(spec.confirm);
    if let Some(rollback) = &known.rollback {
        spec.rollback = rollback.clone();
    }
    spec.tags = known.tags.clone().unwrap_or(spec.tags);
    spec.scopes = known.scopes.clone().unwrap_or(spec.scopes);
    spec.category = known.category.clone().or(spec.category);
    tool.spec = Arc::new(spec);
}
