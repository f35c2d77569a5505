//! `segue serve token`

use std::fmt::Write as _;

use clap::Args;
use segue_core::access::Right;
use segue_core::compile::dialect::parse_duration;
use segue_core::tool::hex_digest;
use segue_core::view::{parse_rfc3339, rfc3339};
use segue_runtime::driver::now_ms;
use serde_json::json;

use super::app::toolset_of;
use super::load::load_config;
use super::{Exit, Global, print_data, print_error, print_json, print_status};
use crate::config::principals::is_name;
use crate::http::auth::random_token;

/// Make up a token for somebody, and the entry of `server.principals` that lets them in
#[derive(Args, Clone, Debug)]
pub(super) struct TokenArgs {
    /// Who it is for: small letters, digits, `-`, `_` and `.`
    name: String,
    /// What they may do
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', value_parser = parse_right,
          default_value = "look,run")]
    rights: Vec<Right>,
    /// When it stops being good: a time from now, such as `30d`, or a moment
    #[arg(long, value_name = "WHEN", value_parser = parse_end)]
    expires: Option<u64>,
}

fn parse_right(word: &str) -> Result<Right, String> {
    let known =
        || Right::GRANTABLE.iter().map(|right| right.as_str()).collect::<Vec<_>>().join(", ");
    Right::parse(word).ok_or_else(|| format!("the rights are {}", known()))
}

/// A moment, in milliseconds since 1970.
fn parse_end(text: &str) -> Result<u64, String> {
    let from_now = || parse_duration(text).map(|time| now_ms().saturating_add(time));
    let end = parse_rfc3339(text).or_else(from_now);
    end.ok_or_else(|| "write `30d`, or a moment such as `2027-01-31T12:00:00Z`".to_owned())
}

pub(super) fn token(global: &Global, args: &TokenArgs) -> Exit {
    if !is_name(&args.name) {
        let help = "write small letters, digits, `-`, `_` and `.`";
        print_error(&format!("`{}` is no name", args.name), Some(help));
        return Exit::Usage;
    }
    let config = match load_config(global) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    // Whom the token is for is held to it, when one is named.
    let toolset = global.toolset.as_deref();
    if let Some(Err(exit)) = toolset.map(|name| toolset_of(&config, name)) {
        return exit;
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
        format!("in place of `{}` in `server.principals` of `segue.yaml`:", args.name)
    } else {
        "for `server.principals` of `segue.yaml`:".to_owned()
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
