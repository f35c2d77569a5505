//! A text on its way to an edited one.
//!
//! Every change is made on the text as it is by then, and the result is read again and compared with what
//! the change means for the plain value. A change that would mean something else, as in a value that an
//! alias repeats, is refused, and the text stays as it was. At the end the draft knows which parts of the
//! original text it kept, and so the smallest edits.

use std::sync::Arc;

use super::insert::{Content, Slot};
use super::layout::Layout;
use super::path::{self, Segment, ValuePath, changed, node_at};
use super::scalar::replace_in_scalar;
use super::style::Style;
use crate::diagnostic::Code;
use crate::document::{self, Node, ReadLimits};
use crate::language::{EditError, TextEdit, apply};
use crate::limits::Limits;
use crate::source::{Notation, Source, Span};
use crate::value::Value;

/// A part of the edited text.
#[derive(Clone, Debug)]
enum Piece {
    /// A part of the original text.
    Kept(std::ops::Range<usize>),
    New(String),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Kept(range) => range.len(),
            Piece::New(text) => text.len(),
        }
    }
}

/// A replacement inside the text of a string.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TextChange {
    /// The bytes of the string, without quotes and escapes.
    pub(super) range: (usize, usize),
    pub(super) text: String,
}

pub(super) struct EditDraft {
    original: Arc<str>,
    source: Source,
    root: Node,
    style: Style,
    limits: Limits,
    pieces: Vec<Piece>,
}

impl EditDraft {
    pub(super) fn new(source: &Source, root: Node, limits: &Limits) -> EditDraft {
        let style = Style::of(source, &root);
        let original: Arc<str> = source.text().into();
        EditDraft {
            pieces: vec![Piece::Kept(0..original.len())],
            original,
            source: source.clone(),
            root,
            style,
            limits: limits.clone(),
        }
    }

    /// A text of its own in the style of another one.
    pub(super) fn fresh(
        like: &EditDraft,
        name: &str,
        value: &Value,
    ) -> Result<EditDraft, EditError> {
        let style = like.style.clone();
        let is_json = style.notation == Notation::Json;
        let body = if is_json { style.bracketed(value, "", "") } else { style.document(value) };
        let extension = if is_json { "json" } else { "yaml" };
        let source = Source::new(format!("{name}.{extension}"), format!("{body}{}", style.newline));
        let root = document::read(&source, ReadLimits::for_documents(&like.limits))
            .map_err(|_| EditError::new(Code::Internal, "the new text cannot be read"))?;
        let limits = like.limits.clone();
        Ok(EditDraft { style, ..EditDraft::new(&source, root, &limits) })
    }

    pub(super) fn into_text(self) -> String {
        self.source.text().to_owned()
    }

    pub(super) fn root(&self) -> &Node {
        &self.root
    }

    pub(super) fn node(&self, path: &[Segment]) -> Option<&Node> {
        node_at(&self.root, path)
    }

