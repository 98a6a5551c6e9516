//! MEMORY: the memory of a key, and of the whole server.

use crate::command::flag::LOADING;
use crate::command::run::failed;
use crate::command::server::keyspace;
use crate::command::spec::{Command, SECOND, family};
use crate::command::{Cx, NOT_INTEGER, SYNTAX};
use crate::engine::{Error, RowRef, TableId, Tx};
use crate::number::parse_i64;
use crate::resp::parse::Args;
use crate::resp::reply::Out;

const WORDS: &[(&str, i8)] = &[
    ("doctor", 2),
    ("help", 2),
    ("malloc-stats", 2),
    ("purge", 2),
    ("stats", 2),
    ("usage", -3),
];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] =
    &[family("memory", -2, LOADING, WORDS, memory).keyed(SECOND)];

/// The bytes that a row takes besides its data: a header in a page and an entry in an index.
const ROW_BYTES: u64 = 24;
/// The number of elements that MEMORY USAGE samples if the request gives no SAMPLES.
const SAMPLES: i64 = 5;

fn length(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// `MEMORY word …`
fn memory(cx: &mut Cx<'_>, args: &Args<'_>) {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"usage" => usage(cx, args),
        b"stats" => stats(cx),
        b"purge" => cx.out.ok(),
        b"doctor" => doctor(cx),
        b"malloc-stats" => cx.out.text("Stats not supported for the current allocator"),
        _ => cx.out.help(&[
            "MEMORY <subcommand> [<arg> ...]. Subcommands are:",
            "DOCTOR, MALLOC-STATS, PURGE: accepted; INFO memory says what there is to say.",
            "STATS: what the whole costs.",
            "USAGE <key> [SAMPLES <count>]: what a key costs, elements estimated from samples.",
        ]),
    }
}

/// `MEMORY USAGE key [SAMPLES count]`
fn usage(cx: &mut Cx<'_>, args: &Args<'_>) {
    let samples = match samples(args) {
        Ok(samples) => samples,
        Err(error) => return cx.out.error(error),
    };
    let Some(db) = cx.state.db().cloned() else {
        return cx.out.null();
    };
    let (key, database) = (args.at(2), cx.session.database);
    let partitions = std::iter::once(db.partition_of(key)).collect();
    let cost = db.transact(&partitions, |tx| {
        cost(tx, db.database(database), key, samples)
    });
    match cost {
        Ok((cost, ticket)) => {
            cx.effects.epoch = cx.effects.epoch.max(ticket.epoch);
            answer(cost, &mut cx.out);
        }
        Err(error) => failed(cx.state, &error, &mut cx.out),
    }
}

/// Runs `MEMORY USAGE` inside the transaction `tx`, which may already have written the key.
pub(crate) fn usage_within(
    tx: &mut Tx<'_>,
    table: TableId,
    args: &Args<'_>,
    out: &mut Out<'_>,
) -> Result<(), Error> {
    match samples(args) {
        Ok(samples) => answer(cost(tx, table, args.at(2), samples)?, out),
        Err(error) => out.error(error),
    }
    Ok(())
}

fn answer(cost: Option<u64>, out: &mut Out<'_>) {
    match cost {
        Some(bytes) => out.count(bytes),
        None => out.null(),
    }
}

/// Reads the greatest number of elements to sample. The error is a reply.
fn samples(args: &Args<'_>) -> Result<usize, &'static str> {
    let samples = match args.len() {
        3 => SAMPLES,
        5 if args.at(3).eq_ignore_ascii_case(b"SAMPLES") => match parse_i64(args.at(4)) {
            None => return Err(NOT_INTEGER),
            Some(..0) => return Err(SYNTAX),
            Some(0) => i64::MAX,
            Some(count) => count,
        },
        _ => return Err(SYNTAX),
    };
    Ok(usize::try_from(samples).unwrap_or(usize::MAX))
}

fn cost(tx: &mut Tx<'_>, table: TableId, key: &[u8], samples: usize) -> Result<Option<u64>, Error> {
    let Some(row) = tx.peek(table, key)? else {
        return Ok(None);
    };
    let own = ROW_BYTES + length(key.len()) + length(row.value_len());
    let Some(home) = row.home() else {
        return Ok(Some(own));
    };
    let elements = tx.elements(table, home)?;
    let (mut looked_at, mut bytes) = (0, 0);
    for element in elements.iter().take(samples) {
        looked_at += 1;
        bytes += ROW_BYTES + size(&element);
    }
    let all = u128::from(bytes) * u128::from(elements.len());
    let all = all.checked_div(looked_at).unwrap_or(0);
    Ok(Some(
        own.saturating_add(u64::try_from(all).unwrap_or(u64::MAX)),
    ))
}

fn size(element: &RowRef<'_>) -> u64 {
    length(element.field().len()) + length(element.value_len())
}

/// `MEMORY STATS`: the fields of Redis that have a meaning in Perdura.
fn stats(cx: &mut Cx<'_>) {
    let Some(db) = cx.state.db().cloned() else {
        return cx.out.map(0);
    };
    let used = db.memory().used();
    let clients = cx.state.figures().client_bytes;
    let keys: u64 = match keyspace(&db) {
        Ok((counts, epoch)) => {
            cx.effects.epoch = cx.effects.epoch.max(epoch);
            counts.iter().map(|(keys, _)| keys).sum()
        }
        Err(_) => 0,
    };
    let fields = [
        ("total.allocated", used),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", length(clients)),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("keys.count", keys),
        ("keys.bytes-per-key", used.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", used),
    ];
    cx.out.map(fields.len());
    for (name, value) in fields {
        cx.out.bulk(name.as_bytes());
        cx.out.count(value);
    }
}

fn doctor(cx: &mut Cx<'_>) {
    let account = cx.state.db().map(|db| db.memory());
    let (used, limit) = account.map_or((0, u64::MAX), |a| (a.used(), a.limit()));
    let text = if limit == u64::MAX {
        format!(
            "{used} bytes are used; maxmemory sets no limit, so the machine's is the only one.\n"
        )
    } else {
        format!(
            "{used} bytes of {limit} are used. At the limit writes are refused, nothing is evicted.\n"
        )
    };
    cx.out.text(&text);
}
