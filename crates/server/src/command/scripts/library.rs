//! `FUNCTION LOAD|DELETE|LIST|STATS|FLUSH|DUMP|RESTORE|KILL`
//!
//! A change of libraries is a separate transaction, even within MULTI. Within MULTI it runs before the block's
//! transaction, like all plain commands.

use super::functions::{Change, Functions, Library, Quiet};
use super::script::{NOT_BUSY, is_mode};
use super::with_runtime;
use crate::command::run::failed;
use crate::command::{After, Cx};
use crate::engine::{Attempt, Ticket};
use crate::glob;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use crate::state::Stage;
use perdura_rdb::{Error, dump_functions, parse_functions};
use perdura_script::{Header, Registered};

/// The second words of FUNCTION.
pub(super) const WORDS: &[(&str, i8)] = &[
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

/// `FUNCTION word …`
pub(super) fn function(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"load" => load(cx, args),
        b"delete" => delete(cx, args.at(2)),
        b"list" => list(cx, args),
        b"stats" => stats(cx),
        b"flush" => flush(cx, args),
        b"dump" => {
            let libraries = cx.state.scripts.functions.libraries();
            let payload = dump_functions(libraries.map(|(_, library)| &*library.text));
            cx.out.bulk(&payload);
        }
        b"restore" => restore(cx, args),
        b"kill" => cx.out.error(NOT_BUSY),
        _ => cx.out.help(&[
            "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
            "LOAD [REPLACE] <code>: keeps a library.",
            "DELETE <library>: removes a library.",
            "LIST [LIBRARYNAME pattern] [WITHCODE]: the libraries and their functions.",
            "STATS: how many there are.",
            "FLUSH [ASYNC|SYNC]: removes all libraries.",
            "DUMP: all libraries, for RESTORE.",
            "RESTORE <payload> [APPEND|REPLACE|FLUSH]: keeps the libraries of a dump.",
            "KILL: always refused. A script that runs too long is stopped without it.",
        ]),
    }
}

/// Loads a library from each of the texts. The error is a reply.
fn load_all<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Result<Vec<(String, Library)>, String> {
    let mut quiet = Quiet::default();
    let mut loaded = Vec::new();
    for text in texts {
        let one = with_runtime(|runtime| Library::load(runtime, text, &mut quiet));
        loaded.push(one.unwrap_or_else(|| Err(String::from("ERR a script runs already")))?);
    }
    quiet.log();
    Ok(loaded)
}

/// Writes a change to the database and applies it. Returns whether the change was made. Otherwise this function
/// has replied with an error, or has postponed the command until the log has room.
fn commit(cx: &mut Cx<'_>, change: Change) -> bool {
    if let Err(error) = cx.state.scripts.functions.check(&change) {
        cx.out.error(&error);
        return false;
    }
    let Stage::Ready(db) = &cx.state.stage else {
        cx.out.error("ERR the database is not open");
        return false;
    };
    // In a block the write waits for the log, because a block that has begun cannot be postponed.
    match Functions::write(db, &change, cx.state.wall_ms(), cx.in_block) {
        Ok(Attempt::Behind { bytes }) => {
            cx.effects.after = After::Behind(bytes);
            false
        }
        Ok(Attempt::Committed((), Ticket { epoch })) => {
            let gone = cx.state.scripts.functions.apply(change, epoch);
            with_runtime(|runtime| gone.iter().for_each(|sha| runtime.drop_library(sha)));
            (cx.effects.epoch, cx.effects.written) = (epoch, epoch);
            true
        }
        Err(error) => {
            failed(cx.state, &error, &mut cx.out);
            false
        }
    }
}

/// `FUNCTION LOAD [REPLACE] code`
fn load(cx: &mut Cx<'_>, args: &Args<'_>) {
    let mut replaces = false;
    for word in args.from(2).take(args.len() - 3) {
        if !word.eq_ignore_ascii_case(b"REPLACE") {
            let word = String::from_utf8_lossy(word);
            return cx.out.error(&format!("ERR Unknown option given: {word}"));
        }
        replaces = true;
    }
    let text = args.at(args.len() - 1);
    // A name that exists already is reported before the code is checked.
    if let Ok(Header {
        name: Some(name), ..
    }) = Header::of_library(text)
    {
        let name = String::from_utf8_lossy(name);
        if !replaces && cx.state.scripts.functions.has(&name) {
            let text = format!("ERR Library '{name}' already exists");
            return cx.out.error(&text);
        }
    }
    let loaded = match load_all(std::iter::once(text)) {
        Ok(loaded) => loaded,
        Err(error) => return cx.out.error(&error),
    };
    let Some((name, _)) = loaded.first() else {
        return;
    };
    let name = name.clone();
    let mut change = Change::default();
    if replaces && cx.state.scripts.functions.has(&name) {
        change.gone.push(name.clone());
    }
    change.come = loaded;
    if commit(cx, change) {
        cx.out.bulk(name.as_bytes());
    }
}

/// `FUNCTION DELETE name`
fn delete(cx: &mut Cx<'_>, name: &[u8]) {
    let name = String::from_utf8_lossy(name).into_owned();
    if !cx.state.scripts.functions.has(&name) {
        return cx.out.error("ERR Library not found");
    }
    let gone = vec![name];
    if commit(
        cx,
        Change {
            gone,
            ..Change::default()
        },
    ) {
        cx.out.ok();
    }
}

