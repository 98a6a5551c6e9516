//! Log streams in separate directories. Every way to restart must give the same data. If a directory is missing, old,
//! incomplete or swapped, Perdura must report that before it changes anything.

use std::path::{Path, PathBuf};

use crate::support::{Reply, Server, arg, ended, perdura};

/// A database with a separate directory for each log stream.
struct Spread {
    data: PathBuf,
    logs: Vec<PathBuf>,
}

impl Spread {
    fn new(dir: &Path, streams: usize) -> Spread {
        Spread {
            data: dir.join("data"),
            logs: (0..streams).map(|s| dir.join(format!("log{s}"))).collect(),
        }
    }

    fn places(&self) -> Vec<&str> {
        let dirs = self.logs.iter().flat_map(|dir| ["--log-dir", arg(dir)]);
        dirs.collect()
    }

    fn start(&self) -> Server {
        let streams = self.logs.len().to_string();
        let fixed = ["--streams", &streams, "--partitions", "8"];
        Server::start(&self.data, &[&fixed[..], &self.places()].concat())
    }

    /// Runs transactions of several clients at once, so that each stream gets some transactions.
    fn write(&self, server: &Server, round: usize) {
        std::thread::scope(|scope| {
            for client in 0..4 {
                scope.spawn(move || {
                    let mut connection = server.connect().unwrap();
                    for i in 0..60 {
                        let key = format!("key {client} {i}");
                        let value = format!("round {round}: {}", "x".repeat(200));
                        let set = connection.ask(&["SET", &key, &value]).unwrap();
                        assert_eq!(set, Reply::Status("OK".into()));
                    }
                });
            }
        });
    }

    /// Creates a database, writes, takes a checkpoint, writes again, and kills the server.
    fn crashed(dir: &Path, streams: usize) -> Spread {
        let spread = Spread::new(dir, streams);
        let server = spread.start();
        for round in 0..3 {
            spread.write(&server, round);
            if round < 2 {
                assert_eq!(server.ask(&["SAVE"]), Reply::Status("OK".into()));
            }
        }
        server.kill();
        spread
    }

    fn verb(&self, words: &[&str]) -> (i32, String) {
        ended(&[words, &["--data", arg(&self.data)], &self.places()].concat())
    }

