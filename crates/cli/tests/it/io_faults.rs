//! System calls of the real server fail: a preloaded library (`shim/io_fault.c`) refuses those that
//! a rule names, for as long as a file is there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::{Reply, Server, arg};

const EIO: i32 = 5;

/// The library, compiled once.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/shim/io_fault.c");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("io_fault.so");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-o", arg(&library), source])
            .arg("-ldl")
            .status()
            .expect("a C compiler, which the linker of Rust needs too");
        assert!(made.success(), "{made}");
        library
    })
}

/// A server some of whose system calls can be made to fail.
struct Faulty {
    dir: tempfile::TempDir,
}

impl Faulty {
    fn new() -> Faulty {
        Faulty {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// Starts it; `rules` are calls, parts of paths and error numbers.
    fn start(&self, rules: &[(&str, &str, i32)], extra: &[&str]) -> Server {
        let switch = self.switch();
        let rules: Vec<String> = rules
            .iter()
            .map(|(call, part, error)| format!("{call} {part} {error} {}", arg(&switch)))
            .collect();
        let variables = [
            ("LD_PRELOAD", arg(shim()).to_owned()),
            ("IO_FAULT_RULES", rules.join(";")),
        ];
        let mut server = Server::spawn_with(&self.dir.path().join("data"), extra, &variables);
        server.await_ready();
        server
    }

    fn switch(&self) -> PathBuf {
        self.dir.path().join("strike")
    }

    fn strike(&self) {
        std::fs::write(self.switch(), "").unwrap();
    }

    fn relent(&self) {
        std::fs::remove_file(self.switch()).unwrap();
    }
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
    // Two seconds by contract; the machine may be busy.
    assert!(took < Duration::from_secs(8), "{took:?}");

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
    server.ask(&["SET", "kept", "1"]);
    faulty.strike();
    for _ in 0..3 {
        let refused = server.connect().unwrap().ask(&["SET", "lost", "1"]);
        assert!(is_stopped(&refused), "{refused:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(
        server.ask(&["GET", "kept"]),
        Reply::Bulk(Some(b"1".to_vec()))
    );
    server.kill();
}
