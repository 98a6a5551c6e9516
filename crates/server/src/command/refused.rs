//! Commands of Redis that are not here. They are known by name, so that a client reads why and
//! not that it has mistyped something, and so that rules of access may name them.

use super::spec::{Command, ONE, SECOND, plain};
use super::{Cx, Group, Keys, PlainFn};
use crate::resp::parse::Args;

/// The second words of XGROUP.
const GROUP_WORDS: &[(&str, i8)] = &[
    ("create", -5),
    ("createconsumer", 5),
    ("delconsumer", 5),
    ("destroy", 4),
    ("help", 2),
    ("setid", -5),
];

/// The second words of XINFO.
const INFO_WORDS: &[(&str, i8)] = &[("consumers", 4), ("groups", 3), ("help", 2), ("stream", -3)];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    row("xack", -4, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xadd", -5, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xautoclaim", -6, streams, Group::Stream, "6.2.0").keyed(ONE),
    row("xclaim", -6, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xdel", -3, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xgroup", -2, streams, Group::Stream, "5.0.0")
        .keyed(SECOND)
        .with_words(GROUP_WORDS),
    row("xinfo", -2, streams, Group::Stream, "5.0.0")
        .keyed(SECOND)
        .with_words(INFO_WORDS),
    row("xlen", 2, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xpending", -3, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xrange", -4, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xread", -4, streams, Group::Stream, "5.0.0").keyed(Keys::Streams { from: 1 }),
    row("xreadgroup", -7, streams, Group::Stream, "5.0.0").keyed(Keys::Streams { from: 4 }),
    row("xrevrange", -4, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xsetid", -3, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("xtrim", -4, streams, Group::Stream, "5.0.0").keyed(ONE),
    row("migrate", -6, migrate, Group::Generic, "2.6.0").keyed(Keys::Migrate),
];

const fn row(
    name: &'static str,
    arity: i8,
    run: PlainFn,
    group: Group,
    since: &'static str,
) -> Command {
    plain(name, arity, 0, run).doc(group, since, "Refused: this is not here.")
}

fn refuse(cx: &mut Cx<'_>, args: &Args<'_>, why: &str) {
    let name = String::from_utf8_lossy(args.at(0)).to_ascii_uppercase();
    cx.out.error(&format!("ERR {name} is not supported: {why}"));
}

fn streams(cx: &mut Cx<'_>, args: &Args<'_>) {
    refuse(
        cx,
        args,
        "streams are not there yet; lists and sorted sets are",
    );
}

/// Refuses a command that brings a module.
pub(crate) fn modules(cx: &mut Cx<'_>, args: &Args<'_>) {
    refuse(cx, args, "the server loads no code");
}

fn migrate(cx: &mut Cx<'_>, args: &Args<'_>) {
    let why = "the server calls no other server; DUMP and RESTORE, or `perdura export`, move keys";
    refuse(cx, args, why);
}
