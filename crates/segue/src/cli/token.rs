//! `segue serve token`

use std::fmt::Write as _;

use clap::Args;
use segue_core::access::Right;
use segue_core::duration::parse_duration;
use segue_core::tool::hex_digest;
use segue_core::view::{parse_rfc3339, rfc3339};
use segue_runtime::driver::now_ms;
use serde_json::json;

use super::{Exit, Global, print_json, report};
use crate::app::toolset_named;
use crate::config::principals::is_name;
use crate::http::auth::random_token;
use crate::print::{print_data, print_error, print_status};

/// Generate a token for a principal, and its entry for `server.principals`
///
/// Prints the entry to standard output, and the token once to standard error.
#[derive(Args, Clone, Debug)]
pub(super) struct TokenArgs {
    /// The name of the principal: lower-case letters, digits, `-`, `_` and `.`
    name: String,
    /// The rights of the principal: `read`, `run`, `compose`, `approve`, `write`, `metrics` or `admin`,
    /// separated by commas
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', value_parser = parse_right,
          default_value = "read,run")]
    rights: Vec<Right>,
    /// When the token expires: after a duration such as `30d`, or at a time such as
    /// `2027-01-31T12:00:00Z`
    #[arg(long, value_name = "WHEN", value_parser = parse_expiry)]
    expires: Option<u64>,
}

fn parse_right(word: &str) -> Result<Right, String> {
    let known =
        || Right::GRANTABLE.iter().map(|right| right.as_str()).collect::<Vec<_>>().join(", ");
    Right::parse(word).ok_or_else(|| format!("the rights are {}", known()))
}

/// A time, in milliseconds since 1970.
fn parse_expiry(text: &str) -> Result<u64, String> {
    let from_now = || parse_duration(text).map(|time| now_ms().saturating_add(time));
    let end = parse_rfc3339(text).or_else(from_now);
    end.ok_or_else(|| {
        "write a duration such as `30d`, or a time such as `2027-01-31T12:00:00Z`".to_owned()
    })
}

pub(super) fn token(global: &Global, args: &TokenArgs) -> Exit {
    if !is_name(&args.name) {
        let help = "write lower-case letters, digits, `-`, `_` and `.`";
        print_error(&format!("`{}` is not a name", args.name), Some(help));
        return Exit::Usage;
    }
    let config = match global.load_config() {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    // `--toolset` limits the principal.
    let toolset = global.toolset.as_deref();
    if let Some(Err(error)) = toolset.map(|name| toolset_named(&config, name)) {
        return report(&error);
    }
    let token = random_token();
    let hash = format!("sha256:{}", hex_digest(token.as_bytes()));
    let rights: Vec<&str> = args.rights.iter().map(|right| right.as_str()).collect();
    let expires = args.expires.map(rfc3339);
    if global.is_json() {
        let mut entry = json!({ "token": hash, "rights": rights });
        if let Some(toolset) = toolset {
            entry["toolset"] = json!(toolset);
        }
        if let Some(expires) = &expires {
            entry["expires"] = json!(expires);
        }
        print_json(global, &json!({ "name": args.name, "token": token, "entry": entry }));
        return Exit::Success;
    }
    print_status(&format!("token: {token} (shown once)"));
    let place = if config.server.principals.iter().any(|key| *key.principal.name == *args.name) {
        format!("replace `{}` in `server.principals` of `segue.yaml` by:", args.name)
    } else {
        "add to `server.principals` of `segue.yaml`:".to_owned()
    };
    print_status(&place);
    let mut entry = format!("{}: {{ token: \"{hash}\", rights: [{}]", args.name, rights.join(", "));
    if let Some(toolset) = toolset {
        let _ = write!(entry, ", toolset: {toolset}");
    }
    if let Some(expires) = &expires {
        let _ = write!(entry, ", expires: \"{expires}\"");
    }
    print_data(&format!("{entry} }}"));
    Exit::Success
}
