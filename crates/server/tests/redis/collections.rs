//! Tests of hashes and sets, small and large, with the replies of Redis 7.0.15.

use super::client::{Client, start};
use std::io::{Read, Write};

const TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "-ERR syntax error";
const INTEGER: &str = "-ERR value is not an integer or out of range";

#[test]
fn hashes_answer_as_redis_does() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("HSET h a 1 b 2 c xyz", ":3"),
        ("HSET h a 1 d 4", ":1"),
        ("HMSET h d 5", "+OK"),
        ("HGET h d", "\"5\""),
        ("HGET h e", "nil"),
        ("HGET none e", "nil"),
        ("HMGET h a e c", "[\"1\", nil, \"xyz\"]"),
        ("HMGET none a b", "[nil, nil]"),
        (
            "HGETALL h",
            "[\"a\", \"1\", \"b\", \"2\", \"c\", \"xyz\", \"d\", \"5\"]",
        ),
        ("HGETALL none", "[]"),
        ("HKEYS h", "[\"a\", \"b\", \"c\", \"d\"]"),
        ("HVALS h", "[\"1\", \"2\", \"xyz\", \"5\"]"),
        ("HLEN h", ":4"),
        ("HSTRLEN h c", ":3"),
        ("HSTRLEN h e", ":0"),
        ("HEXISTS h c", ":1"),
        ("HEXISTS none c", ":0"),
        ("HSETNX h c z", ":0"),
        ("HSETNX h e z", ":1"),
        ("HDEL h e x c e", ":2"),
        ("HINCRBY h a 41", ":42"),
        ("HINCRBY h n -1", ":-1"),
        ("HINCRBYFLOAT h a 0.5", "\"42.5\""),
        (
            "HSCAN h 0",
            "[\"0\", [\"a\", \"42.5\", \"b\", \"2\", \"d\", \"5\", \"n\", \"-1\"]]",
        ),
        (
            "HSCAN h 0 MATCH [ab] COUNT 1",
            "[\"0\", [\"a\", \"42.5\", \"b\", \"2\"]]",
        ),
        ("HSCAN none 0 FOO", "[\"0\", []]"),
        ("HRANDFIELD h 0", "[]"),
        ("HRANDFIELD none", "nil"),
        ("HRANDFIELD none 2 WITHVALUES", "[]"),
        ("HDEL h a b d n", ":4"),
        ("EXISTS h", ":0"),
        ("HDEL h a", ":0"),
    ]);
}

#[test]
fn hashes_have_the_errors_of_redis() {
    let running = start();
    let mut client = running.connect();
    let pairs = "-ERR value is out of range";
    client.expect(&[
        ("HSET h a 1 c xyz", ":2"),
        ("SET s v", "+OK"),
        (
            "HSET h a 1 b",
            "-ERR wrong number of arguments for 'hset' command",
        ),
        (
            "HMSET h a 1 b",
            "-ERR wrong number of arguments for 'hmset' command",
        ),
        ("HINCRBY h a x", INTEGER),
        ("HINCRBY h c 1", "-ERR hash value is not an integer"),
        (
            "HINCRBY h a 9223372036854775807",
            "-ERR increment or decrement would overflow",
        ),
        ("HINCRBYFLOAT h a nan", "-ERR value is not a valid float"),
        ("HINCRBYFLOAT h a inf", "-ERR value is NaN or Infinity"),
        ("HINCRBYFLOAT h c 1", "-ERR hash value is not a float"),
        ("HRANDFIELD h 1 FOO", SYNTAX),
        ("HRANDFIELD h x FOO", INTEGER),
        ("HRANDFIELD h 4611686018427387904 WITHVALUES", pairs),
        (
            "HRANDFIELD h -9223372036854775808",
            "-ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        ),
        ("HSCAN h x", "-ERR invalid cursor"),
        ("HSCAN h 99999999999999999999", "-ERR invalid cursor"),
        ("HSCAN h 0 COUNT 0", SYNTAX),
        ("HSCAN h 0 COUNT x", INTEGER),
        ("HSCAN h 0 MATCH", SYNTAX),
        ("HSCAN h 0 TYPE hash", SYNTAX),
        ("HGET s a", TYPE),
        ("HSET s a 1", TYPE),
        ("HSCAN s 0 FOO", TYPE),
        ("SADD h a", TYPE),
        ("GET h", TYPE),
        ("APPEND h x", TYPE),
        ("INCR h", TYPE),
        ("MGET s h", "[\"v\", nil]"),
        ("SET h v", "+OK"),
        ("GET h", "\"v\""),
    ]);
}

#[test]
fn sets_answer_as_redis_does() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("SADD s 3 1 2 1", ":3"),
        ("SMEMBERS s", "[\"1\", \"2\", \"3\"]"),
        ("SADD s a 2", ":1"),
        ("SCARD s", ":4"),
        ("SISMEMBER s a", ":1"),
        ("SMISMEMBER s a b 3", "[:1, :0, :1]"),
        ("SMISMEMBER none a", "[:0]"),
        ("SREM s 3 b", ":1"),
        ("SMOVE s t a", ":1"),
        ("SMOVE s t a", ":0"),
        ("SMOVE none h a", ":0"),
        ("SMOVE s s 1", ":1"),
        ("SADD t 2 9", ":2"),
        ("SINTER s t", "[\"2\"]"),
        ("SINTER s none", "[]"),
        ("SDIFF t s", "[\"a\", \"9\"]"),
        ("SDIFF none s", "[]"),
        ("SUNION s none t", "[\"1\", \"2\", \"a\", \"9\"]"),
        ("SINTERCARD 2 s t", ":1"),
        ("SINTERCARD 1 t LIMIT 2", ":2"),
        ("SUNIONSTORE t t s", ":4"),
        ("SDIFFSTORE u t s", ":2"),
        ("SINTERSTORE u s none", ":0"),
        ("EXISTS u", ":0"),
        ("SSCAN s 0", "[\"0\", [\"1\", \"2\"]]"),
        ("SSCAN s -1 MATCH 2", "[\"0\", [\"2\"]]"),
        ("SRANDMEMBER none", "nil"),
        ("SRANDMEMBER none 1", "[]"),
        ("SRANDMEMBER s 5", "[\"1\", \"2\"]"),
        ("SPOP s 0", "[]"),
        ("SPOP none", "nil"),
        ("SPOP s 5", "[\"1\", \"2\"]"),
        ("EXISTS s", ":0"),
        ("SADD one 1", ":1"),
        ("SRANDMEMBER one -3", "[\"1\", \"1\", \"1\"]"),
        ("SPOP one", "\"1\""),
        ("EXISTS one", ":0"),
    ]);
}

