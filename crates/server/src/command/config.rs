//! CONFIG: the settings by Redis's names. Most are facts here, not choices: they are shown so
//! that clients and tools find them, and setting them to anything else is refused with a reason.

use super::Group;
use super::flag::{ADMIN, LOADING};
use super::spec::{Command, family};
use super::{Cx, SYNTAX};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::state::{State, Stats};

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family("config", -2, LOADING | ADMIN, WORDS, config)
    .doc(Group::Server, "2.0.0", "Shows and changes settings.")];

/// All settings with their values.
fn settings(state: &State) -> Vec<(&'static str, String)> {
    let db = state.db();
    let limit = db.map_or(0, |db| db.memory().limit());
    let options = &state.options;
    let dir = db.map_or(String::new(), |db| db.options().data.display().to_string());
    let socket = options
        .unix_socket
        .as_ref()
        .map_or(String::new(), |p| p.display().to_string());
    let bind: Vec<String> = options.listen.iter().map(|a| a.ip().to_string()).collect();
    let text = |text: &str| String::from(text);
    vec![
        ("appendfsync", text("always")),
        ("appendonly", text("yes")),
        ("bind", bind.join(" ")),
        (
            "client-query-buffer-limit",
            options.query_bytes_max.to_string(),
        ),
        ("databases", text("16")),
        ("dir", dir),
        ("maxclients", options.maxclients.to_string()),
        (
            "maxmemory",
            if limit == u64::MAX {
                text("0")
            } else {
                limit.to_string()
            },
        ),
        ("maxmemory-policy", text("noeviction")),
        ("port", state.port.to_string()),
        ("proto-max-bulk-len", state.value_bytes_max.to_string()),
        ("save", String::new()),
        ("timeout", options.idle_seconds_max.to_string()),
        ("unixsocket", socket),
    ]
}

/// The second words of CONFIG.
pub(crate) const WORDS: &[(&str, i8)] = &[
    ("get", -3),
    ("help", 2),
    ("resetstat", 2),
    ("rewrite", 2),
    ("set", -4),
];

/// `CONFIG GET|SET|RESETSTAT …`
pub(crate) fn config(cx: &mut Cx<'_>, args: &Args<'_>) {
    let word = args.at(1).to_ascii_lowercase();
    match word.as_slice() {
        b"get" => get(cx, args),
        b"set" if args.len().is_multiple_of(2) => set(cx, args),
        b"set" => cx.out.error(SYNTAX),
        b"resetstat" => {
            cx.state.stats = Stats::default();
            cx.out.ok();
        }
        b"rewrite" => cx
            .out
            .error("ERR The server is running without a config file"),
        _ => {
            cx.out.array(2);
            cx.out
                .simple("CONFIG GET <pattern> [<pattern> ...]: settings and their values.");
            cx.out
                .simple("CONFIG SET <name> <value> ..., CONFIG RESETSTAT: change, or recount.");
        }
    }
}

fn get(cx: &mut Cx<'_>, args: &Args<'_>) {
    let mut found = settings(cx.state);
    found.retain(|(name, _)| {
        args.from(2)
            .any(|pattern| glob(&pattern.to_ascii_lowercase(), name.as_bytes()))
    });
    cx.out.map(found.len());
    for (name, value) in found {
        cx.out.bulk(name.as_bytes());
        cx.out.bulk(value.as_bytes());
    }
}

/// Redis's own limits of `maxclients` and `timeout`.
const CLIENTS_MAX: usize = 4_294_967_295;
const SECONDS_MAX: u64 = 2_147_483_647;

/// A change that has been checked.
enum Change {
    Nothing,
    MaxMemory(u64),
    MaxClients(usize),
    Timeout(u64),
}

