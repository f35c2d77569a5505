//! Redaction of sensitive values: `sensitive` of a step points into its arguments and its output,
//! and the input schema marks inputs of a composition.
//!
//! The run needs the values, so its state holds them while it runs. Every stored entry and every
//! view is redacted, wherever else the values went. A run that is loaded from its journal no longer
//! has them, and reports it where one is needed.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::journal::{Entry, Fact, Failure, NodeId, Started};
use super::state::RunState;
use crate::composition::StepKind;
use crate::diagnostic::Code;
use crate::expr::{Ast, AstKind, ExprRoot, Template};
use crate::limits::Limits;
use crate::plan::{BodyIndex, Plan};
use crate::schema::escape;
use crate::secret::SecretFinder;
use crate::value::{Map, SENSITIVE, Shared, Value};
use crate::view::RunView;

/// The replacement of a sensitive value in recorded tests, where a replay must not treat it as a redacted value.
pub const REDACTED: &str = "redacted";

/// The hint for a redacted value.
pub(super) const FORGOTTEN_HINT: &str = "run it again from the step that gives the value";

/// Shorter texts occur everywhere, so they are redacted only where a pointer marks them.
const TEXT_BYTES_MIN: usize = 4;

/// Sensitive values.
#[derive(Debug, Default)]
pub(super) struct SecretValues {
    texts: BTreeSet<Arc<str>>,
    /// The same, in every encoding in which they may return.
    finder: SecretFinder,
    /// Numbers, as text.
    numbers: BTreeSet<String>,
    /// The total size of both.
    bytes: usize,
}

impl SecretValues {
    /// Learns the values that the pointers mark.
    pub(super) fn learn(&mut self, pointers: &[Arc<str>], value: &Value) {
        let mut texts = Vec::new();
        for pointer in pointers {
            if let Some(found) = at(value, pointer) {
                self.learn_all(found, &mut texts);
            }
        }
        self.finder.add_all(texts);
    }

    /// Learns numbers, and returns texts that are new.
    fn learn_all(&mut self, value: &Value, texts: &mut Vec<Arc<str>>) {
        match value {
            Value::String(text) if text.len() >= TEXT_BYTES_MIN && &**text != SENSITIVE => {
                texts.extend(self.is_new(text).then(|| text.clone()));
            }
            Value::Number(number) => {
                let written = number.to_string();
                let bytes = written.len();
                if bytes >= TEXT_BYTES_MIN && self.numbers.insert(written) {
                    self.bytes += bytes;
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn_all(item, texts)),
            Value::Object(members) => {
                members.values().for_each(|member| self.learn_all(member, texts));
            }
            _ => {}
        }
    }

    /// Whether the limits allow the marked values too; the error says why not.
    pub(super) fn room_for(
        &self,
        pointers: &[Arc<str>],
        value: &Value,
        limits: &Limits,
    ) -> Result<(), String> {
        let mut sum = (self.texts.len() + self.numbers.len(), self.bytes);
        let pointed = pointers.iter().filter_map(|pointer| at(value, pointer));
        pointed.for_each(|value| count(value, &mut sum));
        let (texts_max, bytes_max) = (limits.sensitive_texts_max, limits.sensitive_bytes_max);
        match sum {
            _ if pointers.is_empty() => Ok(()),
            (texts, _) if texts > texts_max => {
                Err(format!("this run has more than {texts_max} sensitive texts and numbers"))
            }
            (_, bytes) if bytes > bytes_max => {
                Err(format!("the sensitive values of this run take more than {bytes_max} bytes"))
            }
            _ => Ok(()),
        }
    }

    fn learn_texts(&mut self, texts: impl IntoIterator<Item = Arc<str>>) {
        let new = texts.into_iter().filter(|text| self.is_new(text)).collect();
        self.finder.add_all(new);
    }

    fn is_new(&mut self, text: &Arc<str>) -> bool {
        let is_new = self.texts.insert(text.clone());
        self.bytes += if is_new { text.len() } else { 0 };
        is_new
    }

    /// The redacted text; `None` if it contains nothing sensitive.
    pub(super) fn text(&self, text: &str) -> Option<String> {
        let clean = self.finder.replace(text, SENSITIVE);
        if self.numbers.is_empty() {
            return clean;
        }
        without_numbers(clean.as_deref().unwrap_or(text), &self.numbers).or(clean)
    }

    /// Redacts every text and number of a value.
    pub(super) fn value(&self, value: &Value) -> Value {
        self.value_with(value, &Value::from(SENSITIVE))
    }

    /// The same with another replacement for numbers.
    fn value_with(&self, value: &Value, number: &Value) -> Value {
        if self.texts.is_empty() && self.numbers.is_empty() {
            return value.clone();
        }
        let clean = value.map_texts(&|text| self.text(text)).unwrap_or_else(|| value.clone());
        if self.numbers.is_empty() { clean } else { self.without_number(&clean, number) }
    }

    fn without_number(&self, value: &Value, instead: &Value) -> Value {
        match value {
            Value::Number(number) if self.numbers.contains(&number.to_string()) => instead.clone(),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.without_number(item, instead));
                items.collect::<Vec<_>>().into()
            }
            Value::Object(members) => {
                let clean = |(name, member): (&Arc<str>, &Value)| {
                    (name.clone(), self.without_number(member, instead))
                };
                members.iter().map(clean).collect::<Map>().into()
            }
            other => other.clone(),
        }
    }

    fn map(&self, map: &Map) -> Map {
        map.iter().map(|(name, value)| (name.clone(), self.value(value))).collect()
    }
}