fn all_names(cx: &Cx<'_>) -> Vec<String> {
    let libraries = cx.state.scripts.functions.libraries();
    libraries.map(|(name, _)| name.clone()).collect()
}

/// `FUNCTION FLUSH [ASYNC|SYNC]`
fn flush(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.len() {
        2 => {}
        3 if is_mode(args.at(2)) => {}
        3 => {
            let text = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option";
            return cx.out.error(text);
        }
        _ => return wrong_count(cx, args),
    }
    let gone = all_names(cx);
    if gone.is_empty() {
        // The newest change has removed the last library, so the client's receipt is for that
        // change.
        cx.effects.written = cx.state.scripts.functions.changed;
        return cx.out.ok();
    }
    let change = Change {
        gone,
        ..Change::default()
    };
    if commit(cx, change) {
        cx.out.ok();
    }
}

fn wrong_count(cx: &mut Cx<'_>, args: &Args<'_>) {
    let word = String::from_utf8_lossy(args.at(1));
    cx.out.error(&format!(
        "ERR unknown subcommand or wrong number of arguments for '{word}'. Try FUNCTION HELP."
    ));
}

/// `FUNCTION RESTORE payload [FLUSH|APPEND|REPLACE]`
fn restore(cx: &mut Cx<'_>, args: &Args<'_>) {
    if args.len() > 4 {
        return wrong_count(cx, args);
    }
    let policy = if args.len() == 4 {
        args.at(3).to_ascii_lowercase()
    } else {
        b"append".to_vec()
    };
    if !matches!(policy.as_slice(), b"flush" | b"append" | b"replace") {
        return cx.out.error(
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        );
    }
    let texts = match parse_functions(args.at(2)) {
        Ok(texts) => texts,
        Err(Error::Version { .. } | Error::Checksum { .. } | Error::Truncated { .. }) => {
            return cx
                .out
                .error("ERR DUMP payload version or checksum are wrong");
        }
        Err(_) => return cx.out.error("ERR failed loading functions payload"),
    };
    let come = match load_all(texts.iter().map(Vec::as_slice)) {
        Ok(come) => come,
        Err(error) => return cx.out.error(&error),
    };
    let gone = match policy.as_slice() {
        b"flush" => all_names(cx),
        b"replace" => {
            let names = come.iter().map(|(name, _)| name.clone());
            names
                .filter(|name| cx.state.scripts.functions.has(name))
                .collect()
        }
        _ => Vec::new(),
    };
    if commit(cx, Change { gone, come }) {
        cx.out.ok();
    }
}

/// `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`
fn list(cx: &mut Cx<'_>, args: &Args<'_>) {
    let (mut pattern, mut code) = (None, false);
    let mut at = 2;
    while at < args.len() {
        let word = args.at(at);
        if !code && word.eq_ignore_ascii_case(b"WITHCODE") {
            code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"LIBRARYNAME") {
            at += 1;
            if at >= args.len() {
                return cx.out.error("ERR library name argument was not given");
            }
            pattern = Some(args.at(at));
        } else {
            let word = String::from_utf8_lossy(word);
            return cx.out.error(&format!("ERR Unknown argument {word}"));
        }
        at += 1;
    }
    let functions = &cx.state.scripts.functions;
    let wanted = |name: &str| pattern.is_none_or(|pattern| glob::matches(pattern, name.as_bytes()));
    let chosen: Vec<_> = functions
        .libraries()
        .filter(|(name, _)| wanted(name))
        .collect();
    cx.out.array(chosen.len());
    for (name, library) in chosen {
        cx.out.map(if code { 4 } else { 3 });
        cx.out.bulk(b"library_name");
        cx.out.bulk(name.as_bytes());
        cx.out.bulk(b"engine");
        cx.out.bulk(b"LUA");
        cx.out.bulk(b"functions");
        cx.out.array(library.functions.len());
        for function in &library.functions {
            describe(function, &mut cx.out);
        }
        if code {
            cx.out.bulk(b"library_code");
            cx.out.bulk(&library.text);
        }
    }
}

fn describe(function: &Registered, out: &mut Out<'_>) {
    out.map(3);
    out.bulk(b"name");
    out.bulk(function.name.as_bytes());
    out.bulk(b"description");
    match &function.description {
        Some(text) => out.bulk(text),
        None => out.null(),
    }
    out.bulk(b"flags");
    out.set(function.flags.names().count());
    function.flags.names().for_each(|flag| out.simple(flag));
}

/// `FUNCTION STATS`
fn stats(cx: &mut Cx<'_>) {
    let functions = &cx.state.scripts.functions;
    let counts = [functions.libraries().len(), functions.count()];
    let out = &mut cx.out;
    out.map(2);
    out.bulk(b"running_script");
    out.null();
    out.bulk(b"engines");
    out.map(1);
    out.bulk(b"LUA");
    out.map(2);
    for (name, count) in ["libraries_count", "functions_count"]
        .into_iter()
        .zip(counts)
    {
        out.bulk(name.as_bytes());
        out.count(u64::try_from(count).unwrap_or(u64::MAX));
    }
}
