//! The manual says what happens: its files are written, its commands run, its answers compared.
//!
//! A fenced `yaml` or `json` block whose first line is `# file: NAME` (or whose info string has
//! `file=NAME`) is a file of the page. A fenced `console` block holds lines that begin with `$ `,
//! each followed by what the command writes: standard output, then standard error. There `...`
//! stands for any lines, `[..]` for any text, and `[exit N]` for a code other than 0.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::diagnostic::{Code, DiagnosticView};
use segue_core::document::{Node, ReadLimits, read};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, DeclaredRollback, ToolSpec};
use segue_core::value::Value;

use crate::support::{SEGUE, World, copy_folder, corpus, files_below, repository, shown};

/// A fenced block.
#[derive(Debug)]
struct Block {
    /// The line of its opening fence, from 1.
    line: usize,
    info: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fence: Option<String> = None;
    for (number, line) in page.lines().enumerate() {
        let bare = line.trim_start();
        match &fence {
            Some(open) if bare.trim_end() == open => fence = None,
            Some(_) => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None if bare.starts_with("```") => {
                let info = bare.trim_start_matches('`');
                fence = Some(bare[..bare.len() - info.len()].to_owned());
                let info = info.trim().to_owned();
                blocks.push(Block { line: number + 1, info, text: String::new() });
            }
            None => {}
        }
    }
    assert!(fence.is_none(), "a fence is never closed");
    blocks
}

impl Block {
    fn language(&self) -> &str {
        self.info.split_whitespace().next().unwrap_or_default()
    }

    /// The file that the block is. The first line stays where it is a comment, so that lines have
    /// the numbers that a reader counts.
    fn file(&self) -> Option<(&str, &str)> {
        let first = self.text.lines().next().unwrap_or_default();
        if let Some(name) = first.strip_prefix("# file:") {
            let is_json = self.language() == "json";
            let after = &self.text[(first.len() + 1).min(self.text.len())..];
            return Some((name.trim(), if is_json { after } else { &self.text }));
        }
        let name = self.info.split_whitespace().find_map(|word| word.strip_prefix("file="))?;
        Some((name, &self.text))
    }
}

/// A command of a page and what it is said to write.
#[derive(Debug)]
struct Command {
    line: usize,
    text: String,
    expected: Vec<String>,
    exit: i32,
}

fn commands(block: &Block) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut continued = false;
    for (number, line) in block.text.lines().enumerate() {
        if continued {
            let command = commands.last_mut().unwrap();
            command.text.push('\n');
            command.text.push_str(line);
            continued = line.ends_with('\\');
        } else if let Some(text) = line.strip_prefix("$ ") {
            continued = line.ends_with('\\');
            let line = block.line + number + 1;
            commands.push(Command { line, text: text.to_owned(), expected: Vec::new(), exit: 0 });
        } else if let Some(command) = commands.last_mut() {
            let code = line.strip_prefix("[exit ").and_then(|rest| rest.strip_suffix(']'));
            match code.and_then(|code| code.parse().ok()) {
                Some(code) => command.exit = code,
                None => command.expected.push(line.trim_end().to_owned()),
            }
        }
    }
    for command in &mut commands {
        while command.expected.last().is_some_and(String::is_empty) {
            command.expected.pop();
        }
    }
    commands
}

/// Whether lines are those that a page shows.
pub(crate) fn lines_fit(expected: &[String], got: &[&str]) -> bool {
    match (expected.split_first(), got.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((dots, rest)), _) if dots.trim() == "..." => {
            (0..=got.len()).any(|skipped| lines_fit(rest, &got[skipped..]))
        }
        (Some(_), None) => false,
        (Some((pattern, rest)), Some((line, others))) => {
            line_fits(pattern, line) && lines_fit(rest, others)
        }
    }
}

fn line_fits(pattern: &str, line: &str) -> bool {
    let Some((before, after)) = pattern.split_once("[..]") else {
        return pattern == line.trim_end();
    };
    let Some(rest) = line.strip_prefix(before) else { return false };
    let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.into_iter().any(|at| line_fits(after, &rest[at..]))
}

/// Programs that a page may use beside `segue`, because they are everywhere.
const PROGRAMS: &[&str] = &["segue", "cat", "echo", "printf", "ls", "mkdir", "cp", "rm", "sed"];

/// Programs that a page may show and that are not run here.
const SKIPPED: &[&str] = &["cargo", "git"];

/// Runs a command of a page in its world; `None` when it is only shown.
fn execute(world: &World, command: &Command) -> Result<Option<Output>, String> {
    let program = command.text.split_whitespace().next().unwrap_or_default();
    if SKIPPED.contains(&program) {
        return Ok(None);
    }
    if !PROGRAMS.contains(&program) {
        return Err(format!("`{program}` is none of {PROGRAMS:?}"));
    }
    let folder = Path::new(SEGUE).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = [folder.to_owned()].into_iter().chain(std::env::split_paths(&path));
    let mut shell = world.command("sh");
    shell.args(["-c", &command.text]).env("PATH", std::env::join_paths(paths).unwrap());
    Ok(Some(shell.output().unwrap()))
}