    pub(super) fn layout(&self) -> Layout<'_> {
        Layout::new(self.source.text(), &self.root, &self.style)
    }

    /// Makes a change of the text, which must mean the expected value.
    fn commit(
        &mut self,
        mut edits: Vec<TextEdit>,
        expected: &Value,
        path: &[Segment],
    ) -> Result<(), EditError> {
        edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
        let text = apply(self.source.text(), &edits);
        let source = Source::new(self.source.name().clone(), text);
        let read = document::read(&source, ReadLimits::for_documents(&self.limits));
        match read {
            Ok(root) if root.to_value() == *expected => {
                self.pieces = replaced(&self.pieces, &edits);
                self.source = source;
                self.root = root;
                Ok(())
            }
            Err(findings) if findings.iter().any(|finding| finding.code == Code::Limit) => {
                let message = findings.into_iter().map(|finding| finding.message).next();
                Err(EditError::new(Code::Limit, message.unwrap_or_default()))
            }
            _ => Err(self.refusal(path)),
        }
    }

    /// Why a change would mean something else than it should.
    fn refusal(&self, path: &[Segment]) -> EditError {
        let layout = self.layout();
        let place = path::pointer(path);
        if let Some(alias) = layout.alias_on(path) {
            let message = format!(
                "`{place}` stands in the alias `{alias}`, so the change would also change the value that it repeats"
            );
            return EditError::new(Code::Unsupported, message)
                .help(format!("write the value out in place of `{alias}` first"));
        }
        if let Some(alias) = layout.any_alias() {
            let message =
                format!("the change of `{place}` would also change what `{alias}` repeats");
            return EditError::new(Code::Unsupported, message)
                .help(format!("write the value out in place of `{alias}` first"));
        }
        let message = format!("Segue cannot change `{place}` without changing something else");
        EditError::new(Code::Internal, message)
            .help("this is a bug in Segue: please report it, with the text")
    }

    fn value(&self) -> Value {
        self.root.to_value()
    }

    /// Inserts into a list.
    pub(super) fn insert_item(
        &mut self,
        list: &[Segment],
        at: usize,
        content: &Content,
    ) -> Result<(), EditError> {
        let edits = self.layout().insert_item(list, at, content).map_err(|why| {
            EditError::new(Code::Unsupported, format!("the step cannot stand there: {why}"))
                .help("move it to a list that is written in lines")
        })?;
        let expected = path::with_item(&self.value(), list, at, content.value());
        self.commit(edits, &expected, list)
    }

    /// Moves an item into a list of which it is no part.
    pub(super) fn move_item(
        &mut self,
        from: &[Segment],
        list: &[Segment],
        at: usize,
    ) -> Result<ValuePath, EditError> {
        let Some((Segment::Index(own), outer)) = from.split_last() else {
            return Ok(from.to_vec());
        };
        let moved = self.node(outer).and_then(|node| self.layout().moved(node, *own));
        let Some(moved) = moved else { return Ok(from.to_vec()) };
        self.insert_item(list, at, &Content::Moved(moved))?;
        let old = path::after_insert(from, list, at);
        self.remove(&old)?;
        let Some((Segment::Index(own), outer)) = old.split_last() else { return Ok(old) };
        Ok(path::after_remove(&path::index(list, at), outer, *own))
    }

    /// Removes a member or an item.
    pub(super) fn remove(&mut self, path: &[Segment]) -> Result<(), EditError> {
        let edits = self.layout().remove(path);
        let expected = path::without(&self.value(), path);
        self.commit(edits, &expected, path)
    }

    /// Adds a member to an object.
    pub(super) fn add_member(
        &mut self,
        object: &[Segment],
        slot: Slot,
        key: &str,
        value: &Value,
    ) -> Result<(), EditError> {
        let edits = self.layout().insert_member(object, slot, key, value);
        let expected = path::with_member(&self.value(), object, key, value);
        self.commit(edits, &expected, &path::key(object, key))
    }

    /// Gives a member another key.
    pub(super) fn rename_key(
        &mut self,
        object: &[Segment],
        old: &str,
        new: &str,
    ) -> Result<(), EditError> {
        let path = path::key(object, old);
        let Some(member) = self.layout().member(&path) else { return Ok(()) };
        let written = &self.source.text()[member.key_span.range()];
        let text = match written.chars().next() {
            Some(quote @ ('"' | '\'')) => self.style.quoted(new, quote),
            _ => self.style.key(new),
        };
        let edit = TextEdit { span: member.key_span, text };
        let expected = changed(&self.value(), object, &mut |object| {
            let members = object.as_object().into_iter().flat_map(|members| members.iter());
            Value::object(members.map(|(key, value)| {
                (if **key == *old { new.into() } else { key.clone() }, value.clone())
            }))
        });
        self.commit(vec![edit], &expected, &path)
    }

    /// Makes the value at a path another one. Of collections only the parts that differ change.
    pub(super) fn set(&mut self, path: &[Segment], value: &Value) -> Result<(), EditError> {
        let Some(old) = self.node(path) else { return Ok(()) };
        let old_value = old.to_value();
        if old_value == *value {
            return Ok(());
        }
        let is_alias = self.layout().is_alias(old);
        match (&old_value, value) {
            (Value::Object(before), Value::Object(after))
                if !is_alias && before.keys().any(|key| after.contains_key(key)) =>
            {
                for key in before.keys().filter(|key| !after.contains_key(*key)) {
                    self.remove(&path::key(path, key))?;
                }
                for (key, value) in after.iter() {
                    if before.contains_key(key) {
                        self.set(&path::key(path, key), value)?;
                    } else {
                        self.add_member(path, Slot::Last, key, value)?;
                    }
                }
                Ok(())
            }
            (Value::Array(before), Value::Array(after))
                if !is_alias && !before.is_empty() && !after.is_empty() =>
            {
                self.set_items(path, before, after)
            }
            _ => self.replace(path, value),
        }
    }

    /// Changes a list: items at its begin and end that stay equal keep their text.
    fn set_items(
        &mut self,
        path: &[Segment],
        before: &[Value],
        after: &[Value],
    ) -> Result<(), EditError> {
        let same = |(a, b): &(&Value, &Value)| a == b;
        let head = before.iter().zip(after).take_while(same).count();
        let (before, after) = (&before[head..], &after[head..]);
        let tail = before.iter().rev().zip(after.iter().rev()).take_while(same).count();
        let (before, after) = (&before[..before.len() - tail], &after[..after.len() - tail]);
        let common = before.len().min(after.len());
        for (offset, value) in after[..common].iter().enumerate() {
            self.set(&path::index(path, head + offset), value)?;
        }
        for at in (common..before.len()).rev() {
            self.remove(&path::index(path, head + at))?;
        }
        for (at, value) in after.iter().enumerate().skip(common) {
            self.insert_item(path, head + at, &Content::Value(value.clone()))?;
        }
        Ok(())
    }

    fn replace(&mut self, path: &[Segment], value: &Value) -> Result<(), EditError> {
        let edits = self.layout().replace(path, value);
        let expected = changed(&self.value(), path, &mut |_| value.clone());
        self.commit(edits, &expected, path)
    }

    /// Changes parts of strings. The paths are those of strings that are no copies of an alias.
    pub(super) fn change_texts(
        &mut self,
        changes: &[(ValuePath, Vec<TextChange>)],
    ) -> Result<(), EditError> {
        let mut edits = Vec::new();
        let mut expected = Vec::new();
        for (path, changes) in changes {
            let Some(node) = self.node(path) else { continue };
            let Some(text) = node.as_str() else { continue };
            let after = changed_text(text, changes);
            match replace_in_scalar(self.source.text(), node.span, text, changes) {
                Some(mut within) => edits.append(&mut within),
                None => edits.append(&mut self.layout().replace(path, &Value::from(&*after))),
            }
            expected.push((path, after));
        }
        edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
        let text = apply(self.source.text(), &edits);
        let source = Source::new(self.source.name().clone(), text);
        let root = document::read(&source, ReadLimits::for_documents(&self.limits)).ok();
        let is_right = |root: &Node| {
            expected.iter().all(|(path, text)| {
                node_at(root, path).and_then(Node::as_str).is_some_and(|now| **now == **text)
            })
        };
        match root.filter(is_right) {
            Some(root) => {
                self.pieces = replaced(&self.pieces, &edits);
                self.source = source;
                self.root = root;
                Ok(())
            }
            None => Err(self.refusal(changes.first().map_or(&[][..], |(path, _)| path))),
        }
    }

    /// The edits of the original text.
    pub(super) fn into_edits(self) -> Vec<TextEdit> {
        let mut edits = Vec::new();
        let (mut from, mut added) = (0, String::new());
        let end = self.original.len();
        let last = Piece::Kept(end..end);
        for piece in self.pieces.iter().chain([&last]) {
            match piece {
                Piece::New(text) => added.push_str(text),
                Piece::Kept(range) => {
                    let edit = TextEdit {
                        span: Span::new(from, range.start),
                        text: std::mem::take(&mut added),
                    };
                    edits.extend(trimmed(&self.original, &edit));
                    from = range.end;
                }
            }
        }
        edits
    }
}

