//! Restores of a mirrored database whose newest writes are only in the memory of its nodes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::kill_archive::wait_until;
use crate::node_processes::{World, await_mirror};
use crate::preload::library;
use crate::support::{Client, Reply, Server, arg, ended, number_from_env};

/// The error of a full disk.
const ENOSPC: i32 = 28;

/// A mirrored database with an archive and a separate log directory.
struct Place {
    world: World,
    archive: PathBuf,
    log: PathBuf,
    to: PathBuf,
}

impl Place {
    fn new() -> Place {
        let world = World::new();
        let at = |name: &str| world.dir.path().join(name);
        Place {
            archive: at("archive"),
            log: at("log"),
            to: at("restored"),
            world,
        }
    }

    fn serve(&self) -> Server {
        let (archive, log) = (arg(&self.archive), arg(&self.log));
        let flags = [
            "--archive",
            archive,
            "--log-dir",
            log,
            "--log-io",
            "sync",
            "--streams",
            "2",
        ];
        let rule = format!("write {log} {} {}", ENOSPC, arg(&self.strike()));
        let variables = [
            ("LD_PRELOAD", arg(&library("io_fault")).to_owned()),
            ("IO_FAULT_RULES", rule),
        ];
        drop(std::fs::remove_file(self.strike()));
        let flags = self.world.flags(&flags);
        let mut server = Server::spawn_with(&self.world.data, &flags, &variables);
        server.await_ready();
        await_mirror(&server);
        server
    }

    /// Returns the file whose existence makes the log's disk full.
    fn strike(&self) -> PathBuf {
        self.world.dir.path().join("strike")
    }

    /// Writes for a while. Then the log's disk takes no more writes, but the nodes acknowledge some. The server is
    /// killed in this state.
    fn write_and_kill(&mut self, pause: Duration) {
        let server = self.serve();
        let mut client = server.connect().unwrap();
        self.world.write(&mut client, pause);
        wait_until(&server, "archived_epoch", |epoch| {
            epoch.parse::<u64>().is_ok_and(|epoch| epoch > 0)
        });
        self.strike_and_write(&mut client, || {});
        server.kill();
    }

