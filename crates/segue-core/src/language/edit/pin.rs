//! Keeps the output of a step as a mock in the text of a test file.

use super::draft::EditDraft;
use super::insert::Slot;
use super::path;
use crate::compile::contained;
use crate::compile::dialect::grammar::TEST_FILE;
use crate::diagnostic::Code;
use crate::document::{self, NodeKind, ReadLimits, to_yaml};
use crate::language::{EditError, TextEdit};
use crate::limits::Limits;
use crate::source::{Source, Span};
use crate::value::Value;

/// The edits of a test file after which a step, named by its id or by its path in bodies, answers every
/// call with an output. An answer that it had before is replaced. An empty text becomes a test file of
/// the composition, with one test whose other tools answer samples of their schemas.
pub fn pin(
    test: &Source,
    composition: &str,
    step: &str,
    output: &Value,
    limits: &Limits,
) -> Result<Vec<TextEdit>, EditError> {
    if step.is_empty() {
        return Err(EditError::new(Code::InvalidField, "no step is named"));
    }
    let answer = Value::object([("returns", output.clone())]);
    if test.text().trim().is_empty() {
        let text = to_yaml(&new_file(composition, step, &answer));
        return Ok(vec![TextEdit { span: Span::new(0, test.text().len()), text }]);
    }
    let change = || pin_in_file(test, step, &answer, limits);
    contained(change).unwrap_or_else(|fault| Err(EditError::new(fault.code, fault.message)))
}

fn new_file(composition: &str, step: &str, answer: &Value) -> Value {
    let test = Value::object([
        ("name", Value::from("the composition succeeds with the kept outputs")),
        ("strict", Value::Bool(false)),
    ]);
    Value::object([
        ("composition", Value::from(composition)),
        ("tools", Value::object([(step, answer.clone())])),
        ("tests", vec![test].into()),
    ])
}

fn pin_in_file(
    test: &Source,
    step: &str,
    answer: &Value,
    limits: &Limits,
) -> Result<Vec<TextEdit>, EditError> {
    let root = document::read(test, ReadLimits::for_documents(limits)).map_err(|findings| {
        let message = findings.into_iter().map(|finding| finding.message).next();
        EditError::new(Code::Parse, message.unwrap_or_default())
            .help("correct the test file before you keep outputs in it")
    })?;
    let members: Vec<String> = root.members().iter().map(|member| member.key.to_string()).collect();
    let mocks = root.get("tools");
    let is_object =
        mocks.is_none_or(|mocks| matches!(mocks.kind, NodeKind::Object(_) | NodeKind::Null));
    if !matches!(root.kind, NodeKind::Object(_)) || !is_object {
        return Err(EditError::new(Code::InvalidField, "the text is no file with tests")
            .help("a file with tests has `tests`, and `tools` is an object of answers"));
    }
    let has_answers = mocks.is_some_and(|mocks| !mocks.members().is_empty());
    let has_answer = mocks.is_some_and(|mocks| mocks.get(step).is_some());
    let mut draft = EditDraft::new(test, root, limits);
    let tools = path::key(&[], "tools");
    match (members.iter().any(|name| name == "tools"), has_answers, has_answer) {
        (_, _, true) => draft.set(&path::key(&tools, step), answer)?,
        (_, true, false) => draft.add_member(&tools, Slot::Last, step, answer)?,
        (true, false, false) => draft.set(&tools, &Value::object([(step, answer.clone())]))?,
        (false, ..) => {
            let slot = slot(&members);
            draft.add_member(&[], slot, "tools", &Value::object([(step, answer.clone())]))?;
        }
    }
    Ok(draft.into_edits())
}

/// Where `tools` belongs among the members of a test file.
fn slot(members: &[String]) -> Slot {
    let rank = |name: &str| TEST_FILE.fields.iter().position(|field| field.name == name);
    let own = rank("tools");
    let before = |name: &String| rank(name) < own;
    match members.iter().rposition(before) {
        Some(at) => Slot::After(at),
        None => Slot::First,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::apply;
    use crate::testing::read_tests;

    fn pinned(text: &str, step: &str, output: &Value) -> String {
        let limits = Limits::default();
        let source = Source::new("x.test.yaml", text);
        let edits = pin(&source, "notes.yaml", step, output, &limits).unwrap();
        let text = apply(text, &edits);
        let (file, findings) = read_tests(&Source::new("x.test.yaml", text.as_str()), &limits);
        let file = file.unwrap_or_else(|| panic!("{findings:?}\n{text}"));
        assert!(file.mocks.iter().any(|mock| *mock.name.value == *step), "{text}");
        text
    }

    #[test]
    fn a_new_file_has_a_test_and_the_answer() {
        let text = pinned("", "read", &Value::object([("text", Value::from("a: b\nc"))]));
        insta::assert_snapshot!(text, @r"
        composition: notes.yaml
        tools:
          read:
            returns:
              text: |-
                a: b
                c
        tests:
          - name: the composition succeeds with the kept outputs
            strict: false
        ");
    }

    #[test]
    fn an_answer_is_added_or_replaced_and_the_rest_stays() {
        let text = "# Tests of notes.\ncomposition: notes.yaml   # here\n\ntests:\n  - name: works   # well\n";
        let once = pinned(text, "read", &Value::from(12));
        let twice = pinned(&once, "each/parse", &Value::from("0042"));
        let again = pinned(&twice, "read", &Value::object([("n", Value::from(1))]));
        insta::assert_snapshot!(again, @r#"
        # Tests of notes.
        composition: notes.yaml   # here
        tools:
          read: { returns: { n: 1 } }
          each/parse: { returns: "0042" }

        tests:
          - name: works   # well
        "#);
    }

    #[test]
    fn a_list_of_answers_becomes_one_and_other_files_are_refused() {
        let text =
            "tools: {read: [{error: no}, {returns: 1}], b: {returns: 2}}\ntests: [{name: a}]\n";
        insta::assert_snapshot!(pinned(text, "read", &Value::Null), @r"
        tools: {read: {returns: null}, b: {returns: 2}}
        tests: [{name: a}]
        ");
        let limits = Limits::default();
        for text in ["- a\n", "tools: 1\ntests: []\n", "a: [\n"] {
            let source = Source::new("x.test.yaml", text);
            assert!(pin(&source, "c", "read", &Value::Null, &limits).is_err(), "{text}");
        }
    }
}
