//! DEBUG: the few subcommands that test suites use. The setting `enable-debug-command` must allow DEBUG.

use crate::command::flag::{ADMIN, ALONE, LOADING};
use crate::command::run::failed;
use crate::command::spec::{Command, plain};
use crate::command::steps::Steps;
use crate::command::{Cx, NOT_INTEGER};
use crate::engine::types;
use crate::number::parse_i64;
use crate::options::DebugAccess;
use crate::resp::parse::Args;
use std::net::SocketAddr;
use std::time::Duration;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[plain("debug", -2, LOADING | ADMIN | ALONE, debug)];

/// The maximum duration of DEBUG SLEEP, seconds.
const SLEEP_SECONDS_MAX: f64 = 3600.0;

fn allowed(cx: &Cx<'_>) -> bool {
    let peer = cx.session.peer.parse::<SocketAddr>();
    let local = cx.session.unix || peer.is_ok_and(|peer| peer.ip().is_loopback());
    match cx.state.options.enable_debug_command {
        DebugAccess::No => false,
        DebugAccess::Yes => true,
        DebugAccess::Local => local,
    }
}

/// `DEBUG word …`
fn debug(cx: &mut Cx<'_>, args: &Args<'_>) {
    if !allowed(cx) {
        return cx.out.error(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        );
    }
    let word = args.at(1).to_ascii_lowercase();
    match (word.as_slice(), args.len()) {
        (b"sleep", 3) => sleep(cx, args.at(2)),
        (b"object", 3..) => object(cx, args.at(2)),
        (b"digest", 2) => {
            digest(cx);
        }
        (b"error", 3) => {
            let text = String::from_utf8_lossy(args.at(2)).into_owned();
            cx.out.error(&text);
        }
        (b"log", 3) => {
            let text = String::from_utf8_lossy(args.at(2)).into_owned();
            tracing::warn!("DEBUG LOG: {text}");
            cx.out.ok();
        }
        (b"step-elements", 3) => step_elements(cx, args.at(2)),
        (b"set-active-expire" | b"quicklist-packed-threshold" | b"stringmatch-len", 3)
        | (b"jmap" | b"change-repl-id" | b"reload" | b"loadaof", _) => cx.out.ok(),
        (b"help", 2) => cx.out.help(&[
            "DEBUG <subcommand> [<arg> ...]. Subcommands are:",
            "DIGEST: a digest of all data.",
            "ERROR <text>, LOG <text>: replies with an error; writes to the log.",
            "JMAP, RELOAD, LOADAOF, CHANGE-REPL-ID, SET-ACTIVE-EXPIRE: accepted, nothing happens.",
            "OBJECT <key>: how a key is kept.",
            "SLEEP <seconds>: stops the whole server for a while.",
            "STEP-ELEMENTS <n>: commands on more than n elements run in steps of n; 0: as usual.",
        ]),
        _ => {
            let word = String::from_utf8_lossy(args.at(1)).into_owned();
            cx.out.error(&format!(
                "ERR unknown subcommand or wrong number of arguments for '{word}'. Try DEBUG HELP."
            ));
        }
    }
}

/// `DEBUG STEP-ELEMENTS n`
fn step_elements(cx: &mut Cx<'_>, arg: &[u8]) {
    let Some(elements) = parse_i64(arg).and_then(|n| u64::try_from(n).ok()) else {
        return cx.out.error(NOT_INTEGER);
    };
    cx.state.steps = match elements {
        0 => Steps::default(),
        elements => Steps {
            long: elements,
            elements,
        },
    };
    cx.out.ok();
}

/// `DEBUG DIGEST`
fn digest(cx: &mut Cx<'_>) {
    let Some(db) = cx.state.db().cloned() else {
        return cx.out.error("ERR the database is not open");
    };
    let digest = match db.digest() {
        Ok(digest) => digest,
        Err(error) => return failed(cx.state, &error, &mut cx.out),
    };
    // The epoch of an empty transaction over all partitions covers all that the digest has read.
    match db.transact(&db.all_partitions(), |_| Ok(())) {
        Ok(((), ticket)) => {
            cx.effects.epoch = cx.effects.epoch.max(ticket.epoch);
            cx.out.simple(&format!("{digest:040x}"));
        }
        Err(error) => failed(cx.state, &error, &mut cx.out),
    }
}

fn sleep(cx: &mut Cx<'_>, arg: &[u8]) {
    let text = std::str::from_utf8(arg).unwrap_or("");
    let seconds = text.parse::<f64>().unwrap_or(0.0);
    if seconds > 0.0 && seconds <= SLEEP_SECONDS_MAX {
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }
    cx.out.ok();
}

/// `DEBUG OBJECT key`
fn object(cx: &mut Cx<'_>, key: &[u8]) {
    let Some(db) = cx.state.db().cloned() else {
        return cx.out.error("ERR no such key");
    };
    let database = cx.session.database;
    let partitions = std::iter::once(db.partition_of(key)).collect();
    let found = db.transact(&partitions, |tx| {
        let table = db.database(database);
        let idle = tx.idle_seconds(table, key)?.unwrap_or(0);
        let row = tx.peek(table, key)?;
        Ok(row.map(|row| (types::encoding(&row), row.value_len(), idle)))
    });
    match found {
        Ok((Some((encoding, bytes, idle)), ticket)) => {
            cx.effects.epoch = cx.effects.epoch.max(ticket.epoch);
            cx.out.simple(&format!(
                "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:0 \
                 lru_seconds_idle:{idle}"
            ));
        }
        Ok((None, _)) => cx.out.error("ERR no such key"),
        Err(error) => failed(cx.state, &error, &mut cx.out),
    }
}
