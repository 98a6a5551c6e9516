//! COMMAND: the table of commands, as clients ask for it.

use super::Group;
use super::flag::LOADING;
use super::spec::{Command, family};
use super::table::all;
use super::{Cx, Keys, SYNTAX, flag};
use crate::acl::catalog::Access;
use crate::glob::matches;
use crate::number::parse_i64;
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family("command", -1, LOADING, WORDS, command).doc(
    Group::Server,
    "2.8.13",
    "Describes the commands.",
)];

/// The second words of COMMAND.
pub(crate) const WORDS: &[(&str, i8)] = &[
    ("count", 2),
    ("docs", -2),
    ("getkeys", -4),
    ("getkeysandflags", -4),
    ("help", 2),
    ("info", -2),
    ("list", -2),
];

/// `COMMAND [COUNT|DOCS|GETKEYS|GETKEYSANDFLAGS|HELP|INFO|LIST …]`
fn command(cx: &mut Cx<'_>, args: &Args<'_>) {
    let word = match args.len() {
        1 => Vec::new(),
        _ => args.at(1).to_ascii_lowercase(),
    };
    match word.as_slice() {
        b"count" => cx.out.count(u64::try_from(all().count()).unwrap_or(0)),
        b"docs" => docs(cx, args),
        b"getkeys" => keys(cx, args, false),
        b"getkeysandflags" => keys(cx, args, true),
        b"help" => help(cx),
        b"list" => list(cx, args),
        _ if args.len() > 2 => {
            cx.out.array(args.len() - 2);
            for name in args.from(2) {
                match found(cx, name) {
                    Some((command, None)) => describe(command, &mut cx.out),
                    Some((command, Some(word))) => describe_word(command, *word, &mut cx.out),
                    None => cx.out.null_array(),
                }
            }
        }
        _ => {
            cx.out.array(all().count());
            all().for_each(|command| describe(command, &mut cx.out));
        }
    }
}

