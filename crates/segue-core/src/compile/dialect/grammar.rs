//! The grammar of all dialects as a table of records and fields.
//!
//! The reader rejects fields that the table lacks and suggests the nearest name. The JSON Schema
//! for editors is generated from the same rows, so the two always have the same fields. A row that
//! ends in `only` belongs to one dialect; all others are shared.

use crate::composition::{Dialect, Strategy};

/// A kind of object in the language.
pub struct RecordGrammar {
    /// Its name in the JSON Schema.
    pub name: &'static str,
    /// A description in one line.
    pub doc: &'static str,
    /// Its fields, in the order in which people write them.
    pub fields: &'static [FieldGrammar],
    /// Required fields.
    pub required: &'static [&'static str],
}

/// A field of a record.
pub struct FieldGrammar {
    /// Its name.
    pub name: &'static str,
    /// The shape of its value.
    pub shape: FieldShape,
    /// Its purpose in one line.
    pub doc: &'static str,
    /// The only dialect that has the field; `None` means all dialects that have the record.
    pub only: Option<Dialect>,
}

impl RecordGrammar {
    /// The fields that a dialect has, in the order in which people write them.
    pub fn fields_in(
        &self,
        dialect: Dialect,
    ) -> impl Iterator<Item = &'static FieldGrammar> + use<> {
        self.fields.iter().filter(move |field| field.only.is_none_or(|only| only == dialect))
    }
}

