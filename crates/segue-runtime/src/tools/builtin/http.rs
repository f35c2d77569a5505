//! `http_get` and `http_request`: any public address, and those that the operator opened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Url;
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::tool::{Annotations, ConfirmPolicy};
use segue_core::value::Value;

use super::args::ToolArgs;
use super::{BuiltinRollback, BuiltinSpec};
use crate::tools::http::address::AddressPolicy;
use crate::tools::http::client::{HttpAnswer, HttpClient, HttpRequest};
use crate::tools::http::pairs;
use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner};

const ANSWER: &str = r#"{"type":"object","required":["status","headers","body"],"additionalProperties":false,"properties":{
    "status":{"type":"integer"},
    "headers":{"type":"object","additionalProperties":{"type":"string"}},
    "body":{"description":"JSON when the answer says that it is JSON, else its text; null when it is empty"}}}"#;

const GET: BuiltinSpec = BuiltinSpec {
    name: "http_get",
    description: "Sends an HTTP GET request; a status other than 2xx is a failure",
    input: r#"{"type":"object","required":["url"],"additionalProperties":false,"properties":{
        "url":{"type":"string","minLength":1},
        "headers":{"type":"object","additionalProperties":{"type":"string"}},
        "query":{"type":"object","description":"added to the address; lists repeat, null is left out"},
        "timeout_ms":{"type":"integer","minimum":1,"default":60000}}}"#,
    output: ANSWER,
    annotations: Annotations {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(true),
    },
    rollback: BuiltinRollback::NotNeeded,
    confirm: ConfirmPolicy::ByEffect,
};

const REQUEST: BuiltinSpec = BuiltinSpec {
    name: "http_request",
    description: "Sends an HTTP request with any method; a status other than 2xx is a failure",
    input: r#"{"type":"object","required":["url"],"additionalProperties":false,"properties":{
        "method":{"type":"string","default":"GET"},
        "url":{"type":"string","minLength":1},
        "headers":{"type":"object","additionalProperties":{"type":"string"}},
        "query":{"type":"object","description":"added to the address; lists repeat, null is left out"},
        "body":{"description":"text is sent as it is, anything else as JSON"},
        "timeout_ms":{"type":"integer","minimum":1,"default":60000}}}"#,
    output: ANSWER,
    // The method is known only at the call, so the worst one is assumed.
    annotations: Annotations {
        read_only: Some(false),
        destructive: Some(true),
        idempotent: Some(false),
        open_world: Some(true),
    },
    rollback: BuiltinRollback::Impossible(
        "Segue does not know what a request changes in another system",
    ),
    confirm: ConfirmPolicy::ByEffect,
};

pub(super) fn tools(allow: &[String], limits: &Arc<Limits>) -> Vec<Tool> {
    let policy = AddressPolicy::new(allow.iter().map(String::as_str));
    let engine = policy.map(|policy| Arc::new(HttpClient::new(policy, limits.clone())));
    let runner = |reads_only| Arc::new(Http { engine: engine.clone(), reads_only });
    vec![GET.tool(runner(true)), REQUEST.tool(runner(false))]
}

struct Http {
    /// The client, or the operator's rule that does not parse: then no request is sent.
    engine: Result<Arc<HttpClient>, String>,
    reads_only: bool,
}

#[async_trait]
impl ToolRunner for Http {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let engine = self.engine.as_ref();
        let engine = engine.map_err(|why| ToolError::refused(Code::Config, why.clone()))?;
        let request = self.request(&call)?;
        engine.send(request).await.map(value)
    }
}

impl Http {
    fn request(&self, call: &ToolRequest) -> Result<HttpRequest, ToolError> {
        let args = ToolArgs(&call.args);
        let refuse = |what: String| ToolError::refused(Code::InputSchema, what);
        let mut url = Url::parse(args.text("url")?)
            .map_err(|error| refuse(format!("`url` is not an address: {error}")))?;
        if let Some(query) = args.value("query") {
            pairs(query, &mut url).map_err(refuse)?;
        }
        let method = if self.reads_only { "GET" } else { args.text_or("method", "GET")? };
        let body = if self.reads_only { None } else { args.value("body") };
        let mut request = HttpRequest::new(call, method, url, &headers(args), body)?;
        if let Some(ms) = args.count("timeout_ms")? {
            request.timeout = Duration::from_millis(ms);
        }
        Ok(request)
    }
}

fn headers(args: ToolArgs<'_>) -> BTreeMap<String, String> {
    let headers = args.value("headers").and_then(Value::as_object);
    let headers = headers.iter().flat_map(|headers| headers.iter());
    headers.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn value(answer: HttpAnswer) -> Value {
    let mut headers: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in &answer.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let joined = headers.entry(name.as_str()).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(&value);
    }
    Value::object([
        ("status", Value::from(u64::from(answer.status.as_u16()))),
        ("headers", Value::object(headers.into_iter().map(|(k, v)| (k, Value::from(v))))),
        ("body", answer.body),
    ])
}
