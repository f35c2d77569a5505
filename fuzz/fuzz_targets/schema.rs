//! A JSON Schema, compiled and typed, and a value validated against it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_core::document::read_json_value;
use segue_core::schema::Schema;
use segue_fuzz::{LIMITS, halves};

fuzz_target!(|data: &[u8]| {
    let (schema, value) = halves(data);
    let Ok(schema) = read_json_value(&schema, &LIMITS) else { return };
    let value = read_json_value(&value, &LIMITS).unwrap_or_default();
    let schema = Schema::new(schema);
    drop((schema.check(), schema.sensitive(), schema.ty().clone().to_schema()));
    let _ = schema.violations(&value);
    let _ = schema.violations(&schema.with_defaults(value));
    if let Some(made) = schema.sample() {
        assert!(schema.violations(&made).is_empty(), "a sample that does not fit");
    }
});