    /// Waits with `before`, fills the log's disk, and writes until the nodes have acknowledged a write. The server refuses
    /// all writes instead if it notices the full disk before the client's first write. Then there is room again for a
    /// while.
    fn strike_and_write(&mut self, client: &mut Client, before: impl Fn()) {
        let acked = self.world.acked.len();
        for _ in 0..5 {
            before();
            std::fs::write(self.strike(), "").unwrap();
            self.world.write(client, Duration::from_millis(100));
            if self.world.acked.len() > acked {
                return;
            }
            std::fs::remove_file(self.strike()).unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("no write was acknowledged by the nodes alone");
    }

    /// Restores, and returns the exit code and the output.
    fn restored(&self, more: &[&str]) -> (i32, String) {
        drop(std::fs::remove_dir_all(&self.to));
        let args = [
            "restore",
            "--from",
            arg(&self.archive),
            "--to",
            arg(&self.to),
        ];
        ended(&[&args[..], more].concat())
    }

    /// Returns the flags that name the nodes.
    fn nodes(&self) -> Vec<String> {
        let flags = &self.world.flags;
        let of = |name: &str| {
            let at = flags.iter().position(|flag| flag == name).unwrap();
            flags[at..at + 2].to_vec()
        };
        [of("--log-nodes"), of("--log-view")].concat()
    }

    /// Checks that the restored database has every acknowledged write.
    fn check_all(&self) {
        let server = Server::start(&self.to, &[]);
        self.world.check(&server);
        server.kill();
    }

    fn missing(&self) -> usize {
        let server = Server::start(&self.to, &[]);
        let mut client = server.connect().unwrap();
        let mut has = |key: u64| client.ask(&["EXISTS", &format!("k{key}")]).unwrap();
        let acked = self.world.acked.iter();
        let missing = acked
            .filter(|(key, _)| has(*key) != Reply::Number(1))
            .count();
        server.kill();
        missing
    }
}

/// Waits until the archive has the whole log of a server without clients. The log's disk follows the nodes, and the
/// archive follows the disk. A beacon follows the last write, so the wait ends when the log has not grown for a while.
fn await_archive(server: &Server) {
    let durable = || (server.log_field("log_durable_epoch"), Instant::now());
    let (mut last, mut since) = durable();
    let until = Instant::now() + Duration::from_secs(20);
    while since.elapsed() < Duration::from_millis(300) {
        assert!(Instant::now() < until, "the log still grows");
        std::thread::sleep(Duration::from_millis(10));
        let now = durable();
        if server.log_field("log_unsynced_bytes") != "0" || now.0 != last {
            (last, since) = now;
        }
    }
    let last = last.parse::<u64>().unwrap();
    wait_until(server, "archived_epoch", |epoch| {
        epoch.parse::<u64>().unwrap() >= last
    });
}

/// Returns the names and contents of all files below a directory.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

/// A restore of a mirrored database could not read its nodes, so it lacked the writes that only they had.
#[test]
fn a_restore_has_what_only_the_nodes_had_and_fences_the_writer_only_when_told() {
    let rounds = number_from_env("PERDURA_RESTORE_NODES", 2);
    let (mut place, mut only_in_nodes) = (Place::new(), 0);
    for round in 0..rounds {
        place.write_and_kill(Duration::from_millis(1500));
        let log = ["--log-dir".to_owned(), arg(&place.log).to_owned()];
        let (nodes, take_over) = (place.nodes(), ["--take-over".to_owned()]);
        let all = [&log[..], &nodes, &take_over].concat();
        let words = |flags: &[String]| {
            flags
                .iter()
                .map(String::as_str)
                .map(str::to_owned)
                .collect()
        };
        let run = |flags: Vec<String>| {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            place.restored(&flags)
        };
        let (code, said) = run([&log[..], &nodes].concat());
        assert_eq!(code, 2, "round {round}: {said}");
        assert!(said.contains("--take-over"), "{said}");
        assert!(!place.to.exists(), "nothing was begun");
        let (code, said) = run([&log[..], &["--accept-loss".to_owned()]].concat());
        assert_eq!(code, 0, "{said}");
        let missing = place.missing();
        assert!(missing > 0, "some writes are only in the nodes");
        only_in_nodes += missing;
        let before = files(&place.log);
        let (code, said) = run(words(&all));
        assert_eq!(code, 0, "round {round}: {said}");
        assert!(
            before == files(&place.log),
            "the surviving log is only read"
        );
        place.check_all();
        // The writer is fenced now, so the nodes can be read again.
        let (code, said) = run([&log[..], &nodes].concat());
        assert_eq!(code, 0, "round {round}: {said}");
        place.check_all();
    }
    // The nodes still have their part, and the database itself lacks nothing.
    let server = place.serve();
    place.world.check(&server);
    server.kill();
    println!("{rounds} rounds, {only_in_nodes} writes were only in nodes");
}

/// With the log's disk, the part of the log between archive and nodes may be lost.
#[test]
fn a_restore_from_nodes_alone_is_whole_or_names_the_gap() {
    let mut place = Place::new();
    place.write_and_kill(Duration::from_millis(1500));
    let mut flags = place.nodes();
    flags.push("--take-over".into());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    match place.restored(&flags) {
        (0, _) => place.check_all(),
        (3, said) => assert!(
            said.contains("a gap") && said.contains("--log-dir"),
            "{said}"
        ),
        (code, said) => panic!("exit {code}: {said}"),
    }
    // Nothing is missing if the archive has everything that the log's disk had.
    let server = place.serve();
    let mut client = server.connect().unwrap();
    place.world.write(&mut client, Duration::from_millis(300));
    await_archive(&server);
    // The server may append once more after the last write. That must be archived, too.
    std::thread::sleep(Duration::from_millis(500));
    await_archive(&server);
    // The server still runs. Without the word the restore refuses, and with it the server acknowledges nothing more.
    let (code, said) = place.restored(&flags[..flags.len() - 1]);
    assert_eq!((code, said.contains("may still run")), (2, true), "{said}");
    let (code, said) = place.restored(&flags);
    assert_eq!(code, 0, "{said}");
    let answer = client.ask(&["SET", "late", "1"]);
    assert!(!matches!(answer, Ok(Reply::Status(_))), "{answer:?}");
    server.kill();
    place.check_all();
    // Some blocks are only in the nodes, and follow the archive.
    let server = place.serve();
    let mut client = server.connect().unwrap();
    place.world.write(&mut client, Duration::from_millis(100));
    place.strike_and_write(&mut client, || await_archive(&server));
    server.kill();
    let (code, said) = place.restored(&flags);
    assert_eq!(
        (code, said.contains("came from nodes")),
        (0, true),
        "{said}"
    );
    place.check_all();
}

#[test]
fn nodes_and_views_that_are_not_of_the_database_are_refused() {
    let mut place = Place::new();
    place.write_and_kill(Duration::from_millis(1200));
    let nodes = place.nodes();
    let empty = place.world.dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let missing = place.world.dir.path().join("missing");
    let refused = |view: &Path, more: &[&str], words: &str| {
        let log = arg(&place.log);
        let flags = [
            &nodes[0],
            &nodes[1],
            "--log-view",
            arg(view),
            "--log-dir",
            log,
        ];
        let (code, said) = place.restored(&[&flags[..], more].concat());
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(words), "{said}");
        assert!(!place.to.exists(), "nothing was begun");
    };
    refused(&missing, &["--take-over"], "no such directory");
    refused(&empty, &["--take-over"], "has no view of database");
    // A view of an earlier life does not know what the nodes have.
    let view = PathBuf::from(&nodes[3]);
    let older = place.world.dir.path().join("older");
    std::fs::create_dir(&older).unwrap();
    for (path, bytes) in files(&view) {
        std::fs::write(older.join(path.file_name().unwrap()), bytes).unwrap();
    }
    place.write_and_kill(Duration::from_millis(1200));
    let refused_now = |view: &Path, words: &str| {
        let flags = [&nodes[0], &nodes[1], "--log-view", arg(view), "--log-dir"];
        let (code, said) =
            place.restored(&[&flags[..], &[arg(&place.log), "--take-over"]].concat());
        assert_eq!((code, said.contains(words)), (2, true), "{said}");
    };
    let before = files(&older);
    refused_now(&older, "--log-view");
    assert!(before == files(&older), "nothing was claimed");
    let (code, said) = place.restored(&["--take-over"]);
    assert_eq!((code, said.contains("--log-nodes")), (2, true), "{said}");
    let dry = [&nodes[..], &["--take-over".into(), "--dry-run".into()]].concat();
    let dry: Vec<&str> = dry.iter().map(String::as_str).collect();
    assert_eq!(place.restored(&dry).0, 2);
    assert!(files(&empty).is_empty(), "nothing was claimed");
}
