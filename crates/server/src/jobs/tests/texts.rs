//! Tests of commands that process a long string one or a few pages at a time.

use super::{Bed, MemoryUse, READER, WRITER};

/// The length of a string of several pages, bytes.
const BYTES: usize = 100_000;

fn with_text() -> Bed {
    let mut bed = Bed::new();
    bed.at_once(&format!("SETRANGE text {} tail", BYTES - 4));
    bed.ask(WRITER, "SETRANGE text 40000 middle");
    bed
}

/// Sends a line that must run in steps, and returns its reply.
fn in_steps(bed: &mut Bed, line: &str, between: impl FnMut(&mut Bed)) -> String {
    assert_eq!(bed.ask(READER, line), "", "{line} is not over at once");
    let steps = bed.finish(between);
    assert!(steps > 1, "{line} took {steps} steps");
    bed.replies(READER)
}

#[test]
fn a_long_string_is_read_in_steps_and_replied_as_it_is_at_once() {
    let mut bed = with_text();
    let all = [
        "GET text",
        "GETRANGE text 1 -2",
        "GETRANGE text 39999 99999",
        "BITCOUNT text",
        "BITCOUNT text 320003 -5 BIT",
        "BITPOS text 1 50000",
        "BITPOS text 1 0 -1 BIT",
        "BITPOS text 1 320420 -20 BIT",
    ];
    for line in all {
        let wanted = bed.at_once(line);
        let other = |bed: &mut Bed| assert_eq!(bed.ask(WRITER, "PING"), "+PONG\r\n");
        assert_eq!(in_steps(&mut bed, line, other), wanted);
    }
    assert_eq!(
        bed.at_once("GET text").len(),
        "$100000\r\n\r\n".len() + BYTES
    );
}

#[test]
fn a_long_string_that_is_changed_while_it_is_read_is_read_again() {
    let mut bed = with_text();
    let mut changed = false;
    let reply = in_steps(&mut bed, "BITCOUNT text", |bed| {
        if !std::mem::replace(&mut changed, true) {
            bed.ask(WRITER, "SETRANGE text 1 x");
        }
    });
    assert_eq!(reply, bed.at_once("BITCOUNT text"));
    let reply = in_steps(&mut bed, "GET text", |bed| {
        bed.ask(WRITER, "DEL text");
    });
    assert_eq!(reply, "$-1\r\n");
}

#[test]
fn a_lookup_of_a_string_read_in_steps_is_counted_once() {
    let mut bed = with_text();
    let before = bed.state.stats.hits;
    in_steps(&mut bed, "GET text", |_| {});
    assert_eq!(bed.state.stats.hits, before + 1);
    bed.ask(WRITER, "MULTI");
    bed.ask(WRITER, "GET text");
    bed.ask(WRITER, "EXEC");
    assert_eq!(bed.state.stats.hits, before + 2);
}

/// Requests that write a long string, each with its reply and the length of the written string.
const WRITES: [(&str, &str, usize); 9] = [
    ("COPY text to", ":1\r\n", BYTES),
    ("COPY text to REPLACE", ":1\r\n", BYTES),
    ("RENAME text to", "+OK\r\n", BYTES),
    ("RENAMENX text to", ":1\r\n", BYTES),
    ("BITOP NOT to text", ":100000\r\n", BYTES),
    ("BITOP XOR to text half none", ":100000\r\n", BYTES),
    ("SETRANGE to 70000 end", ":70003\r\n", 70_003),
    ("SETBIT to 800001 1", ":0\r\n", 100_001),
    ("APPEND to ARG", ":60000\r\n", 60_000),
];

/// Returns a line with the word ARG replaced by a long argument.
fn with_argument(line: &str) -> String {
    line.replace("ARG", &"argument..".repeat(6_000))
}