    fn report(&self, words: &[&str]) -> serde_json::Value {
        let args = ["restart", "--dry-run", "--json", "--data", arg(&self.data)];
        let output = perdura(&[&args[..], words, &self.places()].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {text}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn digest(&self) -> String {
        let (code, text) = self.verb(&["digest"]);
        assert_eq!(code, 0, "{text}");
        text
    }

    /// Checks that `restart` and `serve` refuse the database. Both must end with exit code `code` and print every text
    /// in `words`.
    fn refused(&self, code: i32, words: &[&str]) {
        let ways: [&[&str]; 2] = [
            &["restart", "--dry-run"],
            &["serve", "--listen", "127.0.0.1:0"],
        ];
        for way in ways {
            let (found, text) = self.verb(way);
            assert_eq!(found, code, "{text}");
            for word in words {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
    }

    /// Returns the position and the epoch of each block of a stream.
    fn blocks(&self, stream: usize) -> Vec<(u64, u64)> {
        let words = ["dump", "log", "--blocks", "--json", "--stream"];
        let (code, text) = self.verb(&[&words[..], &[&stream.to_string()]].concat());
        assert_eq!(code, 0, "{text}");
        text.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter_map(|block| Some((block["pos"].as_u64()?, block["epoch"].as_u64()?)))
            .collect()
    }

    /// Returns the file that contains position `pos` of a stream, and the offset in this file.
    fn locate(&self, stream: usize, pos: u64) -> (PathBuf, usize) {
        let own = format!("s{stream:02}-");
        let mut segments: Vec<(u64, PathBuf)> = std::fs::read_dir(self.logs[stream].join("log"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter_map(|path| {
                let name = path.file_stem()?.to_str()?.strip_prefix(&own)?;
                let start: u64 = name.rsplit_once("-p")?.1.parse().ok()?;
                Some((start, path))
            })
            .collect();
        segments.sort();
        let (start, path) = segments
            .into_iter()
            .rfind(|(start, _)| *start <= pos)
            .unwrap();
        (path, usize::try_from(4096 + pos - start).unwrap())
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy_dir(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

fn replace_dir(dir: &Path, by: &Path) {
    std::fs::remove_dir_all(dir).unwrap();
    copy_dir(by, dir);
}

#[test]
fn every_level_and_any_number_of_threads_give_the_same_digest() {
    let dir = tempfile::tempdir().unwrap();
    let spread = Spread::crashed(dir.path(), 3);
    let want = spread.report(&[]);
    assert_eq!(want["level"], 4, "{want}");
    assert!(want["records"]["applied"].as_u64() > Some(0), "{want}");
    for field in [
        "total",
        "backup_read",
        "backup_play",
        "log_read",
        "log_play",
        "index",
        "undo",
    ] {
        assert!(want["seconds"][field].is_number(), "{field}: {want}");
    }
    for level in ["1", "2", "3", "4"] {
        for threads in ["1", "3"] {
            let found = spread.report(&["--level", level, "--threads", threads]);
            assert_eq!(found["level"].to_string(), level);
            assert_eq!(found["threads"].to_string(), threads);
            for same in ["digest", "records", "cut", "durable_epoch", "pages_fetched"] {
                assert_eq!(found[same], want[same], "{same}, {level}, {threads}");
            }
        }
    }
    // This restart, at a chosen level, writes its result to the disks. The streams keep their separate directories.
    let (code, text) = spread.verb(&["restart", "--level", "2"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("level 2"), "{text}");
    assert!(spread.digest().contains(want["digest"].as_str().unwrap()));
    for (s, log) in spread.logs.iter().enumerate() {
        let names = std::fs::read_dir(log.join("log")).unwrap();
        let own = format!("s{s:02}-");
        let names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(names.iter().any(|name| name.starts_with(&own)), "{names:?}");
    }
}

#[test]
fn a_server_of_several_streams_tells_how_it_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let spread = Spread::crashed(dir.path(), 4);
    let server = spread.start();
    let Reply::Bulk(Some(text)) = server.ask(&["INFO", "recovery"]) else {
        panic!("INFO replies with text");
    };
    let text = String::from_utf8(text).unwrap();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.strip_prefix(':'))
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .to_owned()
    };
    assert_eq!(field("restart_method"), "differential");
    assert_eq!(field("restart_level"), "4");
    assert!(field("restart_threads").parse::<u32>().unwrap() > 0);
    for part in [
        "total",
        "backup_read",
        "backup_play",
        "log_read",
        "log_play",
        "index",
        "undo",
    ] {
        let seconds: f64 = field(&format!("restart_seconds_{part}")).parse().unwrap();
        assert!(seconds >= 0.0, "{part}");
    }
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Number(240));
    let last = Reply::Bulk(Some(format!("round 2: {}", "x".repeat(200)).into_bytes()));
    assert_eq!(server.ask(&["GET", "key 3 59"]), last);
}

#[test]
fn a_wrong_number_of_directories_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut spread = Spread::crashed(dir.path(), 3);
    let all = spread.logs.clone();
    for wrong in [all[..2].to_vec(), [&all[..], &all[..1]].concat()] {
        spread.logs = wrong;
        spread.refused(2, &["log directories", "3 stream"]);
    }
    spread.logs = all;
    let twice = ["--image-dir", arg(&spread.data), "--image-dir", "elsewhere"];
    let (code, text) = spread.verb(&[&["restart", "--dry-run"][..], &twice].concat());
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("has 1 image director"), "{text}");
    assert_eq!(spread.verb(&["verify"]).0, 0);
}

#[test]
fn a_missing_directory_of_a_stream_is_named_and_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let spread = Spread::crashed(dir.path(), 3);
    let digest = spread.digest();
    let away = dir.path().join("away");
    std::fs::rename(&spread.logs[1], &away).unwrap();
    spread.refused(3, &[arg(&spread.logs[1]), "log stream 1"]);
    assert!(!spread.logs[1].exists(), "it was made");
    // An empty directory replaces the stream's directory. A mount point whose disk is missing looks like this.
    std::fs::create_dir(&spread.logs[1]).unwrap();
    spread.refused(3, &[arg(&spread.logs[1]), "log stream 1"]);
    // Now the directory exists, but its segments are missing.
    std::fs::create_dir(spread.logs[1].join("log")).unwrap();
    spread.refused(3, &["log", "missing"]);
    std::fs::remove_dir_all(&spread.logs[1]).unwrap();
    std::fs::rename(&away, &spread.logs[1]).unwrap();
    assert_eq!(spread.digest(), digest);
}

#[test]
fn a_stream_of_an_older_incarnation_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spread = Spread::crashed(dir.path(), 3);
    let old: Vec<PathBuf> = (0..3).map(|s| dir.path().join(format!("old{s}"))).collect();
    for (log, old) in spread.logs.iter().zip(&old) {
        copy_dir(log, old);
    }
    let count = || (0..3).map(|stream| spread.blocks(stream).len());
    let before: Vec<usize> = count().collect();
    // Further lives of the database. The old copies of the log directories lack the log of these lives.
    for round in 3..5 {
        let server = spread.start();
        spread.write(&server, round);
        server.kill();
    }
    let digest = spread.digest();
    // If the machine is busy, the further lives possibly write nothing to a stream. Then the old copy lacks nothing.
    let grown: Vec<bool> = count().zip(before).map(|(now, then)| now > then).collect();
    assert!(grown.contains(&true), "{grown:?}");
    for (stream, log) in spread.logs.iter().enumerate() {
        let newer = dir.path().join("newer");
        copy_dir(log, &newer);
        replace_dir(log, &old[stream]);
        if grown[stream] {
            spread.refused(3, &["log", "Acknowledged"]);
        } else {
            assert_eq!(spread.digest(), digest);
        }
        let (code, text) = spread.verb(&["verify"]);
        assert_eq!(code, if grown[stream] { 3 } else { 0 }, "{text}");
        replace_dir(log, &newer);
        std::fs::remove_dir_all(&newer).unwrap();
    }
    assert_eq!(spread.digest(), digest);
}

#[test]
fn swapped_directories_of_streams_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut spread = Spread::crashed(dir.path(), 3);
    let digest = spread.digest();
    spread.logs.swap(0, 2);
    spread.refused(2, &["log stream 0", "in the order"]);
    spread.logs.swap(0, 2);
    assert_eq!(spread.digest(), digest);
}

#[test]
fn a_stream_that_is_shorter_than_another_proves_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spread = Spread::crashed(dir.path(), 3);
    let digest = spread.digest();
    let blocks: Vec<_> = (0..3).map(|stream| spread.blocks(stream)).collect();
    let mut refusals = 0;
    for stream in 0..3 {
        let others = blocks.iter().enumerate().filter(|(s, _)| *s != stream);
        let proven = others
            .flat_map(|(_, blocks)| blocks)
            .map(|(_, epoch)| *epoch)
            .max();
        // Removes a block and everything behind it. The block was durable well before the last block of another
        // stream was written.
        let Some((cut, _)) = blocks[stream]
            .iter()
            .rfind(|(_, epoch)| proven.is_some_and(|proven| epoch + 8 <= proven))
        else {
            continue;
        };
        let (segment, offset) = spread.locate(stream, *cut);
        let whole = std::fs::read(&segment).unwrap();
        let mut short = whole.clone();
        short[offset..].fill(0);
        std::fs::write(&segment, &short).unwrap();
        spread.refused(3, &["log", "Acknowledged"]);
        refusals += 1;
        std::fs::write(&segment, &whole).unwrap();
    }
    assert!(refusals > 0, "no stream was behind another");
    assert_eq!(spread.digest(), digest);
    assert_eq!(spread.verb(&["verify"]).0, 0);
}

