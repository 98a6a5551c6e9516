//! COMMAND: shows the table of commands to clients.

use super::flag::{APART, LOADING};
use super::options::{Role, Word as OptionWord};
use super::spec::{Command, family};
use super::table::all;
use super::{Cx, Keys, SYNTAX, documents, flag};
use crate::acl::catalog::{CATALOG, Entry, KeyUse, category_number};
use crate::glob::matches;
use crate::number::parse_i64;
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family("command", -1, LOADING | APART, WORDS, command)];

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

/// Returns the command of this name, and its second word if the name has one, as in `config|get`.
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
        "(no subcommand), INFO [<name> ...]: the properties of commands.",
        "COUNT, LIST [FILTERBY ACLCAT|PATTERN|MODULE <value>]: how many there are, and their names.",
        "DOCS [<name> ...]: what they do.",
        "GETKEYS, GETKEYSANDFLAGS <command>: the keys of a request.",
    ];
    cx.out.array(lines.len());
    lines.iter().for_each(|line| cx.out.simple(line));
}

/// `COMMAND LIST [FILTERBY ACLCAT category|PATTERN pattern|MODULE name]`: commands and their
/// subcommands.
fn list(cx: &mut Cx<'_>, args: &Args<'_>) {
    let is = |at: usize, word: &str| args.at(at).eq_ignore_ascii_case(word.as_bytes());
    let chosen: Box<dyn Fn(&Entry) -> bool> = match args.len() {
        2 => Box::new(|_| true),
        5 if is(2, "FILTERBY") && is(3, "ACLCAT") => {
            let category = category_number(args.at(4));
            Box::new(move |entry| category.is_some_and(|category| entry.is_in(category)))
        }
        5 if is(2, "FILTERBY") && is(3, "PATTERN") => {
            let pattern = args.at(4).to_ascii_lowercase();
            Box::new(move |entry| matches(&pattern, entry.name.as_bytes()))
        }
        5 if is(2, "FILTERBY") && is(3, "MODULE") => Box::new(|_| false),
        _ => return cx.out.error(SYNTAX),
    };
    let entries = CATALOG.iter().map(|(_, entry)| entry);
    let names: Vec<&str> = entries
        .filter(|entry| chosen(entry))
        .map(|entry| entry.name.as_str())
        .collect();
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
    let document = documents::of(command.name);
    for (field, value) in [
        ("summary", document.summary),
        ("since", document.since),
        ("group", document.group),
    ] {
        out.bulk(field.as_bytes());
        out.bulk(value.as_bytes());
    }
}

/// `COMMAND GETKEYS|GETKEYSANDFLAGS command …`
fn keys(cx: &mut Cx<'_>, args: &Args<'_>, with_flags: bool) {
    let owned = OwnedArgs::of(args.from(2));
    let request = owned.args();
    let found = cx.state.lookup.find(request.at(0));
    let known = |command: &&Command| request.len() < 2 || command.has_word(request.at(1));
    let Some(command) = found.filter(known) else {
        return cx.out.error("ERR Invalid command specified");
    };
    let entry = CATALOG.entry(command, &request);
    if matches!(command.keys, Keys::None | Keys::All) || entry.has_no_keys() {
        return cx.out.error("ERR The command has no key arguments");
    }
    if command.check_shape(&request).is_err() {
        let text = "ERR Invalid number of arguments specified for command";
        return cx.out.error(text);
    }
    if let Keys::Counted { at, dest } = command.keys
        && parse_i64(request.at(at)).is_none()
        && let Some(keys) = loosely_counted(&request, at, dest)
    {
        cx.out.array(keys.len());
        for key in keys {
            if with_flags {
                cx.out.array(2);
            }
            cx.out.bulk(key);
            if with_flags {
                cx.out.set(0);
            }
        }
        return;
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
        // A script may have no keys.
        return match documents::of(command.name).group {
            "scripting" => cx.out.array(0),
            _ => cx.out.error("ERR Invalid arguments specified for command"),
        };
    }
    cx.out.array(keys.len());
    for (n, key) in keys.iter().enumerate() {
        if with_flags {
            cx.out.array(2);
        }
        cx.out.bulk(key);
        if with_flags {
            flags(entry.key_use(&request, n == 0), &mut cx.out);
        }
    }
}

