//! Every filter, test and function with every kind of hostile argument: each ends within its
//! budget, in a value or in an error that is not a bug of ours.

use std::borrow::Cow;

use super::tests::parse;
use super::*;
use crate::budget;
use crate::budget::interrupt::Interrupt;
use crate::value::Number;

/// The names of a test, and a flag that a lookup of `stop` raises.
struct Names<'a> {
    values: Vec<(&'static str, Value)>,
    stop: Option<&'a Interrupt>,
}

impl Scope for Names<'_> {
    /// As in a run with something sensitive.
    fn looks_through(&self) -> bool {
        self.values.iter().any(|(name, _)| *name == "sensitive")
    }

    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>> {
        let ExprRoot::InputField(name) = root else { return None };
        if let ("stop", Some(stop)) = (&**name, self.stop) {
            stop.raise();
        }
        let found = self.values.iter().find(|(known, _)| *known == &**name);
        found.map(|(_, value)| Cow::Borrowed(value))
    }
}

fn number(text: &str) -> Value {
    Value::Number(Number::from_literal(text))
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::from(1), |inner, _| Value::from(vec![inner]))
}

/// A value that contains itself so often that it cannot be serialized.
fn doubled(times: usize) -> Value {
    (0..times).fold(Value::from("x"), |inner, _| Value::from(vec![inner.clone(), inner]))
}

fn numbers() -> Vec<Value> {
    let texts = [
        "-9223372036854775808",
        "-1",
        "0",
        "3",
        "10001",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "-0.0",
        "0.5",
        "1e308",
        "-1e308",
        "5e-324",
        "1e400",
        "-1e-9223372036854775807",
    ];
    texts.into_iter().map(number).collect()
}

fn others() -> Vec<Value> {
    let item = |n: i64| Value::object([("a", Value::from(n % 7)), ("b", Value::from("é"))]);
    vec![
        Value::Null,
        Value::Bool(true),
        Value::from(""),
        Value::from("a"),
        Value::from("{0} %s %99999999999d {}"),
        Value::from("ü\n".repeat(100)),
        Value::from("x".repeat(2_000)),
        Value::from(Vec::new()),
        (0..40).map(Value::from).collect::<Vec<_>>().into(),
        (0..10).map(item).collect::<Vec<_>>().into(),
        nested(60),
        doubled(5),
        Value::empty_object(),
        Value::object([("a", nested(5)), ("ü", Value::Null)]),
    ]
}

/// Evaluates, and checks the outcome.
fn outcome(text: &str, names: &Names<'_>) {
    let limits = Limits::default();
    let Ok(template) = parse(text) else { panic!("{text} cannot be read") };
    match template.eval(names, &limits) {
        Ok(value) => assert!(value.size() <= limits.value_bytes_max, "{text}"),
        Err(error) => {
            let known = [Code::Expression, Code::Limit, Code::UnresolvedReference];
            let given: Vec<String> = names.values.iter().map(|(_, v)| shorten(v)).collect();
            assert!(known.contains(&error.code), "{text} of {given:?}: {error:?}");
        }
    }
}

fn shorten(value: &Value) -> String {
    value.to_json().chars().take(60).collect()
}

fn all_with(call: &dyn Fn(&str) -> String) {
    let values: Vec<Value> = numbers().into_iter().chain(others()).collect();
    for input in &values {
        let names = |a: &Value, b: &Value| Names {
            values: vec![("i", input.clone()), ("a", a.clone()), ("b", b.clone())],
            stop: None,
        };
        outcome(&call(""), &names(&Value::Null, &Value::Null));
        for argument in &values {
            outcome(&call("a"), &names(argument, &Value::Null));
        }
        for (one, other) in numbers().iter().zip(numbers().iter().skip(3)) {
            outcome(&call("a, b"), &names(one, other));
        }
    }
}

#[test]
fn every_filter_takes_every_argument() {
    for name in filters::FILTERS {
        all_with(&|arguments| format!("{{{{ i | {name}({arguments}) }}}}"));
    }
}

#[test]
fn every_test_takes_every_argument() {
    for name in filters::TESTS {
        all_with(&|arguments| format!("{{{{ i is {name}({arguments}) }}}}"));
    }
}

/// The outcome of an expression: its value, or the code of its error.
fn ending(text: &str, names: &Names<'_>) -> Result<Value, Code> {
    let template = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    template.eval(names, &Limits::default()).map_err(|error| error.code)
}

/// Arguments of the test calls: none, each value, and pairs of numbers.
fn all_arguments() -> Vec<Vec<Value>> {
    let values = numbers().into_iter().chain(others()).map(|value| vec![value]);
    let pairs = numbers().into_iter().zip(numbers().into_iter().skip(3)).map(|(a, b)| vec![a, b]);
    std::iter::once(Vec::new()).chain(values).chain(pairs).collect()
}

