//! The directions of dependencies between the folders of each crate, read from their `use` lines and paths.
//!
//! Cargo holds the directions between the crates. Inside a crate the compiler allows everything, so these
//! tests hold them: no cycle between top-level modules, and in `segue` the order
//! `cli → rest | graphql | mcp → api → segue_runtime → segue_core`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;

use crate::support::{files_below, repository, shown};

const CRATES: &[&str] = &["segue-core", "segue-runtime", "segue"];

/// Top-level modules of `segue` and those that each must not use.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("api", &["rest", "graphql", "mcp", "lsp", "http", "cli", "app", "dispatch"]),
    ("dispatch", &["rest", "graphql", "mcp", "lsp", "http", "cli", "app", "config"]),
    ("rest", &["graphql", "mcp", "lsp", "cli", "app"]),
    ("graphql", &["rest", "mcp", "lsp", "cli", "app"]),
    ("mcp", &["rest", "graphql", "lsp", "cli", "app"]),
    // It has no service: the tools of a folder come from `app`, answers from the core.
    ("lsp", &["rest", "graphql", "mcp", "http", "cli", "server"]),
    ("http", &["rest", "graphql", "mcp", "lsp", "cli", "app"]),
    ("config", &["api", "rest", "graphql", "mcp", "lsp", "http", "cli", "app"]),
    ("observe", &["rest", "graphql", "mcp", "lsp", "http", "cli", "app"]),
    ("app", &["lsp", "cli"]),
];

/// A source file: its path below `src`, without the extension, and its code.
struct File {
    path: Vec<String>,
    code: String,
}

impl File {
    fn new(path: &str, text: &str) -> File {
        let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let quoted = regex::Regex::new(r#""(?:[^"\\]|\\.)*""#).unwrap();
        let text = quoted.replace_all(text, "\"\"");
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        File {
            path: path.split('/').map(str::to_owned).collect(),
            code: lines.collect::<Vec<_>>().join("\n"),
        }
    }

    /// The top-level module that it belongs to.
    fn module(&self) -> &str {
        &self.path[0]
    }

    /// The names that stand right behind `crate::`, or behind enough `super::` to mean the same.
    fn uses(&self) -> BTreeSet<String> {
        static PATH: LazyLock<regex::Regex> = LazyLock::new(|| {
            regex::Regex::new(r"\b(crate|super(?:::super)*)::(\w+|\{[^;]*)").unwrap()
        });
        let mut names = BTreeSet::new();
        for found in PATH.captures_iter(&self.code) {
            let ups = found[1].matches("super").count();
            if &found[1] == "crate" || ups == self.path.len() {
                names.extend(first_names(&found[2]));
            }
        }
        names
    }
}

/// The first name of each path in a group: of `{a::b, c}` both `a` and `c`.
fn first_names(group: &str) -> Vec<String> {
    let Some(inner) = group.strip_prefix('{') else { return vec![group.to_owned()] };
    let (mut depth, mut names, mut name) = (0_i32, Vec::new(), String::new());
    for letter in inner.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(std::mem::take(&mut name)),
            _ if depth == 0 => name.push(letter),
            _ => {}
        }
        if depth < 0 {
            break;
        }
    }
    names.push(name);
    let first = |path: String| path.trim().split("::").next().unwrap_or_default().to_owned();
    names.into_iter().map(first).filter(|name| !name.is_empty()).collect()
}

fn files_of(name: &str) -> Vec<File> {
    let folder = repository().join("crates").join(name).join("src");
    let files = files_below(&folder, &["rs"]).into_iter().map(|file| {
        let path = file.strip_prefix(&folder).unwrap().to_string_lossy().replace('\\', "/");
        File::new(&path, &fs::read_to_string(&file).unwrap())
    });
    files.filter(|file| !matches!(file.module(), "lib" | "main")).collect()
}

/// Which top-level module uses which others.
fn edges(files: &[File]) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeSet<&str> = files.iter().map(File::module).collect();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let others = file.uses().into_iter();
        let others = others.filter(|name| name != file.module() && modules.contains(name.as_str()));
        edges.entry(file.module().to_owned()).or_default().extend(others);
    }
    edges
}

/// Modules that can be reached from `start`.
fn reachable<'a>(
    edges: &'a BTreeMap<String, BTreeSet<String>>,
    start: &'a str,
) -> BTreeSet<&'a str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(module) = open.pop() {
        for next in edges.get(module).into_iter().flatten() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

/// A line for each edge that is part of a cycle between top-level modules.
fn cycles(files: &[File]) -> String {
    let edges = edges(files);
    let mut wrong = String::new();
    for (module, uses) in &edges {
        for other in uses.iter().filter(|other| reachable(&edges, other).contains(module.as_str()))
        {
            let _ = writeln!(wrong, "cycle: {module} uses {other}, which leads back to {module}");
        }
    }
    wrong
}

