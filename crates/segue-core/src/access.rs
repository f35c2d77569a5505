//! Who may do what, and what is theirs.
//!
//! Whatever lets somebody in asks here: which rights somebody has, whether a run or a plan is theirs,
//! whether a credential still stands, and what the scopes of a token come to. How somebody proves who
//! they are is not decided here.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The toolset that compositions of a host on stdio are held to; the setting of the same name adds to it.
pub const INLINE: &str = "server.inline";

/// The toolset that compositions made by a run are held to, where its principal may not compose.
pub const SERVED: &str = "served compositions";

/// Whoever brings the operator's token, in journals.
pub const TOKEN_BEARER: &str = "the token";

/// Whoever comes where nobody needs a token.
pub const THIS_MACHINE: &str = "this machine";

/// The host that started `segue mcp`.
pub const STDIO: &str = "stdio";

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Nothing is needed: what is shown is the same everywhere.
    Public,
    /// Look at compositions, tools, templates and one's own runs.
    Read,
    /// Begin runs of what is served and of templates, and act on one's own runs.
    Run,
    /// Run what one wrote oneself: a composition that is sent, or a plan of one's own words.
    Compose,
    /// Consent: answer what one's own runs ask, or say yes beforehand.
    Approve,
    /// Change what is kept for everybody: templates.
    Write,
    /// Read what is counted, and nothing else.
    Metrics,
    /// Look after the server: everything, and the runs of everybody.
    Admin,
}

impl Right {
    /// Every right that can be given.
    pub const GRANTABLE: &'static [Right] = &[
        Right::Read,
        Right::Run,
        Right::Compose,
        Right::Approve,
        Right::Write,
        Right::Metrics,
        Right::Admin,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Right::Public => "anybody",
            Right::Read => "read",
            Right::Run => "run",
            Right::Compose => "compose",
            Right::Approve => "approve",
            Right::Write => "write",
            Right::Metrics => "metrics",
            Right::Admin => "admin",
        }
    }

    /// The right of this name. `look` and `change` are the names that `read` and `write` had in older
    /// configurations.
    pub fn parse(word: &str) -> Option<Right> {
        let word = match word {
            "look" => "read",
            "change" => "write",
            word => word,
        };
        Right::GRANTABLE.iter().copied().find(|right| right.as_str() == word)
    }
}

/// Some rights. None of them comes with another, but for `admin`, which is all of them, and `read`, which
/// includes what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Rights = Rights(0);

    /// Every right.
    pub const ALL: Rights = Rights(bit(Right::Admin));

    /// Whether they are enough for what needs `right`.
    pub fn has(self, right: Right) -> bool {
        let also = if right == Right::Metrics { bit(Right::Read) } else { 0 };
        right == Right::Public || self.0 & (bit(right) | bit(Right::Admin) | also) != 0
    }

    /// Those of both.
    #[must_use]
    pub fn combine(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Rights {
        rights.into_iter().fold(Rights::NONE, |all, right| Rights(all.0 | bit(right)))
    }
}

const fn bit(right: Right) -> u8 {
    1 << right as u8
}

/// Somebody who came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Whose word it is, in journals and in what is said of requests.
    pub name: Arc<str>,
    /// What they may do.
    pub rights: Rights,
    /// The toolset that they are held to; without one they have every tool.
    pub toolset: Option<Arc<str>>,
    /// The toolset that what they write themselves is held to, where that is a narrower one.
    pub inline: Option<Arc<str>>,
}

impl Principal {
    /// Somebody with these rights, and every tool.
    pub fn new(name: impl Into<Arc<str>>, rights: Rights) -> Principal {
        Principal { name: name.into(), rights, toolset: None, inline: None }
    }

    /// Somebody who may do everything.
    pub fn administrator(name: impl Into<Arc<str>>) -> Principal {
        Principal::new(name, Rights::ALL)
    }

