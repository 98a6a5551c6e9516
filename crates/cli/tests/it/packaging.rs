//! Tests of the support for service managers, shell completions and manual pages.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{PERDURA, SMALL, arg, ended, free_port, signal};

/// A server process. This test acts as the service manager of the process.
struct Notified {
    child: Child,
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Notified {
    fn start(dir: &std::path::Path, variables: &[(&str, &str)]) -> Notified {
        let path = dir.join("notify");
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let child = Command::new(PERDURA)
            .args(["serve", "--data", arg(&dir.join("data"))])
            .args(["--listen", &format!("127.0.0.1:{}", free_port())])
            .args(SMALL)
            .env("NOTIFY_SOCKET", &path)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Notified {
            child,
            socket,
            heard: Vec::new(),
        }
    }

    fn hear(&mut self, wanted: &str) {
        let begin = Instant::now();
        let mut buffer = [0; 4096];
        while !self.heard.iter().any(|line| line.starts_with(wanted)) {
            if let Ok(len) = self.socket.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..len]);
                self.heard.extend(text.lines().map(str::to_owned));
            }
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "no {wanted}: {:?}",
                self.heard
            );
        }
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_service_manager_hears_of_the_restart_of_readiness_and_of_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let watchdog = [("WATCHDOG_USEC", "300000")];
    let mut server = Notified::start(dir.path(), &watchdog);
    server.hear("READY=1");
    server.hear("STATUS=Serving");
    server.hear("WATCHDOG=1");
    signal(server.child.id(), rustix::process::Signal::TERM);
    server.hear("STOPPING=1");
    server.hear("STATUS=Ending");
    assert!(server.child.wait().unwrap().success());
    let ready = server.heard.iter().position(|line| line == "READY=1");
    let ending = server.heard.iter().position(|line| line == "STOPPING=1");
    assert!(ready < ending, "{:?}", server.heard);
}

#[test]
fn shells_get_completions_and_readers_a_manual() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, text) = ended(&["completions", shell]);
        assert_eq!(code, 0, "{shell}");
        assert!(text.contains("metrics-listen"), "{shell}: {text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = ended(&["man", arg(dir.path())]);
    assert_eq!(code, 0, "{said}");
    for page in [
        "perdura.1",
        "perdura-serve.1",
        "perdura-logd.1",
        "perdura-dump-log.1",
    ] {
        let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
}

#[test]
fn the_unit_restarts_what_a_failing_disk_ended_and_not_what_only_a_person_can_mend() {
    let unit = include_str!("../../../../packaging/perdura.service");
    let has = |line: &str| assert!(unit.lines().any(|l| l == line), "{line}");
    has("Restart=on-failure");
    has("RestartPreventExitStatus=2 3 5");
    has("StartLimitIntervalSec=0");
    for key in ["RestartSec=", "RestartSteps=", "RestartMaxDelaySec="] {
        assert!(unit.lines().any(|l| l.starts_with(key)), "{key}");
    }
}
