//! CLIENT: settings of a connection, and information about all connections.

mod kill;
mod list;
mod receipt;
mod tracking;

pub(crate) use list::line;

use crate::command::flag::{ALONE, APART, LOADING};
use crate::command::spec::{Command, family};
use crate::command::{Cx, NOT_INTEGER, SYNTAX, wait};
use crate::engine::Durability;
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::session::Mute;
use crate::state::State;
use std::time::{Duration, Instant};

/// The second words of CLIENT.
pub(crate) const WORDS: &[(&str, i8)] = &[
    ("caching", 3),
    ("durability", -2),
    ("getname", 2),
    ("getredir", 2),
    ("help", 2),
    ("id", 2),
    ("info", 2),
    ("kill", -3),
    ("list", -2),
    ("no-evict", 3),
    ("pause", -3),
    ("receipt", 2),
    ("reply", 3),
    ("setinfo", 4),
    ("setname", 3),
    ("tracking", -3),
    ("trackinginfo", 2),
    ("unblock", -3),
    ("unpause", 2),
];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] =
    &[family("client", -2, LOADING | APART | ALONE, WORDS, client)];

/// `CLIENT word …`
fn client(cx: &mut Cx<'_>, args: &Args<'_>) {
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
        b"info" => list::info(cx, args),
        b"list" => list::list(cx, args),
        b"kill" => kill::kill(cx, args),
        b"setinfo" => set_info(cx, args),
        b"no-evict" => match on_or_off(args.at(2)) {
            Some(on) => {
                cx.session.no_evict = on;
                cx.out.ok();
            }
            None => cx.out.error(SYNTAX),
        },
        b"durability" => durability(cx, args),
        b"receipt" => receipt::receipt(cx),
        b"reply" => reply(cx, args.at(2)),
        b"pause" => pause(cx, args),
        b"unpause" => {
            cx.state.unpause();
            cx.out.ok();
        }
        b"unblock" => unblock(cx, args),
        b"getredir" => tracking::redirection(cx),
        b"tracking" => tracking::tracking(cx, args),
        b"trackinginfo" => tracking::info(cx),
        b"caching" => tracking::caching(cx, args.at(2)),
        _ => help(cx),
    }
}

fn on_or_off(word: &[u8]) -> Option<bool> {
    let on = word.eq_ignore_ascii_case(b"ON");
    (on || word.eq_ignore_ascii_case(b"OFF")).then_some(on)
}

/// Fails if a client's name contains a space or a character outside printable ASCII. Such a character would
/// break the line of CLIENT LIST.
pub(crate) fn check_name(name: &[u8]) -> Result<(), &'static str> {
    if name.iter().all(|b| (b'!'..=b'~').contains(b)) {
        Ok(())
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.")
    }
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

/// The error for an unknown word of CLIENT DURABILITY. Redis does not have this command.
pub(crate) const NO_DURABILITY: &str = "ERR the durability is mem, mirror or disk";

/// `CLIENT DURABILITY [mem|mirror|disk]`
fn durability(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.len() {
        2 => cx.out.bulk(cx.session.durability.name().as_bytes()),
        3 => match Durability::named(args.at(2)) {
            Some(durability) => {
                cx.session.durability = durability;
                cx.out.ok();
            }
            None => cx.out.error(NO_DURABILITY),
        },
        _ => cx.out.error(SYNTAX),
    }
}

/// `CLIENT REPLY ON|OFF|SKIP`: only ON is answered.
fn reply(cx: &mut Cx<'_>, word: &[u8]) {
    if word.eq_ignore_ascii_case(b"ON") {
        cx.session.mute = Mute::No;
        cx.out.ok();
    } else if word.eq_ignore_ascii_case(b"OFF") {
        cx.session.mute = Mute::All;
    } else if word.eq_ignore_ascii_case(b"SKIP") {
        if cx.session.mute == Mute::No {
            cx.session.mute = Mute::SkipNext;
        }
    } else {
        cx.out.error(SYNTAX);
    }
}

