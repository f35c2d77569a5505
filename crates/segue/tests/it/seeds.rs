//! The examples of the documents that Segue is based on: each runs as written there, with the
//! result stated there.
//!
//! A folder below `tests/seeds` holds a fenced block of a document, byte for byte (`block.yaml` or
//! `block.json`), and `case.yaml`: the tools of a local MCP server, and runs with their calls and
//! results. Where a block is a part, `document.yaml` is the whole: a line `@block` stands for it,
//! `@block 1` for its second part, where `split` names the words that begin one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use segue_core::document::{ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::source::Source;

use crate::support::{Done, Json, World, json, repository};

fn seeds() -> PathBuf {
    repository().join("crates/segue/tests/seeds")
}

/// The folders of the examples, by name.
pub(crate) fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(seeds()).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn value_of(file: &Path) -> Json {
    let source = Source::new(file.display().to_string(), fs::read_to_string(file).unwrap());
    let node = read(&source, ReadLimits::for_documents(&Limits::default()));
    Json::from(&node.unwrap_or_else(|wrong| panic!("{}: {wrong:?}", file.display())).to_value())
}

/// One example.
pub(crate) struct Example {
    folder: PathBuf,
    case: Json,
    /// The parts of the block; one, where it is not split.
    parts: Vec<String>,
    /// The block is a JSON document of its own.
    is_json: bool,
}

impl Example {
    /// The runs of its case.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Json> {
        self.case["runs"].as_array().into_iter().flatten()
    }

    pub(crate) fn read(folder: &Path) -> Example {
        let case = value_of(&folder.join("case.yaml"));
        let json = folder.join("block.json");
        let (is_json, file) =
            if json.exists() { (true, json) } else { (false, folder.join("block.yaml")) };
        let mut block = fs::read_to_string(file).unwrap();
        for pair in case["replace"].as_array().into_iter().flatten() {
            let from = pair[0].as_str().unwrap();
            assert!(block.contains(from), "{}: no {from:?}", folder.display());
            let to = match pair[1]["from_file"].as_str() {
                Some(file) => fs::read_to_string(folder.join(file)).unwrap(),
                None => pair[1].as_str().unwrap().to_owned(),
            };
            block = block.replace(from, &to);
        }
        let parts = match case["split"].as_str() {
            Some(words) => parts(&block, words, case["prefix"].as_str().unwrap_or_default()),
            None => vec![block],
        };
        Example { folder: folder.to_owned(), case, parts, is_json }
    }

    /// The document that is run: its name, and its text with the block in its place.
    fn document(&self, part: Option<usize>) -> (&'static str, String) {
        let whole = fs::read_to_string(self.folder.join("document.yaml"));
        let Ok(whole) = whole else {
            let name = if self.is_json { "c.json" } else { "c.yaml" };
            return (name, self.parts[part.unwrap_or(0)].clone());
        };
        let mut text = String::new();
        for line in whole.lines() {
            let bare = line.trim_start();
            let Some(number) = bare.strip_prefix("@block") else {
                let _ = writeln!(text, "{line}");
                continue;
            };
            let number = number.trim().parse().unwrap_or_else(|_| part.unwrap_or(0));
            let indent = &line[..line.len() - bare.len()];
            for line in self.parts[number].lines() {
                let _ = writeln!(text, "{indent}{line}");
            }
        }
        ("c.yaml", text)
    }

    /// A value of the case, where `{from_file, at}` stands for what is in a file beside it.
    fn filled(&self, value: &Json) -> Json {
        match value {
            Json::Object(members) if members.contains_key("from_file") => {
                let whole = value_of(&self.folder.join(value["from_file"].as_str().unwrap()));
                value["at"].as_str().map_or(whole.clone(), |at| whole[at].clone())
            }
            Json::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), self.filled(value))).collect()
            }
            Json::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            other => other.clone(),
        }
    }

    /// A world with the document and a server that has the tools of this run.
    pub(crate) fn world(&self, run: &Json) -> (World, &'static str) {
        let part = run["part"].as_u64().map(|part| usize::try_from(part).unwrap());
        let (name, text) = self.document(part);
        let world = World::new();
        world.file(name, text);
        let mut tools = self.filled(&self.case["tools"]);
        for (tool, answers) in run["answers"].as_object().into_iter().flatten() {
            tools[tool]["answers"] = answers.clone();
        }
        if tools.is_object() {
            world.file("tools.json", tools.to_string());
            let script = seeds().join("server.py").display().to_string();
            let entry =
                json!({ "command": "python3", "args": [script, "tools.json", "calls.jsonl"] });
            world.file("segue.yaml", json!({ "mcpServers": { "seed": entry } }).to_string());
        } else {
            world.file("segue.yaml", "{}");
        }
        (world, name)
    }

    /// Everything about one run that is not as the case says.
    fn compare(&self, run: &Json) -> Vec<String> {
        let mut wrong = Vec::new();
        let segue = |world: &World, args: &[&str]| {
            world.segue(&[&["--config", "segue.yaml"], args].concat())
        };
        if !run["check"].is_null() || !run["check_not"].is_null() {
            let (world, name) = self.world(run);
            told(&segue(&world, &["check", name, "--json"]), run, &mut wrong);
            return wrong;
        }
        if !run["plan"].is_null() {
            let (world, name) = self.world(run);
            let plan = segue(&world, &["plan", name]).exits(0).stdout;
            for words in texts(&run["plan"]).filter(|words| !plan.contains(words)) {
                wrong.push(format!("no {words:?} in the plan\n{plan}"));
            }
            return wrong;
        }
        let input =
            if run["input"].is_null() { json!({}) } else { run["input"].clone() }.to_string();
        for (what, shape) in [("view", "--json"), ("result", "--dialect-result")] {
            if run[what].is_null() && what != "view" {
                continue;
            }
            let (world, name) = self.world(run);
            let done = segue(&world, &["run", name, "--yes", shape, "--input", &input]);
            let exit = run["exit"].as_i64().unwrap_or(0);
            if done.code.map(i64::from) != Some(exit) {
                wrong.push(format!("ends with {:?}\n{}{}", done.code, done.stdout, done.stderr));
                continue;
            }
            within(&run[what], &done.json(), what, &mut wrong);
            self.compare_calls(&world, run, &mut wrong);
        }
        wrong
    }

    fn compare_calls(&self, world: &World, run: &Json, wrong: &mut Vec<String>) {
        let text = fs::read_to_string(world.path("calls.jsonl")).unwrap_or_default();
        let mut made: Vec<Json> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let any_order = self.filled(&run["calls_any_order"]);
        let mut expected = self.filled(&run["calls"]);
        if any_order.is_array() {
            expected = any_order;
            made.sort_by_key(ToString::to_string);
        }
        if expected.is_array() && expected != Json::Array(made.clone()) {
            wrong.push(format!("expected calls {expected}\n     made calls {}", Json::Array(made)));
        }
    }
}

