//! HTTP operations from the operator's configuration: one request, with placeholders for arguments.
//!
//! The configuration fixes scheme, host and port; arguments cannot change them, and exactly that
//! origin is open, public or not. Arguments in the URL are percent-encoded and can be neither empty
//! nor a dot segment, so an argument stays within its part of the path.

pub mod address;
pub(crate) mod client;
pub(in crate::tools) mod connect;
pub mod fetch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use segue_core::diagnostic::Code;
use segue_core::expr::{ArgsTemplate, EvalError, Template, TemplatePiece};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::schema::Schema;
use segue_core::source::Span;
use segue_core::tool::{Annotations, Backend, DeclaredRollback, ToolSpec, hex_digest};
use segue_core::value::Value;

use super::{Tool, ToolError, ToolRequest, ToolRunner};
use address::AddressPolicy;
use client::{HttpClient, HttpRequest, TIMEOUT_DEFAULT};

/// What is encoded in a part of an address: every byte but letters, digits and `-._~`.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The TLS configuration for connections to an address, for other HTTP clients of the program.
pub fn tls_for(address: &str) -> rustls::ClientConfig {
    let is_encrypted = address.starts_with("https:");
    if is_encrypted { connect::trusting().clone() } else { connect::trusting_nobody().clone() }
}

/// The namespace of HTTP operations.
pub const HTTP: &str = "http";

/// One HTTP operation. Texts may hold `{{ args.… }}`; secrets are already filled in.
// No `Debug`: headers hold secrets.
#[derive(Clone, Default)]
pub struct HttpConfig {
    /// `GET` when empty.
    pub method: String,
    /// The URL; scheme, host and port hold no placeholders.
    pub url: String,
    /// Headers; one whose placeholder has no value is left out.
    pub headers: BTreeMap<String, String>,
    /// Query parameters; lists repeat, and those without a value are left out.
    pub query: BTreeMap<String, Value>,
    /// Text is sent as it is, any other value as JSON.
    pub body: Option<Value>,
    /// JSON Schema of the arguments.
    pub input: Option<Value>,
    /// JSON Schema of the answer.
    pub output: Option<Value>,
    /// Whether it changes nothing; by default true for `GET` and `HEAD`.
    pub read_only: Option<bool>,
    /// Whether it may destroy something; by default true for `DELETE`, `PUT` and `PATCH`.
    pub destructive: Option<bool>,
    /// Whether sending it twice has the effect of sending it once; by default true for `PUT` and
    /// `DELETE`.
    pub idempotent: Option<bool>,
    /// The description for people and models.
    pub description: String,
    /// How long one call may take.
    pub timeout: Option<Duration>,
}

/// The tool of an operation, or why its configuration is wrong.
pub fn tool(name: &str, config: &HttpConfig, limits: &Limits) -> Result<Tool, String> {
    let limits = Arc::new(limits.clone());
    let address = Address::parse(&config.url, &limits)?;
    let method = if config.method.is_empty() { "GET" } else { &config.method }.to_ascii_uppercase();
    let headers = config.headers.iter().map(|(name, text)| (name, Value::from(text.as_str())));
    let operation = Operation {
        engine: HttpClient::new(address.policy(), limits.clone()),
        headers: templates(headers, &limits)?,
        query: templates(config.query.iter().map(|(k, v)| (k, v.clone())), &limits)?,
        body: config.body.as_ref().map(|body| ArgsTemplate::parse(body, &limits)).transpose()?,
        timeout: config.timeout.unwrap_or(TIMEOUT_DEFAULT),
        method: method.clone(),
        address,
        limits,
    };
    let spec = spec(name, config, &method);
    Ok(Tool { spec: Arc::new(spec), runner: Arc::new(operation) })
}

