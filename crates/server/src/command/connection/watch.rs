//! WATCH and UNWATCH.

use crate::command::Cx;
use crate::command::flag::{APART, FAST, IMMEDIATE, LOADING};
use crate::command::run::failed;
use crate::command::spec::{Command, EACH, plain};
use crate::engine::{Error, Tx};
use crate::resp::parse::Args;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    plain("unwatch", 1, LOADING | FAST | APART, unwatch),
    plain("watch", -2, LOADING | IMMEDIATE | FAST | APART, watch).keyed(EACH),
];

/// `WATCH key [key …]`
pub(crate) fn watch(cx: &mut Cx<'_>, args: &Args<'_>) {
    if cx.session.block.is_some() {
        return cx.out.error("ERR WATCH inside MULTI is not allowed");
    }
    let database = cx.session.database;
    if let Some(db) = cx.state.db().cloned() {
        let partitions = args.from(1).map(|key| db.partition_of(key)).collect();
        let (watches, own) = (&cx.state.common.watches, &mut cx.session.watched);
        let read = |tx: &mut Tx<'_>| {
            let table = db.database(database);
            let expiry = |key| Ok(tx.peek(table, key)?.and_then(|row| row.expiry_ms()));
            args.from(1).map(expiry).collect::<Result<Vec<_>, Error>>()
        };
        // The watches begin under the latches, so no change comes between the expiry time and the watch.
        let begin = |expiries: &mut Vec<Option<u64>>, _| {
            for (key, expiry_ms) in args.from(1).zip(expiries.iter()) {
                watches.add(own, database, key, *expiry_ms);
            }
        };
        let done = db.transact_then(&partitions, cx.state.wall_ms(), read, begin);
        if let Err(error) = done {
            return failed(cx.state, &error, &mut cx.out);
        }
    }
    cx.out.ok();
}

/// `UNWATCH`
pub(crate) fn unwatch(cx: &mut Cx<'_>, _: &Args<'_>) {
    cx.state.common.watches.forget(&mut cx.session.watched);
    cx.out.ok();
}
