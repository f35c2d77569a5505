//! `segue.yaml` and `.mcp.json` → [`Config`].
//!
//! The file is read with the readers of compositions, so every finding has a line and a column. `${VAR}`
//! expands in configuration and nowhere else. A configuration that was found in the working directory
//! grants nothing until the user trusts it (`trust.rs`). Not here: making an engine (`app`).

pub(crate) mod documents;
mod driver;
pub(crate) mod expand;
pub(crate) mod jsonc;
mod llm;
mod observe;
pub(crate) mod principals;
mod read;
pub(crate) mod secrets;
mod sections;
pub(crate) mod servers;
pub mod tokens;
mod toolsets;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::access::{ApprovalRules, Grant, INLINE};
use segue_core::diagnostic::Diagnostic;
use segue_core::limits::Limits;
use segue_core::source::Source;
use segue_core::tool::{ConfirmPolicy, DeclaredRollback};
use segue_core::toolset::ToolsetBuilder;
use segue_core::value::Value;
use segue_runtime::llm::ModelConfig;
#[cfg(feature = "postgres")]
use segue_runtime::store::PostgresUrl;
use segue_runtime::tools::command::CommandConfig;
use segue_runtime::tools::http::HttpConfig;
use segue_runtime::tools::mcp::ServerConfig;

pub use documents::DocumentPattern;
pub use driver::{DriverConfig, RestateConfig, WorkerConfig};
pub(crate) use secrets::masked::mask_value;
pub use trust::{
    GrantedParts, OverwriteList, TrustFile, TrustStatus, TrustedOverwrites, is_safe_part,
};

use secrets::quoted::quote_redacted;
use tokens::PrincipalToken;

use crate::observe::traces::TracesConfig;
use crate::print::display_path;

/// Where runs and checkpoints are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreLocation {
    /// In the user's data directory.
    #[default]
    Default,
    /// In memory: they end with the process.
    Memory,
    /// In an SQLite file.
    Sqlite(PathBuf),
    /// In a Postgres database.
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresUrl>),
}

impl StoreLocation {
    /// Reads `memory`, `sqlite:FILE` or `postgres://…`. An error repeats no password.
    pub fn parse(text: &str, folder: &Path) -> Result<StoreLocation, String> {
        match text.split_once(':') {
            _ if text == "memory" => Ok(StoreLocation::Memory),
            Some(("sqlite", file)) if !file.is_empty() => {
                Ok(StoreLocation::Sqlite(folder.join(file)))
            }
            Some(("postgres" | "postgresql", _)) => StoreLocation::postgres(text),
            // It may be an address with a password.
            Some((scheme, _)) => Err(format!(
                "`{scheme}:…` is not a store: write `memory`, `sqlite:FILE` or `postgres://…`"
            )),
            None => Err(format!(
                "`{text}` is not a store: write `memory`, `sqlite:FILE` or `postgres://…`"
            )),
        }
    }

    /// The same, with variables of the environment in their places: a password stays out of the arguments of
    /// a process.
    pub fn parse_expanded(text: &str) -> Result<StoreLocation, String> {
        let text = expand::expand(text, &|name| std::env::var(name).ok())?;
        StoreLocation::parse(&text, Path::new(""))
    }

    #[cfg(feature = "postgres")]
    fn postgres(text: &str) -> Result<StoreLocation, String> {
        let url = PostgresUrl::parse(text);
        url.map(|url| StoreLocation::Postgres(Box::new(url)))
            .map_err(|error| format!("`store`: {error}"))
    }

    #[cfg(not(feature = "postgres"))]
    fn postgres(_text: &str) -> Result<StoreLocation, String> {
        Err("this Segue was built without the feature `postgres`".to_owned())
    }

    /// Whether several processes on several machines can use it.
    pub fn is_shared(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(_) => true,
            StoreLocation::Default | StoreLocation::Memory | StoreLocation::Sqlite(_) => false,
        }
    }

    /// As a person writes it, without a password.
    pub fn shown(&self) -> Option<String> {
        match self {
            StoreLocation::Memory => Some("memory".to_owned()),
            StoreLocation::Sqlite(_) | StoreLocation::Default => {
                self.file().map(|file| format!("sqlite:{}", display_path(&file)))
            }
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(url) => Some(url.to_string()),
        }
    }

    /// The password of a database.
    pub fn password(&self) -> Option<&str> {
        match self {
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(url) => url.password(),
            _ => None,
        }
    }

    /// The file of the checkpoint tools. A database holds none: they stay on this machine.
    pub fn checkpoint_file(&self) -> Option<PathBuf> {
        match self {
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(_) => StoreLocation::Default.file(),
            _ => self.file(),
        }
    }

    /// The SQLite file, where it is one.
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            StoreLocation::Memory => None,
            #[cfg(feature = "postgres")]
            StoreLocation::Postgres(_) => None,
            StoreLocation::Sqlite(file) => Some(file.clone()),
            StoreLocation::Default => data_folder().map(|folder| folder.join("segue.db")),
        }
    }
}

