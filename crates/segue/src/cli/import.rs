//! Another host's configuration → MCP servers of `segue.yaml`.
//!
//! Nothing in it is started, and no secret is copied: what looks like one becomes `${NAME}`, and a
//! note says which variable to set.

use std::fmt::Write as _;
use std::path::Path;

use segue_core::value::Value;

use crate::config::secrets::is_secret_name;
use crate::config::{jsonc, servers};

/// What is written, and what its user has to know.
pub(super) struct Imported {
    pub(super) text: String,
    pub(super) notes: Vec<String>,
}

/// The fields that are taken over.
const KEPT: &[&str] = &["type", "command", "args", "env", "cwd", "url", "headers", "timeout"];

/// Beginnings of values that are secrets wherever they stand.
const SECRET_VALUES: &[&str] = &[
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "eyJ",
    "Bearer ",
    "Basic ",
    "npm_",
    "hf_",
];

/// Reads the servers of a host's configuration; the error says why there are none.
pub(super) fn read(file: &Path) -> Result<Imported, String> {
    let shown = file.display();
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let is_toml = file.extension().is_some_and(|extension| extension == "toml");
    let whole = if is_toml { toml(&text) } else { jsonc::read(&text) };
    let whole = whole.map_err(|why| format!("`{shown}`: {why}"))?;
    let keys = ["mcpServers", "servers", "mcp_servers"];
    let entries =
        keys.iter().find_map(|key| whole.get(key)).or_else(|| whole.get("mcp")?.get("servers"));
    let entries = entries.and_then(Value::as_object);
    let entries =
        entries.ok_or_else(|| format!("`{shown}` has no `mcpServers` and no `servers`"))?;
    let mut import = Import::default();
    for (name, entry) in entries.iter() {
        import.server(name, entry);
    }
    if import.lines.is_empty() {
        return Err(format!(
            "`{shown}` has no server that can be used: {}",
            import.notes.join("; ")
        ));
    }
    let text = format!("# From {}\nmcpServers:\n{}", file_name(file), import.lines);
    Ok(Imported { text, notes: import.notes })
}

fn file_name(file: &Path) -> String {
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn toml(text: &str) -> Result<Value, String> {
    let whole: serde_json::Value = toml::from_str(text).map_err(|error| error.to_string())?;
    Ok(Value::from(whole))
}

#[derive(Default)]
struct Import {
    lines: String,
    notes: Vec<String>,
}

impl Import {
    fn server(&mut self, given: &str, entry: &Value) {
        let name: String = given
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' })
            .collect();
        let name = name.trim_matches('-').to_owned();
        if let Err(why) = servers::is_name(&name) {
            return self.notes.push(format!("`{given}` was left out: {why}"));
        }
        if name != given {
            self.notes.push(format!("`{given}` is called `{name}` here"));
        }
        if entry.get("type").and_then(Value::as_str) == Some("sse") {
            self.notes
                .push(format!("`{name}` was left out: the old transport `sse` is not spoken"));
            return;
        }
        if entry.get("disabled").and_then(Value::as_bool) == Some(true)
            || entry.get("enabled").and_then(Value::as_bool) == Some(false)
        {
            return self.notes.push(format!("`{name}` was left out: it is switched off"));
        }
        let mut fields = Vec::new();
        for key in KEPT {
            if let Some(value) = entry.get(key) {
                fields.push((*key, self.field(&name, key, value)));
            }
        }
        codex(entry, &mut fields);
        if entry.get("envFile").is_some() {
            self.notes.push(format!("`{name}`: `envFile` is not read; set its variables yourself"));
        }
        let json = Value::object(fields).to_json();
        let _ = writeln!(self.lines, "  {name}: {json}");
    }

    fn field(&mut self, server: &str, key: &str, value: &Value) -> Value {
        match (key, value) {
            ("env" | "headers", Value::Object(members)) => {
                Value::object(members.iter().map(|(name, value)| {
                    let text = value.to_string();
                    (
                        name.clone(),
                        Value::from(self.text(server, name, &text, is_secret(name, &text))),
                    )
                }))
            }
            ("args", Value::Array(args)) => {
                // The flag before, when its value is a secret.
                let mut secret_of: Option<String> = None;
                let args = args.iter().enumerate().map(|(index, arg)| {
                    let text = arg.to_string();
                    let before = secret_of.take();
                    if text.starts_with('-') && before.is_none() {
                        let flag = text.split('=').next().unwrap_or("");
                        if !is_secret_name(flag) {
                            return Value::from(self.text(server, flag, &text, false));
                        }
                        if let Some((flag, value)) = text.split_once('=') {
                            let value = self.text(server, flag, value, true);
                            return Value::from(format!("{flag}={value}"));
                        }
                        secret_of = Some(flag.to_owned());
                        return Value::from(text);
                    }
                    let secret = before.is_some()
                        || has_password(&text)
                        || SECRET_VALUES.iter().any(|start| text.starts_with(start));
                    let name = before.unwrap_or_else(|| format!("argument-{index}"));
                    Value::from(self.text(server, &name, &text, secret))
                });
                args.collect::<Vec<_>>().into()
            }
            (_, Value::String(text)) => {
                Value::from(self.text(server, key, text, has_password(text)))
            }
            (_, other) => other.clone(),
        }
    }

    /// A text with variables as Segue spells them, and without secrets.
    fn text(&mut self, server: &str, name: &str, text: &str, secret: bool) -> String {
        if text.contains("${") {
            return self.variables(server, text);
        }
        if !secret || text.is_empty() {
            return text.to_owned();
        }
        let variable = variable_name(server, name);
        self.notes
            .push(format!("`{server}`: the value of `{name}` was not copied; set `{variable}`"));
        let scheme = ["Bearer ", "Basic "].iter().find(|scheme| text.starts_with(**scheme));
        format!("{}${{{variable}}}", scheme.unwrap_or(&""))
    }

    /// `${VAR}`, `${env:VAR}` and `${VAR:-default}` stay; what other hosts put in becomes a variable.
    fn variables(&mut self, server: &str, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            out.push_str(&rest[..start]);
            let after = &rest[start + 2..];
            let Some(end) = after.find('}') else { break };
            let inside = &after[..end];
            match inside {
                "workspaceFolder" | "workspaceRoot" | "cwd" => out.push('.'),
                "userHome" => out.push_str("${HOME}"),
                _ if inside.starts_with("input:") => {
                    let variable = variable_name(server, &inside["input:".len()..]);
                    self.notes.push(format!(
                        "`{server}`: `${{{inside}}}` is asked for elsewhere; set `{variable}`"
                    ));
                    let _ = write!(out, "${{{variable}}}");
                }
                _ => {
                    let _ = write!(out, "${{{inside}}}");
                }
            }
            rest = &after[end + 1..];
        }
        out.push_str(rest);
        out
    }
}

