//! CLIENT: what a connection says and asks about itself and the others.

use super::Group;
use super::flag::LOADING;
use super::spec::{Command, family};
use super::{Cx, SYNTAX};
use crate::resp::parse::Args;
use crate::session::Durability;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family("client", -2, LOADING, WORDS, client).doc(
    Group::Connection,
    "2.4.0",
    "What connections say and ask about themselves.",
)];

/// The second words of CLIENT.
pub(crate) const WORDS: &[(&str, i8)] = &[
    ("durability", -2),
    ("getname", 2),
    ("help", 2),
    ("id", 2),
    ("info", 2),
    ("list", -2),
    ("no-evict", 3),
    ("setinfo", 4),
    ("setname", 3),
];

/// `CLIENT word …`
pub(crate) fn client(cx: &mut Cx<'_>, args: &Args<'_>) {
    let word = args.at(1).to_ascii_lowercase();
    match word.as_slice() {
        b"setname" => match check_name(args.at(2)) {
            Ok(()) => {
                cx.session.name = args.at(2).to_vec();
                cx.out.ok();
            }
            Err(error) => cx.out.error(error),
        },
        b"getname" if cx.session.name.is_empty() => cx.out.null(),
        b"getname" => cx.out.bulk(&cx.session.name),
        b"id" => cx.out.count(cx.session.seat.id),
        b"info" => {
            let line = cx.session.describe(cx.state.now, cx.out.buf.len());
            cx.out.text(&line);
        }
        b"list" => list(cx, args),
        b"setinfo" => set_info(cx, args),
        b"no-evict" if on_or_off(args.at(2)) => cx.out.ok(),
        b"no-evict" => cx.out.error(SYNTAX),
        b"durability" => durability(cx, args),
        _ => help(cx),
    }
}

fn on_or_off(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ON") || word.eq_ignore_ascii_case(b"OFF")
}

/// A name must print on one line of CLIENT LIST.
pub(crate) fn check_name(name: &[u8]) -> Result<(), &'static str> {
    if name.iter().all(|b| (b'!'..=b'~').contains(b)) {
        Ok(())
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.")
    }
}

/// `CLIENT LIST [TYPE NORMAL]`
fn list(cx: &mut Cx<'_>, args: &Args<'_>) {
    let normal = args.len() == 2
        || (args.len() == 4
            && args.at(2).eq_ignore_ascii_case(b"TYPE")
            && args.at(3).eq_ignore_ascii_case(b"NORMAL"));
    if !normal {
        return cx.out.error(SYNTAX);
    }
    let now = cx.state.now;
    let mut lines = vec![(
        cx.session.seat.id,
        cx.session.describe(now, cx.out.buf.len()),
    )];
    for (_, other) in cx.state.connections.iter() {
        lines.push((
            other.session.seat.id,
            other.session.describe(now, other.replies.unsent()),
        ));
    }
    lines.sort_unstable();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    cx.out.text(&text);
}

/// `CLIENT SETINFO LIB-NAME|LIB-VER text`
fn set_info(cx: &mut Cx<'_>, args: &Args<'_>) {
    let word = args.at(2);
    let slot = if word.eq_ignore_ascii_case(b"LIB-NAME") {
        0
    } else if word.eq_ignore_ascii_case(b"LIB-VER") {
        1
    } else {
        let word = String::from_utf8_lossy(word);
        return cx.out.error(&format!("ERR Unrecognized option '{word}'"));
    };
    if check_name(args.at(3)).is_err() {
        let word = String::from_utf8_lossy(word).to_ascii_lowercase();
        return cx.out.error(&format!(
            "ERR {word} cannot contain spaces, newlines or special characters."
        ));
    }
    cx.session.library[slot] = args.at(3).to_vec();
    cx.out.ok();
}

/// `CLIENT DURABILITY [mem|disk]`
fn durability(cx: &mut Cx<'_>, args: &Args<'_>) {
    if args.len() > 3 {
        return cx.out.error(SYNTAX);
    }
    if args.len() == 2 {
        let name = match cx.session.durability {
            Durability::Disk => "disk",
            Durability::Mem => "mem",
        };
        return cx.out.bulk(name.as_bytes());
    }
    if args.at(2).eq_ignore_ascii_case(b"mem") {
        cx.session.durability = Durability::Mem;
    } else if args.at(2).eq_ignore_ascii_case(b"disk") {
        cx.session.durability = Durability::Disk;
    } else {
        return cx.out.error("ERR the durability is mem or disk");
    }
    cx.out.ok();
}

fn help(cx: &mut Cx<'_>) {
    let lines = [
        "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
        "DURABILITY [mem|disk]: answer writes at once, or when the disk has them.",
        "GETNAME, SETNAME <name>: the connection's name.",
        "ID, INFO, LIST: who is connected.",
        "NO-EVICT (ON|OFF), SETINFO (LIB-NAME|LIB-VER) <text>: accepted from client libraries.",
    ];
    cx.out.array(lines.len());
    for line in lines {
        cx.out.simple(line);
    }
}
