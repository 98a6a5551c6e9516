//! Tests of failing system calls of the real server. While a certain file exists, a preloaded library
//! (`shim/io_fault.c`) refuses the calls that a rule names.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::preload::library;
use crate::support::{Reply, Server, arg, request};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A data directory. The test starts a server there, with rules for the failing system calls.
pub struct Faulty {
    dir: tempfile::TempDir,
}

impl Faulty {
    pub fn new() -> Faulty {
        Faulty {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// Starts the server and waits until it is ready. A rule names a system call, a part of a path, and an error
    /// number.
    pub fn start(&self, rules: &[(&str, &str, i32)], extra: &[&str]) -> Server {
        let mut server = self.start_anyhow(rules, extra);
        server.await_ready();
        server
    }

    /// Starts the server without waiting until it is ready.
    fn start_anyhow(&self, rules: &[(&str, &str, i32)], extra: &[&str]) -> Server {
        let switch = self.switch();
        let rules: Vec<String> = rules
            .iter()
            .map(|(call, part, error)| format!("{call} {part} {error} {}", arg(&switch)))
            .collect();
        let variables = [
            ("LD_PRELOAD", arg(&library("io_fault")).to_owned()),
            ("IO_FAULT_RULES", rules.join(";")),
        ];
        // The preloaded library does not see writes through a ring.
        let extra = [&["--log-io", "sync"], extra].concat();
        Server::spawn_with(&self.dir.path().join("data"), &extra, &variables)
    }

    fn switch(&self) -> PathBuf {
        self.dir.path().join("strike")
    }

    pub fn strike(&self) {
        std::fs::write(self.switch(), "").unwrap();
    }

    pub fn relent(&self) {
        std::fs::remove_file(self.switch()).unwrap();
    }
}

fn is_full(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.contains("no space is left on the log's disk"))
}

fn is_unknown(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("UNKNOWN the outcome of this request is unknown: "))
}

/// The keys that a test reads while writes wait. A read waits for the writes in its partition, and a random salt
/// decides the partition of a key. Very probably, at least one of these keys is in a partition without waiting writes.
const KEPT: [&str; 6] = ["kept0", "kept1", "kept2", "kept3", "kept4", "kept5"];

fn set_kept(server: &Server) {
    for key in KEPT {
        assert_eq!(server.ask(&["SET", key, "1"]), Reply::Status("OK".into()));
    }
}

fn reads_go_on(server: &Server) -> bool {
    KEPT.iter().any(|key| {
        let mut reader = server.connect().unwrap();
        reader.set_patience(Duration::from_secs(5));
        matches!(reader.ask(&["GET", key]), Ok(Reply::Bulk(Some(value))) if value == b"1")
    })
}

fn is_stopped(reply: &std::io::Result<Reply>) -> bool {
    matches!(reply, Ok(Reply::Error(text)) if text.starts_with("ERR the database has stopped: "))
}

#[test]
fn a_failed_sync_of_the_log_tells_the_clients_and_ends_the_server_with_code_4() {
    let faulty = Faulty::new();
    let server = faulty.start(&[("sync", "/log/s", EIO)], &[]);
    let mut writer = server.connect().unwrap();
    assert_eq!(
        writer.ask(&["SET", "kept", "1"]).unwrap(),
        Reply::Status("OK".into())
    );
    let mut waiter = server.connect().unwrap();
    waiter
        .send(b"*3\r\n$5\r\nBLPOP\r\n$4\r\nlist\r\n$1\r\n0\r\n")
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    faulty.strike();
    let refused = writer.ask(&["SET", "lost", "1"]);
    assert!(is_stopped(&refused), "{refused:?}");
    let refused = waiter.reply();
    assert!(is_stopped(&refused), "{refused:?}");
    let (status, said) = server.wait();
    let took = begin.elapsed();
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(
        said.contains("The database has stopped: log stream 0: sync "),
        "{said}"
    );
    // The documentation promises two seconds, but the machine that runs the test may be busy.
    assert!(took < Duration::from_secs(20), "{took:?}");

    faulty.relent();
    let server = faulty.start(&[], &[]);
    assert_eq!(
        server.ask(&["GET", "kept"]),
        Reply::Bulk(Some(b"1".to_vec()))
    );
    server.stop();
}

