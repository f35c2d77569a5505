//! Shared by the tests of the core: the corpus and its tools.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

pub mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::document::{Node, ReadLimits, read};
use segue_core::id::ToolId;
use segue_core::inferred_schema::InferredSchema;
use segue_core::limits::Limits;
use segue_core::plan::composition_tool;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ConfirmPolicy, DeclaredRollback, ObservedStats, ToolSpec};
use segue_core::value::Value;

pub(crate) fn corpus() -> PathBuf {
    // The runtime's tests use this module, too.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../segue-core/tests/corpus")
}

/// The folders below a part of the corpus, by name.
pub(crate) fn cases(part: &str) -> Vec<PathBuf> {
    let folder = corpus().join(part);
    let mut cases: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "no cases below {part}");
    cases
}

/// The composition of a case, named without its folder so that expectations stay short.
pub(crate) fn composition_of(case: &Path) -> Source {
    for name in ["composition.yaml", "composition.json"] {
        if let Ok(text) = fs::read_to_string(case.join(name)) {
            return Source::new(name, text);
        }
    }
    panic!("{} has no composition", case.display());
}

/// The tools of `tools.yaml`.
pub(crate) fn catalog() -> Catalog {
    catalog_of(&fs::read_to_string(corpus().join("tools.yaml")).unwrap())
}

/// The tools that a text declares.
pub(crate) fn catalog_of(text: &str) -> Catalog {
    let source = Source::new("tools.yaml", text);
    let root = read(&source, ReadLimits::for_documents(&Limits::default())).unwrap();
    Catalog::new(root.get("tools").unwrap().items().iter().map(|tool| Arc::new(tool_spec(tool))))
}

/// The catalog with the compositions that lie beside a case, each compiled after those before it.
pub(crate) fn with_compositions(case: &Path, catalog: &Catalog) -> Catalog {
    let (mut catalog, limits) = (catalog.clone(), Limits::default());
    let mut files: Vec<_> =
        fs::read_dir(case).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("inner") {
            let compiled =
                compile(&Source::new(name, fs::read_to_string(&file).unwrap()), &catalog, &limits);
            let composition = compiled
                .composition
                .unwrap_or_else(|| panic!("{}: {:?}", file.display(), compiled.diagnostics));
            catalog.insert(Arc::new(composition_tool(&composition)));
        }
    }
    catalog
}

fn tool_spec(node: &Node) -> ToolSpec {
    let text = |name: &str| node.get(name).and_then(Node::as_str).cloned();
    let schema = |name: &str| node.get(name).map(|node| Arc::new(Schema::new(node.to_value())));
    let id = text("id").unwrap();
    let input = schema("input").unwrap_or_else(Schema::any_object);
    let mut spec =
        ToolSpec::new(ToolId::from(&*id), text("description").unwrap_or_default(), input);
    spec.output = schema("output");
    let typical = node.get("typical_ms").and_then(|node| node.to_value().as_u64());
    let returned = node.get("returned").map(|values| {
        let mut shape = InferredSchema::default();
        values.items().iter().for_each(|value| shape.add(&value.to_value()));
        Arc::new(shape)
    });
    if typical.is_some() || returned.is_some() {
        let ms = typical.unwrap_or(0);
        let (calls, failures) = (20, 1);
        let (p50_ms, p95_ms) = (ms, 2 * ms);
        spec.observed = Some(ObservedStats { calls, failures, p50_ms, p95_ms, output: returned });
    }
    if let Some(annotations) = node.get("annotations") {
        let flag = |name: &str| annotations.get(name).and_then(|node| node.to_value().as_bool());
        spec.annotations = Annotations {
            read_only: flag("read_only"),
            destructive: flag("destructive"),
            idempotent: flag("idempotent"),
            open_world: flag("open_world"),
        };
    }
    if text("confirm").as_deref() == Some("always") {
        spec.confirm = ConfirmPolicy::Always;
    }
    if let Some(rollback) = node.get("rollback") {
        spec.rollback = rollback_of(rollback);
    }
    spec
}

fn rollback_of(node: &Node) -> DeclaredRollback {
    if let Some(reason) = node.get("impossible").and_then(Node::as_str) {
        return DeclaredRollback::Impossible { reason: reason.clone() };
    }
    match node.get("tool").and_then(Node::as_str) {
        Some(tool) => DeclaredRollback::Call {
            tool: tool.clone(),
            parameters: node.get("parameters").map_or(Value::empty_object(), Node::to_value),
        },
        None => DeclaredRollback::NotNeeded,
    }
}