/// Which finished runs are deleted. Unfinished runs are always kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunRetention {
    /// Delete runs that ended longer ago than this.
    pub older_than_ms: Option<u64>,
    /// Keep this many of the newest and delete the others.
    pub keep: Option<usize>,
}

/// Overrides of a tool's definition.
#[derive(Clone, Debug, Default)]
pub struct ToolOverride {
    /// Where it is configured: file, line and column.
    pub place: String,
    /// How its effect is rolled back.
    pub rollback: Option<DeclaredRollback>,
    /// Whether calling it twice is harmless.
    pub idempotent: Option<bool>,
    /// Whether it only reads.
    pub read_only: Option<bool>,
    /// Whether it may destroy data.
    pub destructive: Option<bool>,
    /// When it asks for confirmation.
    pub confirm: Option<ConfirmPolicy>,
    /// The most concurrent calls.
    pub max_concurrency: Option<u32>,
    /// Tags, in place of its own.
    pub tags: Option<Vec<Arc<str>>>,
    /// Scopes that it needs, in place of its own.
    pub scopes: Option<Vec<Arc<str>>>,
    /// Its category.
    pub category: Option<Arc<str>>,
}

/// A configuration. Not `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub struct Config {
    /// The file that it came from.
    pub file: Option<PathBuf>,
    /// Whether it was found in the working directory, rather than named by the user.
    pub discovered: bool,
    /// What it grants, which trust must cover.
    pub grants: GrantedParts,
    /// The root of the file tools; the working directory by default.
    pub files_root: Option<PathBuf>,
    /// Patterns of files below the root that may be overwritten without confirmation.
    pub overwrite: Vec<String>,
    /// Private hosts that the HTTP tools may reach.
    pub http_allow: Vec<String>,
    /// Command tools by name.
    pub commands: BTreeMap<String, CommandConfig>,
    /// MCP servers by name.
    pub servers: BTreeMap<Arc<str>, ServerConfig>,
    /// MCP servers with a valid configuration that cannot be used, and why.
    pub unusable: BTreeMap<Arc<str>, String>,
    /// All MCP servers as written, without expanded variables.
    pub servers_as_written: Value,
    /// The project's `.mcp.json`.
    pub project: Option<Project>,
    /// The `.mcp.json` that is not read, because the configuration was named.
    pub ignored_project: Option<IgnoredProject>,
    /// HTTP operations by name.
    pub http: BTreeMap<String, HttpConfig>,
    /// The most concurrent calls per source, which is the namespace of its tools.
    pub sources: BTreeMap<Arc<str>, u32>,
    /// Overrides by tool.
    pub tools: BTreeMap<Arc<str>, ToolOverride>,
    /// Toolsets by name; the engine adds their source.
    pub toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
    /// Patterns of files with compositions.
    pub compositions: Vec<DocumentPattern>,
    /// Whether no compositions are configured, and those of the working directory are used.
    pub has_found_compositions: bool,
    /// Patterns of files with templates.
    pub templates: Vec<DocumentPattern>,
    /// Where runs and checkpoints are stored.
    pub store: StoreLocation,
    /// Who decides which process drives a run.
    pub driver: DriverConfig,
    /// How a process takes part in driving runs of a shared store.
    pub worker: WorkerConfig,
    /// Which finished runs a server deletes.
    pub retention: Option<RunRetention>,
    /// Limits.
    pub limits: Limits,
    /// Settings of `segue serve`.
    pub server: ServeConfig,
    /// The model that makes plans.
    pub llm: Option<ModelConfig>,
    /// Where spans of runs are sent.
    pub traces: Option<TracesConfig>,
    /// Secrets: expanded variables, tokens and keys, which are redacted from output.
    pub secrets: Vec<String>,
}

