//! The acceptance checklist, line by line, and the tests that hold each line.
//!
//! A line is held by a test whose doc comment names it, or by a case of the corpus or of `tests/seeds`
//! that names it in a comment: `S0-54`, several as `S0-54, S0-57`, neighbours as `S0-54…57`. A name anywhere else
//! counts for nothing and is refused, and so is a name in a test that is ignored. What no test holds
//! stands in `acceptance/open.toml` with the reason. `just gen` writes `acceptance/coverage.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::support::{files_below, repository, shown};

/// Writes the page instead of comparing it.
const WRITE: &str = "SEGUE_WRITE_COVERAGE";

/// So many lines have a test; the number only grows.
const HELD_MIN: usize = 340;

/// How much of a line's text the page shows.
const ABOUT_CHARS_MAX: usize = 90;

/// One name or a range of names.
static NAMED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b(S[0-4X])-(\d\d)(?:…(\d\d)\b)?").unwrap());

/// A list without commas, or a range that names its part twice.
static STRANGE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"S[0-4X]-\d\d(?: ?… ?S| [S…])").unwrap());

/// The function that comments and attributes are about.
static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*(?:pub(?:\([a-z]+\))? )?(?:async )?fn (\w+)").unwrap());

/// One line of the checklist.
#[derive(Debug, PartialEq)]
struct Line {
    part: String,
    id: String,
    about: String,
}

/// The lines of the checklist, which lies beside the repository; where it does not, those that the
/// page was made of.
fn checklist() -> Vec<Line> {
    let text = fs::read_to_string(repository().join("../shared/acceptance/checklist.md"));
    match text {
        Ok(text) => lines_of(&text),
        Err(_) => lines_of_page(&fs::read_to_string(page()).unwrap()),
    }
}

fn page() -> PathBuf {
    repository().join("acceptance/coverage.md")
}

fn lines_of(checklist: &str) -> Vec<Line> {
    let line = Regex::new(r"^- (S[0-4X]-\d\d) \[[a-z-]+\] (.+)$").unwrap();
    let mut part = String::new();
    let mut lines = Vec::new();
    for text in checklist.lines() {
        if let Some(head) = text.strip_prefix("## ") {
            head.clone_into(&mut part);
        } else if let Some(found) = line.captures(text) {
            lines.push(Line {
                part: part.clone(),
                id: found[1].to_owned(),
                about: short(&found[2]),
            });
        }
    }
    lines
}

fn lines_of_page(page: &str) -> Vec<Line> {
    let line = Regex::new(r"^\| (S[0-4X]-\d\d) \| (.+?) \| ").unwrap();
    let mut part = String::new();
    let mut lines = Vec::new();
    for text in page.lines() {
        if let Some(head) = text.strip_prefix("## ") {
            head.clone_into(&mut part);
        } else if let Some(found) = line.captures(text) {
            let about = found[2].to_owned();
            lines.push(Line { part: part.clone(), id: found[1].to_owned(), about });
        }
    }
    lines
}

/// The beginning of a line's text, without marks that a table would trip over.
fn short(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !"`*".contains(*c)).collect();
    let plain = plain.replace('|', "or").replace('<', "‹").replace('>', "›");
    if plain.chars().count() <= ABOUT_CHARS_MAX {
        return plain;
    }
    let cut: String = plain.chars().take(ABOUT_CHARS_MAX).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{} …", cut[..end].trim_end_matches([',', ';', ':', '(', ' ']))
}

/// Every name in a text, ranges written out.
fn names_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for found in NAMED.captures_iter(text) {
        let first: u32 = found[2].parse().unwrap();
        let last = found.get(3).map_or(first, |last| last.as_str().parse().unwrap());
        assert!(first <= last, "a range that goes backwards in {text:?}");
        names.extend((first..=last).map(|number| format!("{}-{number:02}", &found[1])));
    }
    names
}

/// Names with the tests that hold them, and names written in a form that does not count.
#[derive(Debug, Default)]
struct Held {
    by: BTreeMap<String, BTreeSet<String>>,
    wrong: String,
}

impl Held {
    fn add(&mut self, text: &str, who: &str) {
        if let Some(strange) = STRANGE.find(text) {
            let _ =
                writeln!(self.wrong, "{who}: `{}` is neither a list nor a range", strange.as_str());
        }
        for name in names_in(text) {
            self.by.entry(name).or_default().insert(who.to_owned());
        }
    }

    /// The tests of one file: comment lines, attributes, and the function that they are about.
    fn scan_rust(&mut self, file: &str, text: &str) {
        let (mut comment, mut attributes) = (String::new(), String::new());
        for (number, line) in text.lines().enumerate() {
            let bare = line.trim_start();
            if let Some(said) = bare.strip_prefix("///") {
                comment.push_str(said);
                comment.push('\n');
                continue;
            }
            if bare.starts_with("#[") || (!attributes.is_empty() && bare.starts_with(')')) {
                attributes.push_str(bare);
                continue;
            }
            if !names_in(line).is_empty() {
                let _ = writeln!(
                    self.wrong,
                    "{file}:{}: a name outside of a test's comment",
                    number + 1
                );
            }
            let is_test = attributes.contains("test]") || attributes.contains("test(");
            match FUNCTION.captures(line) {
                Some(found) if is_test && !attributes.contains("#[ignore") => {
                    self.add(&comment, &format!("{file}::{}", &found[1]));
                }
                _ if !names_in(&comment).is_empty() => {
                    let _ =
                        writeln!(self.wrong, "{file}:{}: names what it does not test", number + 1);
                }
                _ => {}
            }
            comment.clear();
            attributes.clear();
        }
    }
}