impl RunState {
    /// A redacted value for a recorded test.
    pub(super) fn redact_value(&self, value: &Value) -> Value {
        let clean = self.sensitive.value_with(value, &Value::from(0));
        let mark = |text: &str| text.contains(SENSITIVE).then(|| text.replace(SENSITIVE, REDACTED));
        clean.map_texts(&mark).unwrap_or(clean)
    }

    /// The redacted arguments or output of a step.
    pub(super) fn redact_step_value(&self, node: NodeId, value: &Value) -> Value {
        let mut clean = value.clone();
        for pointer in &self.step(node).sensitive {
            redact_at(&mut clean, pointer);
        }
        self.sensitive.value(&clean)
    }

    /// The redacted input of a composition.
    pub(super) fn redact_input(&self, plan: &Plan, input: &Value) -> Value {
        let mut clean = input.clone();
        if self.has_sensitive {
            origins(plan).input.iter().for_each(|pointer| redact_at(&mut clean, pointer));
        }
        self.sensitive.value(&clean)
    }

    /// The redacted parameters of a run.
    fn redact_start(&self, started: &Started) -> Started {
        let mut clean = started.clone();
        clean.input = self.redact_input(&self.plan, &started.input);
        let from_context = origins(&self.plan).context;
        from_context.iter().for_each(|pointer| redact_at(&mut clean.context, pointer));
        clean.context = self.sensitive.value(&clean.context);
        clean
    }

    /// Adds sensitive texts.
    pub(super) fn add_secret_texts(&mut self, texts: Vec<String>) {
        self.has_sensitive |= !texts.is_empty();
        self.sensitive.learn_texts(texts.into_iter().map(Arc::from));
    }

    /// Learns the sensitive parts of a step's value.
    pub(super) fn learn(&mut self, node: NodeId, value: &Value) {
        if self.has_sensitive {
            let step = self.step(node).clone();
            self.sensitive.learn(&step.sensitive, value);
        }
    }

    /// Learns the sensitive parts of a composition's input.
    pub(super) fn learn_input(&mut self, plan: &Plan, input: &Value) {
        if self.has_sensitive {
            self.sensitive.learn(&origins(plan).input, input);
        }
    }