type Word = (&'static str, i8);

/// The command of this name, and its second word if the name has one: `config|get`.
fn found(cx: &Cx<'_>, name: &[u8]) -> Option<(&'static Command, Option<&'static Word>)> {
    let Some(bar) = name.iter().position(|byte| *byte == b'|') else {
        return Some((cx.state.lookup.find(name)?, None));
    };
    let command = cx.state.lookup.find(&name[..bar])?;
    let is = |word: &&Word| name[bar + 1..].eq_ignore_ascii_case(word.0.as_bytes());
    Some((command, Some(command.words.iter().find(is)?)))
}

fn help(cx: &mut Cx<'_>) {
    let lines = [
        "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "(no subcommand), INFO [<name> ...]: what is known of commands.",
        "COUNT, LIST [FILTERBY ACLCAT|PATTERN|MODULE <value>]: how many there are, and their names.",
        "DOCS [<name> ...]: what they do.",
        "GETKEYS, GETKEYSANDFLAGS <command>: the keys of a request.",
    ];
    cx.out.array(lines.len());
    lines.iter().for_each(|line| cx.out.simple(line));
}

/// `COMMAND LIST [FILTERBY ACLCAT category|PATTERN pattern|MODULE name]`
fn list(cx: &mut Cx<'_>, args: &Args<'_>) {
    let is = |at: usize, word: &str| args.at(at).eq_ignore_ascii_case(word.as_bytes());
    let mut names = Vec::new();
    match args.len() {
        2 => names.extend(all().map(|command| command.name.to_owned())),
        5 if is(2, "FILTERBY") && is(3, "ACLCAT") => {
            let is_in = |c: &&Command| c.categories().any(|name| is(4, name));
            names.extend(all().filter(is_in).map(|command| command.name.to_owned()));
        }
        5 if is(2, "FILTERBY") && is(3, "PATTERN") => {
            let pattern = args.at(4).to_ascii_lowercase();
            let words =
                |c: &'static Command| c.words.iter().map(|(w, _)| format!("{}|{w}", c.name));
            let every = all().flat_map(|c| words(c).chain([c.name.to_owned()]));
            names.extend(every.filter(|name| matches(&pattern, name.as_bytes())));
        }
        5 if is(2, "FILTERBY") && is(3, "MODULE") => {}
        _ => return cx.out.error(SYNTAX),
    }
    cx.out.array(names.len());
    names.iter().for_each(|name| cx.out.bulk(name.as_bytes()));
}

/// `COMMAND DOCS [name …]`
fn docs(cx: &mut Cx<'_>, args: &Args<'_>) {
    let named = || args.from(2).filter_map(|name| found(cx, name));
    let wanted: Vec<_> = match args.len() {
        2 => all().map(|command| (command, None)).collect(),
        _ => named().collect(),
    };
    let out = &mut cx.out;
    out.map(wanted.len());
    for (command, word) in wanted {
        let subject = word.map_or(command.name.to_owned(), |w| {
            format!("{}|{}", command.name, w.0)
        });
        out.bulk(subject.as_bytes());
        let words = if word.is_none() { command.words } else { &[] };
        out.map(if words.is_empty() { 3 } else { 4 });
        doc_fields(command, out);
        if !words.is_empty() {
            out.bulk(b"subcommands");
            out.map(words.len());
            for (word, _) in words {
                out.bulk(format!("{}|{word}", command.name).as_bytes());
                out.map(3);
                doc_fields(command, out);
            }
        }
    }
}

fn doc_fields(command: &Command, out: &mut Out<'_>) {
    for (field, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
    ] {
        out.bulk(field.as_bytes());
        out.bulk(value.as_bytes());
    }
}

/// `COMMAND GETKEYS|GETKEYSANDFLAGS command …`
fn keys(cx: &mut Cx<'_>, args: &Args<'_>, with_flags: bool) {
    let Some(command) = cx.state.lookup.find(args.at(2)) else {
        return cx.out.error("ERR Invalid command specified");
    };
    let owned = OwnedArgs::of(args.from(2));
    let request = owned.args();
    if command.keys == Keys::None || command.keys == Keys::All {
        return cx.out.error("ERR The command has no key arguments");
    }
    if command.check_shape(&request).is_err() {
        let text = "ERR Invalid number of arguments specified for command";
        return cx.out.error(text);
    }
    let counted = match command.keys {
        Keys::Counted { at, .. } => {
            let count = parse_i64(request.at(at)).and_then(|n| usize::try_from(n).ok());
            count.is_some_and(|n| n > 0 && n < request.len() - at)
        }
        _ => true,
    };
    let keys: Vec<&[u8]> = command.key_args(&request).collect();
    if keys.is_empty() || !counted {
        return cx.out.error("ERR Invalid arguments specified for command");
    }
    cx.out.array(keys.len());
    for (n, key) in keys.iter().enumerate() {
        if with_flags {
            cx.out.array(2);
        }
        cx.out.bulk(key);
        if with_flags {
            let flags = access_flags(command.access(n == 0));
            cx.out.set(flags.len());
            flags.iter().for_each(|flag| cx.out.simple(flag));
        }
    }
}

fn access_flags(access: Access) -> &'static [&'static str] {
    match (access.read, access.write) {
        (true, true) => &["RW", "access", "update"],
        (false, true) => &["OW", "update"],
        (true, false) => &["RO", "access"],
        (false, false) => &["RO"],
    }
}

/// One command in the ten fields of Redis 7.
fn describe(command: &Command, out: &mut Out<'_>) {
    head(command, (command.name, command.arity), out);
    key_specs(command, out);
    out.array(command.words.len());
    for word in command.words {
        describe_word(command, *word, out);
    }
}

/// A second word, which has the fields of a command.
fn describe_word(command: &Command, (word, arity): Word, out: &mut Out<'_>) {
    let name = format!("{}|{word}", command.name);
    head(command, (&name, arity), out);
    key_specs(command, out);
    out.array(0);
}