/// The parts of a block: each begins with a line that has these words, and all but the first with
/// the prefix.
fn parts(block: &str, words: &str, prefix: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in block.lines() {
        if line.contains(words) && !parts.last().unwrap().is_empty() {
            parts.push(prefix.to_owned());
        }
        let last = parts.last_mut().unwrap();
        last.push_str(line);
        last.push('\n');
    }
    parts
}

fn texts(list: &Json) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().map(|words| words.as_str().unwrap())
}

/// Holds what the check says against what it must and must not say.
fn told(done: &Done, run: &Json, wrong: &mut Vec<String>) {
    let findings = done.json()["diagnostics"].to_string();
    for words in texts(&run["check"]).filter(|words| !findings.contains(words)) {
        wrong.push(format!("no {words:?} among {findings}"));
    }
    for words in texts(&run["check_not"]).filter(|words| findings.contains(words)) {
        wrong.push(format!("{words:?} among {findings}"));
    }
    if done.code != Some(0) {
        wrong.push(format!("the check fails: {findings}"));
    }
}

/// Whether a value has at least what is expected: members of objects, all items of lists.
fn within(expected: &Json, got: &Json, path: &str, wrong: &mut Vec<String>) {
    match (expected, got) {
        (Json::Null, _) => {}
        (Json::Object(members), Json::Object(_)) => {
            for (name, expected) in members {
                within(expected, &got[name], &format!("{path}.{name}"), wrong);
            }
        }
        (Json::Array(items), Json::Array(others)) if items.len() == others.len() => {
            for (index, (item, other)) in items.iter().zip(others).enumerate() {
                within(item, other, &format!("{path}[{index}]"), wrong);
            }
        }
        _ if expected == got => {}
        _ => wrong.push(format!("{path}: expected {expected}, got {got}")),
    }
}