    /// The same for the parameters of a run.
    pub(super) fn learn_start(&mut self, started: &Started) {
        // A value that was redacted at the start of the run is missing after a resume.
        self.has_sensitive =
            self.has_sensitive || started.input.is_marked() || started.context.is_marked();
        if self.has_sensitive {
            let SensitiveSources { input, context } = origins(&self.plan);
            self.sensitive.learn(&input, &started.input);
            self.sensitive.learn(&context, &started.context);
        }
    }

    /// Redacts a view. The output, which the author chose, stays.
    pub(super) fn redact_view(&self, view: &mut RunView) {
        if !self.has_sensitive {
            return;
        }
        let mut results = (*view.results).clone();
        for node in self.nodes_of(0) {
            let (step, record) = (self.step(node), self.step_state(node));
            let key = step.output_key.as_ref().map_or(&step.id, |(key, _)| key);
            if let (Some(shown), Some(output)) = (results.get_mut(key), record.node.output()) {
                *shown = self.redact_step_value(node, output);
            }
        }
        view.results = Shared::new(self.sensitive.map(&results));
        view.state = self.sensitive.map(&view.state);
        let has_own_output = self.plan_of(0).composition.output.is_some();
        if !has_own_output && matches!(view.output, Value::Object(_)) {
            view.output = Value::Object(view.results.clone());
        }
        for step in &mut view.steps {
            step.input = self.sensitive.value(&step.input);
        }
        let of_steps = view.steps.iter_mut().filter_map(|step| step.error.as_mut());
        for error in view.errors.iter_mut().chain(of_steps) {
            if let Some(message) = self.sensitive.text(&error.message) {
                error.message = message;
            }
        }
    }

    /// The redacted entries.
    pub(super) fn redacted<'a>(&self, entries: &'a [Entry]) -> Cow<'a, [Entry]> {
        if !self.has_sensitive {
            return Cow::Borrowed(entries);
        }
        let clean = |entry: &Entry| {
            let fact = self.redacted_fact(&entry.fact);
            Entry { seq: entry.seq, at_ms: entry.at_ms, fact }
        };
        Cow::Owned(entries.iter().map(clean).collect())
    }

    fn redacted_fact(&self, fact: &Fact) -> Fact {
        let failure = |failure: &Arc<Failure>| match self.sensitive.text(&failure.message) {
            None => failure.clone(),
            Some(message) => Arc::new(Failure { message: message.into(), ..(**failure).clone() }),
        };
        let mut fact = fact.clone();
        let node = fact.node();
        let own = |value: &mut Value| {
            if let Some(node) = node {
                *value = self.redact_step_value(node, value);
            }
        };
        match &mut fact {
            Fact::Started(started) => **started = self.redact_start(started),
            Fact::Entered { node, candidate, input } => {
                own(input);
                if let Some(plan) = self.planned(*node).nested.get(candidate) {
                    *input = self.redact_input(plan, input);
                }
            }
            Fact::RollbackEntered { node, input } => {
                own(input);
                let candidate = self.step_state(*node).candidate;
                if let Some(plan) = self.planned(*node).rollback_plans.get(&candidate) {
                    *input = self.redact_input(plan, input);
                }
            }
            Fact::Expanded { plan, input, .. } => *input = self.redact_input(plan, input),
            Fact::Called { args, .. }
            | Fact::Asked { args, .. }
            | Fact::RollbackCalled { args, .. }
            | Fact::Expanding { document: args, .. } => own(args),
            Fact::HandleReceived { handle, .. } => *handle = self.sensitive.value(handle),
            Fact::Probed { args, failure: why, .. } => {
                own(args);
                *why = failure(why);
            }
            Fact::Succeeded { output, given, .. }
            | Fact::Reused { output, given, .. }
            | Fact::Pinned { output, given, .. } => {
                own(output);
                *given = given.as_ref().map(|given| Shared::new(self.sensitive.map(given)));
            }
            Fact::Tolerated { output, failure: why, .. } => {
                own(output);
                *why = failure(why);
            }
            Fact::Looped { items, .. } => {
                *items = Shared::new(items.iter().map(|item| self.sensitive.value(item)).collect());
            }
            Fact::Opened { item: Some(item), .. } => item.value = self.sensitive.value(&item.value),
            Fact::BackedOff { failure: why, .. }
            | Fact::GaveUp { failure: why, .. }
            | Fact::Doubted { failure: why, .. }
            | Fact::Failed { failure: why, .. }
            | Fact::TimedOut { failure: why, .. }
            | Fact::FailureDecided { failure: why, .. }
            | Fact::AttemptRollbackStarted { failure: why, .. }
            | Fact::Stopped { failure: why, .. }
            | Fact::RollbackStarted { failure: why, .. }
            | Fact::RollbackBackedOff { failure: why, .. }
            | Fact::RollbackFailed { failure: why, .. } => *why = failure(why),
            Fact::Finished { output, failure: why, .. } => {
                *output = self.sensitive.value(output);
                *why = why.as_ref().map(failure);
            }
            _ => {}
        }
        fact
    }

    /// Whether a part of a value was redacted.
    pub(super) fn has_redacted_part(&self, value: &Value) -> bool {
        self.has_sensitive && value.is_marked()
    }

    /// Why a value cannot be used: a part of it was redacted.
    pub(super) fn redacted_failure(&self, value: &Value) -> Option<Failure> {
        self.has_redacted_part(value).then(|| {
            let message = "it needs a sensitive value that was not stored when the run stopped";
            let mut failure = Failure::permanent(Code::PolicyViolation, message);
            failure.hint = Some(FORGOTTEN_HINT.into());
            failure
        })
    }
}

