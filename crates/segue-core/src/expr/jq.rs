//! `json_query`: jq programs over our values.
//!
//! jq is a full language. What could run for ever or make data out of nothing — definitions,
//! `range`, `repeat`, `until`, unbounded recursion, the clock, the environment — is refused when a
//! program is compiled, so that what remains ends by itself.

use std::fmt;

use jaq_core::load::parse::Term;
use jaq_core::load::{self, Arena, File, Loader, lex::StrPart};
use jaq_core::path::Part;
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::Val;

use crate::limits::Limits;
use crate::value::Value;

/// Results that one program may give.
const RESULTS_MAX: usize = 100_000;

/// Filters of jq that read the world or need not end.
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

/// A compiled jq program.
pub struct Jq {
    filter: jaq_core::Filter<data::JustLut<Val>>,
}

/// Why a program cannot be compiled or has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JqError(String);

impl fmt::Display for JqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JqError {}

impl Jq {
    /// Compiles a program, refusing what is unbounded.
    pub fn compile(program: &str) -> Result<Jq, JqError> {
        refuse_unbounded(program)?;
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let arena = Arena::default();
        let file = File { code: program, path: () };
        let modules = Loader::new(defs)
            .load(&arena, file)
            .map_err(|_| JqError(format!("`{program}` is not a jq program")))?;
        let filter = Compiler::default().with_funs(funs).compile(modules).map_err(|errors| {
            let names: Vec<String> = errors
                .iter()
                .flat_map(|(_, undefined)| undefined.iter().map(|(name, _)| format!("`{name}`")))
                .collect();
            JqError(format!("jq does not know {}", names.join(", ")))
        })?;
        Ok(Jq { filter })
    }

    /// Runs the program: one result is itself, several are an array, none is `null`.
    pub fn run(&self, input: &Value, bytes_max: usize) -> Result<Value, JqError> {
        let input = jaq_json::read::parse_single(input.to_json().as_bytes())
            .map_err(|error| JqError(format!("the input is not JSON: {error}")))?;
        let ctx = Ctx::<data::JustLut<Val>>::new(&self.filter.lut, Vars::new([]));
        let mut results = Vec::new();
        let mut bytes = 0;
        for result in self.filter.id.run((ctx, input)).map(unwrap_valr) {
            let text = result.map_err(|error| JqError(format!("jq: {error}")))?.to_string();
            bytes += text.len();
            if bytes > bytes_max || results.len() >= RESULTS_MAX {
                return Err(JqError("jq gives more results than may be kept".to_owned()));
            }
            let value = crate::compile::document::read_json_value(&text, &Limits::default());
            results.push(value.map_err(|finding| JqError(finding.message))?);
        }
        Ok(match results.len() {
            0 => Value::Null,
            1 => results.swap_remove(0),
            _ => results.into(),
        })
    }
}

/// Refuses what need not end. Only calls are looked at, so a field may have any name.
fn refuse_unbounded(program: &str) -> Result<(), JqError> {
    let term = load::parse(program, |parser| parser.term())
        .ok_or_else(|| JqError(format!("`{program}` is not a jq program")))?;
    match refused_call(&term) {
        Some(name) => Err(JqError(format!("jq's `{name}` is not allowed here: it need not end"))),
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
        let input: Value = serde_json::from_str(input).unwrap();
        let jq = Jq::compile(program).map_err(|error| error.to_string())?;
        jq.run(&input, 1 << 20).map(|value| value.to_json()).map_err(|error| error.to_string())
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
}