#[test]
fn sets_have_the_errors_of_redis() {
    let running = start();
    let mut client = running.connect();
    let positive = "-ERR value is out of range, must be positive";
    let numkeys = "-ERR numkeys should be greater than 0";
    client.expect(&[
        ("HSET h a 1", ":1"),
        ("SADD s 1", ":1"),
        ("SPOP s 1 2", SYNTAX),
        ("SPOP s -1", positive),
        ("SPOP none x", positive),
        ("SRANDMEMBER s x", INTEGER),
        ("SRANDMEMBER s 1 2", SYNTAX),
        ("SMOVE s h 1", TYPE),
        ("SMOVE h s 1", TYPE),
        ("SINTER none h", TYPE),
        ("SDIFF none h", TYPE),
        ("SUNION s h", TYPE),
        ("SINTERCARD 0 s", numkeys),
        ("SINTERCARD x s", numkeys),
        (
            "SINTERCARD 2 s",
            "-ERR Number of keys can't be greater than number of args",
        ),
        ("SINTERCARD 1 s s", SYNTAX),
        ("SINTERCARD 1 s LIMIT", SYNTAX),
        ("SINTERCARD 1 s LIMIT -1", "-ERR LIMIT can't be negative"),
        ("SINTERSTORE h s none", ":0"),
        ("EXISTS h", ":0"),
    ]);
}

#[test]
fn replies_of_version_3_are_maps_and_sets() {
    let running = start();
    let mut client = running.connect();
    client.send("HELLO 3");
    client.expect(&[
        ("HSET h a 1", ":1"),
        ("HGETALL h", "{\"a\": \"1\"}"),
        ("HRANDFIELD h 1 WITHVALUES", "[[\"a\", \"1\"]]"),
        ("HRANDFIELD h 1", "[\"a\"]"),
        ("HGET h b", "nil"),
    ]);
}

fn names<S: Read + Write>(client: &mut Client<S>, line: &str) -> Vec<String> {
    let reply = client.send(line);
    let inner = reply.trim_start_matches('[').trim_end_matches(']');
    let mut names: Vec<String> = inner.split(", ").map(String::from).collect();
    names.sort();
    names
}

