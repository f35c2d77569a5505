//! `json_query`: jq programs over our values.
//!
//! jq is a full language. Compilation rejects programs that could run forever without being counted
//! (definitions, and functions that the library defines recursively without a bound), and functions
//! with side effects. All other work is counted: see [`counted`].

mod counted;
mod natives;

use std::fmt;

use jaq_core::load::parse::{Def, Term};
use jaq_core::load::{self, Arena, File, Loader, lex::StrPart};
use jaq_core::path::Part;
use jaq_core::{Compiler, Ctx, Vars, data, native};

use super::ast::ExprSpan;
use super::eval::EvalError;
use crate::budget::{self, BYTES_PER_OPERATION, BudgetExceeded};
use crate::diagnostic::Code;
use crate::document::read_json_value;
use crate::limits::Limits;
use crate::schema::shorten;
use crate::value::Value;
use counted::MeteredValue;

/// Maximum number of results of one program.
const RESULTS_MAX: usize = 100_000;

/// Maximum nesting of brackets in a program. The library recurses over them.
const NESTING_MAX: usize = 32;

/// Maximum number of brackets and dots in a program: each may extend a path.
const STEPS_MAX: usize = 500;

/// Maximum number of operators and words in a program: each may nest inside the one before it.
const PARTS_MAX: usize = 128;

/// jq filters that may not terminate.
const REFUSED: &[&str] = &[
    "range",
    "repeat",
    "until",
    "while",
    "input",
    "inputs",
    "env",
    "now",
    "halt",
    "halt_error",
    "debug",
    "stderr",
    "input_filename",
    "combinations",
    "localtime",
    "strflocaltime",
];

/// Functions with side effects that the library's definitions call.
const SIDE_EFFECTS: &[&str] =
    &["env", "now", "halt", "debug_empty", "stderr_empty", "localtime", "strflocaltime"];

/// Definitions of the library that are left out: those with side effects, and those replaced here.
const UNSUPPORTED: &[&str] = &["halt", "halt_error", "debug", "stderr", "join"];

/// A compiled jq program.
pub struct Jq {
    filter: jaq_core::Filter<data::JustLut<MeteredValue>>,
}

/// Why a program cannot be compiled or has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JqError {
    /// The program is invalid, or raised an error.
    Wrong(String),
    /// The budget ended it.
    Stopped(String),
    /// A bug of ours.
    Fault(String),
}

impl fmt::Display for JqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JqError::Wrong(message) | JqError::Stopped(message) | JqError::Fault(message) => {
                f.write_str(message)
            }
        }
    }
}

impl std::error::Error for JqError {}

impl From<BudgetExceeded> for JqError {
    fn from(stop: BudgetExceeded) -> JqError {
        match stop {
            BudgetExceeded::Fault(_) => JqError::Fault(stop.to_string()),
            _ => JqError::Stopped(stop.to_string()),
        }
    }
}

impl JqError {
    /// The code of this failure.
    pub fn code(&self) -> Code {
        match self {
            JqError::Wrong(_) => Code::Expression,
            JqError::Stopped(_) => Code::Limit,
            JqError::Fault(_) => Code::Internal,
        }
    }

    pub(super) fn at(self, at: ExprSpan) -> EvalError {
        EvalError { code: self.code(), at, message: self.to_string() }
    }
}

fn wrong(message: impl Into<String>) -> JqError {
    JqError::Wrong(message.into())
}

impl Jq {
    /// Compiles a program, and rejects unbounded ones.
    pub fn compile(program: &str) -> Result<Jq, JqError> {
        refuse_deep(program)?;
        budget::catch_unwound(|| compile(program))?
    }

    /// Runs the program with a budget of its own: one result is returned as it is, several as an
    /// array, none as `null`.
    pub fn run(&self, input: &Value, limits: &Limits) -> Result<Value, JqError> {
        budget::metered(limits.expression_fuel_max, limits.value_bytes_max, || {
            self.run_within(input, limits)
        })
    }