/// Settings of `segue serve`. Not `Debug`: it holds a secret.
#[derive(Clone, Default)]
pub struct ServeConfig {
    /// The address to listen on.
    pub listen: Option<String>,
    /// The administrator's token.
    pub token: Option<String>,
    /// Origins of web pages that may send requests, beside our own.
    pub allowed_origins: Vec<String>,
    /// Host names that requests may name, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// The key of the states that MCP clients carry; one of its own for each process by default.
    pub state_key: Option<String>,
    /// The TLS certificate and key.
    pub tls: Option<TlsFiles>,
    /// Tokens of principals other than the administrator.
    pub principals: Vec<PrincipalToken>,
    /// The OpenID Connect issuer whose tokens are accepted.
    pub oidc: Option<OidcConfig>,
    /// The toolset that inline compositions of a stdio host may use beside reads and served compositions.
    pub inline: Option<Arc<str>>,
    /// Who may answer the questions of runs.
    pub approvals: ApprovalRules,
    /// Whether callers may change the files of compositions.
    pub edit: bool,
}

/// An OpenID Connect issuer, and the rights of its scopes. Not `Debug`: it holds a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct OidcConfig {
    /// Its URL, which is also its name.
    pub issuer: String,
    /// The audiences that stand for this server.
    pub audience: Vec<String>,
    /// The grant of each scope.
    pub scopes: BTreeMap<Arc<str>, Grant>,
    /// Our id at the issuer, for browsers that sign in there.
    pub client_id: Option<String>,
    /// Our secret at the issuer, if it requires one.
    pub client_secret: Option<String>,
}

/// The files of the TLS certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, as PEM.
    pub cert: PathBuf,
    /// The private key, as PEM.
    pub key: PathBuf,
}

/// A project's `.mcp.json`, which is always discovered. Not `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub struct Project {
    /// The file.
    pub file: PathBuf,
    /// Its servers by name, without those that `segue.yaml` defines.
    pub servers: BTreeMap<Arc<str>, ServerConfig>,
    /// Servers that cannot be used, and why.
    pub unusable: BTreeMap<Arc<str>, String>,
    /// All servers as written.
    pub as_written: Value,
    /// Errors of the file as a whole.
    pub notes: Vec<String>,
}

/// A `.mcp.json` beside a named configuration, which stands alone.
#[derive(Clone, Debug)]
pub struct IgnoredProject {
    /// The file.
    pub file: PathBuf,
    /// Its servers that the configuration does not have.
    pub servers: Vec<Arc<str>>,
}

/// A configuration that cannot be used.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// It has errors.
    Wrong {
        /// Its text, without secrets.
        source: Source,
        /// The findings.
        diagnostics: Vec<Diagnostic>,
    },
}

/// A configuration with its warnings.
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Its text without secrets, when there is one.
    pub source: Option<Source>,
    /// Warnings.
    pub diagnostics: Vec<Diagnostic>,
}

impl Config {
    /// A toolset by its name. The toolset of inline compositions always exists.
    pub fn toolset(&self, name: &str) -> Option<ToolsetBuilder> {
        let inline = || (name == INLINE).then(|| ToolsetBuilder::inline(None));
        self.toolsets.get(name).cloned().or_else(inline)
    }

    /// The base of relative paths.
    pub fn folder(&self) -> PathBuf {
        let parent = self.file.as_ref().and_then(|file| file.parent());
        parent
            .filter(|p| !p.as_os_str().is_empty())
            .map_or_else(|| PathBuf::from("."), Path::to_owned)
    }
}

/// Finds and reads the configuration: the named one, else `SEGUE_CONFIG`, else `segue.yaml` in the
/// working directory or above, else the user's own.
pub fn load(named: Option<&Path>) -> Result<Loaded, ConfigError> {
    load_in(None, named)
}

/// The same for another folder than the working directory.
pub fn load_in(folder: Option<&Path>, named: Option<&Path>) -> Result<Loaded, ConfigError> {
    let allows = |file: &Path, is_named: bool, grants: &GrantedParts| {
        is_named || TrustFile::load().allows_grants(Some(file), grants)
    };
    load_by(folder, named, &allows)
}

/// The same without expanding variables, for a command that only shows the grants.
pub fn load_as_written(named: Option<&Path>) -> Result<Loaded, ConfigError> {
    load_by(None, named, &|_, _, _| false)
}

/// The findings about the text of a configuration, as an editor has it. No variable is expanded.
pub(crate) fn findings(file: &Path, text: &str) -> (Source, Vec<Diagnostic>) {
    let source = Source::new(display_path(file), text);
    let (_, diagnostics) = read::read(&source, file, &|_| None, &|_| false);
    (source, diagnostics)
}

