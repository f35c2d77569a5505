//! No text crashes the process: every document of the corpus with unexpected characters in it is
//! read or refused, by every reader.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use segue_core::compile::source::Source;
use segue_core::compile::{compile, convert, read_header, read_template, read_tests};
use segue_core::diagnostic::{Code, Diagnostic};
use segue_core::limits::Limits;
use support::{cases, catalog, composition_of};

/// One of each class of characters: of two, three and four bytes, unusual spaces, combining marks,
/// typographic quotes and dashes, and characters that end a text early.
const SIGNS: &[&str] = &[
    "\u{a0}", "–", "’", "€", "🦀", "\u{2028}", "\u{feff}", "\u{301}", "\0", "{{", "}}", "\"", "\\",
];

/// Where a sign is put: a part of all places, another one for each document.
const STRIDE: usize = 37;

#[test]
fn no_sign_at_any_place_is_a_fault_of_ours() {
    let (catalog, limits) = (catalog(), Limits::default());
    let parts = ["check/broken", "check/correct", "run"];
    let mut tried = 0;
    for (number, case) in parts.iter().flat_map(|part| cases(part)).enumerate() {
        let original = composition_of(&case);
        let text = original.text();
        let places = text.char_indices().map(|(place, _)| place).skip(number % STRIDE);
        for (turn, place) in places.step_by(STRIDE).enumerate() {
            let mut text = text.to_owned();
            text.insert_str(place, SIGNS[(number + turn) % SIGNS.len()]);
            let source = Source::new(original.name().clone(), text);
            let _ = read_header(&source, &limits);
            let mut found = compile(&source, &catalog, &limits).diagnostics;
            found.extend(convert(&source, &limits).diagnostics);
            found.extend(read_template(&source, &limits).err().into_iter().flatten());
            found.extend(read_tests(&source, &limits).1);
            let fault = |finding: &&Diagnostic| finding.code == Code::Internal;
            if let Some(fault) = found.iter().find(fault) {
                panic!("{}\n{}\n{}", case.display(), fault.message, source.text());
            }
            found.iter().for_each(|finding| drop(finding.view(&source)));
            tried += 1;
        }
    }
    assert!(tried > 2_000, "only {tried} texts");
}
