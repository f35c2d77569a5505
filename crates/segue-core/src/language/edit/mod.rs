//! Changes of a composition as changes of its text.
//!
//! An [`Edit`] says what changes; the answer is the smallest list of text edits that does it. Everything
//! else keeps its bytes: comments, order, quotes, styles, anchors, blank lines, line endings.

mod types;

pub use types::{Container, Edit, Edited, NewText, Place, Reference};
