//! A jq program over a value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use segue_core::document::read_json_value;
use segue_core::expr::Jq;
use segue_fuzz::{LIMITS, halves};

fuzz_target!(|data: &[u8]| {
    let (program, input) = halves(data);
    let input = read_json_value(&input, &LIMITS).unwrap_or_default();
    if let Ok(jq) = Jq::compile(&program)
        && let Ok(value) = jq.run(&input, &LIMITS)
    {
        let _ = value.to_json();
    }
});
