//! Access control: principals, their rights, and which runs and plans they own.
//!
//! Every surface that authenticates a request asks here: which rights the principal has, whether a
//! run or a plan belongs to it, whether its credential has expired, and which rights the scopes of
//! a token grant.
//!
//! Not here: authentication, which the surfaces do.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The toolset for inline compositions of a host on stdio; the setting of the same name adds to it.
pub const INLINE: &str = "server.inline";

/// The toolset for compositions that a run makes when its principal lacks the right `compose`.
pub const SERVED: &str = "served compositions";

/// The principal that presents the operator's token, as journals name it.
pub const TOKEN_BEARER: &str = "the token";

/// The principal of a local request where the server requires no token.
pub const THIS_MACHINE: &str = "this machine";

/// The principal of the host that started `segue mcp`.
pub const STDIO: &str = "stdio";

/// The right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// No right is needed: every caller sees the same answer.
    Public,
    /// Read compositions, tools, templates and one's own runs.
    Read,
    /// Start runs of served compositions and templates, and act on one's own runs.
    Run,
    /// Run inline compositions, and plans made from one's own requests.
    Compose,
    /// Approve: answer the questions of one's own runs, or approve in advance.
    Approve,
    /// Change templates, which all principals share.
    Write,
    /// Read metrics, and nothing else.
    Metrics,
    /// Operate the server: every right, and the runs of every principal.
    Admin,
}

impl Right {
    /// Every right that a token can grant.
    pub const GRANTABLE: &'static [Right] = &[
        Right::Read,
        Right::Run,
        Right::Compose,
        Right::Approve,
        Right::Write,
        Right::Metrics,
        Right::Admin,
    ];

    /// The name that configuration and tokens use.
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

    /// The grantable right of this name. `look` and `change` are the names that `read` and `write` had
    /// in older configurations.
    pub fn parse(word: &str) -> Option<Right> {
        let word = match word {
            "look" => "read",
            "change" => "write",
            word => word,
        };
        Right::GRANTABLE.iter().copied().find(|right| right.as_str() == word)
    }
}

/// A set of rights. No right implies another, except that [`Right::Admin`] implies all of them and
/// [`Right::Read`] implies [`Right::Metrics`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Rights = Rights(0);

    /// Every right.
    pub const ALL: Rights = Rights(bit(Right::Admin));

    /// Whether this set includes `right`.
    pub fn has(self, right: Right) -> bool {
        let also = if right == Right::Metrics { bit(Right::Read) } else { 0 };
        right == Right::Public || self.0 & (bit(right) | bit(Right::Admin) | also) != 0
    }

    /// The union of both sets.
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

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name that journals and the audit log record.
    pub name: Arc<str>,
    /// The rights of this caller.
    pub rights: Rights,
    /// The toolset that limits the caller; without one it may call every tool.
    pub toolset: Option<Arc<str>>,
    /// A narrower toolset for the caller's own inline compositions.
    pub inline: Option<Arc<str>>,
}

impl Principal {
    /// A principal with these rights and every tool.
    pub fn new(name: impl Into<Arc<str>>, rights: Rights) -> Principal {
        Principal { name: name.into(), rights, toolset: None, inline: None }
    }

    /// A principal with every right.
    pub fn administrator(name: impl Into<Arc<str>>) -> Principal {
        Principal::new(name, Rights::ALL)
    }

    /// A principal without a name or rights.
    pub fn anonymous() -> Principal {
        Principal::new("anybody", Rights::NONE)
    }

    /// The administrator's host, in which a model makes the calls. It may run everything that is
    /// served; its inline compositions are limited to the toolset [`INLINE`].
    pub fn host(name: impl Into<Arc<str>>) -> Principal {
        Principal { inline: Some(INLINE.into()), ..Principal::administrator(name) }
    }

    /// This principal as the author of an inline composition: the narrower toolset applies.
    #[must_use]
    pub fn as_author(&self) -> Principal {
        let toolset = self.inline.clone().or_else(|| self.toolset.clone());
        Principal { toolset, ..self.clone() }
    }

    /// Whether the principal has this right.
    pub fn may(&self, right: Right) -> bool {
        self.rights.has(right)
    }

    /// Whether the principal may see an item of `owner`. An item without an owner was made on this
    /// machine, or before principals existed; it belongs to the administrator.
    pub fn can_see(&self, owner: Option<&str>) -> bool {
        self.may(Right::Admin) || owner == Some(&*self.name)
    }

    /// The toolset that limits compositions made by a run of this principal (`expand`). Such a
    /// composition may come from the run's input, so the principal counts as its author.
    fn expands_within(&self) -> Option<Arc<str>> {
        if self.may(Right::Compose) { self.inline.clone() } else { Some(SERVED.into()) }
    }

    /// The part of the principal that a run's journal records.
    pub fn caller(&self) -> Caller {
        let (principal, toolset) = (self.name.clone(), self.toolset.clone());
        Caller { principal, toolset, expands_within: self.expands_within() }
    }
}

/// The caller that started a run, as the journal records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The principal that owns the run.
    pub principal: Arc<str>,
    /// The toolset that limits the run, also after a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolset: Option<Arc<str>>,
    /// The toolset that also limits compositions made by the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expands_within: Option<Arc<str>>,
}