    /// Somebody of whom nothing is known.
    pub fn anonymous() -> Principal {
        Principal::new("anybody", Rights::NONE)
    }

    /// The administrator's host, where a model calls: it has what is served, and what it writes itself
    /// is held to the toolset [`INLINE`].
    pub fn host(name: impl Into<Arc<str>>) -> Principal {
        Principal { inline: Some(INLINE.into()), ..Principal::administrator(name) }
    }

    /// The same one as the author of what is run: held to what that may use.
    #[must_use]
    pub fn as_author(&self) -> Principal {
        let toolset = self.inline.clone().or_else(|| self.toolset.clone());
        Principal { toolset, ..self.clone() }
    }

    /// Whether they may do what needs this.
    pub fn may(&self, right: Right) -> bool {
        self.rights.has(right)
    }

    /// Whether something that belongs to `owner` is there for them. What has no owner was made on this
    /// machine, or before there were principals: it is the administrator's.
    pub fn can_see(&self, owner: Option<&str>) -> bool {
        self.may(Right::Admin) || owner == Some(&*self.name)
    }

    /// The toolset that compositions made by a run of theirs (`expand`) are held to. Such a composition may
    /// come from the run's input, so it counts as written by the principal.
    fn expands_within(&self) -> Option<Arc<str>> {
        if self.may(Right::Compose) { self.inline.clone() } else { Some(SERVED.into()) }
    }

    /// What is written down of them with a run.
    pub fn caller(&self) -> Caller {
        let (principal, toolset) = (self.name.clone(), self.toolset.clone());
        Caller { principal, toolset, expands_within: self.expands_within() }
    }
}

/// Who began a run, as its journal has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// Whose run it is.
    pub principal: Arc<str>,
    /// The toolset that it is held to, also when it goes on later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolset: Option<Arc<str>>,
    /// The toolset that compositions made by the run are held to, beside that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expands_within: Option<Arc<str>>,
}

impl Caller {
    /// Whose is what its run keeps: the principal's, or nobody's, where the operator came in. What nobody
    /// else has is the operator's, as is what is made at the command line.
    pub fn owner(&self) -> Option<&Arc<str>> {
        let is_operator = matches!(&*self.principal, TOKEN_BEARER | THIS_MACHINE | STDIO);
        (!is_operator).then_some(&self.principal)
    }
}

/// What a scope of a token gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What may be done.
    pub rights: Rights,
    /// With which tools.
    pub toolset: Option<Arc<str>>,
}

/// What several grants come to. Rights add up. Whoever is held to a toolset by one grant is held to it with
/// all of them: a grant that names none never widens what another restricts. Of toolsets there may only
/// be one, because nobody said what two of them together would be.
pub fn combine_grants<'a>(
    grants: impl IntoIterator<Item = &'a Grant>,
) -> Result<Grant, GrantConflict> {
    let mut all: Option<Grant> = None;
    for grant in grants {
        all = Some(match all {
            None => grant.clone(),
            Some(before) => {
                let toolset = match (before.toolset, &grant.toolset) {
                    (Some(one), Some(other)) if one != *other => {
                        return Err(GrantConflict::Toolsets);
                    }
                    (one, other) => one.or_else(|| other.clone()),
                };
                Grant { rights: before.rights.combine(grant.rights), toolset }
            }
        });
    }
    all.ok_or(GrantConflict::Nothing)
}

/// Why grants come to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantConflict {
    /// There are none.
    Nothing,
    /// They speak of different toolsets.
    Toolsets,
}