#[test]
fn every_example_of_the_documents_does_what_is_said_of_it() {
    let mut wrong = String::new();
    let mut runs = 0;
    for folder in folders() {
        let example = Example::read(&folder);
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        for (number, run) in example.runs().enumerate() {
            runs += 1;
            for problem in example.compare(run) {
                let _ = writeln!(wrong, "{name}, run {number}: {problem}");
            }
        }
    }
    assert!(runs >= 45, "only {runs} runs");
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The fenced blocks of the documents beside the repository: `000#1`, the language, the text.
fn blocks() -> Vec<(String, String, String)> {
    let Ok(entries) = fs::read_dir(repository().join("../shared/seeds")) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut blocks = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let mut open: Option<(String, String)> = None;
        let mut count = 0;
        for line in fs::read_to_string(&file).unwrap().split_inclusive('\n') {
            match (line.trim().strip_prefix("```"), &mut open) {
                (Some(_), Some((language, text))) => {
                    count += 1;
                    let id = format!("{}#{count}", &name[..3]);
                    blocks.push((id, std::mem::take(language), std::mem::take(text)));
                    open = None;
                }
                (Some(language), None) => open = Some((language.to_owned(), String::new())),
                (None, Some((_, text))) => text.push_str(line),
                (None, None) => {}
            }
        }
    }
    blocks
}

/// What is shown in other languages, and the test that does the same.
fn others() -> BTreeMap<String, BTreeMap<String, String>> {
    toml::from_str(&fs::read_to_string(seeds().join("others.toml")).unwrap()).unwrap()
}

/// Every block is an example here, to the byte, or has a test that does the same.
#[test]
fn no_block_of_the_documents_is_left_out() {
    let mut kept = BTreeSet::new();
    for folder in folders() {
        for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            kept.insert(fs::read_to_string(file).unwrap());
        }
    }
    let others = others();
    let mut wrong = String::new();
    let mut seen = BTreeSet::new();
    for (id, language, text) in blocks() {
        let is_example = kept.contains(&text);
        let is_mapped = others["blocks"].contains_key(&id);
        if is_example == is_mapped {
            let both = if is_example { "is in both places" } else { "is nowhere" };
            let _ = writeln!(wrong, "{id} ({language}) {both}");
        }
        seen.insert(id);
    }
    for id in others["blocks"].keys().filter(|id| !seen.is_empty() && !seen.contains(*id)) {
        let _ = writeln!(wrong, "others.toml: there is no block {id}");
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The tests that are said to do the same are there, and the lines that they stand for are, too.
#[test]
fn what_is_shown_in_other_languages_has_its_test() {
    let others = others();
    assert!(others.keys().eq(["blocks", "lines"]), "only `blocks` and `lines`");
    let mut wrong = String::new();
    for (what, test) in others.values().flatten() {
        if test.starts_with("open: ") {
            continue;
        }
        let (file, function) = test.split_once("::").unwrap_or((test, ""));
        let path = repository().join("crates").join(file);
        let is_there = match function {
            "" => path.is_dir(),
            name => {
                fs::read_to_string(&path).is_ok_and(|text| text.contains(&format!("fn {name}(")))
            }
        };
        if !is_there {
            let _ = writeln!(wrong, "{what}: there is no {test}");
        }
    }
    let documents = ["002-toolsets-and-skills.md", "003-atomic-composed-tools.md"]
        .map(|name| fs::read_to_string(repository().join("../shared/seeds").join(name)));
    if let [Ok(toolsets), Ok(composed)] = documents {
        let lines: BTreeSet<&str> =
            toolsets.lines().chain(composed.lines()).map(str::trim).collect();
        for line in others["lines"].keys().filter(|line| !lines.contains(&***line)) {
            let _ = writeln!(wrong, "no document has the line {line:?}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