/// A line for each use that goes against the order of the folders of `segue`.
fn against_the_order(files: &[File]) -> String {
    let edges = edges(files);
    let mut wrong = String::new();
    for (module, forbidden) in FORBIDDEN {
        let uses = edges.get(*module);
        for other in
            forbidden.iter().filter(|other| uses.is_some_and(|uses| uses.contains(**other)))
        {
            let _ = writeln!(wrong, "{module} must not use {other}");
        }
    }
    wrong
}

/// A line for each use of a crate that lies outside.
fn outwards(name: &str, files: &[File]) -> String {
    let outer: &[&str] = match name {
        "segue-core" => &["segue_runtime::", "segue::"],
        "segue-runtime" => &["segue::"],
        _ => &[],
    };
    let mut wrong = String::new();
    for file in files {
        for path in outer {
            let found = regex::Regex::new(&format!(r"(^|[^\w:]){path}")).unwrap();
            if found.is_match(&file.code) {
                let _ = writeln!(wrong, "{name}: {} uses {path}", file.path.join("/"));
            }
        }
    }
    wrong
}

#[test]
fn no_crate_has_a_cycle_between_its_folders() {
    for name in CRATES {
        let wrong = cycles(&files_of(name));
        assert!(wrong.is_empty(), "{name}:\n{wrong}");
    }
}

#[test]
fn surfaces_use_the_service_layer_and_not_the_other_way() {
    let files = files_of("segue");
    let modules: BTreeSet<&str> = files.iter().map(File::module).collect();
    for (module, forbidden) in FORBIDDEN {
        for name in std::iter::once(module).chain(*forbidden) {
            assert!(modules.contains(name), "there is no module `{name}`: correct `FORBIDDEN`");
        }
    }
    let wrong = against_the_order(&files);
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn no_crate_uses_one_that_lies_outside() {
    for name in CRATES {
        let wrong = outwards(name, &files_of(name));
        assert!(wrong.is_empty(), "\n{wrong}");
    }
}

/// Each direction, violated once: the checks above find it.
#[test]
fn a_planted_violation_of_each_direction_is_found() {
    for (module, forbidden) in FORBIDDEN {
        for other in *forbidden {
            for planted in [
                format!("use crate::{other}::Thing;"),
                format!("use crate::{{print, {other}::{{Thing, Other}}}};"),
                format!("fn f() {{ super::super::{other}::thing(); }}"),
            ] {
                // Alone: the file is wrong whatever stands beside it, and the tree is read by the test above.
                let planted_file = File::new(&format!("{module}/planted.rs"), &planted);
                let files = [planted_file, File::new(&format!("{other}.rs"), "")];
                let wrong = against_the_order(&files);
                assert!(wrong.contains(&format!("{module} must not use {other}\n")), "{planted}");
            }
        }
    }
    for (name, module, other) in [
        ("segue-core", "diagnostic", "run"),
        ("segue-core", "expr", "compile"),
        ("segue-core", "compile", "language"),
        ("segue-runtime", "store", "engine"),
        ("segue-runtime", "tools", "engine"),
        ("segue", "config", "cli"),
    ] {
        let mut files = files_of(name);
        files.push(File::new(&format!("{module}/planted.rs"), &format!("use crate::{other}::X;")));
        let wrong = cycles(&files);
        assert!(wrong.contains(&format!("cycle: {module} uses {other}")), "{name}: {wrong}");
    }
    for (name, planted) in [
        ("segue-core", "use segue_runtime::engine::Engine;"),
        ("segue-core", "use segue::api::RunService;"),
        ("segue-runtime", "use segue::api::RunService;"),
    ] {
        let files = [File::new("planted.rs", planted)];
        assert!(!outwards(name, &files).is_empty(), "{name}: {planted}");
    }
}

/// One word, one meaning: a public type's name stands for one type in all three crates.
#[test]
fn no_two_public_types_have_one_name() {
    let declared =
        regex::Regex::new(r"(?m)^ *pub(?:\([a-z]+\))? (?:struct|enum|trait|type|union) ([A-Z]\w*)")
            .unwrap();
    // Two definitions in one file are two targets' forms of one type.
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in CRATES {
        for file in files_below(&repository().join("crates").join(name).join("src"), &["rs"]) {
            let text = fs::read_to_string(&file).unwrap();
            for found in declared.captures_iter(&text) {
                places.entry(found[1].to_owned()).or_default().insert(shown(&file));
            }
        }
    }
    assert!(places.len() > 300, "only {} types were found", places.len());
    places.retain(|_, files| files.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}
