//! The semantics of expressions, by example.

use std::borrow::Cow;
use std::sync::Arc;

use super::*;
use crate::diagnostic::Code;

/// Resolves every name to a member of one object, in place of a run.
struct World(Value);

impl Scope for World {
    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>> {
        match root {
            ExprRoot::InputField(name) => self.0.get(name).map(Cow::Borrowed),
            _ => None,
        }
    }
}

fn resolve(ast: &mut Ast, params: &mut Vec<Arc<str>>) {
    if let AstKind::Name { name, root } = &mut ast.kind {
        let is_param = params.contains(name);
        *root = if is_param { ExprRoot::Lambda } else { ExprRoot::InputField(name.clone()) };
    }
    let param = if let AstKind::Lambda(param, _) = &ast.kind { Some(param.clone()) } else { None };
    params.extend(param.clone());
    ast.children_mut(&mut |child| resolve(child, params));
    if param.is_some() {
        params.pop();
    }
}

pub(super) fn parse(text: &str) -> Result<Template, ParseError> {
    let mut template = Template::parse(&text.into(), Span::default(), &Limits::default())?;
    template.exprs_mut(&mut |expr| resolve(expr.ast_mut(), &mut Vec::new()));
    Ok(template)
}

fn eval(text: &str, world: &str) -> Result<String, (Code, String)> {
    let world = World(serde_json::from_str(world).unwrap());
    let template = parse(text).map_err(|error| (Code::Expression, error.message))?;
    let value = template.eval(&world, &Limits::default());
    value.map(|value| value.to_json()).map_err(|error| (error.code, error.message))
}