#[test]
fn a_long_string_is_written_in_steps_and_comes_to_what_it_comes_to_at_once() {
    let more = [
        "SET to ARG PX 100000000",
        "SETEX to 100 ARG",
        "SETNX to ARG",
    ];
    let more = more.map(|line| (line, "", 60_000));
    for (line, reply, len) in WRITES.into_iter().chain(more) {
        let line = with_argument(line);
        let (mut bed, mut other) = (with_text(), with_text());
        for bed in [&mut bed, &mut other] {
            bed.at_once("SETRANGE half 50000 x");
        }
        let wanted = other.at_once(&line);
        assert!(wanted.starts_with(reply), "{line}: {wanted}");
        let got = in_steps(&mut bed, &line, |bed| {
            assert_eq!(bed.ask(WRITER, "EXISTS to"), ":0\r\n");
        });
        assert_eq!(got, wanted, "{line}");
        assert_eq!(bed.ask(WRITER, "STRLEN to"), format!(":{len}\r\n"));
        if line.contains("NOT") {
            // BITOP NOT is applied again, so that the value is text for the comparison.
            bed.at_once("BITOP NOT to to");
            other.at_once("BITOP NOT to to");
        }
        for ask in ["GET to", "EXISTS text", "DBSIZE"] {
            assert_eq!(bed.at_once(ask), other.at_once(ask), "{line}, {ask}");
        }
    }
}

#[test]
fn within_multi_a_long_string_is_written_in_one_round() {
    let mut bed = with_text();
    bed.ask(READER, "MULTI");
    bed.ask(READER, "COPY text to");
    bed.ask(READER, "RENAME to other");
    let reply = bed.ask(READER, "EXEC");
    assert_eq!(reply, "*2\r\n:1\r\n+OK\r\n");
    assert_eq!(bed.at_once("GET other"), bed.at_once("GET text"));
}

#[test]
fn a_command_sees_what_has_become_of_its_key_while_its_string_was_written() {
    let mut bed = with_text();
    let once = |line: &'static str| {
        let mut line = Some(line);
        move |bed: &mut Bed| {
            if let Some(line) = line.take() {
                bed.ask(WRITER, line);
            }
        }
    };
    let set = with_argument("SET to ARG NX GET");
    let reply = in_steps(&mut bed, "COPY text to", once("SADD to member"));
    assert_eq!(reply, ":0\r\n", "the key is there now");
    let reply = in_steps(&mut bed, "RENAME text to", once("SADD to another"));
    assert_eq!(reply, "+OK\r\n", "a collection is displaced");
    assert_eq!(bed.ask(WRITER, "STRLEN to"), ":100000\r\n");
    bed.at_once("RENAME to text");
    assert_eq!(in_steps(&mut bed, &set, once("SET to x")), "$1\r\nx\r\n");
    let reply = in_steps(&mut bed, "BITOP NOT to text", once("SETRANGE text 9 x"));
    assert_eq!(reply, ":100000\r\n");
    let reply = in_steps(&mut bed, "SETRANGE new 90000 x", once("SET new y"));
    assert_eq!(reply, ":90001\r\n");
    assert!(bed.at_once("GET new").starts_with("$90001\r\ny\0"));
    let set = with_argument("SET to ARG");
    let reply = in_steps(&mut bed, &set, once("FLUSHALL"));
    assert_eq!(reply, "+OK\r\n", "the string is written again");
    assert_eq!(bed.ask(WRITER, "DBSIZE"), ":1\r\n");
}

#[test]
fn what_a_client_leaves_behind_that_has_gone_is_purged() {
    let mut bed = with_text();
    let pages = |bed: &Bed| {
        let db = bed.state.db().expect("a database");
        db.memory().get(MemoryUse::Pages)
    };
    let before = pages(&bed);
    bed.send(READER, "COPY text to");
    for _ in 0..4 {
        bed.state.step_job();
    }
    assert!(pages(&bed) > before, "some of it is there");
    let seat = bed.state.connections.take(READER).expect("a client");
    bed.state.drop_job(seat.session.seat.id);
    let begin = std::time::Instant::now();
    while pages(&bed) > before {
        assert!(begin.elapsed().as_secs() < 60, "the purge takes it away");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    bed.state.connections.put(READER, seat);
}