#[test]
fn a_damaged_image_page_is_rebuilt_and_reported_at_every_level() {
    let dir = tempfile::tempdir().unwrap();
    let spread = Spread::crashed(dir.path(), 2);
    let digest = spread.digest();
    let (_, text) = spread.verb(&["dump", "checkpoint", "--entries", "--json"]);
    let images: serde_json::Value = serde_json::from_str(&text).unwrap();
    let newest = images
        .as_array()
        .unwrap()
        .iter()
        .max_by_key(|image| image["checkpoint"].as_u64())
        .unwrap();
    let folder = format!("image-{}", newest["slot"].as_str().unwrap().to_lowercase());
    let page = newest["entries"][0]["page"].as_u64().unwrap();
    let offset = newest["entries"][0]["offset"].as_u64().unwrap();
    let pages = spread.data.join(folder).join("pages");
    let mut bytes = std::fs::read(&pages).unwrap();
    let at = usize::try_from(offset + 300).unwrap();
    bytes[at] ^= 4;
    std::fs::write(&pages, &bytes).unwrap();
    for level in ["1", "2", "3", "4"] {
        let report = spread.report(&["--level", level]);
        assert!(
            digest.contains(report["digest"].as_str().unwrap()),
            "{level}"
        );
        assert_eq!(report["pages_rebuilt"], 1, "{level}: {report}");
        let notes = report["notes"].to_string();
        assert!(notes.contains(&format!("page {page} ")), "{level}: {notes}");
        assert!(notes.contains("rebuilt"), "{level}: {notes}");
    }
    // This restart writes its result and so repairs the image. The next restart needs no repair.
    let (code, text) = spread.verb(&["restart"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("rebuilt"), "{text}");
    assert_eq!(spread.digest(), digest);
    assert_eq!(spread.verb(&["verify"]).0, 0);
    assert_eq!(spread.report(&[])["pages_rebuilt"], 0);
}

#[test]
fn a_method_or_level_that_is_not_for_the_data_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let spread = Spread::crashed(dir.path(), 1);
    for method in ["dl1p", "dl2p", "pl2p", "pl2p-part"] {
        let (code, text) = spread.verb(&["restart", "--dry-run", "--method", method]);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("scheme differential"), "{text}");
    }
    for level in ["0", "5", "high"] {
        let (code, text) = spread.verb(&["restart", "--dry-run", "--level", level]);
        assert_eq!(code, 2, "{text}");
    }
    let (code, text) = spread.verb(&["restart", "--dry-run", "--method", "aries2"]);
    assert_eq!(code, 2);
    assert!(text.contains("pl2p-part"), "{text}");
}
