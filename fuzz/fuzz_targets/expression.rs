//! A template over a value: any characters, any filters, any values.

#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use segue_core::document::read_json_value;
use segue_core::expr::{ExprRoot, Scope, Template};
use segue_core::value::Value;
use segue_fuzz::{LIMITS, halves};

struct Names(Value);

impl Scope for Names {
    fn lookup(&self, root: &ExprRoot) -> Option<Cow<'_, Value>> {
        match root {
            ExprRoot::InputField(name) => self.0.get(name).map(Cow::Borrowed),
            ExprRoot::Input => Some(Cow::Borrowed(&self.0)),
            _ => None,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let (text, values) = halves(data);
    let values = read_json_value(&values, &LIMITS).unwrap_or_default();
    let field = |name: &'static str| (name, ExprRoot::InputField(name.into()));
    let known = ["a", "b", "l", "n", "o", "s", "x"].map(field);
    let known: Vec<_> = known.into_iter().chain([("input", ExprRoot::Input)]).collect();
    for text in [text.clone(), format!("{{{{ {text} }}}}")] {
        let Ok(template) = Template::over(&Value::from(text), &known, &LIMITS) else { continue };
        let _ = template.to_value().to_json();
        if let Ok(value) = template.eval(&Names(values.clone()), &LIMITS) {
            assert!(value.size() <= LIMITS.value_bytes_max);
            let _ = value.to_canonical_json();
        }
    }
});
