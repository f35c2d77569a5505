//! The document tree of `segue.yaml` → [`Config`], with every finding.

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
use segue_core::toolset::ToolsetBuilder;
use segue_core::value::Value;
use segue_runtime::tools::redact::SECRET_BYTES_MIN;

use super::documents::DocumentPattern;
use super::expand::expand;
use super::secrets::is_secret_name;
use super::trust::has_variable;
use super::{Config, GrantedParts, secrets};

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
    "worker",
    "llm",
    "server",
    "observe",
    "limits",
];

/// Sections that this version accepts and ignores.
pub(super) const UNUSED: &[&str] = &["inputs", "openapi"];

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whether the grants of a configuration take effect.
pub(super) type TrustCheck<'a> = &'a dyn Fn(&GrantedParts) -> bool;

/// Reads a configuration. In sections that are not trusted, no variable is expanded.
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
    let (values, short) = (RefCell::new(Vec::new()), RefCell::new(BTreeSet::new()));
    let env = |name: &str| {
        let value = env(name);
        let is_short = |value: &String| !value.is_empty() && value.len() < SECRET_BYTES_MIN;
        if is_secret_name(name) && value.as_ref().is_some_and(is_short) {
            short.borrow_mut().insert(name.to_owned());
        }
        values.borrow_mut().extend(value.clone().filter(|_| !is_public(name)));
        value
    };
    let text = source.text();
    let mut reader = ConfigReader {
        folder,
        env: &env,
        is_untrusted_part: false,
        toolset_refs: Vec::new(),
        findings: Vec::new(),
        text,
    };
    let mut config = reader.config(&root, allows);
    let mut findings = reader.findings;
    findings.extend(short.take().iter().map(|name| too_short(source, name)));
    config.secrets = values.take();
    config.secrets.extend(config.servers.values().flat_map(secrets::of_server));
    config.secrets.extend(config.commands.values().flat_map(secrets::of_command));
    config.secrets.extend(config.http.values().flat_map(secrets::of_operation));
    config.secrets.extend(config.store.password().map(str::to_owned));
    config.secrets.extend(config.server.token.clone());
    config.secrets.extend(config.server.state_key.clone());
    config.secrets.extend(config.server.oidc.as_ref().and_then(|oidc| oidc.client_secret.clone()));
    config.secrets.extend(config.llm.as_ref().and_then(|llm| llm.api_key.clone()));
    for Member { key, key_span, .. } in root.get("tools").map_or(&[][..], Node::members) {
        if let Some(known) = config.tools.get_mut(key) {
            let at = source.position(key_span.start);
            known.place = format!("{}:{}:{}", source.name(), at.line, at.column);
        }
    }
    (config, findings)
}

/// The warning about a secret that is too short to be told from an ordinary word.
fn too_short(source: &Source, name: &str) -> Diagnostic {
    let message = format!(
        "the value of `{name}` is too short to be redacted from the output of tools: \
         it needs at least {SECRET_BYTES_MIN} characters"
    );
    let start = source.text().find(name).unwrap_or(0);
    Diagnostic::warning(Code::Config, message, Span::new(start, start + name.len()))
}

/// Variables that hold paths and names, which are no secrets.
pub(super) fn is_public(name: &str) -> bool {
    matches!(
        name,
        "HOME" | "PWD" | "USER" | "LOGNAME" | "PATH" | "SHELL" | "LANG" | "TMPDIR" | "HOSTNAME"
    ) || name.starts_with("XDG_")
}

pub(super) struct ConfigReader<'a> {
    pub(super) folder: PathBuf,
    pub(super) env: Env<'a>,
    /// Whether the current section is not trusted.
    pub(super) is_untrusted_part: bool,
    /// Toolsets that are named elsewhere, with their place, checked at the end.
    pub(super) toolset_refs: Vec<(Arc<str>, Span)>,
    findings: Vec<Diagnostic>,
    /// The text that spans point into.
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
                self.section(member, &mut config);
            } else {
                self.untrusted_section(member, &mut config);
            }
        }
        self.check_toolset_refs(&config);
        if let Some(more) = config.server.inline.as_ref().and_then(|it| config.toolsets.get(it)) {
            let inline = ToolsetBuilder::inline(Some(more));
            config.toolsets.insert(INLINE.into(), inline);
        }
        config
    }

    /// Reads a section that is not trusted. Its variables are not expanded, so findings about values with
    /// variables are dropped.
    fn untrusted_section(&mut self, member: &Member, config: &mut Config) {
        let (env, before, refs_before) = (self.env, self.findings.len(), self.toolset_refs.len());
        (self.env, self.is_untrusted_part) = (&unexpanded, true);
        self.section(member, config);
        (self.env, self.is_untrusted_part) = (env, false);
        let has_variable =
            |span: Span| self.text.get(span.range()).is_some_and(|it| it.contains("${"));
        let mut later = self.findings.split_off(before);
        later.retain(|finding| !has_variable(finding.span));
        self.findings.append(&mut later);
        let mut later = self.toolset_refs.split_off(refs_before);
        later.retain(|(_, span)| !has_variable(*span));
        self.toolset_refs.append(&mut later);
    }

    fn section(&mut self, member: &Member, config: &mut Config) {
        let value = &member.value;
        match &*member.key {
            "commands" => config.commands = self.each(value, Self::command),
            // The format of every MCP host; VS Code uses the second key.
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
            "driver" => config.driver = self.driver(value),
            "worker" => config.worker = self.worker(value),
            other if UNUSED.contains(&other) => self.warn_unused(member),
            _ => {}
        }
    }

    /// Reports toolsets that do not exist: a principal limited to one could call nothing.
    fn check_toolset_refs(&mut self, config: &Config) {
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

    fn warn_unused(&mut self, member: &Member) {
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
    pub(super) fn documents(&mut self, node: &Node, what: &str) -> Vec<DocumentPattern> {
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
                is_default: false,
            })
        });
        patterns.collect()
    }

    /// Whether a value has variables that are not expanded, because its section is not trusted.
    pub(super) fn is_untrusted(&self, node: &Node) -> bool {
        self.is_untrusted_part && has_variable(node)
    }

    pub(super) fn flag(&mut self, node: &Node, key: &str) -> Option<bool> {
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
    pub(super) fn value(&mut self, node: &Node) -> Value {
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

    pub(super) fn text_map(&mut self, node: Option<&Node>, what: &str) -> BTreeMap<String, String> {
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
}