/// `allows` says whether the grants of a file, named or found, take effect.
fn load_by(
    folder: Option<&Path>,
    named: Option<&Path>,
    allows: &dyn Fn(&Path, bool, &GrantedParts) -> bool,
) -> Result<Loaded, ConfigError> {
    let read_file = |file: &Path, discovered: bool| {
        read_file(file, discovered, &|grants| allows(file, !discovered, grants))
    };
    let from_env = std::env::var_os("SEGUE_CONFIG").filter(|file| !file.is_empty());
    if let Some(file) = named.map(Path::to_owned).or_else(|| from_env.map(PathBuf::from)) {
        let mut loaded = read_file(&file, false)?;
        loaded.config.ignored_project = ignored_project(&loaded.config);
        return Ok(loaded);
    }
    let start = folder.map_or_else(|| std::env::current_dir().ok(), |it| Some(it.to_owned()));
    let discover = |names: &[&str]| discover(start.as_deref()?, names);
    let mut loaded = match discover(CONFIG_NAMES) {
        Some(file) => {
            let mut found = read_file(&file, true)?;
            let here = start.as_deref().unwrap_or(Path::new("."));
            found.config.drop_default_grants(here);
            if !TrustFile::load().allows(&found.config) {
                found.config.drop_untrusted(here);
            }
            found
        }
        None => match user_config().filter(|file| file.is_file()) {
            Some(file) => read_file(&file, false)?,
            None => Loaded { config: Config::default(), source: None, diagnostics: Vec::new() },
        },
    };
    // A named configuration stands alone; otherwise the project's `.mcp.json` is added.
    let values = std::cell::RefCell::new(Vec::new());
    let env = |name: &str| {
        let value = std::env::var(name).ok();
        values.borrow_mut().extend(value.clone().filter(|_| !read::is_public(name)));
        value
    };
    let own = &loaded.config.servers_as_written;
    let project = discover(&[PROJECT_NAME]).map(|file| servers::project(file, own, &env));
    loaded.config.project = project;
    loaded.config.secrets.append(&mut values.take());
    let of_project = loaded.config.project.iter().flat_map(|project| project.servers.values());
    let of_project: Vec<String> = of_project.flat_map(secrets::of_server).collect();
    loaded.config.secrets.extend(of_project);
    Ok(loaded)
}

/// The `.mcp.json` beside a named configuration, if it has servers that the configuration lacks.
fn ignored_project(config: &Config) -> Option<IgnoredProject> {
    let file = config.folder().join(".mcp.json");
    let servers = servers::missing_names(&file, &config.servers_as_written);
    (!servers.is_empty()).then_some(IgnoredProject { file, servers })
}

/// The names of a configuration.
pub(crate) const CONFIG_NAMES: &[&str] = &["segue.yaml", "segue.yml"];

/// The name of a project's list of MCP servers.
pub(crate) const PROJECT_NAME: &str = ".mcp.json";

/// The first of these files in a folder or above it.
fn discover(start: &Path, names: &[&str]) -> Option<PathBuf> {
    start
        .ancestors()
        .flat_map(|folder| names.iter().map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

/// The user's own configuration.
pub fn user_config() -> Option<PathBuf> {
    use etcetera::BaseStrategy as _;
    let dirs = etcetera::choose_base_strategy().ok()?;
    Some(dirs.config_dir().join("segue/segue.yaml"))
}

/// The user's data folder of Segue.
pub fn data_folder() -> Option<PathBuf> {
    use etcetera::BaseStrategy as _;
    let dirs = etcetera::choose_base_strategy().ok()?;
    Some(dirs.data_dir().join("segue"))
}

fn read_file(
    file: &Path,
    discovered: bool,
    allows: read::TrustCheck<'_>,
) -> Result<Loaded, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|error| ConfigError::Unreadable {
        file: file.to_owned(),
        reason: error.to_string(),
    })?;
    let source = Source::new(display_path(file), text);
    let env = |name: &str| std::env::var(name).ok();
    let (mut config, diagnostics) = read::read(&source, file, &env, allows);
    config.file = Some(file.to_owned());
    config.discovered = discovered;
    let has_errors = diagnostics
        .iter()
        .any(|finding| finding.severity == segue_core::diagnostic::Severity::Error);
    let (source, diagnostics) = quote_redacted(&source, diagnostics, &config.secrets);
    if has_errors {
        return Err(ConfigError::Wrong { source, diagnostics });
    }
    Ok(Loaded { config, source: Some(source), diagnostics })
}
