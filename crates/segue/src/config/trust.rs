//! Trust in configurations that were found in the working directory.
//!
//! Running `segue` in a stranger's repository must not start their programs, send our data to their
//! addresses, or widen the reach of our tools. A configuration that the user names is trusted. One that
//! was found grants nothing until the user trusts its grants, by their hash: commands, servers,
//! operations, roots, hosts, tool overrides, principals, the store. Sections that only limit or name
//! documents need no trust. The `overwrites` of compositions are trusted one by one: a changed list loses
//! trust, the others keep it. A project's `.mcp.json` always counts as found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::access::INLINE;
use segue_core::compile::read_header;
use segue_core::composition::Composition;
use segue_core::document::{Member, Node};
use segue_core::tool::hex_digest;
use segue_core::value::Value;

use super::documents::composition_files;
use super::read::UNUSED;
use super::{
    Config, DriverConfig, Project, ServeConfig, StoreLocation, data_folder, read_file, servers,
};
use crate::percent;

/// Sections that grant nothing: they name documents or set limits. A section that uses variables is a
/// grant all the same, because it reads the environment.
const GRANTS_NOTHING: &[&str] =
    &["compositions", "templates", "limits", "sources", "toolsets", "inputs", "openapi", "worker"];

/// Toolsets grant nothing, but a change to one changes what a grant allows.
const TOOLSETS: &str = "toolsets";

/// The sections of a configuration that grant something, as written.
#[derive(Clone, Default)]
pub struct GrantedParts {
    /// These sections and the toolsets, without expanded variables.
    as_written: Value,
    /// The names of the sections that grant more than the default.
    pub parts: Vec<Arc<str>>,
}

impl GrantedParts {
    pub(super) fn read(root: &Node) -> GrantedParts {
        let is_grant = |member: &&Member| {
            let is_given_variables =
                || !UNUSED.contains(&&*member.key) && has_variable(&member.value);
            !is_safe_part(&member.key) || is_given_variables()
        };
        let covered = root.members().iter().filter(|it| &*it.key == TOOLSETS || is_grant(it));
        let as_written = covered.map(|m| (m.key.clone(), m.value.to_value())).collect::<Vec<_>>();
        let parts = root.members().iter().filter(is_grant).map(|m| m.key.clone()).collect();
        GrantedParts { as_written: Value::object(as_written), parts }
    }

    /// The granting sections and their values.
    pub fn visible_parts(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        let members = self.as_written.as_object().into_iter().flat_map(|members| members.iter());
        members.filter(|(key, _)| self.parts.contains(key))
    }
}

/// Whether a section grants nothing, apart from its variables.
pub fn is_safe_part(part: &str) -> bool {
    GRANTS_NOTHING.contains(&part)
}

/// Whether a value uses a variable.
pub(super) fn has_variable(node: &Node) -> bool {
    let here = node.as_str().is_some_and(|text| text.contains("${"));
    let members = || node.members().iter().any(|member| has_variable(&member.value));
    here || members() || node.items().iter().any(has_variable)
}

impl Config {
    /// Removes the default from `grants`: a root of the file tools inside the working directory, `here`.
    pub(super) fn drop_default_grants(&mut self, here: &Path) {
        let builtins = self.grants.as_written.get("builtins");
        let only = |value: Option<&Value>, key: &str| {
            value.and_then(Value::as_object).is_some_and(|it| it.len() == 1 && it.contains_key(key))
        };
        let has_only_a_root =
            only(builtins, "files") && only(builtins.and_then(|it| it.get("files")), "root");
        if has_only_a_root && self.files_root.as_deref().is_some_and(|it| is_inside(it, here)) {
            self.grants.parts.retain(|part| &**part != "builtins");
        }
    }

    /// Removes the grants of an untrusted configuration. Tools and the model stay: they refuse calls and
    /// say why.
    pub(super) fn drop_untrusted(&mut self, here: &Path) {
        self.files_root = self.files_root.take().filter(|root| is_inside(root, here));
        self.overwrite.clear();
        self.http_allow.clear();
        self.tools.clear();
        self.store = StoreLocation::default();
        self.driver = DriverConfig::default();
        self.retention = None;
        self.server = ServeConfig::default();
        // It may hold additions of `server.inline`.
        self.toolsets.remove(INLINE);
    }
}

/// Whether a folder is inside the working directory, with links followed.
fn is_inside(folder: &Path, here: &Path) -> bool {
    let Ok(here) = here.canonicalize() else { return false };
    let mut known = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    // A missing folder would be created at its path.
    while !known.exists() && known.symlink_metadata().is_err() && known.pop() {}
    let climbs = folder.components().any(|part| part == std::path::Component::ParentDir);
    known.canonicalize().is_ok_and(|known| known.starts_with(&here)) && (!climbs || folder.exists())
}

/// The file of trusted configurations, each with a hash of its grants.
#[derive(Debug, Default)]
pub struct TrustFile {
    allowed: BTreeMap<PathBuf, TrustedEntry>,
}

