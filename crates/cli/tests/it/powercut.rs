//! Power cuts on a real file system: ext4 on a loop device, shut down without flushing its
//! journal, as if the machine had lost its power.
//!
//! # The trap
//! A sync that is under way when the file system is shut down may return success although its data
//! is gone. The server would acknowledge it, and the harness, not the server, would have lost it.
//! So every thread of the server is stopped first, which waits for system calls to end, and only
//! then the power is cut.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::clients::Clients;
use crate::support::{Server, arg, ended, number_from_env, signal};

/// `_IOR('X', 125, u32)`: EXT4_IOC_SHUTDOWN; flag 2 is "without flushing the log".
const CUT: &str = r#"
    open(my $root, '<', $ARGV[0]) or die "open: $!";
    my $flags = pack('L', 2);
    ioctl($root, 0x8004587d, $flags) or die "ioctl: $!";
"#;

/// A mounted file system in a file; unmounted when dropped.
struct Loop<'a> {
    file: &'a Path,
    mount: &'a Path,
}

impl<'a> Loop<'a> {
    fn make(file: &'a Path, mount: &'a Path) -> Result<Loop<'a>, String> {
        std::fs::create_dir(mount).map_err(|error| error.to_string())?;
        let image = std::fs::File::create(file).map_err(|error| error.to_string())?;
        image
            .set_len(256 << 20)
            .map_err(|error| error.to_string())?;
        command("mkfs.ext4", &["-q", "-F", arg(file)])?;
        let made = Loop { file, mount };
        made.mount()?;
        Ok(made)
    }

    fn mount(&self) -> Result<(), String> {
        command("mount", &["-o", "loop", arg(self.file), arg(self.mount)])
    }

    fn cut(&self) -> Result<(), String> {
        command("perl", &["-e", CUT, arg(self.mount)])
    }

    /// After a cut: the journal is replayed by the mount, as after a real one.
    fn come_back(&self) -> Result<(), String> {
        // The kernel may still be ending what the killed server had in flight.
        for _ in 0..200 {
            if command("umount", &[arg(self.mount)]).is_ok() {
                return self.mount();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        command("umount", &[arg(self.mount)])?;
        self.mount()
    }
}

impl Drop for Loop<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.mount).output();
    }
}

fn command(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// Waits until no thread of the process runs or is in a system call.
fn await_stopped(pid: u32) {
    let begin = Instant::now();
    let stopped = |state: &str| matches!(state, "T" | "t" | "Z" | "X");
    loop {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let all = tasks.filter_map(Result::ok).all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let state = stat
                .rsplit_once(')')
                .and_then(|(_, rest)| rest.split_whitespace().next());
            state.is_none_or(stopped)
        });
        if all {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "the server cannot be stopped"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_a_power_cut() {
    cut_power("auto", number_from_env("PERDURA_POWERCUT_ROUNDS", 3));
}

#[test]
fn nothing_is_lost_by_a_power_cut_where_a_thread_waits_for_the_log() {
    cut_power("sync", number_from_env("PERDURA_POWERCUT_SYNC_ROUNDS", 2));
}

fn cut_power(log_io: &str, rounds: u64) {
    let seed = number_from_env("PERDURA_POWERCUT_SEED", 1);
    let dir = tempfile::tempdir().unwrap();
    let (file, mount) = (dir.path().join("disk"), dir.path().join("mount"));
    let disk = match Loop::make(&file, &mount) {
        Ok(disk) => disk,
        Err(why) => {
            let required = std::env::var_os("PERDURA_REQUIRE_POWERCUT").is_some();
            assert!(!required, "no power can be cut here: {why}");
            eprintln!("NOT TESTED: power cuts need root, loop devices and ext4 here: {why}");
            return;
        }
    };
    let data = mount.join("db");
    let extra = [
        "--checkpoint-log-size",
        "1MiB",
        "--partitions",
        "16",
        "--log-io",
        log_io,
    ];
    let mut clients = Clients::new(4, seed);
    for round in 0..rounds {
        let server = Server::start(&data, &extra);
        if let Err(wrong) = clients.check(&server) {
            panic!("cut {round} of seed {seed} (PERDURA_POWERCUT_SEED): {wrong}");
        }
        clients.work(server, Duration::from_millis(500), |server| {
            signal(server.pid(), rustix::process::Signal::STOP);
            await_stopped(server.pid());
            disk.cut().unwrap();
            server.kill();
        });
        disk.come_back().unwrap();
    }
    let server = Server::start(&data, &extra);
    if let Err(wrong) = clients.check(&server) {
        panic!("the last cut of seed {seed} (PERDURA_POWERCUT_SEED): {wrong}");
    }
    let way = server.log_field("log_io_0_way");
    server.kill();
    let (code, text) = ended(&["verify", "--data", arg(&data)]);
    assert_eq!(code, 0, "{text}");
    println!(
        "{rounds} power cuts, log written by {way}: {} requests acknowledged, {} left in doubt, none lost",
        clients.acknowledged, clients.doubtful
    );
}
