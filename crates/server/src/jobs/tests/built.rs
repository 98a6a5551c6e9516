//! Tests of commands that build a collection in steps and store it under its key at the end.

use super::*;

/// Requests for the final state: the content of the key `to`, its encoding and the size of the database. The tests
/// compare the replies.
const SEEN: [&str; 7] = [
    "TYPE to",
    "HGETALL to",
    "LRANGE to 0 -1",
    "SMEMBERS to",
    "ZRANGE to 0 -1 WITHSCORES",
    "DBSIZE",
    "OBJECT ENCODING to",
];

fn seen(bed: &mut Bed) -> Vec<String> {
    let seen = SEEN.map(|line| bed.at_once(line));
    let seen = seen.iter().map(|reply| sorted(reply).join(" "));
    seen.collect()
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Bed {
    fn send_bytes(&mut self, client: usize, bytes: &[u8]) {
        let mut connection = self.state.connections.take(client).expect("a client");
        connection.take(&mut self.state, bytes);
        connection.account(&self.state);
        self.state.connections.put(client, connection);
    }

    /// Returns the reply of DUMP for a key.
    fn dumped(&mut self, key: &str) -> Vec<u8> {
        let before = std::mem::take(&mut self.state.steps);
        self.send(WRITER, &format!("DUMP {key}"));
        self.state.steps = before;
        let mut connection = self.state.connections.take(WRITER).expect("a client");
        let reply = std::mem::take(&mut connection.replies).buf;
        connection.account(&self.state);
        self.state.connections.put(WRITER, connection);
        let head = reply
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a length");
        reply[head + 1..reply.len() - 2].to_vec()
    }

    /// Returns requests that build the key `to` in all possible ways.
    fn builders(&mut self) -> Vec<Vec<u8>> {
        let items = (0..ELEMENTS).map(|i| format!(" i{i}")).collect::<String>();
        let lines = [
            "COPY hash to".to_owned(),
            "COPY set to REPLACE".to_owned(),
            "COPY list to".to_owned(),
            "COPY zset to".to_owned(),
            "ZRANGESTORE to zset 3 -1 REV".to_owned(),
            format!("LPUSH to{items}"),
            format!("RPUSH to{items}"),
            "SUNIONSTORE to set thirds".to_owned(),
            "SORT numbers STORE to".to_owned(),
        ];
        let mut all: Vec<_> = lines
            .iter()
            .map(|line| request(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
            .collect();
        for key in ["hash", "set", "list", "zset"] {
            let payload = self.dumped(key);
            all.push(request(&[b"RESTORE", b"to", b"0", &payload]));
            all.push(request(&[
                b"RESTORE", b"to", b"99999", &payload, b"REPLACE",
            ]));
        }
        all
    }
}

#[test]
fn a_collection_that_is_built_in_steps_is_what_it_is_at_once() {
    let mut bed = Bed::new();
    for line in bed.builders() {
        let text = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        bed.ask(WRITER, "DEL to");
        let nothing = seen(&mut bed);
        let steps = bed.state.steps;
        bed.state.steps = Steps {
            long: u64::MAX,
            elements: 1,
        };
        bed.send_bytes(WRITER, &line);
        let reply = bed.replies(WRITER);
        let expected = seen(&mut bed);
        bed.ask(WRITER, "DEL to");
        bed.state.steps = steps;
        bed.send_bytes(READER, &line);
        let mut between = 0;
        let taken = bed.finish(|bed| {
            between += 1;
            if between % 20 == 0 {
                assert_eq!(seen(bed), nothing, "{text}");
            }
        });
        assert!(taken > 30, "{text} took {taken} steps");
        assert_eq!(bed.replies(READER), reply, "{text}");
        assert_eq!(seen(&mut bed), expected, "{text}");
        assert!(bed.state.common.watches.is_empty());
        // The command runs again, in a MULTI block.
        bed.ask(WRITER, "DEL to");
        bed.ask(WRITER, "MULTI");
        bed.send_bytes(WRITER, &line);
        assert!(bed.ask(WRITER, "EXEC").contains(&reply), "{text}");
        assert_eq!(seen(&mut bed), expected, "{text}");
    }
}

#[test]
fn a_collection_is_moved_in_steps_with_its_deadline() {
    for key in ["hash", "set", "list", "zset"] {
        let mut bed = Bed::new();
        bed.ask(WRITER, &format!("PEXPIRE {key} 3600000"));
        let before = bed.dumped(key);
        bed.send(READER, &format!("MOVE {key} 1"));
        let steps = bed.finish(|bed| {
            assert_eq!(bed.ask(WRITER, &format!("EXISTS {key}")), ":1\r\n");
        });
        assert!(steps > 30, "{steps}");
        assert_eq!(bed.replies(READER), ":1\r\n");
        assert_eq!(bed.ask(WRITER, &format!("EXISTS {key}")), ":0\r\n");
        bed.ask(WRITER, "SELECT 1");
        assert_ne!(bed.ask(WRITER, &format!("PTTL {key}")), ":-1\r\n");
        let after = bed.dumped(key);
        assert_eq!(before.len(), after.len());
        if key != "hash" && key != "set" {
            assert_eq!(before, after);
        }
    }
}

/// Lets a second client act between two steps, and checks the reply and the final state.
#[test]
fn what_comes_between_the_steps_of_a_building_command_came_before_it() {
    let items = (0..ELEMENTS).map(|i| format!(" i{i}")).collect::<String>();
    let push = format!("RPUSH to{items}");
    let rows = [
        // Each row: the command, the other client's request, the command's reply, a request that shows the
        // final state, and its reply.
        (
            "COPY list to",
            "SET to text",
            ":0\r\n",
            "GET to",
            "$4\r\ntext\r\n",
        ),
        (
            "COPY list to REPLACE",
            "SET to text",
            ":1\r\n",
            "LLEN to",
            ":300\r\n",
        ),
        (
            "COPY list to",
            "RPUSH list x",
            ":1\r\n",
            "LLEN to",
            ":301\r\n",
        ),
        ("COPY list to", "DEL list", ":0\r\n", "EXISTS to", ":0\r\n"),
        ("COPY list to", "FLUSHALL", ":0\r\n", "DBSIZE", ":0\r\n"),
        ("COPY list to", "SWAPDB 0 1", ":0\r\n", "DBSIZE", ":0\r\n"),
        (
            "COPY list to DB 1",
            "SWAPDB 1 2",
            ":1\r\n",
            "MOVE to 5",
            ":0\r\n",
        ),
        ("MOVE set 1", "SADD set x", ":1\r\n", "EXISTS set", ":0\r\n"),
        (
            "MOVE set 1",
            "COPY hash set DB 1",
            ":0\r\n",
            "SCARD set",
            ":300\r\n",
        ),
        ("MOVE set 1", "DEL set", ":0\r\n", "EXISTS set", ":0\r\n"),
        (
            &push,
            "RPUSH to x",
            ":301\r\n",
            "LINDEX to 0",
            "$1\r\nx\r\n",
        ),
        (&push, "FLUSHALL", ":300\r\n", "DBSIZE", ":1\r\n"),
        (
            &push,
            "SET to text",
            "-WRONGTYPE",
            "GET to",
            "$4\r\ntext\r\n",
        ),
        (&push, "SWAPDB 0 3", ":300\r\n", "DBSIZE", ":1\r\n"),
        (
            "SUNIONSTORE to set thirds",
            "SET to text",
            ":500\r\n",
            "SCARD to",
            ":500\r\n",
        ),
        (
            "SUNIONSTORE to set thirds",
            "FLUSHDB",
            ":0\r\n",
            "DBSIZE",
            ":0\r\n",
        ),
        (
            "SORT numbers STORE to",
            "RPUSH numbers 1",
            ":301\r\n",
            "LLEN to",
            ":301\r\n",
        ),
    ];
    for (line, change, reply, question, answer) in rows {
        for turn in [1, 20, 45] {
            let mut bed = Bed::new();
            bed.send(READER, line);
            let mut step = 0;
            bed.finish(|bed| {
                step += 1;
                if step == turn {
                    bed.at_once(change);
                }
            });
            if step < turn {
                continue;
            }
            let got = bed.replies(READER);
            assert!(got.starts_with(reply), "{change} in {line}: {got}");
            assert_eq!(bed.ask(WRITER, question), answer, "{change} in {line}");
        }
    }
}

#[test]
fn what_a_client_that_leaves_has_begun_to_build_is_seen_by_nobody() {
    let mut bed = Bed::new();
    let digest = bed.ask(WRITER, "DEBUG DIGEST");
    bed.send(READER, "COPY set to");
    for _ in 0..20 {
        bed.state.step_job();
        assert_eq!(bed.ask(WRITER, "DEBUG DIGEST"), digest);
    }
    let connection = bed.state.connections.take(READER).expect("a client");
    let mut connection = connection;
    connection.unaccount(&bed.state);
    bed.state.forget(&mut connection.session);
    assert!(bed.state.jobs.is_empty());
    assert_eq!(bed.ask(WRITER, "DEBUG DIGEST"), digest);
    assert_eq!(bed.at_once("EXISTS to"), ":0\r\n");
}

/// Returns the compressed payload of a string. The string has `1 + 264 * copies` letters.
fn compressed_letters(copies: u32) -> Vec<u8> {
    let mut compressed = vec![0, b'a'];
    for _ in 0..copies {
        compressed.extend_from_slice(&[0xe0, 0xff, 0]);
    }
    let mut payload = vec![0, 0xc3];
    for bytes in [
        u32::try_from(compressed.len()).expect("few"),
        1 + 264 * copies,
    ] {
        payload.push(0x80);
        payload.extend_from_slice(&bytes.to_be_bytes());
    }
    payload.extend_from_slice(&compressed);
    payload.extend_from_slice(&10u16.to_le_bytes());
    payload.extend_from_slice(&[0; 8]);
    let Err(perdura_rdb::Error::Checksum { computed, .. }) = perdura_rdb::parse_dump(&payload)
    else {
        panic!("a checksum of zeros is wrong");
    };
    let body = payload.len() - 8;
    payload[body..].copy_from_slice(&computed.to_le_bytes());
    payload
}

/// A regression test: `RESTORE` of a string of 59 MB once held up every other client for 166 ms.
#[test]
fn a_long_string_is_restored_beside_the_loop_compressed_or_not() {
    let mut bed = Bed::new();
    let plain = |text: Vec<u8>| perdura_rdb::dump(&perdura_rdb::Value::String(text));
    let payloads = [
        (plain(vec![b'x'; 40_000]), plain(vec![b'x'; 40_000])),
        (compressed_letters(100), plain(vec![b'a'; 26_401])),
    ];
    for (payload, expected) in payloads {
        let words: [&[u8]; 5] = [b"RESTORE", b"to", b"0", &payload, b"REPLACE"];
        bed.send_bytes(READER, &request(&words));
        assert!(bed.state.beside.is_busy(), "{} bytes", payload.len());
        assert_eq!(bed.ask(WRITER, "PING"), "+PONG\r\n");
        assert_eq!(bed.replies(READER), "+OK\r\n");
        assert!(bed.dumped("to") == expected, "{} bytes", payload.len());
    }
}
