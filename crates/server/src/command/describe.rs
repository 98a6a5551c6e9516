//! COMMAND: the table of commands, as clients ask for it.

use super::Group;
use super::flag::LOADING;
use super::spec::{Command, family};
use super::table::all;
use super::{Cx, Keys, flag};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family("command", -1, LOADING, WORDS, command).doc(
    Group::Server,
    "2.8.13",
    "Describes the commands.",
)];

/// The second words of COMMAND.
pub(crate) const WORDS: &[(&str, i8)] = &[("count", 2), ("docs", -2), ("info", -2), ("list", -2)];

/// `COMMAND [COUNT|DOCS|INFO|LIST …]`
pub(crate) fn command(cx: &mut Cx<'_>, args: &Args<'_>) {
    let out = &mut cx.out;
    if args.len() == 1 {
        out.array(all().count());
        for command in all() {
            describe(command, out);
        }
        return;
    }
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"count" => out.count(u64::try_from(all().count()).unwrap_or(0)),
        // Nothing is known beyond the names: clients then offer no hints.
        b"docs" => out.map(0),
        b"list" => {
            out.array(all().count());
            for command in all() {
                out.bulk(command.name.as_bytes());
            }
        }
        // INFO without names is COMMAND itself.
        _ if args.len() == 2 => {
            out.array(all().count());
            for command in all() {
                describe(command, out);
            }
        }
        _ => {
            out.array(args.len() - 2);
            for name in args.from(2) {
                match cx.state.lookup.find(name) {
                    Some(command) => describe(command, out),
                    None => out.null(),
                }
            }
        }
    }
}

/// One command in the ten fields of Redis 7.
fn describe(command: &Command, out: &mut Out<'_>) {
    let (first, last, step) = match command.keys {
        Keys::Range { first, last, step } => (
            i64::try_from(first).unwrap_or(0),
            i64::from(last),
            i64::try_from(step).unwrap_or(0),
        ),
        Keys::Counted { dest, .. } => (i64::from(dest), i64::from(dest), i64::from(dest)),
        Keys::None | Keys::All => (0, 0, 0),
    };
    out.array(10);
    out.bulk(command.name.as_bytes());
    out.integer(i64::from(command.arity));
    let names = [
        (flag::WRITE, "write"),
        (flag::READ, "readonly"),
        (flag::ADMIN, "admin"),
        (flag::LOADING, "loading"),
        (flag::NO_AUTH, "no_auth"),
        (flag::NO_MULTI, "no_multi"),
        (flag::FAST, "fast"),
    ];
    let held = || names.iter().filter(|(bit, _)| command.has(*bit));
    out.set(held().count());
    for (_, name) in held() {
        out.simple(name);
    }
    out.integer(first);
    out.integer(last);
    out.integer(step);
    // Access categories, tips, key specifications and subcommands.
    out.set(0);
    out.array(0);
    out.array(0);
    out.array(0);
}
