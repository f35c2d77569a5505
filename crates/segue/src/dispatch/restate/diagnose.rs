//! What `segue doctor` finds about Restate.

use super::client::{RestateClient, RestateError};
use crate::api::installation::Check;

/// What the checks are about.
const WHAT: &str = "restate";

/// Checks that Restate can be reached, and that it knows the workers.
pub async fn diagnose(restate: &RestateClient) -> Vec<Check> {
    let ingress = match restate.check_ingress().await {
        Ok(()) => Check::good(WHAT, "the ingress takes runs"),
        Err(error) => unusable(&error, "correct `driver.restate.ingress`, or start Restate"),
    };
    let admin = match restate.version().await {
        Ok(version) => Check::good(WHAT, format!("version {version}")),
        Err(error) => {
            let help = "correct `driver.restate.admin`, or start Restate";
            return vec![ingress, unusable(&error, help)];
        }
    };
    vec![ingress, admin, registration(restate).await]
}

async fn registration(restate: &RestateClient) -> Check {
    let expected = restate.advertise().as_str();
    match restate.registered_at().await {
        Ok(Some(at)) if at == expected => {
            Check::good(WHAT, format!("calls the workers at `{expected}`"))
        }
        Ok(Some(at)) => {
            let message = format!("calls the workers at `{at}`, and not at `{expected}`");
            let help = "give all workers the same `driver.restate.advertise`, and start one again";
            Check::bad(WHAT, message, help)
        }
        Ok(None) => Check::bad(WHAT, "no worker is registered", "start `segue worker`"),
        Err(error) => unusable(&error, "correct `driver.restate.admin`"),
    }
}

fn unusable(error: &RestateError, help: &str) -> Check {
    Check::bad(WHAT, error.to_string(), help)
}
