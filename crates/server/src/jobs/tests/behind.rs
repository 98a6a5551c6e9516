//! Tests of requests that must wait until the log has made one more file ready. Only the client waits. The loop
//! does not.

use super::{Bed, READER, STEPS, WRITER};
use std::time::{Duration, Instant};

/// The length, in bytes, of a string that is too long for the ready log files.
const BYTES: usize = 8 << 20;

/// The number of copies of the string. All copies together need more room than the log makes ready for one string.
const COPIES: usize = 6;

/// The length of a long key, in bytes. Commands on this key do not run in steps.
const LONG: usize = 1100;

impl Bed {
    fn is_kept_back(&mut self, client: usize) -> bool {
        let connection = self.state.connections.take(client).expect("a client");
        let kept = connection.postponed;
        self.state.connections.put(client, connection);
        kept
    }

    /// Waits until the log has room for the deferred request.
    fn await_log(&mut self, client: usize) {
        let began = Instant::now();
        while self.is_kept_back(client) {
            let waits = began.elapsed();
            assert!(waits < Duration::from_secs(60), "the log stays behind");
            std::thread::sleep(Duration::from_millis(1));
            self.state.end_wait_for_log();
        }
    }

    /// Runs the deferred requests, as the loop does, until none is left. Returns the number of waits.
    fn catch_up(&mut self, client: usize) -> usize {
        let mut waits = 0;
        while self.is_kept_back(client) {
            waits += 1;
            self.await_log(client);
            self.send(client, "");
        }
        waits
    }

    fn patiently(&mut self, client: usize, line: &str) -> String {
        self.send(client, line);
        self.catch_up(client);
        self.replies(client)
    }
}

/// Returns a database with a string of nonzero bytes. The log must contain each of these bytes.
fn with_string() -> Bed {
    let mut bed = Bed::new();
    bed.state.steps.long = u64::MAX;
    bed.patiently(WRITER, &format!("SETRANGE zeros {} x", BYTES - 1));
    let reply = bed.patiently(WRITER, "BITOP NOT ones zeros");
    assert_eq!(reply, format!(":{BYTES}\r\n"));
    bed
}

#[test]
fn a_command_that_needs_more_of_the_log_than_its_request_tells_waits_outside_the_loop() {
    let mut bed = with_string();
    let to = "k".repeat(LONG);
    let commands = bed.state.stats.commands;
    bed.send(READER, &format!("COPY ones {to}"));
    assert!(bed.is_kept_back(READER), "there was room at once");
    assert_eq!(bed.replies(READER), "");
    assert_eq!(bed.state.stats.commands, commands);
    assert_eq!(bed.ask(WRITER, &format!("EXISTS {to}")), ":0\r\n");
    assert_eq!(bed.ask(WRITER, "PING"), "+PONG\r\n");
    assert!(bed.catch_up(READER) > 0);
    assert_eq!(bed.replies(READER), ":1\r\n");
    assert_eq!(
        bed.ask(WRITER, &format!("STRLEN {to}")),
        format!(":{BYTES}\r\n")
    );
}

#[test]
fn a_command_that_begins_again_waits_for_the_log_outside_the_loop() {
    let mut bed = with_string();
    let mut waited = 0;
    // The log makes room for about two copies at a time.
    for copy in 0..COPIES {
        bed.state.steps = STEPS;
        bed.send(READER, &format!("COPY ones copy{copy}"));
        bed.catch_up(READER);
        let mut lacked = false;
        while let Some(job) = bed.state.jobs.queue.front() {
            lacked |= job.stale && job.lacked > 0;
            if !job.stale {
                // The source changes before each step of the job.
                bed.patiently(WRITER, "SETRANGE ones 0 x");
            }
            bed.state.step_job();
            let behind = bed.state.db().expect("a database").is_behind(BYTES);
            lacked |= bed.state.beside.is_busy() && behind;
            bed.land();
        }
        waited += usize::from(lacked);
        assert_eq!(bed.replies(READER), ":1\r\n");
        let length = bed.ask(WRITER, &format!("STRLEN copy{copy}"));
        assert_eq!(length, format!(":{BYTES}\r\n"));
    }
    assert!(waited > 0, "there was room each time");
}

#[test]
fn exec_is_kept_back_as_a_whole_before_the_first_of_its_commands_runs() {
    let mut bed = with_string();
    let text = "x".repeat(BYTES / 2);
    assert_eq!(bed.ask(READER, "MULTI"), "+OK\r\n");
    for copy in 0..COPIES {
        // An inline request cannot be this long.
        let head = format!("*3\r\n$3\r\nSET\r\n$5\r\nexec{copy}");
        let set = format!("{head}\r\n${}\r\n{text}", text.len());
        assert_eq!(bed.patiently(READER, &set), "+QUEUED\r\n");
    }
    bed.send(READER, "EXEC");
    assert!(bed.is_kept_back(READER), "there was room at once");
    assert_eq!(bed.replies(READER), "");
    assert_eq!(bed.ask(WRITER, "EXISTS exec0"), ":0\r\n");
    assert!(bed.catch_up(READER) > 0);
    let replies = format!("*{COPIES}\r\n{}", "+OK\r\n".repeat(COPIES));
    assert_eq!(bed.replies(READER), replies);
}

#[test]
fn a_script_that_was_kept_back_has_only_the_rest_of_its_time() {
    let mut bed = with_string();
    let head = "*3\r\n$4\r\nEVAL\r\n";
    let source =
        "redis.call('COPY', 'ones', 'copy') redis.call('COPY', 'ones', 'more') while true do end";
    let request = format!("{head}${}\r\n{source}\r\n$1\r\n0", source.len());
    bed.send(READER, &request);
    assert!(bed.is_kept_back(READER), "there was room at once");
    let mut connection = bed.state.connections.take(READER).expect("a client");
    assert!(
        connection.session.spent > Duration::ZERO,
        "its attempt took time"
    );
    connection.session.spent = Duration::from_secs(3600);
    bed.state.connections.put(READER, connection);
    let mut longest = Duration::ZERO;
    while bed.is_kept_back(READER) {
        bed.await_log(READER);
        let begin = Instant::now();
        bed.send(READER, "");
        longest = longest.max(begin.elapsed());
    }
    let reply = bed.replies(READER);
    assert!(reply.contains("longer than the 1000 ms"), "{reply}");
    assert!(longest < Duration::from_secs(1), "it had {longest:?} more");
    // The next script has the full limit of time again.
    let connection = bed.state.connections.take(READER).expect("a client");
    assert_eq!(connection.session.spent, Duration::ZERO);
    bed.state.connections.put(READER, connection);
}
