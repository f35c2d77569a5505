//! The lines that an edit may change, from the places of the steps in the tree. All others must stay.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::document::{Node, NodeKind, ReadLimits, read};
use segue_core::language::edit::Edit;
use segue_core::limits::Limits;
use segue_core::source::Source;

use crate::model::{Way, place_of, steps, way_of};

/// The lines of the original that the edit does not concern and that the result lacks, or has in another
/// order.
pub(crate) fn missing_lines(source: &Source, edit: &Edit, after: &str) -> Vec<String> {
    let declared = Declared::of(source, edit);
    let mut rest = after.split_inclusive('\n').map(unended);
    let mut missing = Vec::new();
    for (number, line) in source.text().split_inclusive('\n').enumerate() {
        let line = unended(line);
        if declared.lines.contains(&number) {
            continue;
        }
        let mut ahead = rest.clone();
        if ahead.any(|other| other == line) {
            rest = ahead;
        } else {
            missing.push(format!("{number}: {line:?}"));
        }
    }
    missing
}

/// A line without its ending, which the last one may lack.
fn unended(line: &str) -> &str {
    line.trim_end_matches(['\n', '\r'])
}

struct Declared<'s> {
    source: &'s Source,
    root: Node,
    lines: BTreeSet<usize>,
}

impl Declared<'_> {
    fn of<'s>(source: &'s Source, edit: &Edit) -> Declared<'s> {
        let root = read(source, ReadLimits::for_documents(&Limits::default())).unwrap();
        let mut declared = Declared { source, root, lines: BTreeSet::new() };
        declared.edit(edit);
        declared
    }

    fn edit(&mut self, edit: &Edit) {
        let value = self.root.to_value();
        match edit {
            Edit::AddStep { place, .. } => {
                let (list, at) = place_of(&value, place).unwrap();
                self.gap(&list, at);
            }
            Edit::RemoveStep { step } => {
                let way = way_of(&value, step).unwrap();
                self.item(&way);
                let inside: Vec<Arc<str>> = steps(&value)
                    .into_iter()
                    .filter(|(_, inner)| inner.starts_with(&way))
                    .map(|(id, _)| id)
                    .collect();
                for (_, other) in steps(&value) {
                    self.dependencies(&other, &inside);
                }
            }
            Edit::MoveStep { step, place } => {
                self.item(&way_of(&value, step).unwrap());
                let (list, at) = place_of(&value, place).unwrap();
                self.gap(&list, at);
            }
            Edit::RenameStep { step, .. } => {
                self.item_line(&way_of(&value, step).unwrap());
                self.lines_with(step);
            }
            Edit::DuplicateStep { step, .. } => {
                let mut list = way_of(&value, step).unwrap();
                let at: usize = list.pop().unwrap().parse().unwrap();
                self.gap(&list, at + 1);
            }
            Edit::SetField { step, field, .. } | Edit::ClearField { step, field } => {
                let mut way = match step {
                    Some(step) => way_of(&value, step).unwrap(),
                    None => base(&value),
                };
                way.extend(field.split('/').skip(1).map(str::to_owned));
                self.member(&way);
            }
            Edit::Connect { to, reference, .. } => {
                let mut way = way_of(&value, to).unwrap();
                match reference {
                    Some(reference) => {
                        way.extend(reference.field.split('/').skip(1).map(str::to_owned))
                    }
                    None => way.push("depends_on".to_owned()),
                }
                self.member(&way);
            }
            Edit::Disconnect { from, to } => {
                let way = way_of(&value, to).unwrap();
                self.dependencies(&way, &[from.clone()]);
                // Fields that are nothing but a reference, and what surrounds them if they were alone.
                self.references(&way, from);
            }
            Edit::Wrap { steps, .. } => {
                for step in steps {
                    self.item(&way_of(&value, step).unwrap());
                }
            }
            Edit::Extract { steps, .. } => {
                for step in steps {
                    let way = way_of(&value, step).unwrap();
                    self.item(&way);
                }
                let inside: Vec<Arc<str>> = crate::model::steps(&value)
                    .into_iter()
                    .filter(|(_, way)| {
                        steps.iter().any(|step| way.starts_with(&way_of(&value, step).unwrap()))
                    })
                    .map(|(id, _)| id)
                    .collect();
                let names: Vec<Arc<str>> = inside.clone();
                for name in names {
                    self.lines_with(&name);
                }
                self.lines_with("{{");
            }
            Edit::ChangeKind { step, .. } => self.item(&way_of(&value, step).unwrap()),
        }
    }

    fn node(&self, way: &[String]) -> Option<&Node> {
        way.iter().try_fold(&self.root, |node, part| match &node.kind {
            NodeKind::Array(items) => items.get(part.parse::<usize>().ok()?),
            _ => node.get(part),
        })
    }

    fn text(&self) -> &str {
        self.source.text()
    }

    fn line_of(&self, at: u32) -> usize {
        self.text().bytes().take(at as usize).filter(|&byte| byte == b'\n').count()
    }

    fn line(&self, number: usize) -> &str {
        self.text().split('\n').nth(number).unwrap_or("")
    }

    fn is_bracketed(&self, node: &Node) -> bool {
        self.source.slice(node.span).starts_with(['{', '['])
    }

    /// The last line of a value, which may be an empty one.
    fn last_line(&self, node: &Node) -> usize {
        self.line_of(node.span.end.max(node.span.start + 1) - 1)
    }

    fn add(&mut self, from: usize, to: usize) {
        self.lines.extend(from..=to);
    }

    /// The lines of an item with its comments and blank lines; the lines of its neighbours where brackets
    /// or the only item make them change.
    fn item(&mut self, way: &[String]) {
        let (last, list_way) = way.split_last().unwrap();
        let at: usize = last.parse().unwrap();
        let Some(node) = self.node(way).cloned() else { return };
        let list = self.node(list_way).unwrap().clone();
        let (first, end) = (self.line_of(node.span.start), self.last_line(&node));
        self.add(first, end);
        self.around(first, end);
        if self.is_bracketed(&list) {
            self.gap(list_way, at);
            self.gap(list_way, at + 1);
        }
        if list.items().len() == 1 {
            self.key_line(list_way);
            if self.is_bracketed(&list) {
                // The brackets come together on one line.
                let last = self.last_line(&list);
                self.add(last, last);
            }
        }
    }

    fn item_line(&mut self, way: &[String]) {
        let Some(node) = self.node(way) else { return };
        let line = self.line_of(node.span.start);
        self.add(line, line);
    }

    /// Comments and blank lines directly above and below.
    fn around(&mut self, first: usize, end: usize) {
        let is_loose = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let mut above = first;
        // A dash may stand on a line of its own.
        while above > 0 && (is_loose(self.line(above - 1)) || self.line(above - 1).trim() == "-") {
            above -= 1;
        }
        let indent = |line: &str| line.len() - line.trim_start().len();
        let own = indent(self.line(first));
        let mut below = end;
        let count = self.text().split('\n').count();
        while below + 1 < count {
            let line = self.line(below + 1).to_owned();
            let is_comment = line.trim_start().starts_with('#') && indent(&line) > own;
            if !is_comment && !line.trim().is_empty() {
                break;
            }
            below += 1;
        }
        self.only_own_comments(above, first);
        self.add(end, below);
    }

    /// Of the lines above an item, its comments and one group of blank lines, but no comments beyond.
    fn only_own_comments(&mut self, above: usize, first: usize) {
        let mut line = first;
        let mut was_blank = false;
        while line > above {
            line -= 1;
            let text = self.line(line).trim().to_owned();
            if text.is_empty() {
                was_blank = true;
            } else if was_blank {
                return;
            }
            self.add(line, line);
        }
    }

    /// Lines that change when something is inserted at a position of a list.
    fn gap(&mut self, list_way: &[String], at: usize) {
        let list = self.node(list_way).unwrap().clone();
        let items = list.items();
        if items.is_empty() {
            let line = self.line_of(list.span.start);
            return self.add(line, line);
        }
        if !self.is_bracketed(&list) {
            let is_own_line = |line: &str, column: usize| line[..column].trim().is_empty();
            let start = list.span.start as usize;
            let column = start - self.text()[..start].rfind('\n').map_or(0, |newline| newline + 1);
            let line = self.line_of(list.span.start);
            if !is_own_line(self.line(line), column) {
                self.add(line, line);
            }
            return;
        }
        let before = at.checked_sub(1).and_then(|before| items.get(before)).cloned();
        let beside = [before, items.get(at).cloned()];
        for (number, node) in beside.into_iter().enumerate() {
            let Some(node) = node else { continue };
            let line =
                if number == 0 { self.last_line(&node) } else { self.line_of(node.span.start) };
            if number == 0 || !self.begins_line(&node) {
                self.add(line, line);
            }
        }
    }

    fn begins_line(&self, node: &Node) -> bool {
        let start = node.span.start as usize;
        let line = self.text()[..start].rfind('\n').map_or(0, |newline| newline + 1);
        self.text()[line..start].trim().is_empty() && line > 0
    }

    fn key_line(&mut self, way: &[String]) {
        let Some((last, outer)) = way.split_last() else { return };
        let Some(node) = self.node(outer) else { return };
        let line = self.line_of(node.key_span(last).start);
        self.add(line, line);
    }

    /// Lines that change when a member is set, added or removed.
    fn member(&mut self, way: &[String]) {
        if let Some(node) = self.node(way).cloned() {
            let (last, outer_way) = way.split_last().unwrap();
            let outer = self.node(outer_way).unwrap().clone();
            let first = match &outer.kind {
                NodeKind::Object(_) => self.line_of(outer.key_span(last).start),
                _ => self.line_of(node.span.start),
            };
            let end = self.last_line(&node).max(first);
            self.add(first, end);
            self.around(first, end);
            let count = outer.members().len().max(outer.items().len());
            if count == 1 {
                self.key_line(outer_way);
                let (start, end) = (self.line_of(outer.span.start), self.last_line(&outer));
                self.add(start, end);
            }
            if self.is_bracketed(&outer) {
                self.neighbours(&outer);
            } else if outer.members().first().is_some_and(|member| *member.key == **last) {
                // The next member moves up to the dash.
                let next = outer.members().get(1).map(|member| self.line_of(member.key_span.start));
                self.lines.extend(next);
            }
            return;
        }
        let mut outer = way;
        while let Some((_, shorter)) = outer.split_last() {
            outer = shorter;
            if let Some(node) = self.node(outer).cloned() {
                if self.is_bracketed(&node) {
                    self.neighbours(&node);
                } else if node.members().is_empty() {
                    self.key_line(outer);
                }
                return;
            }
        }
    }

    /// The lines of the ends of members in brackets: commas stand there.
    fn neighbours(&mut self, node: &Node) {
        let ends: Vec<usize> = node
            .members()
            .iter()
            .map(|member| &member.value)
            .chain(node.items())
            .map(|child| self.last_line(child))
            .collect();
        self.lines.extend(ends);
        let (start, end) = (self.line_of(node.span.start), self.last_line(node));
        if start == end || node.members().is_empty() {
            self.add(start, end);
        }
    }

    fn dependencies(&mut self, step: &Way, ids: &[Arc<str>]) {
        let mut way = step.clone();
        way.push("depends_on".to_owned());
        let Some(node) = self.node(&way).cloned() else { return };
        let named = |node: &Node| node.as_str().is_some_and(|id| ids.contains(id));
        if named(&node) || node.items().iter().any(named) {
            self.member(&way);
        }
    }

    /// Lines of the fields of a step that are nothing but a reference.
    fn references(&mut self, way: &[String], from: &str) {
        let Some(node) = self.node(way).cloned() else { return };
        let is_reference =
            node.as_str().is_some_and(|text| text.contains("{{") || text.contains(from));
        if is_reference {
            return self.member(way);
        }
        for member in node.members() {
            let mut inner = way.to_vec();
            inner.push(member.key.to_string());
            self.references(&inner, from);
        }
        for number in 0..node.items().len() {
            let mut inner = way.to_vec();
            inner.push(number.to_string());
            self.references(&inner, from);
        }
    }

    fn lines_with(&mut self, word: &str) {
        let lines = self.text().split('\n').enumerate();
        let found: Vec<usize> =
            lines.filter(|(_, line)| line.contains(word)).map(|(number, _)| number).collect();
        self.lines.extend(found);
    }
}

fn base(value: &segue_core::value::Value) -> Way {
    let is_template = value.get("steps").is_none() && value.get("composition").is_some();
    if is_template { vec!["composition".to_owned()] } else { Vec::new() }
}
