//! Lengths of time: how people write them, and how they are shown to people.

/// A length of time in milliseconds.
pub type Millis = u64;

/// `1m30s`, `500ms`, `2h`, `1d`: one or more numbers with units, largest first or not.
pub fn parse_duration(text: &str) -> Option<Millis> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total: f64 = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_len = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = match &rest[..unit_len] {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" | "min" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            _ => return None,
        };
        total += number * unit;
        rest = &rest[unit_len..];
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // The cast saturates, and every caller bounds durations far below.
    Some(total.round() as Millis)
}

/// `1.2 s`, `340 ms`: a duration for people.
pub fn format_duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{:.1} s", millis as f64 / 1_000.0),
        _ => format!("{} m {} s", millis / 60_000, millis / 1_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_duration;

    #[test]
    fn durations_have_units() {
        for (text, expected) in [
            ("500ms", Some(500)),
            ("30s", Some(30_000)),
            ("2m", Some(120_000)),
            ("1m30s", Some(90_000)),
            ("1.5s", Some(1_500)),
            ("1h", Some(3_600_000)),
            ("5", None),
            ("-5s", None),
            ("5 parsecs", None),
            ("", None),
            ("s", None),
        ] {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
    }
}