fn spec(name: &str, config: &HttpConfig, method: &str) -> ToolSpec {
    let reads = matches!(method, "GET" | "HEAD" | "OPTIONS");
    let read_only = config.read_only.unwrap_or(reads);
    // Only `POST` is known to add. The effect of an unknown method is unknown.
    let destructive = config.destructive.unwrap_or(!reads && method != "POST");
    let idempotent = config.idempotent.unwrap_or(reads || matches!(method, "PUT" | "DELETE"));
    let input = config.input.clone().map(|json| Arc::new(Schema::new(json)));
    ToolSpec {
        output: config.output.clone().map(|json| Arc::new(Schema::new(json))),
        annotations: Annotations {
            read_only: Some(read_only),
            destructive: Some(destructive && !read_only),
            idempotent: Some(idempotent),
            open_world: Some(true),
        },
        rollback: if read_only { DeclaredRollback::NotNeeded } else { DeclaredRollback::Unknown },
        backend: Backend::Http,
        backend_hash: Some(hex_digest(format!("{method} {}", config.url).as_bytes()).into()),
        ..ToolSpec::new(
            ToolId::new(HTTP, name),
            config.description.as_str(),
            input.unwrap_or_else(Schema::any_object),
        )
    }
}

type Templates = Vec<(String, ArgsTemplate)>;

fn templates<'a>(
    texts: impl Iterator<Item = (&'a String, Value)>,
    limits: &Limits,
) -> Result<Templates, String> {
    texts
        .map(|(name, text)| match ArgsTemplate::parse(&text, limits) {
            Ok(template) => Ok((name.clone(), template)),
            Err(why) => Err(format!("`{name}`: {why}")),
        })
        .collect()
}

struct Operation {
    engine: HttpClient,
    method: String,
    address: Address,
    headers: Templates,
    query: Templates,
    body: Option<ArgsTemplate>,
    timeout: Duration,
    limits: Arc<Limits>,
}

#[async_trait]
impl ToolRunner for Operation {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let request = self.request(&call)?;
        self.engine.send(request).await.map(|answer| answer.body)
    }
}

impl Operation {
    fn request(&self, call: &ToolRequest) -> Result<HttpRequest, ToolError> {
        let refuse = |what: String| ToolError::refused(Code::InputSchema, what);
        let mut url = self.address.fill(&call.args, &self.limits)?;
        let query = Value::object(self.filled(&self.query, &call.args)?);
        pairs(&query, &mut url).map_err(refuse)?;
        let headers = self.filled(&self.headers, &call.args)?;
        let headers = headers
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, value.to_string()))
            .collect();
        let body = self.body.as_ref().map(|body| body.eval(&call.args, &self.limits));
        let body = body.transpose().map_err(unfilled)?;
        let request = HttpRequest::new(call, &self.method, url, &headers, body.as_ref())?;
        Ok(HttpRequest { timeout: self.timeout, ..request })
    }

    /// Evaluates templates; those without a value are left out.
    fn filled(&self, of: &Templates, args: &Value) -> Result<Vec<(String, Value)>, ToolError> {
        let mut filled = Vec::with_capacity(of.len());
        for (name, template) in of {
            match template.eval(args, &self.limits) {
                Ok(value) => filled.push((name.clone(), value)),
                Err(EvalError { code: Code::UnresolvedReference, .. }) => {}
                Err(error) => return Err(unfilled(error)),
            }
        }
        Ok(filled)
    }
}

/// The URL of an operation.
struct Address {
    /// Scheme, host and port, which arguments cannot change.
    origin: Url,
    parts: Vec<Part>,
}

enum Part {
    Text(Arc<str>),
    Hole(ArgsTemplate),
}

