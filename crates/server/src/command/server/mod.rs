//! Commands about the server and its data as a whole, and small commands about the connection.

pub(crate) mod acl;
pub(crate) mod backup;
pub(crate) mod config;
pub(crate) mod debug;
pub(crate) mod info;
pub(crate) mod memory;
pub(crate) mod monitor;
pub(crate) mod replication;
pub(crate) mod slowlog;
pub(crate) mod stats;
pub(crate) mod system;
pub(crate) mod waitdur;

use super::connection::hello::REDIS_VERSION;
use super::flag::{ADMIN, APART, FAST, IMMEDIATE, LOADING, NO_AUTH, NO_MULTI};
use super::run::failed;
use super::spec::{Command, plain};
use super::strings::integer_arg;
use super::{After, Cx, SYNTAX, wrong_arity};
use crate::control::Message;
use crate::cpus;
use crate::engine::{Db, Epoch, Error, PartitionSet};
use crate::resp::parse::Args;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    plain("bgsave", -1, ADMIN | APART, bgsave),
    plain("bgrewriteaof", 1, ADMIN | NO_MULTI | APART, bgrewriteaof),
    plain("echo", 2, FAST | APART, echo),
    plain("lastsave", 1, LOADING | FAST | APART, lastsave),
    plain("lolwut", -1, FAST | APART, lolwut),
    plain("ping", -1, FAST | APART, ping),
    plain(
        "quit",
        -1,
        LOADING | NO_AUTH | IMMEDIATE | FAST | APART,
        quit,
    ),
    plain("save", 1, ADMIN | NO_MULTI | APART, save),
    plain("select", 2, LOADING | FAST | APART, select),
    plain("shutdown", -1, LOADING | NO_MULTI | ADMIN | APART, shutdown),
    plain("time", 1, LOADING | FAST | APART, time),
];

/// `PING [text]`
pub(crate) fn ping(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.len() {
        1 | 2 if cx.session.only_listens() => {
            cx.out.array(2);
            cx.out.bulk(b"pong");
            cx.out.bulk(if args.len() == 2 { args.at(1) } else { b"" });
        }
        1 => cx.out.simple("PONG"),
        2 => cx.out.bulk(args.at(1)),
        _ => cx.out.error(&wrong_arity("ping")),
    }
}

/// `ECHO text`
pub(crate) fn echo(cx: &mut Cx<'_>, args: &Args<'_>) {
    cx.out.bulk(args.at(1));
}

/// `QUIT`
pub(crate) fn quit(cx: &mut Cx<'_>, _: &Args<'_>) {
    cx.out.ok();
    cx.effects.after = After::Close;
}

/// `SELECT index`
pub(crate) fn select(cx: &mut Cx<'_>, args: &Args<'_>) {
    let Some(index) = integer_arg(args.at(1), &mut cx.out) else {
        return;
    };
    match u8::try_from(index) {
        Ok(index @ 0..16) => {
            cx.session.database = index;
            cx.out.ok();
        }
        _ if i32::try_from(index).is_ok() => cx.out.error("ERR DB index is out of range"),
        _ => cx.out.error(NOT_INT),
    }
}

/// Redis's text for an integer of more than 32 bits.
pub(crate) const NOT_INT: &str =
    "ERR value is out of range, value must between -2147483648 and 2147483647";

/// `TIME`
pub(crate) fn time(cx: &mut Cx<'_>, _: &Args<'_>) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    cx.out.array(2);
    cx.out.bulk(now.as_secs().to_string().as_bytes());
    cx.out.bulk(now.subsec_micros().to_string().as_bytes());
}

/// `BGSAVE [SCHEDULE]`
pub(crate) fn bgsave(cx: &mut Cx<'_>, args: &Args<'_>) {
    if args.len() > 2
        || !args
            .from(1)
            .all(|word| word.eq_ignore_ascii_case(b"SCHEDULE"))
    {
        return cx.out.error(SYNTAX);
    }
    let running = "ERR Background save already in progress";
    begin_checkpoint(cx, "Background saving started", running);
}

/// `BGREWRITEAOF`: begins a checkpoint, which makes the log shorter.
fn bgrewriteaof(cx: &mut Cx<'_>, _: &Args<'_>) {
    let running = "ERR Background append only file rewriting already in progress";
    begin_checkpoint(cx, "Background append only file rewriting started", running);
}

