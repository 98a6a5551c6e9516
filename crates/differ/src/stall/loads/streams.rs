//! Loads of streams, places and sketches, of cursors with large counts, and of clients that want much.

use std::ops::Range;

use super::{Load, hash, key_names, keys, list, load, number, restore, set, two_zsets, zset};
use crate::stall::requests::{Requests, line, words};

/// Every load of these kinds that is known to be heavy.
pub static MORE_LOADS: &[Load] = &[
    // Streams.
    load("XADD MAXLEN 1 to n", stream, |_| {
        line("XADD c MAXLEN 1 * f v")
    }),
    load("XREADGROUP of n", stream, |_| {
        line("XREADGROUP GROUP g x STREAMS c >")
    }),
    load("XREADGROUP of the history of n", read, |_| {
        line("XREADGROUP GROUP g x STREAMS c 0")
    }),
    load("XACK of n", read, |n| words("XACK c g", ids(n))),
    load("XCLAIM of n", read, |n| words("XCLAIM c g y 0", ids(n))),
    load("XAUTOCLAIM of n", read, |n| {
        line(&format!("XAUTOCLAIM c g y 0 0 COUNT {n}"))
    }),
    load("XPENDING of n", read, |n| {
        line(&format!("XPENDING c g - + {n}"))
    }),
    load("XGROUP DELCONSUMER of n", read, |_| {
        line("XGROUP DELCONSUMER c g x")
    }),
    load("XGROUP DESTROY of n", read, |_| line("XGROUP DESTROY c g")),
    load("XINFO STREAM FULL of n", read, |_| {
        line("XINFO STREAM c FULL COUNT 0")
    }),
    load("XRANGE of n", stream, |_| line("XRANGE c - +")),
    load("XREVRANGE of n", stream, |_| line("XREVRANGE c + -")),
    load("XREAD of n", stream, |_| line("XREAD STREAMS c 0")),
    load("XDEL of n", stream, |n| words("XDEL c", ids(n))),
    load("XTRIM of n", stream, |_| line("XTRIM c MAXLEN 1")),
    load("DEL of a stream of n", read, |_| line("DEL c")),
    load("COPY of a stream of n", read, |_| line("COPY c e")),
    load("DUMP of a stream of n", read, |_| line("DUMP c")),
    restore("RESTORE of a stream of n", read),
    // Places.
    load("GEOADD of n/3", nothing, |n| {
        words("GEOADD c", places(0..n / 3))
    }),
    load("GEOSEARCH of n", places_of, |_| {
        line("GEOSEARCH c FROMLONLAT 0 0 BYRADIUS 22000 km ASC")
    }),
    load("GEOSEARCHSTORE of n", places_of, |_| {
        line("GEOSEARCHSTORE e c FROMLONLAT 0 0 BYRADIUS 22000 km")
    }),
    load("GEORADIUS of n", places_of, |_| {
        line("GEORADIUS c 0 0 22000 km WITHDIST")
    }),
    // Sketches.
    load("PFADD of n", nothing, |n| words("PFADD c", numbers(n))),
    load("PFCOUNT of n/1000", sketches, |n| {
        words("PFCOUNT", key_names(n / 1000))
    }),
    load("PFMERGE of n/1000", sketches, |n| {
        words("PFMERGE e", key_names(n / 1000))
    }),
    // Sorted sets.
    load("ZUNION of two of n", two_zsets, |_| {
        line("ZUNION 2 c d WITHSCORES")
    }),
    load("ZINTERCARD of two of n", two_zsets, |_| {
        line("ZINTERCARD 2 c d")
    }),
    load("ZREMRANGEBYSCORE of n", zset, |_| {
        line("ZREMRANGEBYSCORE c -inf +inf")
    }),
    load("ZRANDMEMBER of n", zset, |n| {
        line(&format!("ZRANDMEMBER c {n}"))
    }),
    load("ZMPOP of n", zset, |n| {
        line(&format!("ZMPOP 1 c MIN COUNT {n}"))
    }),
    // Cursors, and orders by other keys.
    load("SCAN COUNT n", keys, |n| line(&format!("SCAN 0 COUNT {n}"))),
    load("HSCAN COUNT n", hash, |n| {
        line(&format!("HSCAN c 0 COUNT {n}"))
    }),
    load("SSCAN COUNT n", set, |n| {
        line(&format!("SSCAN c 0 COUNT {n}"))
    }),
    load("RANDOMKEY of n", keys, |_| line("RANDOMKEY")),
    load("SORT BY of n", list, |_| line("SORT c BY none*")),
    load("LPOS of n", list, |_| line("LPOS c nothing")),
    load("SMISMEMBER of n", set, |n| {
        words("SMISMEMBER c", numbers(n))
    }),
    // Blocks and clients.
    load("MULTI with HGETALL of n", hash, |_| {
        ["MULTI", "HGETALL c", "EXEC"].into_iter().collect()
    }),
    // Redis compares each watched key with all the others.
    load("WATCH of n/100 keys", keys, |n| {
        words("WATCH", key_names(n / 100))
    }),
    load("LCS of 2 times 3000 bytes", two_texts, |_| {
        line("LCS c d LEN")
    }),
];

fn nothing(_: u64) -> Requests {
    Requests::default()
}

fn numbers(n: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..n).map(number)
}

fn ids(n: u64) -> impl Iterator<Item = Vec<u8>> {
    (1..=n).map(|i| format!("{i}-1").into_bytes())
}

/// A stream with a group that has read nothing.
fn stream(n: u64) -> Requests {
    let entry = |id| words("XADD c", [id, b"field".to_vec(), b"value".to_vec()]);
    ids(n).map(entry).sum::<Requests>() + line("XGROUP CREATE c g 0")
}

/// A stream with a group that has read all of it, as clients with small counts do.
fn read(n: u64) -> Requests {
    let reads = (0..n.div_ceil(1000)).map(|_| "XREADGROUP GROUP g x COUNT 1000 STREAMS c >");
    stream(n) + reads.collect()
}

/// Longitudes, latitudes and members by turns.
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
