//! The loads of the stall meter: one row each.
//!
//! Every row has a size `n`: so many elements, keys or commands, or 59 `n` bytes. The collection that
//! a command is about is at `c`, a second one at `d`; elements are numbers in no order, so that the
//! same ones can be sorted, scored and joined.

mod streams;

pub use streams::MORE_LOADS;

use super::requests::{Requests, fill, line, words};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a load sends while another client PINGs.
pub enum Run {
    /// These requests, in one piece, from every client.
    Send(fn(u64) -> Requests),
    /// RESTORE of what DUMP answers for `c`.
    Restore,
    /// Nothing: the keys that were put go away by themselves.
    Expire,
}

/// A load.
pub struct Load {
    /// What it is.
    pub name: &'static str,
    /// Sent before, and not measured.
    pub before: fn(u64) -> Requests,
    /// The load itself.
    pub run: Run,
    /// How many connections send it at once.
    pub clients: usize,
}

const fn load(name: &'static str, before: fn(u64) -> Requests, run: fn(u64) -> Requests) -> Load {
    let run = Run::Send(run);
    Load {
        name,
        before,
        run,
        clients: 1,
    }
}

const fn crowd(name: &'static str, clients: usize, run: fn(u64) -> Requests) -> Load {
    let run = Run::Send(run);
    Load {
        name,
        before: nothing,
        run,
        clients,
    }
}

const fn restore(name: &'static str, before: fn(u64) -> Requests) -> Load {
    Load {
        name,
        before,
        run: Run::Restore,
        clients: 1,
    }
}