/// The fields before the key specifications.
fn head(command: &Command, (name, arity): (&str, i8), out: &mut Out<'_>) {
    let (first, last, step) = match command.keys {
        Keys::Range { first, last, step } => (
            i64::try_from(first).unwrap_or(0),
            i64::from(last),
            i64::try_from(step).unwrap_or(0),
        ),
        Keys::Sort => (1, 1, 1),
        Keys::Counted { dest, .. } => (i64::from(dest), i64::from(dest), i64::from(dest)),
        Keys::None | Keys::All => (0, 0, 0),
    };
    out.array(10);
    out.bulk(name.as_bytes());
    out.integer(i64::from(arity));
    let names = [
        (flag::WRITE, "write"),
        (flag::READ, "readonly"),
        (flag::DENY_OOM, "denyoom"),
        (flag::ADMIN, "admin"),
        (flag::PUBSUB, "pubsub"),
        (flag::LOADING, "loading"),
        (flag::NO_AUTH, "no_auth"),
        (flag::NO_MULTI, "no_multi"),
        (flag::BLOCKING, "blocking"),
        (flag::FAST, "fast"),
    ];
    let held = || names.iter().filter(|(bit, _)| command.has(*bit));
    let movable = matches!(command.keys, Keys::Counted { .. } | Keys::Sort);
    out.set(held().count() + usize::from(movable));
    for (_, name) in held() {
        out.simple(name);
    }
    if movable {
        out.simple("movablekeys");
    }
    out.integer(first);
    out.integer(last);
    out.integer(step);
    out.set(command.categories().count());
    for category in command.categories() {
        out.simple(&format!("@{category}"));
    }
    // There is one node, so that there are no tips for those who ask several.
    out.array(0);
}

/// Where the keys are, as client libraries of clusters read it.
fn key_specs(command: &Command, out: &mut Out<'_>) {
    let range = |out: &mut Out<'_>, access, index: usize, (last, step): (i64, usize)| {
        spec(
            out,
            access,
            index,
            "range",
            &[("lastkey", last), ("keystep", int(step)), ("limit", 0)],
        );
    };
    match command.keys {
        Keys::None | Keys::All => out.array(0),
        Keys::Sort => {
            out.array(1);
            range(out, command.access(true), 1, (0, 1));
        }
        Keys::Range { first, last, step } => {
            let split = command.access(true) != command.access(false);
            let last = i64::from(last);
            let relative = if last < 0 { last } else { last - int(first) };
            if split && relative != 0 {
                let (head, tail) = (command.access(true), command.access(false));
                out.array(2);
                range(out, head, first, (0, 1));
                let relative = if last < 0 { last } else { relative - 1 };
                range(out, tail, first + 1, (relative, step));
            } else {
                out.array(1);
                range(out, command.access(true), first, (relative, step));
            }
        }
        Keys::Counted { at, dest } => {
            out.array(1 + usize::from(dest));
            if dest {
                range(out, command.access(true), 1, (0, 1));
            }
            let rest = command.access(!dest);
            let counted = [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
            spec(out, rest, at, "keynum", &counted);
        }
    }
}

fn int(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn spec(out: &mut Out<'_>, access: Access, index: usize, find: &str, fields: &[(&str, i64)]) {
    out.map(3);
    out.bulk(b"flags");
    let flags = access_flags(access);
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    for (name, kind, fields) in [
        ("begin_search", "index", &[("index", int(index))][..]),
        ("find_keys", find, fields),
    ] {
        out.bulk(name.as_bytes());
        out.map(2);
        out.bulk(b"type");
        out.bulk(kind.as_bytes());
        out.bulk(b"spec");
        out.map(fields.len());
        for (field, value) in fields {
            out.bulk(field.as_bytes());
            out.integer(*value);
        }
    }
}
