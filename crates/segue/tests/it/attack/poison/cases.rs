//! The table of documents that are made to hang, fill or end a server.

use crate::support::{Json, json};

/// What is sent to `/api/v1/compositions/execute`.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The body of the request, as text: some of it is no JSON that a library would write.
    pub(super) body: fn() -> String,
    /// It may also end well, as long as it does so in time.
    pub(super) may_succeed: bool,
}

const fn fails(name: &'static str, body: fn() -> String) -> Case {
    Case { name, body, may_succeed: false }
}

const fn ends(name: &'static str, body: fn() -> String) -> Case {
    Case { name, body, may_succeed: true }
}

pub(super) const CASES: &[Case] = &[
    fails("fromjson of 100,000 levels", || jq("fromjson", &json!("[".repeat(100_000)))),
    fails("fromjson of 20,000 closed levels", || {
        jq("fromjson", &json!(format!("{}{}", "[".repeat(20_000), "]".repeat(20_000))))
    }),
    fails("jq: nested bindings that end in empty", || jq(ENDLESS, &numbers(1_000))),
    fails("jq: reduce that doubles a text", || {
        jq("reduce .[] as $i (\"x\"; . + .) | length", &numbers(60))
    }),
    fails("jq: reduce that doubles a list", || {
        jq("reduce .[] as $i ([1]; . + .) | length", &numbers(60))
    }),
    fails("jq: a text a billion times", || jq("\"x\" * 1000000000 | length", &json!(null))),
    fails("jq: recurse without end", || jq("[recurse(. + 1)]", &json!(1))),
    fails("sixty doubling set steps", doubling),
    fails("tojson with an indent of 2^63", || sets("[1] | tojson(indent=9223372036854775808)")),
    fails("tojson with an indent of 2^63 - 1", || sets("[1] | tojson(indent=9223372036854775807)")),
    fails("indent by 2^63", || sets("'a\\nb' | indent(9223372036854775808)")),
    fails("indent by 2^63 - 1", || sets("'a\\nb' | indent(9223372036854775807)")),
    fails("map of indent by 2^63 - 1", || {
        untimed("['a\\nb'] | map('indent', 9223372036854775807)", &json!(null))
    }),
    fails("map of replace by a long text", || {
        untimed("input.v | map('replace', 'a', input.v[0])", &json!(["a".repeat(100_000)]))
    }),
    fails("map of join with a long text", || {
        untimed("[input.v] | map('join', input.v[0])", &json!(vec!["b".repeat(100_000); 1_000]))
    }),
    fails("map of batch by 3e9", || untimed("[[1]] | map('batch', 3000000000, 1)", &json!(null))),
    fails("map of format with a wide field", || {
        untimed("['%999999999d'] | map('format', 1)", &json!(null))
    }),
    fails("select by divisibleby 0", || untimed("[1] | select('divisibleby', 0)", &json!(null))),
    ends("in: a long text in a longer one", || {
        let v = json!([format!("{}b", "a".repeat(300_000)), "a".repeat(600_000)]);
        untimed("input.v[0] in input.v[1]", &v)
    }),
    fails("jq: all matches of a pattern that looks at all the rest", || {
        let program = "[match(\".*[^A-Z]|[A-Z]\"; \"g\")] | length";
        untimed(&format!("input.v | json_query('{program}')"), &json!("A".repeat(300_000)))
    }),
    ends("jq: indices of half a text", || {
        let v = json!("a".repeat(600_000));
        untimed("input.v | json_query('indices(.[0:300000]) | length')", &v)
    }),
    ends("text_replace: all matches of such a pattern", || {
        let parameters = json!({ "text": "A".repeat(200_000), "find": ".*[^A-Z]|[A-Z]",
            "replace": "x", "regex": true });
        let step = json!({ "id": "a", "tool": "text_replace", "parameters": parameters });
        json!({ "composition": { "name": "x", "steps": [step], "output": 1 } }).to_string()
    }),
    ends("many sensitive texts beside many others", || {
        let texts = |start: u32| -> Vec<String> {
            (start..start + 3_000).map(|n| format!("text number {n}")).collect()
        };
        let schema = json!({ "type": "object", "properties": { "s": { "writeOnly": true } } });
        let step = json!({ "id": "a", "tool": "echo", "parameters": { "v": "{{ input.v }}" } });
        json!({ "composition": { "name": "x", "input": schema, "steps": [step] },
            "input": { "s": texts(0), "v": texts(10_000) } })
        .to_string()
    }),
    ends("anyOf ladder in an input schema", input_ladder),
    ends("anyOf ladder in a server's output schema", || {
        execute(
            &json!({ "name": "x", "steps": [{ "id": "a", "tool": "ladder:climb" }] }),
            &json!({}),
        )
    }),
    ends("(a?){1000} over 1 MB", || {
        let parameters = json!({ "text": "a".repeat(1_000_000), "pattern": "(a?){1000}" });
        let step = json!({ "id": "a", "tool": "text_extract", "parameters": parameters });
        execute(&json!({ "name": "x", "steps": [step], "output": 1 }), &json!({}))
    }),
    ends("(a?){1000} as a schema's pattern", || {
        let schema = json!({ "type": "object", "properties": {
            "s": { "type": "string", "pattern": "^(a?){1000}b$" } } });
        let step = json!({ "id": "a", "tool": "echo" });
        let composition = json!({ "name": "x", "input": schema, "steps": [step] });
        execute(&composition, &json!({ "s": "a".repeat(1_000_000) }))
    }),
    ends("jq: (a?){1000} over 1 MB", || {
        jq("[match(\"(a?){1000}\"; \"g\")] | length", &json!("a".repeat(1_000_000)))
    }),
    ends("a non-breaking space before an expression", || sets("\u{a0}input.n")),
    ends("non-breaking spaces around a filter", || sets("input.s\u{a0}|\u{a0}upper")),
    ends("a thin space behind an operator", || sets("input.s ~\u{2009}'b'")),
    fails("a dash in an expression", || sets("input.n – 1")),
    fails("quotation marks in an expression", || sets("’x’")),
    fails("a euro sign in an expression", || sets("€")),
    fails("a letter outside the BMP in an expression", || sets("input.\u{1d51e} ~ 𝔞")),
    fails("a document as text, 100,000 deep, YAML", || {
        execute(&json!(format!("{}x\n", "- ".repeat(100_000))), &json!({}))
    }),
    fails("a document as text, 100,000 deep, JSON", || {
        execute(&json!("[".repeat(100_000)), &json!({}))
    }),
    fails("a request 100,000 deep", || format!("{{\"composition\":{}", "[".repeat(100_000))),
    fails("an input 100,000 deep", || {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        format!(
            "{{\"composition\":{{\"name\":\"x\",\"steps\":[{{\"id\":\"a\",\"tool\":\"echo\"}}]}},\"input\":{{\"d\":{deep}}}}}"
        )
    }),
];

