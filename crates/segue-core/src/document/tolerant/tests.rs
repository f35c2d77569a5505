//! The tolerant reader on correct, broken and hostile texts.

use super::*;
use crate::document;
use crate::limits::Limits;

fn tree(name: &str, text: &str) -> Node {
    read(&Source::new(name, text), ReadLimits::for_documents(&Limits::default())).root
}

fn json(name: &str, text: &str) -> String {
    tree(name, text).to_value().to_json()
}

macro_rules! corpus {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("../../../tests/corpus/check/correct/", $name))),)*]
    };
}

/// Every third correct composition of the corpus.
const CORRECT: &[(&str, &str)] = corpus![
    "anchors-and-aliases/composition.yaml",
    "chain-automatic-ids-make-room/composition.yaml",
    "chain-choose-and-repeat/composition.yaml",
    "chain-jumps/composition.yaml",
    "chain-polling-by-jump/composition.yaml",
    "chain-requires-a-casefile/composition.yaml",
    "crlf-line-ends/composition.yaml",
    "default-for-a-skipped-step/composition.yaml",
    "durations-in-all-forms/composition.json",
    "explicit-output-uses-everything/composition.json",
    "false-zero-and-null-are-values/composition.yaml",
    "input-as-a-list-of-parameters/composition.yaml",
    "kind-choose/composition.yaml",
    "kind-loop-nested/composition.yaml",
    "kind-parallel-default-waits-for-all/composition.json",
    "kind-wait-forms/composition.yaml",
    "minimal/composition.yaml",
    "names-of-the-input/composition.yaml",
    "native-program/composition.yaml",
    "output-key-equals-own-id/composition.yaml",
    "plan-seed/composition.json",
    "rollback-all-reversible/composition.yaml",
    "seed-three-ways-to-say-it/composition.yaml",
    "skill-without-guards/composition.yaml",
    "templates-in-nested-values/composition.yaml",
    "unicode-escapes/composition.json",
    "untyped-tools-with-deep-paths/composition.yaml",
];

/// A text without mistakes is read as the strict readers read it, with the same spans.
#[test]
fn a_correct_text_is_read_as_the_strict_reader_reads_it() {
    let limits = ReadLimits::for_documents(&Limits::default());
    for (name, text) in CORRECT {
        let source = Source::new(*name, *text);
        let strict = document::read(&source, limits).expect("it is correct");
        let tolerant = read(&source, limits);
        assert_eq!(strict, tolerant.root, "{name}");
        assert!(tolerant.guesses.is_empty(), "{name}: {:?}", tolerant.guesses);
    }
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
