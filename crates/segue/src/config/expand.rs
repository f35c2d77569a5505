//! `${VAR}`, `${VAR:-default}` and `${env:VAR}` in configuration.

/// Expands every variable; the error names one that is not set.
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

/// The variables of a text that are unset and have no default.
pub(super) fn unset<'a>(text: &'a str, env: &dyn Fn(&str) -> Option<String>) -> Vec<&'a str> {
    let inside = text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    let named = inside.filter_map(|inside| parse(inside).ok());
    let unset = named.filter(|(name, default)| default.is_none() && value(name, env).is_none());
    unset.map(|(name, _)| name).collect()
}

/// The name of a variable, and its default.
fn parse(inside: &str) -> Result<(&str, Option<&str>), String> {
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("`${{{inside}}}` does not name a variable"));
    }
    Ok((name, default))
}

/// The value of a variable; an empty one counts as not set.
fn value(name: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    env(name).filter(|value| !value.is_empty())
}

fn variable(inside: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, default) = parse(inside)?;
    let value = value(name, env).or_else(|| default.map(ToOwned::to_owned));
    value.ok_or_else(|| format!("the environment variable `{name}` is not set"))
}

#[cfg(test)]
mod tests {
    use super::{expand, unset};

    #[test]
    fn all_three_spellings_expand() {
        let env = |name: &str| (name == "TOKEN").then(|| "t0p".to_owned());
        assert_eq!(expand("Bearer ${TOKEN}", &env).unwrap(), "Bearer t0p");
        assert_eq!(expand("${env:TOKEN}/${GONE:-x}", &env).unwrap(), "t0p/x");
        assert_eq!(expand("$TOKEN {{ args.x }}", &env).unwrap(), "$TOKEN {{ args.x }}");
        assert!(expand("${GONE}", &env).unwrap_err().contains("`GONE`"));
        assert!(expand("${TOKEN", &env).is_err());
        assert!(expand("${a b}", &env).is_err());
        assert_eq!(unset("${GONE}${TOKEN}${env:LOST} ${X:-y} ${", &env), ["GONE", "LOST"]);
    }
}
