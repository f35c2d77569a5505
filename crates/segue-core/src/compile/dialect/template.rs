//! The envelope of a template: id, description, metadata and requirements around a composition.

use std::sync::Arc;

use semver::Version;

use super::grammar::{TEMPLATE, VALIDATION};
use super::reader::DialectReader;
use super::unwrap_template;
use crate::LANGUAGE_VERSION;
use crate::catalog::{Catalog, ToolLookup};
use crate::composition::Dialect;
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, NodeKind};
use crate::id::is_composition_name;
use crate::limits::Limits;
use crate::source::Source;
use crate::template::CompositionTemplate;
use crate::value::Value;

/// Reads the envelope around a composition, if there is one, and the findings about the envelope.
pub(in crate::compile) fn read(
    source: &Source,
    root: &Node,
    limits: &Limits,
) -> Option<(CompositionTemplate, Vec<Diagnostic>)> {
    let inner = unwrap_template(root);
    if std::ptr::eq(inner, root) {
        return None;
    }
    let mut reader = DialectReader::new(source, limits, Dialect::Composition);
    reader.check_record(root, &TEMPLATE, "a template");
    let text = |name: &str| {
        let node = root.get(name)?;
        reader.text(node, &format!("`{name}`"))
    };
    let [id, name, description] = ["id", "name", "description"].map(text);
    if let (Some(id), Some(node)) = (&id, root.get("id"))
        && !is_composition_name(id)
    {
        let message = format!("`{id}` cannot be the id of a template");
        let help = "small letters, digits, `-` and `_`, beginning with a letter or digit";
        reader.error_with_help(Code::InvalidField, node.span, message, help);
    }
    let metadata = match root.get("metadata") {
        None => Value::empty_object(),
        Some(node @ Node { kind: NodeKind::Object(_), .. }) => {
            // A search by category would not find it.
            if let Some(category) = node.get("category") {
                reader.text(category, "`category`");
            }
            node.to_value()
        }
        Some(node) => {
            let message = format!("`metadata` must be an object, found {}", node.kind_name());
            reader.error(Code::InvalidField, node.span, message);
            Value::empty_object()
        }
    };
    let (required_tools, min_version) = read_validation(&mut reader, root);
    let of_inner = |name| inner.get(name).and_then(Node::as_str).cloned();
    let template = CompositionTemplate {
        name: name.or_else(|| of_inner("name")).unwrap_or_default(),
        description: description.or_else(|| of_inner("description")).unwrap_or_default(),
        id: id.unwrap_or_default(),
        metadata,
        required_tools,
        min_version,
        composition: inner.to_value(),
    };
    Some((template, reader.findings))
}

fn read_validation(
    reader: &mut DialectReader<'_>,
    root: &Node,
) -> (Option<Vec<Arc<str>>>, Option<Arc<str>>) {
    let Some(node) = root.get("validation") else { return (None, None) };
    if !reader.check_record(node, &VALIDATION, "`validation`") {
        return (None, None);
    }
    let tools = node.get("required_tools").map(|list| {
        let tools = reader.list(list, "`required_tools`").iter();
        tools.filter_map(|tool| reader.text(tool, "a required tool")).collect()
    });
    let version = node.get("min_version").and_then(|node| {
        let version = reader.text(node, "`min_version`")?;
        let message = match Version::parse(&version) {
            Ok(wanted) if wanted <= LANGUAGE_VERSION => return Some(version),
            Ok(_) => {
                let message = format!(
                    "this template needs version {version} of compositions, this Segue has \
                     {LANGUAGE_VERSION}"
                );
                let help = "use a newer Segue, or a lower `min_version`";
                reader.error_with_help(Code::Unsupported, node.span, message, help);
                return Some(version);
            }
            Err(_) => format!("`{version}` is not a semantic version"),
        };
        reader.error_with_help(Code::InvalidField, node.span, message, "write it as `1.0.0`");
        None
    });
    (tools, version)
}

/// Required tools that no source provides.
pub(in crate::compile) fn missing_tools(root: &Node, catalog: &Catalog) -> Vec<Diagnostic> {
    let list = root.get("validation").and_then(|node| node.get("required_tools"));
    let required = list.map_or(&[][..], Node::items).iter();
    let missing = required.filter_map(|node| {
        let name = node.as_str()?;
        let ToolLookup::Missing { nearest } = catalog.find(name) else { return None };
        let message = format!("the template requires a tool that no source provides: {name}");
        let finding = Diagnostic::error(Code::UnknownTool, message, node.span);
        Some(match nearest {
            Some(near) => finding.help(format!("did you mean `{near}`?")),
            None => finding.help("`segue tools` lists what is available"),
        })
    });
    missing.collect()
}
