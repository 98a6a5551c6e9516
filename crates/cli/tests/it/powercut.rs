//! Power cuts on a real file system. An ext4 on a loop device is shut down without flushing the journal, as if the
//! machine had lost power.
//!
//! # The trap
//! If the file system is shut down during a sync, the sync may return success although the synced data is lost. The
//! server would then acknowledge a write that the test has destroyed. So the test stops every thread of the server,
//! waits for the end of all system calls, and only then cuts the power.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::clients::Clients;
use crate::mounts::{Kind, Mounted, cannot_run, command, format};
use crate::support::{Server, arg, ended, number_from_env, signal};

/// A Perl script that shuts down an ext4 file system with the request EXT4_IOC_SHUTDOWN, `_IOR('X', 125, u32)`. Flag 2
/// means "without flushing the log".
const CUT: &str = r#"
    open(my $root, '<', $ARGV[0]) or die "open: $!";
    my $flags = pack('L', 2);
    ioctl($root, 0x8004587d, $flags) or die "ioctl: $!";
"#;

/// Creates an ext4 file system in a file and mounts it.
fn made<'a>(file: &'a Path, at: &'a Path) -> Result<Mounted<'a>, String> {
    format(file, Kind::Ext4, 256)?;
    Mounted::new(file, at)
}

/// Waits until every thread of the process has stopped and none is in a system call.
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
    cut_power(&[], number_from_env("PERDURA_POWERCUT_ROUNDS", 3));
}

#[test]
fn nothing_is_lost_by_a_power_cut_where_a_thread_waits_for_the_log() {
    let sync = ["--log-io", "sync"];
    cut_power(&sync, number_from_env("PERDURA_POWERCUT_SYNC_ROUNDS", 2));
}

#[test]
fn nothing_is_lost_by_a_power_cut_where_each_client_has_another_loop() {
    let loops = ["--loops", "4"];
    cut_power(&loops, number_from_env("PERDURA_POWERCUT_LOOPS_ROUNDS", 2));
}

fn cut_power(settings: &[&str], rounds: u64) {
    let seed = number_from_env("PERDURA_POWERCUT_SEED", 1);
    let dir = tempfile::tempdir().unwrap();
    let (file, mount) = (dir.path().join("disk"), dir.path().join("mount"));
    let disk = match made(&file, &mount) {
        Ok(disk) => disk,
        Err(why) => return cannot_run("power cuts", "root, loop devices and ext4", &why),
    };
    let data = mount.join("db");
    let mut extra = vec!["--checkpoint-log-size", "1MiB", "--partitions", "16"];
    extra.extend(settings);
    let mut clients = Clients::new(4, seed);
    for round in 0..rounds {
        let server = Server::start(&data, &extra);
        if let Err(wrong) = clients.check(&server) {
            panic!("cut {round} of seed {seed} (PERDURA_POWERCUT_SEED): {wrong}");
        }
        clients.work(server, Duration::from_millis(500), |server| {
            signal(server.pid(), rustix::process::Signal::STOP);
            await_stopped(server.pid());
            command("perl", &["-e", CUT, arg(&mount)]).unwrap();
            server.kill();
        });
        // The mount replays the journal, as it does after a real power cut.
        disk.unmount().unwrap();
        disk.mount().unwrap();
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
