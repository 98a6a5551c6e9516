//! Power cuts on a real file system. An ext4 on a loop device is shut down without flushing its journal, as if the
//! machine had lost its power.
//!
//! # The trap
//! A sync that is in progress when the file system is shut down may return success although its data is lost. The
//! server would then acknowledge a write that the test has destroyed. So the test first stops every thread of the
//! server and waits until their system calls have ended. Only then does it cut the power.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::clients::Clients;
use crate::mounts::{Kind, Mounted, cannot_run, command, format};
use crate::support::{Server, arg, ended, number_from_env, signal};

/// `_IOR('X', 125, u32)`: EXT4_IOC_SHUTDOWN. Flag 2 is "without flushing the log".
const CUT: &str = r#"
    open(my $root, '<', $ARGV[0]) or die "open: $!";
    my $flags = pack('L', 2);
    ioctl($root, 0x8004587d, $flags) or die "ioctl: $!";
"#;

/// Makes and mounts an ext4 in a file.
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
    let disk = match made(&file, &mount) {
        Ok(disk) => disk,
        Err(why) => return cannot_run("power cuts", "root, loop devices and ext4", &why),
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