/// A filter or test that is applied by name does to each item what it does to a value directly. In
/// particular it passes the same guards.
fn same_by_name(direct: &dyn Fn(&str) -> String, by_name: &dyn Fn(&str) -> String) {
    let inputs: Vec<Value> = numbers().into_iter().step_by(5).chain(others()).collect();
    for (input, arguments) in
        inputs.iter().flat_map(|i| all_arguments().into_iter().map(move |a| (i, a)))
    {
        let written = [", a", ", a, b"];
        let written = arguments.len().checked_sub(1).map_or("", |last| written[last]);
        let mut values = vec![("i", input.clone())];
        values.extend(["a", "b"].into_iter().zip(arguments));
        let names = Names { values, stop: None };
        let one = ending(&direct(written.trim_start_matches(", ")), &names);
        let other = ending(&by_name(written), &names);
        let given: Vec<String> = names.values.iter().map(|(_, v)| shorten(v)).collect();
        assert_eq!(one, other, "{} of {given:?}", by_name(written));
        assert_ne!(one, Err(Code::Internal), "{} of {given:?}", by_name(written));
    }
}

#[test]
fn a_filter_by_name_is_the_filter() {
    for name in filters::FILTERS {
        same_by_name(&|arguments| format!("{{{{ [i | {name}({arguments})] }}}}"), &|arguments| {
            format!("{{{{ [i] | map('{name}'{arguments}) }}}}")
        });
    }
}

#[test]
fn a_test_by_name_is_the_test() {
    for name in filters::TESTS {
        for (word, list) in [
            ("select('", "[i]"),
            ("reject('", "[i]"),
            ("selectattr('x', '", "[{'x': i}]"),
            ("rejectattr('x', '", "[{'x': i}]"),
        ] {
            let not = if word.starts_with("reject") { "not " } else { "" };
            same_by_name(
                &|arguments| format!("{{{{ {list} if {not}(i is {name}({arguments})) else [] }}}}"),
                &|arguments| format!("{{{{ {list} | {word}{name}'{arguments}) }}}}"),
            );
        }
    }
}

/// Filters of the library that are not supported are not available by name either.
#[test]
fn a_name_that_is_not_ours_is_refused() {
    let names = Names { values: vec![("s", "%999999999d".into())], stop: None };
    for name in ["format", "escape", "e", "safe", "urlize", "nosuch", "", "safe\0"] {
        for text in [
            format!("{{{{ [s] | map('{name}', 1) }}}}"),
            format!("{{{{ [] | map('{name}', 1) }}}}"),
            format!("{{{{ [[s]] | map('map', '{name}', 1) }}}}"),
            format!("{{{{ [s] | select('{name}') }}}}"),
            format!("{{{{ [s] | reject('{name}') }}}}"),
            format!("{{{{ [{{'x': s}}] | selectattr('x', '{name}') }}}}"),
            format!("{{{{ [{{'x': s}}] | rejectattr('x', '{name}') }}}}"),
        ] {
            assert_eq!(ending(&text, &names), Err(Code::Expression), "{text}");
        }
        if !filters::TESTS.contains(&name) {
            assert_eq!(ending(&format!("{{{{ '{name}' is filter }}}}"), &names), Ok(false.into()));
            assert_eq!(ending(&format!("{{{{ '{name}' is test }}}}"), &names), Ok(false.into()));
        }
    }
}

