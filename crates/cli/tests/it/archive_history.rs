//! Copies of a database and one archive. An archive has one history, and never gets epochs of another one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::kill_archive::{field, wait_until};
use crate::support::{Client, Reply, Server, arg, ended};

struct Made {
    dir: tempfile::TempDir,
}

impl Made {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Serves a data directory, sets some keys, and stops the server.
    fn write(&self, data: &str, more: &[&str], value: &str) {
        let server = Server::start(&self.at(data), more);
        let mut client = Client::connect(server.port()).unwrap();
        for key in 0..40 {
            let key = format!("key:{key}");
            client.ask(&["SET", &key, value]).unwrap();
        }
        server.stop();
    }

    /// Returns the bytes of all runs and backups of the archive.
    fn archived(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let home = std::fs::read_dir(self.at("archive")).unwrap().next();
        let home = home.unwrap().unwrap().path();
        let folders = ["runs", "backups"].map(|folder| std::fs::read_dir(home.join(folder)));
        let entries = folders.into_iter().flat_map(|entries| entries.unwrap());
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .map(|path| (path.clone(), std::fs::read(path).unwrap()))
            .collect()
    }

    /// Returns the value that a restore of the last state has.
    fn restored(&self, more: &[&str]) -> String {
        let (archive, to) = (self.at("archive"), self.at("restored"));
        let words = ["restore", "--from", arg(&archive), "--to", arg(&to)];
        let (code, said) = ended(&[&words[..], more].concat());
        assert_eq!(code, 0, "{said}");
        let server = Server::start(&to, &[]);
        let mut client = Client::connect(server.port()).unwrap();
        let value = text(client.ask(&["GET", "key:7"]).unwrap());
        server.stop();
        std::fs::remove_dir_all(to).unwrap();
        value
    }
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(Some(bytes)) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// Makes a database with an archive, and an older copy of its data directory.
fn made() -> Made {
    let made = Made {
        dir: tempfile::tempdir().unwrap(),
    };
    let archive = made.at("archive");
    let archived = ["--archive", arg(&archive)];
    made.write("data", &archived, "first");
    copy(&made.at("data"), &made.at("older"));
    made.write("data", &archived, "second");
    assert!(made.restored(&[]).contains("second"));
    made
}

/// A data directory was set back and continued without its archive. When the archive came back, both histories were in
/// it. Then a restore failed for good, or gave bytes that never existed.
#[test]
fn an_older_copy_that_went_on_is_refused_when_it_meets_its_archive() {
    let made = made();
    let archive = made.at("archive");
    let before = made.archived();
    for round in 0..3 {
        made.write("older", &[], &format!("other {round}"));
    }
    let older = made.at("older");
    let (status, said) = Server::spawn(&older, &["--archive", arg(&archive)]).wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("this database left after epoch"), "{said}");
    assert_eq!(made.archived(), before, "nothing was archived");
    assert!(made.restored(&[]).contains("second"));
    // The database itself continues.
    made.write("data", &["--archive", arg(&archive)], "third");
    assert!(made.restored(&[]).contains("third"));
    assert_eq!(
        ended(&["archive", "verify", "--archive", arg(&archive)]).0,
        0
    );
    // The copy continues with another archive.
    let (code, said) = ended(&["archive", "end", "--data", arg(&older)]);
    assert_eq!(code, 0, "{said}");
    let own = made.at("own");
    std::fs::create_dir(&own).unwrap();
    made.write("older", &["--archive", arg(&own)], "another");
    assert_eq!(ended(&["archive", "verify", "--archive", arg(&own)]).0, 0);
    assert_eq!(
        ended(&["archive", "end", "--data", arg(&made.at("none"))]).0,
        2
    );
}