impl Address {
    fn parse(url: &str, limits: &Limits) -> Result<Address, String> {
        let template = Template::parse(&url.into(), Span::default(), limits);
        let pieces = match template.map_err(|error| format!("`url`: {}", error.message))? {
            Template::Text(pieces) => pieces,
            Template::Literal(text) => vec![TemplatePiece::Text(text.to_string().into())],
            _ => return Err(origin_wanted()),
        };
        let Some(TemplatePiece::Text(head)) = pieces.first() else { return Err(origin_wanted()) };
        let origin = origin(head, pieces.len() > 1)?;
        let parts: Result<Vec<Part>, String> = pieces
            .iter()
            .map(|piece| match piece {
                TemplatePiece::Text(text) => Ok(Part::Text(text.clone())),
                TemplatePiece::Expr(expr) => {
                    let hole = Value::from(format!("{{{{ {} }}}}", expr.text().trim()));
                    ArgsTemplate::parse(&hole, limits).map(Part::Hole)
                }
            })
            .collect();
        Ok(Address { origin, parts: parts? })
    }

    fn policy(&self) -> AddressPolicy {
        let port = self.origin.port_or_known_default().unwrap_or(0);
        AddressPolicy::for_origin(self.origin.host_str().unwrap_or(""), port)
    }

    /// The URL for these arguments.
    fn fill(&self, args: &Value, limits: &Limits) -> Result<Url, ToolError> {
        let refuse = |what: String| ToolError::refused(Code::InputSchema, what);
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Hole(hole) => {
                    let value = hole.eval(args, limits).map_err(unfilled)?;
                    let filling = filling(&value).map_err(refuse)?;
                    text.extend(utf8_percent_encode(&filling, UNRESERVED));
                }
            }
        }
        let path = text.split(['?', '#']).next().unwrap_or("");
        if path.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(refuse(
                "an argument would change the path of the address (`..`)".to_owned(),
            ));
        }
        let url = Url::parse(&text).map_err(|error| refuse(format!("the address: {error}")))?;
        // Cannot happen; checked because it would be a security hole.
        if url.origin() != self.origin.origin() {
            return Err(refuse("an argument would change the host of the address".to_owned()));
        }
        Ok(url)
    }
}

/// The text for a placeholder in the URL.
fn filling(value: &Value) -> Result<String, String> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(format!("the address needs text or a number, not {}", value.kind()))
        }
        Value::String(text) if text.is_empty() => {
            Err("the address needs a value, not an empty text".to_owned())
        }
        scalar => Ok(scalar.to_string()),
    }
}

/// Scheme, host and port at the start of a URL, complete before the first placeholder.
fn origin(head: &str, has_holes: bool) -> Result<Url, String> {
    let (scheme, rest) = head.split_once("://").ok_or_else(origin_wanted)?;
    let end = rest.find(['/', '?', '#']);
    if end.is_none() && has_holes {
        return Err(origin_wanted());
    }
    let text = format!("{scheme}://{}", &rest[..end.unwrap_or(rest.len())]);
    let origin = Url::parse(&text).map_err(|error| format!("`url`: {error}"))?;
    if !matches!(origin.scheme(), "http" | "https") || origin.host_str().is_none() {
        return Err(origin_wanted());
    }
    if !origin.username().is_empty() || origin.password().is_some() {
        return Err("`url` holds a user name or password; use a header".to_owned());
    }
    Ok(origin)
}

fn origin_wanted() -> String {
    "`url` must begin with `http://` or `https://` and a host, without `{{ }}` in them".to_owned()
}

fn unfilled(error: EvalError) -> ToolError {
    ToolError::refused(error.code, error.message)
}

/// Adds an object to the query of a URL; lists repeat, `null` is left out.
pub(in crate::tools) fn pairs(query: &Value, url: &mut Url) -> Result<(), String> {
    let Some(members) = query.as_object() else {
        return Err("`query` is not an object".to_owned());
    };
    let mut flat: Vec<(&str, String)> = Vec::with_capacity(members.len());
    for (name, value) in members.iter() {
        match value {
            Value::Null => {}
            Value::Array(items) => {
                flat.extend(items.iter().map(|item| (&**name, item.to_string())));
            }
            one => flat.push((name, one.to_string())),
        }
    }
    // `query_pairs_mut` alone would already add a `?`.
    if !flat.is_empty() {
        url.query_pairs_mut().extend_pairs(flat);
    }
    Ok(())
}
