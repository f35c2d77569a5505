//! What of a configuration that was merely found may have an effect.
//!
//! Checking a stranger's repository must run nothing of theirs, nor send anything of ours to an
//! address of theirs, nor widen what our own tools may touch. A configuration that its user named is
//! trusted. One that was found in the working directory grants nothing until exactly what it grants
//! has been allowed, by its hash: commands, servers, operations, roots, hosts, what is known of
//! tools, who is let in, where things are kept. What only limits or names documents needs no trust.
//! What its compositions may overwrite without a question is allowed list by list: a list that changes
//! has no effect, and everything else keeps its own. A project's `.mcp.json` is always found.

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
use super::{Config, Project, ServeConfig, StoreLocation, data_folder, read_file, servers};

/// Parts of a configuration that grant nothing: they name documents, or bound what is there. One that
/// names variables is a grant all the same: it is given the environment, and what it makes of that is seen.
const GRANTS_NOTHING: &[&str] =
    &["compositions", "templates", "limits", "sources", "toolsets", "inputs", "openapi", "driver"];

/// What a toolset holds back is no grant, but changes what a grant is worth.
const TOOLSETS: &str = "toolsets";

/// What a configuration grants, as it was written.
#[derive(Clone, Default)]
pub struct GrantedParts {
    /// The parts of the file that grant something, `${VAR}` unexpanded, and its toolsets.
    as_written: Value,
    /// The names of those that grant more than there is by default.
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

    /// The parts with what each of them grants.
    pub fn visible_parts(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        let members = self.as_written.as_object().into_iter().flat_map(|members| members.iter());
        members.filter(|(key, _)| self.parts.contains(key))
    }
}

/// Whether a part grants nothing but what its variables tell.
pub fn is_safe_part(part: &str) -> bool {
    GRANTS_NOTHING.contains(&part)
}

/// Whether a variable is named anywhere in a part.
pub(super) fn has_variable(node: &Node) -> bool {
    let here = node.as_str().is_some_and(|text| text.contains("${"));
    let members = || node.members().iter().any(|member| has_variable(&member.value));
    here || members() || node.items().iter().any(has_variable)
}

impl Config {
    /// Leaves out of `grants` what grants no more than there is by default: a root of the file tools
    /// inside the working directory.
    pub(super) fn drop_default_grants(&mut self) {
        let builtins = self.grants.as_written.get("builtins");
        let only = |value: Option<&Value>, key: &str| {
            value.and_then(Value::as_object).is_some_and(|it| it.len() == 1 && it.contains_key(key))
        };
        let has_only_a_root =
            only(builtins, "files") && only(builtins.and_then(|it| it.get("files")), "root");
        if has_only_a_root && self.files_root.as_deref().is_some_and(is_inside_here) {
            self.grants.parts.retain(|part| &**part != "builtins");
        }
    }

    /// Takes away what it grants, where that is not a tool or a model which says itself that it may
    /// not be used.
    pub(super) fn drop_untrusted(&mut self) {
        self.files_root = self.files_root.take().filter(|root| is_inside_here(root));
        self.overwrite.clear();
        self.http_allow.clear();
        self.tools.clear();
        self.store = StoreLocation::default();
        self.retention = None;
        self.server = ServeConfig::default();
        // What `server.inline` had added to it.
        self.toolsets.remove(INLINE);
    }
}

/// Whether a folder is a part of the working directory, wherever links lead.
fn is_inside_here(folder: &Path) -> bool {
    let Some(here) = std::env::current_dir().ok().and_then(|it| it.canonicalize().ok()) else {
        return false;
    };
    let mut known = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    // One that is not there yet will be made where its name says.
    while !known.exists() && known.symlink_metadata().is_err() && known.pop() {}
    let climbs = folder.components().any(|part| part == std::path::Component::ParentDir);
    known.canonicalize().is_ok_and(|known| known.starts_with(&here)) && (!climbs || folder.exists())
}

/// What was allowed: files, each with what it granted then.
#[derive(Debug, Default)]
pub struct TrustFile {
    allowed: BTreeMap<PathBuf, TrustedEntry>,
}

