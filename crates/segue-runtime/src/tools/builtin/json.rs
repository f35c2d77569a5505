//! `json_query`: a jq program over a value.

use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::expr::{Jq, JqError};
use segue_core::limits::Limits;
use segue_core::value::Value;

use super::args::ToolArgs;
use super::{BuiltinSpec, Pure};
use crate::tools::{Tool, ToolError};

const QUERY: BuiltinSpec = BuiltinSpec::reads(
    "json_query",
    "Runs a jq program over a value: one result is itself, several are an array, none is null",
    r#"{"type":"object","required":["value","query"],"additionalProperties":false,"properties":{
        "value":{"description":"any JSON value"},
        "query":{"type":"string","minLength":1,"maxLength":16384,"description":"a jq program, such as `.items | map(.name)`"}}}"#,
    r#"{"type":"object","required":["result"],"additionalProperties":false,"properties":{"result":{}}}"#,
);

pub(super) fn tools(limits: &Arc<Limits>) -> Vec<Tool> {
    // `slow`: the size of the input says nothing about how long a program runs.
    vec![QUERY.tool(Arc::new(Pure { limits: limits.clone(), run: query, slow: true }))]
}

fn query(args: &Value, limits: &Limits) -> Result<Value, ToolError> {
    let args = ToolArgs(args);
    let null = Value::Null;
    let value = args.value("value").unwrap_or(&null);
    let refuse = |error: JqError| {
        let code = if error.code() == Code::Expression { Code::ToolError } else { error.code() };
        ToolError::refused(code, error.to_string())
    };
    let program = Jq::compile(args.text("query")?).map_err(refuse)?;
    let result = program.run(value, limits).map_err(refuse)?;
    Ok(Value::object([("result", result)]))
}
