//! Tests of commands on the thread beside the loop. A command must have the outcome that it
//! has on the loop. While the thread runs a command, other clients must see a consistent state.

use super::*;
use crate::engine::Durability;

impl Bed {
    /// Runs a client's postponed requests.
    fn go_on(&mut self, client: usize) {
        let mut connection = self.state.connections.take(client).expect("a client");
        assert!(!connection.postponed, "the client has been let on");
        connection.take(&mut self.state, b"");
        self.state.connections.put(client, connection);
    }

    /// Returns the replies to a client, without waiting for the command beside the loop.
    fn replies_now(&mut self, client: usize) -> String {
        let mut connection = self.state.connections.take(client).expect("a client");
        let reply = std::mem::take(&mut connection.replies).buf;
        self.state.connections.put(client, connection);
        String::from_utf8(reply).expect("text")
    }

    /// Sends a line that runs beside the loop.
    fn send_beside(&mut self, line: &str) {
        self.send(READER, &expanded(line));
        assert!(self.state.beside.is_busy(), "{line}");
        assert_eq!(self.replies_now(READER), "", "{line}");
    }
}

/// Replaces each placeholder in `line` by thirty words or pairs of words. A placeholder is `$` and one character.
fn expanded(line: &str) -> String {
    let many = |word: fn(usize) -> String| (1..=30).map(word).collect::<Vec<_>>().join(" ");
    line.replace("$a", &many(|i| format!("a{i}")))
        .replace("$m", &many(|i| format!("m{i}")))
        .replace("$f", &many(|i| format!("f{i}")))
        .replace("$1", &many(|i| format!("{i} a{i}")))
        .replace("$k", &many(|i| format!("k{i}")))
        .replace("$x", &many(|i| format!("{i}-1")))
}

/// Heavy commands, each with a command that shows its outcome. Their order ensures that each heavy command finds
/// many elements.
const HEAVY: [(&str, &str); 38] = [
    ("ZUNIONSTORE to 2 zset thirds", "ZRANGE to 0 5 WITHSCORES"),
    ("ZINTERSTORE to 2 zset thirds", "ZCARD to"),
    ("ZDIFFSTORE to 2 zset thirds", "ZCARD to"),
    ("ZUNION 2 zset thirds", "ZCARD zset"),
    ("ZINTERCARD 2 zset thirds", "ZCARD zset"),
    ("SORT numbers BY nothing* GET #", "LLEN numbers"),
    ("SINTERCARD 2 set thirds", "SCARD set"),
    ("LPOS list i150", "LLEN list"),
    (
        "GEOSEARCHSTORE to geo FROMLONLAT 0 0 BYRADIUS 22000 km",
        "ZCARD to",
    ),
    (
        "GEOSEARCH geo FROMLONLAT 0 0 BYRADIUS 22000 km ASC",
        "ZCARD geo",
    ),
    ("GEORADIUS geo 0 0 22000 km STORE to", "ZCARD to"),
    ("XRANGE stream - +", "XLEN stream"),
    ("XREVRANGE stream + -", "XLEN stream"),
    ("XREAD STREAMS stream 0", "XLEN stream"),
    ("SADD set $a", "SCARD set"),
    ("HSET hash $f", "HMGET hash f1 f3 f5 f7"),
    ("ZADD zset $1", "ZCARD zset"),
    ("MSET $k", "MGET k1 k3 k5 k7"),
    ("MGET $k", "EXISTS k1"),
    ("RPUSH list $a", "LLEN list"),
    ("XREADGROUP GROUP g c STREAMS stream >", "XPENDING stream g"),
    ("XREADGROUP GROUP h c STREAMS stream 0", "XPENDING stream h"),
    ("XACK stream h $x", "XPENDING stream h"),
    ("XCLAIM stream g d 0 $x", "XPENDING stream g"),
    ("XAUTOCLAIM stream h d 0 0 COUNT 50", "XPENDING stream h"),
    ("XGROUP DELCONSUMER stream g c", "XPENDING stream g"),
    ("XDEL stream $x", "XLEN stream"),
    ("XTRIM stream MAXLEN 20", "XLEN stream"),
    ("XGROUP DESTROY stream h", "XINFO GROUPS stream"),
    ("ZREMRANGEBYSCORE zset 10 50", "ZCARD zset"),
    ("ZREMRANGEBYRANK zset 10 100", "ZCARD zset"),
    ("ZPOPMIN zset 50", "ZCARD zset"),
    ("LTRIM list 50 250", "LLEN list"),
    ("LREM list 0 i70", "LLEN list"),
    ("LINSERT list BEFORE i90 x", "LLEN list"),
    ("LPOP list 50", "LLEN list"),
    ("SPOP set 1000", "EXISTS set"),
    ("DEL hash list zset $k", "EXISTS hash list zset k1"),
];

