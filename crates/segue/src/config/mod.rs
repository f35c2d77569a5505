//! `segue.yaml` → what an engine is made of.
//!
//! Read with the same readers as compositions, so a mistake has its line and column. `${VAR}`
//! expands in here and nowhere else.

pub(crate) mod documents;
pub(crate) mod expand;
pub(crate) mod jsonc;
mod llm;
mod observe;
pub(crate) mod principals;
mod read;
pub(crate) mod secrets;
pub(crate) mod servers;
pub mod tokens;
mod toolsets;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::access::{Grant, INLINE};
use segue_core::compile::source::Source;
use segue_core::diagnostic::Diagnostic;
use segue_core::limits::Limits;
use segue_core::tool::{ConfirmPolicy, DeclaredRollback};
use segue_core::toolset::ToolsetBuilder;
use segue_core::value::Value;
use segue_runtime::llm::ModelConfig;
use segue_runtime::tools::command::CommandConfig;
use segue_runtime::tools::http::HttpConfig;
use segue_runtime::tools::mcp::ServerConfig;

pub use documents::DocumentPattern;
pub(crate) use secrets::masked::mask_value;
pub use trust::{
    GrantedParts, OverwriteList, TrustFile, TrustStatus, TrustedOverwrites, is_safe_part,
};

use secrets::quoted::quote_redacted;

use crate::observe::traces::TracesConfig;
use crate::print::display_path;
use tokens::PrincipalToken;

/// Where runs and checkpoints are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreLocation {
    /// In the user's data directory.
    #[default]
    Default,
    /// Nowhere: they end with the process.
    Memory,
    /// In an SQLite file.
    Sqlite(PathBuf),
}

impl StoreLocation {
    /// Reads `memory`, `sqlite:FILE` or a file's path.
    pub fn parse(text: &str, folder: &Path) -> Result<StoreLocation, String> {
        match text.split_once(':') {
            _ if text == "memory" => Ok(StoreLocation::Memory),
            Some(("sqlite", file)) if !file.is_empty() => {
                Ok(StoreLocation::Sqlite(folder.join(file)))
            }
            Some((scheme, _)) if scheme.starts_with("postgres") => {
                Err("stores in PostgreSQL cannot be used yet".to_owned())
            }
            _ => Err(format!("`{text}` is not a store: write `memory` or `sqlite:FILE`")),
        }
    }
}

/// Which runs that are over are kept; those that are not always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunRetention {
    /// Those that ended longer ago are forgotten.
    pub older_than_ms: Option<u64>,
    /// All but so many of those that ended last are.
    pub keep: Option<usize>,
}

/// What is known of a tool beyond what its source says.
#[derive(Clone, Debug, Default)]
pub struct ToolOverride {
    /// Where that is written: file, line and column.
    pub place: String,
    /// How its work is taken back.
    pub rollback: Option<DeclaredRollback>,
    /// Whether calling it twice is harmless.
    pub idempotent: Option<bool>,
    /// Whether it changes nothing.
    pub read_only: Option<bool>,
    /// Whether it may destroy something.
    pub destructive: Option<bool>,
    /// When it asks first.
    pub confirm: Option<ConfirmPolicy>,
    /// Calls of it that may be under way at once.
    pub max_concurrency: Option<u32>,
    /// Words that it is found by, in place of its own.
    pub tags: Option<Vec<Arc<str>>>,
    /// Rights that it needs, in place of its own.
    pub scopes: Option<Vec<Arc<str>>>,
    /// The kind of tools that it is counted among.
    pub category: Option<Arc<str>>,
}

/// A configuration. Not `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub struct Config {
    /// The file that it came from.
    pub file: Option<PathBuf>,
    /// Whether it was found in the working directory rather than named by its user.
    pub discovered: bool,
    /// What it grants: what is shown and what trust covers.
    pub grants: GrantedParts,
    /// The directory that the file tools never leave; the working directory unless said otherwise.
    pub files_root: Option<PathBuf>,
    /// Patterns of files in there that may be overwritten without a question.
    pub overwrite: Vec<String>,
    /// Hosts that the HTTP tools may reach although they are not public.
    pub http_allow: Vec<String>,
    /// Command tools by name.
    pub commands: BTreeMap<String, CommandConfig>,
    /// MCP servers by name.
    pub servers: BTreeMap<Arc<str>, ServerConfig>,
    /// MCP servers that are written as they should be and cannot be used, and why.
    pub unusable: BTreeMap<Arc<str>, String>,
    /// All of them as they were written.
    pub servers_as_written: Value,
    /// The servers of the project's own `.mcp.json`.
    pub project: Option<Project>,
    /// HTTP operations by name.
    pub http: BTreeMap<String, HttpConfig>,
    /// Calls that may be under way at once, by source: the first part of its tools' ids.
    pub sources: BTreeMap<Arc<str>, u32>,
    /// What is known of tools.
    pub tools: BTreeMap<Arc<str>, ToolOverride>,
    /// Toolsets by name, which still want their source.
    pub toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
    /// Patterns of files with compositions.
    pub compositions: Vec<DocumentPattern>,
    /// Patterns of files with templates.
    pub templates: Vec<DocumentPattern>,
    /// Where things are kept.
    pub store: StoreLocation,
    /// Which runs a server forgets.
    pub retention: Option<RunRetention>,
    /// Bounds.
    pub limits: Limits,
    /// Where and for whom `segue serve` is there.
    pub server: ServeConfig,
    /// The model that plans are made with.
    pub llm: Option<ModelConfig>,
    /// Where spans of runs are sent.
    pub traces: Option<TracesConfig>,
    /// Values of the environment that it was given.
    pub secrets: Vec<String>,
}