/// A string after changes of its parts.
pub(super) fn changed_text(text: &str, changes: &[TextChange]) -> String {
    let mut out = String::new();
    let mut from = 0;
    for change in changes {
        out.push_str(&text[from..change.range.0]);
        out.push_str(&change.text);
        from = change.range.1;
    }
    out.push_str(&text[from..]);
    out
}

/// The pieces after edits of the text that they make up.
fn replaced(pieces: &[Piece], edits: &[TextEdit]) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut cursor = Cursor { pieces, piece: 0, within: 0, at: 0 };
    for edit in edits {
        let span = edit.span.range();
        cursor.take(span.start, &mut |piece| out.push(piece));
        cursor.take(span.end, &mut |_| {});
        if !edit.text.is_empty() {
            out.push(Piece::New(edit.text.clone()));
        }
    }
    cursor.take(usize::MAX, &mut |piece| out.push(piece));
    out
}

struct Cursor<'p> {
    pieces: &'p [Piece],
    piece: usize,
    within: usize,
    at: usize,
}

impl Cursor<'_> {
    /// Hands over the pieces up to an offset.
    fn take(&mut self, to: usize, give: &mut dyn FnMut(Piece)) {
        while self.at < to
            && let Some(piece) = self.pieces.get(self.piece)
        {
            let length = (piece.len() - self.within).min(to - self.at);
            let part = self.within..self.within + length;
            if length > 0 {
                give(match piece {
                    Piece::Kept(range) => {
                        Piece::Kept(range.start + part.start..range.start + part.end)
                    }
                    Piece::New(text) => Piece::New(text[part].to_owned()),
                });
            }
            self.at += length;
            self.within += length;
            if self.within == piece.len() {
                (self.piece, self.within) = (self.piece + 1, 0);
            }
        }
    }
}

/// An edit without the begin and the end that it does not change.
fn trimmed(original: &str, edit: &TextEdit) -> Option<TextEdit> {
    let old = &original[edit.span.range()];
    let shared = |a: &mut dyn Iterator<Item = (char, char)>| {
        a.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>()
    };
    let head = shared(&mut old.chars().zip(edit.text.chars()));
    let (rest_old, rest_new) = (&old[head..], &edit.text[head..]);
    let tail = shared(&mut rest_old.chars().rev().zip(rest_new.chars().rev()));
    let span = edit.span.range();
    let text = rest_new[..rest_new.len() - tail].to_owned();
    let span = span.start + head..span.end - tail;
    (!span.is_empty() || !text.is_empty())
        .then(|| TextEdit { span: Span::new(span.start, span.end), text })
}