/// Whether a credential is still good at a moment, in milliseconds since 1970.
pub fn is_unexpired(expires_ms: Option<u64>, now_ms: u64) -> bool {
    expires_ms.is_none_or(|end| now_ms < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody(rights: &[Right]) -> Principal {
        let rights = rights.iter().copied().collect();
        Principal::new("ada", rights)
    }

    /// D3: rights do not come with one another; `admin` is all of them, and who may look may count.
    #[test]
    fn rights_are_what_was_given() {
        for given in Right::GRANTABLE {
            let who = somebody(&[*given]);
            for needed in Right::GRANTABLE {
                let counts = (*given, *needed) == (Right::Read, Right::Metrics);
                let expected = given == needed || *given == Right::Admin || counts;
                assert_eq!(who.may(*needed), expected, "{given:?} {needed:?}");
            }
            assert!(who.may(Right::Public));
            assert_eq!(Right::parse(given.as_str()), Some(*given));
        }
        assert_eq!(Right::parse("anybody"), None);
        assert_eq!((Right::Read.as_str(), Right::parse("look")), ("read", Some(Right::Read)));
        assert_eq!((Right::Write.as_str(), Right::parse("change")), ("write", Some(Right::Write)));
    }

    /// D3: what is somebody else's is not there; what is nobody's is the administrator's.
    #[test]
    fn what_is_theirs_is_seen() {
        let who = somebody(&[Right::Read, Right::Run, Right::Write]);
        let seen = [Some("ada"), Some("bob"), None].map(|owner| who.can_see(owner));
        assert_eq!(seen, [true, false, false]);
        let all = Principal::administrator("the token");
        assert!([Some("ada"), Some("the token"), None].iter().all(|owner| all.can_see(*owner)));
    }

    /// S0: what a host writes itself is held to a toolset of its own, and is still its.
    #[test]
    fn an_author_is_held_to_what_it_may_compose_of() {
        let host = Principal::host("stdio");
        assert_eq!((host.toolset.as_deref(), host.may(Right::Compose)), (None, true));
        let author = host.as_author();
        assert_eq!((&*author.name, author.toolset.as_deref()), ("stdio", Some(INLINE)));
        let held = Principal { toolset: Some("calm".into()), ..somebody(&[Right::Compose]) };
        assert_eq!(held.as_author(), held);
    }

    /// D3: what a run keeps is its principal's; the operator's, by whichever way it came, is in one place.
    #[test]
    fn what_is_kept_has_an_owner() {
        let owner = |who: Principal| who.caller().owner().map(ToString::to_string);
        assert_eq!(owner(somebody(&[Right::Admin])).as_deref(), Some("ada"));
        for name in [TOKEN_BEARER, THIS_MACHINE, STDIO] {
            assert_eq!(owner(Principal::administrator(name)), None, "{name}");
        }
    }

    #[test]
    fn grants_add_up_unless_they_speak_of_different_tools() {
        let grant = |right, toolset: Option<&str>| Grant {
            rights: [right].into_iter().collect(),
            toolset: toolset.map(Arc::from),
        };
        let (look, run) = (grant(Right::Read, Some("a")), grant(Right::Run, Some("a")));
        let both = combine_grants([&look, &run]).unwrap();
        assert!(both.rights.has(Right::Read) && both.rights.has(Right::Run));
        assert!(!both.rights.has(Right::Write));
        assert_eq!(both.toolset.as_deref(), Some("a"));
        // One that names no tools widens nothing, whichever comes first.
        let anywhere = grant(Right::Write, None);
        for grants in [[&look, &anywhere], [&anywhere, &look]] {
            let both = combine_grants(grants).unwrap();
            assert!(both.rights.has(Right::Read) && both.rights.has(Right::Write));
            assert_eq!(both.toolset.as_deref(), Some("a"));
        }
        assert_eq!(
            combine_grants([&anywhere, &look, &grant(Right::Run, Some("b"))]),
            Err(GrantConflict::Toolsets)
        );
        assert_eq!(combine_grants([]), Err(GrantConflict::Nothing));
    }

    #[test]
    fn a_credential_stands_until_its_end() {
        assert!(is_unexpired(None, u64::MAX));
        assert!(is_unexpired(Some(1_000), 999));
        assert!(!is_unexpired(Some(1_000), 1_000));
    }
}
