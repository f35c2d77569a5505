//! A command line → the ranges that are secrets.
//!
//! A flag marks a secret (`--password S`, `-u user:S`, `-pS`), or its look does ([`super::parts`]). A
//! script in one argument (`sh -c '…'`) is read like a command line. The rest stays readable: the user
//! decides by it whether to trust the program.

use std::ops::Range;

use super::is_secret_name;
use super::parts::{secret_parts, unlabelled_parts};

/// The secret ranges of one argument.
#[derive(Default)]
pub(super) struct SecretRanges {
    /// The ranges.
    pub(super) ranges: Vec<Range<usize>>,
    /// Whether the whole argument is secret.
    pub(super) is_all: bool,
}

/// Programs with a short flag for a password, and the flag.
const PASSWORD_FLAGS: &[(&str, char)] = &[
    ("7z", 'p'),
    ("7za", 'p'),
    ("curl", 'b'),
    ("ldapadd", 'w'),
    ("ldapmodify", 'w'),
    ("ldapsearch", 'w'),
    ("mariadb", 'p'),
    ("mosquitto_pub", 'P'),
    ("mosquitto_sub", 'P'),
    ("mysql", 'p'),
    ("mysqladmin", 'p'),
    ("mysqldump", 'p'),
    ("openssl", 'k'),
    ("redis-cli", 'a'),
    ("sqlcmd", 'P'),
    ("sshpass", 'p'),
    ("unzip", 'P'),
    ("zip", 'P'),
];

/// Long flags with one `-` that begin with `p`.
const P_WORDS: &[&str] = &[
    "package", "parallel", "params", "path", "paths", "perm", "pid", "pipe", "platform", "plugin",
    "port", "prefix", "preset", "pretty", "print", "print0", "printf", "private", "profile",
    "project", "protocol", "proxy", "prune", "publish", "pwd",
];

/// Such flags whose value is a password.
const P_SECRETS: &[&str] = &["pass", "passin", "passout", "passphrase", "passwd", "password", "pw"];

/// Flags whose value is `user:password`.
const LOGINS: &[&str] = &["user", "proxy-user", "userpass", "user-password", "login"];

/// Shells, which take a script as one argument.
const SHELLS: &[&str] = &["bash", "dash", "fish", "ksh", "sh", "zsh"];

/// Names of secret query parameters, beside the usual names.
const QUERY_SECRETS: &[&str] = &["code"];

/// How deep scripts in scripts are searched for secrets.
const DEPTH_MAX: usize = 4;

/// What a flag says about the next argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextWord {
    /// The flag is its name.
    Named,
    /// It is a secret.
    Secret,
    /// It is a secret, unless it is another flag.
    SecretOrFlag,
    /// The part after the user name is a secret.
    Login,
    /// It is a script.
    Script,
}

/// The secrets of each argument of a command line. Without a program, the first argument is the program.
pub(super) fn argument_secrets(program: &str, words: &[&str]) -> Vec<SecretRanges> {
    CommandLine { program: base(program), next: None, depth: 0 }.read(words)
}

/// The secrets of a text, which is the value of `name`.
pub(super) fn text_secrets(name: &str, text: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<_> = secret_parts(name, text).into_iter().map(|part| part.range).collect();
    ranges.extend(of_address(text));
    // A command line written as one text.
    if matches!(name, "command" | "argv") {
        ranges.extend(script(text, 0));
    }
    ranges
}

/// The state while a command line is read.
struct CommandLine<'a> {
    program: &'a str,
    next: Option<(&'a str, NextWord)>,
    depth: usize,
}