/// Given many numbers, never ends by itself, and never gives a result.
pub(super) const ENDLESS: &str =
    ". as $a | $a[] as $x | $a[] as $y | $a[] as $z | $a[] as $w | empty";

/// So many numbers.
pub(super) fn numbers(count: u32) -> Json {
    (0..count).collect()
}

/// A request for this composition, with a bound on its time.
pub(super) fn execute(composition: &Json, input: &Json) -> String {
    let options = json!({ "timeout": "3s" });
    json!({ "composition": composition, "input": input, "options": options }).to_string()
}

/// One expression.
fn sets(expression: &str) -> String {
    let step = json!({ "id": "a", "set": { "v": format!("{{{{ {expression} }}}}") } });
    execute(&json!({ "name": "x", "steps": [step] }), &json!({ "n": 1, "s": "a" }))
}

/// One expression, in a run without a time of its own: only budgets end it.
fn untimed(expression: &str, v: &Json) -> String {
    let step = json!({ "id": "a", "set": { "v": format!("{{{{ {expression} }}}}") } });
    let composition = json!({ "name": "x", "steps": [step], "output": 1 });
    json!({ "composition": composition, "input": { "v": v } }).to_string()
}

/// One jq program.
fn jq(program: &str, value: &Json) -> String {
    execute(
        &json!({ "name": "x", "steps": [{ "id": "a", "set": { "v":
        format!("{{{{ input.v | json_query('{program}') }}}}") } }] }),
        &json!({ "v": value }),
    )
}

/// Each step holds the value before it twice: small in memory, 2⁶⁰ values when it is written.
fn doubling() -> String {
    let mut steps = vec![json!({ "id": "s0", "set": { "v0": ["x"] } })];
    for level in 1..60 {
        let before = format!("{{{{ v{} }}}}", level - 1);
        let set = json!({ format!("v{level}"): [before, before] });
        steps.push(json!({ "id": format!("s{level}"), "set": set }));
    }
    execute(&json!({ "name": "x", "steps": steps, "output": "{{ v59 }}" }), &json!({}))
}

/// Each level of the schema refers to the next one twice: 2²⁶ ways to the last one, which fits nothing.
pub(super) fn ladder() -> Json {
    let mut levels = json!({ "l26": { "type": "string" } });
    for level in (0..26).rev() {
        let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
        levels[format!("l{level}")] = json!({ "anyOf": [next, next] });
    }
    json!({ "type": "object", "properties": { "n": { "$ref": "#/$defs/l0" } }, "$defs": levels })
}

fn input_ladder() -> String {
    let step = json!({ "id": "a", "tool": "echo" });
    let composition = json!({ "name": "x", "input": ladder(), "steps": [step] });
    execute(&composition, &json!({ "n": 1 }))
}
