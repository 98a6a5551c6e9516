//! Tests of estimated counts (HyperLogLog), with the replies of Redis 7.0.15.

use super::client::start;

#[test]
fn estimated_counts_answer_as_redis_does() {
    let running = start();
    running.connect().expect(&[
        ("PFADD h", ":1"),
        ("PFADD h", ":0"),
        ("PFADD h a b c", ":1"),
        ("PFADD h a", ":0"),
        ("PFADD h a d", ":1"),
        ("PFCOUNT h", ":4"),
        ("PFCOUNT h", ":4"),
        ("PFCOUNT none", ":0"),
        ("PFCOUNT none h", ":4"),
        ("STRLEN h", ":30"),
        (
            "PFDEBUG DECODE h",
            "\"Z:7292 v:1,1 Z:1143 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603\"",
        ),
        ("PFDEBUG ENCODING h", "+sparse"),
        ("PFADD i d e f", ":1"),
        ("PFCOUNT h i", ":6"),
        ("PFMERGE j h i none", "+OK"),
        ("PFCOUNT j", ":6"),
        ("PFMERGE k", "+OK"),
        ("PFCOUNT k", ":0"),
        ("PFMERGE none k", "+OK"),
        ("TYPE j", "+string"),
        ("EXPIRE j 1000", ":1"),
        ("PFADD j x y z", ":1"),
        ("TTL j", ":1000"),
        ("PFMERGE j h", "+OK"),
        ("TTL j", ":1000"),
        ("PFDEBUG TODENSE j", ":1"),
        ("PFDEBUG TODENSE j", ":0"),
        ("PFDEBUG ENCODING j", "+dense"),
        ("STRLEN j", ":12304"),
        ("TTL j", ":1000"),
        ("PFCOUNT j", ":9"),
        ("PFADD j 1 2 3 4 5", ":1"),
        ("PFCOUNT j", ":14"),
        ("PFMERGE k j", "+OK"),
        ("PFDEBUG ENCODING k", "+dense"),
        ("OBJECT ENCODING k", "\"raw\""),
        ("COPY k l", ":1"),
        ("PFCOUNT l k", ":14"),
        ("CONFIG SET hll-sparse-max-bytes 20", "+OK"),
        (
            "CONFIG GET hll-sparse-max-bytes",
            "[\"hll-sparse-max-bytes\", \"20\"]",
        ),
        ("PFADD m a b c d e", ":1"),
        ("PFDEBUG ENCODING m", "+dense"),
        ("SET s x", "+OK"),
        ("RPUSH r x", ":1"),
        (
            "PFADD s a",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
        (
            "PFADD r a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "PFCOUNT s",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
        (
            "PFCOUNT h s",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
        (
            "PFCOUNT r",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        (
            "PFMERGE s h",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
        (
            "PFMERGE h s",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
        (
            "PFMERGE h r",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("SET n 12345678901234567890", "+OK"),
        (
            "PFADD n a",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
        ("PFDEBUG DECODE none", "\"Z:16384\""),
        (
            "PFDEBUG DECODE s",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
        ("PFDEBUG DECODE k", "-ERR HLL encoding is not sparse"),
        ("PFDEBUG FOO h", "-ERR Unknown PFDEBUG subcommand 'FOO'"),
        (
            "PFDEBUG FOO",
            "-ERR wrong number of arguments for 'pfdebug' command",
        ),
        (
            "PFADD",
            "-ERR wrong number of arguments for 'pfadd' command",
        ),
        (
            "PFCOUNT",
            "-ERR wrong number of arguments for 'pfcount' command",
        ),
        (
            "PFSELFTEST 1",
            "-ERR wrong number of arguments for 'pfselftest' command",
        ),
        ("CONFIG SET hll-sparse-max-bytes 3000", "+OK"),
        ("PFSELFTEST", "+OK"),
        ("SETRANGE d 0 HYLL", ":4"),
        (
            "PFCOUNT d",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
        ("SET c HYLL____________x", "+OK"),
        (
            "PFCOUNT c",
            "-WRONGTYPE Key is not a valid HyperLogLog string value.",
        ),
    ]);
}

/// The string stores the count that PFCOUNT found last, so a copy of the string has it too.
#[test]
fn a_sketch_is_a_string_that_carries_its_count() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("PFADD h a b c", ":1"),
        ("GETRANGE h 0 3", "\"HYLL\""),
        ("BITCOUNT h 15 15", ":1"),
        ("PFCOUNT h", ":3"),
        ("BITCOUNT h 15 15", ":0"),
        ("BITCOUNT h 8 8", ":2"),
    ]);
    client.push(&[b"DUMP", b"h"]);
    let payload = client.read_bulk();
    assert_eq!(client.call(&[b"RESTORE", b"other", b"0", &payload]), "+OK");
    client.push(&[b"GET", b"h"]);
    let sketch = client.read_bulk();
    assert_eq!(client.call(&[b"SET", b"third", &sketch]), "+OK");
    client.expect(&[
        ("PFCOUNT other", ":3"),
        ("PFCOUNT h other third", ":3"),
        ("PFADD third d", ":1"),
        ("PFCOUNT h other third", ":4"),
    ]);
}

/// PFCOUNT writes, because it stores the count in the string. So it changes a watched key, and stores nothing if memory
/// is full.
#[test]
fn a_count_is_answered_whether_or_not_it_can_be_remembered() {
    let running = start();
    let (mut client, mut other) = (running.connect(), running.connect());
    client.expect(&[("PFADD h a b c", ":1"), ("WATCH h", "+OK")]);
    assert_eq!(other.send("PFCOUNT h"), ":3");
    client.expect(&[
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("EXEC", "nil array"),
        ("WATCH h", "+OK"),
    ]);
    assert_eq!(other.send("PFCOUNT h"), ":3");
    client.expect(&[
        ("MULTI", "+OK"),
        ("PING", "+QUEUED"),
        ("EXEC", "[+PONG]"),
        ("PFADD h d", ":1"),
        ("CONFIG SET maxmemory 1", "+OK"),
        ("PFCOUNT h", ":4"),
        ("BITCOUNT h 15 15", ":1"),
        ("CONFIG SET maxmemory 1gb", "+OK"),
        ("PFCOUNT h", ":4"),
        ("BITCOUNT h 15 15", ":0"),
    ]);
}
