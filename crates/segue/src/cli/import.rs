//! The configuration of another MCP host → `mcpServers` of `segue.yaml`, for `segue init --from`.
//!
//! Starts no server and copies no secret: a text that looks like one becomes `${NAME}`, and a note says
//! which variable to set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use segue_core::value::Value;
use segue_runtime::tools::mcp::confusable_form;

use crate::config::secrets::{is_secret_name, parts};
use crate::config::{jsonc, servers};

/// The YAML of the servers, and notes for the user.
pub(super) struct ImportedServers {
    pub(super) text: String,
    pub(super) notes: Vec<String>,
}

/// Fields that are copied.
const KEPT: &[&str] = &["type", "command", "args", "env", "cwd", "url", "headers", "timeout"];

/// Fields that are translated to others, or that switch a server off.
const TURNED: &[&str] = &[
    "transport",
    "httpUrl",
    "serverUrl",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "env_vars",
    "tool_timeout_sec",
    "disabled",
    "enabled",
];

/// Fields without effect.
const WORDS: &[&str] = &["name", "description", "icon", "gallery", "version", "source"];

/// Reads the servers of a host's configuration.
pub(super) fn read(file: &Path) -> Result<ImportedServers, String> {
    let shown = file.display();
    let text =
        std::fs::read_to_string(file).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let is_toml = file.extension().is_some_and(|extension| extension == "toml");
    let whole = if is_toml { toml(&text) } else { jsonc::read(&text) };
    let whole = whole.map_err(|why| format!("`{shown}`: {why}"))?;
    let keys = ["mcpServers", "servers", "mcp_servers", "context_servers"];
    let entries =
        keys.iter().find_map(|key| whole.get(key)).or_else(|| whole.get("mcp")?.get("servers"));
    let entries = entries.and_then(Value::as_object).cloned();
    let projects = projects(&whole);
    if entries.as_ref().is_none_or(|entries| entries.is_empty()) && !projects.is_empty() {
        return Err(format!(
            "`{shown}` has servers of single projects only (`{}`): copy the `mcpServers` of one \
             into a file, and name that",
            projects.join("`, `")
        ));
    }
    let entries =
        entries.ok_or_else(|| format!("`{shown}` has no `mcpServers` and no `servers`"))?;
    if entries.is_empty() {
        return Err(format!("`{shown}` has no servers"));
    }
    let mut import = Import::default();
    for (name, entry) in entries.iter() {
        import.server(name, entry);
    }
    if import.lines.is_empty() {
        let why = import.notes.join("; ");
        return Err(format!("`{shown}` has no server that can be used: {why}"));
    }
    if !projects.is_empty() {
        let projects = projects.join("`, `");
        import.notes.push(format!("the servers of `{projects}` alone were left out"));
    }
    let text = format!("# From {}\nmcpServers:\n{}", file_name(file), import.lines);
    Ok(ImportedServers { text, notes: import.notes })
}

/// Projects with servers of their own: Claude Code keeps them in the same file.
fn projects(whole: &Value) -> Vec<String> {
    let projects = whole.get("projects").and_then(Value::as_object).cloned().unwrap_or_default();
    let has_servers = |project: &Value| {
        let servers = project.get("mcpServers").and_then(Value::as_object);
        servers.is_some_and(|servers| !servers.is_empty())
    };
    let projects = projects.iter().filter(|(_, project)| has_servers(project));
    projects.map(|(name, _)| name.to_string()).collect()
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
    /// The names of the servers in a form that makes look-alikes equal.
    looks: BTreeSet<String>,
    /// Variables for secrets, with the secret: two secrets never share a variable.
    variables: BTreeMap<String, String>,
}

impl Import {
    fn server(&mut self, given: &str, entry: &Value) {
        let name = self.name(given);
        if let Err(why) = servers::is_name(&name) {
            return self.notes.push(format!("`{given}` was left out: {why}"));
        }
        if entry.get("disabled").and_then(Value::as_bool) == Some(true)
            || entry.get("enabled").and_then(Value::as_bool) == Some(false)
        {
            return self.notes.push(format!("`{given}` was left out: it is switched off"));
        }
        // Notes about a server that is left out are dropped.
        let before = self.notes.len();
        if name != given {
            self.notes.push(format!("`{given}` was renamed to `{name}`"));
        }
        let written = self.entry(&name, entry);
        if let Err(why) = servers::check(&name, &written) {
            self.notes.truncate(before);
            return self.notes.push(format!("`{given}` was left out: {why}"));
        }
        self.looks.insert(confusable_form(&name));
        let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && !matches!(&*name.to_lowercase(), "null" | "true" | "false");
        let key = if is_plain { name } else { format!("\"{name}\"") };
        let _ = writeln!(self.lines, "  {key}: {}", written.to_json());
    }

