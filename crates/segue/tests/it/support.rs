//! A folder of its own for each test, and the program in it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// The program under test.
pub(crate) const SEGUE: &str = env!("CARGO_BIN_EXE_segue");

/// A working folder and a home that go away together.
pub(crate) struct World {
    dir: TempDir,
    /// Whether its `segue.yaml` is merely found, and not what its user named.
    is_found: bool,
}

impl World {
    pub(crate) fn new() -> World {
        let dir = TempDir::new().unwrap();
        for folder in ["work", "home"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        World { dir, is_found: false }
    }

    /// A folder whose `segue.yaml` was discovered, not named, so that it needs trust.
    pub(crate) fn found() -> World {
        World::new().merely_found()
    }

    /// The same folder, whose `segue.yaml` was discovered, not named.
    pub(crate) fn merely_found(self) -> World {
        World { is_found: true, ..self }
    }

    /// A world with one composition, `c.yaml`.
    pub(crate) fn with(composition: &str) -> World {
        let world = World::new();
        world.file("c.yaml", composition);
        world
    }

    /// The working folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// A path in the working folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Writes a file into the working folder, with the folders above it.
    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A command in the working folder that sees nothing of who runs the tests.
    pub(crate) fn command(&self, program: &str) -> Command {
        let home = self.dir.path().join("home");
        let mut command = Command::new(program);
        let foreign = |name: &str| {
            ["SEGUE_", "XDG_", "CLICOLOR"].iter().any(|prefix| name.starts_with(prefix))
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(foreign))
        {
            command.env_remove(name);
        }
        command
            .env("HOME", &home)
            .env("XDG_DATA_HOME", home.join("data"))
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("NO_COLOR", "1")
            .current_dir(self.folder())
            .stdin(Stdio::null());
        let config = self.path("segue.yaml");
        if !self.is_found && config.exists() {
            command.env("SEGUE_CONFIG", config);
        }
        command
    }

    /// Runs the program with nothing to read.
    pub(crate) fn segue(&self, args: &[&str]) -> Done {
        Done::of(self.command(SEGUE).args(args).output().unwrap())
    }

    /// Runs the program with something to read.
    pub(crate) fn segue_reading(&self, stdin: &str, args: &[&str]) -> Done {
        let mut command = self.command(SEGUE);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that does not read must not hang its test.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        Done::of(child.wait_with_output().unwrap())
    }

    /// The JSON that a command prints, once it has ended with this code.
    #[track_caller]
    pub(crate) fn json(&self, code: i32, args: &[&str]) -> Json {
        self.segue(args).exits(code).json()
    }

    /// The view of a run of `c.yaml`.
    #[track_caller]
    pub(crate) fn run(&self, code: i32, args: &[&str]) -> Json {
        self.json(code, &[&["run", "c.yaml", "--json"], args].concat())
    }
}

/// How the program ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Done {
        Done {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Done {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Standard output, which must be one JSON document and nothing else.
    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {:?}\n{}", self.stdout, self.stderr))
    }
}

/// The element of a list whose `id` is this.
#[track_caller]
pub(crate) fn by_id<'a>(list: &'a Json, id: &str) -> &'a Json {
    let found = list.as_array().and_then(|list| list.iter().find(|element| element["id"] == id));
    found.unwrap_or_else(|| panic!("no `{id}` in {list:#}"))
}

/// One step of a run or a plan.
#[track_caller]
pub(crate) fn step<'a>(view: &'a Json, id: &str) -> &'a Json {
    by_id(&view["steps"], id)
}

/// The keys of an object.
#[track_caller]
pub(crate) fn keys(value: &Json) -> Vec<&str> {
    value
        .as_object()
        .unwrap_or_else(|| panic!("{value} is no object"))
        .keys()
        .map(|k| &**k)
        .collect()
}

/// Holds the keys of an object against those that it must have at least.
#[track_caller]
pub(crate) fn has_keys(value: &Json, wanted: &str) {
    let keys = keys(value);
    for key in wanted.split_whitespace() {
        assert!(keys.contains(&key), "no `{key}` in {value:#}");
    }
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The corpus of the core's own tests.
pub(crate) fn corpus() -> PathBuf {
    repository().join("crates/segue-core/tests/corpus")
}

/// Every file below a folder whose path ends in one of these, by name.
pub(crate) fn files_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .and_then(OsStr::to_str)
                .is_some_and(|e| extensions.contains(&e))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Copies a folder with all that is in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A path, as it is named in the repository.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(repository()).unwrap_or(path).display().to_string()
}

/// How long anything may take before it counts as never.
const NEVER: Duration = Duration::from_mins(1);

/// Looks until something is there.
#[track_caller]
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < NEVER, "it never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}
