//! The tree of `segue.yaml` → [`Config`], with every finding.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::access::INLINE;
use segue_core::diagnostic::{Code, Diagnostic, nearest_name};
use segue_core::document::{Member, Node, NodeKind, ReadLimits, read as read_document};
use segue_core::duration::parse_duration;
use segue_core::limits::Limits;
use segue_core::source::{Source, Span};
use segue_core::tool::{ConfirmPolicy, DeclaredRollback};
use segue_core::toolset::ToolsetBuilder;
use segue_core::value::Value;
use segue_runtime::tools::command::CommandConfig;
use segue_runtime::tools::http::HttpConfig;
use segue_runtime::tools::http::address::AddressPolicy;
use segue_runtime::tools::redact::SECRET_BYTES_MIN;

use super::documents::DocumentPattern;
use super::expand::expand;
use super::secrets::is_secret_name;
use super::trust::has_variable;
use super::{
    Config, GrantedParts, RunRetention, ServeConfig, StoreLocation, TlsFiles, ToolOverride, secrets,
};

const TOP: &[&str] = &[
    "mcpServers",
    "servers",
    "inputs",
    "openapi",
    "commands",
    "http",
    "builtins",
    "sources",
    "tools",
    "toolsets",
    "compositions",
    "templates",
    "store",
    "retention",
    "driver",
    "llm",
    "server",
    "observe",
    "limits",
];

/// What has a place in the file and is not used by this version.
pub(super) const UNUSED: &[&str] = &["inputs", "openapi", "driver"];

const COMMAND: &[&str] = &[
    "argv",
    "input",
    "output",
    "read_only",
    "destructive",
    "idempotent",
    "cwd",
    "env",
    "description",
    "timeout",
];

const HTTP: &[&str] = &[
    "method",
    "url",
    "headers",
    "query",
    "body",
    "input",
    "output",
    "read_only",
    "destructive",
    "idempotent",
    "description",
    "timeout",
];

const TOOL: &[&str] = &[
    "rollback",
    "idempotent",
    "read_only",
    "destructive",
    "confirm",
    "max_concurrency",
    "tags",
    "scopes",
    "category",
];

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whether what a configuration grants has an effect, or is only shown.
pub(super) type TrustCheck<'a> = &'a dyn Fn(&GrantedParts) -> bool;

/// Reads a configuration. The parts of one that is not allowed to grant anything are not given the
/// environment's variables.
pub(super) fn read(
    source: &Source,
    file: &Path,
    env: Env<'_>,
    allows: TrustCheck<'_>,
) -> (Config, Vec<Diagnostic>) {
    let is_empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if source.text().lines().all(is_empty) {
        return (Config::default(), Vec::new());
    }
    let root = match read_document(source, ReadLimits::for_documents(&Limits::default())) {
        Ok(root) => root,
        Err(diagnostics) => return (Config::default(), diagnostics),
    };
    let folder = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    let (given, short) = (RefCell::new(Vec::new()), RefCell::new(BTreeSet::new()));
    let env = |name: &str| {
        let value = env(name);
        let is_short = |value: &String| !value.is_empty() && value.len() < SECRET_BYTES_MIN;
        if is_secret_name(name) && value.as_ref().is_some_and(is_short) {
            short.borrow_mut().insert(name.to_owned());
        }
        given.borrow_mut().extend(value.clone().filter(|_| !is_public(name)));
        value
    };
    let (toolsets_meant, findings) = (Vec::new(), Vec::new());
    let text = source.text();
    let mut reader = ConfigReader {
        folder,
        env: &env,
        is_untrusted_part: false,
        toolset_refs: toolsets_meant,
        findings,
        text,
    };
    let mut config = reader.config(&root, allows);
    let mut findings = reader.findings;
    findings.extend(short.take().iter().map(|name| too_short(source, name)));
    config.secrets = given.take();
    config.secrets.extend(config.servers.values().flat_map(secrets::of_server));
    config.secrets.extend(config.commands.values().flat_map(secrets::of_command));
    config.secrets.extend(config.http.values().flat_map(secrets::of_operation));
    config.secrets.extend(config.server.token.clone());
    config.secrets.extend(config.llm.as_ref().and_then(|llm| llm.api_key.clone()));
    for Member { key, key_span, .. } in root.get("tools").map_or(&[][..], Node::members) {
        if let Some(known) = config.tools.get_mut(key) {
            let at = source.position(key_span.start);
            known.place = format!("{}:{}:{}", source.name(), at.line, at.column);
        }
    }
    (config, findings)
}

