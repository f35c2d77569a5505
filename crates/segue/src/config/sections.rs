//! One function per section of `segue.yaml`: commands, HTTP operations, server, tools, store and limits.
//! Larger sections have files of their own.

use std::sync::Arc;

use segue_core::access::ApprovalRules;
use segue_core::document::Node;
use segue_core::duration::parse_duration;
use segue_core::limits::Limits;
use segue_core::tool::{ConfirmPolicy, DeclaredRollback};
use segue_core::value::Value;
use segue_runtime::tools::command::CommandConfig;
use segue_runtime::tools::http::HttpConfig;
use segue_runtime::tools::http::address::AddressPolicy;

use super::read::ConfigReader;
use super::tokens::TOKEN_CHARS_MIN;
use super::{Config, RunRetention, ServeConfig, StoreLocation, TlsFiles, ToolOverride};

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

impl ConfigReader<'_> {
    pub(super) fn command(&mut self, node: &Node) -> Option<CommandConfig> {
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

    pub(super) fn http(&mut self, node: &Node) -> Option<HttpConfig> {
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

    pub(super) fn server(&mut self, node: &Node) -> ServeConfig {
        let known = &[
            "listen",
            "token",
            "allowed_origins",
            "allowed_hosts",
            "state_key",
            "tls",
            "principals",
            "oidc",
            "inline",
            "approvals",
            "edit",
        ];
        if !self.keys(node, known, "`server`") {
            return ServeConfig::default();
        }
        let token = node.get("token").and_then(|token| self.text(token, "`token`"));
        if token.as_ref().is_some_and(String::is_empty) {
            self.error(node.span, "an empty `token` would accept every request");
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
            state_key: node.get("state_key").and_then(|key| self.state_key(key)),
            tls: node.get("tls").and_then(|tls| self.tls(tls)),
            principals,
            oidc: node.get("oidc").and_then(|oidc| self.oidc(oidc)),
            inline: node.get("inline").and_then(|inline| {
                let name: Arc<str> = self.text(inline, "`inline`")?.into();
                self.toolset_refs.push((name.clone(), inline.span));
                Some(name)
            }),
            approvals: node.get("approvals").map_or_else(Default::default, |n| self.approvals(n)),
            edit: self.flag(node, "edit").unwrap_or(false),
        }
    }

    fn state_key(&mut self, node: &Node) -> Option<String> {
        let key = self.text(node, "`state_key`")?;
        if key.chars().count() < TOKEN_CHARS_MIN {
            let message = format!("`state_key` has at least {TOKEN_CHARS_MIN} characters");
            self.error(node.span, message);
        }
        Some(key)
    }

    fn approvals(&mut self, node: &Node) -> ApprovalRules {
        if !self.keys(node, &["four_eyes", "without_elicitation"], "`approvals`") {
            return ApprovalRules::default();
        }
        let unasked = node.get("without_elicitation");
        let unasked = unasked.and_then(|n| Some((self.text(n, "`without_elicitation`")?, n.span)));
        let unasked_wait = match unasked.as_ref().map(|(word, span)| (&**word, *span)) {
            Some(("wait", _)) => true,
            None | Some(("deny", _)) => false,
            Some((_, span)) => {
                self.error(span, "`without_elicitation` is `deny` or `wait`");
                false
            }
        };
        ApprovalRules { four_eyes: self.flag(node, "four_eyes").unwrap_or(false), unasked_wait }
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

    pub(super) fn builtins(&mut self, node: &Node, config: &mut Config) {
        if !self.keys(node, &["files", "http"], "`builtins`") {
            return;
        }
        if let Some(files) = node.get("files")
            && self.keys(files, &["root", "overwrite"], "`files`")
        {
            let root = files.get("root").filter(|root| !self.is_untrusted(root));
            let root = root.and_then(|root| self.text(root, "`root`"));
            config.files_root = // Without `.` in the middle, because messages show it.
                root.map(|root| self.folder.join(root).components().collect());
            let overwrite = files.get("overwrite");
            config.overwrite = overwrite.map_or_else(Vec::new, |it| self.texts(it, "`overwrite`"));
        }
        if let Some(http) = node.get("http")
            && self.keys(http, &["allow"], "`http`")
        {
            config.http_allow = http.get("allow").map_or_else(Vec::new, |n| self.allow(n));
        }
    }

    /// Hosts that may be reached. A bad rule is reported here, not at the first call.
    fn allow(&mut self, node: &Node) -> Vec<String> {
        let rules = self.texts(node, "`allow`");
        if let Err(message) = AddressPolicy::new(rules.iter().map(String::as_str)) {
            self.error(node.span, message);
        }
        rules
    }

    pub(super) fn tool(&mut self, node: &Node) -> Option<ToolOverride> {
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

    pub(super) fn source(&mut self, node: &Node) -> Option<u32> {
        if !self.keys(node, &["max_concurrency"], "a source") {
            return None;
        }
        self.max_concurrency(node)
    }

    /// Concurrent calls: at least one, or no call could be made.
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

    pub(super) fn store(&mut self, node: &Node) -> StoreLocation {
        let Some(text) = self.text(node, "`store`") else { return StoreLocation::Default };
        match StoreLocation::parse(&text, &self.folder) {
            Ok(store) => store,
            Err(message) => {
                self.error(node.span, message);
                StoreLocation::Default
            }
        }
    }

    /// Which finished runs a server deletes; none by default.
    pub(super) fn retention(&mut self, node: &Node) -> Option<RunRetention> {
        if !self.keys(node, &["older_than", "keep"], "`retention`") {
            return None;
        }
        let mut retention = RunRetention::default();
        if let Some(age) = node.get("older_than") {
            retention.older_than_ms = age.as_str().and_then(|text| parse_duration(text));
            if retention.older_than_ms.is_none() {
                self.error(age.span, "`older_than` is a duration with a unit, such as `30d`");
            }
        }
        if let Some(last) = node.get("keep") {
            retention.keep = last.to_value().as_u64().and_then(|last| usize::try_from(last).ok());
            if retention.keep.is_none() {
                self.error(last.span, "`keep` is the number of finished runs to keep");
            }
        }
        if retention == RunRetention::default() {
            self.error(node.span, "`retention` has `older_than`, `keep`, or both");
            return None;
        }
        Some(retention)
    }

    pub(super) fn limits(&mut self, node: &Node) -> Limits {
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
        // Errors were reported above.
        let limits: Limits = serde_json::from_value(json).unwrap_or_default();
        if limits.calls_max == 0 {
            self.error(node.span, "with `calls_max: 0` no call could be made");
        }
        if !limits.is_sane() {
            self.error(
                node.span,
                "nesting limits must not exceed 512: deeper nesting could exhaust the stack",
            );
        }
        limits
    }
}
