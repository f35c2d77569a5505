//! Every example does what the comment in its first line says, and what its `outcome.txt` shows.

use std::fs;
use std::path::{Path, PathBuf};

use crate::docs::lines_fit;
use crate::support::{World, copy_folder, files_below, repository, shown};

/// A file of an example with what its head says about it.
struct Example {
    file: PathBuf,
    run: Option<String>,
    exit: i32,
}

fn examples() -> Vec<Example> {
    let files = files_below(&repository().join("examples"), &["yaml", "yml", "json"]);
    let files = files.into_iter().filter(|file| !needs_servers(file));
    files.filter_map(|file| example(&file)).collect()
}

/// Whether real MCP servers have to be there: `mcp.rs` runs those examples.
fn needs_servers(file: &Path) -> bool {
    file.starts_with(repository().join("examples/mcp"))
}

/// The example in a file, if it holds a composition.
fn example(file: &Path) -> Option<Example> {
    let text = fs::read_to_string(file).unwrap();
    let is_json = file.extension().is_some_and(|extension| extension == "json");
    let has_steps = |line: &str| line.starts_with("steps:") || line.trim().starts_with("\"steps\"");
    if !text.lines().any(has_steps) {
        return None;
    }
    let head = |key: &str| {
        let mut comments = text.lines().take_while(|line| line.starts_with('#'));
        comments.find_map(|line| line.strip_prefix(key)).map(|v| v.trim().to_owned())
    };
    let name = file.file_name().unwrap().to_string_lossy();
    let run =
        head("# run:").or_else(|| is_json.then(|| format!("segue run {name} -i query=retry")));
    let exit = head("# exit:").map_or(0, |code| code.parse().unwrap());
    Some(Example { file: file.to_owned(), run, exit })
}

/// A copy of the folder of an example: it may write into it.
fn copied(example: &Example) -> World {
    let world = World::new();
    copy_folder(example.file.parent().unwrap(), &world.folder());
    world
}

#[test]
fn every_example_runs_as_it_says() {
    let mut ran = 0;
    for example in examples() {
        let Some(line) = &example.run else { continue };
        let name = shown(&example.file);
        let words = words(line);
        assert_eq!(words[0], "segue", "{name}: {line}");
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let done = copied(&example).segue(&args);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert_eq!(done.code, Some(example.exit), "{name}: {line}\n{said}");
        assert!(!said.contains("warning["), "{name}: {line}\n{said}");
        ran += 1;
    }
    assert!(ran >= 9, "only {ran} examples ran");
}

/// The failure patterns of S0 and S1, and the three words of S0's own example together.
#[test]
fn outcomes_are_as_they_are_shown() {
    let mut shown_outcomes = 0;
    for example in examples() {
        let outcome = example.file.with_file_name("outcome.txt");
        let (Some(line), Ok(expected)) = (&example.run, fs::read_to_string(outcome)) else {
            continue;
        };
        let words = words(line);
        let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let done = copied(&example).segue(&args);
        let said = format!("{}{}", done.stdout, done.stderr);
        let got: Vec<&str> = said.lines().collect();
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        assert!(lines_fit(&expected, &got), "{}: {line}\n{said}", shown(&example.file));
        shown_outcomes += 1;
    }
    assert!(shown_outcomes >= 6, "only {shown_outcomes} outcomes");
}

#[test]
fn every_composition_among_the_examples_is_correct() {
    for example in examples() {
        let name = example.file.file_name().unwrap().to_string_lossy().into_owned();
        let world = copied(&example);
        let config =
            if world.path("segue.yaml").exists() { &["--config", "segue.yaml"][..] } else { &[] };
        let report = world.segue(&[config, &["check", "--json", &name]].concat());
        let path = shown(&example.file);
        assert_eq!(report.code, Some(0), "{path}: {}", report.stdout);
        assert_eq!(report.json()["diagnostics"], crate::support::json!([]), "{path}");
    }
}

#[test]
fn every_example_has_a_composition_that_says_how_it_runs() {
    for entry in fs::read_dir(repository().join("examples")).unwrap().map(Result::unwrap) {
        let folder = entry.path();
        if !folder.is_dir() || needs_servers(&folder) {
            continue;
        }
        let main = ["composition.yaml", "composition.json"].map(|name| folder.join(name));
        let main = main.iter().find(|file| file.is_file());
        let main = main.unwrap_or_else(|| panic!("{} has no composition", shown(&folder)));
        let run = example(main).and_then(|example| example.run);
        assert!(run.is_some(), "{} does not say `# run:`", shown(main));
    }
}

/// Splits a line as a shell does, with both kinds of quotes and nothing more.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn lines_are_split_as_by_a_shell() {
    assert_eq!(
        words(r#"segue run a -i t="x y" 'a "b"' """#),
        ["segue", "run", "a", "-i", "t=x y", "a \"b\"", ""]
    );
}
