//! The way to a value → what the language expects there, by the tables of the grammar and the
//! schemas of the tools.

use std::sync::Arc;

use super::path::Crumb;
use super::schema_parts::SchemaPart;
use crate::catalog::{Catalog, ToolLookup};
use crate::compile::dialect::grammar::{
    ARAZZO, CALL, CHAIN, COMPOSITION, FieldGrammar, FieldShape, PLAN, PROBE, ROLLBACK,
    RecordGrammar, SKILL, STEP, TEMPLATE, TOOLHIVE,
};
use crate::compile::dialect::{detect, unwrap_template};
use crate::composition::Dialect;
use crate::composition::tool::ToolSpec;
use crate::document::Node;

/// What a value should be.
#[derive(Clone)]
pub(super) enum Expected {
    /// A value of the grammar.
    Shape(&'static FieldShape),
    /// Arguments of a tool, or a value inside them.
    Argument { tool: Arc<ToolSpec>, schema: Option<SchemaPart> },
    /// Anything.
    Open,
}

/// The field of the grammar that a value belongs to.
#[derive(Clone, Copy)]
pub(super) struct FieldPlace {
    pub(super) record: &'static RecordGrammar,
    pub(super) field: &'static FieldGrammar,
}

/// What is expected at the end of a way, and around it.
pub(super) struct Expectation {
    /// What the value at the end should be.
    pub(super) value: Expected,
    /// What the object or list around it should be.
    pub(super) around: Expected,
    /// The innermost field of the grammar on the way.
    pub(super) field: Option<FieldPlace>,
}

static COMPOSITION_SHAPE: FieldShape = FieldShape::Of(&COMPOSITION);
static CHAIN_SHAPE: FieldShape = FieldShape::Of(&CHAIN);
static SKILL_SHAPE: FieldShape = FieldShape::Of(&SKILL);
static PLAN_SHAPE: FieldShape = FieldShape::Of(&PLAN);
static TOOLHIVE_SHAPE: FieldShape = FieldShape::Of(&TOOLHIVE);
static ARAZZO_SHAPE: FieldShape = FieldShape::Of(&ARAZZO);
static TEMPLATE_SHAPE: FieldShape = FieldShape::Of(&TEMPLATE);

/// The dialect of a document.
pub(super) fn dialect_of(root: &Node) -> Dialect {
    detect(unwrap_template(root))
}

fn root_shape(dialect: Dialect) -> &'static FieldShape {
    match dialect {
        Dialect::Composition | Dialect::Composed => &COMPOSITION_SHAPE,
        Dialect::Chain => &CHAIN_SHAPE,
        Dialect::Skill => &SKILL_SHAPE,
        Dialect::Plan => &PLAN_SHAPE,
        Dialect::ToolHive => &TOOLHIVE_SHAPE,
        Dialect::Arazzo => &ARAZZO_SHAPE,
    }
}

/// What the document itself should be, and whether it is the envelope of a template.
fn root_expected(root: &Node, dialect: Dialect) -> (Expected, bool) {
    let is_template = !std::ptr::eq(unwrap_template(root), root);
    let shape = if is_template { &TEMPLATE_SHAPE } else { root_shape(dialect) };
    (Expected::Shape(shape), is_template)
}

/// Follows the way from the root.
pub(super) fn follow(
    root: &Node,
    crumbs: &[Crumb<'_>],
    dialect: Dialect,
    catalog: &Catalog,
) -> Expectation {
    let (value, is_template) = root_expected(root, dialect);
    let mut at = Expectation { value, around: Expected::Open, field: None };
    for (depth, crumb) in crumbs.iter().enumerate() {
        let inner = match (&at.value, crumb) {
            (_, Crumb::Member { member, .. })
                if is_template && depth == 0 && &*member.key == "composition" =>
            {
                Expected::Shape(root_shape(dialect))
            }
            (Expected::Shape(shape), Crumb::Member { object, member }) => {
                match field_of(shape, &member.key, dialect) {
                    Some(place) => {
                        at.field = Some(place);
                        arguments(place, object, catalog)
                            .unwrap_or(Expected::Shape(&place.field.shape))
                    }
                    None => Expected::Shape(member_shape(shape)),
                }
            }
            (Expected::Shape(shape), Crumb::Item { .. }) => Expected::Shape(item_shape(shape)),
            (Expected::Argument { tool, schema }, crumb) => Expected::Argument {
                tool: tool.clone(),
                schema: schema.as_ref().and_then(|schema| match crumb {
                    Crumb::Member { member, .. } => schema.member(&member.key),
                    Crumb::Item { .. } => schema.items(),
                }),
            },
            (Expected::Open, _) => Expected::Open,
        };
        at.around = std::mem::replace(&mut at.value, inner);
    }
    at
}

/// The records that a shape allows.
pub(super) fn record_of(shape: &'static FieldShape) -> Option<&'static RecordGrammar> {
    match shape {
        FieldShape::Of(record) => Some(record),
        FieldShape::Either(shapes) => shapes.iter().find_map(record_of),
        _ => None,
    }
}

fn field_of(shape: &'static FieldShape, name: &str, dialect: Dialect) -> Option<FieldPlace> {
    let record = record_of(shape)?;
    let field = record.fields_in(dialect).find(|field| field.name == name)?;
    Some(FieldPlace { record, field })
}

/// The arguments of the tool that the object calls, if the field holds them.
fn arguments(place: FieldPlace, object: &Node, catalog: &Catalog) -> Option<Expected> {
    let calls = [&STEP, &CALL, &ROLLBACK, &PROBE];
    let is_call = calls.iter().any(|record| std::ptr::eq(*record, place.record));
    if !is_call || !matches!(place.field.name, "parameters" | "inputs") {
        return None;
    }
    let name = object.get("tool").and_then(Node::as_str)?;
    let ToolLookup::Found(tool) = catalog.find(name) else { return None };
    let schema = Some(SchemaPart::whole(tool.input.json()));
    Some(Expected::Argument { tool: tool.clone(), schema })
}

/// The shape of a member with a name that the author chose.
fn member_shape(shape: &'static FieldShape) -> &'static FieldShape {
    match shape {
        FieldShape::Each(inner) => inner,
        FieldShape::Templates | FieldShape::Template => &FieldShape::Template,
        FieldShape::Schema => &FieldShape::Schema,
        FieldShape::Either(shapes) => shapes.iter().map(member_shape).next().unwrap_or(shape),
        _ => &FieldShape::Object,
    }
}

fn item_shape(shape: &'static FieldShape) -> &'static FieldShape {
    match shape {
        FieldShape::List(inner) => inner,
        FieldShape::Template | FieldShape::Templates => &FieldShape::Template,
        FieldShape::Schema => &FieldShape::Schema,
        FieldShape::Either(shapes) => {
            let list = shapes.iter().find(|shape| matches!(shape, FieldShape::List(_)));
            list.map_or(&FieldShape::Object, item_shape)
        }
        _ => &FieldShape::Object,
    }
}