/// Returns a bed with a geo key and a stream. The stream has two groups, and the second group has read the stream.
fn bed_with_stream() -> Bed {
    let mut bed = Bed::new();
    for id in 1..=ELEMENTS {
        bed.ask(WRITER, &format!("XADD stream {id}-1 field {id}"));
        let (longitude, latitude) = (id % 100, id % 80);
        bed.ask(WRITER, &format!("GEOADD geo {longitude} {latitude} m{id}"));
    }
    for group in ["g", "h"] {
        bed.ask(WRITER, &format!("XGROUP CREATE stream {group} 0"));
    }
    bed.at_once("XREADGROUP GROUP h c STREAMS stream >");
    bed
}

#[test]
fn a_command_beside_the_loop_replies_and_leaves_what_it_does_on_the_loop() {
    let (mut beside, mut here) = (bed_with_stream(), bed_with_stream());
    for (line, shows) in HEAVY {
        beside.send_beside(line);
        let (reply, expected) = (beside.replies(READER), here.at_once(&expanded(line)));
        // The order of members depends on the database's seed.
        match line.starts_with("SPOP") {
            true => assert_eq!(sorted(&reply), sorted(&expected), "{line}"),
            false => assert_eq!(reply, expected, "{line}"),
        }
        assert_eq!(beside.at_once(shows), here.at_once(shows), "{line}");
    }
}

#[test]
fn others_run_meanwhile_and_requests_for_held_keys_come_behind() {
    let mut bed = bed_with_stream();
    bed.send_beside("XREADGROUP GROUP g c STREAMS stream >");
    assert_eq!(
        {
            bed.send(WRITER, "PING");
            bed.replies_now(WRITER)
        },
        "+PONG\r\n",
        "a client that needs no key is served at once"
    );
    bed.send(WRITER, "XPENDING stream g");
    assert_eq!(bed.replies_now(WRITER), "", "the stream is held");
    bed.land();
    bed.go_on(WRITER);
    let pending = bed.replies(WRITER);
    assert!(
        pending.starts_with(&format!("*4\r\n:{ELEMENTS}\r\n")),
        "{pending}"
    );
    assert!(bed.replies(READER).contains("300-1"));
}

#[test]
fn a_watch_sees_a_change_beside_the_loop_when_it_has_landed() {
    let mut bed = Bed::new();
    bed.ask(WRITER, "WATCH set");
    bed.send_beside("SREM set $m");
    bed.land();
    bed.ask(WRITER, "MULTI");
    bed.ask(WRITER, "SCARD set");
    assert_eq!(bed.ask(WRITER, "EXEC"), "*-1\r\n");
    assert_eq!(bed.replies(READER), ":30\r\n");
}

#[test]
fn a_long_block_is_one_transaction_beside_the_loop() {
    let mut bed = Bed::new();
    bed.ask(READER, "MULTI");
    for i in 0..20 {
        bed.ask(READER, &format!("SET key{i} {i}"));
    }
    bed.ask(READER, "LPUSH key3 x");
    bed.send_beside("EXEC");
    bed.send(WRITER, "GET key7");
    assert_eq!(
        bed.replies_now(WRITER),
        "",
        "all keys of the block are held"
    );
    bed.land();
    bed.go_on(WRITER);
    assert_eq!(bed.replies(WRITER), "$1\r\n7\r\n");
    let reply = bed.replies(READER);
    assert!(reply.starts_with("*21\r\n+OK\r\n"), "{reply}");
    assert!(reply.contains("-WRONGTYPE"), "{reply}");
}

#[test]
fn a_block_with_a_heavy_command_runs_beside_the_loop_and_once() {
    let mut bed = Bed::new();
    for line in ["MULTI", "INCR counter", "ZUNIONSTORE to 2 zset thirds"] {
        bed.ask(READER, line);
    }
    bed.send_beside("EXEC");
    assert_eq!(bed.replies(READER), "*2\r\n:1\r\n:500\r\n");
    assert_eq!(bed.ask(WRITER, "GET counter"), "$1\r\n1\r\n");
}

#[test]
fn a_second_heavy_command_waits_for_the_first() {
    let mut bed = Bed::new();
    bed.send_beside("SREM set $m");
    bed.send(WRITER, &expanded("SADD other $a"));
    assert_eq!(bed.replies_now(WRITER), "");
    bed.land();
    bed.go_on(WRITER);
    assert_eq!(bed.replies(WRITER), ":30\r\n");
    assert_eq!(bed.replies(READER), ":30\r\n");
}

#[test]
fn a_change_beside_the_loop_is_acknowledged_when_it_is_durable() {
    let mut bed = Bed::new();
    bed.send_beside("SREM set $m");
    bed.land();
    let connection = bed.state.connections.get(READER).expect("a client");
    assert_eq!(connection.replies.waits_for(), Some(Durability::Disk));
}

#[test]
fn a_client_that_leaves_meanwhile_gets_no_reply_and_its_command_stands() {
    let mut bed = Bed::new();
    bed.send_beside("SREM set $m");
    let mut connection = bed.state.connections.take(READER).expect("a client");
    connection.closing = true;
    bed.state.connections.put(READER, connection);
    bed.land();
    assert_eq!(bed.replies_now(READER), "");
    assert_eq!(bed.ask(WRITER, "SCARD set"), ":270\r\n");
}