#[test]
fn with_on_stop_stay_a_stopped_server_goes_on_answering() {
    let faulty = Faulty::new();
    let server = faulty.start(&[("sync", "/log/s", EIO)], &["--on-stop", "stay"]);
    set_kept(&server);
    faulty.strike();
    for _ in 0..3 {
        let refused = server.connect().unwrap().ask(&["SET", "lost", "1"]);
        assert!(is_stopped(&refused), "{refused:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(reads_go_on(&server), "{}", server.said());
    server.kill();
}

#[test]
fn want_of_space_that_a_sync_reports_is_final_and_that_a_write_reports_is_not() {
    let faulty = Faulty::new();
    let server = faulty.start(&[("write", "/log/s", ENOSPC)], &[]);
    set_kept(&server);
    let mut first = server.connect().unwrap();
    let mut second = server.connect().unwrap();
    // The server should accept the write before it notices the full disk, and then answer that the outcome is unknown.
    // But the preparation of the next segment may notice the full disk first. Then the server refuses the write, and
    // the test sends it again.
    loop {
        faulty.strike();
        first
            .send(&[request(&[b"SET", b"wait", b"1"]), request(&[b"PING"])].concat())
            .unwrap();
        let answered = first.reply().unwrap();
        let pong = first.reply().unwrap();
        if is_unknown(&answered) {
            assert!(
                is_unknown(&pong),
                "it came with a reply that is not known: {pong:?}"
            );
            break;
        }
        assert!(is_full(&answered), "{answered:?}");
        faulty.relent();
        await_field(&server, "log_disk_full:0");
    }
    let refused = second.ask(&["SET", "more", "1"]).unwrap();
    assert!(is_full(&refused), "{refused:?}");
    assert!(reads_go_on(&server), "{}", server.said());
    // The server must not show a value that is not durable, and no client may wait for it forever.
    for client in [&mut first, &mut second] {
        let read = client.ask(&["GET", "wait"]).unwrap();
        assert!(is_unknown(&read), "{read:?}");
        assert_eq!(client.ask(&["PING"]).unwrap(), Reply::Status("PONG".into()));
    }
    faulty.relent();
    await_field(&server, "log_disk_full:0");
    let read = first.ask(&["GET", "wait"]).unwrap();
    assert_eq!(
        read,
        Reply::Bulk(Some(b"1".to_vec())),
        "it was written after all"
    );
    let resumed = server.ask(&["SET", "more", "1"]);
    assert_eq!(resumed, Reply::Status("OK".into()));
    server.kill();

    let server = faulty.start(&[("sync", "/log/s", ENOSPC)], &[]);
    assert_eq!(
        server.ask(&["MGET", "wait", "more"]),
        Reply::Array(vec![Reply::Bulk(Some(b"1".to_vec())); 2])
    );
    faulty.strike();
    let refused = server.connect().unwrap().ask(&["SET", "lost", "1"]);
    assert!(is_stopped(&refused), "{refused:?}");
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(4), "{said}");
}

#[test]
fn an_anchor_refused_for_want_of_space_delays_and_a_failed_one_stops_a_start_with_code_4() {
    let faulty = Faulty::new();
    let server = faulty.start(&[("write", "/anchor", ENOSPC)], &[]);
    let mut client = server.connect().unwrap();
    faulty.strike();
    let ok = Reply::Status("OK".into());
    assert_eq!(client.ask(&["SET", "kept", "1"]).unwrap(), ok);
    let delayed = "Writing the anchor failed and is tried again: write ";
    let begin = Instant::now();
    while !server.said().contains(delayed) {
        let late = begin.elapsed() > Duration::from_secs(30);
        assert!(!late, "{}", server.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.ask(&["SET", "more", "1"]).unwrap(), ok);
    let refused = client.ask(&["SAVE"]).unwrap();
    assert!(matches!(refused, Reply::Error(_)), "{refused:?}");
    faulty.relent();
    let relented = Instant::now();
    while !server.said().contains("Writing the anchor works again") {
        let late = relented.elapsed() > Duration::from_secs(30);
        assert!(!late, "{}", server.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.ask(&["SAVE"]).unwrap(), ok);
    let again = "Writing the anchor works again";
    server.await_line(again, &["Writing the anchor failed", again]);
    server.kill();

    faulty.strike();
    for (call, error) in [("write", ENOSPC), ("write", EIO), ("sync", ENOSPC)] {
        let server = faulty.start_anyhow(&[(call, "/anchor", error)], &[]);
        let (status, said) = server.wait();
        assert_eq!(status.code(), Some(4), "{call} {error}: {said}");
        assert!(said.contains("anchor: "), "{said}");
    }
    faulty.relent();
    let server = faulty.start(&[], &[]);
    let one = Reply::Bulk(Some(b"1".to_vec()));
    let kept = server.ask(&["MGET", "kept", "more"]);
    assert_eq!(kept, Reply::Array(vec![one; 2]));
    server.stop();
}

#[test]
fn an_old_directory_that_cannot_be_removed_is_reported_and_removed_later() {
    let faulty = Faulty::new();
    let server = faulty.start(&[("unlink", "/image-", EIO)], &[]);
    let mut client = server.connect().unwrap();
    for _ in 0..2 {
        client.ask(&["INCR", "n"]).unwrap();
        assert_eq!(client.ask(&["SAVE"]).unwrap(), Reply::Status("OK".into()));
    }
    faulty.strike();
    client.ask(&["INCR", "n"]).unwrap();
    await_words(
        &server,
        &mut client,
        "Removing old files failed and is tried again: remove ",
    );
    faulty.relent();
    await_words(&server, &mut client, "Removing old files works again");
    let directories = |slot: &str| {
        let folder = faulty.dir.path().join("data").join(slot);
        std::fs::read_dir(folder).unwrap().count()
    };
    // After the last checkpoint has removed the old files, each image has two files: its pages and its directory.
    let clear = || (directories("image-a"), directories("image-b")) == (2, 2);
    let begun = std::time::Instant::now();
    while !clear() {
        assert!(begun.elapsed().as_secs() < 20, "old files are still there");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server.stop();
}

/// Takes checkpoints until the server's log contains `words`.
fn await_words(server: &Server, client: &mut crate::support::Client, words: &str) {
    let begin = Instant::now();
    while !server.said().contains(words) {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{}",
            server.said()
        );
        assert_eq!(client.ask(&["SAVE"]).unwrap(), Reply::Status("OK".into()));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn await_field(server: &Server, field: &str) {
    let begin = Instant::now();
    loop {
        let Reply::Bulk(Some(info)) = server.ask(&["INFO", "log"]) else {
            panic!("no INFO");
        };
        if String::from_utf8_lossy(&info).contains(field) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "no {field}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