/// Follows a page from its first block to its last, and says what is not so.
fn follow(page: &Path, wrong: &mut String) -> usize {
    let text = fs::read_to_string(page).unwrap();
    let world = World::found();
    copy_folder(&repository().join("examples"), &world.path("examples"));
    let mut ran = 0;
    for block in blocks(&text) {
        if matches!(block.language(), "yaml" | "json" | "text")
            && let Some((name, text)) = block.file()
        {
            world.file(name, text);
        }
        if block.language() != "console" {
            continue;
        }
        for command in commands(&block) {
            let place = format!("{}:{}", shown(page), command.line);
            match execute(&world, &command) {
                Ok(None) => {}
                Ok(Some(output)) => {
                    ran += 1;
                    compare(&place, &command, &output, wrong);
                }
                Err(message) => {
                    let _ = writeln!(wrong, "\n{place}: $ {}\n{message}", command.text);
                }
            }
        }
    }
    ran
}

fn compare(place: &str, command: &Command, output: &Output, wrong: &mut String) {
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let whole = format!("{stdout}{stderr}");
    let mut got: Vec<&str> = whole.lines().map(str::trim_end).collect();
    while got.last().is_some_and(|line| line.is_empty()) {
        got.pop();
    }
    let code = output.status.code();
    if code == Some(command.exit) && lines_fit(&command.expected, &got) {
        return;
    }
    let _ = writeln!(wrong, "\n{place}: $ {}", command.text);
    let _ =
        writeln!(wrong, "expected, with exit {}:\n{}", command.exit, command.expected.join("\n"));
    let _ = writeln!(wrong, "got, with exit {code:?}:\n{}", got.join("\n"));
}

fn pages() -> Vec<PathBuf> {
    let root = repository();
    let errors = root.join("docs/errors");
    let mut pages = files_below(&root.join("docs"), &["md"]);
    pages.retain(|page| !page.starts_with(&errors));
    let top = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(top.filter(|path| path.extension().is_some_and(|e| e == "md")));
    pages.sort();
    pages
}

#[test]
fn the_manual_says_what_happens() {
    let mut wrong = String::new();
    let ran: usize = pages().iter().map(|page| follow(page, &mut wrong)).sum();
    assert!(wrong.is_empty(), "{wrong}");
    assert!(ran >= 10, "only {ran} commands in the manual");
}

