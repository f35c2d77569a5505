//! Lists the files of the page, which `page.rs` embeds. They are committed as they are served, so that a
//! build needs no Node.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=page");
    let folder = cargo_folder("CARGO_MANIFEST_DIR").join("page");
    let has_page = std::env::var_os("CARGO_FEATURE_UI").is_some();
    let mut files = if has_page { gzipped(&folder, "") } else { Vec::new() };
    if has_page {
        files.extend(gzipped(&folder.join("assets"), "assets/"));
        let has_index = files.iter().any(|(name, _)| name == "index.html");
        assert!(has_index, "`crates/segue/page/index.html.gz` is missing");
    }
    files.sort();
    let mut code = String::from("&[\n");
    for (name, path) in files {
        let _ = writeln!(code, "    ({name:?}, include_bytes!({:?})),", path.display().to_string());
    }
    code.push_str("]\n");
    let out = cargo_folder("OUT_DIR").join("page.rs");
    std::fs::write(out, code).expect("Cargo's folder for generated files can be written");
}

fn cargo_folder(variable: &str) -> PathBuf {
    std::env::var_os(variable).expect("Cargo sets it").into()
}

/// The gzipped files of a folder: the name of each without `.gz`, and its path.
fn gzipped(folder: &Path, prefix: &str) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path()).filter(|path| path.is_file());
    let named = files.filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".gz")?.to_owned();
        Some((format!("{prefix}{name}"), path))
    });
    named.collect()
}
