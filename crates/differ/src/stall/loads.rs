//! The loads of the stall meter, one in each row.
//!
//! Every load has a size `n`. It is the number of elements, keys or commands. A load with a long text has 59 `n` bytes
//! instead. A command works on the collection at the key `c`. If it needs a second collection, that is at the key `d`.
//! Elements are numbers in mixed order, so that a command can sort, score and join them.

mod streams;

pub use streams::MORE_LOADS;

use super::requests::{Requests, fill, line, words};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The requests of a load. A second client PINGs meanwhile.
pub enum Run {
    /// Every client sends these requests in one piece.
    Send(fn(u64) -> Requests),
    /// One client sends this request, with the size in place of `{n}`.
    Ask(&'static str),
    /// RESTORE of a DUMP of the key `c`.
    Restore,
    /// No request: the keys expire by themselves.
    Expire,
}

/// A load.
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// The requests that prepare the load. They are not measured.
    pub before: fn(u64) -> Requests,
    /// The load itself.
    pub run: Run,
    /// The number of connections that send the load in parallel.
    pub clients: usize,
}

const fn one(name: &'static str, before: fn(u64) -> Requests, run: Run) -> Load {
    Load {
        name,
        before,
        run,
        clients: 1,
    }
}

const fn load(name: &'static str, before: fn(u64) -> Requests, run: fn(u64) -> Requests) -> Load {
    one(name, before, Run::Send(run))
}

const fn asks(name: &'static str, before: fn(u64) -> Requests, request: &'static str) -> Load {
    one(name, before, Run::Ask(request))
}

const fn restore(name: &'static str, before: fn(u64) -> Requests) -> Load {
    one(name, before, Run::Restore)
}

const fn crowd(name: &'static str, clients: usize, run: fn(u64) -> Requests) -> Load {
    Load {
        clients,
        ..load(name, nothing, run)
    }
}

