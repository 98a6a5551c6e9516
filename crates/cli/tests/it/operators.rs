//! Tests of the messages for operators. A blocked or broken stderr must not stop a process, and each message must be
//! one line that a program can parse.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use perdura::{Db, Options};
use rustix::fs::OFlags;
use rustix::process::Signal;

use crate::archive_agent::runs_of;
use crate::support::{Client, PERDURA, Reply, SMALL, Server, arg, free_port, signal};

const PATIENCE: Duration = Duration::from_secs(30);
/// A number of lines that the log's queue and a pipe together cannot hold.
const MANY: usize = 6000;

/// A stderr that accepts no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    /// A file on a disk without space.
    FullDisk,
    /// A pipe with a closed reading end.
    NoReader,
    /// A full pipe. The reader does not read.
    Unread,
}

const SINKS: [Sink; 3] = [Sink::FullDisk, Sink::NoReader, Sink::Unread];

impl Sink {
    /// Opens the sink. Returns the writing end, and the reading end if that end is still open.
    fn open(self) -> (OwnedFd, Option<OwnedFd>) {
        if self == Sink::FullDisk {
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            return (full.into(), None);
        }
        let (reader, writer) = std::io::pipe().unwrap();
        if self == Sink::NoReader {
            return (writer.into(), None);
        }
        fill(&writer);
        (writer.into(), Some(reader.into()))
    }
}

/// Writes to a pipe until it is full.
fn fill(writer: impl AsFd) {
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, b"\n").is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
}

/// The process of a verb. It is killed when this value is dropped.
struct Verb(Child);

impl Verb {
    fn spawn(args: &[&str], stderr: impl Into<Stdio>) -> Verb {
        let child = Command::new(PERDURA)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        Verb(child.unwrap())
    }

    fn await_end(&mut self, why: &str) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "{why}: it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(mut self, why: &str) -> ExitStatus {
        signal(self.0.id(), Signal::TERM);
        self.await_end(why)
    }

    fn assert_runs(&mut self, why: &str) {
        let ended = self.0.try_wait().unwrap();
        assert!(ended.is_none(), "{why}: ended with {ended:?}");
    }
}

impl Drop for Verb {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls `found` until it returns a value, and returns this value. Fails after [`PATIENCE`].
fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ok() -> Reply {
    Reply::Status("OK".into())
}

/// Returns the value of a numeric field of INFO stats.
fn figure(client: &mut Client, name: &str) -> u64 {
    let Reply::Bulk(Some(info)) = client.ask(&["INFO", "stats"]).unwrap() else {
        panic!("no INFO");
    };
    let info = String::from_utf8(info).unwrap();
    let value = info.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("{name} in {info}"));
    value.trim_start_matches(':').parse().unwrap()
}

/// Sends an HTTP request to a port and ignores the answer.
fn visit(port: u16) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let _ = socket.read(&mut [0; 100]);
}

#[test]
fn a_server_serves_and_ends_whatever_becomes_of_its_stderr() {
    for sink in SINKS {
        let why = format!("{sink:?}");
        let dir = tempfile::tempdir().unwrap();
        let (port, status) = (free_port(), free_port());
        let (listen, metrics) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{status}"));
        let args = ["serve", "--data", arg(dir.path()), "--listen", &listen];
        let more = [
            "--metrics-listen",
            &metrics,
            "--enable-debug-command",
            "yes",
        ];
        let (stderr, reader) = sink.open();
        let mut server = Verb::spawn(&[&args[..], &more, &SMALL].concat(), stderr);
        let mut client = eventually(&why, || {
            server.assert_runs(&why);
            let mut client = Client::connect(port).ok()?;
            let pong = client.ask(&["PING"]).ok()?;
            (pong == Reply::Status("PONG".into())).then_some(client)
        });
        let begin = Instant::now();
        visit(port);
        visit(status);
        for number in 0..MANY {
            let text = format!("line {number}");
            assert_eq!(client.ask(&["DEBUG", "LOG", &text]).unwrap(), ok(), "{why}");
        }
        assert_eq!(client.ask(&["SET", "k", "v"]).unwrap(), ok(), "{why}");
        assert!(begin.elapsed() < PATIENCE, "{why}: {:?}", begin.elapsed());
        eventually(&why, || {
            (figure(&mut client, "stderr_lines_lost") > 100).then_some(())
        });
        visit(status);
        if let Some(reader) = reader {
            // The test reads the server's output on stderr late.
            let mut pipe = File::from(reader);
            let mut said = String::new();
            let mut bytes = [0; 1 << 16];
            while !said.contains("lines of this log were lost") {
                let len = pipe.read(&mut bytes).unwrap();
                said.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
            }
            assert!(said.contains("Ready to accept commands"), "{said}");
            fill(server_end(&server));
            assert!(server.stop(&why).success(), "{why}");
        } else {
            assert!(server.stop(&why).success(), "{why}");
        }
    }
}

