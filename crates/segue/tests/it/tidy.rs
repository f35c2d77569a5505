//! The rules for the repository, checked on its files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use segue_core::diagnostic::Code;
use segue_core::document::{ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::source::Source;

use crate::support::{Json, World, corpus, files_below, repository, shown};

/// What the core may depend on: nothing that touches the world.
const CORE_DEPENDENCIES: &[&str] = &[
    "base64",
    "granit-parser",
    "indexmap",
    "jaq-core",
    "jaq-json",
    "jaq-std",
    "jiff",
    "jsonschema",
    "memchr",
    "minijinja",
    "regex",
    "regex-automata",
    "regex-syntax",
    "schemars",
    "semver",
    "serde",
    "serde_json",
    "sha2",
    "strsim",
    "thiserror",
];

/// What the core must not even name.
const CORE_FORBIDDEN: &[&str] = &[
    "tokio",
    "reqwest",
    "rusqlite",
    "std::fs",
    "std::net",
    "std::process",
    "std::time::Instant",
    "SystemTime",
];

const FILE_LINES_MAX: usize = 700;
const FUNCTION_LINES_MAX: usize = 90;

fn sources() -> Vec<(PathBuf, String)> {
    let crates = fs::read_dir(repository().join("crates")).unwrap();
    let folders = crates.map(|entry| entry.unwrap().path().join("src"));
    folders
        .filter(|folder| folder.is_dir())
        .flat_map(|folder| files_below(&folder, &["rs"]))
        .map(|file| (file.clone(), fs::read_to_string(file).unwrap()))
        .collect()
}

/// Fails with every line that was written into it.
#[track_caller]
fn nothing(wrong: &str) {
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// S2-62: the way of dependencies; what composes does not know what executes.
#[test]
fn the_core_depends_on_nothing_else() {
    let manifest = fs::read_to_string(repository().join("crates/segue-core/Cargo.toml")).unwrap();
    let section = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    let named: Vec<&str> = section
        .take_while(|line| !line.starts_with('['))
        .filter(|line| line.contains('='))
        .map(|line| line.split(['.', '=', ' ']).next().unwrap_or_default())
        .collect();
    assert_eq!(named, CORE_DEPENDENCIES);
    let other = manifest.lines().filter(|line| {
        line.starts_with('[') && line.contains("dependencies") && !line.contains("dev-")
    });
    assert_eq!(other.collect::<Vec<_>>(), ["[dependencies]"]);
}

/// S2-05: what compiles, plans and builds toolsets has no way to the world.
#[test]
fn the_core_touches_nothing() {
    let mut wrong = String::new();
    let core = repository().join("crates/segue-core/src");
    for (file, text) in sources().iter().filter(|(file, _)| file.starts_with(&core)) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in CORE_FORBIDDEN.iter().filter(|word| code.contains(**word)) {
                let _ = writeln!(wrong, "{}:{}: `{word}`", shown(file), number + 1);
            }
        }
    }
    nothing(&wrong);
}

#[test]
fn every_code_has_its_page_and_every_page_its_code() {
    let folder = repository().join("docs/errors");
    for code in Code::ALL {
        let page = fs::read_to_string(folder.join(format!("{code}.md")))
            .unwrap_or_else(|error| panic!("docs/errors/{code}.md: {error}"));
        assert!(page.starts_with(&format!("# {code}\n")), "{code}");
    }
    for page in files_below(&folder, &["md"]) {
        let name = page.file_stem().unwrap().to_string_lossy();
        assert!(Code::parse(&name).is_some(), "{} is the page of no code", shown(&page));
    }
}

/// Codes that the compiler names in its source.
fn codes_of_the_check() -> BTreeSet<&'static str> {
    let core = repository().join("crates/segue-core/src");
    let files = ["document", "compile"].map(|stage| files_below(&core.join(stage), &["rs"]));
    let files = files.concat();
    let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let named = regex::Regex::new(r"Code::([A-Z]\w+)").unwrap();
    let named: BTreeSet<String> = named.captures_iter(&text).map(|c| c[1].to_owned()).collect();
    Code::ALL
        .iter()
        .filter(|code| named.contains(&format!("{code:?}")))
        .map(|code| code.as_str())
        .collect()
}

/// Codes of what is done with a document beside checking it: `tests/convert.rs` of the core; and of a fault
/// of ours, which no document is known to cause.
const CODES_ELSEWHERE: &[&str] = &["conversion", "internal"];