/// The trust in one configuration.
#[derive(Debug)]
struct TrustedEntry {
    /// The hash of its grants.
    grants: String,
    /// The hashes of the trusted `overwrites` of its compositions.
    overwrites: BTreeSet<String>,
}

/// The `overwrites` of a composition: files that it overwrites without confirmation.
pub struct OverwriteList {
    /// The composition's file.
    pub file: PathBuf,
    /// Patterns of files below the files root.
    pub patterns: Vec<Arc<str>>,
}

impl OverwriteList {
    fn of(composition: &Composition) -> Option<OverwriteList> {
        let patterns = composition.overwrites.clone();
        let file = (**composition.source.name()).into();
        (!patterns.is_empty()).then_some(OverwriteList { file, patterns })
    }

    /// The lists of all compositions of a configuration. Variables are expanded to find the compositions: the
    /// user is about to see and trust them.
    pub fn all(file: &Path) -> Vec<OverwriteList> {
        let whole = read_file(file, true, &|_| true).or_else(|_| read_file(file, true, &|_| false));
        let Ok(config) = whole.map(|loaded| loaded.config) else { return Vec::new() };
        let headers = composition_files(&config).into_iter();
        let headers = headers.filter_map(|source| read_header(&source, &config.limits));
        headers.filter_map(|composition| OverwriteList::of(&composition)).collect()
    }

    /// The hash of the list and its path: trust does not extend to the same list in another file.
    fn hash(&self) -> String {
        let patterns = self.patterns.iter().cloned().map(Value::from).collect::<Vec<_>>();
        let list = [Value::from(encode_path(&canonical_path(Some(&self.file)))), patterns.into()];
        hex_digest(Value::from(list.to_vec()).to_canonical_json().as_bytes())
    }
}

/// The compositions whose `overwrites` are trusted.
pub enum TrustedOverwrites {
    /// All compositions.
    All,
    /// Those whose list has one of these hashes.
    Lists(BTreeSet<String>),
}

impl TrustedOverwrites {
    /// Whether the `overwrites` of a composition are trusted.
    pub fn has(&self, composition: &Composition) -> bool {
        match self {
            TrustedOverwrites::All => true,
            TrustedOverwrites::Lists(lists) => {
                OverwriteList::of(composition).is_none_or(|list| lists.contains(&list.hash()))
            }
        }
    }
}

/// The status of a trusted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustStatus {
    /// It has not changed.
    Trusted,
    /// Its grants changed, so they are not trusted.
    Changed,
    /// It does not exist or cannot be read.
    Gone,
}

impl TrustFile {
    /// The file, in the user's data folder.
    pub(crate) fn path() -> Option<PathBuf> {
        data_folder().map(|folder| folder.join("trusted"))
    }

    /// Loads the trusted configurations.
    pub fn load() -> TrustFile {
        TrustFile::path().and_then(|file| TrustFile::read(&file).ok()).unwrap_or_default()
    }