/// Every load that is known to be heavy.
pub static LOADS: &[Load] = &[
    crowd("n pipelined INCR", 1, increments),
    crowd("n pipelined INCR of 8 clients", 8, increments),
    crowd("MULTI of n SET", 1, block),
    crowd("MULTI of n that fail", 1, failing_block),
    crowd("40 uploads of 59 n bytes", 40, upload),
    crowd("n/100 SWAPDB", 1, swaps),
    // Keys.
    load("KEYS * of n", keys, |_| line("KEYS *")),
    load("DEL of n keys", keys, |n| words("DEL", key_names(n))),
    load("UNLINK of n keys", keys, |n| words("UNLINK", key_names(n))),
    load("EXISTS of n keys", keys, |n| words("EXISTS", key_names(n))),
    load("MGET of n", keys, |n| words("MGET", key_names(n))),
    load("MSET of n/2", nothing, |n| words("MSET", pairs(n))),
    load("FLUSHALL of n keys", keys, |_| line("FLUSHALL")),
    Load {
        name: "n keys expire at once",
        before: keys_that_expire,
        run: Run::Expire,
        clients: 1,
    },
    // Whole collections removed, renamed, copied, dumped.
    load("DEL of a hash of n", hash, |_| line("DEL c")),
    load("DEL of a list of n", list, |_| line("DEL c")),
    load("DEL of a set of n", set, |_| line("DEL c")),
    load("DEL of a sorted set of n", zset, |_| line("DEL c")),
    load("UNLINK of a set of n", set, |_| line("UNLINK c")),
    load("SET over a sorted set of n", zset, |_| line("SET c text")),
    load("RENAME of a set of n to one of n", two_sets, |_| {
        line("RENAME c d")
    }),
    load("COPY of a hash of n", hash, |_| line("COPY c e")),
    load("COPY of a list of n", list, |_| line("COPY c e")),
    load("COPY of a set of n", set, |_| line("COPY c e")),
    load("COPY of a sorted set of n", zset, |_| line("COPY c e")),
    load("MOVE of a set of n", set, |_| line("MOVE c 1")),
    load("DUMP of a set of n", set, |_| line("DUMP c")),
    load("DUMP of a sorted set of n", zset, |_| line("DUMP c")),
    restore("RESTORE of a hash of n", hash),
    restore("RESTORE of a list of n", list),
    restore("RESTORE of a set of n", set),
    restore("RESTORE of a sorted set of n", zset),
    // Lists.
    load("LPUSH of n", nothing, |n| words("LPUSH c", numbers(n))),
    load("RPUSH of n", nothing, |n| words("RPUSH c", numbers(n))),
    load("LPOP of n", list, |n| line(&format!("LPOP c {n}"))),
    load("RPOP of n", list, |n| line(&format!("RPOP c {n}"))),
    load("LTRIM of a list of n to half", list, |n| {
        line(&format!("LTRIM c 0 {}", n / 2))
    }),
    load("LRANGE of n", list, |_| line("LRANGE c 0 -1")),
    load("LINDEX in the middle of n", list, |n| {
        line(&format!("LINDEX c {}", n / 2))
    }),
    load("LINSERT in the middle of n", list, |n| {
        words("LINSERT c BEFORE", [number(n / 2), b"new".to_vec()])
    }),
    load("LREM in the middle of n", list, |n| {
        words("LREM c 1", [number(n / 2)])
    }),
    load("SORT of a list of n", list, |_| line("SORT c")),
    load("SORT of a list of n ALPHA", list, |_| line("SORT c ALPHA")),
    load("SORT of a list of n STORE", list, |_| {
        line("SORT c STORE e")
    }),
    // Hashes.
    load("HSET of n/2", nothing, |n| words("HSET c", pairs(n))),
    load("HGETALL of n", hash, |_| line("HGETALL c")),
    load("HKEYS of n", hash, |_| line("HKEYS c")),
    load("HDEL of n", hash, |n| words("HDEL c", numbers(n))),
    load("HRANDFIELD of n", hash, |n| {
        line(&format!("HRANDFIELD c {n}"))
    }),
    // Sets.
    load("SADD of n", nothing, |n| words("SADD c", numbers(n))),
    load("SREM of n", set, |n| words("SREM c", numbers(n))),
    load("SPOP of n", set, |n| line(&format!("SPOP c {}", n / 2))),
    load("SMEMBERS of n", set, |_| line("SMEMBERS c")),
    load("SRANDMEMBER of n", set, |n| {
        line(&format!("SRANDMEMBER c {n}"))
    }),
    load("SORT of a set of n", set, |_| line("SORT c")),
    load("SINTERCARD of two of n", two_sets, |_| {
        line("SINTERCARD 2 c d")
    }),
    load("SUNION of two of n", two_sets, |_| line("SUNION c d")),
    load("SUNIONSTORE of two of n", two_sets, |_| {
        line("SUNIONSTORE e c d")
    }),
    load("SDIFFSTORE of two of n", two_sets, |_| {
        line("SDIFFSTORE e c d")
    }),
    load("SINTERSTORE of two of n", two_sets, |_| {
        line("SINTERSTORE e c d")
    }),
    // Sorted sets.
    load("ZADD of n/2", nothing, |n| words("ZADD c", pairs(n))),
    load("ZREM of n", zset, |n| words("ZREM c", numbers(n))),
    load("ZPOPMIN of n", zset, |n| line(&format!("ZPOPMIN c {n}"))),
    load("ZREMRANGEBYRANK of n", zset, |_| {
        line("ZREMRANGEBYRANK c 0 -2")
    }),
    load("ZRANGE of n", zset, |_| line("ZRANGE c 0 -1")),
    load("ZRANGESTORE of n", zset, |_| line("ZRANGESTORE e c 0 -1")),
    load("SORT of a sorted set of n", zset, |_| line("SORT c")),
    load("ZUNIONSTORE of two of n", two_zsets, |_| {
        line("ZUNIONSTORE e 2 c d")
    }),
    load("ZINTERSTORE of two of n", two_zsets, |_| {
        line("ZINTERSTORE e 2 c d")
    }),
    load("ZDIFFSTORE of two of n", two_zsets, |_| {
        line("ZDIFFSTORE e 2 c d")
    }),
    // Long strings.
    load("GET of 59 n bytes", text, |_| line("GET c")),
    load("GETRANGE of 59 n bytes", text, |_| line("GETRANGE c 1 -1")),
    load("APPEND to 59 n bytes", text, |_| line("APPEND c x")),
    load("SETRANGE in 59 n bytes", text, |_| line("SETRANGE c 9 x")),
    load("SETRANGE of 59 n bytes", nothing, |n| {
        line(&format!("SETRANGE c {} x", n * 59))
    }),
    load("BITCOUNT of 59 n bytes", text, |_| line("BITCOUNT c")),
    load("BITPOS in 59 n bytes", text, |_| line("BITPOS c 0 0 -1")),
    load("BITOP NOT of 59 n bytes", text, |_| line("BITOP NOT e c")),
    load("COPY of 59 n bytes", text, |_| line("COPY c e")),
    load("RENAME of 59 n bytes", text, |_| line("RENAME c e")),
    load("MOVE of 59 n bytes", text, |_| line("MOVE c 1")),
    load("SET of 59 n bytes", nothing, text),
    load("SET over 59 n bytes", text, |_| line("SET c text")),
    load("DEL of 59 n bytes", text, |_| line("DEL c")),
    load("DUMP of 59 n bytes", text, |_| line("DUMP c")),
    restore("RESTORE of 59 n bytes", text),
];

