//! Special files, for example FIFOs, under names that Perdura opens. Perdura must refuse special files at once and
//! leave these files unchanged.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Server, arg, ended};

/// A verb must end within this time. Opening a FIFO must never wait, but the test's machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success(), "{made}");
}

fn database(dir: &Path) -> std::path::PathBuf {
    let data = dir.join("db");
    let server = Server::start(&data, &["--partitions", "4"]);
    server.ask(&["SET", "key", "value"]);
    server.kill();
    data
}

/// Runs a verb, which must end by itself in time. Returns the verb's exit code and output.
fn ends(args: &[&str]) -> (i32, String) {
    let begin = Instant::now();
    let seconds = PATIENCE.as_secs().to_string();
    let mut command = vec![seconds.as_str(), crate::support::PERDURA];
    command.extend(args);
    let output = Command::new("timeout").args(command).output().unwrap();
    assert!(begin.elapsed() < PATIENCE, "{args:?} waits");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_fifo_in_the_place_of_a_segment_or_the_anchor_is_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let is_segment = |name: &str| name.starts_with("s00-");
    let mut names = std::fs::read_dir(data.join("log")).unwrap();
    let segment = names.find_map(|entry| {
        let entry = entry.unwrap();
        is_segment(entry.file_name().to_str().unwrap()).then(|| entry.path())
    });
    let kept = dir.path().join("kept");
    for path in [segment.unwrap(), data.join("anchor")] {
        std::fs::rename(&path, &kept).unwrap();
        make_fifo(&path);
        let (code, said) = ends(&["verify", "--data", arg(&data)]);
        assert!(matches!(code, 1 | 3), "{code}: {said}");
        assert!(said.contains("regular file"), "{said}");
        let (code, said) = ends(&["serve", "--data", arg(&data), "--listen", "127.0.0.1:0"]);
        assert!(matches!(code, 1 | 3), "{code}: {said}");
        assert!(said.contains("regular file"), "{said}");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&kept, &path).unwrap();
    }
    assert_eq!(ended(&["verify", "--data", arg(&data)]).0, 0);
    make_fifo(&dir.path().join("LOCK"));
    std::fs::remove_file(data.join("LOCK")).unwrap();
    std::fs::rename(dir.path().join("LOCK"), data.join("LOCK")).unwrap();
    let (code, said) = ends(&["verify", "--data", arg(&data)]);
    assert!(code != 0 && said.contains("a FIFO"), "{code}: {said}");
}

#[test]
fn a_unix_socket_in_the_place_of_a_file_is_refused_and_the_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    std::fs::write(&path, "bytes").unwrap();
    let data = dir.path().join("db");
    let server = Server::spawn(&data, &["--unix-socket", arg(&path)]);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("not a socket"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
}

#[test]
fn settings_come_from_a_pipe_and_a_pipe_without_a_writer_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("settings");
    make_fifo(&fifo);
    let (code, said) = ends(&["config", "--check", arg(&fifo)]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("a FIFO that no process has written to"),
        "{said}"
    );
    let line = "exec \"$0\" config --print-effective --config <(echo 'maxclients = 77')";
    let mut command = Command::new("bash");
    command.args(["-c", line, crate::support::PERDURA]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("77"), "{said}");
}