    fn read(file: &Path) -> std::io::Result<TrustFile> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let entry = |line: &str| {
            let (hashes, path) = line.split_once(' ')?;
            let mut hashes = hashes.split(',').map(ToOwned::to_owned);
            let allowed = TrustedEntry { grants: hashes.next()?, overwrites: hashes.collect() };
            Some((decode_path(path)?, allowed))
        };
        Ok(TrustFile { allowed: text.lines().filter_map(entry).collect() })
    }

    /// Reads, changes and writes the file under a lock, so that concurrent processes do not lose changes.
    fn change<T>(change: impl FnOnce(&mut TrustFile) -> T) -> Result<T, String> {
        let folder = data_folder().ok_or("there is no data directory to store trust in")?;
        let file = folder.join("trusted");
        let changed = || {
            std::fs::create_dir_all(&folder)?;
            // A separate file, because the file itself is replaced, and its lock with it.
            let lock = File::create(file.with_extension("lock"))?;
            lock.lock()?;
            let mut trust = TrustFile::read(&file)?;
            let result = change(&mut trust);
            trust.write(&file).map(|()| result)
        };
        changed().map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Whether the grants of a configuration take effect.
    pub fn allows(&self, config: &Config) -> bool {
        !config.discovered || self.allows_grants(config.file.as_deref(), &config.grants)
    }

    /// Whether these grants of a found configuration are trusted.
    pub(super) fn allows_grants(&self, file: Option<&Path>, grants: &GrantedParts) -> bool {
        grants.parts.is_empty() || self.holds(file, &hash(grants))
    }

    /// The trusted `overwrites` of a configuration. None after a change of its grants: the files root may
    /// have changed.
    pub fn overwrites(&self, config: &Config) -> TrustedOverwrites {
        if !config.discovered {
            return TrustedOverwrites::All;
        }
        let allowed = self.allowed.get(&canonical_path(config.file.as_deref()));
        let allowed = allowed.filter(|allowed| allowed.grants == hash(&config.grants));
        TrustedOverwrites::Lists(allowed.map_or_else(BTreeSet::new, |it| it.overwrites.clone()))
    }

    /// Whether the servers of a project's `.mcp.json` may start.
    pub fn allows_project(&self, project: &Project) -> bool {
        let nothing = project.servers.is_empty() && project.unusable.is_empty();
        nothing || self.holds(Some(&project.file), &project_hash(project))
    }

    fn holds(&self, file: Option<&Path>, hash: &str) -> bool {
        self.allowed.get(&canonical_path(file)).is_some_and(|allowed| allowed.grants == hash)
    }

    /// Trusts the current grants of a configuration, its project and the `overwrites` of its compositions.
    pub fn allow(config: &Config, lists: &[OverwriteList]) -> Result<(), String> {
        TrustFile::change(|trust| {
            if let Some(file) = &config.file {
                let overwrites = lists.iter().map(OverwriteList::hash).collect();
                let allowed = TrustedEntry { grants: hash(&config.grants), overwrites };
                trust.allowed.insert(canonical_path(Some(file)), allowed);
            }
            if let Some(project) = &config.project {
                let allowed =
                    TrustedEntry { grants: project_hash(project), overwrites: BTreeSet::new() };
                trust.allowed.insert(canonical_path(Some(&project.file)), allowed);
            }
        })
    }

    /// Every trusted file, with its status.
    pub fn list(&self) -> Vec<(&Path, TrustStatus)> {
        self.allowed.iter().map(|(file, allowed)| (&**file, status(file, allowed))).collect()
    }

    /// Revokes trust in files, and returns those that were trusted.
    pub fn revoke(files: &[&Path]) -> Result<Vec<PathBuf>, String> {
        TrustFile::change(|trust| {
            let known = files.iter().map(|file| canonical_path(Some(file)));
            known.filter(|file| trust.allowed.remove(file).is_some()).collect()
        })
    }

    /// Writes a new file and renames it: readers take no lock, and see the old or the new file as a whole.
    fn write(&self, file: &Path) -> std::io::Result<()> {
        let line = |(path, allowed): (&PathBuf, &TrustedEntry)| {
            let TrustedEntry { grants, overwrites } = allowed;
            let hashes: Vec<&str> =
                std::iter::once(grants).chain(overwrites).map(String::as_str).collect();
            format!("{} {}\n", hashes.join(","), encode_path(path))
        };
        let text: String = self.allowed.iter().map(line).collect();
        let other = file.with_extension(format!("new-{}", std::process::id()));
        std::fs::write(&other, text)?;
        std::fs::rename(other, file)
    }
}

fn status(file: &Path, allowed: &TrustedEntry) -> TrustStatus {
    let is_project = file.file_name().is_some_and(|name| name == ".mcp.json");
    let now = if is_project {
        let project = servers::project(file.to_owned(), &Value::Null, &|_| None);
        file.is_file().then(|| project_hash(&project))
    } else {
        read_file(file, true, &|_| false).ok().map(|loaded| self::hash(&loaded.config.grants))
    };
    match now {
        None => TrustStatus::Gone,
        Some(now) if now != allowed.grants => TrustStatus::Changed,
        Some(_) if is_project => TrustStatus::Trusted,
        Some(_) => {
            let lists = OverwriteList::all(file);
            let is_known = lists.iter().all(|list| allowed.overwrites.contains(&list.hash()));
            if is_known { TrustStatus::Trusted } else { TrustStatus::Changed }
        }
    }
}

/// The hash of the grants as written: a new value of a variable keeps trust.
fn hash(grants: &GrantedParts) -> String {
    hex_digest(grants.as_written.to_canonical_json().as_bytes())
}

fn project_hash(project: &Project) -> String {
    hex_digest(project.as_written.to_canonical_json().as_bytes())
}

/// The canonical folder of a file, where its commands run, and its name there. A link to the same file
/// from another folder is another configuration, because its commands run elsewhere.
fn canonical_path(file: Option<&Path>) -> PathBuf {
    let file = file.and_then(|file| std::path::absolute(file).ok()).unwrap_or_default();
    let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(file.file_name()).map_or_else(|| file.clone(), |(folder, name)| folder.join(name))
}

/// The first character of an encoded path. Paths are absolute, so none begins like this by itself.
const ENCODED: char = '%';

/// A path as text on one line. A path that is not such a text is percent-encoded.
fn encode_path(path: &Path) -> String {
    match path.to_str().filter(|path| !path.contains(char::is_control)) {
        Some(plain) => plain.to_owned(),
        None => path.as_os_str().as_encoded_bytes().iter().fold(ENCODED.into(), |line, byte| {
            if byte.is_ascii_graphic() && *byte != b'%' {
                line + char::from(*byte).encode_utf8(&mut [0; 4])
            } else {
                line + &format!("%{byte:02x}")
            }
        }),
    }
}

/// The path of an encoded text.
fn decode_path(line: &str) -> Option<PathBuf> {
    let Some(encoded) = line.strip_prefix(ENCODED) else { return Some(line.into()) };
    path_from(percent::decode(encoded)?)
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "on other systems not all bytes are a path")]
fn path_from(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn path_from(bytes: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(bytes).ok().map(PathBuf::from)
}
