//! Commands beside the loop: what other clients see meanwhile, and that the outcome is the same.

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

/// A line with many words in the place of `$` and a letter.
fn expanded(line: &str) -> String {
    let many = |word: fn(usize) -> String| (1..=30).map(word).collect::<Vec<_>>().join(" ");
    line.replace("$a", &many(|i| format!("a{i}")))
        .replace("$m", &many(|i| format!("m{i}")))
        .replace("$f", &many(|i| format!("f{i}")))
        .replace("$1", &many(|i| format!("{i} a{i}")))
        .replace("$k", &many(|i| format!("k{i}")))
        .replace("$x", &many(|i| format!("{i}-1")))
}

/// Commands that have much to do in place, each with what shows its outcome.
const HEAVY: [(&str, &str); 30] = [
    ("SADD set $a", "SCARD set"),
    ("SREM set $m", "SCARD set"),
    ("HSET hash $f", "HMGET hash f1 f2 f3 f4"),
    ("HDEL hash $f", "HLEN hash"),
    ("ZADD zset $1", "ZCARD zset"),
    ("ZREM zset $m", "ZCARD zset"),
    ("MSET $k", "MGET k1 k3 k5 k7"),
    ("DEL set hash list zset $k", "EXISTS set list"),
    ("ZUNIONSTORE to 2 zset thirds", "ZRANGE to 0 5 WITHSCORES"),
    ("ZINTERSTORE to 2 zset thirds", "ZCARD to"),
    ("ZDIFFSTORE to 2 zset thirds", "ZCARD to"),
    ("ZUNION 2 zset thirds", "ZCARD zset"),
    ("ZREMRANGEBYRANK zset 10 200", "ZCARD zset"),
    ("ZREMRANGEBYSCORE zset 10 200", "ZCARD zset"),
    ("ZPOPMIN zset 100", "ZCARD zset"),
    ("LTRIM list 100 200", "LLEN list"),
    ("LREM list 0 i7", "LLEN list"),
    ("LINSERT list BEFORE i150 x", "LINDEX list 150"),
    ("LPOP list 100", "LLEN list"),
    ("LPOS list i150", "LLEN list"),
    ("RPUSH list a b c d e f g", "LLEN list"),
    ("SPOP set 300", "EXISTS set"),
    ("SORT numbers BY nothing* GET #", "LLEN numbers"),
    ("SINTERCARD 2 set thirds", "SCARD set"),
    ("XREADGROUP GROUP g c STREAMS stream >", "XPENDING stream g"),
    ("XREADGROUP GROUP h c STREAMS stream 0", "XPENDING stream h"),
    ("XACK stream h $x", "XPENDING stream h"),
    ("XAUTOCLAIM stream h d 0 0 COUNT 50", "XPENDING stream h"),
    ("XTRIM stream MAXLEN 20", "XLEN stream"),
    ("XGROUP DESTROY stream h", "XINFO GROUPS stream"),
];

/// A bed that has a stream with two groups, one of which has read all.
fn bed_with_stream() -> Bed {
    let mut bed = Bed::new();
    for id in 1..=ELEMENTS {
        bed.ask(WRITER, &format!("XADD stream {id}-1 field {id}"));
    }
    for group in ["g", "h"] {
        bed.ask(WRITER, &format!("XGROUP CREATE stream {group} 0"));
    }
    bed.at_once("XREADGROUP GROUP h c STREAMS stream >");
    bed
}

#[test]
fn a_command_beside_the_loop_replies_and_leaves_what_it_does_on_the_loop() {
    for (line, shows) in HEAVY {
        let (mut beside, mut here) = (bed_with_stream(), bed_with_stream());
        beside.send_beside(line);
        let (reply, expected) = (beside.replies(READER), here.at_once(&expanded(line)));
        if line.starts_with("SPOP") {
            assert_eq!(sorted(&reply), sorted(&expected), "{line}");
        } else {
            assert_eq!(reply, expected, "{line}");
        }
        let idle = |reply: String| reply.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            idle(beside.ask(WRITER, shows)),
            idle(here.ask(WRITER, shows)),
            "{line}"
        );
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