/// Names that lead to names, as deep as the length of an expression allows.
#[test]
fn names_of_names_end() {
    let work = || {
        let names = Names { values: vec![("s", "a".into())], stop: None };
        for word in ["map", "select", "first"] {
            let text = format!("{{{{ s | map({}'{word}') }}}}", "'map', ".repeat(1_900));
            assert_eq!(ending(&text, &names), Err(Code::Limit), "{word}");
        }
        assert!(ending("{{ [[s]] | map('map', 'map', 'upper') }}", &names).is_ok());
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

/// Filters that pass their arguments on without reading them.
const HAND_ON: &[&str] = &["default", "d"];

/// Every string that is read is charged, wherever it is: a long one costs more than a short one, as
/// input, as argument, and once for each item.
#[test]
fn every_letter_that_is_looked_at_is_paid_for() {
    const LONG: usize = 200_000;
    const LEAST: u64 = (LONG / budget::BYTES_PER_OPERATION) as u64 / 2;
    let limits = Limits::default();
    let (short, long) = (Value::from("ab"), Value::from("ab".repeat(LONG / 2)));
    let list = Value::from(vec![short.clone(); 10]);
    let cost = |text: &str, a: &Value| {
        let values = vec![("s", short.clone()), ("l", list.clone()), ("a", a.clone())];
        let outcome = parse(text).unwrap().eval(&Names { values, stop: None }, &limits);
        outcome.map_or_else(|error| error.code == Code::Limit, |_| true).then(budget::spent)
    };
    // A rejected argument was not read.
    let dearer = |text: String, times: u64| {
        if let (Some(cheap), Some(dear)) = (cost(&text, &short), cost(&text, &long)) {
            assert!(dear >= cheap + times * LEAST, "{text}: {cheap} and {dear}");
        }
    };
    for name in filters::FILTERS.iter().filter(|name| !HAND_ON.contains(name)) {
        dearer(format!("{{{{ (a | {name}) is defined }}}}"), 1);
        dearer(format!("{{{{ (s | {name}(a)) is defined }}}}"), 1);
    }
    for name in filters::TESTS.iter().filter(|name| !["defined", "undefined"].contains(name)) {
        dearer(format!("{{{{ a is {name} }}}}"), 1);
        dearer(format!("{{{{ s is {name}(a) }}}}"), 1);
    }
    for name in filters::FILTERS.iter().filter(|name| !HAND_ON.contains(name)) {
        dearer(format!("{{{{ l | map('{name}', a) | length }}}}"), 10);
    }
    for name in filters::TESTS.iter().filter(|name| !["defined", "undefined"].contains(name)) {
        for word in ["select(", "reject(", "selectattr('0', ", "rejectattr('0', "] {
            dearer(format!("{{{{ l | {word}'{name}', a) }}}}"), 10);
        }
    }
    for text in ["{{ a in s }}", "{{ s in a }}", "{{ a == s }}", "{{ a < s }}", "{{ s in [a] }}"] {
        dearer(text.to_owned(), 1);
    }
    for text in [
        "{{ l | map('replace', 'x', a) | length }}",
        "{{ l | map('replace', a, 'x') | length }}",
        "{{ l | map('split', a) | length }}",
        "{{ l | map('trim', a) | length }}",
        "{{ l | map('default', a) | map('length') | length and l | map(lambda x: a | length) }}",
        "{{ l | select('in', a) }}",
        "{{ l | reject('in', a) }}",
        "{{ l | select('startingwith', a) }}",
        "{{ l | select('in', [a]) }}",
        "{{ l | select('eq', a) }}",
        "{{ l | map(attribute=a, default=1) }}",
        "{{ l | selectattr(a) }}",
        "{{ l | sort(attribute=a) }}",
        "{{ l | unique(attribute=a) }}",
        "{{ l | min(attribute=a) }}",
        "{{ l | groupby(a) | length }}",
        "{{ l | map(lambda x: {}) | map(attribute=a, default=1) }}",
    ] {
        dearer(text.to_owned(), 10);
    }
}

/// A run with sensitive values scans each named value, to see whether it was redacted.
#[test]
fn a_value_that_is_looked_through_is_paid_for() {
    let list = Value::from(vec![Value::from("x".repeat(1_000)); 1_000]);
    let cost = |other: &'static str| {
        let values = vec![("l", list.clone()), (other, Value::Null)];
        let text = "{{ range(10) | map(lambda x: (l | first) ~ x) | length }}";
        ending(text, &Names { values, stop: None }).unwrap();
        budget::spent()
    };
    assert!(cost("sensitive") > cost("other") + 10 * 1_000_000 / 64);
}

/// The fuzzer does not guess names by chance.
#[test]
fn the_dictionary_of_the_fuzzer_has_every_name() {
    let dictionary = include_str!("../../../../fuzz/dictionaries/expression.dict");
    for name in filters::FILTERS {
        assert!(dictionary.contains(&format!("\"|{name}\"")), "|{name}");
    }
    for name in filters::TESTS {
        assert!(dictionary.contains(&format!("\" is {name}\"")), "is {name}");
    }
    for name in filters::FILTERS.iter().chain(filters::TESTS) {
        assert!(dictionary.contains(&format!("\"'{name}'\"")), "'{name}'");
    }
}

/// The library would do this work once per item for each item.
#[test]
fn nothing_is_copied_once_for_each_item() {
    let texts = Value::from(vec![Value::from("x".repeat(100)); 60_000]);
    let lists = Value::from(vec![Value::from(vec![Value::from(1)]); 60_000]);
    let signs: String = ('\u{4e00}'..'\u{9e00}').chain(['x']).collect();
    let xs = "x".repeat(1_500_000);
    let values = vec![("t", texts), ("l", lists), ("c", signs.into()), ("x", xs.into())];
    let names = Names { values, stop: None };
    for (text, expected) in [
        ("{{ t | sum(start='') | length }}", 6_000_000),
        ("{{ l | sum(start=[]) | length }}", 60_000),
        ("{{ l | sum(attribute='0') }}", 60_000),
        ("{{ (x ~ '-' ~ x) | trim(c) | length }}", 1),
    ] {
        assert_eq!(ending(text, &names), Ok(expected.into()), "{text}");
    }
}

#[test]
fn every_named_argument_takes_every_number() {
    let named = ["indent", "width", "first", "blank", "precision", "count", "start", "default"];
    let named = named.into_iter().chain(["attribute", "by", "reverse", "fill_with", "d"]);
    for argument in named {
        for name in filters::FILTERS {
            for number in numbers() {
                for input in others().into_iter().skip(5).step_by(4) {
                    let values = vec![("i", input), ("a", number.clone())];
                    let text = format!("{{{{ i | {name}({argument}=a) }}}}");
                    outcome(&text, &Names { values, stop: None });
                }
            }
        }
    }
}

#[test]
fn every_operator_and_function_takes_every_value() {
    let texts = [
        "{{ i + a }}",
        "{{ i - a }}",
        "{{ i * a }}",
        "{{ i / a }}",
        "{{ i // a }}",
        "{{ i % a }}",
        "{{ i ** a }}",
        "{{ i ~ a }}",
        "{{ i < a }}",
        "{{ i == a }}",
        "{{ i in a }}",
        "{{ -i }}",
        "{{ i[a] }}",
        "{{ i[a:] }}",
        "{{ i[:a] }}",
        "{{ i[::a] }}",
        "{{ i[a:a:a] }}",
        "{{ range(i) }}",
        "{{ range(i, a) }}",
        "{{ range(0, i, a) }}",
        "{{ range(a, i, a) }}",
        "{{ dict(a=i) }}",
        "{{ [i, a] | sort }}",
        "{{ [i, a] | unique }}",
        "{{ {'x': i} == {'x': a} }}",
    ];
    let values: Vec<Value> = numbers().into_iter().chain(others()).collect();
    for text in texts {
        for input in &values {
            for argument in &values {
                let values = vec![("i", input.clone()), ("a", argument.clone())];
                outcome(text, &Names { values, stop: None });
            }
        }
    }
}

/// A value shared in memory counts with its serialized size, within one expression too.
#[test]
fn growth_by_sharing_is_seen() {
    let doubling = "| map(lambda x: [x, x])".repeat(40);
    let names = Names { values: vec![("s", Value::from("x".repeat(1_000)))], stop: None };
    let limits = Limits::default();
    for text in [
        format!("{{{{ [s] {doubling} }}}}"),
        format!("{{{{ ([s] {doubling}) == ([s] {doubling}) }}}}"),
        format!("{{{{ [s] {doubling} | tojson | length }}}}"),
    ] {
        assert_eq!(parse(&text).unwrap().eval(&names, &limits).unwrap_err().code, Code::Limit);
    }
    let deep = Names { values: vec![("s", nested(64))], stop: None };
    let error = parse("{{ [s] }}").unwrap().eval(&deep, &limits).unwrap_err();
    assert!(error.code == Code::Limit && error.message.contains("deeper"), "{error:?}");
}

/// The driver's flag stops a running evaluation, in every language.
#[test]
fn a_raised_flag_ends_what_is_under_way() {
    let list: Vec<Value> = (0..1_000).map(Value::from).collect();
    for text in [
        "{{ l | map(lambda x: x + stop) | length }}",
        "{{ [stop] | map(lambda x: l | map(lambda y: y + x)) }}",
        "{{ {'l': l, 's': stop} | json_query('[.l[] as $x | .l[] as $y | $x + $y] | length') }}",
        "{{ [stop, l] | map(lambda x: l | sort | unique | groupby('x')) }}",
    ] {
        let flag = Interrupt::default();
        let values = vec![("l", list.clone().into()), ("stop", Value::from(1))];
        let names = Names { values, stop: Some(&flag) };
        let template = parse(text).unwrap();
        let evaluate = || template.eval(&names, &Limits::default());
        let error = budget::interruptible(&flag, evaluate).unwrap_err();
        assert!(
            error.code == Code::Limit && error.message.contains("stopped"),
            "{text}: {error:?}"
        );
        // And no evaluation starts while it is raised.
        assert!(
            budget::interruptible(&flag, || parse("{{ l }}")
                .unwrap()
                .eval(&names, &Limits::default()))
            .is_err()
        );
        flag.clear();
        let fresh = Names { values: names.values.clone(), stop: None };
        assert!(
            budget::interruptible(&flag, || parse("{{ l }}")
                .unwrap()
                .eval(&fresh, &Limits::default()))
            .is_ok()
        );
    }
}