/// Counts the texts and numbers in a value, and their bytes.
fn count(value: &Value, sum: &mut (usize, usize)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| count(item, sum)),
        Value::Object(members) => members.values().for_each(|member| count(member, sum)),
        Value::String(text) => *sum = (sum.0 + 1, sum.1 + text.len()),
        Value::Number(number) => *sum = (sum.0 + 1, sum.1 + number.to_string().len()),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Whether the limits allow the sensitive values in the parameters of a run.
pub(super) fn room_for_start(
    plan: &Plan,
    input: &Value,
    context: &Value,
    limits: &Limits,
) -> Result<(), String> {
    if !has_sensitive(plan) {
        return Ok(());
    }
    let (nothing, origins) = (SecretValues::default(), origins(plan));
    nothing.room_for(&origins.input, input, limits)?;
    nothing.room_for(&origins.context, context, limits)
}

/// The text with whole numbers redacted; `None` if there are none.
fn without_numbers(text: &str, numbers: &BTreeSet<String>) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut clean, mut at, mut start) = (String::new(), 0, 0);
    while start < bytes.len() {
        let is_inside = start > 0 && bytes[start - 1].is_ascii_digit();
        let ends = if is_inside { [None; 4] } else { ends_of_number(bytes, start) };
        let known = |end: &usize| numbers.contains(&text[start..*end]);
        match ends.into_iter().flatten().rev().find(known) {
            Some(end) => {
                clean.push_str(&text[at..start]);
                clean.push_str(SENSITIVE);
                (at, start) = (end, end);
            }
            None => start += 1,
        }
    }
    (at > 0).then(|| clean + &text[at..])
}

/// The possible ends of a number that begins at an offset, shortest first: after its digits, its
/// fraction, and an exponent after either. None is between digits.
fn ends_of_number(bytes: &[u8], start: usize) -> [Option<usize>; 4] {
    let digits = |from: usize| {
        let count = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then_some(from + count)
    };
    let is = |at: usize, signs: &[u8]| bytes.get(at).is_some_and(|byte| signs.contains(byte));
    let after = |at: usize, signs: &[u8]| is(at, signs).then(|| at + 1);
    let exponent = |at: usize| {
        let at = after(at, b"eE")?;
        digits(after(at, b"+-").unwrap_or(at))
    };
    let whole = digits(after(start, b"-").unwrap_or(start));
    let fraction = whole.and_then(|at| digits(after(at, b".")?));
    [whole, whole.and_then(exponent), fraction, fraction.and_then(exponent)]
}