fn set(cx: &mut Cx<'_>, args: &Args<'_>) {
    let mut changes = Vec::new();
    for at in (2..args.len()).step_by(2) {
        let given = String::from_utf8_lossy(args.at(at));
        let name = given.to_ascii_lowercase();
        if !settings(cx.state).iter().any(|(known, _)| *known == name) {
            let text = "ERR Unknown option or number of arguments for CONFIG SET";
            return cx.out.error(&format!("{text} - '{given}'"));
        }
        match check(cx.state, &name, args.at(at + 1)) {
            Ok(change) => changes.push(change),
            Err(why) => {
                let text = "ERR CONFIG SET failed (possibly related to argument";
                return cx.out.error(&format!("{text} '{name}') - {why}"));
            }
        }
    }
    for change in changes {
        match change {
            Change::Nothing => {}
            Change::MaxMemory(bytes) => {
                if let Some(db) = cx.state.db() {
                    db.memory()
                        .set_limit(if bytes == 0 { u64::MAX } else { bytes });
                }
            }
            Change::MaxClients(count) => cx.state.options.maxclients = count,
            Change::Timeout(seconds) => cx.state.options.idle_seconds_max = seconds,
        }
    }
    cx.out.ok();
}

fn check(state: &State, name: &str, value: &[u8]) -> Result<Change, &'static str> {
    let integer = || parse_i64(value).ok_or("argument couldn't be parsed into an integer");
    let same = || {
        let value = String::from_utf8_lossy(value);
        settings(state)
            .iter()
            .any(|(known, now)| *known == name && *now == value)
    };
    match name {
        "maxmemory" if state.db().is_none() => Err("the database is still loading"),
        "maxmemory" => bytes(value)
            .map(Change::MaxMemory)
            .ok_or("argument must be a memory value"),
        "maxclients" => usize::try_from(integer()?)
            .ok()
            .filter(|n| (1..=CLIENTS_MAX).contains(n))
            .map(Change::MaxClients)
            .ok_or("argument must be between 1 and 4294967295 inclusive"),
        "timeout" => u64::try_from(integer()?)
            .ok()
            .filter(|n| *n <= SECONDS_MAX)
            .map(Change::Timeout)
            .ok_or("argument must be between 0 and 2147483647 inclusive"),
        _ if same() => Ok(Change::Nothing),
        "maxmemory-policy" => Err("only noeviction is supported for now"),
        "save" => Err("there are no snapshots by time: checkpoints follow the log"),
        "appendonly" => Err("the log cannot be switched off"),
        "appendfsync" => Err("every write is durable before its reply; see CLIENT DURABILITY mem"),
        _ => Err("can't set immutable config"),
    }
}

/// A number of bytes with Redis's units: k is 1000, kb is 1024, and so on.
fn bytes(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = u64::try_from(parse_i64(&text[..digits])?).ok()?;
    let unit = match text[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Whether `pattern` with `*`, `?`, `[a-z]`, `[^a]` and `\` matches `text`. Linear in both:
/// on a mismatch only the latest `*` is tried with one byte more.
pub(crate) fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
        } else if let Some(len) = glob_one(&pattern[p..], text[t]) {
            p += len;
            t += 1;
        } else if let Some((after, from)) = star {
            star = Some((after, from + 1));
            (p, t) = (after, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// How many bytes of the pattern stand for one byte of the text, if they match it.
pub(crate) fn glob_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => {
            let (inverted, set) = match class {
                [b'^', rest @ ..] => (true, rest),
                _ => (false, class),
            };
            let end = set.iter().position(|b| *b == b']').unwrap_or(set.len());
            let mut found = false;
            let mut rest = &set[..end];
            while let [first, tail @ ..] = rest {
                (found, rest) = match tail {
                    [b'-', last, more @ ..] => (found || (*first..=*last).contains(&byte), more),
                    _ => (found || *first == byte, tail),
                };
            }
            let len = pattern.len() - set.len() + (end + 1).min(set.len());
            (found != inverted).then_some(len)
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "save"),
            ("s*e", "save"),
            ("s?ve", "save"),
            ("[a-t]ave", "save"),
        ] {
            assert!(
                glob(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
        for (pattern, text) in [
            ("s*x", "save"),
            ("[^s]ave", "save"),
            ("sav", "save"),
            ("", "a"),
        ] {
            assert!(
                !glob(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
        assert!(!glob(b"[", b"a"));
        let stars = b"*a".repeat(1000);
        assert!(!glob(&stars, &b"a".repeat(900)));
    }

    #[test]
    fn sizes_take_units() {
        assert_eq!(bytes(b"100"), Some(100));
        assert_eq!(bytes(b"2mb"), Some(2 << 20));
        assert_eq!(bytes(b"1G"), Some(1_000_000_000));
        assert_eq!(bytes(b"mb"), None);
        assert_eq!(bytes(b"1x"), None);
    }
}
