//! Tests of signals and system limits that must not end a process. The process ignores the signal, or reads the
//! certificates again. A limit only causes errors.

use std::path::Path;
use std::time::{Duration, Instant};

use perdura::{Db, Options};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::logd::Node;
use crate::support::{PERDURA, Reply, Server, arg, signal};

/// Signals that a service manager or an operator could send by mistake.
const IGNORED: [Signal; 10] = [
    Signal::XFSZ,
    Signal::USR1,
    Signal::USR2,
    Signal::PIPE,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
    Signal::STKFLT,
];

/// Waits for a condition, at most half a minute.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes a self-signed certificate and its key to these files.
fn write_papers(cert: &Path, key: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(cert, made.cert.pem()).unwrap();
    std::fs::write(key, made.signing_key.serialize_pem()).unwrap();
}

#[test]
fn signals_that_ask_for_nothing_end_no_server_no_node_and_no_agent() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&dir.path().join("data"), &[]);
    let mut node = Node::start("127.0.0.1:0", &[]);
    let archive = dir.path().join("archive");
    let mut options = Options::new(dir.path().join("archived"));
    options.archive = Some(archive.clone());
    options.archive_merge = false;
    Db::open(options).unwrap().close().unwrap();
    let mut agent = std::process::Command::new(PERDURA)
        .args(["archive", "agent", "--archive", arg(&archive)])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", agent.id());
    // The agent's handlers are installed once it catches SIGUSR1, which is signal 10.
    wait_for("the agent catches signals", || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & (1 << 9) != 0 && mask & 1 != 0)
    });
    for one in IGNORED {
        for pid in [server.pid(), node.child.id(), agent.id()] {
            signal(pid, one);
        }
    }
    for pid in [server.pid(), node.child.id(), agent.id()] {
        signal(pid, Signal::HUP);
    }
    let none = "SIGHUP: TLS is not used here";
    wait_for("the server has heeded SIGHUP", || {
        server.said().contains(none)
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!server.has_ended(), "{}", server.said());
    assert_eq!(server.ask(&["PING"]), Reply::Status("PONG".into()));
    assert!(
        node.child.try_wait().unwrap().is_none(),
        "the node has ended"
    );
    assert!(agent.try_wait().unwrap().is_none(), "the agent has ended");
    agent.kill().unwrap();
    agent.wait().unwrap();
    server.stop();
}

#[test]
fn sighup_has_certificates_read_and_broken_ones_leave_the_ones_before_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    write_papers(&cert, &key);
    let flags = [
        "--tls-listen",
        "127.0.0.1:0",
        "--tls-cert-file",
        arg(&cert),
        "--tls-key-file",
        arg(&key),
    ];
    let server = Server::start(&dir.path().join("data"), &flags);
    write_papers(&cert, &key);
    signal(server.pid(), Signal::HUP);
    let read = "SIGHUP: the certificates for clients were read";
    wait_for("the new certificate is read", || {
        server.said().contains(read)
    });
    std::fs::write(&cert, "no certificate").unwrap();
    signal(server.pid(), Signal::HUP);
    let kept = "cannot be used, so the old ones stay in use";
    wait_for("a broken one is refused", || server.said().contains(kept));
    assert!(server.said().contains(arg(&cert)), "{}", server.said());
    assert_eq!(server.ask(&["PING"]), Reply::Status("PONG".into()));
    server.stop();
}

/// Limits the size of files that a running process may write. `None` removes the limit.
fn limit_files(pid: u32, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

#[test]
fn a_limit_on_the_size_of_files_refuses_writes_as_a_full_disk_does_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    // The second segment would be larger than the limit, and no checkpoint frees log during the test.
    let extra = ["--segment-size", "8MiB", "--checkpoint-log-size", "1GiB"];
    let mut server = Server::start(&data, &extra);
    let mut client = server.connect().unwrap();
    // A read waits for the writes of its partition. Of this many keys, at least one is in a partition without waiting
    // writes.
    let kept = ["kept0", "kept1", "kept2", "kept3", "kept4", "kept5"];
    for key in kept {
        let set = client.ask(&["SET", key, "1"]).unwrap();
        assert_eq!(set, Reply::Status("OK".into()));
    }
    limit_files(server.pid(), Some(1 << 20));
    let value = "x".repeat(30_000);
    let mut unknown = 0;
    let refused = (0..2_000).find_map(|i| match client.ask(&["SET", &format!("key{i}"), &value]) {
        Ok(Reply::Status(_)) => None,
        // The server accepted this write before it met the limit.
        Ok(Reply::Error(text)) if text.starts_with("UNKNOWN ") => {
            unknown += 1;
            None
        }
        Ok(Reply::Error(text)) => Some(text),
        other => panic!("{other:?}: {}", server.said()),
    });
    let refused = refused.expect("a write is refused");
    assert!(unknown < 5, "{unknown} writes are undecided");
    assert!(
        refused.starts_with("MISCONF ") && refused.contains("size of files"),
        "{refused}"
    );
    let one = Reply::Bulk(Some(b"1".to_vec()));
    assert!(
        kept.iter()
            .any(|key| client.ask(&["GET", key]).unwrap() == one)
    );
    // A checkpoint meets the limit too.
    let saved = client.ask(&["SAVE"]).unwrap();
    assert!(matches!(saved, Reply::Error(_)), "{saved:?}");
    assert!(!server.has_ended(), "{}", server.said());
    limit_files(server.pid(), None);
    wait_for("writes resume", || {
        matches!(client.ask(&["SET", "again", "1"]), Ok(Reply::Status(_)))
    });
    server.stop();
}
