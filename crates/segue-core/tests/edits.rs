//! The corpus of edits: a text before, an edit, the text after, byte for byte. To add a case, add a folder
//! with `before.yaml` (or `.json`) and `edit.yaml`; `SEGUE_ACCEPT=1` writes what comes out.
//!
//! A refused edit has `refused.txt` in place of the text after: `code message | help`.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use segue_core::catalog::Catalog;
use segue_core::document::{ReadLimits, read};
use segue_core::language::apply;
use segue_core::language::edit::{Edit, edit};
use segue_core::limits::Limits;
use segue_core::source::Source;
use segue_core::value::from_value;
use support::{cases, catalog};

/// The text before, by the extension that it has.
fn before(case: &Path) -> (PathBuf, String) {
    let files = ["yaml", "json"].map(|extension| case.join(format!("before.{extension}")));
    let file = files.into_iter().find(|file| file.exists()).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    (file, text)
}

fn edit_of(case: &Path) -> Edit {
    let text = fs::read_to_string(case.join("edit.yaml")).unwrap();
    let source = Source::new("edit.yaml", text);
    let node = read(&source, ReadLimits::for_documents(&Limits::default())).unwrap();
    from_value(&node.to_value()).unwrap_or_else(|error| panic!("{}: {error}", case.display()))
}

/// The files that an edit gives: their names and texts.
fn result(case: &Path, catalog: &Catalog) -> Vec<(String, String)> {
    let (file, text) = before(case);
    let extension = file.extension().unwrap().to_string_lossy().into_owned();
    let name = format!("composition.{extension}");
    match edit(&Source::new(name, text.as_str()), &edit_of(case), catalog, &Limits::default()) {
        Ok(edited) => {
            let mut files = vec![(format!("after.{extension}"), apply(&text, &edited.edits))];
            if let Some(extracted) = edited.extracted {
                files.push((format!("extracted.{extension}"), extracted.text));
            }
            files
        }
        Err(error) => {
            let help = error.help.unwrap_or_default();
            vec![("refused.txt".to_owned(), format!("{} {} | {help}\n", error.code, error.message))]
        }
    }
}

#[test]
fn every_edit_changes_exactly_its_own_lines() {
    let (catalog, accepts) = (catalog(), std::env::var_os("SEGUE_ACCEPT").is_some());
    let all = cases("edit");
    let mut wrong = String::new();
    for case in &all {
        let results = result(case, &catalog);
        let outcomes =
            ["after.yaml", "after.json", "extracted.yaml", "extracted.json", "refused.txt"];
        for name in outcomes {
            let file = case.join(name);
            let made = results.iter().find(|(made, _)| made == name).map(|(_, text)| text.clone());
            if accepts {
                match made {
                    Some(text) => fs::write(&file, text).unwrap(),
                    None => drop(fs::remove_file(&file)),
                }
            } else if made != fs::read_to_string(&file).ok() {
                let _ = writeln!(wrong, "{}:\n{}", file.display(), made.unwrap_or_default());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(all.len() >= 60, "only {} cases", all.len());
}