/// S0-92: whatever the check can find is found once in the corpus.
#[test]
fn every_code_of_the_check_has_a_broken_composition() {
    let planted: BTreeSet<String> = files_below(&corpus().join("check/broken"), &["txt"])
        .iter()
        .flat_map(|file| {
            fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(' ').nth(1).map(str::to_owned))
        .collect();
    let mut codes = codes_of_the_check();
    assert!(codes.len() > 18, "{codes:?}");
    CODES_ELSEWHERE.iter().for_each(|code| assert!(codes.remove(code), "{code}"));
    let missing: Vec<_> = codes.into_iter().filter(|code| !planted.contains(*code)).collect();
    assert!(missing.is_empty(), "no broken composition for {missing:?}");
}

const SCHEMAS: &[(&str, &str)] = &[
    ("schema/composition.schema.json", "2020-12"),
    ("schema/composition.draft-07.schema.json", "07"),
];

const TEST_SCHEMAS: &[(&str, &str)] =
    &[("schema/test.schema.json", "2020-12"), ("schema/test.draft-07.schema.json", "07")];

#[test]
fn the_schemas_in_the_repository_are_those_that_the_program_prints() {
    let world = World::new();
    for (file, draft) in SCHEMAS {
        let printed = world.segue(&["schema", "--draft", draft]).exits(0).stdout;
        let kept = fs::read_to_string(repository().join(file)).unwrap_or_default();
        assert!(kept == printed, "{file} is stale: `just gen` writes it");
    }
    for (file, draft) in TEST_SCHEMAS {
        let printed = world.segue(&["schema", "--test", "--draft", draft]).exits(0).stdout;
        let kept = fs::read_to_string(repository().join(file)).unwrap_or_default();
        assert!(kept == printed, "{file} is stale: `just gen` writes it");
    }
}

#[test]
fn the_schemas_of_tests_accept_tests_and_nothing_else() {
    let files = files_below(&repository().join("examples"), &["yaml", "json"]);
    let is_test = |file: &&PathBuf| shown(file).contains(".test.");
    let tests: Vec<&PathBuf> = files.iter().filter(is_test).collect();
    assert!(!tests.is_empty());
    for (schema, _) in TEST_SCHEMAS {
        let validator = validator(schema);
        for file in &tests {
            let errors: Vec<String> =
                validator.iter_errors(&value_of(file)).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{schema}: {}: {errors:?}", shown(file));
        }
        let wrong = serde_json::json!({ "tests": [{ "name": "t", "expct": {} }] });
        assert!(!validator.is_valid(&wrong), "{schema}");
    }
}

/// The value of a composition's text.
fn value_of(file: &Path) -> Json {
    let source = Source::new(file.display().to_string(), fs::read_to_string(file).unwrap());
    let node = read(&source, ReadLimits::for_documents(&Limits::default()));
    Json::from(&node.unwrap_or_else(|wrong| panic!("{}: {wrong:?}", shown(file))).to_value())
}

fn is_composition(file: &Path) -> bool {
    value_of(file).get("steps").is_some()
}

#[test]
fn the_schemas_accept_what_is_correct() {
    let mut files = files_below(&corpus().join("check/correct"), &["yaml", "json"]);
    let examples = files_below(&repository().join("examples"), &["yaml", "yml", "json"]);
    files.extend(examples.into_iter().filter(|file| is_composition(file)));
    assert!(files.len() > 50, "only {} files", files.len());
    let mut wrong = String::new();
    for (schema, _) in SCHEMAS {
        let validator = validator(schema);
        for file in &files {
            for error in validator.iter_errors(&value_of(file)) {
                let place = error.instance_path().to_string();
                let _ = writeln!(wrong, "{schema}: {}: {place}: {error}", shown(file));
            }
        }
    }
    nothing(&wrong);
}

#[test]
fn the_schemas_refuse_what_is_not() {
    for (schema, _) in SCHEMAS {
        let validator = validator(schema);
        for case in [
            "unknown-field-step-near",
            "unknown-field-top-level-near",
            "word-failure-strategy",
            "field-retry-count-is-text",
            "name-missing",
            "chain-action-word",
            "chain-name-missing",
            "chain-unknown-step-field",
            "chain-implementation-without-composite",
        ] {
            let case = corpus().join("check/broken").join(case);
            let yaml = case.join("composition.yaml");
            let file = if yaml.exists() { yaml } else { case.join("composition.json") };
            assert!(!validator.is_valid(&value_of(&file)), "{schema} accepts {}", shown(&file));
        }
    }
}

fn validator(schema: &str) -> jsonschema::Validator {
    let text = fs::read_to_string(repository().join(schema)).unwrap();
    let schema: Json = serde_json::from_str(&text).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn every_module_says_what_it_is() {
    let mut wrong = String::new();
    for (file, text) in sources() {
        if !text.starts_with("//! ") {
            let _ = writeln!(wrong, "{} does not begin with `//!`", shown(&file));
        }
    }
    nothing(&wrong);
}

/// Whether the text at the top of a file says why it is long.
fn is_table(text: &str) -> bool {
    text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.contains("table"))
}

#[test]
fn files_and_functions_stay_short() {
    let mut wrong = String::new();
    for (file, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > FILE_LINES_MAX && !is_table(&text) {
            let _ = writeln!(wrong, "{} has {} lines", shown(&file), lines.len());
        }
        for (start, length) in functions(&lines) {
            if length > FUNCTION_LINES_MAX && !is_table(&text) {
                let name = lines[start].trim();
                let _ = writeln!(wrong, "{}:{}: {length} lines: {name}", shown(&file), start + 1);
            }
        }
    }
    nothing(&wrong);
}

/// Where functions begin and how long they are, by the indentation that rustfmt gives them.
fn functions(lines: &[&str]) -> Vec<(usize, usize)> {
    let head = regex::Regex::new(
        r"^( *)(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?(?:unsafe )?fn [^;]*$",
    )
    .unwrap();
    let end_of = |(start, line): (usize, &&str)| {
        let indent = head.captures(line)?[1].to_owned();
        let close = format!("{indent}}}");
        let declared = format!("{indent});");
        let after = lines[start..].iter().enumerate();
        let (length, line) = after.skip(1).find(|(_, line)| {
            **line == close
                || line.starts_with(&declared)
                || (line.starts_with(&indent)
                    && line[indent.len()..].starts_with(") ->")
                    && line.ends_with(';'))
        })?;
        (*line == close).then_some((start, length + 1))
    };
    lines.iter().enumerate().filter_map(end_of).collect()
}

#[test]
fn the_scan_for_functions_sees_them() {
    let text = "fn a() {\n    x\n}\nimpl B {\n    pub(crate) async fn b(\n        c: D,\n    ) -> E {\n        x\n    }\n}\ntrait T {\n    fn t(&self);\n}\n";
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(functions(&lines), [(0, 3), (4, 5)]);
}

#[test]
fn nothing_is_left_for_later() {
    let mut wrong = String::new();
    for (file, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            for word in ["todo!", "unimplemented!", "dbg!(", "FIXME", "XXX"] {
                if line.contains(word) {
                    let _ = writeln!(wrong, "{}:{}: {word}", shown(&file), number + 1);
                }
            }
        }
    }
    nothing(&wrong);
}