/// Redacts the view of a dry run: its input, and the arguments of its steps.
pub(super) fn redact_preview(plan: &Plan, started: &Started, view: &mut RunView) {
    if !has_sensitive(plan) {
        return;
    }
    let (mut sensitive, origins) = (SecretValues::default(), origins(plan));
    sensitive.learn(&origins.input, &started.input);
    sensitive.learn(&origins.context, &started.context);
    for (step, pointers) in view.steps.iter_mut().zip(shown_pointers(plan, 0)) {
        sensitive.learn(&pointers, &step.input);
        pointers.iter().for_each(|pointer| redact_at(&mut step.input, pointer));
    }
    for step in &mut view.steps {
        step.input = sensitive.value(&step.input);
    }
}

/// The sensitive pointers of the steps of a body, in the order of a dry run's view.
fn shown_pointers(plan: &Plan, body: BodyIndex) -> Vec<Vec<Arc<str>>> {
    let mut shown = Vec::new();
    for planned in plan.steps_of(body) {
        let mut pointers = planned.step.sensitive.clone();
        pointers.extend(planned.nested.get(&0).into_iter().flat_map(|it| origins(it).input));
        shown.push(pointers);
        shown.extend(planned.bodies.iter().flat_map(|inner| shown_pointers(plan, *inner)));
    }
    shown
}

/// Whether a plan, or an inner one, marks anything as sensitive.
pub(super) fn has_sensitive(plan: &Plan) -> bool {
    let input = plan.composition.input.as_ref();
    if input.is_some_and(|schema| !schema.sensitive().is_empty()) {
        return true;
    }
    plan.steps.iter().any(|planned| {
        let inside = planned.nested.values().chain(planned.rollback_plans.values());
        !planned.step.sensitive.is_empty() || inside.into_iter().any(|plan| has_sensitive(plan))
    })
}

/// The sources of a composition's sensitive values: JSON Pointers into its input and context.
#[derive(Default)]
struct SensitiveSources {
    input: Vec<Arc<str>>,
    context: Vec<Arc<str>>,
}

/// The parts of the input that the schema marks, and the parts that steps pass unchanged to
/// sensitive parameters.
fn origins(plan: &Plan) -> SensitiveSources {
    let mut found = SensitiveSources::default();
    if let Some(schema) = &plan.composition.input {
        found.input.extend_from_slice(schema.sensitive());
    }
    for planned in &plan.steps {
        let StepKind::Tool(call) = &planned.step.kind else { continue };
        let candidates = std::iter::once(call).chain(&planned.step.fallback);
        for (candidate, call) in (0_u16..).zip(candidates) {
            let mut pointers = planned.step.sensitive.clone();
            if let Some(nested) = planned.nested.get(&candidate) {
                pointers.extend(origins(nested).input);
            }
            for pointer in &pointers {
                if let Some(part) = inside(&call.parameters.template, pointer) {
                    part.exprs(&mut |expr| found.add(expr.ast()));
                }
            }
        }
    }
    found
}

impl SensitiveSources {
    /// Adds the target of a plain path into the input or the context.
    fn add(&mut self, path: &Ast) {
        let mut parts = Vec::new();
        let mut at = path;
        let into = loop {
            match &at.kind {
                AstKind::Field(base, name) => {
                    parts.push(name.clone());
                    at = base;
                }
                // The state of a chain starts with its input.
                AstKind::Name { root: ExprRoot::Input | ExprRoot::State, .. } => {
                    break &mut self.input;
                }
                AstKind::Name { root: ExprRoot::InputField(name), .. } => {
                    parts.push(name.clone());
                    break &mut self.input;
                }
                AstKind::Name { root: ExprRoot::Context, .. } => break &mut self.context,
                _ => return,
            }
        };
        if !parts.is_empty() {
            let escaped = |part: &Arc<str>| format!("/{}", escape(part));
            into.push(parts.iter().rev().map(escaped).collect::<String>().into());
        }
    }
}

