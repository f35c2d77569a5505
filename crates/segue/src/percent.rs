//! Percent-encoded bytes, strictly: a `%` without two hexadecimal digits is no encoding.

/// The bytes that a text means.
pub(crate) fn decode(encoded: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(encoded.len()), encoded.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = after else { return None };
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_hexadecimal_digits_are_a_byte() {
        let text = |encoded: &str| decode(encoded).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(text("a%20b%C3%bcc"), Some("a bü\u{63}".to_owned()));
        assert_eq!(text(""), Some(String::new()));
        assert_eq!(decode("%ff"), Some(vec![0xff]));
        for wrong in ["%", "%4", "a%", "%zz", "%+5", "%-1", "%2", "% 2", "%2%", "%é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