fn nothing(_: u64) -> Requests {
    Requests::default()
}

fn increments(n: u64) -> Requests {
    (0..n).map(|_| "INCR n").collect()
}

fn block(n: u64) -> Requests {
    let mut all = line("MULTI");
    for i in 0..n {
        all.push_line(&format!("SET key:{i} value"));
    }
    all.push_line("EXEC");
    all
}

/// A block whose every command fails.
fn failing_block(n: u64) -> Requests {
    let mut all: Requests = ["SET text x", "MULTI"].into_iter().collect();
    for _ in 0..n {
        all.push_line("INCR text");
    }
    all.push_line("EXEC");
    all
}

fn long_text(n: u64) -> Vec<u8> {
    vec![b'v'; usize::try_from(n * 59).unwrap_or(usize::MAX)]
}

fn upload(n: u64) -> Requests {
    words("SET large", [long_text(n)])
}

fn text(n: u64) -> Requests {
    words("SET c", [vec![0xff; long_text(n).len()]])
}

fn swaps(n: u64) -> Requests {
    (0..n / 100).map(|_| "SWAPDB 0 1").collect()
}

/// Distinct numbers in no order.
fn number(i: u64) -> Vec<u8> {
    (i * 2_654_435_761 % (1 << 32)).to_string().into_bytes()
}

fn numbers(n: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(number)
}

/// Names and values, or scores and members, by turns: `n` words, because Redis takes no more than 2^20.
fn pairs(n: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..n / 2).flat_map(|i| [number(i), number(i + 1)])
}

fn key_names(n: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(|i| format!("key:{i}").into_bytes())
}

fn keys(n: u64) -> Requests {
    key_names(n)
        .map(|key| words("SET", [key, b"value".to_vec()]))
        .sum()
}

/// They go at one moment, which is when all of them should have been put.
fn keys_that_expire(n: u64) -> Requests {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = now.unwrap_or_default() + Duration::from_millis(300 + n / 100);
    let at = at.as_millis().to_string();
    let with_end = |key| {
        words(
            "SET",
            [key, b"value".to_vec(), b"PXAT".to_vec(), at.clone().into()],
        )
    };
    key_names(n).map(with_end).sum()
}

fn hash(n: u64) -> Requests {
    fill("HSET c", 0..n, |i| [number(i), number(i + 1)])
}

fn list(n: u64) -> Requests {
    fill("RPUSH c", 0..n, |i| [number(i)])
}

fn set(n: u64) -> Requests {
    fill("SADD c", 0..n, |i| [number(i)])
}

fn zset(n: u64) -> Requests {
    fill("ZADD c", 0..n, |i| [number(i), number(i)])
}

/// Two sets that have half of their members in common.
fn two_sets(n: u64) -> Requests {
    set(n) + fill("SADD d", n / 2..n + n / 2, |i| [number(i)])
}

/// Two sorted sets that have half of their members in common.
fn two_zsets(n: u64) -> Requests {
    zset(n) + fill("ZADD d", n / 2..n + n / 2, |i| [number(i), number(i)])
}