    /// Runs the program within the budget of an evaluation.
    pub(super) fn run_within(&self, input: &Value, limits: &Limits) -> Result<Value, JqError> {
        budget::catch_unwound(|| self.results(input, limits))?
    }

    fn results(&self, input: &Value, limits: &Limits) -> Result<Value, JqError> {
        budget::spend_or_unwind((input.size() / BYTES_PER_OPERATION) as u64);
        let input = jaq_json::read::parse_single(input.to_json().as_bytes())
            .map_err(|error| wrong(format!("the input is not JSON: {error}")))?;
        let ctx = Ctx::<data::JustLut<MeteredValue>>::new(&self.filter.lut, Vars::new([]));
        let mut results = Vec::new();
        for result in self.filter.id.run((ctx, MeteredValue::new(input))) {
            // An exception that is no error is a `break` or a `halt` out of place, which
            // compilation rejects.
            let result = result.map_err(|exception| match exception.get_err() {
                Ok(error) => wrong(shorten(&format!("jq: {error}"))),
                Err(_) => wrong("jq: the program ends itself"),
            })?;
            if results.len() >= RESULTS_MAX {
                return Err(JqError::Stopped(format!("jq gives more than {RESULTS_MAX} results")));
            }
            let value = read_json_value(&result.to_string(), limits);
            results.push(value.map_err(|finding| wrong(finding.message))?);
        }
        Ok(match results.len() {
            0 => Value::Null,
            1 => results.swap_remove(0),
            _ => results.into(),
        })
    }
}

fn compile(program: &str) -> Result<Jq, JqError> {
    refuse_unbounded(program)?;
    let is_kept = |def: &Def<&'static str>| !UNSUPPORTED.contains(&def.name);
    let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()).filter(is_kept);
    let is_safe = |name: &str| !SIDE_EFFECTS.contains(&name) && !natives::NAMES.contains(&name);
    let funs = jaq_core::funs().chain(jaq_std::funs()).filter(|(name, ..)| is_safe(name));
    let funs = funs.chain(natives::all().into_iter().map(native::run));
    let arena = Arena::default();
    let file = File { code: program, path: () };
    let modules = Loader::new(defs)
        .load(&arena, file)
        .map_err(|_| wrong(format!("`{program}` is not a jq program")))?;
    let filter = Compiler::default().with_funs(funs).compile(modules).map_err(|errors| {
        let names: Vec<String> = errors
            .iter()
            .flat_map(|(_, undefined)| undefined.iter().map(|(name, _)| format!("`{name}`")))
            .collect();
        wrong(format!("jq does not know {}", names.join(", ")))
    })?;
    Ok(Jq { filter })
}

/// Rejects programs over whose parts the library would recurse too deep. The count is generous:
/// programs near the limit are unreadable anyway.
fn refuse_deep(program: &str) -> Result<(), JqError> {
    let bytes_max = Limits::default().expression_bytes_max;
    if program.len() > bytes_max {
        return Err(JqError::Stopped(format!("a jq program has at most {bytes_max} bytes")));
    }
    let (mut open, mut deepest, mut operators) = (Vec::new(), 0, 0);
    for byte in program.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open.push(byte),
            b')' | b']' | b'}' => drop(open.pop()),
            // Between the members of an object a comma nests nothing.
            b',' if open.last() == Some(&b'{') => {}
            b'|' | b',' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'?' | b'!' => {
                operators += 1;
            }
            _ => {}
        }
        deepest = deepest.max(open.len());
    }
    let is_nesting = |word: &&str| {
        matches!(
            *word,
            "if" | "elif" | "try" | "reduce" | "foreach" | "label" | "as" | "and" | "or" | "def"
        )
    };
    let words = program.split(|c: char| !c.is_alphanumeric() && c != '_').filter(is_nesting);
    let parts = operators + words.count();
    let steps = program.bytes().filter(|byte| b"([{.".contains(byte)).count();
    if deepest > NESTING_MAX || parts > PARTS_MAX || steps > STEPS_MAX {
        return Err(JqError::Stopped(format!(
            "a jq program nests at most {NESTING_MAX} brackets, and has at most {PARTS_MAX} operators and \
             {STEPS_MAX} brackets and dots"
        )));
    }
    Ok(())
}

