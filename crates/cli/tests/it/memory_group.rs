//! Tests of a server in a control group with limited memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Client, PERDURA, Reply, arg, free_port};

const MIB: u64 = 1 << 20;

/// An outer and an inner control group. The outer group has the memory limit. The two groups are removed when this
/// value is dropped.
struct Groups {
    outer: PathBuf,
    file: &'static str,
}

impl Groups {
    /// Creates the groups in the hierarchy that limits memory on this machine. Returns `None` if this is not possible.
    fn make(name: &str) -> Option<Groups> {
        let name = format!("perdura-test-{}-{name}", std::process::id());
        let one = Path::new("/sys/fs/cgroup/memory");
        let (root, file) = match one.is_dir() {
            true => (one, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let groups = Groups {
            outer: root.join(name),
            file,
        };
        let made = fs::create_dir_all(groups.inner()).is_ok();
        if !made || fs::write(groups.outer.join(file), "max").is_err() && !one.is_dir() {
            eprintln!("NOT TESTED: no control group can be made here (it needs root)");
            return None;
        }
        Some(groups)
    }

    fn inner(&self) -> PathBuf {
        self.outer.join("inner")
    }

    fn limit(&self, bytes: u64) {
        fs::write(self.outer.join(self.file), bytes.to_string()).unwrap();
    }

    /// Returns a command that runs the server in the inner group.
    fn server(&self, data: &Path, port: u16) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        command
            .args(["-c", script, arg(&self.inner()), PERDURA, "serve"])
            .args(["--data", arg(data)])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in [self.inner(), self.outer.clone()] {
            // A process that has just ended may still be in the group.
            let begin = Instant::now();
            while fs::remove_dir(&group).is_err() && begin.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// A process. It is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ready(port: u16) -> Client {
    let begin = Instant::now();
    loop {
        if let Ok(mut client) = Client::connect(port)
            && matches!(client.ask(&["PING"]), Ok(Reply::Status(_)))
        {
            return client;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "it does not serve"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a server that must refuse to start. Returns the server's output after it has ended.
fn refused(mut command: Command) -> Output {
    let child = command.spawn().unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn the_memory_of_a_group_above_bounds_maxmemory_and_a_start_with_more_data_says_so() {
    let Some(groups) = Groups::make("above") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    groups.limit(400 * MIB);
    let port = free_port();
    let server = Killed(groups.server(&data, port).spawn().unwrap());
    let mut client = ready(port);
    let Reply::Array(found) = client.ask(&["CONFIG", "GET", "maxmemory"]).unwrap() else {
        panic!("CONFIG GET answers an array");
    };
    let shown = 300 * MIB;
    assert_eq!(found[1], Reply::Bulk(Some(shown.to_string().into_bytes())));
    let value = "x".repeat(1 << 20);
    for i in 0..48 {
        let set = client.ask(&["SET", &format!("key{i}"), &value]).unwrap();
        assert_eq!(set, Reply::Status("OK".into()));
    }
    assert_eq!(client.ask(&["SAVE"]).unwrap(), Reply::Status("OK".into()));
    drop(server);
    groups.limit(40 * MIB);
    let output = refused(groups.server(&data, port));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("bytes of pages") && said.contains(groups.file),
        "{said}"
    );
    groups.limit(400 * MIB);
    let _server = Killed(groups.server(&data, port).spawn().unwrap());
    let mut client = ready(port);
    assert_eq!(client.ask(&["EXISTS", "key47"]).unwrap(), Reply::Number(1));
}
