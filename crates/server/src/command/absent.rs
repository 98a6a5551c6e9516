//! FUNCTION and MODULE: what can be asked of them while there are none.
//!
//! Test suites flush scripts and functions when they tear down, tools list them, and libraries ask
//! which scripts exist before they load one. These commands are true of a server without scripts,
//! so they answer as a Redis that was never given any. What would bring a script, a function or a
//! module in is refused.

use super::refused::{modules, scripting};
use super::spec::{Command, family};
use super::{Cx, Group};
use crate::resp::parse::Args;

/// The second words of FUNCTION.
const FUNCTION_WORDS: &[(&str, i8)] = &[
    ("delete", 3),
    ("dump", 2),
    ("flush", -2),
    ("help", 2),
    ("kill", 2),
    ("list", -2),
    ("load", -3),
    ("restore", -3),
    ("stats", 2),
];

/// The second words of MODULE.
const MODULE_WORDS: &[(&str, i8)] = &[
    ("help", 2),
    ("list", 2),
    ("load", -3),
    ("loadex", -3),
    ("unload", 3),
];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    family("function", -2, 0, FUNCTION_WORDS, function).doc(
        Group::Scripting,
        "7.0.0",
        "Answers that there are no functions.",
    ),
    family("module", -2, 0, MODULE_WORDS, module).doc(
        Group::Server,
        "4.0.0",
        "Answers that there are no modules.",
    ),
];

/// Redis's reply to a request to end a script while none runs.
const NOT_BUSY: &str = "NOTBUSY No scripts in execution right now.";

/// `FUNCTION word …`
fn function(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"flush" => flush_functions(cx, args),
        b"list" => list(cx, args),
        b"stats" => stats(cx),
        b"kill" => cx.out.error(NOT_BUSY),
        b"delete" => cx.out.error("ERR Library not found"),
        b"help" => help(
            cx,
            &[
                "FUNCTION <subcommand> [<arg> [value] [opt] ...]. There are no functions. \
                 Subcommands are:",
                "FLUSH [ASYNC|SYNC], LIST [LIBRARYNAME <pattern>] [WITHCODE], STATS, KILL, \
                 DELETE <name>: answer that there are none.",
                "LOAD, RESTORE, DUMP: refused.",
            ],
        ),
        _ => scripting(cx, args),
    }
}

/// `MODULE word …`
fn module(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"list" => cx.out.array(0),
        b"help" => help(
            cx,
            &[
                "MODULE <subcommand> [<arg> [value] [opt] ...]. There are no modules. \
                 Subcommands are:",
                "LIST: answers that there are none.",
                "LOAD, LOADEX, UNLOAD: refused.",
            ],
        ),
        _ => modules(cx, args),
    }
}

fn help(cx: &mut Cx<'_>, lines: &[&str]) {
    cx.out.array(lines.len());
    lines.iter().for_each(|line| cx.out.simple(line));
}

fn is_mode(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"ASYNC") || word.eq_ignore_ascii_case(b"SYNC")
}

/// `FUNCTION FLUSH [ASYNC|SYNC]`
fn flush_functions(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.len() {
        2 => cx.out.ok(),
        3 if is_mode(args.at(2)) => cx.out.ok(),
        3 => cx
            .out
            .error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        _ => {
            let word = String::from_utf8_lossy(args.at(1));
            cx.out.error(&format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try FUNCTION \
                 HELP."
            ));
        }
    }
}

/// `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`
fn list(cx: &mut Cx<'_>, args: &Args<'_>) {
    let (mut named, mut code) = (false, false);
    let mut at = 2;
    while at < args.len() {
        let word = args.at(at);
        if !code && word.eq_ignore_ascii_case(b"WITHCODE") {
            code = true;
        } else if !named && word.eq_ignore_ascii_case(b"LIBRARYNAME") {
            named = true;
            at += 1;
            if at >= args.len() {
                return cx.out.error("ERR library name argument was not given");
            }
        } else {
            let word = String::from_utf8_lossy(word);
            return cx.out.error(&format!("ERR Unknown argument {word}"));
        }
        at += 1;
    }
    cx.out.array(0);
}

/// `FUNCTION STATS`: the engine of Redis, without a library.
fn stats(cx: &mut Cx<'_>) {
    let out = &mut cx.out;
    out.map(2);
    out.bulk(b"running_script");
    out.null();
    out.bulk(b"engines");
    out.map(1);
    out.bulk(b"LUA");
    out.map(2);
    for name in ["libraries_count", "functions_count"] {
        out.bulk(name.as_bytes());
        out.integer(0);
    }
}