#[test]
fn a_collection_that_has_outgrown_its_row_answers_the_same() {
    let running = start();
    let mut client = running.connect();
    for n in 0..500 {
        assert_eq!(client.send(&format!("HSET h field:{n} value:{n}")), ":1");
        assert_eq!(client.send(&format!("SADD s member:{n}")), ":1");
    }
    let long = "x".repeat(100_000);
    client.expect(&[
        ("HLEN h", ":500"),
        ("HGET h field:77", "\"value:77\""),
        ("HSET h field:77 other", ":0"),
        ("HGET h field:77", "\"other\""),
        ("HDEL h field:77 field:77", ":1"),
        ("HEXISTS h field:77", ":0"),
        ("HINCRBY h n 5", ":5"),
        ("SCARD s", ":500"),
        ("SADD s member:7", ":0"),
        ("SREM s member:7", ":1"),
        ("SISMEMBER s member:7", ":0"),
        ("SINTERCARD 2 s s LIMIT 100", ":100"),
        ("SUNIONSTORE t s none", ":499"),
        ("SDIFF t s", "[]"),
        ("SMOVE s t member:8", ":1"),
        ("SCARD t", ":499"),
        (&format!("HSET h {long} {long}"), ":1"),
        (&format!("HSTRLEN h {long}"), ":100000"),
        (&format!("HDEL h {long}"), ":1"),
        ("DEL t", ":1"),
        ("SADD t new", ":1"),
        ("SMEMBERS t", "[\"new\"]"),
        ("SET h v", "+OK"),
        ("GET h", "\"v\""),
    ]);
    assert_eq!(names(&mut client, "SRANDMEMBER s 400").len(), 400);
    let some = names(&mut client, "SRANDMEMBER s 20");
    assert_eq!(
        some.iter().collect::<std::collections::BTreeSet<_>>().len(),
        20
    );
    assert_eq!(names(&mut client, "SPOP s 100").len(), 100);
    assert_eq!(client.send("SCARD s"), ":398");
    let all = names(&mut client, "SMEMBERS s");
    assert_eq!(names(&mut client, "SPOP s 1000"), all);
    assert_eq!(client.send("EXISTS s"), ":0");
}

#[test]
fn a_scan_of_a_large_set_returns_every_member() {
    let running = start();
    let mut client = running.connect();
    for n in 0..1000 {
        client.send(&format!("SADD s member:{n}"));
    }
    let (mut cursor, mut seen, mut steps) = (String::from("0"), Vec::new(), 0);
    loop {
        let reply = client.send(&format!("SSCAN s {cursor} COUNT 50"));
        let (next, found) = reply[1..].split_once(", ").expect("two parts");
        let found = found.trim_matches(['[', ']']).split(", ");
        seen.extend(found.filter(|name| !name.is_empty()).map(String::from));
        cursor = next.trim_matches('"').to_owned();
        steps += 1;
        if cursor == "0" {
            break;
        }
    }
    assert!(steps > 10, "in steps: {steps}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 1000);
}

#[test]
fn a_changed_limit_of_packed_collections_holds_from_the_next_write_on() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("HSET h a 1 b 2 c 3", ":3"),
        ("SADD s 1 2 3", ":3"),
        ("ZADD z 1 a 2 b 3 c", ":3"),
        (
            "CONFIG GET hash-max-*-entries",
            "[\"hash-max-listpack-entries\", \"512\", \"hash-max-ziplist-entries\", \"512\"]",
        ),
        (
            "CONFIG SET hash-max-ziplist-entries 2 set-max-intset-entries 2 \
             zset-max-listpack-entries 2 list-max-listpack-size -1 set-max-listpack-value 1kb",
            "+OK",
        ),
        (
            "CONFIG GET hash-max-listpack-entries",
            "[\"hash-max-listpack-entries\", \"2\"]",
        ),
        (
            "CONFIG GET set-max-listpack-value",
            "[\"set-max-listpack-value\", \"1024\"]",
        ),
        (
            "CONFIG SET hash-max-ziplist-value 4 hash-max-listpack-value 5",
            "-ERR CONFIG SET failed (possibly related to argument 'hash-max-listpack-value') - \
             duplicate parameter",
        ),
        ("OBJECT ENCODING h", "\"listpack\""),
        ("OBJECT ENCODING s", "\"intset\""),
        ("OBJECT ENCODING z", "\"listpack\""),
        ("HDEL h c", ":1"),
        ("SREM s 3", ":1"),
        ("OBJECT ENCODING h", "\"listpack\""),
        ("OBJECT ENCODING s", "\"intset\""),
        ("HSET h c 3", ":1"),
        ("SADD s 3", ":1"),
        ("ZADD z 9 d", ":1"),
        ("OBJECT ENCODING h", "\"hashtable\""),
        ("OBJECT ENCODING s", "\"hashtable\""),
        ("OBJECT ENCODING z", "\"skiplist\""),
        (
            "CONFIG SET hash-max-listpack-entries 512 set-max-intset-entries 512",
            "+OK",
        ),
        ("HSET h d 4", ":1"),
        ("SADD s 4", ":1"),
        ("OBJECT ENCODING h", "\"hashtable\""),
        ("OBJECT ENCODING s", "\"hashtable\""),
        ("HMGET h a b c d", "[\"1\", \"2\", \"3\", \"4\"]"),
    ]);
}
