//! Tests of jobs that alternate with other clients, without sockets. A test decides when a job takes a step.

mod behind;
mod beside;
mod built;
mod keys;
mod texts;

use crate::command::steps::Steps;
use crate::engine::{Db, MemoryUse, Options};
use crate::options::ServerOptions;
use crate::state::{Stage, State};
use crate::testbed::{self, Testbed};
use tempfile::TempDir;

/// `ELEMENTS` is the number of elements of each collection, `STEP` the number that one step processes.
const ELEMENTS: usize = 300;
const STEP: u64 = 7;
const STEPS: Steps = Steps {
    long: STEP,
    elements: STEP,
};
/// `READER` is the client with the long command, `WRITER` a second client.
const READER: usize = 0;
const WRITER: usize = 1;

/// Requests that show what a command has stored.
const STORED: [&str; 4] = [
    "SORT to ALPHA",
    "LRANGE to 0 -1",
    "SORT set ALPHA",
    "LRANGE numbers 0 -1",
];

struct Bed {
    state: State,
    _around: Testbed,
    _dir: TempDir,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = Options::new(dir.path().join("data"));
        options.partitions = 16;
        options.segment_bytes = 4 << 20;
        options.memory_limit = Some(256 << 20);
        let db = Db::open(options.clone()).expect("a database");
        let around = Testbed::new();
        let mut state = around.state(ServerOptions::default(), options);
        state.stage = Stage::Ready(db);
        state.steps = STEPS;
        for id in [1, 2] {
            let index = state.connections.reserve();
            let connection = testbed::connection(&state, testbed::socket(), index, id);
            state.connections.put(index, connection);
        }
        let mut bed = Bed {
            state,
            _around: around,
            _dir: dir,
        };
        for i in 0..ELEMENTS {
            bed.ask(WRITER, &format!("HSET hash f{i} 10"));
            bed.ask(WRITER, &format!("SADD set m{i}"));
            bed.ask(WRITER, &format!("RPUSH list i{i}"));
            bed.ask(WRITER, &format!("ZADD zset {i} m{i}"));
            bed.ask(WRITER, &format!("SADD thirds m{}", 3 * i));
            bed.ask(WRITER, &format!("RPUSH numbers {}", i * 7919 % 101));
        }
        bed
    }

    /// Waits for the command beside the loop, if one runs there.
    fn land(&mut self) {
        while self.state.beside.is_busy() {
            self.state.land();
            std::thread::yield_now();
        }
    }

    /// Sends a line without waiting.
    fn send(&mut self, client: usize, line: &str) {
        let mut connection = self.state.connections.take(client).expect("a client");
        connection.take(&mut self.state, format!("{line}\r\n").as_bytes());
        connection.account(&self.state);
        self.state.connections.put(client, connection);
    }

    /// Returns the replies to the client since the last call.
    fn replies(&mut self, client: usize) -> String {
        self.land();
        let mut connection = self.state.connections.take(client).expect("a client");
        let reply = std::mem::take(&mut connection.replies).buf;
        connection.account(&self.state);
        self.state.connections.put(client, connection);
        String::from_utf8(reply).expect("text")
    }

    fn ask(&mut self, client: usize, line: &str) -> String {
        self.send(client, line);
        self.replies(client)
    }

    /// Lets the jobs run to their end. Calls `between` after each step except the last. Returns the number of steps.
    fn finish(&mut self, mut between: impl FnMut(&mut Bed)) -> usize {
        let mut steps = 0;
        while !self.state.jobs.is_empty() {
            self.state.step_job();
            self.land();
            steps += 1;
            if !self.state.jobs.is_empty() {
                between(self);
            }
        }
        steps
    }

    /// Returns the reply to a line that runs as a whole and not in steps.
    fn at_once(&mut self, line: &str) -> String {
        let before = std::mem::replace(
            &mut self.state.steps,
            Steps {
                long: u64::MAX,
                elements: 1,
            },
        );
        let reply = self.ask(WRITER, line);
        self.state.steps = before;
        reply
    }

    fn held(&self) -> u64 {
        self.state
            .db()
            .expect("a database")
            .memory()
            .get(MemoryUse::Clients)
    }
}