/// What was allowed of a file.
#[derive(Debug)]
struct TrustedEntry {
    /// The hash of what it granted.
    grants: String,
    /// The hashes of what its compositions might overwrite.
    overwrites: BTreeSet<String>,
}

/// What a composition may overwrite without a question.
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

    /// The lists of all compositions of a configuration. Its variables are looked up to find them: they are
    /// shown to somebody who decides about them.
    pub fn all(file: &Path) -> Vec<OverwriteList> {
        let whole = read_file(file, true, &|_| true).or_else(|_| read_file(file, true, &|_| false));
        let Ok(config) = whole.map(|loaded| loaded.config) else { return Vec::new() };
        let headers = composition_files(&config).into_iter();
        let headers = headers.filter_map(|source| read_header(&source, &config.limits));
        headers.filter_map(|composition| OverwriteList::of(&composition)).collect()
    }

    /// The hash of the list and its place: the same list in another file is another one.
    fn hash(&self) -> String {
        let patterns = self.patterns.iter().cloned().map(Value::from).collect::<Vec<_>>();
        let list = [Value::from(line_of(&place(Some(&self.file)))), patterns.into()];
        hex_digest(Value::from(list.to_vec()).to_canonical_json().as_bytes())
    }
}

/// Whose `overwrites` have an effect.
pub enum TrustedOverwrites {
    /// Those of every composition.
    All,
    /// Those with these hashes.
    Lists(BTreeSet<String>),
}

impl TrustedOverwrites {
    /// Whether those of a composition have.
    pub fn has(&self, composition: &Composition) -> bool {
        match self {
            TrustedOverwrites::All => true,
            TrustedOverwrites::Lists(lists) => {
                OverwriteList::of(composition).is_none_or(|list| lists.contains(&list.hash()))
            }
        }
    }
}

/// How a file stands that was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustStatus {
    /// It grants what it granted then.
    Trusted,
    /// It grants something else now, which is not allowed.
    Changed,
    /// It is not there, or cannot be read.
    Gone,
}