/// Returns the keys after a count that is not a valid number. The command itself would refuse the count. For COMMAND
/// GETKEYS, Redis reads an invalid count like C's `atoi`, up to the first byte that is not a digit. `None`: the count
/// is zero or exceeds the number of arguments.
fn loosely_counted<'a>(request: &Args<'a>, at: usize, dest: bool) -> Option<Vec<&'a [u8]>> {
    let text = request.at(at).trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let end = digits.iter().position(|byte| !byte.is_ascii_digit());
    let count = std::str::from_utf8(&digits[..end.unwrap_or(digits.len())]).ok()?;
    let count: usize = count.parse().ok()?;
    if count == 0 || count >= request.len() - at {
        return None;
    }
    let mut keys: Vec<&[u8]> = (at + 1..=at + count).map(|n| request.at(n)).collect();
    if dest {
        keys.push(request.at(1));
    }
    Some(keys)
}

fn flags(key: KeyUse, out: &mut Out<'_>) {
    out.set(key.flags().count());
    key.flags().for_each(|flag| out.simple(flag));
}

/// Appends a command's description: the ten fields that COMMAND returns in Redis 7.
fn describe(command: &Command, out: &mut Out<'_>) {
    let entry = CATALOG.named(command.name);
    head(command, command.name, command.arity, entry, out);
    key_specs(command, entry, out);
    out.array(command.words.len());
    for word in command.words {
        describe_word(command, *word, out);
    }
}

/// Appends a subcommand's description. It has the ten fields of a command's description.
fn describe_word(command: &Command, (word, arity): Word, out: &mut Out<'_>) {
    let name = format!("{}|{word}", command.name);
    let entry = CATALOG.named(&name);
    head(command, &name, arity, entry, out);
    key_specs(command, entry, out);
    out.array(0);
}

