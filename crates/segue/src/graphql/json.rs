//! Our values as GraphQL has them: the scalar `JSON`.

use async_graphql::{
    InputValueResult, Name, Number as Counted, Scalar, ScalarType, Value as Const, Variables,
};
use segue_core::value::{Map, Number, Value};

/// A value of any kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Json(pub(super) Value);

/// Any JSON value. Numbers of up to 64 bits are exact.
#[Scalar(name = "JSON")]
impl ScalarType for Json {
    fn parse(value: Const) -> InputValueResult<Self> {
        Ok(Json(from_graphql(value)))
    }

    fn to_value(&self) -> Const {
        to_graphql(&self.0)
    }
}

/// Our value, as the library's.
pub(super) fn to_graphql(value: &Value) -> Const {
    match value {
        Value::Null => Const::Null,
        Value::Bool(bool) => Const::Boolean(*bool),
        Value::Number(Number::Int(int)) => Const::from(*int),
        Value::Number(Number::UInt(uint)) => Const::from(*uint),
        Value::Number(other) => match other.as_f64().and_then(Counted::from_f64) {
            Some(number) => Const::Number(number),
            // Larger than clients read a number.
            None => Const::String(other.to_string()),
        },
        Value::String(text) => Const::String(text.to_string()),
        Value::Array(items) => Const::List(items.iter().map(to_graphql).collect()),
        Value::Object(members) => Const::Object(
            members.iter().map(|(key, value)| (Name::new(&**key), to_graphql(value))).collect(),
        ),
    }
}

/// A value of a document or of its variables, as ours.
fn from_graphql(value: Const) -> Value {
    match value {
        Const::Null => Value::Null,
        Const::Boolean(bool) => Value::Bool(bool),
        Const::Number(number) => Value::Number(Number::from_literal(&number.to_string())),
        Const::String(text) => Value::String(text.into()),
        Const::Enum(word) => Value::from(word.as_str()),
        Const::Binary(bytes) => Value::from(String::from_utf8_lossy(&bytes).into_owned()),
        Const::List(items) => items.into_iter().map(from_graphql).collect::<Vec<_>>().into(),
        Const::Object(members) => {
            let members =
                members.into_iter().map(|(key, value)| (key.as_str().into(), from_graphql(value)));
            members.collect::<Map>().into()
        }
    }
}

/// The variables of a request.
pub(super) fn variables(given: Option<Map>) -> Variables {
    Variables::from_value(given.map(|given| to_graphql(&given.into())).unwrap_or_default())
}