/// The part of a template at a JSON Pointer.
fn inside<'a>(template: &'a Template, pointer: &str) -> Option<&'a Template> {
    parts(pointer).try_fold(template, |at, part| match at {
        Template::Object(members) => {
            members.iter().find(|(name, _)| **name == *part).map(|(_, member)| member)
        }
        Template::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The value at a JSON Pointer.
fn at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    parts(pointer).try_fold(value, |at, part| match at {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        other => other.get(&part),
    })
}

/// Replaces the value at a pointer with the mark.
fn redact_at(value: &mut Value, pointer: &str) {
    value.replace_at(pointer, &|_| Value::from(SENSITIVE));
}

fn parts(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(texts: impl Iterator<Item = String>) -> Value {
        Value::from(texts.map(Value::from).collect::<Vec<_>>())
    }

    fn learned(value: &Value) -> SecretValues {
        let mut sensitive = SecretValues::default();
        sensitive.learn(&["/all".into()], &Value::object([("all", value.clone())]));
        sensitive
    }

    /// Learning and finding the maximum number of secrets takes time in proportion to their total
    /// size, not to their number times the number of texts: this test would not end.
    #[test]
    fn many_secrets_are_found_in_many_texts() {
        const MANY: usize = 20_000;
        let secret = |n: usize| format!("secret-{n:06}-token");
        let alike = |n: usize| format!("{}{n:06}", "a".repeat(20));
        for secrets in [listed((0..MANY).map(secret)), listed((0..MANY).map(alike))] {
            let sensitive = learned(&secrets);
            let texts = secrets.as_array().unwrap().iter();
            let around = listed(texts.map(|text| format!("<{}>", text.as_str().unwrap())));
            let clean = sensitive.value(&around);
            let marked = Value::from(format!("<{SENSITIVE}>"));
            assert!(clean.as_array().unwrap().iter().all(|text| *text == marked));
        }
        let others = listed((0..MANY).map(|n| format!("nothing-{n:06} here")));
        assert_eq!(learned(&listed((0..MANY).map(secret))).value(&others), others);
    }

    /// The same for numbers, wherever they are whole numbers.
    #[test]
    fn many_numbers_are_found_in_many_texts() {
        const MANY: i64 = 50_000;
        let numbers = Value::from((100_000..100_000 + MANY).map(Value::from).collect::<Vec<_>>());
        let sensitive = learned(&numbers);
        let text = |n: i64| format!("at {n}, not 1{n} nor {n}1");
        let clean = sensitive.value(&listed((100_000..100_000 + MANY).map(text)));
        let expected =
            (100_000..100_000 + MANY).map(|n| format!("at {SENSITIVE}, not 1{n} nor {n}1"));
        assert_eq!(clean, listed(expected));
    }

    #[test]
    fn numbers_are_found_in_every_spelling_that_json_has() {
        for (number, text, expected) in [
            ("1234", "1234", "X"),
            ("1234", "-1234 1234. 1234.5 .1234 1234e5", "-X X. X.5 .X Xe5"),
            ("1234", "12345 01234 a1234b", "12345 01234 aXb"),
            ("-12.5", "-12.5 12.5 --12.5 -12.50 1-12.5", "X 12.5 -X -12.50 1-12.5"),
            ("12.5", "12.5.12.5 12.5e7", "X.X Xe7"),
            ("1e400", "1e400 1e4000 1e400.5", "X 1e4000 X.5"),
            ("1.5e-400", "1.5e-400 21.5e-400", "X 21.5e-400"),
            ("18446744073709551616", "é18446744073709551616é", "éXé"),
        ] {
            let number = Value::Number(crate::value::Number::from_literal(number));
            let clean = learned(&number).value(&Value::from(text));
            assert_eq!(clean, Value::from(expected.replace('X', SENSITIVE)), "{number} in {text}");
        }
    }
}
