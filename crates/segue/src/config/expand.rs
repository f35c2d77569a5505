//! `${VAR}`, `${VAR:-default}` and `${env:VAR}` in configuration.

/// The text with every variable in place; the error names what is unset.
pub(super) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let end = after.find('}').ok_or_else(|| "`${` is never closed".to_owned())?;
        out.push_str(&variable(&after[..end], env)?);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn variable(inside: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("`${{{inside}}}` does not name a variable"));
    }
    match (env(name).filter(|value| !value.is_empty()), default) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!("the environment variable `{name}` is not set")),
    }
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn all_three_spellings_expand() {
        let env = |name: &str| (name == "TOKEN").then(|| "t0p".to_owned());
        assert_eq!(expand("Bearer ${TOKEN}", &env).unwrap(), "Bearer t0p");
        assert_eq!(expand("${env:TOKEN}/${GONE:-x}", &env).unwrap(), "t0p/x");
        assert_eq!(expand("$TOKEN {{ args.x }}", &env).unwrap(), "$TOKEN {{ args.x }}");
        assert!(expand("${GONE}", &env).unwrap_err().contains("`GONE`"));
        assert!(expand("${TOKEN", &env).is_err());
        assert!(expand("${a b}", &env).is_err());
    }
}