/// Who holds what, over all crates.
fn held() -> Held {
    let mut held = Held::default();
    let crates = repository().join("crates");
    let short = |path: &Path| shown(path).trim_start_matches("crates/").to_owned();
    for file in files_below(&crates, &["rs"]) {
        // This file is about names, and holds none.
        if !file.ends_with("tests/it/coverage.rs") {
            held.scan_rust(&short(&file), &fs::read_to_string(&file).unwrap());
        }
    }
    for cases in ["segue-core/tests/corpus", "segue/tests/seeds"] {
        for file in files_below(&crates.join(cases), &["yaml", "json", "txt"]) {
            let text = fs::read_to_string(&file).unwrap();
            let who = short(file.parent().unwrap());
            for comment in text.lines().filter_map(|line| line.strip_prefix('#')) {
                held.add(comment, &who);
            }
        }
    }
    held
}

/// Lines that no test holds, with the reason.
fn open() -> BTreeMap<String, String> {
    let text = fs::read_to_string(repository().join("acceptance/open.toml")).unwrap();
    let table: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(&text).unwrap();
    assert!(table.keys().eq(["open"]), "only the table `open`");
    table["open"].clone()
}

fn page_of(lines: &[Line], held: &Held, open: &BTreeMap<String, String>) -> String {
    let count = lines.iter().filter(|line| held.by.contains_key(&line.id)).count();
    let mut page = format!(
        "# The checklist and its tests\n\n\
         {count} of {} lines are held by a test. Each row names the tests, by their files below `crates/`, and the cases of the\n\
         corpus. What no test holds says why. `just gen` writes this page; a test fails when it is not current.\n",
        lines.len()
    );
    let mut part = "";
    for line in lines {
        if line.part != part {
            part = &line.part;
            let _ = write!(page, "\n## {part}\n\n| line | about | held by |\n|---|---|---|\n");
        }
        let by = match held.by.get(&line.id) {
            Some(by) => by.iter().map(|who| format!("`{who}`")).collect::<Vec<_>>().join("<br>"),
            None => format!("open: {}", open.get(&line.id).map_or("", String::as_str)),
        };
        let _ = writeln!(page, "| {} | {} | {by} |", line.id, line.about);
    }
    page
}

#[test]
fn every_line_of_the_checklist_has_a_test_or_a_reason() {
    let (lines, held, open) = (checklist(), held(), open());
    let known: BTreeSet<&str> = lines.iter().map(|line| &*line.id).collect();
    assert_eq!(known.len(), lines.len(), "a line stands there twice");
    let mut wrong = held.wrong.clone();
    for (name, by) in &held.by {
        if !known.contains(&**name) {
            let _ = writeln!(wrong, "{name} is no line of the checklist: {by:?}");
        }
        if open.contains_key(name) {
            let _ = writeln!(wrong, "{name} is held by {by:?} and still in acceptance/open.toml");
        }
    }
    for id in &known {
        let reason = open.get(*id).map_or("", |reason| reason.trim());
        if !held.by.contains_key(*id) && reason.is_empty() {
            let _ = writeln!(wrong, "{id} has neither a test nor a reason");
        }
    }
    for id in open.keys().filter(|id| !known.contains(&***id)) {
        let _ = writeln!(wrong, "acceptance/open.toml: {id} is no line of the checklist");
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let count = known.iter().filter(|id| held.by.contains_key(**id)).count();
    assert!(count >= HELD_MIN, "only {count} of {} lines are held by a test", known.len());
    let page_now = page_of(&lines, &held, &open);
    if std::env::var_os(WRITE).is_some() {
        fs::write(page(), page_now).unwrap();
        return;
    }
    let kept = fs::read_to_string(page()).unwrap_or_default();
    assert!(kept == page_now, "acceptance/coverage.md is stale: `just gen` writes it");
    assert_eq!(lines_of_page(&kept), lines, "the page tells the checklist");
}

#[test]
fn only_the_comment_of_a_test_that_runs_counts() {
    let text = "/// S0-01, S0-03…05: yes\n#[test]\nfn a() {\n    // S0-06\n}\n\
                /// S0-07\nfn helper() {}\n/// S0-08\n#[test]\n#[ignore = \"slow\"]\nfn b() {}\n\
                /// S1-09\n#[tokio::test(start_paused = true)]\nasync fn c() {}\n\
                /// S1-10 … S1-12\n#[test]\nfn d() {}\n";
    let mut held = Held::default();
    held.scan_rust("x.rs", text);
    let names: Vec<&str> = held.by.keys().map(String::as_str).collect();
    assert_eq!(names, ["S0-01", "S0-03", "S0-04", "S0-05", "S1-09", "S1-10", "S1-12"]);
    assert_eq!(held.by["S0-04"], BTreeSet::from(["x.rs::a".to_owned()]));
    let wrong: Vec<&str> = held.wrong.lines().collect();
    assert_eq!(wrong.len(), 4, "{wrong:#?}");
    assert!(wrong[0].starts_with("x.rs:4:") && wrong[1].starts_with("x.rs:7:"), "{wrong:#?}");
    assert!(wrong[2].starts_with("x.rs:11:") && wrong[3].contains("neither"), "{wrong:#?}");
}
