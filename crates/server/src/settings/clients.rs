//! The settings of connections: number, idle time, tracked keys, and durability of replies.

use super::kind::{Kind, known, number};
use super::row::{I32_MAX, one, row, seconds, server};
use super::{Group, Setting};
use crate::engine::Durability;

pub const COUNT: Setting = row(
    "maxclients",
    Group::Network,
    Kind::Integer {
        min: 1,
        max: 4_294_967_295,
    },
    "The maximum number of connected clients.",
    server!(|o| one(o.maxclients), |o, v| number(
        &mut o.maxclients,
        &v[0]
    )),
)
.live();

pub const STRANGERS: Setting = row(
    "maxclients-unauthenticated",
    Group::Network,
    Kind::Integer {
        min: 1,
        max: 4_294_967_295,
    },
    "The maximum number of clients that have not authenticated yet, if a password is needed. A new client \
     beyond it, or beyond `maxclients`, replaces the one that has waited longest, if that has \
     waited for a second.",
    server!(|o| one(o.maxclients_unauthenticated), |o, v| number(
        &mut o.maxclients_unauthenticated,
        &v[0]
    )),
)
.live();

pub const TRACKED_KEYS: Setting = row(
    "tracking-table-max-keys",
    Group::Network,
    Kind::Integer {
        min: 0,
        max: i64::MAX,
    },
    "Keys that are recorded for clients with CLIENT TRACKING. Beyond it some keys are \
         reported as changed. 0: any number.",
    server!(|o| one(o.tracking_keys_max), |o, v| number(
        &mut o.tracking_keys_max,
        &v[0]
    )),
)
.live();

pub const IDLE: Setting = row(
    "timeout",
    Group::Network,
    seconds(I32_MAX),
    "An idle client is disconnected after this time. 0: never.",
    server!(|o| one(o.idle_seconds_max), |o, v| {
        number(&mut o.idle_seconds_max, &v[0])
    }),
)
.live();

pub const KEEPALIVE: Setting = row(
    "tcp-keepalive",
    Group::Network,
    seconds(I32_MAX),
    "Time between TCP keepalives on idle connections. 0: none.",
    server!(|o| one(o.tcp_keepalive_seconds), |o, v| {
        number(&mut o.tcp_keepalive_seconds, &v[0])
    }),
)
.live();

pub const DURABILITY: Setting = row(
    "durability",
    Group::Network,
    Kind::Choice(&Durability::NAMES),
    "How durable a write must be before replies that show it are sent, in new sessions. CLIENT \
     DURABILITY changes it for one session. mem: visible, and in the log at most 10 ms later. \
     mirror: in the memories of the log's nodes, or on the log's disks if the log has no nodes. \
     disk: on the log's disks, and in the memories of the nodes that mirror the log.",
    server!(|o| one(o.durability.name()), |o, v| known(
        &mut o.durability,
        Durability::named(v[0].as_bytes())
    )),
)
.live();
