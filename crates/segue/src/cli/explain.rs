//! `segue explain`

use clap::Args;
use segue_core::diagnostic::{Code, nearest_name};
use serde_json::json;

use super::{Exit, Global, print_json, to_json};
use crate::print::{print_data, print_error};

/// Explain an error code: what it means and what to do
#[derive(Args, Debug)]
pub(super) struct ExplainArgs {
    /// The code, such as `unknown-tool` [default: list all codes]
    code: Option<String>,
}

macro_rules! pages {
    ($($name:literal)*) => {
        /// The manual page of each code.
        const PAGES: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../docs/errors/", $name, ".md"))),)*
        ];
    };
}

pages! {
    "parse" "invalid-field" "duplicate-key" "cycle" "unknown-step" "duplicate-id" "no-steps"
    "unknown-tool" "ambiguous-tool" "type-mismatch" "missing-parameter" "unknown-parameter"
    "unknown-path" "recursion" "max-steps-exceeded" "tool-not-allowed" "policy-violation"
    "unresolved-reference" "expression" "input-schema" "output-schema" "timeout" "tool-error"
    "unreachable" "retries-exhausted" "denied" "cancelled" "in-doubt" "loop-limit" "limit"
    "rollback-failed" "definition-changed" "no-source" "nil-adapter" "nil-toolset" "conversion"
    "not-found" "conflict" "unauthorized" "llm" "unreachable-step" "irreversible" "unused"
    "practice"
    "config" "unshared-store" "unsupported" "internal"
}

pub(super) fn explain(global: &Global, args: &ExplainArgs) -> Exit {
    let Some(name) = &args.code else {
        return list(global);
    };
    let page = PAGES.iter().find(|(code, _)| code == name);
    let (Some((_, page)), Some(code)) = (page, Code::parse(name)) else {
        let near = nearest_name(name, PAGES.iter().map(|(code, _)| *code));
        let help = near.map_or("`segue explain` lists all codes".to_owned(), |near| {
            format!("did you mean `{near}`?")
        });
        print_error(&format!("there is no code `{name}`"), Some(&help));
        return Exit::Usage;
    };
    if global.is_json() {
        print_json(global, &json!({ "code": code, "summary": code.summary(), "page": page }));
    } else {
        print_data(page);
    }
    Exit::Success
}

fn list(global: &Global) -> Exit {
    if global.is_json() {
        let codes: Vec<_> = Code::ALL
            .iter()
            .map(|code| json!({ "code": code, "summary": code.summary() }))
            .collect();
        print_data(&to_json(&json!({ "codes": codes })));
        return Exit::Success;
    }
    let width = Code::ALL.iter().map(|code| code.as_str().len()).max().unwrap_or(0);
    for code in Code::ALL {
        print_data(&format!("{:<width$}  {}", code.as_str(), code.summary()));
    }
    Exit::Success
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_page() {
        for code in Code::ALL {
            let page = PAGES.iter().find(|(name, _)| *name == code.as_str());
            let (_, page) = page.unwrap_or_else(|| panic!("`{code}` has no page"));
            assert!(page.starts_with(&format!("# {code}\n")), "{code}");
        }
        assert_eq!(PAGES.len(), Code::ALL.len());
    }
}