/// The files that belong to the repository: those that git would commit.
fn committed() -> Vec<PathBuf> {
    let root = repository();
    let list = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output();
    let listed = list.ok().filter(|output| output.status.success());
    // Without git, such as in an unpacked archive, there is nothing to commit.
    let Some(listed) = listed else { return Vec::new() };
    let text = String::from_utf8(listed.stdout).unwrap();
    let files = text.split('\0').filter(|name| !name.is_empty()).map(|name| root.join(name));
    files.filter(|file| file.is_file()).collect()
}

#[test]
fn committed_files_are_text_without_paths_of_a_machine() {
    // In parts, so that this file passes its own test.
    let private = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let conflict = [concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];
    let mut wrong = String::new();
    for file in committed() {
        let name = shown(&file);
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if matches!(extension, "new" | "orig" | "rej" | "db" | "log" | "bak" | "tmp") {
            let _ = writeln!(wrong, "{name} should not be committed");
        }
        if matches!(extension, "gz" | "png" | "ico" | "gif" | "webp" | "woff2" | "sqlite" | "slate")
        {
            continue;
        }
        let Ok(text) = String::from_utf8(fs::read(&file).unwrap()) else {
            let _ = writeln!(wrong, "{name} is not text");
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            for path in private.iter().filter(|path| line.contains(**path)) {
                let _ = writeln!(wrong, "{name}:{}: {path}", number + 1);
            }
            if conflict.iter().any(|mark| line.starts_with(mark)) {
                let _ = writeln!(wrong, "{name}:{}: a conflict", number + 1);
            }
        }
    }
    nothing(&wrong);
}

/// The walks of `ARCHITECTURE.md` name functions that stand in the files beside them.
#[test]
fn the_walks_for_newcomers_are_true() {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let row = regex::Regex::new(r"(?m)^\| \d+ \| `(\w+)` \| `([^`]+)` \|").unwrap();
    let rows: Vec<_> = row.captures_iter(&text).map(|row| row.extract::<2>().1).collect();
    assert_eq!(rows.len(), 20, "two walks of ten functions");
    for [function, file] in rows {
        let source = fs::read_to_string(repository().join(file)).expect(file);
        let declared = regex::Regex::new(&format!(r"\bfn {function}\b")).unwrap();
        assert!(declared.is_match(&source), "{file} has no function `{function}`");
    }
}
