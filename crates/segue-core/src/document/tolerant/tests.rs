#![allow(clippy::disallowed_methods, reason = "a test reads the corpus")]

use super::*;
use crate::document;
use crate::limits::Limits;

fn tree(name: &str, text: &str) -> Node {
    read(&Source::new(name, text), ReadLimits::for_documents(&Limits::default())).root
}

fn json(name: &str, text: &str) -> String {
    tree(name, text).to_value().to_json()
}

/// A text without mistakes is read as the strict readers read it, with the same spans.
#[test]
fn a_correct_text_is_read_as_the_strict_reader_reads_it() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/check/correct");
    let mut count = 0;
    for folder in std::fs::read_dir(corpus).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let source = Source::new(name, std::fs::read_to_string(&path).unwrap());
            let limits = ReadLimits::for_documents(&Limits::default());
            let Ok(strict) = document::read(&source, limits) else { continue };
            let tolerant = read(&source, limits);
            assert_eq!(strict.to_value(), tolerant.root.to_value(), "{}", path.display());
            assert_eq!(strict, tolerant.root, "{}", path.display());
            assert!(tolerant.guesses.is_empty(), "{}: {:?}", path.display(), tolerant.guesses);
            count += 1;
        }
    }
    assert!(count > 50, "only {count} texts");
}

#[test]
fn what_stands_around_a_mistake_is_read() {
    for (text, expected) in [
        ("a: 1\npar\nb: 2\n", r#"{"a":1,"par":null,"b":2}"#),
        ("par\nb: 2\n", r#"{"par":null,"b":2}"#),
        ("a:\n  - id: x\n    par\n  - id: y\n", r#"{"a":[{"id":"x","par":null},{"id":"y"}]}"#),
        ("a: \"open\nb: 2\n", r#"{"a":"open","b":2}"#),
        ("a: {{ x.y }}\nb: 2\n", r#"{"a":"{{ x.y }}","b":2}"#),
        ("a: { p: {{ x. }\nb: 2\n", r#"{"a":{"p":"{{ x."},"b":2}"#),
        ("a: { p: \"x\nb: 2\n", r#"{"a":{"p":"x"},"b":2}"#),
        ("a: [x, y\nb: 2\n", r#"{"a":["x","y"],"b":2}"#),
        ("a: \"x\" y\nb: 2\n", r#"{"a":"x","b":2}"#),
        ("a: x\n   b: 2\nc: 3\n", r#"{"a":"x","b":2,"c":3}"#),
        ("a:\n  b: 1\n c: 2\n", r#"{"a":{"b":1},"c":2}"#),
        ("s:\n- a\nx\nt: 1\n", r#"{"s":["a"],"x":null,"t":1}"#),
        ("s:\n  - a\n  x\n", r#"{"s":["a","x"]}"#),
        ("a: &n { v: 1 }\nb: *n\nc: *m\n\td: 1", r#"{"a":{"v":1},"b":{"v":1},"c":null,"d":1}"#),
        ("a: |\n  one\n  two\nb\n", r#"{"a":"one\ntwo\n","b":null}"#),
        ("\u{feff}---\r\na: ü\r\nb: 'x\r\nc: 1\r\n---\r\nd: 1", r#"{"a":"ü","b":"x","c":1}"#),
        ("", "null"),
    ] {
        assert_eq!(json("x.yaml", text), expected, "{text:?}");
    }
    for (text, expected) in [
        (r#"{"a": [1, {"b": "x"#, r#"{"a":[1,{"b":"x"}]}"#),
        ("{\"a\": \"x\n, \"b\": 2}", r#"{"a":"x","b":2}"#),
        (r#"{"a": 1 "b": 2, "par}"#, r#"{"a":1,"b":2,"par":null}"#),
        (r#"{"a": {"b": [1, 2}, "c": 3}"#, r#"{"a":{"b":[1,2]},"c":3}"#),
        (r#"{"a": , "b": tru}"#, r#"{"a":null,"b":"tru"}"#),
        (r"{ [", r#"{"":null}"#),
    ] {
        assert_eq!(json("x.json", text), expected, "{text:?}");
    }
}

/// Deep nesting, aliases that multiply and many keys end within the limits.
#[test]
fn hostile_texts_end_within_the_limits() {
    let bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
                e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
    let texts =
        ["[".repeat(100_000), "- ".repeat(100_000), "{\"a\":".repeat(100_000), bomb.to_owned()];
    for text in texts {
        let limits = ReadLimits::for_documents(&Limits::default());
        let root = tree("x.yaml", &text);
        assert!(size(&root, usize::MAX) <= limits.nodes_max + 1);
    }
}