/// Fields that only Codex has.
fn codex(entry: &Value, fields: &mut Vec<(&'static str, Value)>) {
    let named = entry.get("env_vars").and_then(Value::as_array).cloned().unwrap_or_default();
    let passed = named.iter().filter_map(Value::as_str);
    let passed: Vec<(String, Value)> =
        passed.map(|name| (name.to_owned(), Value::from(format!("${{{name}}}")))).collect();
    if !passed.is_empty() {
        let at = fields.iter().position(|(key, _)| *key == "env");
        let present = at.map(|at| fields.remove(at).1);
        let present = present.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        let present = present.iter().map(|(k, v)| (k.to_string(), v.clone()));
        fields.push(("env", Value::object(present.chain(passed).collect::<Vec<_>>())));
    }
    if let Some(variable) = entry.get("bearer_token_env_var").and_then(Value::as_str) {
        let header = Value::from(format!("Bearer ${{{variable}}}"));
        fields.push(("headers", Value::object([("Authorization", header)])));
    }
    if let Some(seconds) = entry.get("tool_timeout_sec").and_then(Value::as_u64) {
        fields.push(("timeout", Value::from(format!("{seconds}s"))));
    }
}

fn is_secret(name: &str, value: &str) -> bool {
    is_secret_name(name)
        || SECRET_VALUES.iter().any(|start| value.starts_with(start))
        || has_password(value)
}

/// Whether an address holds a password.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    authority.split_once('@').is_some_and(|(user, _)| user.contains(':'))
}

/// `GITHUB_TOKEN` stays so; `authorization` of `api` becomes `API_AUTHORIZATION`.
fn variable_name(server: &str, name: &str) -> String {
    let upper = |text: &str| -> String {
        let text = text.trim_matches('-');
        text.chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect()
    };
    if name.contains('_') && name == name.to_uppercase() {
        return name.to_owned();
    }
    format!("{}_{}", upper(server), upper(name))
}

#[cfg(test)]
mod tests {
    use super::read;

    fn import(name: &str, text: &str) -> (String, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let imported = read(&file).unwrap();
        (imported.text, imported.notes)
    }

    #[test]
    fn secrets_are_never_copied() {
        let (text, notes) = import(
            "mcp.json",
            r#"{ // Claude Code
            "mcpServers": {
              "gh": { "command": "npx", "args": ["-y", "gh@1", "--token", "ghp_abc", "--api-key=zzz"],
                      "env": { "GITHUB_TOKEN": "ghp_123", "MODE": "fast", "HOME_DIR": "${HOME}" }, },
              "api": { "type": "http", "url": "https://u:pw@x.example/mcp", "headers": { "Authorization": "Bearer s3cr3t" } },
              "old": { "type": "sse", "url": "https://x.example" },
            } }"#,
        );
        for secret in ["ghp_", "zzz", "s3cr3t", "u:pw"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        for kept in
            ["${GITHUB_TOKEN}", "\"fast\"", "${HOME}", "Bearer ${API_AUTHORIZATION}", "${GH_TOKEN}"]
        {
            assert!(text.contains(kept), "{kept} not in {text}");
        }
        assert!(notes.iter().any(|note| note.contains("sse")));
    }

    #[test]
    fn every_host_is_understood() {
        let (text, notes) = import(
            "mcp.json",
            r#"{ "inputs": [{ "id": "tok", "type": "promptString" }],
            "servers": { "my server": { "type": "stdio", "command": "x", "args": ["${workspaceFolder}/a", "${env:B}", "${C:-d}"], "env": { "T": "${input:tok}" } } } }"#,
        );
        assert!(text.contains(r#"my-server: {"type":"stdio","command":"x","args":["./a","${env:B}","${C:-d}"],"env":{"T":"${MY_SERVER_TOK}"}}"#), "{text}");
        assert_eq!(notes.len(), 2);
        let (text, _) = import(
            "config.toml",
            "[mcp_servers.time]\ncommand = \"uvx\"\nargs = [\"mcp-server-time\"]\nenv_vars = [\"TZ\"]\ntool_timeout_sec = 5\n[mcp_servers.api]\nurl = \"https://x.example/mcp\"\nbearer_token_env_var = \"API_TOKEN\"\n",
        );
        assert!(text.contains(r#"time: {"command":"uvx","args":["mcp-server-time"],"env":{"TZ":"${TZ}"},"timeout":"5s"}"#), "{text}");
        assert!(text.contains(r#""Authorization":"Bearer ${API_TOKEN}""#), "{text}");
    }
}
