//! The user of this process, who is recorded with decisions.

use std::sync::Arc;

use crate::print::escape_control;

/// The name of the user by the system's user id: an environment variable could say anything.
pub(super) fn current_user() -> Arc<str> {
    escape_control(&name()).into()
}

#[cfg(unix)]
fn name() -> String {
    let id = rustix::process::getuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    named(&users, id).unwrap_or_else(|| format!("user {id}"))
}

/// The name of a user in `/etc/passwd`. Users of a directory service are not in it.
#[cfg(unix)]
fn named(users: &str, id: u32) -> Option<String> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut names = fields.filter_map(|fields| match fields[..] {
        [name, _, number, ..] if number.parse() == Ok(id) => Some(name.to_owned()),
        _ => None,
    });
    names.next()
}

#[cfg(not(unix))]
fn name() -> String {
    std::env::var("USERNAME").unwrap_or_else(|_| "command line user".to_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::named;

    #[test]
    fn a_user_is_named_by_the_system() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nada:x:1000:1000::/:/bin/sh\n";
        assert_eq!(named(users, 1000).as_deref(), Some("ada"));
        assert_eq!(named(users, 7), None);
    }
}