fn begin_checkpoint(cx: &mut Cx<'_>, started: &str, running: &str) {
    cx.state.look_at_checkpoints();
    let Some(db) = cx.state.db() else { return };
    match db.begin_checkpoint() {
        Ok(true) => cx.out.simple(started),
        Ok(false) => cx.out.error(running),
        Err(error) => failed(cx.state, &error, &mut cx.out),
    }
}

/// `LOLWUT [VERSION n] …`
fn lolwut(cx: &mut Cx<'_>, _: &Args<'_>) {
    let (redis, perdura) = (REDIS_VERSION, env!("CARGO_PKG_VERSION"));
    cx.out.text(&format!(
        "Perdura ver. {perdura}. Answers as Redis ver. {redis}\n"
    ));
}

/// `SAVE`: only the client that sends SAVE waits for the checkpoint.
pub(crate) fn save(cx: &mut Cx<'_>, _: &Args<'_>) {
    if cx.state.common.saves.swap(true, Ordering::AcqRel) {
        return cx.out.error("ERR Background save already in progress");
    }
    cx.state.look_at_checkpoints();
    let Some(db) = cx.state.db().cloned() else {
        cx.state.common.saves.store(false, Ordering::Release);
        return;
    };
    let (client, control) = (cx.session.seat.id, cx.state.control.clone());
    let started = thread::Builder::new().spawn(move || {
        cpus::unpin();
        let result = db.checkpoint();
        control.send(Message::Saved { client, result });
    });
    match started {
        Ok(_) => {
            cx.effects.after = After::Block;
        }
        Err(error) => {
            cx.state.common.saves.store(false, Ordering::Release);
            cx.out
                .error(&format!("ERR cannot start the checkpoint: {error}"));
        }
    }
}

/// `LASTSAVE`
pub(crate) fn lastsave(cx: &mut Cx<'_>, _: &Args<'_>) {
    let ended = cx.state.db().map(|db| db.stats().checkpoint.last_end_us);
    let seconds = cx.state.last_save(ended.unwrap_or(0));
    cx.out.count(seconds);
}

/// `SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] [ABORT]`: NOSAVE skips the checkpoint. All changes are kept even so, because
/// the log restores them.
pub(crate) fn shutdown(cx: &mut Cx<'_>, args: &Args<'_>) {
    let (mut save, mut nosave, mut abort) = (false, false, false);
    for word in args.from(1) {
        match () {
            () if word.eq_ignore_ascii_case(b"SAVE") => save = true,
            () if word.eq_ignore_ascii_case(b"NOSAVE") => nosave = true,
            () if word.eq_ignore_ascii_case(b"ABORT") => abort = true,
            () if word.eq_ignore_ascii_case(b"NOW") => {}
            () if word.eq_ignore_ascii_case(b"FORCE") => {}
            () => return cx.out.error(SYNTAX),
        }
    }
    if (save && nosave) || (abort && args.len() > 2) {
        return cx.out.error(SYNTAX);
    }
    if abort {
        return cx.out.error("ERR No shutdown in progress.");
    }
    cx.effects.after = After::Shutdown {
        checkpoint: !nosave,
    };
}

/// Returns two counts for each database: all keys, and the keys with an expiry. Also returns the newest epoch that
/// these counts depend on. Counts one partition at a time, so no client waits for all latches. Writes of other loops may
/// come between two partitions.
pub(crate) fn keyspace(db: &Db) -> perdura_base::Result<([(u64, u64); 16], Epoch)> {
    let (mut counts, mut newest) = ([(0, 0); 16], Epoch(0));
    // INFO and the metrics must not wait until a restart has loaded everything.
    let absent = db.absent_partitions();
    for id in db
        .all_partitions()
        .iter()
        .filter(|id| !absent.contains(*id))
    {
        let mut parts = PartitionSet::empty();
        parts.insert(id);
        let (part, ticket) = db.transact(&parts, |tx| {
            let found = tx.view(id, |part| {
                let tables = (0..16).map(|index| db.database(index));
                let mut found = [(0, 0); 16];
                for (found, table) in found.iter_mut().zip(tables) {
                    found.0 = part.len(table);
                    if found.0 > 0 {
                        found.1 = part.expiring(table);
                    }
                }
                found
            })?;
            Ok::<_, Error>(found)
        })?;
        newest = newest.max(ticket.epoch);
        for (sum, (keys, expires)) in counts.iter_mut().zip(part) {
            sum.0 += keys;
            sum.1 += expires;
        }
    }
    Ok((counts, newest))
}