/// Opens the stderr of a running process a second time, for writing.
fn server_end(verb: &Verb) -> OwnedFd {
    let path = format!("/proc/{}/fd/2", verb.0.id());
    OpenOptions::new().write(true).open(path).unwrap().into()
}

#[test]
fn a_service_manager_that_does_not_read_stops_nothing_and_hears_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"full", &path).is_ok() {}
    let variables = [("NOTIFY_SOCKET", arg(&path).to_owned())];
    let mut server = Server::spawn_with(&dir.path().join("data"), &[], &variables);
    server.await_ready();
    assert_eq!(server.ask(&["SET", "k", "v"]), ok());
    let mut bytes = [0; 4096];
    let mut hear = || {
        let len = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    eventually("it is ready", || hear().contains("READY=1").then_some(()));
    while sender.send_to(b"full", &path).is_ok() {}
    server.stop();
}

#[test]
fn a_node_serves_and_ends_whatever_becomes_of_its_stderr() {
    for sink in SINKS {
        let why = format!("{sink:?}");
        let port = free_port();
        let (stderr, _reader) = sink.open();
        let mut node = Verb::spawn(&["logd", "--listen", &format!("127.0.0.1:{port}")], stderr);
        let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
        for _ in 0..50 {
            node.assert_runs(&why);
            let mut socket = eventually(&why, connect);
            // These bytes are not a valid hello, so the node logs a message and closes the connection.
            socket.write_all(&[0xff; 100]).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let closed = socket.read(&mut [0; 100]);
            assert!(
                !closed.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock),
                "{why}"
            );
        }
        assert!(node.stop(&why).success(), "{why}");
    }
}

/// Creates a database with an archive and a backup.
fn archived(dir: &Path) {
    let mut options = Options::new(dir.join("data"));
    options.archive = Some(dir.join("archive"));
    options.archive_merge = false;
    options.first_backup = false;
    let db = Db::open(options).unwrap();
    for round in 0..25_u32 {
        let parts = [db.partition_of(b"k")].into_iter().collect();
        let value = round.to_le_bytes();
        let put = db.transact(&parts, |tx| tx.put(db.database(0), b"k", &value, None));
        put.map(drop).unwrap();
        db.checkpoint().unwrap();
    }
    db.back_up().unwrap();
    db.close().unwrap();
}

#[test]
fn an_agent_and_a_restore_do_their_work_whatever_becomes_of_stderr() {
    for sink in SINKS {
        let why = format!("{sink:?}");
        let dir = tempfile::tempdir().unwrap();
        archived(dir.path());
        let archive = dir.path().join("archive");
        let before = runs_of(&archive);
        assert!(before >= 10, "{before} runs");
        let (stderr, _reader) = sink.open();
        let mut agent = Verb::spawn(&["archive", "agent", "--archive", arg(&archive)], stderr);
        eventually(&why, || {
            agent.assert_runs(&why);
            (runs_of(&archive) < before).then_some(())
        });
        drop(agent);
        let to = dir.path().join("restored");
        let restore = ["restore", "--from", arg(&archive), "--to", arg(&to)];
        let (stderr, _reader) = sink.open();
        let status = Verb::spawn(&restore, stderr).await_end(&why);
        assert_eq!(status.code(), Some(0), "{why}");
        assert!(Db::open(Options::new(&to)).is_ok(), "{why}");
        // The verb's message is lost, but its exit code must be right.
        let (stderr, _reader) = sink.open();
        let status = Verb::spawn(&restore, stderr).await_end(&why);
        assert!(matches!(status.code(), Some(1 | 2)), "{why}: {status}");
        let backup = ["backup", "virtual", "--archive", arg(&to)];
        let (stderr, _reader) = sink.open();
        let status = Verb::spawn(&backup, stderr).await_end(&why);
        assert_eq!(status.code(), Some(2), "{why}");
    }
}

fn output(args: &[&str], stdout: impl Into<Stdio>) -> Output {
    let child = Command::new(PERDURA)
        .args(args)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn();
    child.unwrap().wait_with_output().unwrap()
}