/// A copy that was set back continues on a named timeline, in the same archive. The database continues on the first
/// one.
#[test]
fn an_older_copy_continues_on_a_timeline_with_a_name() {
    let made = made();
    let (archive, older) = (made.at("archive"), made.at("older"));
    let archived = ["--archive", arg(&archive)];
    let end = ["archive", "end", "--data", arg(&older), "--new-timeline"];
    let (code, said) = ended(&[&end[..], &["../data"]].concat());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("cannot name a timeline"), "{said}");
    let (code, said) = ended(&[&end[..], &["after-monday"]].concat());
    assert_eq!(code, 0, "{said}");
    let server = Server::start(&older, &archived);
    wait_until(&server, "backups", |backups| backups != "0");
    assert_eq!(field(&server, "timeline"), "after-monday");
    server.stop();
    made.write("older", &archived, "other");
    copy(&older, &made.at("older still"));
    made.write("older", &archived, "another");
    made.write("data", &archived, "third");
    assert_eq!(made.restored(&[]), "third");
    let of_copy = ["--timeline", "after-monday"];
    assert_eq!(made.restored(&of_copy), "another");
    let verbs = ["status", "verify", "drill"];
    for verb in verbs {
        let words = ["archive", verb, "--archive", arg(&archive)];
        let (code, said) = ended(&[&words[..], &of_copy].concat());
        assert_eq!(code, 0, "{verb}: {said}");
    }
    let (code, said) = ended(&["archive", "timelines", "--archive", arg(&archive)]);
    assert_eq!(code, 0, "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[0].starts_with("(first)") && lines[1].starts_with("after-monday"),
        "{said}"
    );
    let (_, said) = ended(&["archive", "status", "--archive", arg(&archive)]);
    assert!(said.contains("\ntimeline  after-monday\n"), "{said}");
    let words = [
        "restore",
        "--from",
        arg(&archive),
        "--timeline",
        "none",
        "--to",
        arg(&older),
    ];
    let (code, said) = ended(&words);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("timelines/none"), "{said}");
    // A timeline has one history, too.
    made.write("older still", &[], "set back again");
    let still = made.at("older still");
    let (status, said) = Server::spawn(&still, &archived).wait();
    assert_eq!(status.code(), Some(3), "{said}");
}

/// The log of a copy that was set back was added to the archive of the database. The result was a mixture of both, or
/// the archive's state without a word about the copy's writes.
#[test]
fn the_log_of_an_older_copy_is_refused_by_a_restore() {
    let made = made();
    let (archive, older, to) = (made.at("archive"), made.at("older"), made.at("restored"));
    for round in 0..3 {
        made.write("older", &[], &format!("other {round}"));
        let (code, said) = ended(&[
            "restore",
            "--from",
            arg(&archive),
            "--log-dir",
            arg(&older),
            "--to",
            arg(&to),
        ]);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("another copy of the database"), "{said}");
        let left = std::fs::read_dir(&to).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{said}");
    }
    // The log of the database itself is added.
    made.write("data", &[], "third");
    let (code, said) = ended(&[
        "restore",
        "--from",
        arg(&archive),
        "--log-dir",
        arg(&made.at("data")),
        "--to",
        arg(&to),
    ]);
    assert_eq!(code, 0, "{said}");
    let server = Server::start(&to, &[]);
    let mut client = Client::connect(server.port()).unwrap();
    assert_eq!(text(client.ask(&["GET", "key:7"]).unwrap()), "third");
    server.stop();
}

/// The archive was away when the older copy was started. The first contact raises an alarm and archives nothing.
#[test]
fn an_older_copy_that_meets_its_archive_later_raises_an_alarm() {
    let made = made();
    let archive = made.at("archive");
    let before = made.archived();
    made.write("older", &[], "other");
    std::fs::rename(&archive, made.at("away")).unwrap();
    let server = Server::start(&made.at("older"), &["--archive", arg(&archive)]);
    let mut client = Client::connect(server.port()).unwrap();
    client.ask(&["SET", "key:7", "other again"]).unwrap();
    if archive.is_dir() {
        std::fs::remove_dir_all(&archive).unwrap();
    }
    std::fs::rename(made.at("away"), &archive).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        client.ask(&["SET", "key:8", "other again"]).unwrap();
        let info = text(client.ask(&["INFO", "archive"]).unwrap());
        if info.contains("of a history that this database left") {
            break;
        }
        assert!(Instant::now() < until, "{info}");
        std::thread::sleep(Duration::from_millis(200));
    }
    server.stop();
    assert_eq!(made.archived(), before, "nothing was archived");
    assert!(made.restored(&[]).contains("second"));
}
