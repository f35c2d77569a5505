//! The types of results: a file per topic.

#![allow(clippy::struct_field_names, reason = "names of fields are names of the schema")]

pub(super) mod catalog;
pub(super) mod plan;
pub(super) mod run;
