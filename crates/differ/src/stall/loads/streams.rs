//! More loads of the stall meter: streams, geographic places, HyperLogLogs and sorted sets, SCAN commands with large
//! counts, and transactions with large requests.

use std::ops::Range;

use super::{
    Load, asks, hash, key_names, keys, list, load, nothing, number, numbers, restore, set,
    two_zsets, zset,
};
use crate::stall::requests::{Requests, line, words};

/// All loads of this module that are known to be heavy.
pub static MORE_LOADS: &[Load] = &[
    // Streams.
    asks("XADD MAXLEN 1 to n", stream, "XADD c MAXLEN 1 * f v"),
    asks(
        "XREADGROUP of n",
        stream,
        "XREADGROUP GROUP g x STREAMS c >",
    ),
    asks(
        "XREADGROUP of the history of n",
        read,
        "XREADGROUP GROUP g x STREAMS c 0",
    ),
    load("XACK of n", read, |n| words("XACK c g", ids(n))),
    load("XCLAIM of n", read, |n| words("XCLAIM c g y 0", ids(n))),
    asks("XAUTOCLAIM of n", read, "XAUTOCLAIM c g y 0 0 COUNT {n}"),
    asks("XPENDING of n", read, "XPENDING c g - + {n}"),
    asks("XGROUP DELCONSUMER of n", read, "XGROUP DELCONSUMER c g x"),
    asks("XGROUP DESTROY of n", read, "XGROUP DESTROY c g"),
    asks(
        "XINFO STREAM FULL of n",
        read,
        "XINFO STREAM c FULL COUNT 0",
    ),
    asks("XRANGE of n", stream, "XRANGE c - +"),
    asks("XREVRANGE of n", stream, "XREVRANGE c + -"),
    asks("XREAD of n", stream, "XREAD STREAMS c 0"),
    load("XDEL of n", stream, |n| words("XDEL c", ids(n))),
    asks("XTRIM of n", stream, "XTRIM c MAXLEN 1"),
    asks("DEL of a stream of n", read, "DEL c"),
    asks("COPY of a stream of n", read, "COPY c e"),
    asks("DUMP of a stream of n", read, "DUMP c"),
    restore("RESTORE of a stream of n", read),
    // Places.
    load("GEOADD of n/3", nothing, |n| {
        words("GEOADD c", places(0..n / 3))
    }),
    asks(
        "GEOSEARCH of n",
        places_of,
        "GEOSEARCH c FROMLONLAT 0 0 BYRADIUS 22000 km ASC",
    ),
    asks(
        "GEOSEARCHSTORE of n",
        places_of,
        "GEOSEARCHSTORE e c FROMLONLAT 0 0 BYRADIUS 22000 km",
    ),
    asks(
        "GEORADIUS of n",
        places_of,
        "GEORADIUS c 0 0 22000 km WITHDIST",
    ),
    // Sketches.
    load("PFADD of n", nothing, |n| words("PFADD c", numbers(n))),
    load("PFCOUNT of n/1000", sketches, |n| {
        words("PFCOUNT", key_names(n / 1000))
    }),
    load("PFMERGE of n/1000", sketches, |n| {
        words("PFMERGE e", key_names(n / 1000))
    }),
    // Sorted sets.
    asks("ZUNION of two of n", two_zsets, "ZUNION 2 c d WITHSCORES"),
    asks("ZINTERCARD of two of n", two_zsets, "ZINTERCARD 2 c d"),
    asks(
        "ZREMRANGEBYSCORE of n",
        zset,
        "ZREMRANGEBYSCORE c -inf +inf",
    ),
    asks("ZRANDMEMBER of n", zset, "ZRANDMEMBER c {n}"),
    asks("ZMPOP of n", zset, "ZMPOP 1 c MIN COUNT {n}"),
    // Cursors, and orders by other keys.
    asks("SCAN COUNT n", keys, "SCAN 0 COUNT {n}"),
    asks("HSCAN COUNT n", hash, "HSCAN c 0 COUNT {n}"),
    asks("SSCAN COUNT n", set, "SSCAN c 0 COUNT {n}"),
    asks("RANDOMKEY of n", keys, "RANDOMKEY"),
    asks("SORT BY of n", list, "SORT c BY none*"),
    asks("LPOS of n", list, "LPOS c nothing"),
    load("SMISMEMBER of n", set, |n| {
        words("SMISMEMBER c", numbers(n))
    }),
    // Blocks and clients.
    load("MULTI with HGETALL of n", hash, |_| {
        ["MULTI", "HGETALL c", "EXEC"].into_iter().collect()
    }),
    // Redis compares each watched key with all others, so this load is smaller.
    load("WATCH of n/100 keys", keys, |n| {
        words("WATCH", key_names(n / 100))
    }),
    asks("LCS of 2 times 3000 bytes", two_texts, "LCS c d LEN"),
];

fn ids(n: u64) -> impl Iterator<Item = Vec<u8>> {
    (1..=n).map(|i| format!("{i}-1").into_bytes())
}

/// Makes a stream of `n` entries and a group that has read no entry.
fn stream(n: u64) -> Requests {
    let entry = |id| words("XADD c", [id, b"field".to_vec(), b"value".to_vec()]);
    ids(n).map(entry).sum::<Requests>() + line("XGROUP CREATE c g 0")
}

/// Makes a stream of `n` entries. A group reads all entries, in requests with small counts.
fn read(n: u64) -> Requests {
    let reads = (0..n.div_ceil(1000)).map(|_| "XREADGROUP GROUP g x COUNT 1000 STREAMS c >");
    stream(n) + reads.collect()
}

/// Makes longitudes, latitudes and members alternately.
fn places(numbers: Range<u64>) -> impl Iterator<Item = Vec<u8>> {
    let place = |i: u64| {
        let [longitude, latitude] = [i * 7919 % 359, i * 104_729 % 169].map(u64::cast_signed);
        let words = [longitude - 179, latitude - 84].map(|degrees| degrees.to_string().into());
        let [longitude, latitude] = words;
        [longitude, latitude, number(i)]
    };
    numbers.flat_map(place)
}

fn places_of(n: u64) -> Requests {
    let chunks = (0..n.div_ceil(3000)).map(|at| at * 3000..n.min((at + 1) * 3000));
    chunks.map(|chunk| words("GEOADD c", places(chunk))).sum()
}

fn sketches(n: u64) -> Requests {
    let sketch = |key| words("PFADD", [key].into_iter().chain(numbers(2000)));
    key_names(n / 1000).map(sketch).sum()
}

fn two_texts(_: u64) -> Requests {
    let text =
        |step: u8| (0..3000u32).map(move |i| b'a' + u8::try_from(i % u32::from(step)).unwrap_or(0));
    words("SET c", [text(7).collect()]) + words("SET d", [text(11).collect()])
}