impl Caller {
    /// The owner of data that the run stores: the principal, or `None` for the operator. Items
    /// without an owner are the operator's, like those made at the command line.
    pub fn owner(&self) -> Option<&Arc<str>> {
        person(&self.principal).map(|_| &self.principal)
    }
}

/// The operator has several names, one for every way in.
fn person(name: &str) -> Option<&str> {
    let is_operator = matches!(name, TOKEN_BEARER | THIS_MACHINE | STDIO);
    (!is_operator).then_some(name)
}

/// Who may answer the questions of a run, beyond having the right to approve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApprovalRules {
    /// Whether the principal that started a run may not answer its questions.
    pub four_eyes: bool,
    /// Whether questions stay open that an MCP host cannot put to its user; otherwise calls that ask are
    /// denied.
    pub unasked_wait: bool,
}

impl ApprovalRules {
    /// Why a person may not answer the questions of a run that `starter` started; `None` if it may.
    /// Both are names of principals, and `None` stands for the operator at the command line.
    pub fn refusal(self, answers: Option<&str>, starter: Option<&str>) -> Option<&'static str> {
        let is_same = answers.and_then(person) == starter.and_then(person);
        (self.four_eyes && is_same).then_some(ANOTHER_PERSON)
    }
}

/// The reason of [`ApprovalRules::refusal`].
pub const ANOTHER_PERSON: &str = "another person must answer: who started the run may not";

/// The rights and the toolset that a scope of a token grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The granted rights.
    pub rights: Rights,
    /// The toolset that limits them.
    pub toolset: Option<Arc<str>>,
}

/// Combines grants. Rights add up. A toolset of one grant limits all of them: a grant without a
/// toolset never widens another. Two different toolsets conflict, because no setting says how to
/// combine them.
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

/// Why grants cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantConflict {
    /// The list of grants is empty.
    Nothing,
    /// The grants name different toolsets.
    Toolsets,
}

/// Whether a credential is valid at this time, in milliseconds since 1970.
pub fn is_unexpired(expires_ms: Option<u64>, now_ms: u64) -> bool {
    expires_ms.is_none_or(|end| now_ms < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(rights: &[Right]) -> Principal {
        let rights = rights.iter().copied().collect();
        Principal::new("ada", rights)
    }

    /// D3: a right implies no other, except that `Admin` implies all and `Read` implies `Metrics`.
    #[test]
    fn rights_are_what_was_given() {
        for given in Right::GRANTABLE {
            let who = principal(&[*given]);
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

    /// D3: a principal does not see items of another owner; items without an owner are the
    /// administrator's.
    #[test]
    fn what_is_theirs_is_seen() {
        let who = principal(&[Right::Read, Right::Run, Right::Write]);
        let seen = [Some("ada"), Some("bob"), None].map(|owner| who.can_see(owner));
        assert_eq!(seen, [true, false, false]);
        let all = Principal::administrator("the token");
        assert!([Some("ada"), Some("the token"), None].iter().all(|owner| all.can_see(*owner)));
    }

    /// S0: a host's inline compositions have a toolset of their own, and the host still owns the
    /// runs.
    #[test]
    fn an_author_is_held_to_what_it_may_compose_of() {
        let host = Principal::host("stdio");
        assert_eq!((host.toolset.as_deref(), host.may(Right::Compose)), (None, true));
        let author = host.as_author();
        assert_eq!((&*author.name, author.toolset.as_deref()), ("stdio", Some(INLINE)));
        let held = Principal { toolset: Some("calm".into()), ..principal(&[Right::Compose]) };
        assert_eq!(held.as_author(), held);
    }

    /// D3: data that a run stores belongs to its principal; the operator has one owner by every way
    /// in.
    #[test]
    fn what_is_kept_has_an_owner() {
        let owner = |who: Principal| who.caller().owner().map(ToString::to_string);
        assert_eq!(owner(principal(&[Right::Admin])).as_deref(), Some("ada"));
        for name in [TOKEN_BEARER, THIS_MACHINE, STDIO] {
            assert_eq!(owner(Principal::administrator(name)), None, "{name}");
        }
    }

    /// With four eyes a run is answered by another person; the operator is one person by every way in.
    #[test]
    fn four_eyes_are_those_of_two_people() {
        let rules = ApprovalRules { four_eyes: true, ..ApprovalRules::default() };
        let operator = [None, Some(TOKEN_BEARER), Some(THIS_MACHINE), Some(STDIO)];
        for starter in operator {
            assert!(operator.iter().all(|who| rules.refusal(*who, starter).is_some()));
            assert_eq!(rules.refusal(Some("ada"), starter), None);
            assert_eq!(rules.refusal(starter, Some("ada")), None);
        }
        assert_eq!(rules.refusal(Some("ada"), Some("ada")), Some(ANOTHER_PERSON));
        assert_eq!(rules.refusal(Some("bob"), Some("ada")), None);
        assert_eq!(ApprovalRules::default().refusal(Some("ada"), Some("ada")), None);
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
        // A grant without a toolset widens nothing, in either order.
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