/// `CLIENT PAUSE milliseconds [WRITE|ALL]`
fn pause(cx: &mut Cx<'_>, args: &Args<'_>) {
    let all = match args.len() {
        3 => true,
        4 if args.at(3).eq_ignore_ascii_case(b"ALL") => true,
        4 if args.at(3).eq_ignore_ascii_case(b"WRITE") => false,
        4 => {
            let text = "ERR CLIENT PAUSE mode must be WRITE or ALL";
            return cx.out.error(text);
        }
        _ => return cx.out.error(SYNTAX),
    };
    let Some(ms) = parse_i64(args.at(2)) else {
        let text = "ERR timeout is not an integer or out of range";
        return cx.out.error(text);
    };
    let Ok(ms) = u64::try_from(ms) else {
        return cx.out.error("ERR timeout is negative");
    };
    let until = Instant::now().checked_add(Duration::from_millis(ms));
    match until {
        Some(until) => {
            cx.state.pause(until, all);
            cx.out.ok();
        }
        None => cx
            .out
            .error("ERR timeout is not an integer or out of range"),
    }
}

/// `CLIENT UNBLOCK id [TIMEOUT|ERROR]`
fn unblock(cx: &mut Cx<'_>, args: &Args<'_>) {
    let error = match args.len() {
        3 => None,
        4 if args.at(3).eq_ignore_ascii_case(b"TIMEOUT") => None,
        4 if args.at(3).eq_ignore_ascii_case(b"ERROR") => {
            Some("UNBLOCKED client unblocked via CLIENT UNBLOCK")
        }
        4 => {
            let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return cx.out.error(text);
        }
        _ => {
            let text = "ERR unknown subcommand or wrong number of arguments for 'UNBLOCK'. Try CLIENT HELP.";
            return cx.out.error(text);
        }
    };
    let Some(id) = parse_i64(args.at(2)) else {
        return cx.out.error(NOT_INTEGER);
    };
    let waited = u64::try_from(id)
        .is_ok_and(|id| wait::unblock(cx.state, id, error) || end_rung_wait(cx.state, id, error));
    cx.out.integer(i64::from(waited));
}

/// Ends the wait of a client of any loop for a durability. Returns whether the client waited.
fn end_rung_wait(state: &mut State, id: u64, error: Option<&str>) -> bool {
    let mut waited = false;
    state.each_mut(|state| waited |= state.end_rung_wait(id, error));
    waited
}

fn help(cx: &mut Cx<'_>) {
    cx.out.help(&[
        "CLIENT <subcommand> [<arg> ...]. Subcommands are:",
        "CACHING (YES|NO): whether the keys that the next command reads are tracked.",
        "DURABILITY [mem|mirror|disk]: answer writes at once, or when the log's nodes or disks have them.",
        "GETREDIR, TRACKINGINFO: how this client's keys are tracked.",
        "GETNAME, SETNAME <name>: the connection's name.",
        "ID, INFO, LIST [TYPE <type>|ID <id> ...]: who is connected.",
        "KILL <address>, KILL <option> <value> ...: ends connections (ADDR LADDR ID TYPE USER SKIPME).",
        "NO-EVICT (ON|OFF): spares this client when clients' buffers take too much.",
        "SETINFO (LIB-NAME|LIB-VER) <text>: accepted from client libraries.",
        "PAUSE <milliseconds> [WRITE|ALL], UNPAUSE: keeps clients waiting.",
        "RECEIPT: life, epoch and durability of this client's newest write, for `perdura receipt check`.",
        "REPLY (ON|OFF|SKIP): whether requests are answered.",
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> ...] [OPTIN] [OPTOUT] \
         [NOLOOP]: reports changes of keys.",
        "UNBLOCK <id> [TIMEOUT|ERROR]: ends the waiting of a client for a key.",
    ]);
}