#[test]
fn every_link_of_the_manual_leads_somewhere() {
    let link = regex::Regex::new(r"\]\(([^)#\s]+)(?:#[^)]*)?\)").unwrap();
    let mut wrong = String::new();
    let errors = files_below(&repository().join("docs/errors"), &["md"]);
    for page in pages().iter().chain(&errors) {
        let text = fs::read_to_string(page).unwrap();
        for target in link.captures_iter(&text).map(|found| found[1].to_owned()) {
            let foreign = target.contains("://") || target.starts_with("mailto:");
            if !foreign && !page.parent().unwrap().join(&target).exists() {
                let _ = writeln!(wrong, "{}: {target} does not exist", shown(page));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

// The pages of the error codes show a composition and, under "Segue says", a line per finding:
// `4:11 error unknown-tool: …` and perhaps `  help: …`.

/// What a page says that Segue says.
fn said(page: &[Block]) -> Option<&Block> {
    let finding = regex::Regex::new(r"^\d+:\d+ (error|warning|hint) [a-z-]+: ").unwrap();
    page.iter().find(|block| block.language() == "text" && finding.is_match(&block.text))
}

fn lines_of(findings: &[DiagnosticView]) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in findings {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        let DiagnosticView { line, column, code, message, .. } = finding;
        lines.push(format!("{line}:{column} {severity} {code}: {message}"));
        lines.extend(finding.help.iter().map(|help| format!("  help: {help}")));
    }
    lines
}

#[test]
fn the_pages_of_the_codes_show_what_segue_says() {
    let catalog = catalog();
    let mut wrong = String::new();
    let mut shown_findings = 0;
    for code in Code::ALL {
        let page = repository().join(format!("docs/errors/{code}.md"));
        let blocks = blocks(&fs::read_to_string(&page).unwrap());
        let example = blocks.iter().find(|block| matches!(block.language(), "yaml" | "json"));
        let (Some(example), Some(said)) = (example, said(&blocks)) else { continue };
        shown_findings += 1;
        let name = format!("example.{}", example.language());
        let source = Source::new(name, example.text.clone());
        let compiled = compile(&source, &catalog, &Limits::default());
        let findings: Vec<_> = compiled.diagnostics.iter().map(|d| d.view(&source)).collect();
        let expected: Vec<String> = said.text.lines().map(str::to_owned).collect();
        let got = lines_of(&findings);
        let got_lines: Vec<&str> = got.iter().map(String::as_str).collect();
        if !findings.iter().any(|f| f.code == *code) || !lines_fit(&expected, &got_lines) {
            let place = format!("{}:{}", shown(&page), said.line);
            let (expected, got) = (expected.join("\n"), got.join("\n"));
            let _ = writeln!(wrong, "\n{place}\nexpected:\n{expected}\ngot:\n{got}");
        }
    }
    assert!(shown_findings >= 18, "only {shown_findings} pages show findings");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_the_pages_show_with_built_in_tools_is_found_by_the_program() {
    let mut checked = 0;
    for code in Code::ALL {
        let page = repository().join(format!("docs/errors/{code}.md"));
        let blocks = blocks(&fs::read_to_string(&page).unwrap());
        let example = blocks.iter().find(|block| matches!(block.language(), "yaml" | "json"));
        let (Some(example), Some(_)) = (example, said(&blocks)) else { continue };
        let foreign =
            ["shop:", "crm:", "web:", "misc:", " h:t_"].iter().any(|ns| example.text.contains(ns));
        if foreign || *code == Code::AmbiguousTool {
            continue;
        }
        let world = World::found();
        let name = format!("c.{}", example.language());
        world.file(&name, &example.text);
        let report = world.segue(&["check", &name, "--json"]).json();
        let codes: Vec<&str> = report["diagnostics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["code"].as_str().unwrap())
            .collect();
        assert!(codes.contains(&code.as_str()), "{}: {codes:?}", shown(&page));
        checked += 1;
    }
    assert!(checked >= 14, "only {checked} pages");
}

/// The tools that the corpus and the pages are written against.
fn catalog() -> Catalog {
    let text = fs::read_to_string(corpus().join("tools.yaml")).unwrap();
    let source = Source::new("tools.yaml", text);
    let root = read(&source, ReadLimits::for_documents(&Limits::default())).unwrap();
    Catalog::new(root.get("tools").unwrap().items().iter().map(|tool| Arc::new(spec(tool))))
}

fn spec(node: &Node) -> ToolSpec {
    let schema = |name: &str| node.get(name).map(|node| Arc::new(Schema::new(node.to_value())));
    let id = ToolId::from(&**node.get("id").and_then(Node::as_str).unwrap());
    let mut spec = ToolSpec::new(id, "", schema("input").unwrap_or_else(Schema::any_object));
    spec.output = schema("output");
    if let Some(annotations) = node.get("annotations") {
        let flag = |name: &str| annotations.get(name).and_then(|node| node.to_value().as_bool());
        spec.annotations = Annotations {
            read_only: flag("read_only"),
            destructive: flag("destructive"),
            idempotent: flag("idempotent"),
            open_world: flag("open_world"),
        };
    }
    if let Some(rollback) = node.get("rollback") {
        let text = |name: &str| rollback.get(name).and_then(Node::as_str).cloned();
        let parameters =
            || rollback.get("parameters").map_or(Value::empty_object(), Node::to_value);
        spec.rollback = match (text("impossible"), text("tool")) {
            (Some(reason), _) => DeclaredRollback::Impossible { reason },
            (None, Some(tool)) => DeclaredRollback::Call { tool, parameters: parameters() },
            (None, None) => DeclaredRollback::NotNeeded,
        };
    }
    spec
}

#[test]
fn pages_are_read_as_they_are_meant() {
    let page = "x\n```yaml\n# file: a.yaml\nname: x\n```\n```json file=b.json\n{}\n```\n\
                ```console\n$ segue run \\\n  a.yaml\nout [..]\n...\nend\n[exit 2]\n\n$ cargo x\n```\n";
    let blocks = blocks(page);
    assert_eq!(blocks[0].file(), Some(("a.yaml", "# file: a.yaml\nname: x\n")));
    assert_eq!(blocks[1].file(), Some(("b.json", "{}\n")));
    let commands = commands(&blocks[2]);
    assert_eq!(commands[0].text, "segue run \\\n  a.yaml");
    assert_eq!((commands[0].line, commands[0].exit), (10, 2));
    assert!(lines_fit(&commands[0].expected, &["out of paper", "1", "2", "end"]));
    assert!(lines_fit(&commands[0].expected, &["out ", "end"]));
    assert!(!lines_fit(&commands[0].expected, &["out of paper", "1", "ends"]));
    assert!(!lines_fit(&commands[0].expected, &["outside", "end"]));
    assert_eq!(commands[1].text, "cargo x");
}