/// All loads known to be heavy.
pub static LOADS: &[Load] = &[
    crowd("n pipelined INCR", 1, increments),
    crowd("n pipelined INCR of 8 clients", 8, increments),
    crowd("MULTI of n SET", 1, block),
    crowd("MULTI of n that fail", 1, failing_block),
    crowd("40 uploads of 59 n bytes", 40, upload),
    crowd("n/100 SWAPDB", 1, swaps),
    // Keys.
    asks("KEYS * of n", keys, "KEYS *"),
    load("DEL of n keys", keys, |n| words("DEL", key_names(n))),
    load("UNLINK of n keys", keys, |n| words("UNLINK", key_names(n))),
    load("EXISTS of n keys", keys, |n| words("EXISTS", key_names(n))),
    load("MGET of n", keys, |n| words("MGET", key_names(n))),
    load("MSET of n/2", nothing, |n| words("MSET", pairs(n))),
    asks("FLUSHALL of n keys", keys, "FLUSHALL"),
    one("n keys expire at once", keys_that_expire, Run::Expire),
    // Commands that remove, rename, copy or dump whole collections.
    asks("DEL of a hash of n", hash, "DEL c"),
    asks("DEL of a list of n", list, "DEL c"),
    asks("DEL of a set of n", set, "DEL c"),
    asks("DEL of a sorted set of n", zset, "DEL c"),
    asks("UNLINK of a set of n", set, "UNLINK c"),
    asks("SET over a sorted set of n", zset, "SET c text"),
    asks("RENAME of a set of n to one of n", two_sets, "RENAME c d"),
    asks("COPY of a hash of n", hash, "COPY c e"),
    asks("COPY of a list of n", list, "COPY c e"),
    asks("COPY of a set of n", set, "COPY c e"),
    asks("COPY of a sorted set of n", zset, "COPY c e"),
    asks("MOVE of a set of n", set, "MOVE c 1"),
    asks("DUMP of a set of n", set, "DUMP c"),
    asks("DUMP of a sorted set of n", zset, "DUMP c"),
    restore("RESTORE of a hash of n", hash),
    restore("RESTORE of a list of n", list),
    restore("RESTORE of a set of n", set),
    restore("RESTORE of a sorted set of n", zset),
    // Lists.
    load("LPUSH of n", nothing, |n| words("LPUSH c", numbers(n))),
    load("RPUSH of n", nothing, |n| words("RPUSH c", numbers(n))),
    asks("LPOP of n", list, "LPOP c {n}"),
    asks("RPOP of n", list, "RPOP c {n}"),
    load("LTRIM of a list of n to half", list, |n| {
        line(&format!("LTRIM c 0 {}", n / 2))
    }),
    asks("LRANGE of n", list, "LRANGE c 0 -1"),
    load("LINDEX in the middle of n", list, |n| {
        line(&format!("LINDEX c {}", n / 2))
    }),
    load("LINSERT in the middle of n", list, |n| {
        words("LINSERT c BEFORE", [number(n / 2), b"new".to_vec()])
    }),
    load("LREM in the middle of n", list, |n| {
        words("LREM c 1", [number(n / 2)])
    }),
    asks("SORT of a list of n", list, "SORT c"),
    asks("SORT of a list of n ALPHA", list, "SORT c ALPHA"),
    asks("SORT of a list of n STORE", list, "SORT c STORE e"),
    // Hashes.
    load("HSET of n/2", nothing, |n| words("HSET c", pairs(n))),
    asks("HGETALL of n", hash, "HGETALL c"),
    asks("HKEYS of n", hash, "HKEYS c"),
    load("HDEL of n", hash, |n| words("HDEL c", numbers(n))),
    asks("HRANDFIELD of n", hash, "HRANDFIELD c {n}"),
    // Sets.
    load("SADD of n", nothing, |n| words("SADD c", numbers(n))),
    load("SREM of n", set, |n| words("SREM c", numbers(n))),
    load("SPOP of n", set, |n| line(&format!("SPOP c {}", n / 2))),
    asks("SMEMBERS of n", set, "SMEMBERS c"),
    asks("SRANDMEMBER of n", set, "SRANDMEMBER c {n}"),
    asks("SORT of a set of n", set, "SORT c"),
    asks("SINTERCARD of two of n", two_sets, "SINTERCARD 2 c d"),
    asks("SUNION of two of n", two_sets, "SUNION c d"),
    asks("SUNIONSTORE of two of n", two_sets, "SUNIONSTORE e c d"),
    asks("SDIFFSTORE of two of n", two_sets, "SDIFFSTORE e c d"),
    asks("SINTERSTORE of two of n", two_sets, "SINTERSTORE e c d"),
    // Sorted sets.
    load("ZADD of n/2", nothing, |n| words("ZADD c", pairs(n))),
    load("ZREM of n", zset, |n| words("ZREM c", numbers(n))),
    asks("ZPOPMIN of n", zset, "ZPOPMIN c {n}"),
    asks("ZREMRANGEBYRANK of n", zset, "ZREMRANGEBYRANK c 0 -2"),
    asks("ZRANGE of n", zset, "ZRANGE c 0 -1"),
    asks("ZRANGESTORE of n", zset, "ZRANGESTORE e c 0 -1"),
    asks("SORT of a sorted set of n", zset, "SORT c"),
    asks("ZUNIONSTORE of two of n", two_zsets, "ZUNIONSTORE e 2 c d"),
    asks("ZINTERSTORE of two of n", two_zsets, "ZINTERSTORE e 2 c d"),
    asks("ZDIFFSTORE of two of n", two_zsets, "ZDIFFSTORE e 2 c d"),
    // Long strings.
    asks("GET of 59 n bytes", text, "GET c"),
    asks("GETRANGE of 59 n bytes", text, "GETRANGE c 1 -1"),
    asks("APPEND to 59 n bytes", text, "APPEND c x"),
    asks("SETRANGE in 59 n bytes", text, "SETRANGE c 9 x"),
    load("SETRANGE of 59 n bytes", nothing, |n| {
        line(&format!("SETRANGE c {} x", n * 59))
    }),
    asks("BITCOUNT of 59 n bytes", text, "BITCOUNT c"),
    asks("BITPOS in 59 n bytes", text, "BITPOS c 0 0 -1"),
    asks("BITOP NOT of 59 n bytes", text, "BITOP NOT e c"),
    asks("COPY of 59 n bytes", text, "COPY c e"),
    asks("RENAME of 59 n bytes", text, "RENAME c e"),
    asks("MOVE of 59 n bytes", text, "MOVE c 1"),
    load("SET of 59 n bytes", nothing, text),
    asks("SET over 59 n bytes", text, "SET c text"),
    asks("DEL of 59 n bytes", text, "DEL c"),
    asks("DUMP of 59 n bytes", text, "DUMP c"),
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

/// Makes a block of commands that all fail.
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

/// Returns the `i`-th number. The numbers are distinct and in mixed order.
fn number(i: u64) -> Vec<u8> {
    (i * 2_654_435_761 % (1 << 32)).to_string().into_bytes()
}

fn numbers(n: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(number)
}

/// Makes `n / 2` pairs of words: a name and a value, or a score and a member. There are not `n` pairs, because Redis
/// takes no more than 2^20 words in a command.
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

/// Makes keys that all expire at the same moment. That moment is after the last key was set.
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

/// Makes two sets that have half of their members in common.
fn two_sets(n: u64) -> Requests {
    set(n) + fill("SADD d", n / 2..n + n / 2, |i| [number(i)])
}

/// Makes two sorted sets that have half of their members in common.
fn two_zsets(n: u64) -> Requests {
    zset(n) + fill("ZADD d", n / 2..n + n / 2, |i| [number(i), number(i)])
}