/// A secret that nobody can tell from an ordinary word.
fn too_short(source: &Source, name: &str) -> Diagnostic {
    let message = format!(
        "the value of `{name}` is too short to be taken out of what tools answer: \
         {SECRET_BYTES_MIN} characters are the least"
    );
    let start = source.text().find(name).unwrap_or(0);
    Diagnostic::warning(Code::Config, message, Span::new(start, start + name.len()))
}

/// Variables that say where things are, and stand in every path.
pub(super) fn is_public(name: &str) -> bool {
    matches!(
        name,
        "HOME" | "PWD" | "USER" | "LOGNAME" | "PATH" | "SHELL" | "LANG" | "TMPDIR" | "HOSTNAME"
    ) || name.starts_with("XDG_")
}

pub(super) struct ConfigReader<'a> {
    pub(super) folder: PathBuf,
    pub(super) env: Env<'a>,
    /// Whether it reads a part that is not trusted.
    pub(super) is_untrusted_part: bool,
    /// Toolsets that principals are held to, and where that is said.
    pub(super) toolset_refs: Vec<(Arc<str>, Span)>,
    findings: Vec<Diagnostic>,
    /// The text that spans are of.
    text: &'a str,
}

/// Leaves variables as they are written.
#[expect(clippy::unnecessary_wraps, reason = "an environment, in which a variable may be missing")]
fn unexpanded(name: &str) -> Option<String> {
    Some(format!("${{{name}}}"))
}