impl TrustFile {
    /// What was allowed before.
    pub fn load() -> TrustFile {
        let file = data_folder().map(|folder| folder.join("trusted"));
        file.and_then(|file| TrustFile::read(&file).ok()).unwrap_or_default()
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
            Some((path_of(path)?, allowed))
        };
        Ok(TrustFile { allowed: text.lines().filter_map(entry).collect() })
    }

    /// Reads the list, changes it and writes it, with its lock held: of two processes that change it at
    /// once, neither overwrites what the other wrote.
    fn change<T>(change: impl FnOnce(&mut TrustFile) -> T) -> Result<T, String> {
        let folder = data_folder().ok_or("there is no data directory to remember it in")?;
        let file = folder.join("trusted");
        let changed = || {
            std::fs::create_dir_all(&folder)?;
            // A file of its own: the list itself is replaced, and a lock on it with it.
            let lock = File::create(file.with_extension("lock"))?;
            lock.lock()?;
            let mut trust = TrustFile::read(&file)?;
            let told = change(&mut trust);
            trust.write(&file).map(|()| told)
        };
        changed().map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Whether what a configuration grants has an effect.
    pub fn allows(&self, config: &Config) -> bool {
        !config.discovered || self.allows_grants(config.file.as_deref(), &config.grants)
    }

    /// Whether a found configuration may grant this.
    pub(super) fn allows_grants(&self, file: Option<&Path>, grants: &GrantedParts) -> bool {
        grants.parts.is_empty() || self.holds(file, &hash(grants))
    }

    /// Whose `overwrites` have an effect, of the compositions of a configuration. When something else that it
    /// grants has changed, none: the files root may be another one.
    pub fn overwrites(&self, config: &Config) -> TrustedOverwrites {
        if !config.discovered {
            return TrustedOverwrites::All;
        }
        let allowed = self.allowed.get(&place(config.file.as_deref()));
        let allowed = allowed.filter(|allowed| allowed.grants == hash(&config.grants));
        TrustedOverwrites::Lists(allowed.map_or_else(BTreeSet::new, |it| it.overwrites.clone()))
    }

    /// Whether the servers of a project's `.mcp.json` may start.
    pub fn allows_project(&self, project: &Project) -> bool {
        let nothing = project.servers.is_empty() && project.unusable.is_empty();
        nothing || self.holds(Some(&project.file), &project_hash(project))
    }

    fn holds(&self, file: Option<&Path>, hash: &str) -> bool {
        self.allowed.get(&place(file)).is_some_and(|allowed| allowed.grants == hash)
    }

    /// Allows what a configuration grants now, its project, and what its compositions may overwrite.
    pub fn allow(config: &Config, lists: &[OverwriteList]) -> Result<(), String> {
        TrustFile::change(|trust| {
            if let Some(file) = &config.file {
                let overwrites = lists.iter().map(OverwriteList::hash).collect();
                let allowed = TrustedEntry { grants: hash(&config.grants), overwrites };
                trust.allowed.insert(place(Some(file)), allowed);
            }
            if let Some(project) = &config.project {
                let allowed =
                    TrustedEntry { grants: project_hash(project), overwrites: BTreeSet::new() };
                trust.allowed.insert(place(Some(&project.file)), allowed);
            }
        })
    }

    /// Every file that was allowed, and how it stands.
    pub fn list(&self) -> Vec<(&Path, TrustStatus)> {
        self.allowed.iter().map(|(file, allowed)| (&**file, standing(file, allowed))).collect()
    }

    /// Takes back what was allowed of files; which of them there were.
    pub fn revoke(files: &[&Path]) -> Result<Vec<PathBuf>, String> {
        TrustFile::change(|trust| {
            let known = files.iter().map(|file| place(Some(file)));
            known.filter(|file| trust.allowed.remove(file).is_some()).collect()
        })
    }

    /// Writes a file beside the list and renames it: a process that reads the list meanwhile, which
    /// takes no lock, reads all of the old one or all of the new one.
    fn write(&self, file: &Path) -> std::io::Result<()> {
        let line = |(path, allowed): (&PathBuf, &TrustedEntry)| {
            let TrustedEntry { grants, overwrites } = allowed;
            let hashes: Vec<&str> =
                std::iter::once(grants).chain(overwrites).map(String::as_str).collect();
            format!("{} {}\n", hashes.join(","), line_of(path))
        };
        let text: String = self.allowed.iter().map(line).collect();
        let other = file.with_extension(format!("new-{}", std::process::id()));
        std::fs::write(&other, text)?;
        std::fs::rename(other, file)
    }
}

fn standing(file: &Path, allowed: &TrustedEntry) -> TrustStatus {
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

/// The hash of everything that a configuration grants, as written: a token that is rotated changes
/// nothing.
fn hash(grants: &GrantedParts) -> String {
    hex_digest(grants.as_written.to_canonical_json().as_bytes())
}

fn project_hash(project: &Project) -> String {
    hex_digest(project.as_written.to_canonical_json().as_bytes())
}

/// Where a file is, however it was named: the real folder, which its commands run in, and its name
/// there. A link to the same text elsewhere is another configuration: its commands are others.
fn place(file: Option<&Path>) -> PathBuf {
    let file = file.and_then(|file| std::path::absolute(file).ok()).unwrap_or_default();
    let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(file.file_name()).map_or_else(|| file.clone(), |(folder, name)| folder.join(name))
}

/// What a line of the list begins its path with where that is encoded. Paths are absolute, so that none
/// begins like this by itself.
const ENCODED: char = '%';

/// A path as a line of the list has it. One that a line cannot hold is encoded, byte by byte.
fn line_of(path: &Path) -> String {
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

/// The path of such a line.
fn path_of(line: &str) -> Option<PathBuf> {
    let Some(encoded) = line.strip_prefix(ENCODED) else { return Some(line.into()) };
    let mut bytes = Vec::new();
    let mut rest = encoded.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    path_from(bytes)
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere not all bytes are a path")]
fn path_from(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn path_from(bytes: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(bytes).ok().map(PathBuf::from)
}
