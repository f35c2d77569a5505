//! Models: a prompt → a reply, over the two common protocols.
//!
//! A model is asked once and returns a reply or a failure. It never retries, waits or decides:
//! [`Conversation`](segue_core::planner::Conversation) does. The API key goes only into its header,
//! and is redacted from everything that a provider answers.
//!
//! Not here: the prompts ([`segue_core::planner`]), connections ([`crate::tools::http`]).

mod anthropic;
mod openai;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Url;
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::planner::{ModelReply, Prompt, Role, StopReason, Usage};
use segue_core::run::Failure;
use segue_core::value::Value;

use crate::tools::ToolError;
use crate::tools::builtin::{TextModel, TextRequest};
use crate::tools::http::address::AddressPolicy;
use crate::tools::http::client::{HttpClient, HttpRequest};
use crate::tools::redact::Secrets;

/// A language model.
#[async_trait]
pub trait Model: Send + Sync {
    /// The model's name, stored with the plans that it makes.
    fn name(&self) -> &Arc<str>;

    /// Asks it once.
    async fn answer(&self, prompt: &Prompt) -> Result<ModelReply, Failure>;
}

/// A model for built-in tools.
pub fn text_model(model: Arc<dyn Model>) -> Arc<dyn TextModel> {
    Arc::new(ModelOfTools(model))
}

struct ModelOfTools(Arc<dyn Model>);

#[async_trait]
impl TextModel for ModelOfTools {
    fn name(&self) -> &Arc<str> {
        self.0.name()
    }

    async fn write(&self, request: TextRequest) -> Result<Arc<str>, String> {
        let TextRequest { instructions, message, answer_tokens_max } = request;
        let messages = vec![(Role::User, Arc::from(message))];
        let prompt = Prompt { instructions, messages, answer_tokens_max };
        let reply = self.0.answer(&prompt).await.map_err(|failure| failure.message.to_string())?;
        match reply.stop {
            StopReason::Refused(why) => Err(format!("it refused: {why}")),
            _ => Ok(reply.text),
        }
    }
}

/// The protocol of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// OpenAI's chat completions, which most local servers and gateways speak as well.
    #[default]
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

impl Provider {
    /// Their names in a configuration.
    pub const NAMES: &'static [&'static str] = &["openai", "anthropic"];

    /// The provider of this name.
    pub fn parse(word: &str) -> Option<Provider> {
        match word {
            "openai" => Some(Provider::OpenAi),
            "anthropic" => Some(Provider::Anthropic),
            _ => None,
        }
    }

    /// The address of the provider's own API.
    fn base_url(self) -> &'static str {
        match self {
            Provider::OpenAi => openai::BASE_URL,
            Provider::Anthropic => anthropic::BASE_URL,
        }
    }
}

/// The configuration of a model. Secrets are already filled in.
// No `Debug`: it holds a secret.
#[derive(Clone, Default)]
pub struct ModelConfig {
    /// The protocol.
    pub provider: Provider,
    /// The address, when it is not the provider's own.
    pub base_url: Option<String>,
    /// The model's name.
    pub model: String,
    /// The API key.
    pub api_key: Option<String>,
    /// How long one reply may take.
    pub timeout: Option<Duration>,
}

