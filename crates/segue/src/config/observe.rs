//! `observe` → where traces are sent.

use segue_core::document::Node;

use super::read::ConfigReader;
use crate::observe::traces::TracesConfig;

impl ConfigReader<'_> {
    pub(super) fn observe(&mut self, node: &Node) -> Option<TracesConfig> {
        if !self.keys(node, &["otlp"], "`observe`") {
            return None;
        }
        let otlp = node.get("otlp")?;
        if !self.keys(otlp, &["endpoint", "headers"], "`otlp`") {
            return None;
        }
        let endpoint = otlp.get("endpoint").and_then(|it| self.text(it, "`endpoint`"));
        let is_address =
            |text: &String| text.starts_with("http://") || text.starts_with("https://");
        if let (Some(text), Some(written)) = (&endpoint, otlp.get("endpoint"))
            && !is_address(text)
        {
            let message = "`endpoint` is an address such as `http://127.0.0.1:4318`";
            self.error(written.span, message);
        }
        let headers = otlp.get("headers").map_or_else(Default::default, |headers| {
            self.each(headers, |reader, value| reader.text(value, "a header"))
        });
        Some(TracesConfig { endpoint, headers: headers.into_iter().collect() })
    }
}