impl<'a> CommandLine<'a> {
    fn read(mut self, words: &[&'a str]) -> Vec<SecretRanges> {
        words.iter().map(|word| self.word(word)).collect()
    }

    fn word(&mut self, word: &'a str) -> SecretRanges {
        let (name, next) = self.next.take().unwrap_or(("", NextWord::Named));
        let is_flag = is_flag(word);
        match next {
            NextWord::Secret => return SecretRanges { ranges: whole(word), is_all: true },
            NextWord::SecretOrFlag if !is_flag => {
                return SecretRanges { ranges: whole(word), is_all: true };
            }
            NextWord::Script => {
                return SecretRanges { ranges: script(word, self.depth), is_all: false };
            }
            _ => {}
        }
        let mut ranges = text_secrets(name, word);
        if next == NextWord::Login {
            ranges.extend(after_login(word, 0));
        }
        if word.starts_with('-') {
            ranges.extend(self.flag(word));
        } else if self.program.is_empty() || is_known(base(word)) {
            self.program = base(word);
        }
        if let Some((name, _)) = word.strip_prefix('/').and_then(|word| word.split_once(':'))
            && is_secret_name(name)
        {
            ranges.push(name.len() + 2..word.len());
        }
        if word.contains(char::is_whitespace) {
            ranges.extend(script(word, self.depth));
        }
        SecretRanges { ranges, is_all: false }
    }

    /// The secret part of a flag that holds its own value.
    fn flag(&mut self, word: &'a str) -> Option<Range<usize>> {
        let name = word.trim_start_matches('-');
        let (name, value) = name.split_once('=').map_or((name, None), |(n, v)| (n, Some(v)));
        let value_at = word.len() - value.map_or(0, str::len);
        let is_long = word.starts_with("--");
        if LOGINS.contains(&name) {
            self.expect(name, NextWord::Login, value);
            return value.and_then(|_| after_login(word, value_at));
        }
        if !is_long && P_SECRETS.contains(&name) {
            self.expect(name, NextWord::Secret, value);
            return value.map(|_| value_at..word.len());
        }
        if !is_long && SHELLS.contains(&self.program) && name.ends_with('c') && name.len() < 5 {
            self.next = Some((name, NextWord::Script));
            return None;
        }
        let mut chars = name.chars();
        let short = chars.next().filter(|_| !is_long && !P_WORDS.contains(&name));
        match short.and_then(|short| self.short(short)) {
            Some(next) => {
                let rest = chars.as_str();
                if rest.is_empty() && value.is_none() {
                    self.next = Some((name, next));
                    return None;
                }
                let rest_at = 2;
                match next {
                    NextWord::Login => after_login(word, rest_at),
                    _ => Some(rest_at..word.len()),
                }
            }
            None => {
                let next = if is_secret_name(name) { NextWord::Secret } else { NextWord::Named };
                self.expect(name, next, value);
                None
            }
        }
    }

    fn expect(&mut self, name: &'a str, next: NextWord, value: Option<&str>) {
        self.next = value.is_none().then_some((name, next));
    }

    /// What a short flag of the program says about the next argument.
    fn short(&self, flag: char) -> Option<NextWord> {
        if PASSWORD_FLAGS.contains(&(self.program, flag)) {
            return Some(NextWord::SecretOrFlag);
        }
        match flag {
            'u' | 'U' => Some(NextWord::Login),
            _ => None,
        }
    }
}

fn whole(text: &str) -> Vec<Range<usize>> {
    std::iter::once(0..text.len()).collect()
}

/// Whether an argument is a flag such as `-x` or `--word`.
fn is_flag(word: &str) -> bool {
    let name = word.strip_prefix("--").filter(|name| name.len() > 1);
    let name = name.or_else(|| word.strip_prefix('-').filter(|name| name.len() == 1));
    name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
}

fn is_known(program: &str) -> bool {
    PASSWORD_FLAGS.iter().any(|(name, _)| *name == program)
}

/// The file name of a program.
fn base(program: &str) -> &str {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    name.strip_suffix(".exe").unwrap_or(name)
}

/// The password of `user:password` or `user%password`. Passwords of URLs are found by [`of_address`].
fn after_login(word: &str, start: usize) -> Option<Range<usize>> {
    let login = &word[start..];
    if login.contains("://") {
        return None;
    }
    let at = start + login.find([':', '%'])? + 1;
    Some(at..word.len())
}

/// Secrets of a URL that [`super::parts`] does not find: HTTP allows a token in place of the user name.
fn of_address(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for (at, _) in text.match_indices("://") {
        let start = at + 3;
        let rest = &text[start..];
        let rest = &rest
            [..rest.find(|c: char| c.is_whitespace() || "\"'`".contains(c)).unwrap_or(rest.len())];
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let is_web = text[..at].to_ascii_lowercase().ends_with("http")
            || text[..at].to_ascii_lowercase().ends_with("https");
        if let Some(end) = authority.rfind('@')
            && is_web
        {
            ranges.push(start..start + end);
        }
        let mut at = start + rest.find('?').map_or(rest.len(), |at| at + 1);
        while at < start + rest.len() {
            let field = text[at..start + rest.len()].split(['&', ';', '#']).next().unwrap_or("");
            if let Some((name, value)) = field.split_once('=')
                && (is_secret_name(name) || QUERY_SECRETS.contains(&name))
            {
                ranges.push(at + field.len() - value.len()..at + field.len());
            }
            at += field.len() + 1;
        }
    }
    ranges
}

/// The secrets of a shell script: each of its commands is a command line.
fn script(text: &str, depth: usize) -> Vec<Range<usize>> {
    // Too deep to search for secrets, but the user must still see what would run.
    if depth == DEPTH_MAX {
        return Vec::new();
    }
    let mut ranges = Vec::new();
    for command in commands(text) {
        let words: Vec<&str> = command.iter().map(|range| &text[range.clone()]).collect();
        let line = CommandLine { program: "", next: None, depth: depth + 1 };
        for (secret, range) in line.read(&words).into_iter().zip(&command) {
            let shifted = |it: Range<usize>| it.start + range.start..it.end + range.start;
            ranges.extend(secret.ranges.into_iter().map(shifted));
        }
        // Secrets that span several words, as after `Bearer`.
        if let (Some(first), Some(last)) = (command.first(), command.last()) {
            let found = unlabelled_parts(&text[first.start..last.end]).into_iter();
            ranges.extend(found.map(|it| it.range.start + first.start..it.range.end + first.start));
        }
    }
    // A command substitution is code, not a secret.
    ranges.retain(|range| !["$(", "`", "<("].iter().any(|runs| text[range.clone()].contains(runs)));
    ranges
}

/// The commands of a script, as ranges of their words without quotes.
fn commands(text: &str) -> Vec<Vec<Range<usize>>> {
    let mut commands = vec![Vec::new()];
    let (mut start, mut quote, mut is_escaped) = (None, None, false);
    for (at, c) in text.char_indices() {
        if std::mem::take(&mut is_escaped) {
            continue;
        }
        let ends = quote.is_none() && (c.is_whitespace() || ";|&()".contains(c));
        if ends {
            if let (Some(start), Some(command)) = (start.take(), commands.last_mut()) {
                command.push(unquoted(text, start..at));
            }
            if c == '\n' || !c.is_whitespace() {
                commands.push(Vec::new());
            }
            continue;
        }
        start = start.or(Some(at));
        match c {
            '\\' if quote != Some('\'') => is_escaped = true,
            '"' | '\'' if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            _ => {}
        }
    }
    if let (Some(start), Some(command)) = (start, commands.last_mut()) {
        command.push(unquoted(text, start..text.len()));
    }
    commands
}

/// A word without its quotes.
fn unquoted(text: &str, range: Range<usize>) -> Range<usize> {
    let word = &text[range.clone()];
    let is_quoted = |quote: char| {
        word.len() > 1
            && word.starts_with(quote)
            && word.ends_with(quote)
            && !word[1..word.len() - 1].contains(quote)
    };
    if is_quoted('"') || is_quoted('\'') { range.start + 1..range.end - 1 } else { range }
}
