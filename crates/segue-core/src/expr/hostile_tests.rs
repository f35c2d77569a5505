//! Every filter, test and function with every kind of hostile argument: each ends within its budget, in a
//! value or in an error that is not a fault of ours.

use std::borrow::Cow;

use super::tests::parse;
use super::*;
use crate::budget;
use crate::interrupt::Interrupt;
use crate::value::Number;

/// The names of a test, and a flag that is raised when `stop` is looked up.
struct Names<'a> {
    values: Vec<(&'static str, Value)>,
    stop: Option<&'a Interrupt>,
}

impl Scope for Names<'_> {
    fn lookup(&self, root: &Root) -> Option<Cow<'_, Value>> {
        let Root::InputField(name) = root else { return None };
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

/// A value that holds itself so often that nobody could write it.
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

/// Evaluates, and holds the outcome against what may come out.
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

/// What is shared in memory is as large as it would be written, in one expression too.
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

/// The driver's flag ends an evaluation that is under way, in every language.
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
        // And none begins while it is raised.
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
