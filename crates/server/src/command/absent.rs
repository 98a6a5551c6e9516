//! MODULE: the answers of a server without modules.
//!
//! Tools list modules, so the server answers like a Redis without modules. A request to load a module is refused.

use super::Cx;
use super::refused::modules;
use super::spec::{Command, family, flag::APART};
use crate::resp::parse::Args;

/// The second words of MODULE.
const MODULE_WORDS: &[(&str, i8)] = &[
    ("help", 2),
    ("list", 2),
    ("load", -3),
    ("loadex", -3),
    ("unload", 3),
];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family("module", -2, APART, MODULE_WORDS, module)];

/// `MODULE word …`
fn module(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"list" => cx.out.array(0),
        b"help" => help(
            cx,
            &[
                "MODULE <subcommand> [<arg> [value] [opt] ...]. There are no modules. \
                 Subcommands are:",
                "LIST: always empty.",
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
