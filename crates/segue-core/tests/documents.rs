//! Both readers, through the public API: what they accept, what they reject, and their spans.
//!
//! Covers checklist line D5: numbers stay exact, duplicate keys are refused, budgets hold.

use std::fmt::Write as _;

use proptest::prelude::*;
use segue_core::diagnostic::{Code, Diagnostic};
use segue_core::document::{Node, ReadLimits, read, read_json_value};
use segue_core::limits::Limits;
use segue_core::source::{Position, Source, Span};
use segue_core::value::{Number, Value};

type Read = Result<Node, Vec<Diagnostic>>;

/// Larger than the default, so that the counts differ.
fn budget() -> ReadLimits {
    ReadLimits {
        bytes_max: 32 << 20,
        depth_max: 64,
        nodes_max: 200_000,
        keys_max: 1 << 20,
        aliases_max: 1_000,
    }
}

fn read_as(name: &str, text: &str) -> Read {
    read(&Source::new(name, text), budget())
}

fn json(text: &str) -> Read {
    read_as("x.json", text)
}

fn yaml(text: &str) -> Read {
    read_as("x.yaml", text)
}

fn value(read: Read) -> Value {
    read.expect("a well-formed document").to_value()
}

/// The only finding.
fn refusal(read: Read) -> Diagnostic {
    let mut findings = read.expect_err("a refused document");
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

fn slice(text: &str, span: Span) -> &str {
    text.get(span.range()).expect("a span between characters")
}

#[test]
fn equal_documents_give_equal_trees() {
    for (as_json, as_yaml) in [
        ("{}", "{}"),
        ("[]", "[]"),
        ("null", "~"),
        (r#"{"a":1,"b":[true,null,"x"]}"#, "a: 1\nb:\n- true\n- null\n- x\n"),
        (r#"{"a":{"b":{"c":[]}}}"#, "a:\n  b:\n    c: []\n"),
        (r#"[["a"],[["b"]]]"#, "- - a\n- - - b\n"),
        (r#"{"a":"l1\nl2\n","b":"x y"}"#, "a: |\n  l1\n  l2\nb: >-\n  x\n  y\n"),
        (r#"{"a":"","b":null,"c":null}"#, "a: ''\nb:\nc: ~\n"),
        (r#"["é","🦀","\u00e9","\ud83e\udd80"]"#, "- é\n- 🦀\n- \"\\u00e9\"\n- \"\\U0001F980\"\n"),
        (r#"{"1":1,"true":2,"null":3,"012":4}"#, "1: 1\ntrue: 2\nnull: 3\n012: 4"),
        (r#"{"<<":1,"":2}"#, "\"<<\": 1\n'': 2\n"),
        (r#"[{"a":1},{"b":null}]"#, "[a: 1, {b}]"),
        (r#"{"a":[1,2],"b":[1,2],"c":{"d":[1,2]}}"#, "a: &x [1, 2]\nb: *x\nc: {d: *x}\n"),
        (r#"{"a":{"b":1},"c":1,"d":{"b":1}}"#, "a: &x\n  b: &y 1\nc: *y\nd: *x\n"),
        (r#"[[["x"],"y"],["x"],[["x"],"y"]]"#, "- &a [&b [x], y]\n- *b\n- *a\n"),
        (r#"{"a":["p",{"b":"p"}]}"#, "a:\n  - &x p\n  - b: *x\n"),
        (r#"{"a":1}"#, "%YAML 1.2\n---\na: 1\n...\n"),
        (r#"{"a":1}"#, "# before\n---\na: 1 # after\n# end"),
        ("\u{feff}{\"a\":1}", "\u{feff}a: 1"),
    ] {
        assert_eq!(value(json(as_json)), value(yaml(as_yaml)), "{as_yaml}");
    }
}

/// The core schema of YAML 1.2, and nothing of 1.1.
#[test]
#[rustfmt::skip]
fn plain_scalars_follow_the_core_schema() {
    for (written, expected) in [
        ("null", "null"), ("Null", "null"), ("NULL", "null"), ("~", "null"), ("nUll", "\"nUll\""),
        ("true", "true"), ("True", "true"), ("TRUE", "true"), ("False", "false"),
        ("no", "\"no\""), ("yes", "\"yes\""), ("on", "\"on\""), ("Off", "\"Off\""), ("y", "\"y\""),
        ("12", "12"), ("+12", "12"), ("-12", "-12"), ("0", "0"), ("0x1F", "31"), ("0o17", "15"),
        ("0xFFFFFFFFFFFFFFFF", "18446744073709551615"), ("0b11", "\"0b11\""), ("-0x1", "\"-0x1\""),
        ("1_000", "\"1_000\""), ("1:30", "\"1:30\""), ("0x", "\"0x\""), ("0o8", "\"0o8\""),
        ("1.5", "1.5"), (".5", "0.5"), ("-.5", "-0.5"), ("+1.", "1.0"), ("1.e3", "1000.0"),
        ("1e3", "1000.0"), ("1E-2", "0.01"), ("1e", "\"1e\""), (".", "\".\""), ("1.2.3", "\"1.2.3\""),
        ("-", "[null]"), ("+", "\"+\""), ("e5", "\"e5\""), (".e5", "\".e5\""), ("٣", "\"٣\""),
        ("2024-01-01", "\"2024-01-01\""), ("'12'", "\"12\""), ("\"true\"", "\"true\""),
        ("|-\n 12", "\"12\""), (">-\n null", "\"null\""),
        ("!!str 12", "\"12\""), ("!!str", "\"\""), ("!!int '12'", "12"), ("!!float 1", "1"),
        ("!!bool \"true\"", "true"), ("!!null ''", "null"), ("!!map {}", "{}"), ("!!seq []", "[]"),
        ("!<tag:yaml.org,2002:str> 12", "\"12\""),
    ] {
        let document = value(yaml(&format!("k:\n  {}", written.replace('\n', "\n   "))));
        assert_eq!(document.get("k").unwrap().to_json(), expected, "{written}");
    }
}

/// D5: a number that neither a float nor 64 bits can hold is stored as written.
#[test]
#[rustfmt::skip]
fn numbers_stay_exact_in_both_notations() {
    let nines = "9".repeat(5_000);
    for text in [
        "0", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808",
        "18446744073709551615", "18446744073709551616", "-123456789012345678901234567890",
        "3.14159265358979323846264338327", "1e400", "1E+400", "0.1", "1.0", "1e-7", &nines,
    ] {
        let expected = Value::Number(Number::from_literal(text));
        assert_eq!(value(json(text)), expected, "{text}");
        assert_eq!(value(yaml(text)), expected, "{text}");
    }
    assert_eq!(value(json(&nines)).to_json(), nines);
    assert_eq!(value(yaml(&format!("+{nines}"))).to_json(), nines);
}

#[test]
fn escapes_are_decoded() {
    let text = r#""\"\\\/\b\f\n\r\t\u0041\uD83D\uDE00x""#;
    assert_eq!(value(json(text)), Value::from("\"\\/\u{8}\u{c}\n\r\tA😀x"));
    assert_eq!(value(yaml(text)), Value::from("\"\\/\u{8}\u{c}\n\r\tA😀x"));
}

/// Text, message, marked text, and how the help begins.
#[test]
#[rustfmt::skip]
fn json_refuses_with_a_place_and_advice() {
    for (text, message, marked, help) in [
        ("", "the document is empty", "", ""),
        (" \n", "the document is empty", "", ""),
        (r#"{"a":1]"#, "expected `,` or `}`, found `]`", "]", ""),
        ("[1}", "expected `,` or `]`, found `}`", "}", ""),
        (r#"{"a" 1}"#, "expected `:`, found `1`", "1", ""),
        (r#"{"a":1,}"#, "expected a key in double quotes, found `}`", "}", "remove the comma"),
        ("[1,2 , ]", "expected a value, found `]`", "]", "remove the comma before `]`"),
        ("[1 2]", "expected `,` or `]`, found `2`", "2", "put a comma between"),
        (r#"{"a":1 "b":2}"#, "expected `,` or `}`, found `\"`", "\"", "put a comma between"),
        ("[1, // x\n2]", "expected a value, found `/`", "/", "JSON has no comments"),
        ("{ /* x */ }", "expected a key in double quotes, found `/`", "/", "JSON has no comments"),
        ("[1 # x\n]", "expected `,` or `]`, found `#`", "#", "JSON has no comments"),
        ("{'a':1}", "expected a key in double quotes, found `'`", "'", "write text in double"),
        ("['a']", "expected a value, found `'`", "'", "write text in double"),
        ("{my-key:1}", "expected a key in double quotes, found `my-key`", "my-key", "write the key"),
        ("[NaN]", "expected a value, found `NaN`", "NaN", "JSON has no such number"),
        ("[-Infinity]", "expected a digit, found `Infinity`", "Infinity", "JSON has no such number"),
        ("[True]", "expected a value, found `True`", "True", "did you mean `true`?"),
        ("[None]", "expected a value, found `None`", "None", "did you mean `null`?"),
        ("[undefined]", "expected a value, found `undefined`", "undefined", "did you mean `null`?"),
        ("[truely]", "expected a value, found `truely`", "truely", "write text in double"),
        ("[012]", "number `012` has a leading zero", "012", "remove the zero"),
        ("[-01]", "number `-01` has a leading zero", "-01", "remove the zero"),
        ("[+1]", "expected a value, found `+`", "+", "write the number without `+`"),
        ("[.5]", "expected a value, found `.`", ".", "write a zero before"),
        ("[1.]", "expected a digit, found `]`", "]", ""),
        ("[1e]", "expected a digit, found `]`", "]", ""),
        ("[-]", "expected a digit, found `]`", "]", ""),
        ("[0x10]", "expected `,` or `]`, found `x10`", "x10", ""),
        ("[1", "expected `,` or `]`, found the end of the text", "", ""),
        (r#"{"a""#, "expected `:`, found the end of the text", "", ""),
        (r#"["é"] x"#, "expected the end of the text, found `x`", "x", "a document is one value"),
        ("{}{}", "expected the end of the text, found `{`", "{", "a document is one value"),
        (r#"["ab"#, "the string is not closed", "\"ab", "end it"),
        (r#"["ab\"#, "the string is not closed", "\"ab\\", "end it"),
        ("[\"a\nb\"]", "`\\n` must be escaped in a string", "\n", "end the string"),
        ("[\"a\tb\"]", "`\\t` must be escaped in a string", "\t", "write the tab"),
        ("[\"a\u{1}b\"]", "`\\u{1}` must be escaped in a string", "\u{1}", ""),
        (r#"["\x"]"#, r"`\x` is not an escape of JSON", r"\x", "write a backslash"),
        (r#"["\é"]"#, r"`\é` is not an escape of JSON", r"\é", "write a backslash"),
        (r#"["\u12g4"]"#, "expected four hexadecimal digits, found `g4`", "g4", ""),
        (r#"["\u+123"]"#, "expected four hexadecimal digits, found `+`", "+", ""),
        (r#"["\ud800"]"#, r"`\ud800` is half of a surrogate pair", r"\ud800", "write both halves"),
        (r#"["\udc00"]"#, r"`\udc00` is half of a surrogate pair", r"\udc00", "write both halves"),
        (r#"["\ud800\u0041"]"#, r"`\ud800` is half of a surrogate pair", r"\ud800", "write both"),
        (r#"["\ud800\ud800"]"#, r"`\ud800` is half of a surrogate pair", r"\ud800", "write both"),
        ("[\u{a0}1]", "expected a value, found `\u{a0}`", "\u{a0}", ""),
    ] {
        let finding = refusal(json(text));
        assert_eq!((finding.code, finding.message.as_str()), (Code::Parse, message), "{text}");
        assert_eq!(slice(text, finding.span), marked, "{text}");
        let found = finding.help.unwrap_or_default();
        assert!(found.starts_with(help) && found.is_empty() == help.is_empty(), "{text}: {found}");
    }
}

#[test]
fn json_offers_the_mended_text() {
    for (text, mended) in [
        ("[1,2 , ]", "[1,2  ]"),
        (r#"{"a":1 "b":2}"#, r#"{"a":1 ,"b":2}"#),
        ("{key:1}", r#"{"key":1}"#),
        ("[False]", "[false]"),
    ] {
        let fix = refusal(json(text)).fix.unwrap();
        let mut patched = text.to_owned();
        patched.replace_range(fix.span.range(), &fix.replacement);
        assert_eq!(patched, mended);
        assert!(json(&patched).is_ok());
    }
}

#[test]
#[rustfmt::skip]
fn yaml_refuses_what_json_cannot_hold_or_what_hides_something() {
    let merge = "merge key `<<` is not supported: it hides duplicate keys";
    let circle = "the alias stands inside the value that it repeats";
    for (text, message, marked) in [
        ("", "the document is empty", ""),
        ("# only a comment\n", "the document is empty", ""),
        ("---\n", "the document is empty", ""),
        ("a: 1\n---\nb: 2\n", "a second document begins here", "---"),
        ("x: .inf", "`.inf` is not a number that JSON has", ".inf"),
        ("x: -.INF", "`-.INF` is not a number that JSON has", "-.INF"),
        ("é: .NaN", "`.NaN` is not a number that JSON has", ".NaN"),
        ("x: 012", "number `012` has a leading zero", "012"),
        ("x: -00.5", "number `-00.5` has a leading zero", "-00.5"),
        ("x: 0x10000000000000000", "`0x10000000000000000` is larger than 64 bits", "0x10000000000000000"),
        ("0o2000000000000000000000", "`0o2000000000000000000000` is larger than 64 bits", "0o2000000000000000000000"),
        ("ü: !x 1", "tag `!x` is not supported", "!x"),
        ("x: !!binary aGk=", "tag `!!binary` is not supported", "!!binary"),
        ("x: ! 12", "tag `!` is not supported", "!"),
        ("x: !!python/none {}", "tag `!!python/none` is not supported", "!!python/none"),
        ("x: !!int a", "an integer (`!!int`) is expected here, found `a`", "a"),
        ("x: !!bool 1", "a boolean (`!!bool`) is expected here, found `1`", "1"),
        ("x: !!null a", "null (`!!null`) is expected here, found `a`", "a"),
        ("x: !!map []", "a mapping (`!!map`) is expected here", "["),
        ("x: !!map a", "a mapping (`!!map`) is expected here, found `a`", "a"),
        ("b: &b {c: 1}\na:\n  <<: *b\n", merge, "<<"),
        ("{a: 1, <<: {b: 2}}", merge, "<<"),
        ("? [a]\n: b\n", "a key must be a scalar", "["),
        ("{{a: 1}: b}", "an expression must be quoted in YAML", "{{"),
        ("a: {{ x }}", "an expression must be quoted in YAML", "{{"),
        ("{ {a: 1}: b}", "a key must be a scalar", "{"),
        ("a: &x 1\n*x : 2", "an alias cannot be a key", "*x"),
        ("&x a: 1", "an anchor cannot stand on a key", "a"),
        (": 1", "a key is missing here", ""),
        ("a: *zü\n", "alias `*zü` has no anchor before it", "*zü"),
        ("[*z, 1]", "alias `*z` has no anchor before it", "*z"),
        ("&x [1, *x]", circle, "*x"),
        ("a: &x {b: {c: *x}}", circle, "*x"),
        ("%YAML 1.1\n---\na: 1", "directives are not supported", "%"),
        ("%TAG ! tag:x,1:\n---\na: 1", "directives are not supported", "%"),
    ] {
        let finding = refusal(yaml(text));
        assert_eq!((finding.code, finding.message.as_str()), (Code::Parse, message), "{text}");
        assert_eq!(slice(text, finding.span), marked, "{text}");
    }
    let help = refusal(yaml("012")).help;
    assert_eq!(help.as_deref(), Some("quote it as text or write it without the zero"));
}

/// Errors of the YAML parser: its message, our span.
#[test]
fn yaml_syntax_errors_have_a_place() {
    for (text, line, column) in [
        ("é:\n\tb: 1\n", 2, 1),
        ("a: 1\n b: 2\n", 2, 3),
        ("ü🦀: b: c", 1, 6),
        ("é: 'b", 1, 4),
        ("é: \"x\\q\"", 1, 4),
        ("é: [1, 2", 1, 4),
        ("é: ]", 1, 4),
        ("é: @b", 1, 4),
        ("é: \"\\ud800\"", 1, 4),
        ("%YAML 1.2\n---\nü: @b", 3, 4),
    ] {
        let finding = refusal(yaml(text));
        assert_eq!(finding.code, Code::Parse, "{text}");
        assert!(!finding.message.is_empty());
        let position = Source::new("x.yaml", text).position(finding.span.start);
        assert_eq!(position, Position { line, column }, "{text}: {}", finding.message);
    }
}

/// D5: duplicate keys are refused, all of them at once, each with its first place.
#[test]
fn every_duplicate_key_is_reported() {
    let many: Vec<_> = (0..40).map(|i| format!("\"k{i}\": 0")).collect();
    let many = format!("{{{}, \"k7\": 1, \"z\": 2, \"k3\": 3}}", many.join(", "));
    for (text, keys) in [
        (r#"{"a":1,"a":2,"b":{"c":1,"c":2},"a":3}"#, vec!["a", "c", "a"]),
        (r#"{"a":1,"\u0061":2}"#, vec!["a"]),
        (r#"[{"x":1,"x":1},{"é":1,"é":1}]"#, vec!["x", "é"]),
        (many.as_str(), vec!["k7", "k3"]),
    ] {
        let expected: Vec<_> =
            keys.iter().map(|key| format!("key `{key}` is given twice")).collect();
        for findings in [json(text).unwrap_err(), yaml(text).unwrap_err()] {
            let messages: Vec<_> = findings.iter().map(|finding| &*finding.message).collect();
            assert_eq!(messages, expected);
            for finding in &findings {
                let (first, _) = finding.related[0];
                assert_eq!(finding.code, Code::DuplicateKey);
                assert!(first.end <= finding.span.start && slice(text, first).starts_with('"'));
            }
        }
    }
    let finding = refusal(yaml("1: a\n\"1\": b\n"));
    assert_eq!((finding.code, finding.span), (Code::DuplicateKey, Span::new(5, 8)));
}

#[test]
fn duplicates_found_before_a_syntax_error_are_kept() {
    let findings = json(r#"[{"a":1,"a":2},]"#).unwrap_err();
    let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::DuplicateKey, Code::Parse]);
}

/// The text under every value and key, in order.
fn written<'a>(text: &'a str, node: &Node, out: &mut Vec<&'a str>) {
    out.push(slice(text, node.span));
    for member in node.members() {
        out.push(slice(text, member.key_span));
        written(text, &member.value, out);
    }
    for item in node.items() {
        written(text, item, out);
    }
}

#[test]
#[rustfmt::skip]
fn spans_cover_exactly_what_was_written() {
    for (name, text, expected) in [
        ("x.json", " {\"ü🦀\" : [ 1.5 , \"é\\n\" ],\r\n \"b\":null} ", vec![
            "{\"ü🦀\" : [ 1.5 , \"é\\n\" ],\r\n \"b\":null}",
            "\"ü🦀\"", "[ 1.5 , \"é\\n\" ]", "1.5", "\"é\\n\"", "\"b\"", "null",
        ]),
        ("x.yaml", "ü🦀: wért # c\nb: 'qü' # d\nc: \"d\\u00e9\"\n\n# end\n", vec![
            "ü🦀: wért # c\nb: 'qü' # d\nc: \"d\\u00e9\"",
            "ü🦀", "wért", "b", "'qü'", "c", "\"d\\u00e9\"",
        ]),
        // A value repeated by an alias keeps the spans of its anchor.
        ("x.yaml", "é: &x {a: [1, ü]}\ny: *x\n", vec![
            "é: &x {a: [1, ü]}\ny: *x",
            "é", "{a: [1, ü]}", "a", "[1, ü]", "1", "ü",
            "y", "*x", "a", "[1, ü]", "1", "ü",
        ]),
        ("x.yaml", "l:\n- a\n-   b\nm: 1", vec![
            "l:\n- a\n-   b\nm: 1", "l", "- a\n-   b", "a", "b", "m", "1",
        ]),
        ("x.yaml", "l: # c\n  # - d\n  - a\n\n", vec!["l: # c\n  # - d\n  - a", "l", "- a", "a"]),
        ("x.yaml", "l: &x\n- - a\n  - b\n", vec![
            "l: &x\n- - a\n  - b", "l", "- - a\n  - b", "- a\n  - b", "a", "b",
        ]),
        ("x.yaml", "a: | # é | c\r\n  l1\r\n\r\n  ü2\r\n\r\nb: >-\r\n  x\r\n", vec![
            "a: | # é | c\r\n  l1\r\n\r\n  ü2\r\n\r\nb: >-\r\n  x",
            "a", "| # é | c\r\n  l1\r\n\r\n  ü2", "b", ">-\r\n  x",
        ]),
        ("x.yaml", "- |\n  a\n- &x|y !!str >\n  b\n- |\n", vec![
            "- |\n  a\n- &x|y !!str >\n  b\n- |", "|\n  a", ">\n  b", "|",
        ]),
        ("x.yaml", "--- |\n  a\n", vec!["|\n  a"]),
        ("x.yaml", "a: x\n  y\nb: \"p\n  q\"", vec![
            "a: x\n  y\nb: \"p\n  q\"", "a", "x\n  y", "b", "\"p\n  q\"",
        ]),
        ("x.yaml", "%YAML 1.2\n---\nü: !!str é\n", vec!["ü: !!str é", "ü", "é"]),
    ] {
        let node = read_as(name, text).unwrap();
        let mut found = Vec::new();
        written(text, &node, &mut found);
        assert_eq!(found, expected, "{text}");
    }
}

/// Lines and columns as an editor counts them, in every style.
/// A byte order mark at the beginning, before a later document or inside quotes moves no span.
#[test]
fn spans_are_right_beside_a_byte_order_mark() {
    for (text, expected) in [
        ("\u{feff}a: \"x\"\nb: 'y'\n", vec!["\"x\"", "'y'"]),
        ("\u{feff}\"a\": \"x\"\n", vec!["\"x\""]),
        ("\u{feff}%YAML 1.2\n---\na: \"x\"\nb: y\n", vec!["\"x\"", "y"]),
        ("a: \"\u{feff}x\"\nb: \"y\"\nc: z\n", vec!["\"\u{feff}x\"", "\"y\"", "z"]),
        (
            "a: 'x\u{feff}'\nb: 'y'\nc: [ 'ü\u{feff}\u{feff}', z ]\n",
            vec!["'x\u{feff}'", "'y'", "'ü\u{feff}\u{feff}'", "z"],
        ),
        (
            "a: \"x \u{feff}\\n\n  \u{feff} y\"\nb: \"z\"\n",
            vec!["\"x \u{feff}\\n\n  \u{feff} y\"", "\"z\""],
        ),
        ("\u{feff}a: |\n  \u{feff}x\nb: y\n", vec!["|\n  \u{feff}x", "y"]),
    ] {
        let root = yaml(text).unwrap_or_else(|found| panic!("{text:?}: {found:?}"));
        let mut found = Vec::new();
        scalars(&root, &mut |node| found.push(slice(text, node.span)));
        assert_eq!(found, expected, "{text:?}");
    }
}

/// The same for every short text of these parts between quotes.
#[test]
fn a_byte_order_mark_inside_quotes_moves_no_span() {
    const PARTS: &[&str] = &["x", " ", "\n  ", "\n\u{feff}", "\u{feff}", "ü", "''", "\\n"];
    let mut inner = vec![String::new()];
    for _ in 0..4 {
        let longer =
            inner.iter().flat_map(|text| PARTS.iter().map(move |part| format!("{text}{part}")));
        inner = longer.chain(inner.iter().cloned()).collect();
        inner.sort();
        inner.dedup();
    }
    let mut read = 0;
    for (quote, before) in ["'", "\""].into_iter().flat_map(|it| [(it, ""), (it, "\u{feff}")]) {
        for text in inner.iter().filter(|text| text.contains('\u{feff}')) {
            let scalar = format!("{quote}{text}{quote}");
            let whole = format!("{before}a: {scalar}\nb: [{scalar}, y]\nc: {quote}z{quote}\n");
            let Ok(root) = yaml(&whole) else { continue };
            let mut found = Vec::new();
            scalars(&root, &mut |node| found.push(whole.get(node.span.range())));
            let last = format!("{quote}z{quote}");
            let expected = [&*scalar, &*scalar, "y", &*last].map(Some);
            assert_eq!(found, expected, "{whole:?}");
            read += 1;
        }
    }
    assert!(read > 1_000, "only {read} texts");
}

fn scalars<'a>(node: &'a Node, visit: &mut dyn FnMut(&'a Node)) {
    let inner = node.members().iter().map(|member| &member.value).chain(node.items());
    let mut is_leaf = true;
    for node in inner {
        is_leaf = false;
        scalars(node, visit);
    }
    if is_leaf {
        visit(node);
    }
}

#[test]
fn positions_are_right_after_non_ascii_text() {
    for (name, text, line, column) in [
        ("x.json", "{\"ü🦀\": @}", 1, 8),
        ("x.json", "{\r\n  \"é\": \"ü\",\r\n  \"ö\": @}", 3, 8),
        ("x.yaml", "ü🦀: !x 1", 1, 5),
        ("x.yaml", "ü: |\n  é🦀\nk: [é, \"🦀\", !x 1]\n", 3, 13),
        ("x.yaml", "ü: 'é'\r\nö:\r\n- é\r\n- !x 1\r\n", 4, 3),
        ("x.yaml", "\u{feff}ü:\n  é: !x 1", 2, 6),
    ] {
        let finding = refusal(read_as(name, text));
        let position = Source::new(name, text).position(finding.span.start);
        assert_eq!(position, Position { line, column }, "{text}");
    }
}

/// D5: nesting is bounded, at the first level that is too much.
#[test]
fn depth_is_bounded_before_anything_else_gives() {
    let deep = |open: &str, close: &str, n| format!("{}1{}", open.repeat(n), close.repeat(n));
    assert!(json(&deep("[", "]", 64)).is_ok() && yaml(&deep("[", "]", 64)).is_ok());
    for (name, text, at) in [
        ("x.json", deep("[", "]", 65), 64),
        ("x.json", deep("[", "]", 100_000), 64),
        ("x.json", deep("{\"a\":", "}", 100_000), 64 * 5),
        ("x.yaml", deep("[", "]", 65), 64),
        ("x.yaml", deep("[", "]", 100_000), 64),
        ("x.yaml", deep("{a: ", "}", 100_000), 64 * 4),
        ("x.yaml", "- ".repeat(100_000), 64 * 2),
    ] {
        let finding = refusal(read_as(name, &text));
        assert_eq!(finding.code, Code::Limit);
        // The YAML parser reads ahead, and may meet its own bound one level later.
        let start = finding.span.range().start;
        assert!((at..=at + 5).contains(&start), "{name} {start}");
    }
}

#[test]
fn depth_of_nested_block_mappings_is_bounded() {
    let nested = |n: usize| (0..n).fold(String::new(), |text, i| text + &" ".repeat(i) + "a:\n");
    assert!(yaml(&nested(64)).is_ok());
    assert_eq!(refusal(yaml(&nested(65))).code, Code::Limit);
    assert_eq!(refusal(yaml(&nested(5_000))).code, Code::Limit);
}

/// D5: an alias costs what it repeats, in values and in depth, and is counted before it is copied.
#[test]
fn alias_bombs_stop_at_the_budget() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    let mut tower = String::from("- &a0 [x]\n");
    for i in 1..70 {
        let inner = vec![format!("*a{}", i - 1); 9].join(", ");
        let _ = writeln!(bomb, "a{i}: &a{i} [{inner}]");
        let _ = writeln!(tower, "- &a{i} [*a{}]", i - 1);
    }
    let finding = refusal(yaml(&bomb));
    assert_eq!(
        (finding.code, &*finding.message),
        (Code::Limit, "there are more than 200000 values")
    );
    let finding = refusal(yaml(&tower));
    assert_eq!(finding.message, "values are nested more than 64 levels deep");
}

#[test]
fn values_and_aliases_are_counted_exactly() {
    let limited = |text: &str, nodes_max, aliases_max| {
        let budget = ReadLimits { nodes_max, aliases_max, ..budget() };
        read(&Source::new("x.yaml", text), budget).err().map(|mut found| found.remove(0))
    };
    // The root, and three lists of two items.
    let text = "[&a [1, 2], *a, *a]";
    assert!(limited(text, 10, 2).is_none());
    let finding = limited(text, 9, 2).unwrap();
    assert_eq!((finding.code, slice(text, finding.span)), (Code::Limit, "*a"));
    let finding = limited(text, 10, 1).unwrap();
    assert_eq!((finding.code, finding.span), (Code::Limit, Span::new(16, 18)));
    assert!(limited("[1, 2]", 2, 0).is_some() && limited("[1, 2]", 3, 0).is_none());
}

/// D5: a million keys end at the budget; with a larger one they are read.
#[test]
fn a_million_keys() {
    let mut flow = String::from("{\"\":1");
    let mut block = String::from("'': 1\n");
    // Without optimisation the YAML parser alone would take ten seconds for the whole million.
    let keys: usize = if cfg!(debug_assertions) { 250_000 } else { 1_000_000 };
    for key in (1..keys).map(|i| (i * 7919) % 1_000_003) {
        let _ = write!(flow, ",\"k{key}\":1");
        let _ = writeln!(block, "k{key}: 1");
    }
    flow.push('}');
    for (name, text) in [("x.json", flow), ("x.yaml", block)] {
        let source = Source::new(name, text);
        assert_eq!(refusal(read(&source, budget())).code, Code::Limit);
        let default = ReadLimits::for_documents(&Limits::default());
        let finding = refusal(read(&source, default));
        assert_eq!(finding.message, "an object has more than 10000 keys");
        let raised = ReadLimits { nodes_max: keys + 1, ..budget() };
        assert_eq!(read(&source, raised).unwrap().members().len(), keys);
    }
}

#[test]
fn thousands_of_duplicates_end_the_reading() {
    for (name, text) in [
        ("x.json", format!("{{{}\"a\":1}}", "\"a\":1,".repeat(50_000))),
        ("x.yaml", "a: 1\n".repeat(50_000)),
    ] {
        let findings = read_as(name, &text).unwrap_err();
        assert_eq!(findings.len(), 1_001);
        assert_eq!(findings.last().map(|finding| finding.code), Some(Code::Limit));
    }
}

#[test]
fn a_string_of_ten_megabytes() {
    let long = "ü".repeat(5 * 1024 * 1024);
    let quoted = format!("[\"{long}\"]");
    for node in [json(&quoted), yaml(&quoted), yaml(&format!("- {long}"))] {
        assert!(node.unwrap().items()[0].as_str().is_some_and(|text| **text == *long));
    }
}

#[test]
fn bytes_are_bounded() {
    let budget = ReadLimits { bytes_max: 3, ..budget() };
    assert!(read(&Source::new("x.json", "[1]"), budget).is_ok());
    assert_eq!(refusal(read(&Source::new("x.json", "[12]"), budget)).code, Code::Limit);
}

#[test]
fn values_of_callers_have_their_own_budget() {
    let limits = Limits { value_nodes_max: 3, ..Limits::default() };
    assert_eq!(read_json_value("[1, 2]", &limits).unwrap().to_json(), "[1,2]");
    assert_eq!(read_json_value("[1, 2, 3]", &limits).unwrap_err().code, Code::Limit);
    assert_eq!(read_json_value(r#"{"a":1,"a":1}"#, &limits).unwrap_err().code, Code::DuplicateKey);
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<i32>().prop_map(|n| (f64::from(n) / 8.0).into()),
        any::<String>().prop_map(Into::into),
        "[ -~]{0,12}".prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map(".{0,8}", inner, 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Escapes the few characters that JSON has raw in a string and YAML's parser refuses.
fn printable(json: &str) -> String {
    json.chars().fold(String::new(), |mut text, char| {
        match char {
            '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(char));
            }
            char => text.push(char),
        }
        text
    })
}

/// Pieces that mean something to one of the grammars, so that random texts get far.
fn almost_a_document() -> impl Strategy<Value = String> {
    #[rustfmt::skip]
    let pieces = vec![
        "{", "}", "[", "]", ":", ": ", ",", "- ", "-", "? ", "\n", "\r\n", "  ", "\t", "\"", "'",
        "\\", "\\u", "d83d", "|", ">-\n", "#", " #", "&a ", "*a", "!!str ", "!x", "<<", "---\n",
        "...\n", "%YAML 1.2\n", "a", "012", "-1.5e3", ".inf", "null", "true", "~", "é", "🦀",
        "\u{feff}", "\u{0}", "\u{85}", "\u{2028}",
    ];
    let piece = prop_oneof![
        9 => prop::sample::select(pieces).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// D5: a printed value reads back equal, as JSON and as YAML.
    #[test]
    fn printed_json_reads_back(json_value in any_json(), pretty in any::<bool>()) {
        let compact = json_value.to_string();
        let text = if pretty { serde_json::to_string_pretty(&json_value).unwrap() } else { compact };
        let expected = Value::from(json_value);
        prop_assert_eq!(&value(json(&text)), &expected);
        prop_assert_eq!(&value(yaml(&printable(&text))), &expected);
    }

    /// Nor does it make one point between the bytes of a character.
    #[test]
    fn no_text_makes_a_reader_panic(text in almost_a_document()) {
        for read in [json(&text), yaml(&text)] {
            match read {
                Ok(node) => written(&text, &node, &mut Vec::new()),
                Err(findings) => findings.iter().for_each(|finding| {
                    slice(&text, finding.span);
                }),
            }
        }
    }

    #[test]
    fn bytes_that_were_never_text_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = (json(&text), yaml(&text));
    }
}