/// Returns the lines of a reply, sorted.
fn sorted(reply: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = reply.split("\r\n").collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_long_command_goes_on_in_steps_and_replies_what_it_replies_at_once() {
    let mut bed = Bed::new();
    let all = [
        "HGETALL hash",
        "HKEYS hash",
        "HVALS hash",
        "SMEMBERS set",
        "LRANGE list 0 -1",
        "LRANGE list 3 -20",
        "ZRANGE zset 0 -1",
        "ZRANGE zset 5 200 REV WITHSCORES",
        "ZREVRANGEBYSCORE zset 250 (20 LIMIT 3 150",
        "ZRANGEBYLEX zset - +",
        "SUNION set thirds",
        "SINTER set thirds",
        "SDIFF set thirds none",
        "SDIFF set set",
        "SUNIONSTORE to set thirds set",
        "SINTERSTORE to set thirds",
        "SDIFFSTORE to thirds none",
        "SORT numbers",
        "SORT numbers DESC LIMIT 20 111",
        "SORT_RO set ALPHA",
        "SORT zset ALPHA DESC LIMIT 3 100000",
        "SORT set",
        "SORT numbers LIMIT 0 0",
        "SORT numbers STORE to",
        "SORT numbers ALPHA LIMIT -3 250 STORE numbers",
    ];
    for resp in ["HELLO 2", "HELLO 3"] {
        bed.ask(READER, resp);
        bed.ask(WRITER, resp);
        for line in all {
            let expected = bed.at_once(line);
            let stored = STORED.map(|line| bed.at_once(line));
            bed.send(READER, line);
            let steps = bed.finish(|bed| assert_eq!(bed.ask(WRITER, "PING"), "+PONG\r\n"));
            assert!(steps > 10, "{line} took {steps} steps");
            assert_eq!(stored, STORED.map(|line| bed.at_once(line)), "{line}");
            let reply = bed.replies(READER);
            if line.contains(" hash") || line.contains(" set") {
                assert_eq!(sorted(&reply), sorted(&expected), "{line}");
            } else {
                assert_eq!(reply, expected, "{line}");
            }
        }
    }
}

#[test]
fn what_a_long_command_replies_is_of_one_moment_whatever_is_written_between_its_steps() {
    for pause in [1, 5, 20, 60] {
        let mut bed = Bed::new();
        bed.send(READER, "HGETALL hash");
        let mut turn = 0;
        let steps = bed.finish(|bed| {
            turn += 1;
            if turn % pause == 0 {
                let (from, to) = (turn % ELEMENTS, (turn * 7 + 1) % ELEMENTS);
                bed.send(WRITER, "MULTI");
                bed.send(WRITER, &format!("HINCRBY hash f{from} -1"));
                bed.send(WRITER, &format!("HINCRBY hash f{to} 1"));
                bed.ask(WRITER, "EXEC");
            }
        });
        let reply = bed.replies(READER);
        let words: Vec<&str> = reply.split("\r\n").skip(2).step_by(2).collect();
        let values = words.chunks_exact(2).map(|pair| pair[1]);
        let sum: usize = values.map(|v| v.parse::<usize>().expect("a number")).sum();
        assert_eq!((words.len(), sum), (2 * ELEMENTS, 10 * ELEMENTS), "{pause}");
        let whole = ELEMENTS / usize::try_from(STEP).expect("a step");
        if pause < whole {
            assert!(steps < 3 * whole, "it ended in one round after {steps}");
        } else {
            assert!(steps > whole, "{steps}");
        }
        assert!(bed.state.common.watches.is_empty());
    }
}

#[test]
fn every_way_to_change_a_key_has_a_long_command_begin_again() {
    let changes = [
        ("DEL set", ""),
        ("RENAME set other", ""),
        ("SREM set m1", ""),
        ("FLUSHDB", ""),
        ("FLUSHALL", ""),
        ("SWAPDB 0 1", ""),
        ("MOVE set 1", ""),
        ("PEXPIREAT set 1", ""),
        ("SUNIONSTORE set list2", ""),
        ("SET set text", "-WRONGTYPE"),
        ("COPY list set REPLACE", "-WRONGTYPE"),
    ];
    for (change, error) in changes {
        let mut bed = Bed::new();
        bed.send(READER, "SMEMBERS set");
        bed.state.step_job();
        bed.at_once(change);
        bed.finish(|_| {});
        let reply = bed.replies(READER);
        match change {
            "SREM set m1" => assert!(reply.starts_with("*299\r\n"), "{change}"),
            _ if error.is_empty() => assert_eq!(reply, "*0\r\n", "{change}"),
            _ => assert!(reply.starts_with(error), "{change}: {reply}"),
        }
    }
}

#[test]
fn later_requests_of_the_client_wait_for_its_long_command() {
    let mut bed = Bed::new();
    bed.send(
        READER,
        "ECHO a\r\nLRANGE list 0 -1\r\nECHO b\r\nSMEMBERS set\r\nECHO c",
    );
    assert_eq!(bed.replies(READER), "$1\r\na\r\n");
    let mut all = String::new();
    for _ in 0..2 {
        bed.finish(|_| {});
        // An empty line makes the connection run the requests that it still holds.
        bed.send(READER, "");
        all += &bed.replies(READER);
    }
    let heads: Vec<&str> = all
        .split("\r\n")
        .filter(|l| l.len() == 1 || l.starts_with('*'))
        .collect();
    assert_eq!(heads, ["*300", "b", "*300", "c"]);
}

#[test]
fn a_client_that_leaves_takes_its_job_with_it() {
    let mut bed = Bed::new();
    let before = bed.held();
    bed.send(READER, "HGETALL hash");
    for _ in 0..10 {
        bed.state.step_job();
    }
    assert!(
        bed.held() > before,
        "what it has gathered is on the account"
    );
    assert!(!bed.state.common.watches.is_empty() && !bed.state.jobs.is_empty());
    let mut connection = bed.state.connections.take(READER).expect("a client");
    connection.unaccount(&bed.state);
    bed.state.forget(&mut connection.session);
    assert!(bed.state.common.watches.is_empty() && bed.state.jobs.is_empty());
    assert_eq!(bed.held(), before);
    // If a client is killed, the job notices that at its next step.
    bed.state.connections.put(READER, connection);
    bed.send(READER, "HGETALL hash");
    let seat = bed
        .state
        .connections
        .get(READER)
        .expect("a client")
        .session
        .seat;
    bed.state.kill(seat);
    bed.finish(|_| {});
    assert!(bed.state.common.watches.is_empty());
    assert_eq!(bed.replies(READER), "");
}

#[test]
fn within_multi_a_long_command_runs_in_one_transaction() {
    let mut bed = Bed::new();
    let expected = bed.at_once("LRANGE list 0 -1");
    bed.send(READER, "MULTI\r\nLRANGE list 0 -1\r\nEXEC");
    assert!(bed.state.jobs.is_empty());
    let reply = bed.replies(READER);
    assert_eq!(reply, format!("+OK\r\n+QUEUED\r\n*1\r\n{expected}"));
}

#[test]
fn what_a_long_command_stores_is_of_the_moment_at_which_it_is_stored() {
    for line in ["SUNIONSTORE to set thirds", "SORT numbers STORE to"] {
        let mut bed = Bed::new();
        bed.send(READER, line);
        let mut turn = 0;
        bed.finish(|bed| {
            turn += 1;
            if turn == 30 {
                bed.ask(WRITER, "SADD set new");
                bed.ask(WRITER, "RPUSH numbers -1");
            }
        });
        let expected = bed.at_once(&line.replace("STORE to", "").replace("to set", " set"));
        assert!(bed.at_once("SORT to ALPHA LIMIT 0 2").starts_with("*2"));
        let stored = bed.at_once("SORT to ALPHA");
        let mut all = [sorted(&stored), sorted(&expected)];
        all.iter_mut()
            .for_each(|list| list.retain(|word| !word.starts_with('*')));
        assert_eq!(all[0], all[1], "{line}");
    }
}

#[test]
fn a_pause_of_writes_keeps_a_job_back_that_stores_and_no_other() {
    let mut bed = Bed::new();
    bed.send(READER, "SUNIONSTORE to set thirds");
    bed.state.step_job();
    bed.ask(WRITER, "CLIENT PAUSE 100000 WRITE");
    assert!(!bed.state.has_jobs(), "the loop may sleep");
    for _ in 0..1000 {
        bed.state.step_job();
    }
    assert_eq!(bed.at_once("EXISTS to"), ":0\r\n");
    bed.send(WRITER, "SMEMBERS set");
    assert!(bed.state.has_jobs());
    while bed.state.has_jobs() {
        bed.state.step_job();
    }
    assert!(bed.replies(WRITER).starts_with("*300\r\n"));
    bed.ask(WRITER, "CLIENT UNPAUSE");
    bed.finish(|_| {});
    assert_eq!(bed.replies(READER), ":500\r\n");
}

#[test]
fn a_long_command_is_counted_once_when_it_has_ended() {
    let mut bed = Bed::new();
    bed.state.options.slowlog_slower_than_us = 0;
    bed.ask(WRITER, "SLOWLOG RESET");
    let hits = bed.state.stats.hits;
    let calls = |bed: &mut Bed| {
        let info = bed.ask(WRITER, "INFO commandstats");
        info.lines()
            .any(|line| line.starts_with("cmdstat_smembers:calls=1,"))
    };
    bed.send(READER, "SMEMBERS set");
    let mut steps = 0;
    bed.finish(|bed| {
        steps += 1;
        if steps % 10 == 0 {
            bed.ask(WRITER, "SREM set m1");
            bed.ask(WRITER, "SADD set m1");
        }
        assert!(!calls(bed));
    });
    assert!(calls(&mut bed));
    let log = bed.ask(WRITER, "SLOWLOG GET 128");
    assert_eq!(log.matches("SMEMBERS").count(), 1, "{log}");
    assert_eq!(bed.state.stats.hits - hits, 1, "one key was looked up");
}

#[test]
fn a_client_hears_of_what_its_own_long_command_stores() {
    for begins_again in [false, true] {
        let mut bed = Bed::new();
        bed.ask(WRITER, "CONFIG SET notify-keyspace-events KEA");
        bed.ask(READER, "HELLO 3");
        bed.ask(READER, "SUBSCRIBE __keyspace@0__:to");
        bed.send(READER, "SUNIONSTORE to set thirds");
        let mut turn = 0;
        bed.finish(|bed| {
            turn += 1;
            if begins_again && turn % 3 == 0 {
                bed.ask(WRITER, "SREM set m1");
                bed.ask(WRITER, "SADD set m1");
            }
        });
        let reply = bed.replies(READER);
        assert!(reply.starts_with(":500\r\n>3\r\n"), "{reply}");
        assert!(reply.ends_with("sunionstore\r\n"), "{reply}");
    }
}

#[test]
fn nothing_is_stored_of_a_source_that_has_expired_while_it_was_sorted() {
    let mut bed = Bed::new();
    bed.ask(WRITER, "PEXPIRE numbers 3000");
    bed.send(READER, "SORT numbers STORE to");
    let mut turn = 0;
    bed.finish(|_| {
        turn += 1;
        if turn == ELEMENTS / 7 + 10 {
            std::thread::sleep(std::time::Duration::from_millis(3001));
        }
    });
    assert_eq!(turn, ELEMENTS / 7 + 10, "it began again");
    assert_eq!(bed.replies(READER), ":0\r\n");
    assert_eq!(bed.ask(WRITER, "EXISTS to"), ":0\r\n");
}

#[test]
fn a_command_that_goes_on_in_steps_ends_when_its_user_may_not_run_it_any_more() {
    let mut bed = Bed::new();
    bed.ask(WRITER, "ACL SETUSER reader on nopass +@all ~*");
    for (rules, why) in [
        ("-smembers", "'smembers'"),
        ("+@all resetkeys ~other", "keys used"),
    ] {
        bed.ask(WRITER, "ACL SETUSER reader +@all ~*");
        bed.ask(READER, "AUTH reader any");
        bed.send(READER, "SMEMBERS set");
        bed.state.step_job();
        assert!(!bed.state.jobs.is_empty());
        bed.ask(WRITER, &format!("ACL SETUSER reader {rules}"));
        bed.finish(|_| {});
        let reply = bed.replies(READER);
        assert!(
            reply.starts_with("-NOPERM") && reply.contains(why),
            "{reply}"
        );
    }
}

#[test]
fn a_client_was_not_idle_while_its_long_command_ran() {
    let mut bed = Bed::new();
    bed.send(READER, "SMEMBERS set");
    bed.finish(|bed| bed.state.begin_round());
    let now = bed.state.now;
    let reader = bed.state.connections.get(READER).expect("a client");
    assert_eq!(reader.session.active, now);
}