/// The configured model, or why the configuration is wrong.
pub fn model(config: &ModelConfig, limits: &Limits) -> Result<Arc<dyn Model>, String> {
    if config.model.trim().is_empty() {
        return Err("`model` is missing: it names the model to ask".to_owned());
    }
    let base = config.base_url.as_deref().unwrap_or(config.provider.base_url());
    let base = base.trim_end_matches('/');
    let path = match config.provider {
        Provider::OpenAi => openai::PATH,
        Provider::Anthropic => anthropic::PATH,
    };
    let url =
        Url::parse(&format!("{base}{path}")).map_err(|error| format!("`base_url`: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("`base_url` begins with `http://` or `https://` and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("`base_url` holds a user name or password; use `api_key`".to_owned());
    }
    let port = url.port_or_known_default().unwrap_or(0);
    let policy = AddressPolicy::for_origin(url.host_str().unwrap_or(""), port);
    let bounded = Limits { value_bytes_max: limits.llm_answer_bytes_max, ..limits.clone() };
    Ok(Arc::new(RemoteModel {
        name: config.model.as_str().into(),
        provider: config.provider,
        is_own: config.base_url.is_none(),
        url,
        api_key: config.api_key.clone().filter(|key| !key.is_empty()),
        timeout: config.timeout.unwrap_or(Duration::from_millis(limits.llm_answer_ms)),
        secrets: Secrets::new(config.api_key.iter().cloned()),
        engine: HttpClient::new(policy, Arc::new(bounded)),
    }))
}

/// A model behind a URL.
struct RemoteModel {
    name: Arc<str>,
    provider: Provider,
    /// Whether the URL is the provider's own.
    is_own: bool,
    url: Url,
    api_key: Option<String>,
    timeout: Duration,
    secrets: Secrets,
    engine: HttpClient,
}

#[async_trait]
impl Model for RemoteModel {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    async fn answer(&self, prompt: &Prompt) -> Result<ModelReply, Failure> {
        let (body, headers) = match self.provider {
            Provider::OpenAi => {
                let body = openai::body(&self.name, prompt, self.is_own);
                (body, openai::headers(self.api_key.as_deref()))
            }
            Provider::Anthropic => {
                let body = anthropic::body(&self.name, prompt);
                (body, anthropic::headers(self.api_key.as_deref()))
            }
        };
        let request = HttpRequest::post(self.url.clone(), &headers, &body, self.timeout);
        let answer = match request {
            Ok(request) => self.engine.send(request).await,
            Err(error) => Err(error),
        };
        let body = answer.map_err(|error| self.failure(error))?.body;
        let reply = match self.provider {
            Provider::OpenAi => openai::reply(&body),
            Provider::Anthropic => anthropic::reply(&body),
        };
        reply.ok_or_else(|| {
            let message = "the answer does not follow the provider's protocol";
            Failure { hint: Some(HINT.into()), ..Failure::permanent(Code::Llm, message) }
        })
    }
}

/// The hint for a model that cannot be used.
const HINT: &str = "see `llm` in the configuration: `provider`, `base_url`, `model`, `api_key`";

impl RemoteModel {
    /// Translates a failed call. Asking twice is harmless, so no failure is in doubt.
    fn failure(&self, error: ToolError) -> Failure {
        let said = |message: &str| self.secrets.redact(&message_of(message));
        match error {
            ToolError::Unreachable { message, retry_after } => Failure {
                retry_after_ms: retry_after
                    .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
                hint: Some(HINT.into()),
                ..Failure::transient(Code::Llm, said(&message))
            },
            ToolError::NoAnswer { message } => Failure {
                hint: Some("if the model is slow, raise `timeout` of `llm`".into()),
                ..Failure::transient(Code::Llm, said(&message))
            },
            ToolError::Refused { message, retryable, .. } => Failure {
                hint: Some(HINT.into()),
                retryable,
                ..Failure::permanent(Code::Llm, said(&message))
            },
        }
    }
}

/// The provider's error message, without the JSON around it.
fn message_of(message: &str) -> String {
    let Some((before, json)) = message.split_once(": {") else { return message.to_owned() };
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(&format!("{{{json}"));
    let said = parsed.ok().and_then(|body| {
        let error = body.get("error")?;
        let said = error.get("message").unwrap_or(error).as_str()?;
        Some(format!("{before}: {said}"))
    });
    said.unwrap_or_else(|| message.to_owned())
}

type Headers = BTreeMap<String, String>;

/// A count in a provider's usage report.
fn count(usage: Option<&Value>, name: &str) -> u64 {
    usage.and_then(|usage| usage.get(name)?.as_u64()).unwrap_or(0)
}

fn usage(body: &Value, input: &[&str], output: &str) -> Usage {
    let usage = body.get("usage");
    Usage {
        input_tokens: input.iter().map(|name| count(usage, name)).sum(),
        output_tokens: count(usage, output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_says_is_taken_out_of_its_json() {
        for (message, expected) in [
            (
                r#"POST x: 401: {"error": {"message": "bad key", "type": "t"}}"#,
                "POST x: 401: bad key",
            ),
            (r#"POST x: 404: {"error": "no model"}"#, "POST x: 404: no model"),
            (r#"POST x: 500: {"detail": 1}"#, r#"POST x: 500: {"detail": 1}"#),
            ("POST x: 500: oops", "POST x: 500: oops"),
            (r#"POST x: 500: {"error"#, r#"POST x: 500: {"error"#),
        ] {
            assert_eq!(message_of(message), expected);
        }
    }

    #[test]
    fn a_configuration_that_cannot_work_says_so() {
        let with = |base_url: &str, model: &str| {
            let base_url = Some(base_url.to_owned());
            let config =
                ModelConfig { base_url, model: model.to_owned(), ..ModelConfig::default() };
            super::model(&config, &Limits::default()).err().unwrap_or_default()
        };
        assert!(with("http://127.0.0.1:1/v1/", "m").is_empty());
        assert!(with("http://127.0.0.1:1", " ").contains("`model`"));
        assert!(with("localhost:11434/v1", "m").contains("`base_url`"));
        assert!(with("ftp://x/v1", "m").contains("`base_url`"));
        assert!(with("http://u:p@x/v1", "m").contains("api_key"));
        assert!(with("nonsense", "m").contains("`base_url`"));
    }
}