/// Appends the fields before the key specifications.
fn head(command: &Command, name: &str, arity: i8, entry: Option<&Entry>, out: &mut Out<'_>) {
    let (first, last, step) = match keys_of(command, entry) {
        Keys::Range { first, last, step } => (
            i64::try_from(first).unwrap_or(0),
            i64::from(last),
            i64::try_from(step).unwrap_or(0),
        ),
        Keys::Sort(_) | Keys::Stored(_) => (1, 1, 1),
        Keys::Migrate => (3, 3, 1),
        Keys::Counted { dest, .. } => (i64::from(dest), i64::from(dest), i64::from(dest)),
        Keys::None | Keys::All | Keys::Streams { .. } => (0, 0, 0),
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
    let movable = !matches!(command.keys, Keys::None | Keys::All | Keys::Range { .. });
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
    let categories = || CATALOG.categories(name);
    out.set(categories().count());
    for category in categories() {
        out.simple(&format!("@{category}"));
    }
    // The list of tips is empty. Tips are for clients of several nodes, and this server is one node.
    out.array(0);
}

/// Returns the keys of a command or a subcommand, or [`Keys::None`] if it uses no keys.
fn keys_of(command: &Command, entry: Option<&Entry>) -> Keys {
    match entry {
        Some(entry) if entry.has_no_keys() => Keys::None,
        _ => command.keys,
    }
}

/// A key specification in Redis's words: the place of the first key, and the later arguments that are keys.
struct Spec {
    begin: (&'static str, Begin),
    find: (&'static str, Vec<(&'static str, i64)>),
}

/// The place where the search for the first key begins.
enum Begin {
    Index(usize),
    Word(&'static str, i64),
    Anywhere,
}

impl Spec {
    /// Returns the specification of a range of keys. `last` is relative to the first key or, if
    /// negative, to the end. `limit` selects a part of the range.
    fn range(begin: Begin, last: i64, step: usize, limit: i64) -> Spec {
        let fields = vec![("lastkey", last), ("keystep", int(step)), ("limit", limit)];
        Spec::new(begin, "range", fields)
    }

    fn new(begin: Begin, find: &'static str, fields: Vec<(&'static str, i64)>) -> Spec {
        let name = match begin {
            Begin::Index(_) => "index",
            Begin::Word(..) => "keyword",
            Begin::Anywhere => "unknown",
        };
        Spec {
            begin: (name, begin),
            find: (find, fields),
        }
    }
}

/// Appends the key specifications. Client libraries for clusters use them to find a request's keys.
fn key_specs(command: &Command, entry: Option<&Entry>, out: &mut Out<'_>) {
    let used = |first| entry.map_or(KeyUse::default(), |entry| entry.any_use(first));
    let (head, tail) = (used(true), used(false));
    let mut specs = Vec::new();
    match keys_of(command, entry) {
        Keys::None | Keys::All => {}
        Keys::Sort(_) => {
            let anywhere = || Spec::new(Begin::Anywhere, "unknown", Vec::new());
            specs.push((head, Spec::range(Begin::Index(1), 0, 1, 0)));
            specs.push((head, anywhere()));
            if command.has(flag::WRITE) {
                specs.push((tail, anywhere()));
            }
        }
        Keys::Stored(grammar) => {
            specs.push((head, Spec::range(Begin::Index(1), 0, 1, 0)));
            let targets = grammar
                .words
                .iter()
                .filter(|word| word.role == Role::Target);
            for OptionWord { name, .. } in targets {
                let begin = Begin::Word(name, int(grammar.from));
                specs.push((tail, Spec::range(begin, 0, 1, 0)));
            }
        }
        Keys::Streams { from, .. } => {
            let begin = Begin::Word("STREAMS", int(from));
            specs.push((head, Spec::range(begin, -1, 1, 2)));
        }
        Keys::Migrate => {
            specs.push((head, Spec::range(Begin::Index(3), 0, 1, 0)));
            specs.push((head, Spec::range(Begin::Word("KEYS", -2), -1, 1, 0)));
        }
        Keys::Range { first, last, step } => {
            let last = i64::from(last);
            let relative = if last < 0 { last } else { last - int(first) };
            if head != tail && relative != 0 {
                let rest = if last < 0 { last } else { relative - 1 };
                specs.push((head, Spec::range(Begin::Index(first), 0, 1, 0)));
                specs.push((tail, Spec::range(Begin::Index(first + 1), rest, step, 0)));
            } else {
                specs.push((head, Spec::range(Begin::Index(first), relative, step, 0)));
            }
        }
        Keys::Counted { at, dest } => {
            if dest {
                specs.push((head, Spec::range(Begin::Index(1), 0, 1, 0)));
            }
            let rest = if dest { tail } else { head };
            let counted = vec![("keynumidx", 0), ("firstkey", 1), ("keystep", 1)];
            specs.push((rest, Spec::new(Begin::Index(at), "keynum", counted)));
        }
    }
    out.array(specs.len());
    for (key, spec) in specs {
        out.map(3);
        out.bulk(b"flags");
        flags(key, out);
        describe_spec(&spec, out);
    }
}

fn int(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn describe_spec(spec: &Spec, out: &mut Out<'_>) {
    let step = |out: &mut Out<'_>, name: &str, kind: &str, fields: usize| {
        out.bulk(name.as_bytes());
        out.map(2);
        out.bulk(b"type");
        out.bulk(kind.as_bytes());
        out.bulk(b"spec");
        out.map(fields);
    };
    let number = |out: &mut Out<'_>, name: &str, value: i64| {
        out.bulk(name.as_bytes());
        out.integer(value);
    };
    let (kind, begin) = &spec.begin;
    match begin {
        Begin::Index(index) => {
            step(out, "begin_search", kind, 1);
            number(out, "index", int(*index));
        }
        Begin::Word(word, from) => {
            step(out, "begin_search", kind, 2);
            out.bulk(b"keyword");
            out.bulk(word.as_bytes());
            number(out, "startfrom", *from);
        }
        Begin::Anywhere => step(out, "begin_search", kind, 0),
    }
    let (kind, fields) = &spec.find;
    step(out, "find_keys", kind, fields.len());
    for (name, value) in fields {
        number(out, name, *value);
    }
}
