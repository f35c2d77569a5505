//! Which files may be overwritten without asking.
//!
//! Writing a new file destroys nothing, so it does not ask. Overwriting or editing a file asks,
//! unless the operator has allowed it for that file: in the configuration for every run, or in one
//! of their compositions for its own runs.

use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use segue_core::diagnostic::Code;
use segue_core::run::Overwrites;
use segue_core::tool::ConfirmWhen;
use segue_core::value::Value;

use super::root::{FileRoot, relative};
use crate::tools::ToolError;

/// Patterns of paths below the root.
#[derive(Clone)]
pub(super) struct Overwrite(GlobSet);

impl Overwrite {
    pub(super) fn new<S: AsRef<str>>(patterns: &[S]) -> Overwrite {
        if patterns.is_empty() {
            return Overwrite(GlobSet::empty());
        }
        let mut set = GlobSetBuilder::new();
        // An invalid pattern covers nothing.
        for pattern in patterns {
            if let Ok(glob) = GlobBuilder::new(pattern.as_ref()).literal_separator(true).build() {
                set.add(glob);
            }
        }
        Overwrite(set.build().unwrap_or_default())
    }

    /// Whether the patterns cover the file that would be written, after its folder's links are
    /// resolved.
    fn covers(&self, path: &str, root: &FileRoot) -> bool {
        match root.written_path(path) {
            Some(written) => self.0.is_match(written),
            // Before a run the folder may still hold an expression. In a call there is none to
            // write into.
            None => path.contains("{{") && relative(path).is_ok_and(|it| self.0.is_match(it)),
        }
    }

    /// Why a call that did not ask must not change an existing file.
    pub(super) fn refusal(
        &self,
        path: &str,
        root: &FileRoot,
        allowed: &Overwrites,
    ) -> Option<ToolError> {
        let Overwrites::Only(patterns) = allowed else { return None };
        let is_covered = self.covers(path, root) || Overwrite::new(patterns).covers(path, root);
        let message = || {
            format!("`{path}` appeared after the step started; overwriting it needs a confirmation")
        };
        (!is_covered).then(|| ToolError::refused(Code::Denied, message()))
    }

    /// When a tool asks depending on its arguments.
    pub(super) fn asks_when(&self, tool: &str, root: &Arc<FileRoot>) -> Option<ConfirmWhen> {
        if !matches!(tool, "files_write" | "files_edit") {
            return None;
        }
        let (own, root) = (self.clone(), root.clone());
        Some(ConfirmWhen::exact(move |args: &Value, more: &[Arc<str>]| {
            let path = args.get("path").and_then(Value::as_str).unwrap_or("");
            let replaces = args.get("overwrite").is_none_or(|yes| *yes != Value::Bool(false));
            let is_covered = || own.covers(path, &root) || Overwrite::new(more).covers(path, &root);
            // Before a run the path may still hold an expression.
            replaces && (path.contains("{{") || root.has(path)) && !is_covered()
        }))
    }
}