    /// The name of a server in `segue.yaml`: plain, and unlike every other.
    fn name(&self, given: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' };
        let name: String = given.chars().map(plain).collect();
        let name = name.trim_matches('-');
        let more = (2..).map(|count| format!("{name}-{count}"));
        let mut names = std::iter::once(name.to_owned()).chain(more);
        names.find(|name| !self.looks.contains(&confusable_form(name))).unwrap_or_default()
    }

    /// The entry of a server in `segue.yaml`.
    fn entry(&mut self, name: &str, entry: &Value) -> Value {
        let mut fields: Vec<(&str, Value)> = Vec::new();
        for key in KEPT {
            // Some hosts use other names.
            let others: &[&str] = match *key {
                "url" => &["httpUrl", "serverUrl", "url"],
                "type" => &["type", "transport"],
                "headers" => &["headers", "http_headers"],
                _ => &[key],
            };
            if let Some(value) = others.iter().find_map(|key| entry.get(key)) {
                fields.push((key, self.field(name, key, value)));
            }
        }
        codex(entry, &mut fields);
        if entry.get("envFile").is_some() {
            self.notes.push(format!("`{name}`: `envFile` is not read; set its variables yourself"));
        }
        let known = |key: &str| {
            [KEPT, TURNED, WORDS].iter().any(|keys| keys.contains(&key)) || key == "envFile"
        };
        let members = entry.as_object().into_iter().flat_map(|members| members.iter());
        let left: Vec<&str> = members.map(|(key, _)| &**key).filter(|key| !known(key)).collect();
        if !left.is_empty() {
            self.notes.push(format!("`{name}`: not imported: `{}`", left.join("`, `")));
        }
        Value::object(fields)
    }

    fn field(&mut self, server: &str, key: &str, value: &Value) -> Value {
        match (key, value) {
            ("env" | "headers", Value::Object(members)) => {
                Value::object(members.iter().map(|(name, value)| {
                    (name.clone(), Value::from(self.text(server, name, &value.to_string())))
                }))
            }
            ("args", Value::Array(args)) => {
                let mut flag: Option<String> = None;
                let args = args.iter().enumerate().map(|(index, arg)| {
                    let text = arg.to_string();
                    // The argument after a flag is its value, unless it is a flag, too.
                    let before = flag.take().filter(|_| !text.starts_with("--"));
                    let is_flag = text.starts_with('-') && !text.contains('=') && before.is_none();
                    let name = before.unwrap_or_else(|| format!("argument-{index}"));
                    if is_flag {
                        flag = Some(text.clone()).filter(|flag| takes_secrets(flag));
                    }
                    Value::from(self.text(server, &name, &text))
                });
                args.collect::<Vec<_>>().into()
            }
            (_, Value::String(text)) => Value::from(self.text(server, key, text)),
            (_, other) => other.clone(),
        }
    }

    /// A text with variables in Segue's syntax and without secrets. `${VAR}` and `${env:VAR}` stay;
    /// placeholders of other hosts become variables.
    fn text(&mut self, server: &str, name: &str, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((inside, after)) = after.split_once('}') else { break };
            self.literal(server, name, before, true, &mut out);
            match inside {
                "workspaceFolder" | "workspaceRoot" | "cwd" => out.push('.'),
                "userHome" => out.push_str("${HOME}"),
                _ if inside.starts_with("input:") => {
                    let variable = variable_name(server, &inside["input:".len()..]);
                    self.notes.push(format!(
                        "`{server}`: Segue does not prompt for `${{{inside}}}`; set `{variable}`"
                    ));
                    let _ = write!(out, "${{{variable}}}");
                }
                _ => {
                    let is_secret = is_secret_name(name) || parts::ends_with_name(before);
                    let inside = self.without_default(server, inside, is_secret);
                    let _ = write!(out, "${{{inside}}}");
                }
            }
            rest = after;
        }
        self.literal(server, name, rest, rest.len() < text.len(), &mut out);
        out
    }

    /// A variable without its default, if the default is a secret.
    fn without_default<'a>(&mut self, server: &str, inside: &'a str, is_secret: bool) -> &'a str {
        let Some((variable, default)) = inside.split_once(":-") else { return inside };
        let is_secret = is_secret || is_secret_name(variable);
        if default.is_empty() || !is_secret && parts::secret_parts("", default).is_empty() {
            return inside;
        }
        let set = variable.strip_prefix("env:").unwrap_or(variable);
        self.notes.push(format!("`{server}`: the default of `{set}` was not copied; set `{set}`"));
        variable
    }

    /// Copies a text without variables, or the part before or after one, with secrets replaced.
    fn literal(&mut self, server: &str, name: &str, text: &str, is_part: bool, out: &mut String) {
        // Text beside a variable describes it, such as `Bearer ` or `session=`.
        let about = text.trim_end().is_empty() || text.ends_with([' ', '=', ':']);
        let name_here = if is_part && about { "" } else { name };
        let mut at = 0;
        for part in parts::secret_parts(name_here, text) {
            let called = part.name.as_deref().unwrap_or(name);
            let value = &text[part.range.clone()];
            let variable = self.variable(server, called, value);
            let note =
                format!("`{server}`: the value of `{called}` was not copied; set `{variable}`");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
            out.push_str(&text[at..part.range.start]);
            let _ = write!(out, "${{{variable}}}");
            at = part.range.end;
        }
        out.push_str(&text[at..]);
    }

    /// The variable for a secret. Different secrets get different variables.
    fn variable(&mut self, server: &str, name: &str, value: &str) -> String {
        let own = variable_name(server, name);
        let full = format!("{}_{}", upper(server), upper(name));
        let more = (2..).map(|count| format!("{full}_{count}"));
        let mut names = [own, full.clone()].into_iter().chain(more);
        let is_free = |variable: &String| self.variables.get(variable).is_none_or(|v| v == value);
        let variable = names.find(is_free).unwrap_or(full);
        self.variables.insert(variable.clone(), value.to_owned());
        variable
    }
}