/// The shape of a field's value.
pub enum FieldShape {
    /// Text.
    Text,
    /// The name of a composition.
    Name,
    /// The id of a step.
    Id,
    /// A semantic version.
    Version,
    /// `true` or `false`.
    Bool,
    /// An explicit null.
    Null,
    /// A whole number, zero or more.
    Count,
    /// A whole number; zero and less mean no bound.
    Bound,
    /// A number above zero.
    Number,
    /// Text such as `500ms`, `30s`, `2m`.
    Duration,
    /// Whole milliseconds.
    Millis,
    /// One expression.
    Condition,
    /// Any value, with `{{ … }}` in its strings.
    Template,
    /// An object with any members.
    Object,
    /// An object whose values are templates.
    Templates,
    /// An object of names.
    Names,
    /// A JSON Schema.
    Schema,
    /// One of these words.
    Words(&'static [&'static str]),
    /// An object of this kind.
    Of(&'static RecordGrammar),
    /// A list of this shape.
    List(&'static FieldShape),
    /// An object whose members all have this shape, with names that the author chooses.
    Each(&'static FieldShape),
    /// The first of these shapes that fits.
    Either(&'static [FieldShape]),
}

macro_rules! only {
    () => {
        None
    };
    ($dialect:ident) => {
        Some(Dialect::$dialect)
    };
}

macro_rules! record {
    ($vis:vis $id:ident $name:literal $doc:literal requires [$($req:literal),*] {
        $($field:literal: $shape:expr, $fdoc:literal $(only $only:ident)?;)*
    }) => {
        #[doc = $doc]
        $vis static $id: RecordGrammar = RecordGrammar {
            name: $name,
            doc: $doc,
            fields: &[$(
                FieldGrammar { name: $field, shape: $shape, doc: $fdoc, only: only!($($only)?) },
            )*],
            required: &[$($req),*],
        };
    };
}

use FieldShape::{
    Bool, Bound, Condition, Count, Duration, Each, Either, Id, List, Millis, Name, Names, Null,
    Number, Object, Of, Schema, Template, Templates, Text, Version, Words,
};

record!(pub COMPOSITION "composition" "Tools composed into one tool." requires ["name", "steps"] {
    "$schema": Text, "The schema that editors check this file against.";
    "dialect": Words(&["composition"]), "Forces the dialect.";
    "name": Name, "How the composition is called.";
    "description": Text, "What it does, for people and models.";
    "version": Version, "Its version.";
    "input": Schema, "JSON Schema of its input.";
    "parameters": List(&Of(&PARAMETER)), "Its input as a list of parameters, instead of `input`.";
    "requires": Of(&REQUIRES), "What the caller must pass and support.";
    "servers": List(&Text), "Servers whose tools are meant where other servers have a tool of the same short name.";
    "atomic": Bool, "One confirmation for the whole run.";
    "overwrites": List(&Text), "Patterns of files below the files root that a run may overwrite without asking; only compositions of the operator have this right.";
    "timeout": Duration, "For the whole run.";
    "timeout_ms": Millis, "For the whole run, in milliseconds.";
    "max_concurrency": Count, "Steps that run at once; 16 unless said otherwise.";
    "guards": Of(&GUARDS), "What it may be made of and may do.";
    "unresolved": Words(&["fail", "keep"]), "A reference without a value fails its step, or is kept as written; `fail` unless said otherwise.";
    "flow": Words(&["graph", "program"]), "Steps run as soon as their dependencies are done, or one after the other, with jumps; `graph` unless said otherwise.";
    "steps": List(&Of(&STEP)), "What it does.";
    "output": Template, "Its result; every output key with its value unless said otherwise.";
    "error_handling": Of(&ERROR_HANDLING), "Error handling.";
    "metadata": Object, "Author, tags, estimated duration and the like.";
});

record!(pub TEMPLATE "template" "A composition to start from, with a description and requirements." requires ["id", "composition"] {
    "$schema": Text, "The schema that editors check this file against.";
    "id": Name, "How it is found.";
    "name": Text, "How people call it.";
    "description": Text, "What it is good for.";
    "composition": Object, "The composition, in any dialect.";
    "metadata": Object, "Category, tags, estimated duration and the like.";
    "validation": Of(&VALIDATION), "What it needs.";
});

record!(pub VALIDATION "validation" "What a template needs." requires [] {
    "required_tools": List(&Text), "Tools that have to be there.";
    "min_version": Version, "The version of compositions that it needs at least.";
});

record!(pub CHAIN "document" "Tools composed into one tool, step by step, with jumps." requires ["name"] {
    "$schema": Text, "The schema that editors check this file against.";
    "dialect": Words(&["chain"]), "Forces the dialect.";
    "name": Name, "How the chain is called.";
    "display_name": Text, "How people call it.";
    "description": Text, "What it does, for people and models.";
    "category": Text, "Where it belongs among other tools.";
    "version": Version, "Its version.";
    "parameters": List(&Of(&PARAMETER)), "Its input; each is a name of the chain's state.";
    "input": Schema, "JSON Schema of its input, instead of `parameters`.";
    "requires": Of(&REQUIRES), "What the caller must pass and support.";
    "documentation": Of(&DOCUMENTATION), "What people should know before they use it.";
    "implementation": Of(&IMPLEMENTATION), "What it does.";
    "steps": List(&Of(&STEP)), "What it does, with `dialect: chain` in place of `implementation`.";
    "atomic": Bool, "One confirmation for the whole run.";
    "timeout": Duration, "For the whole run.";
    "timeout_ms": Millis, "For the whole run, in milliseconds.";
    "max_concurrency": Count, "Branches and items that run at once; 16 unless said otherwise.";
    "guards": Of(&GUARDS), "What it may be made of and may do.";
    "output": Template, "Its result.";
    "error_handling": Of(&ERROR_HANDLING), "Error handling.";
    "metadata": Object, "Author, tags, estimated duration and the like.";
});

record!(pub DOCUMENTATION "documentation" "What people should know of a chain." requires [] {
    "summary": Text, "What it does, step by step, and what it needs.";
});

record!(pub IMPLEMENTATION "implementation" "How a chain does its work." requires ["type", "composite"] {
    "type": Words(&["composite"]), "A chain is composed of steps.";
    "composite": Of(&COMPOSITE), "The steps.";
});

record!(pub COMPOSITE "composite" "The steps of a chain." requires ["steps"] {
    "steps": List(&Of(&STEP)), "The steps, in order unless a step has a `next`.";
});

record!(pub GUARDS "guards" "What a composition may be made of and may do." requires [] {
    "max_steps": Bound, "Steps, bodies included; 0 is no limit.";
    "allowed_tools": List(&Text), "The only tools that its steps may call.";
    "max_tool_calls": Bound, "Calls that one run may make, attempts included; 0 is no limit.";
    "timeout": Duration, "For the whole run.";
    "timeout_ms": Millis, "For the whole run, in milliseconds.";
});

record!(pub SKILL "skill" "Tools called one after the other, in the order of their ids." requires [] {
    "$schema": Text, "The schema that editors check this file against.";
    "dialect": Words(&["skill"]), "Forces the dialect.";
    "name": Name, "How the skill is called.";
    "Name": Name, "The same.";
    "description": Text, "What it does, for people and models.";
    "Description": Text, "The same.";
    "version": Version, "Its version.";
    "input": Schema, "JSON Schema of its input.";
    "parameters": List(&Of(&PARAMETER)), "Its input as a list of parameters, instead of `input`.";
    "requires": Of(&REQUIRES), "What the caller must pass and support.";
    "atomic": Bool, "One confirmation for the whole run.";
    "timeout": Duration, "For the whole run.";
    "timeout_ms": Millis, "For the whole run, in milliseconds.";
    "guards": Of(&GUARDS), "What it may be made of and may do.";
    "steps": List(&Of(&SKILL_STEP)), "What it does.";
    "Steps": List(&Of(&SKILL_STEP)), "The same.";
    "output": Template, "Its result.";
    "metadata": Object, "Author, tags, estimated duration and the like.";
});

record!(pub SKILL_STEP "skill_step" "One step of a skill." requires [] {
    "id": Id, "Its name, which decides its order.";
    "ID": Id, "The same.";
    "tool_id": Text, "The tool.";
    "toolId": Text, "The same.";
    "ToolID": Text, "The same.";
    "inputs": Either(&[Templates, Null]), "The tool's arguments.";
    "Inputs": Either(&[Templates, Null]), "The same.";
});

record!(pub PLAN "plan" "Tools to call, each after those that it depends on." requires [] {
    "$schema": Text, "The schema that editors check this file against.";
    "dialect": Words(&["plan"]), "Forces the dialect.";
    "name": Name, "How the plan is called; `plan` unless said otherwise.";
    "description": Text, "What it does, for people and models.";
    "version": Version, "Its version.";
    "query": Text, "The request in the user's words.";
    "reasoning": Text, "Why these tools were chosen.";
    "requestId": Text, "The request that the plan belongs to: `req_…`.";
    "planId": Text, "The id of the plan: `plan_…`.";
    "input": Schema, "JSON Schema of its input.";
    "parameters": List(&Of(&PARAMETER)), "Its input as a list of parameters, instead of `input`.";
    "requires": Of(&REQUIRES), "What the caller must pass and support.";
    "atomic": Bool, "One confirmation for the whole run.";
    "timeout": Duration, "For the whole run.";
    "timeout_ms": Millis, "For the whole run, in milliseconds.";
    "max_concurrency": Count, "Tools that run at once; 1 unless said otherwise.";
    "guards": Of(&GUARDS), "What it may be made of and may do.";
    "tools": List(&Of(&PLAN_TOOL)), "The tools to call.";
    "selectedTools": List(&Of(&PLAN_TOOL)), "The same.";
    "executionOrder": List(&Text), "Which of several tools that could run goes first.";
    "toolOrder": List(&Text), "The same.";
    "output": Template, "Its result; the output of every tool unless said otherwise.";
    "error_handling": Of(&ERROR_HANDLING), "Error handling.";
    "metadata": Object, "Author, tags, estimated duration and the like.";
});

record!(pub PLAN_TOOL "plan_tool" "One call of a plan." requires [] {
    "id": Id, "What others call it; the tool's name unless said otherwise.";
    "name": Text, "The tool.";
    "toolName": Text, "The same.";
    "parameters": Either(&[Templates, Null]), "The tool's arguments.";
    "dependsOn": Either(&[List(&Text), Text, Null]), "Tools that come first.";
    "outputMapping": Either(&[Names, Null]), "Field of its output → name for later tools.";
    "when": Condition, "Whether to call it at all.";
    "timeout": Duration, "For one attempt.";
    "timeout_ms": Millis, "For one attempt, in milliseconds.";
    "retry_count": Count, "How often it is tried again.";
});

record!(pub TOOLHIVE "toolhive" "A composite tool of a virtual MCP server." requires ["name", "steps"] {
    "dialect": Words(&["toolhive"]), "Forces the dialect.";
    "name": Name, "How the tool is called.";
    "description": Text, "What it does, for people and models.";
    "parameters": Schema, "JSON Schema of its input.";
    "annotations": Of(&TOOLHIVE_ANNOTATIONS), "What it says about its effects.";
    "timeout": Duration, "For the whole run.";
    "failureMode": Words(&["abort", "continue", "best_effort"]), "What a failed step means to the run.";
    "steps": List(&Of(&TOOLHIVE_STEP)), "What it does.";
    "output": Object, "Its result: properties, each with a `value`.";
});

record!(pub TOOLHIVE_ANNOTATIONS "toolhive_annotations" "What a composite tool says about its effects." requires [] {
    "title": Text, "Its title for people.";
    "readOnlyHint": Bool, "Whether it changes nothing.";
    "destructiveHint": Bool, "Whether it may destroy data.";
    "idempotentHint": Bool, "Whether calling it twice is harmless.";
    "openWorldHint": Bool, "Whether it has effects beyond this machine.";
});

record!(pub TOOLHIVE_STEP "toolhive_step" "One step of a composite tool." requires ["id"] {
    "id": Id, "Its name.";
    "type": Words(&["tool", "tool_call", "elicitation"]), "What it does; `tool` unless said otherwise.";
    "tool": Text, "The tool: `name` or `server.name`.";
    "arguments": Templates, "The tool's arguments, with Go templates.";
    "condition": Text, "Whether to run it, as a Go template.";
    "dependsOn": List(&Id), "Steps that come first.";
    "onError": Of(&TOOLHIVE_ON_ERROR), "What to do with a failure.";
    "message": Text, "The question.";
    "schema": Schema, "JSON Schema of the answer.";
    "timeout": Duration, "For one attempt, or for the answer.";
    "onDecline": Object, "What happens when the person declines.";
    "onCancel": Object, "What happens when the person cancels: the run ends.";
    "defaultResults": Object, "The output of the step when it is skipped or fails.";
    "defaultResponse": Template, "The proposed answer.";
});

record!(pub TOOLHIVE_ON_ERROR "toolhive_on_error" "What to do with a failure." requires [] {
    "action": Words(&["abort", "continue", "retry"]), "What it means to the run.";
    "maxRetries": Count, "With `retry`: how often.";
    "retryCount": Count, "The same.";
    "retryDelay": Duration, "With `retry`: how long before.";
});

record!(pub ARAZZO "arazzo" "Workflows over the operations of APIs." requires ["workflows"] {
    "arazzo": Text, "The version of the specification.";
    "dialect": Words(&["arazzo"]), "Forces the dialect.";
    "$self": Text, "Where the document is.";
    "info": Object, "Title and version.";
    "sourceDescriptions": List(&Object), "The APIs; each is the namespace of its operations.";
    "workflows": List(&Of(&ARAZZO_WORKFLOW)), "The workflows; the first one is the composition.";
    "components": Object, "What workflows share.";
    "x-segue-workflow": Text, "The workflow that is the composition.";
});

record!(pub ARAZZO_WORKFLOW "arazzo_workflow" "One workflow." requires ["workflowId", "steps"] {
    "workflowId": Text, "Its name.";
    "summary": Text, "What it does, in short.";
    "description": Text, "What it does.";
    "inputs": Schema, "JSON Schema of its input.";
    "steps": List(&Of(&ARAZZO_STEP)), "What it does.";
    "successActions": List(&Object), "Default actions after a success.";
    "failureActions": List(&Object), "Default actions after a failure.";
    "parameters": List(&Object), "Parameters of every step.";
    "outputs": Templates, "Its result.";
});

record!(pub ARAZZO_STEP "arazzo_step" "One step of a workflow." requires ["stepId"] {
    "stepId": Id, "Its name.";
    "description": Text, "What it does.";
    "operationId": Text, "The operation.";
    "operationPath": Text, "The operation, by its path.";
    "channelPath": Text, "The channel, by its path.";
    "workflowId": Text, "Another workflow, in place of an operation.";
    "parameters": List(&Object), "What it is given.";
    "requestBody": Object, "The body of the request.";
    "successCriteria": List(&Object), "What counts as a success.";
    "onSuccess": List(&Object), "What follows a success.";
    "onFailure": List(&Object), "What follows a failure.";
    "outputs": Templates, "What later steps may read.";
    "timeout": Millis, "For one attempt, in milliseconds.";
});

record!(pub PARAMETER "parameter" "One parameter of the input." requires ["name"] {
    "name": Text, "Its name.";
    "type": Words(&["string", "integer", "number", "boolean", "array", "object", "any"]), "Its type.";
    "required": Bool, "Whether it must be given.";
    "default": Template, "Its value when it is not given.";
    "description": Text, "What it is for.";
});

/// Capabilities that a client of the Model Context Protocol may declare.
pub const CLIENT_CAPABILITIES: &[&str] = &["elicitation", "roots", "sampling"];

record!(pub REQUIRES "requires" "Context that the caller must pass, and capabilities of an MCP client." requires [] {
    "context": List(&Text), "Keys that the caller's context must carry.";
    "capabilities": List(&Words(CLIENT_CAPABILITIES)), "Capabilities that an MCP client must declare to call it.";
});

record!(pub ERROR_HANDLING "error_handling" "Error handling." requires [] {
    "failure_strategy": Words(Strategy::WORDS), "What a failed step means to the run.";
    "rollback_on_failure": Bool, "Whether completed steps are rolled back when the run fails.";
    "max_retries": Count, "Retries of a step that has no number of its own.";
    "backoff": Of(&BACKOFF), "Waits between attempts.";
});

record!(pub BACKOFF "backoff" "Waits between attempts." requires [] {
    "initial": Duration, "Before the first retry; 100ms unless said otherwise.";
    "factor": Number, "How much longer each time; 2 unless said otherwise.";
    "max": Duration, "Never longer than this; 5s unless said otherwise.";
    "jitter": Bool, "Whether waits are drawn at random up to that length.";
});

record!(pub STEP "step" "One step. It has exactly one of the words tool, parallel, loop, repeat, choose, set, approve, wait and expand." requires [] {
    "id": Id, "Its name; unique in the composition.";
    "name": Text, "Its name when it has no `id`, and what `next` may call it." only Chain;
    "tool": Text, "Calls a tool.";
    "parameters": Either(&[Templates, Template]), "The tool's arguments.";
    "inputs": Either(&[Templates, Template]), "The tool's arguments." only Chain;
    "parallel": List(&Of(&STEP)), "Runs branches together. A branch is a step, or an id with steps.";
    "wait_for": Words(&["all", "any", "first_success"]), "When `parallel` is over.";
    "loop": Of(&LOOP), "Runs steps once per item of an array.";
    "repeat": Of(&REPEAT), "Runs steps until a condition holds.";
    "choose": List(&Of(&CASE)), "Runs the steps of the first case whose condition holds.";
    "set": Templates, "Names for later steps.";
    "approve": Of(&APPROVE), "Asks a person.";
    "wait": Either(&[Duration, Template]), "Waits.";
    "expand": Template, "Runs a composition that an earlier step made.";
    "steps": List(&Of(&STEP)), "The steps of a branch of `parallel`.";
    "depends_on": Either(&[List(&Id), Id]), "Steps that must finish first; references to other steps count already.";
    "when": Condition, "Whether to run the step at all.";
    "output_key": Id, "The name of its value.";
    "timeout": Duration, "For one attempt.";
    "timeout_ms": Millis, "For one attempt, in milliseconds.";
    "retry_count": Count, "How often it is tried again.";
    "retry": Of(&RETRY), "How it is tried again.";
    "success_when": Condition, "Over `output`: whether the call succeeded.";
    "fail_when": Condition, "Over `output`: whether the call failed.";
    "fallback": List(&Of(&CALL)), "Tools to try when all attempts failed.";
    "on_success": Of(&ON_SUCCESS), "What to do with its value.";
    "on_failure": Of(&ON_FAILURE), "What to do with its failure.";
    "rollback": Either(&[Of(&ROLLBACK), Words(&["none"])]), "How it is rolled back.";
    "idempotent": Bool, "Whether calling it twice is harmless.";
    "probe": Of(&PROBE), "How to find out whether an unanswered call did its work.";
    "sensitive": List(&Text), "JSON Pointers to values that must never be stored.";
    "fallthrough": Bool, "Whether it is entered in passing although only failures lead to it; a graph has no such thing.";
});

/// Fields of which a step has exactly one.
pub const STEP_KINDS: &[&str] =
    &["tool", "parallel", "loop", "repeat", "choose", "set", "approve", "wait", "expand"];

record!(pub LOOP "loop" "Runs steps once per item of an array." requires ["over", "steps"] {
    "over": Template, "The array.";
    "as": Id, "The item's name inside; `item` unless said otherwise.";
    "steps": List(&Of(&STEP)), "The steps for each item.";
    "output": Template, "Each item's value; the last step's unless said otherwise.";
    "max_concurrency": Count, "Items at once; 1 unless said otherwise.";
    "max_iterations": Count, "Items at most; more is an error.";
    "on_item_failure": Words(&["stop", "continue"]), "What a failed item means.";
});

record!(pub REPEAT "repeat" "Runs steps until a condition holds." requires ["steps", "until", "max_iterations"] {
    "steps": List(&Of(&STEP)), "The steps of each round.";
    "until": Condition, "When to stop.";
    "max_iterations": Count, "Rounds at most.";
    "delay": Duration, "Between rounds.";
    "delay_ms": Millis, "Between rounds, in milliseconds.";
});

record!(pub CASE "case" "One case of `choose`." requires [] {
    "when": Condition, "The condition.";
    "steps": List(&Of(&STEP)), "The steps when it holds.";
    "otherwise": List(&Of(&STEP)), "The steps when no condition holds; last, and alone.";
});

record!(pub APPROVE "approve" "Asks a person." requires ["message"] {
    "message": Template, "The question.";
    "schema": Schema, "JSON Schema of data that the answer carries.";
    "timeout": Duration, "How long to wait for an answer.";
    "timeout_ms": Millis, "How long to wait for an answer, in milliseconds.";
    "on_timeout": Words(&["deny", "approve"]), "The answer when the time is over.";
});

record!(pub RETRY "retry" "How a step is tried again." requires [] {
    "max": Count, "How often.";
    "backoff": Of(&BACKOFF), "Waits between attempts.";
    "on": List(&Text), "Only after failures with these codes.";
});

record!(pub CALL "call" "A call of a tool." requires ["tool"] {
    "tool": Text, "The tool.";
    "parameters": Either(&[Templates, Template]), "Its arguments.";
    "inputs": Either(&[Templates, Template]), "Its arguments." only Chain;
});

record!(pub ROLLBACK "rollback" "How a step is rolled back." requires [] {
    "tool": Text, "The tool that rolls it back.";
    "parameters": Either(&[Templates, Template]), "Its arguments; they see `output`, `args` and `input`.";
    "inputs": Either(&[Templates, Template]), "Its arguments; they see `output`, `args` and `input`." only Chain;
    "impossible": Text, "Why it cannot be rolled back.";
});

record!(pub PROBE "probe" "How to find out whether an unanswered call did its work." requires ["tool", "done_when"] {
    "tool": Text, "The tool to ask.";
    "parameters": Either(&[Templates, Template]), "Its arguments; they see `args` and `input`.";
    "inputs": Either(&[Templates, Template]), "Its arguments; they see `args` and `input`." only Chain;
    "done_when": Condition, "Over `output`: the answer that means it was done.";
    "output": Template, "What the call would have returned, over `output` and `args`; the answer itself when absent.";
});

record!(pub ON_SUCCESS "on_success" "What to do with a value." requires [] {
    "map_outputs": Names, "Field of the value → name for later steps.";
    "transform": Templates, "Name for later steps → its value, after `map_outputs`.";
    "next": Text, "Where a program continues: a step, a tool or `end`; graphs have no `next`.";
});

record!(pub ON_FAILURE "on_failure" "What to do with a failure." requires [] {
    "action": Words(&["stop", "retry", "continue"]), "What it means to the run.";
    "max_retries": Count, "With `retry`: how often; 3 unless said otherwise.";
    "continue_on_max_retries": Bool, "With `retry`: whether to go on after the last attempt.";
    "next": Text, "Where a program continues: a step, a tool or `end`; graphs have no `next`.";
    "default": Template, "With `continue`: the value that stands in.";
});

record!(pub TEST_FILE "test_file" "Tests of a composition." requires ["tests"] {
    "$schema": Text, "The schema that editors check this file against.";
    "composition": Text, "The composition to test: a file, relative to this one, or a configured name; the file beside this one with the same name unless said otherwise.";
    "declare": Each(&Of(&TEST_TOOL)), "Tools that only the tests have, such as those of a server that is not available.";
    "tools": Each(&ANSWERS), "Answers that every test of this file has, by tool or step.";
    "tests": List(&Of(&TEST)), "The tests.";
});

record!(pub MOCK_FILE "mock_file" "Outputs of steps, for a run that does not call them." requires ["tools"] {
    "$schema": Text, "The schema that editors check this file against.";
    "composition": Text, "The composition that they are for.";
    "tools": Each(&ANSWERS), "One answer for each of these steps.";
});

/// One answer for every call, or several in a row.
const ANSWERS: FieldShape = Either(&[Of(&ANSWER), List(&Of(&ANSWER))]);

record!(pub TEST_TOOL "test_tool" "A tool that only these tests have." requires [] {
    "input": Schema, "JSON Schema of its arguments.";
    "output": Schema, "JSON Schema of its value.";
    "read_only": Bool, "It changes nothing.";
    "destructive": Bool, "It may destroy something.";
    "idempotent": Bool, "Calling it twice is the same as once.";
});

record!(pub TEST "test" "One run with mocked tools, and what is expected of it." requires ["name"] {
    "name": Text, "What it shows.";
    "input": Object, "The input.";
    "context": Object, "The caller's context.";
    "options": Of(&TEST_OPTIONS), "Options of the run.";
    "tools": Each(&ANSWERS), "What tools answer, by tool or step.";
    "real": List(&Text), "Built-in tools that the test really calls; only those without side effects. `*` matches any letters.";
    "confirm": Either(&[Bool, Words(CONFIRM), Each(&Either(&[Bool, Words(CONFIRM), Object]))]), "The answers of people, to every question or by step; an object is a yes with data. `yes` unless said otherwise.";
    "doubts": Each(&Either(&[Bool, Words(CONFIRM), Object])), "Whether a call that was never answered did its work, by step; an object is a yes with its output. `later` unless said otherwise.";
    "strict": Bool, "Whether unexpected calls and unused answers fail the test; `true` unless said otherwise.";
    "expect": Of(&EXPECT), "What is expected; success unless said otherwise.";
});

/// The answers of a person.
pub const CONFIRM: &[&str] = &["yes", "no", "later"];

record!(pub TEST_OPTIONS "test_options" "Options of the run." requires [] {
    "timeout": Duration, "For the whole run.";
    "max_concurrency": Count, "Steps that run at once.";
    "error_strategy": Words(Strategy::WORDS), "Overrides the composition's error strategy.";
});

record!(pub ANSWER "answer" "What a mocked tool answers." requires [] {
    "when": Object, "Only calls whose arguments have these members.";
    "returns": Template, "The value.";
    "error": Either(&[Text, Of(&TEST_ERROR)]), "The failure.";
    "silent": Bool, "The call is sent, and no answer ever comes.";
    "delay": Duration, "How long it takes, in simulated time.";
    "times": Either(&[Count, Words(&["any"])]), "How many calls it is for: in a list one unless said otherwise, alone any.";
});

record!(pub TEST_ERROR "test_error" "How a mocked tool fails." requires ["message"] {
    "message": Text, "The tool's message.";
    "code": Text, "The error's code; `tool-error` unless said otherwise.";
    "retryable": Bool, "Whether trying again may help; by the code unless said otherwise.";
    "retry_after": Duration, "How long the tool's source asks to be left alone.";
});

record!(pub EXPECT "expect" "What is expected of a run." requires [] {
    "status": Text, "How it ends, such as `success`, `failed` or `rolled_back`.";
    "success": Bool, "Whether everything worked.";
    "output": Template, "The output, exactly.";
    "output_includes": Template, "Members that the output has, at any depth; it may have more.";
    "calls": List(&Either(&[Text, Of(&EXPECTED_CALL)])), "The calls, in any order; every attempt counts. A name alone is a call of that tool.";
    "order": List(&Text), "Tools and steps that are called one after the other; others may come between.";
    "not_called": List(&Text), "Tools and steps that are not called.";
    "steps": Each(&Text), "How steps end, such as `success`, `skipped` or `rolled_back`.";
    "rolled_back": List(&Text), "The steps that are rolled back.";
    "errors": List(&Of(&EXPECTED_ERROR)), "The errors of the run.";
});

record!(pub EXPECTED_CALL "expected_call" "A call that is expected." requires [] {
    "tool": Text, "The tool.";
    "step": Text, "The step.";
    "arguments": Object, "Its arguments, exactly.";
    "arguments_include": Object, "Members that its arguments have, at any depth; there may be more.";
    "times": Count, "How often; once unless said otherwise.";
});

record!(pub EXPECTED_ERROR "expected_error" "An error that is expected." requires [] {
    "step": Text, "The step.";
    "code": Text, "Its code.";
    "message": Text, "A part of its message.";
});
