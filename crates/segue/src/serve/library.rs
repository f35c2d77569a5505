//! Stored compositions to start from: a file each, in one folder.

use std::path::PathBuf;
use std::sync::Arc;

use segue_core::compile::document::read_json_value;
use segue_core::limits::Limits;
use segue_core::value::Value;

/// The longest id.
const ID_CHARS_MAX: usize = 64;

/// The library.
#[derive(Clone, Debug)]
pub struct Library {
    folder: PathBuf,
    limits: Arc<Limits>,
}

impl Library {
    /// The library in a folder, which need not be there yet.
    pub fn new(folder: PathBuf, limits: Arc<Limits>) -> Library {
        Library { folder, limits }
    }

    /// Every template, by id. What cannot be read is left out.
    pub fn list(&self) -> Vec<Value> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let mut ids: Vec<String> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                name.strip_suffix(".json").map(str::to_owned)
            })
            .collect();
        ids.sort();
        ids.iter().filter_map(|id| self.get(id).ok()).collect()
    }

    /// The template of an id.
    pub fn get(&self, id: &str) -> Result<Value, String> {
        let text = std::fs::read_to_string(self.file(id)?)
            .map_err(|_| format!("there is no template `{id}`"))?;
        read_json_value(&text, &self.limits)
            .map_err(|finding| format!("the template `{id}` cannot be read: {}", finding.message))
    }

    /// Keeps a template under its id, whole or not at all.
    pub fn put(&self, id: &str, template: &Value, may_replace: bool) -> Result<(), String> {
        let file = self.file(id)?;
        if file.exists() && !may_replace {
            return Err(format!("there is a template `{id}` already; `replace: true` replaces it"));
        }
        let text = serde_json::to_string_pretty(template).unwrap_or_default();
        let beside = file.with_extension(format!("{}.new", std::process::id()));
        std::fs::create_dir_all(&self.folder)
            .and_then(|()| std::fs::write(&beside, text))
            .and_then(|()| std::fs::rename(&beside, &file))
            .map_err(|error| format!("the template cannot be written: {error}"))
    }

    /// Forgets a template.
    pub fn delete(&self, id: &str) -> Result<(), String> {
        std::fs::remove_file(self.file(id)?).map_err(|_| format!("there is no template `{id}`"))
    }

    /// The file of an id; ids are plain, so that none leads elsewhere.
    fn file(&self, id: &str) -> Result<PathBuf, String> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let fits = !id.is_empty() && id.len() <= ID_CHARS_MAX && id.chars().all(is_plain);
        if !fits || id.starts_with(['-', '_']) {
            return Err(format!(
                "`{id}` is no id: small letters, digits, `-` and `_`, at most {ID_CHARS_MAX}"
            ));
        }
        Ok(self.folder.join(format!("{id}.json")))
    }
}
