//! Changes of a composition as changes of its text.
//!
//! An [`Edit`] says what changes; the answer is the smallest list of text edits that does it. Everything
//! else keeps its bytes: comments, order, quotes, styles, anchors, blank lines, line endings. What is
//! added looks like the text around it.
//!
//! `layout` finds where things are in the text; `insert`, `remove` and `replace` change one of them; a
//! `draft` makes such changes one after the other and checks each against the plain value. The other
//! modules say which changes an edit consists of.
//!
//! Invariants: an edit that cannot mean exactly what it says is refused, and the text stays; names are
//! those that the resolver found, no expression is parsed a second way.

mod connect;
mod draft;
mod extract;
mod fields;
mod insert;
mod layout;
mod lines;
mod path;
mod pin;
mod remove;
mod render;
mod replace;
mod scalar;
mod steps;
mod style;
mod subject;
mod types;
mod uses;
mod wrap;

use crate::catalog::Catalog;
use crate::compile::contained;
use crate::language::EditError;
use crate::limits::Limits;
use crate::source::Source;
use subject::Subject;

pub use pin::pin;
pub use types::{Container, Edit, Edited, NewText, Place, Reference};
pub(super) use uses::whole_input;

/// The text edits that make a change of the composition in a text. The text may have other mistakes, but
/// it must be well-formed.
pub fn edit(
    source: &Source,
    edit: &Edit,
    catalog: &Catalog,
    limits: &Limits,
) -> Result<Edited, EditError> {
    let change = || {
        let subject = Subject::new(source, catalog, limits)?;
        apply_edit(subject, edit, catalog)
    };
    contained(change).unwrap_or_else(|fault| Err(EditError::new(fault.code, fault.message)))
}

fn apply_edit(mut subject: Subject, edit: &Edit, catalog: &Catalog) -> Result<Edited, EditError> {
    let mut extracted = None;
    match edit {
        Edit::AddStep { step, place } => steps::add(&mut subject, step, place)?,
        Edit::RemoveStep { step } => steps::remove(&mut subject, step)?,
        Edit::RenameStep { step, to } => steps::rename(&mut subject, step, to)?,
        Edit::MoveStep { step, place } => steps::move_to(&mut subject, step, place)?,
        Edit::DuplicateStep { step, id } => steps::duplicate(&mut subject, step, id.as_ref())?,
        Edit::SetField { step, field, value } => {
            fields::set(&mut subject, step.as_deref(), field, value)?;
        }
        Edit::ClearField { step, field } => fields::clear(&mut subject, step.as_deref(), field)?,
        Edit::Connect { from, to, reference } => {
            connect::connect(&mut subject, from, to, reference.as_ref())?;
        }
        Edit::Disconnect { from, to } => connect::disconnect(&mut subject, from, to)?,
        Edit::Wrap { steps, id, container } => wrap::wrap(&mut subject, steps, id, container)?,
        Edit::Extract { steps, name, id } => {
            extracted = Some(extract::extract(&mut subject, steps, name, id.as_ref(), catalog)?);
        }
        Edit::ChangeKind { step, to } => wrap::change_kind(&mut subject, step, to)?,
    }
    Ok(Edited { edits: subject.draft.into_edits(), extracted })
}