fn ok(text: &str, world: &str) -> String {
    eval(text, world).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// S0-34, S0-35, S1-20, S4-32: a single placeholder keeps the type, anything else is text.
#[test]
fn a_single_hole_keeps_its_type() {
    let world = r#"{"n":9007199254740993,"list":[1,"a"],"o":{"x":null},"s":"t"}"#;
    assert_eq!(ok("{{ n }}", world), "9007199254740993");
    assert_eq!(ok("{{list}}", world), r#"[1,"a"]"#);
    assert_eq!(ok("{{ o.x }}", world), "null");
    assert_eq!(ok("n={{ n }} {{ list }} {{s}}", world), r#""n=9007199254740993 [1,\"a\"] t""#);
    assert_eq!(ok(" {{ n }}", world), r#"" 9007199254740993""#);
}

/// Plain paths may have dashes, dollars and dotted indices; MiniJinja does not parse them.
#[test]
fn plain_paths_need_no_engine() {
    let world = r#"{"1-search":{"result":7},"fetch-data":{"items":[{"$id":"x"}]},"createAuthor":{"_id":"507f"}}"#;
    assert_eq!(ok("{{1-search.result}}", world), "7");
    assert_eq!(ok("{{fetch-data.items[0].$id}}", world), r#""x""#);
    assert_eq!(ok("{{fetch-data.items.0}}", world), r#"{"$id":"x"}"#);
    assert_eq!(ok("{{createAuthor._id}}", world), r#""507f""#);
}

#[test]
fn expressions_calculate_exactly() {
    let world = r#"{"a":9007199254740993,"b":2,"f":0.5,"s":"x","l":[3,1,2]}"#;
    for (text, expected) in [
        ("{{ a + 1 }}", "9007199254740994"),
        ("{{ a * a }}", "81129638414606699710187514626049"),
        ("{{ b / 4 }}", "0.5"),
        ("{{ 7 // 2 }}", "3"),
        ("{{ 7 % 2 }}", "1"),
        ("{{ 2 ** 10 }}", "1024"),
        ("{{ -b + f }}", "-1.5"),
        ("{{ s ~ b }}", r#""x2""#),
        ("{{ s * 3 }}", r#""xxx""#),
        ("{{ l + [4] }}", "[3,1,2,4]"),
        ("{{ 1 < b <= 2 }}", "true"),
        ("{{ 'a' in 'cat' and 3 in l and s not in ['y'] }}", "true"),
        ("{{ 'yes' if b > 1 else 'no' }}", r#""yes""#),
        ("{{ not (b == 2.0) }}", "false"),
        ("{{ l | sort | first }}", "1"),
        ("{{ l[1:] }}", "[1,2]"),
        ("{{ l[::-1] }}", "[2,1,3]"),
        ("{{ l | length }}", "3"),
        ("{{ l | join('-') }}", r#""3-1-2""#),
        ("{{ {'a': b, 'c': [s]} }}", r#"{"a":2,"c":["x"]}"#),
        ("{{ l | json_query('map(. * 2)') }}", "[6,2,4]"),
        ("{{ s | upper | default('z') }}", r#""X""#),
        ("{{ range(3) }}", "[0,1,2]"),
        ("{{ l | sum }}", "6"),
        ("{{ true }}", "true"),
        ("{{ none }}", "null"),
        ("{{ 5 }}", "5"),
        ("{{ '}}' }}", r#""}}""#),
    ] {
        assert_eq!(ok(text, world), expected, "{text}");
    }
}

/// S1-91: lambdas as seed 001 writes them, also nested.
#[test]
fn lambdas_filter_and_map() {
    let world = r#"{"raw":[{"value":70,"tags":["a","b"]},{"value":20,"tags":["c"]}],"min":50}"#;
    assert_eq!(
        ok("{{ raw | filter(lambda x: x.value > 50) | map(lambda x: x.value) }}", world),
        "[70]"
    );
    assert_eq!(ok("{{ raw | filter(lambda x: x.value > min) | length }}", world), "1");
    assert_eq!(
        ok("{{ raw | map(lambda x: x.tags | filter(lambda t: t != 'a')) }}", world),
        r#"[["b"],["c"]]"#
    );
    assert_eq!(ok("{{ raw | map(attribute='value') }}", world), "[70,20]");
    assert_eq!(ok("{{ raw | map(lambda x: (x.value + 1) * 2) }}", world), "[142,42]");
}

/// S4-31: only an absent path is unresolved.
#[test]
fn only_an_absent_path_is_unresolved() {
    let world = r#"{"o":{"zero":0,"no":false,"empty":"","nil":null}}"#;
    for (path, expected) in [("zero", "0"), ("no", "false"), ("empty", "\"\""), ("nil", "null")] {
        assert_eq!(ok(&format!("{{{{ o.{path} | default('x') }}}}"), world), expected);
    }
    let (code, message) = eval("{{ o.gone }}", world).unwrap_err();
    assert_eq!((code, message.as_str()), (Code::UnresolvedReference, "`o.gone` has no value"));
    assert_eq!(ok("{{ o.gone.further | default('x') }}", world), r#""x""#);
    assert_eq!(ok("{{ o.gone is defined }}", world), "false");
    assert_eq!(ok("{{ o.zero is defined and o.nil is none }}", world), "true");
    assert_eq!(ok("{{ o.empty | default('x', true) }}", world), r#""x""#);
}

/// D1, S0-37: the content of a value is never evaluated, however often it is passed on.
#[test]
fn substituted_text_is_data() {
    let world = r#"{"evil":"{{ secret }} {% for %} ${HOME} $(id)","secret":"no"}"#;
    assert_eq!(ok("{{ evil }}", world), r#""{{ secret }} {% for %} ${HOME} $(id)""#);
    let text = ok("a {{ evil }}", world);
    assert!(text.contains("{{ secret }}"), "{text}");
}

/// Hostile input 10: growth stops before it costs memory.
#[test]
fn growth_is_refused_before_it_happens() {
    let world = format!(r#"{{"s":"{}","n":1000000000}}"#, "x".repeat(1_000_000));
    for text in [
        "{{ range(10**9) }}",
        "{{ range(n) | length }}",
        "{{ 'x' * n }}",
        "{{ s | replace('x', s) }}",
        "{{ s | replace('', s) }}",
        "{{ 'a' | indent(1000000000, true) }}",
        "{{ [1] | batch(1000000000, 0) }}",
        "{{ s | list }}",
        "{{ [s, s] | map(lambda a: [s,s,s,s,s,s] | map(lambda b: s ~ s)) }}",
        "{{ [s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s,s] | join(s) }}",
    ] {
        let (code, message) = eval(text, &world).unwrap_err();
        assert!(matches!(code, Code::Limit | Code::Expression), "{text}: {message}");
    }
    let doubling = format!("{{{{ 'xxxxxxxx' {} }}}}", "| replace('x', 'xx') ".repeat(40));
    assert_eq!(eval(&doubling, "{}").unwrap_err().0, Code::Limit);
    let long = format!("{{{{ '{}' }}}}", "y".repeat(10 << 20));
    assert!(eval(&long, "{}").unwrap_err().1.contains("longer than the limit"));
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(eval(&deep, "{}").unwrap_err().1.contains("nests deeper"));
    let chain = format!("{{{{ {} }}}}", "not ".repeat(3_000) + "true");
    assert!(eval(&chain, "{}").is_err());
}

#[test]
fn mistakes_say_what_to_do() {
    let message = |text: &str| {
        let error = parse(text).unwrap_err();
        format!("{} {}", error.message, error.help.unwrap_or_default())
    };
    assert!(message("{{ a").contains("never closed"));
    assert!(message("{{ }}").contains("empty"));
    assert!(message("{{ a && b }}").contains("`and`"));
    assert!(message("{{ a ? b : c }}").contains("if condition else"));
    assert!(message("{{ a.lower() }}").contains("filter"));
    assert!(message("{{ a.s == 'x' && a.y }}").contains("`and`"));
    assert!(message("{{ a == 'x' ? false : true }}").contains("if condition else"));
    assert!(parse("{{ a != 'q' @@@ }}").is_err());
    assert!(eval("{{ 1 | uper }}", "{}").unwrap_err().1.contains("did you mean `upper`"));
    assert!(eval("{{ 'a' < 1 }}", "{}").unwrap_err().1.contains("no order"));
}

#[test]
fn conditions_need_no_braces() {
    let limits = Limits::default();
    let with = Template::parse_condition(&"{{ a > 1 }}".into(), Span::default(), &limits).unwrap();
    let without = Template::parse_condition(&"a > 1".into(), Span::default(), &limits).unwrap();
    assert_eq!(with.text(), without.text());
    assert!(Template::parse_condition(&"x {{ a }}".into(), Span::default(), &limits).is_err());
}

#[test]
fn places_point_into_the_text() {
    let text: Arc<str> = "ü {{ alpha.beta }} {{ gamma | default(delta.x) }}".into();
    let template = parse(&text).unwrap();
    let mut places = Vec::new();
    template.exprs(&mut |expr| {
        expr.ast().walk(&mut |ast| {
            if matches!(ast.kind, AstKind::Name { .. } | AstKind::Field(..)) {
                places.push(&text[ast.at.start as usize..ast.at.end as usize]);
            }
        });
    });
    assert_eq!(places, ["alpha.beta", "alpha", "gamma", "delta.x", "delta"]);
}

/// Multi-byte characters at every position of every kind of expression: each text is parsed or
/// rejected, and the span of an error is on character boundaries.
#[test]
fn signs_of_several_bytes_stand_anywhere() {
    let signs = ["\u{a0}", "–", "’", "€", "ü", "🦀", "\u{2028}", "\u{feff}", "\u{301}"];
    for text in [
        "{{ a.b[0].c-d }}",
        "{{ a }}{{ b }}",
        "{{a[1]}}",
        "{{ a.0 | default('x', true) }}",
        "{{ l | filter(lambda x: x.v > 1) | map(lambda y: y ~ \"q\") }}",
        "{{ -1 ** 2 if not a else {'k': [1, (2)]}[1:2] }}",
        "{{ a && b || c ? d : e }}",
        "x {{ '\\\\' }} y {{ 'it\\'s' }}",
    ] {
        let places = text.char_indices().map(|(place, _)| place).chain([text.len()]);
        for (place, sign) in places.flat_map(|place| signs.map(|sign| (place, sign))) {
            let mut text = text.to_owned();
            text.insert_str(place, sign);
            if let Err(error) = parse(&text) {
                let ExprSpan { start, end } = error.at;
                assert!(text.get(start as usize..end as usize).is_some(), "{text}: {error:?}");
            }
            let _ = eval(&text, r#"{"a":{"b":[{"c-d":1}]},"l":[{"v":2}]}"#);
            let limits = Limits::default();
            let _ = Template::parse_condition(&text.as_str().into(), Span::default(), &limits);
        }
    }
}
