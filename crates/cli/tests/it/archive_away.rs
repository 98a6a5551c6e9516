//! The archive's disk becomes unavailable and available again while clients write to the server as fast as they can.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::kill_archive::{done, field, restore, wait_until};
use crate::support::{Client, Reply, Server, arg, number_from_env};

const CLIENTS: usize = 4;

/// Returns the total size, in bytes, of all files below a directory.
fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(of).sum()
}

/// The replies that clients have received.
#[derive(Default)]
struct Seen {
    is_over: AtomicBool,
    answered: [AtomicU64; CLIENTS],
    refused: AtomicU64,
}

/// Sets keys and a counter to increasing numbers. Sends a refused write again.
fn write(port: u16, id: usize, seen: &Seen) {
    let Ok(mut client) = Client::connect(port) else {
        return;
    };
    while !seen.is_over.load(Ordering::Relaxed) {
        let number = seen.answered[id].load(Ordering::Relaxed) + 1;
        let key = format!("key {id} {}", number % 50);
        let mut rng = fastrand::Rng::with_seed(number);
        let tail: String = (0..20_000).map(|_| rng.alphanumeric()).collect();
        let (counter, text) = (format!("count {id}"), number.to_string());
        match client.ask(&["MSET", &key, &tail, &counter, &text]) {
            Ok(Reply::Error(why)) => {
                assert!(
                    why.contains("archive-backlog") || why.contains("log"),
                    "{why}"
                );
                seen.refused.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(_) => seen.answered[id].store(number, Ordering::Relaxed),
            Err(_) => return,
        }
    }
}

/// Checks that every acknowledged write is in the database.
fn check(server: &Server, seen: &Seen) {
    for (id, answered) in seen.answered.iter().enumerate() {
        let Reply::Bulk(Some(count)) = server.ask(&["GET", &format!("count {id}")]) else {
            panic!("client {id} has no count");
        };
        let count: u64 = String::from_utf8_lossy(&count).parse().unwrap();
        let least = answered.load(Ordering::Relaxed);
        assert!(count >= least, "client {id}: {count} of {least}");
        // The next writes continue from the last value in the database.
        answered.store(count, Ordering::Relaxed);
    }
}

/// Runs for longer with `PERDURA_AWAY_SECONDS=600 PERDURA_AWAY_MB=4096`.
#[test]
fn an_archive_that_was_away_under_full_writes_gets_everything() {
    let seconds = number_from_env("PERDURA_AWAY_SECONDS", 8);
    let quota = number_from_env("PERDURA_AWAY_MB", 160) << 20;
    let dir = tempfile::tempdir().unwrap();
    let names = ["data", "archive", "elsewhere", "restored"];
    let [data, archive, elsewhere, to] = names.map(|name| dir.path().join(name));
    let quota_text = quota.to_string();
    let settings = [
        "--archive",
        arg(&archive),
        "--archive-backlog",
        &quota_text,
        "--checkpoint-log-size",
        "16mb",
        "--segment-size",
        "8mb",
    ];
    let backlog: PathBuf = data.join("backlog");
    let seen = Seen::default();
    let mut server = Server::start(&data, &settings);
    wait_until(&server, "backups", |backups| backups != "0");
    let mut most = (0, 0);
    // The archive is still unavailable when the second life begins.
    for life in 0..2 {
        let port = server.port();
        seen.is_over.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for id in 0..seen.answered.len() {
                let seen = &seen;
                scope.spawn(move || write(port, id, seen));
            }
            if life == 0 {
                std::thread::sleep(Duration::from_secs(1));
                // This looks like an unmounted disk: the directory exists, but is empty.
                std::fs::rename(&archive, &elsewhere).unwrap();
                std::fs::create_dir(&archive).unwrap();
            }
            let until = Instant::now() + Duration::from_millis(seconds * 500);
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(200));
                most.0 = most.0.max(bytes_below(&backlog));
                most.1 = most.1.max(bytes_below(&data.join("log")));
            }
            assert!(field(&server, "alarm").contains("cannot be reached"));
            assert_eq!(field(&server, "backlog_state"), "waiting");
            seen.is_over.store(true, Ordering::Relaxed);
        });
        check(&server, &seen);
        server.await_line("Archive away", &["Archive away"]);
        server.kill();
        server = Server::start(&data, &settings);
        check(&server, &seen);
    }
    let (waited, log) = most;
    let refused = seen.refused.load(Ordering::Relaxed);
    let answered: u64 = seen
        .answered
        .iter()
        .map(|n| n.load(Ordering::Relaxed))
        .sum();
    println!(
        "{seconds} s away: {answered} writes of 20 kB answered, {refused} refused; the backlog had up to {} MB of {} MB, the log's files \\
         up to {} MB",
        waited >> 20,
        quota >> 20,
        log >> 20
    );
    assert!(0 < waited && waited <= quota, "{waited} of {quota} bytes");
    std::fs::remove_dir(&archive).unwrap();
    std::fs::rename(&elsewhere, &archive).unwrap();
    let begin = Instant::now();
    while field(&server, "backlog_state") != "none" {
        assert!(begin.elapsed() < Duration::from_secs(60 + seconds));
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("drained in {:?}", begin.elapsed());
    assert_eq!(
        server.ask(&["SET", "again", "1"]),
        Reply::Status("OK".into())
    );
    wait_until(&server, "alarm", str::is_empty);
    let back = "Archive back: all waiting runs";
    server.await_line(back, &[back]);
    server.stop();
    restore(&archive, &to);
    let digests = [&data, &to].map(|dir| done(&["digest", "--data", arg(dir)]));
    assert_eq!(digests[0], digests[1]);
    done(&["archive", "verify", "--archive", arg(&archive)]);
}