/// Flags whose values may be secrets.
fn takes_secrets(flag: &str) -> bool {
    is_secret_name(flag) || matches!(flag, "--header" | "--headers" | "-H")
}

/// Fields that only Codex has.
fn codex(entry: &Value, fields: &mut Vec<(&'static str, Value)>) {
    let named = entry.get("env_vars").and_then(Value::as_array).cloned().unwrap_or_default();
    let named = named.iter().filter_map(Value::as_str);
    add(fields, "env", named.map(|name| (name.to_owned(), format!("${{{name}}}"))).collect());
    let mut headers = Vec::new();
    if let Some(named) = entry.get("env_http_headers").and_then(Value::as_object) {
        headers.extend(named.iter().map(|(k, v)| (k.to_string(), format!("${{{v}}}"))));
    }
    if let Some(variable) = entry.get("bearer_token_env_var").and_then(Value::as_str) {
        headers.push(("Authorization".to_owned(), format!("Bearer ${{{variable}}}")));
    }
    add(fields, "headers", headers);
    if let Some(seconds) = entry.get("tool_timeout_sec").and_then(Value::as_u64) {
        fields.push(("timeout", Value::from(format!("{seconds}s"))));
    }
}

/// Adds members to a field.
fn add(fields: &mut Vec<(&'static str, Value)>, key: &'static str, more: Vec<(String, String)>) {
    if more.is_empty() {
        return;
    }
    let at = fields.iter().position(|(name, _)| *name == key);
    let present = at.map(|at| fields.remove(at).1);
    let present = present.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    let present = present.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let more = more.into_iter().map(|(name, text)| (name, Value::from(text)));
    fields.push((key, Value::object(present.chain(more).collect::<Vec<_>>())));
}

/// `GITHUB_TOKEN` stays so; `authorization` of `api` becomes `API_AUTHORIZATION`.
fn variable_name(server: &str, name: &str) -> String {
    if name.contains('_') && name == name.to_uppercase() {
        return upper(name);
    }
    format!("{}_{}", upper(server), upper(name))
}

/// A name in the form of an environment variable.
fn upper(name: &str) -> String {
    let name = name.trim_matches('-');
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = name.chars().map(upper).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
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

    /// The ways in which hosts' users write them.
    #[test]
    fn secrets_in_arguments_addresses_and_defaults_are_not_copied() {
        let (text, notes) = import(
            "mcp.json",
            r#"{ "mcpServers": {
              "tavily": { "url": "https://x.example/mcp/?tavilyApiKey=tvly-dev-AbC" },
              "remote": { "command": "npx", "args": ["mcp-remote", "https://x.example/mcp", "--header", "Authorization: Bearer eyJh.abc", "--header", "X-API-KEY:zzz999"] },
              "docker": { "command": "docker", "args": ["run", "-e", "GITHUB_TOKEN=ghp_realone", "-eFOO_KEY=abc123", "--no-auth", "--port", "3000", "img"] },
              "dflt": { "command": "x", "env": { "API_TOKEN": "${API_TOKEN:-sk-realsecret}", "A": "${B:-c}", "PASSPHRASE": "pp9",
                        "NOTION": "{\"Authorization\":\"Bearer ntn_12345\"}", "GITHUB_TOKEN": "ghp_other", "COOKIE": "session=${S}" } },
              "cmd": { "command": "env", "args": ["SECRET=abc4", "srv"] },
              "zap": { "url": "https://x.example/s/MzQ1NjY3ODkwYWJjZGVmZ2hpamtsbW5vcA==/mcp" } } }"#,
        );
        for secret in
            ["tvly", "eyJh", "zzz9", "ghp_", "abc1", "realsec", "pp9", "ntn_", "abc4", "MzQ1"]
        {
            assert!(!text.contains(secret), "{secret} in {text}");
            assert!(!notes.iter().any(|note| note.contains(secret)), "{secret} in {notes:?}");
        }
        for kept in [
            "?tavilyApiKey=${TAVILY_TAVILYAPIKEY}",
            r#""Authorization: Bearer ${REMOTE_AUTHORIZATION}","--header","X-API-KEY:${REMOTE_X_API_KEY}""#,
            r#""-e","GITHUB_TOKEN=${GITHUB_TOKEN}","-eFOO_KEY=${FOO_KEY}","--no-auth","--port","3000""#,
            r#""API_TOKEN":"${API_TOKEN}","A":"${B:-c}""#,
            // Another secret of the same name has a variable of its own.
            r#""GITHUB_TOKEN":"${DFLT_GITHUB_TOKEN}","COOKIE":"session=${S}""#,
            r#"{\"Authorization\":\"Bearer ${DFLT_AUTHORIZATION}\"}"#,
            "/s/${ZAP_URL}/mcp",
        ] {
            assert!(text.contains(kept), "{kept} not in {text}");
        }
        assert!(notes.iter().any(|note| note.contains("set `API_TOKEN`")), "{notes:?}");
    }

    /// The written configuration loads, and notes name what was not imported.
    #[test]
    fn every_server_can_be_used_or_is_said_to_be_left_out() {
        let (text, notes) = import(
            "mcp.json",
            r#"{ "mcpServers": { "a b": { "command": "x" }, "a-b": { "command": "y" }, "Foo": { "command": "z" }, "foo": { "command": "q" },
              "surf": { "serverUrl": "https://x.example/mcp" }, "gem": { "httpUrl": "https://y.example/mcp", "url": "https://y.example/sse", "includeTools": ["t"] },
              "none": {}, "old": { "transport": "sse", "url": "https://x.example" }, "open": { "command": "${X" }, "1.5": { "command": "x" } },
              "projects": { "/p": { "mcpServers": { "z": { "command": "x" } } } } }"#,
        );
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                r#"  a-b: {"command":"x"}"#,
                r#"  a-b-2: {"command":"y"}"#,
                r#"  Foo: {"command":"z"}"#,
                r#"  foo-2: {"command":"q"}"#,
                r#"  surf: {"url":"https://x.example/mcp"}"#,
                r#"  gem: {"url":"https://y.example/mcp"}"#,
                r#"  "1.5": {"command":"x"}"#,
            ]
        );
        for words in [
            "`foo` was renamed to `foo-2`",
            "`gem`: not imported: `includeTools`",
            "`none` was left out: it needs a `command` or a `url`",
            "`old` was left out: the old transport",
            "`open` was left out: `${` is never closed",
            "the servers of `/p` alone were left out",
        ] {
            assert!(notes.iter().any(|note| note.contains(words)), "{words}: {notes:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("claude.json");
        std::fs::write(&file, r#"{"projects":{"/p":{"mcpServers":{"z":{}}}},"mcpServers":{}}"#)
            .unwrap();
        assert!(read(&file).err().unwrap().contains("single projects only (`/p`)"));
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
        let (text, notes) = import(
            "config.toml",
            "[mcp_servers.time]\ncommand = \"uvx\"\nargs = [\"mcp-server-time\"]\nenv_vars = [\"TZ\"]\ntool_timeout_sec = 5\n[mcp_servers.api]\nurl = \"https://x.example/mcp\"\nbearer_token_env_var = \"API_TOKEN\"\nhttp_headers = { X = \"v\", X-Secret = \"s3cr3t\" }\nenv_http_headers = { Y = \"Y_VAR\" }\nenabled_tools = [\"a\"]\n",
        );
        assert!(text.contains(r#"time: {"command":"uvx","args":["mcp-server-time"],"env":{"TZ":"${TZ}"},"timeout":"5s"}"#), "{text}");
        let headers = r#""headers":{"X":"v","X-Secret":"${API_X_SECRET}","Y":"${Y_VAR}","Authorization":"Bearer ${API_TOKEN}"}"#;
        assert!(text.contains(headers), "{text}");
        assert!(notes.contains(&"`api`: not imported: `enabled_tools`".to_owned()), "{notes:?}");
    }
}
