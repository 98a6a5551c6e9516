//! Commands about other servers, such as replicas. They reply like a Redis server that has no replicas and belongs to
//! no cluster. A command that would connect to another server is refused.

use crate::command::flag::{ADMIN, APART, FAST, LOADING};
use crate::command::spec::{Command, plain};
use crate::command::{Cx, NOT_INTEGER};
use crate::engine::Durability;
use crate::number::parse_i64;
use crate::resp::parse::Args;
use std::time::Duration;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[
    plain("asking", 1, FAST | APART, no_cluster),
    plain("cluster", -2, LOADING | APART, no_cluster),
    plain("failover", -1, ADMIN | APART, failover),
    plain("psync", -3, ADMIN | APART, no_replicas),
    plain("readonly", 1, LOADING | FAST | APART, no_cluster),
    plain("readwrite", 1, LOADING | FAST | APART, no_cluster),
    plain("replconf", -1, LOADING | ADMIN | APART, no_replicas),
    plain("replicaof", 3, ADMIN | APART, replicaof),
    plain("role", 1, LOADING | FAST | APART, role),
    plain("slaveof", 3, ADMIN | APART, replicaof),
    plain("sync", 1, ADMIN | APART, no_replicas),
    plain("wait", 3, APART, wait),
    plain("waitaof", 4, APART, waitaof),
];

fn no_cluster(cx: &mut Cx<'_>, _: &Args<'_>) {
    cx.out
        .error("ERR This instance has cluster support disabled");
}

fn no_replicas(cx: &mut Cx<'_>, _: &Args<'_>) {
    cx.out
        .error("ERR replication is not supported; `perdura export` writes out all data");
}

/// `REPLICAOF host port`, `REPLICAOF NO ONE`
fn replicaof(cx: &mut Cx<'_>, args: &Args<'_>) {
    let none = args.at(1).eq_ignore_ascii_case(b"NO") && args.at(2).eq_ignore_ascii_case(b"ONE");
    if none {
        cx.out.ok();
    } else {
        cx.out
            .error("ERR replication is not supported; `perdura import` copies from a server");
    }
}

/// `FAILOVER [ABORT|…]`
fn failover(cx: &mut Cx<'_>, args: &Args<'_>) {
    let abort = args.len() == 2 && args.at(1).eq_ignore_ascii_case(b"ABORT");
    cx.out.error(if abort {
        "ERR No failover in progress."
    } else {
        "ERR FAILOVER requires connected replicas."
    });
}

/// `ROLE`
fn role(cx: &mut Cx<'_>, _: &Args<'_>) {
    cx.out.array(3);
    cx.out.bulk(b"master");
    cx.out.integer(0);
    cx.out.array(0);
}

/// Reads a timeout in milliseconds; `None` for 0, which means no limit. WAIT and WAITAOF only
/// check the timeout, because no replica will ever connect.
pub(super) fn parse_timeout(arg: &[u8]) -> Result<Option<Duration>, &'static str> {
    let Some(ms) = parse_i64(arg) else {
        return Err("ERR timeout is not an integer or out of range");
    };
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

/// `WAIT replicas milliseconds`
fn wait(cx: &mut Cx<'_>, args: &Args<'_>) {
    if parse_i64(args.at(1)).is_none() {
        return cx.out.error(NOT_INTEGER);
    }
    match parse_timeout(args.at(2)) {
        Err(error) => cx.out.error(error),
        Ok(_) => cx.out.integer(0),
    }
}

/// `WAITAOF local replicas milliseconds`: the reply waits until the newest write of any client is on the disk. The
/// setting of CLIENT DURABILITY does not matter.
fn waitaof(cx: &mut Cx<'_>, args: &Args<'_>) {
    let numbers = [1, 2].map(|at| parse_i64(args.at(at)));
    let [Some(0..=1), Some(0..)] = numbers else {
        let text = "ERR value is out of range, must be positive";
        let known = numbers.iter().all(Option::is_some);
        return cx.out.error(if known { text } else { NOT_INTEGER });
    };
    if let Err(error) = parse_timeout(args.at(3)) {
        return cx.out.error(error);
    }
    cx.effects.epoch = cx.state.newest();
    cx.effects.least = Durability::Disk;
    cx.out.array(2);
    cx.out.integer(1);
    cx.out.integer(0);
}
