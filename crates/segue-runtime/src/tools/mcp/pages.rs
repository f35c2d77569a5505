//! A paginated list of tools, with limits.

use std::collections::HashSet;

use segue_core::document::read_json_value;
use segue_core::limits::Limits;
use segue_core::value::Value;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::calls::pending::object;

/// How many pages a list may have.
const PAGES_MAX: usize = 1_000;

/// How many bytes a list may have.
const LIST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The pages of a list.
#[derive(Default)]
pub(super) struct Pages {
    pub(super) tools: Vec<Value>,
    pub(super) notes: Vec<String>,
    seen: HashSet<String>,
    count: usize,
    bytes: usize,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
    #[serde(rename = "nextCursor")]
    next: Option<String>,
}

impl Pages {
    /// Adds a page, and returns the cursor of the next one.
    pub(super) fn add(
        &mut self,
        raw: &RawValue,
        limits: &Limits,
    ) -> Result<Option<String>, String> {
        let page: Page<'_> =
            object(raw).map_err(|error| format!("its list of tools cannot be read: {error}"))?;
        self.count += 1;
        self.bytes += raw.get().len();
        for tool in page.tools {
            if self.tools.len() >= limits.mcp_tools_max {
                let max = limits.mcp_tools_max;
                self.notes.push(format!("it has more than {max} tools; the rest is ignored"));
                return Ok(None);
            }
            match read_json_value(tool.get(), limits) {
                Ok(tool) => self.tools.push(tool),
                Err(finding) => self.notes.push(format!("a tool: {}", finding.message)),
            }
        }
        let Some(next) = page.next else { return Ok(None) };
        if !self.seen.insert(next.clone()) {
            self.notes.push("its list of tools repeats a cursor".to_owned());
            return Ok(None);
        }
        if self.count >= PAGES_MAX || self.bytes > LIST_BYTES_MAX {
            self.notes.push("its list of tools is too long".to_owned());
            return Ok(None);
        }
        Ok(Some(next))
    }
}