/// Rejects calls that may not terminate. Only calls are checked, so a field may have any name.
fn refuse_unbounded(program: &str) -> Result<(), JqError> {
    let term = load::parse(program, |parser| parser.term())
        .ok_or_else(|| wrong(format!("`{program}` is not a jq program")))?;
    match refused_call(&term) {
        Some(name) => {
            Err(wrong(format!("jq's `{name}` is not allowed here: it may not terminate")))
        }
        None => Ok(()),
    }
}

fn refused_call<'a>(term: &Term<&'a str>) -> Option<&'a str> {
    let any = |terms: &[&Term<&'a str>]| terms.iter().find_map(|term| refused_call(term));
    match term {
        Term::Id | Term::Recurse | Term::Num(_) | Term::Var(_) | Term::Break(_) => None,
        Term::Str(_, parts) => parts.iter().find_map(|part| match part {
            StrPart::Term(term) => refused_call(term),
            StrPart::Str(_) | StrPart::Char(_) => None,
        }),
        Term::Arr(inner) => inner.as_deref().and_then(refused_call),
        Term::Obj(members) => members.iter().find_map(|(key, value)| {
            refused_call(key).or_else(|| value.as_ref().and_then(refused_call))
        }),
        Term::Neg(inner) | Term::Label(_, inner) => refused_call(inner),
        Term::BinOp(left, _, right) => any(&[left, right]),
        Term::Fold(_, source, _, args) => {
            refused_call(source).or_else(|| args.iter().find_map(refused_call))
        }
        Term::TryCatch(body, handler) => {
            refused_call(body).or_else(|| handler.as_deref().and_then(refused_call))
        }
        Term::IfThenElse(branches, otherwise) => branches
            .iter()
            .find_map(|(test, then)| any(&[test, then]))
            .or_else(|| otherwise.as_deref().and_then(refused_call)),
        Term::Def(..) => Some("def"),
        Term::Call("recurse", args) if !args.is_empty() => Some("recurse"),
        Term::Call(name, _) if REFUSED.contains(name) => Some(name),
        Term::Call(_, args) => args.iter().find_map(refused_call),
        Term::Path(base, path) => refused_call(base).or_else(|| {
            path.0.iter().find_map(|(part, _)| match part {
                Part::Index(index) => refused_call(index),
                Part::Range(from, to) => {
                    from.iter().chain(to.iter()).find_map(|bound| refused_call(bound))
                }
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &str, input: &str) -> Result<String, String> {
        run_with(program, input, &Limits::default())
    }

    fn run_with(program: &str, input: &str, limits: &Limits) -> Result<String, String> {
        let input: Value = serde_json::from_str(input).unwrap();
        let jq = Jq::compile(program).map_err(|error| error.to_string())?;
        let value = jq.run(&input, limits);
        value.map(|value| value.to_json()).map_err(|error| error.to_string())
    }

    #[test]
    fn programs_reshape_values() {
        assert_eq!(run(".a[] | .b", r#"{"a":[{"b":1},{"b":2}]}"#).unwrap(), "[1,2]");
        assert_eq!(run(".range", r#"{"range":9007199254740993}"#).unwrap(), "9007199254740993");
        assert_eq!(run("empty", "1").unwrap(), "null");
        assert_eq!(run("map(select(. > 1)) | length", "[1,2,3]").unwrap(), "2");
    }

    #[test]
    fn what_need_not_end_is_refused() {
        for program in ["[range(1000000000)]", "def f: f; f", "repeat(.)", "recurse(.)", "env"] {
            assert!(run(program, "1").is_err(), "{program}");
        }
        assert!(run(".a[", "1").unwrap_err().contains("not a jq program"));
        assert!(run("nosuch", "1").unwrap_err().contains("nosuch"));
    }

    /// Programs that took a server down, and similar ones.
    const HOSTILE: &[&str] = &[
        ". as $a | $a[] as $x | $a[] as $y | $a[] as $z | $a[] as $w | empty",
        ". as $a | [$a[] as $x | $a[] as $y | $a[] as $z | $x]",
        "reduce .[] as $x (\"xxxxxxxx\"; . + .)",
        "reduce .[] as $x ([1]; . + .)",
        "reduce .[] as $x ([1]; [., .]) | tojson | length",
        "reduce .[] as $x ([1]; [., .]) | . == [.]",
        "reduce .[] as $x ([1]; [., .]) as $a | reduce .[] as $x ([1]; [., .]) as $b | $a == $b",
        "reduce .[] as $x ({}; {a: ., b: .}) | [..] | length",
        "reduce .[] as $x ({}; {a: ., b: .}) | contains({a: {b: 2}})",
        "reduce .[] as $x (0; [.])",
        "reduce .[] as $x (0; {a: .})",
        "reduce .[] as $x ([]; .[0] = .)",
        "reduce .[] as $x ({}; .a.a.a = .)",
        "reduce .[] as $x ({}; setpath([\"a\"]; .))",
        "reduce .[] as $x (3; . * .)",
        "\"x\" * 1000000000",
        "\"x\" * 1000000000000000000000",
        "1000000000 * \"x\"",
        "(\"x\" * 1000000) | explode | map([., .]) | length",
        "[limit(1000000000; .[] | .)] as $a | [$a[] as $x | $a[] as $y | $a[] as $z | 1]",
        "(\"a\" * 1000000) | test(\"(a?){1000}\")",
        "(\"a\" * 1000000) | [splits(\"\")] | length",
        "(\"a\" * 100000) | gsub(\"a\"; \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\") | gsub(\"a\"; \"bbbbbbbbb\")",
        "(\"a\" * 1000000) | [match(\"a\"; \"g\")] | length",
        "(\"a\" * 10000000) | @json | @base64 | @uri | @html | @sh",
        "(\"a\" * 4000000) | . / \"\"",
        "(\"a\" * 4000000) | indices(\"a\") | length",
        "[.[] | tostring] | map(. * 100000) | join(\"\")",
        "[paths] | length | [., .]",
        "tojson | [., .] | map(fromjson) | map(tojson) | length",
        ".[1000000000] = 1",
        ".[1e9] = 1",
        "[.[]] | .[-1000000000] = 1",
        ".[:1000000000] = [1]",
        "setpath([1000000000]; 1)",
        "[range(0; 1000000000)]",
        "group_by([.]) | unique_by([.]) | sort_by([., .]) | min_by(.) | flatten",
        "[.[] as $x | .[] as $y | {($x|tostring): $y}] | add | to_entries | from_entries",
        "walk([., .])",
        "walk(if type == \"number\" then [., .] else . end) | walk([., .]) | walk([., .])",
        "[splits(\"a\"; null)]",
        "first(.[] | select(false)), last(.[]), nth(5; .[]), isempty(.[])",
        "1 as $x | 2 as $y | [$x, $y, $__loc__]",
        "ltrimstr(1), rtrimstr(\"x\"), startswith(\"x\")",
        "[1114112, -1, 55296] | implode",
        "-9223372036854775808 | -. , . % -1, . / -1, floor, abs, length, tojson",
        "9223372036854775807 + 1 | . * . | . * . | tostring | length",
        "nan, infinite, -infinite | tojson, tostring, floor?, length",
        "1e1000 | ., floor, tojson, -. , . + 1",
        "[., \"a\", {}] | transpose?",
        "mktime, gmtime, todate, strftime(\"%Y %q %999999d\"), strptime(\"%Y\")",
        "1e300 | todate, gmtime, strftime(\"%Y\")",
        "ldexp(1; 1e9), scalb(1; 1e9), significand, frexp, pow(10; 1e9), jn(1000000000; 1.0)",
        "limit(-1; .[]), limit(1e300; .[]), skip(1e300; .[]), first(empty)",
        "try error(\"x\") catch ., error({}), (try error catch .)",
        "label $f | .[] | if . > 10 then break $f else . end",
        "@text \"\\(.)\\(.)\\(.)\", @csv, @tsv",
        "getpath([\"a\", 0, \"b\"]), delpaths([[0], [1]]), del(.[]), to_entries, with_entries(.)",
        "input_line_number, $ENV, env.PATH, now, halt, input, inputs, debug, stderr",
        "tostream, [tostream] | fromstream(.[]), getpath(1), splits(1), ascii(65), implode",
        "{(.): 1}, {([1]): 2}, .[[1]], .[{}], .[\"a\"]",
        "bsearch(5), bsearch({}), has(5), has(\"a\"), in([1]), inside([1]), index(1), rindex([1, 2])",
        "\"\\u{110000}\" | \"\u{2028}é–\"",
    ];

    #[test]
    fn every_program_ends_within_its_budget() {
        let numbers: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let input = format!("[{}]", numbers.join(","));
        let nested = "[".repeat(100_000);
        let long = [
            nested.clone(),
            "(".repeat(5_000),
            ".|".repeat(5_000),
            "-".repeat(5_000),
            "try ".repeat(3_000),
            "if . then ".repeat(1_000),
            ". as $x | ".repeat(1_000),
            "reduce . as $x (".repeat(60),
            format!("\"{}\"", "\\(".repeat(3_000)),
        ];
        let programs = HOSTILE.iter().copied().chain(long.iter().map(String::as_str));
        for program in programs {
            // Every outcome is fine, except a bug of ours or no outcome.
            let limits = Limits { expression_fuel_max: 100_000, ..Limits::default() };
            if let Err(message) = run_with(program, &input, &limits) {
                let shown: String = program.chars().take(60).collect();
                assert!(!message.contains("inside Segue"), "{shown}: {message}");
            }
        }
        for text in [&nested, &"{\"a\":".repeat(100_000)] {
            let input = Value::from(text.as_str());
            let jq = Jq::compile("fromjson").unwrap();
            let error = jq.run(&input, &Limits::default()).unwrap_err().to_string();
            assert!(error.contains("cannot parse") && error.len() < 2_000, "{error}");
        }
    }

    /// The deepest allowed programs fit on the stack of a thread.
    #[test]
    fn the_deepest_programs_run_on_a_small_stack() {
        let around = |open: &str, close: &str, times: usize| {
            format!("{}.{}", open.repeat(times), close.repeat(times))
        };
        let programs = [
            around(".|", "", PARTS_MAX - 1),
            around(".,", "", PARTS_MAX - 1),
            around("1+", "", PARTS_MAX - 1),
            around("", "|.", PARTS_MAX - 1),
            around("", "?", PARTS_MAX - 1),
            around("[", "]", NESTING_MAX),
            around("(", ")", NESTING_MAX),
            around("{a:", "}", NESTING_MAX),
            around("[.[]?|", "]", NESTING_MAX),
            around("map(", ")", NESTING_MAX),
            around("try ", "", PARTS_MAX - 1),
            around("-", "", PARTS_MAX - 1),
            around(". as $x|", "", PARTS_MAX / 2 - 1),
            around("label $x|", "", PARTS_MAX / 2 - 1),
            around("if . then ", " else . end", PARTS_MAX - 1),
            around("first(limit(3;", "))", NESTING_MAX / 2),
            around("reduce . as $x (.;", ")", NESTING_MAX),
            around("\"\\(", ")\"", NESTING_MAX),
            around(".a", "", STEPS_MAX - 1),
            around("", "[0]", STEPS_MAX - 1),
        ];
        for program in programs {
            // A stack overflow prints the name of its thread.
            let name: String = program.chars().take(20).collect();
            let work = move || drop(run(&program, r#"{"a":[1]}"#));
            let thread = std::thread::Builder::new().name(name).stack_size(2 << 20).spawn(work);
            thread.unwrap().join().unwrap();
        }
    }

    /// Programs of ordinary size stay within their budget.
    #[test]
    fn ordinary_programs_are_within_their_budget() {
        let items: Vec<String> = (0..2_000)
            .map(|n| format!(r#"{{"id":{n},"name":"name {n}","tags":["a","b"]}}"#))
            .collect();
        let input = format!("[{}]", items.join(","));
        for (program, expected) in [
            ("map(select(.id % 2 == 0)) | length", "1000"),
            ("[.[].name] | join(\", \") | length", "20888"),
            ("group_by(.id % 10) | map(length) | add", "2000"),
            ("map(.tags[]) | unique | join(\"\")", "\"ab\""),
            ("sort_by(.name) | .[0].id", "0"),
            ("map({key: (.id | tostring), value: .name}) | from_entries | keys | length", "2000"),
            ("[.[] | select(.name | test(\"^name 1\\\\d$\"))] | length", "10"),
            ("reduce .[] as $x (0; . + $x.id)", "1999000"),
            ("[.[].name] | map(gsub(\"name\"; \"n\")) | last", "\"n 1999\""),
        ] {
            assert_eq!(run(program, &input).unwrap(), expected, "{program}");
        }
    }

    /// Programs that search repeatedly, with the needle and the haystack. Their work is the product
    /// of both lengths, which exceeds a small budget.
    #[test]
    fn no_search_takes_the_product_of_two_lengths() {
        let limits = Limits { expression_fuel_max: 100_000, ..Limits::default() };
        let text = "A".repeat(300_000);
        let patterns = [
            ".*[^A-Z]|[A-Z]",
            "(?s).*[^A-Z]|[A-Z]",
            "[A-Z]*?[^A-Z]|A",
            "(?:A|B)*C|AA",
            r"\\b.*[^A-Zé]|[A-Zé]",
            r".*\\b\\B|A",
            ".*B|",
            "A(?:.{100}|.*B)?",
        ];
        let searches = patterns.iter().flat_map(|pattern| {
            [
                format!("[match(\"{pattern}\"; \"g\")] | length"),
                format!("[scan(\"{pattern}\")] | length"),
                format!("gsub(\"{pattern}\"; \"x\") | length"),
                format!("split(\"{pattern}\"; \"g\") | length"),
                format!("[capture(\"(?<all>{pattern})\"; \"g\")] | length"),
            ]
        });
        let others = ["indices(.[:150000]) | length", "index(.[:150000])", "rindex(.[:150000])"];
        let others = others.into_iter().map(str::to_owned);
        for program in searches.chain(others) {
            for input in [Value::from(text.as_str()), Value::from(format!("é{text}"))] {
                match Jq::compile(&program).unwrap().run(&input, &limits) {
                    Err(error) => assert_eq!(error.code(), Code::Limit, "{program}: {error}"),
                    // A linear search may end.
                    Ok(_) => assert!(program.contains("ind"), "{program}"),
                }
            }
        }
    }

    /// Ordinary searches of a large text stay far below the budget.
    #[test]
    fn ordinary_searches_of_a_large_text_end() {
        let limits = Limits::default();
        let words = "words and Wörter ".repeat(33_334) + "x";
        for (program, expected) in [
            (r#"split("\\s+"; "g") | length"#, 100_003),
            (r#"split("[a-z]+\\b"; "g") | length"#, 100_004),
            (r#"indices("Wörter") | length"#, 33_334),
            (r#"indices("wörter") | length"#, 0),
        ] {
            let found = Jq::compile(program).unwrap().run(&Value::from(words.as_str()), &limits);
            assert_eq!(found, Ok(Value::from(expected)), "{program}");
        }
        let list = Value::from(vec![Value::from("ab"); 20_000]);
        let found = Jq::compile(r#"map(select(test("^a"))) | length"#).unwrap().run(&list, &limits);
        assert_eq!(found, Ok(Value::from(20_000)));
        assert_eq!(run("indices(\"aa\")", "\"aaabaaa\"").unwrap(), "[0,1,4,5]");
        assert_eq!(run("indices(\"éa\")", "\"éaéaa\"").unwrap(), "[0,2]");
        assert_eq!(run("indices(\"\")", "\"aaa\"").unwrap(), "[]");
    }
}
