//! Restores arguments: a model's values for an exported schema → arguments of the tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::document::read_json_value;
use crate::limits::Limits;
use crate::schema::Schema;
use crate::value::{Map, Value};

/// How to turn a value of an exported schema into a value of the original.
#[derive(Clone, Debug, Default)]
pub(super) enum RestoreRule {
    /// It stays as it is.
    #[default]
    Same,
    /// It is JSON text. Text that is not JSON stays as it is.
    Text,
    /// The arguments are one of its members.
    Inside(Arc<str>, Box<RestoreRule>),
    /// It is an object.
    Object {
        /// Rules by exported name.
        members: BTreeMap<Arc<str>, MemberRule>,
        /// The rule for other members.
        rest: Box<RestoreRule>,
    },
    /// It is an array.
    Array {
        /// Rules for the first items.
        first: Vec<RestoreRule>,
        /// The rule for the remaining items.
        rest: Box<RestoreRule>,
    },
    /// Both rules, for a value that may be an object or an array.
    Both(Box<(RestoreRule, RestoreRule)>),
    /// The rule of the first schema that matches.
    Any(Vec<(Arc<Schema>, RestoreRule)>),
}

/// The rule of one member.
#[derive(Clone, Debug)]
pub(super) struct MemberRule {
    /// Its original name.
    pub(super) name: Arc<str>,
    pub(super) way: RestoreRule,
    /// Whether `null` means absent.
    pub(super) is_absent_when_null: bool,
}

impl MemberRule {
    fn is_same(&self, exposed: &str) -> bool {
        *self.name == *exposed && self.way.is_identity() && !self.is_absent_when_null
    }
}

impl RestoreRule {
    pub(super) fn is_identity(&self) -> bool {
        matches!(self, RestoreRule::Same)
    }

    /// The rule of an object's members; `Same` if all stay as they are.
    pub(super) fn object(
        members: BTreeMap<Arc<str>, MemberRule>,
        rest: RestoreRule,
    ) -> RestoreRule {
        if rest.is_identity() && members.iter().all(|(exposed, member)| member.is_same(exposed)) {
            return RestoreRule::Same;
        }
        RestoreRule::Object { members, rest: Box::new(rest) }
    }

    /// The rule of an array's items.
    pub(super) fn array(first: Vec<RestoreRule>, rest: RestoreRule) -> RestoreRule {
        if rest.is_identity() && first.iter().all(RestoreRule::is_identity) {
            return RestoreRule::Same;
        }
        RestoreRule::Array { first, rest: Box::new(rest) }
    }

    /// The rule of a value that may be an object or an array.
    pub(super) fn both(a: RestoreRule, b: RestoreRule) -> RestoreRule {
        match (a, b) {
            (RestoreRule::Same, way) | (way, RestoreRule::Same) => way,
            both => RestoreRule::Both(Box::new(both)),
        }
    }

    /// The rule of one of several schemas.
    pub(super) fn any(branches: Vec<(Value, RestoreRule)>) -> RestoreRule {
        if branches.iter().all(|(_, way)| way.is_identity()) {
            return RestoreRule::Same;
        }
        let branches = branches.into_iter();
        RestoreRule::Any(branches.map(|(json, way)| (Arc::new(Schema::new(json)), way)).collect())
    }

    /// The value for the original schema.
    pub(super) fn apply(&self, value: &Value, limits: &Limits) -> Value {
        match (self, value) {
            (RestoreRule::Text, Value::String(text)) => {
                read_json_value(text, limits).unwrap_or_else(|_| value.clone())
            }
            (RestoreRule::Inside(name, way), Value::Object(_)) => {
                value.get(name).map_or_else(|| value.clone(), |inner| way.apply(inner, limits))
            }
            (RestoreRule::Object { members, rest }, Value::Object(given)) => {
                let mut back = Map::new();
                for (exposed, value) in given.iter() {
                    match members.get(exposed) {
                        Some(member) if member.is_absent_when_null && value.is_null() => {}
                        Some(member) => {
                            back.insert(member.name.clone(), member.way.apply(value, limits));
                        }
                        None => {
                            back.insert(exposed.clone(), rest.apply(value, limits));
                        }
                    }
                }
                back.into()
            }
            (RestoreRule::Array { first, rest }, Value::Array(items)) => {
                let ways = first.iter().chain(std::iter::repeat(&**rest));
                let items = items.iter().zip(ways).map(|(item, way)| way.apply(item, limits));
                items.collect::<Vec<_>>().into()
            }
            (RestoreRule::Both(ways), _) => ways.1.apply(&ways.0.apply(value, limits), limits),
            (RestoreRule::Any(branches), _) => {
                let fits =
                    |(schema, _): &&(Arc<Schema>, RestoreRule)| schema.violations(value).is_empty();
                branches
                    .iter()
                    .find(fits)
                    .map_or_else(|| value.clone(), |(_, way)| way.apply(value, limits))
            }
            _ => value.clone(),
        }
    }
}