#[test]
fn a_verb_whose_reader_has_gone_is_quiet_and_one_whose_disk_is_full_says_so() {
    let dir = tempfile::tempdir().unwrap();
    archived(dir.path());
    let at = |name: &str| dir.path().join(name);
    let (data, archive) = (at("data"), at("archive"));
    let (data, archive) = (arg(&data), arg(&archive));
    let verbs: [&[&str]; 8] = [
        &["dump", "log", "--data", data],
        &["verify", "--data", data, "--json"],
        &["digest", "--data", data],
        &["export", "--data", data],
        &["archive", "status", "--archive", archive],
        &["archive", "verify", "--archive", archive],
        &["completions", "bash"],
        &["config", "--document"],
    ];
    for verb in verbs {
        let gone = output(verb, Sink::NoReader.open().0);
        let said = String::from_utf8_lossy(&gone.stderr).into_owned();
        assert_eq!(gone.status.code(), Some(0), "{verb:?}: {said}");
        assert!(
            !said.contains("perdura:") && !said.contains("panicked"),
            "{verb:?}: {said}"
        );
        let full = output(verb, Sink::FullDisk.open().0);
        let said = String::from_utf8_lossy(&full.stderr).into_owned();
        assert_eq!(full.status.code(), Some(1), "{verb:?}: {said}");
        assert!(
            said.contains("stdout") && said.contains("No space"),
            "{verb:?}: {said}"
        );
    }
}

#[test]
fn lines_are_json_objects_by_setting_whatever_clients_send() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["--log-format", "json", "--enable-debug-command", "yes"];
    let server = Server::start(&dir.path().join("data"), &settings);
    let mut client = server.connect().unwrap();
    let forged = "a\r\n{\"level\":\"ERROR\"}\u{2028}\u{1b}[2J";
    for level in ["notice", "warning", "notice"] {
        let set = ["CONFIG", "SET", "loglevel", level];
        assert_eq!(client.ask(&set).unwrap(), ok());
        let script = "redis.log(redis.LOG_NOTICE, ARGV[1]) return redis.status_reply('OK')";
        let words = ["EVAL", script, "0", forged];
        assert_eq!(client.ask(&words).unwrap(), ok());
    }
    signal(server.pid(), Signal::TERM);
    let (status, said) = server.wait();
    assert!(status.success(), "{said}");
    let lines: Vec<serde_json::Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let count = |words: &str| {
        let messages = lines.iter().filter_map(|line| line["message"].as_str());
        messages.filter(|message| message.contains(words)).count()
    };
    for line in &lines {
        let time = line["time"].as_str().unwrap();
        assert!(perdura_base::moment::parse_moment(time).is_some(), "{line}");
        assert!(
            line["level"] != "ERROR" && line["target"].is_string(),
            "{line}"
        );
    }
    assert_eq!(count(forged), 2, "none at level warning: {said}");
    for once in [
        "perdura 0",
        "Listening on",
        "Ready to accept commands",
        "Ending",
    ] {
        assert_eq!(count(once), 1, "{once}: {said}");
    }
}

#[test]
fn a_line_has_its_time_in_utc_its_level_and_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &["--enable-debug-command", "yes"]);
    assert_eq!(server.ask(&["DEBUG", "LOG", "two\nlines"]), ok());
    signal(server.pid(), Signal::TERM);
    let (_, said) = server.wait();
    for line in said.lines() {
        let mut words = line.split(' ');
        let time = words.next().and_then(perdura_base::moment::parse_moment);
        assert!(time.is_some(), "{line}");
        assert!(["INFO", "WARN"].contains(&words.next().unwrap()), "{line}");
        assert!(
            ["cli:", "server:"].contains(&words.next().unwrap()),
            "{line}"
        );
    }
    assert!(
        said.contains(" WARN server: DEBUG LOG: two\\nlines\n"),
        "{said}"
    );
}

#[test]
fn why_a_server_ends_is_the_last_line_of_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"), &[]);
    let taken = format!("127.0.0.1:{}", server.port());
    let flags = ["--log-format", "json", "--metrics-listen", &taken];
    let (status, said) = Server::spawn(&dir.path().join("other"), &flags).wait();
    assert_eq!(status.code(), Some(1), "{said}");
    let last: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(last["level"], "ERROR", "{said}");
    assert_eq!(last["target"], "cli", "{said}");
    server.stop();
}