impl ConfigReader<'_> {
    fn config(&mut self, root: &Node, allows: TrustCheck<'_>) -> Config {
        let mut config = Config::default();
        if root.kind == NodeKind::Null || !self.keys(root, TOP, "the configuration") {
            return config;
        }
        config.grants = GrantedParts::read(root);
        let allows = allows(&config.grants);
        for member in root.members() {
            if allows || !config.grants.parts.contains(&member.key) {
                self.part(member, &mut config);
            } else {
                self.withheld(member, &mut config);
            }
        }
        self.check_toolsets_meant(&config);
        if let Some(more) = config.server.inline.as_ref().and_then(|it| config.toolsets.get(it)) {
            let inline = ToolsetBuilder::inline(Some(more));
            config.toolsets.insert(INLINE.into(), inline);
        }
        config
    }

    /// Reads a part that has no effect. Its variables are not looked up, and what cannot be told without
    /// their values is no mistake yet.
    fn withheld(&mut self, member: &Member, config: &mut Config) {
        let (env, before, meant) = (self.env, self.findings.len(), self.toolset_refs.len());
        (self.env, self.is_untrusted_part) = (&unexpanded, true);
        self.part(member, config);
        (self.env, self.is_untrusted_part) = (env, false);
        let has_variable =
            |span: Span| self.text.get(span.range()).is_some_and(|it| it.contains("${"));
        let mut later = self.findings.split_off(before);
        later.retain(|finding| !has_variable(finding.span));
        self.findings.append(&mut later);
        let mut later = self.toolset_refs.split_off(meant);
        later.retain(|(_, span)| !has_variable(*span));
        self.toolset_refs.append(&mut later);
    }

    fn part(&mut self, member: &Member, config: &mut Config) {
        let value = &member.value;
        match &*member.key {
            "commands" => config.commands = self.each(value, Self::command),
            // The shape that every MCP host reads, and the key that one of them has for it.
            "mcpServers" | "servers" => self.servers(value, config),
            "http" => config.http = self.each(value, Self::http),
            "builtins" => self.builtins(value, config),
            "tools" => {
                config.tools =
                    self.each(value, Self::tool).into_iter().map(|(k, v)| (k.into(), v)).collect();
            }
            "sources" => {
                config.sources = self
                    .each(value, Self::source)
                    .into_iter()
                    .map(|(k, v)| (k.into(), v))
                    .collect();
            }
            "toolsets" => config.toolsets = self.toolsets(value),
            "compositions" => config.compositions = self.documents(value, "`compositions`"),
            "templates" => config.templates = self.documents(value, "`templates`"),
            "store" => config.store = self.store(value),
            "retention" => config.retention = self.retention(value),
            "limits" => config.limits = self.limits(value),
            "server" => config.server = self.server(value),
            "observe" => config.traces = self.observe(value),
            "llm" => config.llm = self.llm(value),
            "driver" if value.as_str().is_some_and(|word| &**word == "local") => {}
            other if UNUSED.contains(&other) => self.later(member),
            _ => {}
        }
    }

    /// A toolset that is not there would leave nothing to whoever is held to it.
    fn check_toolsets_meant(&mut self, config: &Config) {
        for (name, span) in std::mem::take(&mut self.toolset_refs) {
            if config.toolsets.contains_key(&name) {
                continue;
            }
            let message = format!("there is no toolset `{name}`");
            let finding = Diagnostic::error(Code::Config, message, span);
            let names = config.toolsets.keys().map(|name| &**name);
            self.findings.push(match nearest_name(&name, names) {
                Some(near) => finding.help(format!("did you mean `{near}`?")),
                None => finding.help("`toolsets` defines them"),
            });
        }
    }

    fn later(&mut self, member: &Member) {
        let message = format!("`{}` is not used by this version", member.key);
        self.findings.push(Diagnostic::warning(Code::Unsupported, message, member.key_span));
    }

    pub(super) fn error(&mut self, span: Span, message: impl Into<String>) {
        self.findings.push(Diagnostic::error(Code::Config, message, span));
    }

    /// Checks that a node is an object with these keys only.
    pub(super) fn keys(&mut self, node: &Node, known: &[&str], what: &str) -> bool {
        if !matches!(node.kind, NodeKind::Object(_)) {
            self.error(node.span, format!("{what} must be an object, found {}", node.kind_name()));
            return false;
        }
        for member in node.members() {
            if known.contains(&&*member.key) {
                continue;
            }
            let message = format!("{what} has no field `{}`", member.key);
            let finding = Diagnostic::error(Code::Config, message, member.key_span);
            self.findings.push(match nearest_name(&member.key, known.iter().copied()) {
                Some(near) => finding.fix(member.key_span, near),
                None => finding.help(format!("its fields are `{}`", known.join("`, `"))),
            });
        }
        true
    }

    pub(super) fn each<T>(
        &mut self,
        node: &Node,
        read: fn(&mut Self, &Node) -> Option<T>,
    ) -> BTreeMap<String, T> {
        if !matches!(node.kind, NodeKind::Object(_)) {
            self.error(node.span, format!("expected an object, found {}", node.kind_name()));
        }
        let members = node.members().iter();
        members
            .filter_map(|m| read(self, &m.value).map(|value| (m.key.to_string(), value)))
            .collect()
    }

    pub(super) fn text(&mut self, node: &Node, what: &str) -> Option<String> {
        let Some(text) = node.as_str() else {
            self.error(node.span, format!("{what} must be text, found {}", node.kind_name()));
            return None;
        };
        match expand(text, self.env) {
            Ok(text) => Some(text),
            Err(message) => {
                self.error(node.span, message);
                None
            }
        }
    }

    pub(super) fn texts(&mut self, node: &Node, what: &str) -> Vec<String> {
        if node.as_str().is_some() {
            return self.text(node, what).into_iter().collect();
        }
        if !matches!(node.kind, NodeKind::Array(_)) {
            self.error(node.span, format!("{what} must be a list, found {}", node.kind_name()));
        }
        node.items().iter().filter_map(|item| self.text(item, what)).collect()
    }

    /// Patterns of documents.
    fn documents(&mut self, node: &Node, what: &str) -> Vec<DocumentPattern> {
        let is_one = node.as_str().is_some();
        if !is_one && !matches!(node.kind, NodeKind::Array(_)) {
            self.error(node.span, format!("{what} must be a list, found {}", node.kind_name()));
        }
        let items = if is_one { std::slice::from_ref(node) } else { node.items() };
        let patterns = items.iter().filter_map(|item| {
            let pattern = self.text(item, what)?;
            Some(DocumentPattern {
                as_written: item.as_str()?.to_string(),
                expanded: Some(pattern).filter(|_| !self.is_untrusted(item)),
            })
        });
        patterns.collect()
    }

    /// Whether the variables of a value are not looked up.
    pub(super) fn is_untrusted(&self, node: &Node) -> bool {
        self.is_untrusted_part && has_variable(node)
    }

    fn flag(&mut self, node: &Node, key: &str) -> Option<bool> {
        let value = node.get(key)?;
        if let NodeKind::Bool(flag) = value.kind {
            return Some(flag);
        }
        self.error(
            value.span,
            format!("`{key}` must be true or false, found {}", value.kind_name()),
        );
        None
    }

    /// A value with every text in it expanded.
    fn value(&mut self, node: &Node) -> Value {
        match &node.kind {
            NodeKind::String(_) => self.text(node, "a value").map_or(Value::Null, Value::from),
            NodeKind::Array(items) => {
                items.iter().map(|item| self.value(item)).collect::<Vec<_>>().into()
            }
            NodeKind::Object(members) => Value::object(
                members.iter().map(|m| (m.key.clone(), self.value(&m.value))).collect::<Vec<_>>(),
            ),
            _ => node.to_value(),
        }
    }

    fn text_map(&mut self, node: Option<&Node>, what: &str) -> BTreeMap<String, String> {
        let Some(node) = node else { return BTreeMap::new() };
        let members = node.members().iter();
        members.filter_map(|m| self.text(&m.value, what).map(|t| (m.key.to_string(), t))).collect()
    }

    pub(super) fn timeout(&mut self, node: &Node) -> Option<std::time::Duration> {
        let value = node.get("timeout")?;
        let text = self.text(value, "`timeout`")?;
        let millis = parse_duration(&text);
        if millis.is_none() {
            self.error(value.span, format!("`{text}` is not a duration, such as `30s`"));
        }
        millis.map(std::time::Duration::from_millis)
    }

    fn command(&mut self, node: &Node) -> Option<CommandConfig> {
        if !self.keys(node, COMMAND, "a command") {
            return None;
        }
        let Some(argv) = node.get("argv") else {
            self.error(
                node.span,
                "a command needs `argv`, a list of the program and its arguments",
            );
            return None;
        };
        let cwd = node.get("cwd").and_then(|cwd| self.text(cwd, "`cwd`"));
        Some(CommandConfig {
            argv: argv.items().iter().map(|word| self.value(word)).collect(),
            input: node.get("input").map(Node::to_value),
            output: node.get("output").map(Node::to_value),
            read_only: self.flag(node, "read_only"),
            destructive: self.flag(node, "destructive"),
            idempotent: self.flag(node, "idempotent"),
            cwd: Some(cwd.map_or_else(|| self.folder.clone(), |cwd| self.folder.join(cwd)))
                .filter(|cwd| !cwd.as_os_str().is_empty()),
            env: self.text_map(node.get("env"), "a variable"),
            description: self.description(node),
            timeout: self.timeout(node),
        })
    }

    fn description(&mut self, node: &Node) -> String {
        let text = node.get("description").and_then(|text| self.text(text, "`description`"));
        text.unwrap_or_default()
    }

    fn http(&mut self, node: &Node) -> Option<HttpConfig> {
        if !self.keys(node, HTTP, "an HTTP operation") {
            return None;
        }
        let Some(url) = node.get("url").and_then(|url| self.text(url, "`url`")) else {
            self.error(node.span, "an HTTP operation needs a `url`");
            return None;
        };
        let query = node.get("query").map_or(&[][..], Node::members);
        Some(HttpConfig {
            method: node.get("method").and_then(|m| self.text(m, "`method`")).unwrap_or_default(),
            url,
            headers: self.text_map(node.get("headers"), "a header"),
            query: query.iter().map(|m| (m.key.to_string(), self.value(&m.value))).collect(),
            body: node.get("body").map(|body| self.value(body)),
            input: node.get("input").map(Node::to_value),
            output: node.get("output").map(Node::to_value),
            read_only: self.flag(node, "read_only"),
            destructive: self.flag(node, "destructive"),
            idempotent: self.flag(node, "idempotent"),
            description: self.description(node),
            timeout: self.timeout(node),
        })
    }

    fn server(&mut self, node: &Node) -> ServeConfig {
        let known = &[
            "listen",
            "token",
            "allowed_origins",
            "allowed_hosts",
            "tls",
            "principals",
            "oidc",
            "inline",
        ];
        if !self.keys(node, known, "`server`") {
            return ServeConfig::default();
        }
        let token = node.get("token").and_then(|token| self.text(token, "`token`"));
        if token.as_ref().is_some_and(String::is_empty) {
            self.error(node.span, "an empty `token` would let everybody in");
        }
        let principals =
            node.get("principals").map_or_else(Vec::new, |n| self.principals(n, token.as_deref()));
        ServeConfig {
            listen: node.get("listen").and_then(|listen| self.text(listen, "`listen`")),
            token,
            allowed_origins: node
                .get("allowed_origins")
                .map_or_else(Vec::new, |origins| self.texts(origins, "`allowed_origins`")),
            allowed_hosts: node
                .get("allowed_hosts")
                .map_or_else(Vec::new, |hosts| self.texts(hosts, "`allowed_hosts`")),
            tls: node.get("tls").and_then(|tls| self.tls(tls)),
            principals,
            oidc: node.get("oidc").and_then(|oidc| self.oidc(oidc)),
            inline: node.get("inline").and_then(|inline| {
                let name: Arc<str> = self.text(inline, "`inline`")?.into();
                self.toolset_refs.push((name.clone(), inline.span));
                Some(name)
            }),
        }
    }

    fn tls(&mut self, node: &Node) -> Option<TlsFiles> {
        if !self.keys(node, &["cert", "key"], "`tls`") {
            return None;
        }
        let mut file = |name: &str| {
            let text = node.get(name).and_then(|file| self.text(file, &format!("`{name}`")));
            text.map(|file| self.folder.join(file))
        };
        let files = (file("cert"), file("key"));
        let (Some(cert), Some(key)) = files else {
            self.error(node.span, "`tls` has a `cert` and a `key`");
            return None;
        };
        Some(TlsFiles { cert, key })
    }

    fn builtins(&mut self, node: &Node, config: &mut Config) {
        if !self.keys(node, &["files", "http"], "`builtins`") {
            return;
        }
        if let Some(files) = node.get("files")
            && self.keys(files, &["root", "overwrite"], "`files`")
        {
            let root = files.get("root").filter(|root| !self.is_untrusted(root));
            let root = root.and_then(|root| self.text(root, "`root`"));
            config.files_root = root.map(|root| self.folder.join(root));
            let overwrite = files.get("overwrite");
            config.overwrite = overwrite.map_or_else(Vec::new, |it| self.texts(it, "`overwrite`"));
        }
        if let Some(http) = node.get("http")
            && self.keys(http, &["allow"], "`http`")
        {
            config.http_allow = http.get("allow").map_or_else(Vec::new, |n| self.allow(n));
        }
    }

    /// Hosts that may be reached; one that cannot be read is said here, not at the first call.
    fn allow(&mut self, node: &Node) -> Vec<String> {
        let rules = self.texts(node, "`allow`");
        if let Err(message) = AddressPolicy::new(rules.iter().map(String::as_str)) {
            self.error(node.span, message);
        }
        rules
    }

    fn tool(&mut self, node: &Node) -> Option<ToolOverride> {
        if !self.keys(node, TOOL, "a tool") {
            return None;
        }
        Some(ToolOverride {
            place: String::new(),
            rollback: node.get("rollback").and_then(|rollback| self.rollback(rollback)),
            idempotent: self.flag(node, "idempotent"),
            read_only: self.flag(node, "read_only"),
            destructive: self.flag(node, "destructive"),
            confirm: node.get("confirm").and_then(|confirm| self.confirm(confirm)),
            max_concurrency: self.max_concurrency(node),
            tags: node.get("tags").map(|tags| self.name_list(tags, "`tags`")),
            scopes: node.get("scopes").map(|scopes| self.name_list(scopes, "`scopes`")),
            category: node
                .get("category")
                .and_then(|category| self.text(category, "`category`"))
                .map(Arc::from),
        })
    }

    fn source(&mut self, node: &Node) -> Option<u32> {
        if !self.keys(node, &["max_concurrency"], "a source") {
            return None;
        }
        self.max_concurrency(node)
    }

    /// Calls at once: at least one, or nothing would ever leave.
    fn max_concurrency(&mut self, node: &Node) -> Option<u32> {
        let value = node.get("max_concurrency")?;
        let number = value.to_value().as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            self.error(value.span, "`max_concurrency` must be a whole number from 1");
        }
        number
    }

    fn confirm(&mut self, node: &Node) -> Option<ConfirmPolicy> {
        match &*self.text(node, "`confirm`")? {
            "always" => Some(ConfirmPolicy::Always),
            "never" => Some(ConfirmPolicy::Never),
            other => {
                self.error(node.span, format!("`confirm` is `always` or `never`, not `{other}`"));
                None
            }
        }
    }

    fn rollback(&mut self, node: &Node) -> Option<DeclaredRollback> {
        if node.as_str().is_some_and(|word| &**word == "none") {
            return Some(DeclaredRollback::NotNeeded);
        }
        if !self.keys(node, &["tool", "parameters", "impossible"], "`rollback`") {
            return None;
        }
        let text = |reader: &mut Self, key: &str| {
            node.get(key).and_then(|n| reader.text(n, &format!("`{key}`"))).map(Arc::from)
        };
        if let Some(reason) = text(self, "impossible") {
            return Some(DeclaredRollback::Impossible { reason });
        }
        let Some(tool) = text(self, "tool") else {
            self.error(node.span, "`rollback` has `tool` or `impossible`, or is `none`");
            return None;
        };
        let parameters = node.get("parameters").map_or_else(Value::empty_object, Node::to_value);
        Some(DeclaredRollback::Call { tool, parameters })
    }

    fn store(&mut self, node: &Node) -> StoreLocation {
        let Some(text) = self.text(node, "`store`") else { return StoreLocation::Default };
        match StoreLocation::parse(&text, &self.folder) {
            Ok(store) => store,
            Err(message) => {
                self.error(node.span, message);
                StoreLocation::Default
            }
        }
    }

    /// What a server forgets. Nothing, unless it says what.
    fn retention(&mut self, node: &Node) -> Option<RunRetention> {
        if !self.keys(node, &["older_than", "keep"], "`retention`") {
            return None;
        }
        let mut kept = RunRetention::default();
        if let Some(age) = node.get("older_than") {
            kept.older_than_ms = age.as_str().and_then(|text| parse_duration(text));
            if kept.older_than_ms.is_none() {
                self.error(age.span, "`older_than` is a time with its unit, such as `30d`");
            }
        }
        if let Some(last) = node.get("keep") {
            kept.keep = last.to_value().as_u64().and_then(|last| usize::try_from(last).ok());
            if kept.keep.is_none() {
                self.error(last.span, "`keep` is how many runs that are over are kept");
            }
        }
        if kept == RunRetention::default() {
            self.error(node.span, "`retention` has `older_than`, `keep`, or both");
            return None;
        }
        Some(kept)
    }

    fn limits(&mut self, node: &Node) -> Limits {
        let known = serde_json::to_value(Limits::default()).unwrap_or_default();
        let names: Vec<&str> = known
            .as_object()
            .into_iter()
            .flat_map(|known| known.keys().map(String::as_str))
            .collect();
        if !self.keys(node, &names, "`limits`") {
            return Limits::default();
        }
        for member in node.members() {
            if member.value.to_value().as_u64().is_none() {
                let message = format!("`{}` must be a whole number", member.key);
                self.error(member.value.span, message);
            }
        }
        let json = serde_json::Value::from(&node.to_value());
        // What is wrong with it has been said above.
        let limits: Limits = serde_json::from_value(json).unwrap_or_default();
        if limits.calls_max == 0 {
            self.error(node.span, "with `calls_max: 0` no call would ever leave");
        }
        if !limits.is_sane() {
            self.error(node.span, "nesting limits above 512 would endanger the process");
        }
        limits
    }
}
