//! The requests and results of edits, as they cross a surface.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::language::TextEdit;
use crate::value::Value;

/// One change of a composition. A step is named by its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Edit {
    /// Adds a step.
    AddStep {
        /// The step, as it stands in a composition.
        step: Value,
        /// Its place.
        place: Place,
    },
    /// Removes a step, the comment lines directly above it, and its entries in `depends_on`. Other
    /// references to it stay.
    RemoveStep {
        /// The step.
        step: Arc<str>,
    },
    /// Gives a step another id, and rewrites every reference to it.
    RenameStep {
        /// The step.
        step: Arc<str>,
        /// Its new id.
        to: Arc<str>,
    },
    /// Moves a step, with the comment lines directly above it.
    MoveStep {
        /// The step.
        step: Arc<str>,
        /// Its new place.
        place: Place,
    },
    /// Copies a step to the place after it. The ids, output keys and other names inside the copy are
    /// new, and references inside the copy mean the copy.
    DuplicateStep {
        /// The step.
        step: Arc<str>,
        /// The id of the copy; absent means the id of the step with a number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Arc<str>>,
    },
    /// Sets a field of a step or of the composition. Objects on the way to it are added where they
    /// are missing. Of an object or an array only the parts that differ change.
    SetField {
        /// The step; absent means the composition.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Arc<str>>,
        /// A JSON Pointer, such as `/parameters/url`; `-` as the last segment appends to a list.
        field: Arc<str>,
        /// Its value.
        value: Value,
    },
    /// Removes a field of a step or of the composition.
    ClearField {
        /// The step; absent means the composition.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Arc<str>>,
        /// A JSON Pointer, such as `/parameters/url`.
        field: Arc<str>,
    },
    /// Connects two steps: by a reference to a value, or by `depends_on`.
    Connect {
        /// The step that runs first.
        from: Arc<str>,
        /// The step that uses it.
        to: Arc<str>,
        /// The value that is used and where; absent means `depends_on`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reference: Option<Reference>,
    },
    /// Removes the entries in `depends_on` and the fields that are nothing but a reference.
    Disconnect {
        /// The step that runs first.
        from: Arc<str>,
        /// The step that uses it.
        to: Arc<str>,
    },
    /// Puts steps of one list into a new step, at the place of the first.
    Wrap {
        /// The steps.
        steps: Vec<Arc<str>>,
        /// The id of the new step.
        id: Arc<str>,
        /// What the new step is.
        container: Container,
    },
    /// Makes a composition of steps of one list, and calls it in their place.
    Extract {
        /// The steps.
        steps: Vec<Arc<str>>,
        /// The name of the new composition.
        name: Arc<str>,
        /// The id of the step that calls it; absent means the name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Arc<str>>,
    },
    /// Makes a step one of another kind. Fields that belong to other kinds are removed; the steps
    /// inside a container move to the new one.
    ChangeKind {
        /// The step.
        step: Arc<str>,
        /// The word of the new kind with its value, and other fields to set, such as
        /// `{ "tool": "read", "parameters": {} }` or `{ "repeat": { "until": "…" } }`.
        to: Value,
    },
}

/// The place of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "at", rename_all = "snake_case", deny_unknown_fields)]
pub enum Place {
    /// Before another step, in its list.
    Before {
        /// The other step.
        step: Arc<str>,
    },
    /// After another step, in its list.
    After {
        /// The other step.
        step: Arc<str>,
    },
    /// First in a list of steps.
    FirstIn {
        /// The step that contains the list; absent means the composition.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Arc<str>>,
        /// Which list: the id or number of a branch of `parallel`, the number of a case of `choose`
        /// from 0, or `otherwise`. Absent means the only list of a loop, the list of branches, or
        /// the first case.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Arc<str>>,
    },
    /// Last in a list of steps.
    LastIn {
        /// The step that contains the list; absent means the composition.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<Arc<str>>,
        /// Which list, as for `first_in`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Arc<str>>,
    },
}

/// A value that one step reads from another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The path in the value of the step, such as `items[0].title` or `output.items`; empty means
    /// the whole value.
    #[serde(default)]
    pub path: Arc<str>,
    /// A JSON Pointer to the field that reads it, such as `/parameters/title`.
    pub field: Arc<str>,
}

/// The step that is put around others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Container {
    /// Once per item of an array.
    Loop {
        /// The array.
        over: Value,
        /// The name of the item; absent means `item`.
        #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
        item: Option<Arc<str>>,
        /// Items at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_concurrency: Option<u32>,
    },
    /// Each step is a branch.
    Parallel {
        /// `all`, `any` or `first_success`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_for: Option<Arc<str>>,
    },
    /// Only if a condition holds.
    Choose {
        /// The condition of the case.
        when: Value,
    },
    /// Until a condition holds.
    Repeat {
        /// The condition.
        until: Value,
        /// Rounds at most.
        max_iterations: u32,
        /// The time between rounds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delay: Option<Arc<str>>,
    },
}

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The changes of the text.
    pub edits: Vec<TextEdit>,
    /// The composition that [`Edit::Extract`] made.
    pub extracted: Option<NewText>,
}

/// The text of a new composition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NewText {
    /// The name of the composition.
    pub name: Arc<str>,
    /// Its text.
    pub text: String,
}
