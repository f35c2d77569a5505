//! `llm` → the model that makes plans.

use segue_core::document::Node;
use segue_core::limits::Limits;
use segue_runtime::llm::{self, ModelConfig, Provider};

use super::read::ConfigReader;

const LLM: &[&str] = &["provider", "base_url", "model", "api_key", "timeout"];

impl ConfigReader<'_> {
    pub(super) fn llm(&mut self, node: &Node) -> Option<ModelConfig> {
        if !self.keys(node, LLM, "`llm`") {
            return None;
        }
        let mut text = |key: &str| {
            let value = node.get(key)?;
            self.text(value, &format!("`{key}`"))
        };
        let (word, base_url) = (text("provider"), text("base_url"));
        let (model, api_key) = (text("model"), text("api_key"));
        let provider = match word.as_deref().map(Provider::parse) {
            None => Provider::default(),
            Some(Some(provider)) => provider,
            Some(None) => {
                let words = Provider::NAMES.join("` or `");
                let place = node.get("provider").map_or(node.span, |provider| provider.span);
                self.error(place, format!("`provider` is `{words}`"));
                return None;
            }
        };
        if node.get("model").is_none() {
            self.error(node.span, "`llm` needs a `model`");
            return None;
        }
        let timeout = self.timeout(node);
        let model = model.unwrap_or_default();
        let config = ModelConfig { provider, base_url, model, api_key, timeout };
        match llm::model(&config, &Limits::default()) {
            Ok(_) => Some(config),
            Err(message) => {
                self.error(node.span, message);
                None
            }
        }
    }
}