/// Where and for whom `segue serve` is there. Not `Debug`: it holds a secret.
#[derive(Clone, Default)]
pub struct ServeConfig {
    /// The address to listen at.
    pub listen: Option<String>,
    /// What every request must bring.
    pub token: Option<String>,
    /// Web pages that may ask, beside our own.
    pub allowed_origins: Vec<String>,
    /// Names that we are reached under, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// What connections are encrypted with.
    pub tls: Option<TlsFiles>,
    /// Who is let in beside the administrator.
    pub principals: Vec<PrincipalToken>,
    /// Who else says who somebody is.
    pub oidc: Option<OidcConfig>,
    /// The toolset that compositions of a host on stdio may use, beside what reads and what is served.
    pub inline: Option<Arc<str>>,
}

/// An issuer of tokens, and what those are worth here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    /// Its address, which is also its name.
    pub issuer: String,
    /// Whom its tokens are for: us, by any of these names.
    pub audience: Vec<String>,
    /// What each scope gives.
    pub scopes: BTreeMap<Arc<str>, Grant>,
}

/// What connections are encrypted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that it hangs on, as PEM.
    pub cert: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
}

/// A project's `.mcp.json`, which is always found and never named. Not `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub struct Project {
    /// The file.
    pub file: PathBuf,
    /// Its servers by name, without those that the configuration has.
    pub servers: BTreeMap<Arc<str>, ServerConfig>,
    /// Those that cannot be used, and why.
    pub unusable: BTreeMap<Arc<str>, String>,
    /// All of its servers as they were written.
    pub as_written: Value,
    /// What is wrong with the file as a whole.
    pub notes: Vec<String>,
}

/// A configuration that cannot be used.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// Something in it is wrong.
    Wrong {
        /// Its text, without secrets.
        source: Source,
        /// What.
        diagnostics: Vec<Diagnostic>,
    },
}

/// A configuration with what should be said about it.
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Its text without secrets, when there is one.
    pub source: Option<Source>,
    /// Warnings.
    pub diagnostics: Vec<Diagnostic>,
}

impl Config {
    /// A toolset by its name. That of a host's compositions is always there.
    pub fn toolset(&self, name: &str) -> Option<ToolsetBuilder> {
        let inline = || (name == INLINE).then(|| ToolsetBuilder::inline(None));
        self.toolsets.get(name).cloned().or_else(inline)
    }

    /// The folder that relative paths are relative to.
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
    let allows = |file: &Path, is_named: bool, grants: &GrantedParts| {
        is_named || TrustFile::load().allows_grants(Some(file), grants)
    };
    load_by(named, &allows)
}

/// The same for those who only look at what it grants, as written: no variable needs to be set.
pub fn load_as_written(named: Option<&Path>) -> Result<Loaded, ConfigError> {
    load_by(named, &|_, _, _| false)
}

/// `allows`: whether a file, and one that was named, may grant this.
fn load_by(
    named: Option<&Path>,
    allows: &dyn Fn(&Path, bool, &GrantedParts) -> bool,
) -> Result<Loaded, ConfigError> {
    let read_file = |file: &Path, discovered: bool| {
        read_file(file, discovered, &|grants| allows(file, !discovered, grants))
    };
    let from_env = std::env::var_os("SEGUE_CONFIG").filter(|file| !file.is_empty());
    if let Some(file) = named.map(Path::to_owned).or_else(|| from_env.map(PathBuf::from)) {
        return read_file(&file, false);
    }
    let mut loaded = match discover(&["segue.yaml", "segue.yml"]) {
        Some(file) => {
            let mut found = read_file(&file, true)?;
            found.config.drop_default_grants();
            if !TrustFile::load().allows(&found.config) {
                found.config.drop_untrusted();
            }
            found
        }
        None => match user_config().filter(|file| file.is_file()) {
            Some(file) => read_file(&file, false)?,
            None => Loaded { config: Config::default(), source: None, diagnostics: Vec::new() },
        },
    };
    // Who names a configuration means that one; otherwise the project has a say of its own.
    let given = std::cell::RefCell::new(Vec::new());
    let env = |name: &str| {
        let value = std::env::var(name).ok();
        given.borrow_mut().extend(value.clone().filter(|_| !read::is_public(name)));
        value
    };
    let own = &loaded.config.servers_as_written;
    let project = discover(&[".mcp.json"]).map(|file| servers::project(file, own, &env));
    loaded.config.project = project;
    loaded.config.secrets.append(&mut given.take());
    let of_project = loaded.config.project.iter().flat_map(|project| project.servers.values());
    let of_project: Vec<String> = of_project.flat_map(secrets::of_server).collect();
    loaded.config.secrets.extend(of_project);
    Ok(loaded)
}

fn discover(names: &[&str]) -> Option<PathBuf> {
    let start = std::env::current_dir().ok()?;
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

/// Where Segue keeps what belongs to the user.
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
    let wrong = diagnostics
        .iter()
        .any(|finding| finding.severity == segue_core::diagnostic::Severity::Error);
    let (source, diagnostics) = quote_redacted(&source, diagnostics, &config.secrets);
    if wrong {
        return Err(ConfigError::Wrong { source, diagnostics });
    }
    Ok(Loaded { config, source: Some(source), diagnostics })
}
