//! Tests with files that are damaged, misplaced or not part of the database. If a restart needs such a file, the exit
//! code must be 3, and the error must name the file and the remedy.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use perdura_base::num::to_u64;
use perdura_wal::block::HEADER_BYTES;

use crate::support::{Reply, Server, arg, ended, reason_in};

/// Creates a database of a few hundred rows and stops it. Both images are complete, and the log continues after them.
fn database(dir: &Path) -> PathBuf {
    let data = dir.join("db");
    let server = Server::start(&data, &["--partitions", "4"]);
    for round in 0..3 {
        for i in 0..200 {
            server.ask(&[
                "SET",
                &format!("key{i}"),
                &format!("value{i} of round {round}"),
            ]);
        }
        if round < 2 {
            assert_eq!(server.ask(&["SAVE"]), Reply::Status("OK".into()));
        }
    }
    server.kill();
    assert_eq!(ended(&["verify", "--data", arg(&data)]).0, 0);
    data
}

fn flip(path: &Path, offset: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
}

/// Checks that `serve` refuses the database with exit code 3 and a message with all of `words`.
fn refuses(data: &Path, words: &[&str]) {
    let server = Server::spawn(data, &[]);
    let (status, text) = server.wait();
    assert_eq!(status.code(), Some(3), "{text}");
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Checks that `serve` opens the database without missing rows.
fn serves(data: &Path) {
    let server = Server::start(data, &[]);
    assert_eq!(server.ask(&["DBSIZE"]), Reply::Number(200));
    let last = Reply::Bulk(Some(b"value199 of round 2".to_vec()));
    assert_eq!(server.ask(&["GET", "key199"]), last);
    server.kill();
}

/// Checks that `verify --strict` ends with exit code 3 and names the file.
fn verify_finds(data: &Path, file: &str) {
    let (code, text) = ended(&["verify", "--strict", "--data", arg(data)]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains(file), "{file}: {text}");
}

/// Checks that `verify`, a dry run and `serve` refuse the database with exit code 3 and one common reason. Returns this
/// reason.
fn all_refuse(data: &Path) -> String {
    let reason = |text: &str| {
        let lines = text.lines().filter_map(reason_in);
        let told: Vec<&str> = lines.filter(|line| !line.contains("nothing was")).collect();
        assert_eq!(told.len(), 1, "{text}");
        told[0].to_owned()
    };
    let (code, verified) = ended(&["verify", "--data", arg(data)]);
    assert_eq!(code, 3, "{verified}");
    let (code, dry) = ended(&["restart", "--dry-run", "--data", arg(data)]);
    assert_eq!(code, 3, "{dry}");
    let (status, served) = Server::spawn(data, &[]).wait();
    assert_eq!(status.code(), Some(3), "{served}");
    let told = reason(&verified);
    assert_eq!(told, reason(&dry));
    assert_eq!(told, reason(&served));
    told
}

#[test]
fn a_directory_of_other_files_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.tex"), "chapter one").unwrap();
    refuses(dir.path(), &["thesis.tex", "empty"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_database_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    // The anchor is made unreadable, as if a newer build had written it. So only the file VERSION shows the version.
    for at in [20, 64 * 1024 + 20] {
        flip(&data.join("anchor"), at);
    }
    std::fs::write(data.join("VERSION"), "perdura 2\n").unwrap();
    refuses(
        &data,
        &["version 2;", "`perdura export`", "`perdura import --from`"],
    );
    std::fs::write(data.join("VERSION"), "perdura 99\n").unwrap();
    refuses(&data, &["version 99", "export"]);
    for verb in ["verify", "digest"] {
        let (code, text) = ended(&[verb, "--data", arg(&data)]);
        assert_eq!(code, 3, "{text}");
        assert!(text.contains("version 99"), "{text}");
    }
    std::fs::write(data.join("VERSION"), "something else\n").unwrap();
    refuses(&data, &["VERSION", "does not belong"]);
}

/// Regression: a single wrong byte in VERSION made `verify`, `serve` and `repair` refuse an intact database.
#[test]
fn a_damaged_version_beside_a_whole_anchor_loses_nothing_and_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let version = data.join("VERSION");
    let whole = std::fs::read(&version).unwrap();
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut bad = whole.clone();
            bad[at] ^= bit;
            std::fs::write(&version, &bad).unwrap();
            let (code, text) = ended(&["restart", "--dry-run", "--data", arg(&data)]);
            assert_eq!(code, 0, "byte {at} is {:#x}: {text}", bad[at]);
        }
    }
    for bad in [&b"perdura \xff\n"[..], b"perdura 2\n", b"per", b""] {
        std::fs::write(&version, bad).unwrap();
        let (code, text) = ended(&["verify", "--data", arg(&data)]);
        assert_eq!(code, 0, "{text}");
        let said = "DAMAGED   VERSION: VERSION says";
        assert!(text.contains(said), "{text}");
        assert_eq!(ended(&["verify", "--strict", "--data", arg(&data)]).0, 3);
        let (code, text) = ended(&["repair", "--data", arg(&data)]);
        assert_eq!(code, 0, "{text}");
    }
    serves(&data);
    assert_eq!(std::fs::read(&version).unwrap(), whole);
    // A mark in VERSION that says that the database is unfinished is refused, and not repaired like damage.
    for mark in [
        "unfinished: perdura repair was interrupted, delete this directory\n",
        "unfin",
    ] {
        std::fs::write(&version, mark).unwrap();
        refuses(&data, &["VERSION", "does not belong"]);
    }
}

#[test]
fn one_damaged_copy_of_the_anchor_is_reported_and_two_are_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    flip(&data.join("anchor"), 20);
    verify_finds(&data, "anchor");
    let (code, text) = ended(&["verify", "--data", arg(&data)]);
    assert_eq!(
        code, 0,
        "a start does without it, and so says verify: {text}"
    );
    assert!(
        text.contains("DAMAGED") && text.contains("nothing is lost"),
        "{text}"
    );
    serves(&data);
    assert_eq!(
        ended(&["verify", "--data", arg(&data)]).0,
        0,
        "the restart did not mend the copy"
    );
    flip(&data.join("anchor"), 20);
    flip(&data.join("anchor"), 64 * 1024 + 20);
    refuses(&data, &["anchor", "backup"]);
    verify_finds(&data, "anchor");
}

/// Returns the offsets of all pages in the image files. The first page has the list of databases.
fn pages(data: &Path) -> Vec<u64> {
    let (_, text) = ended(&[
        "dump",
        "checkpoint",
        "--entries",
        "--json",
        "--data",
        arg(data),
    ]);
    let images: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entries = images[0]["entries"].as_array().unwrap();
    entries
        .iter()
        .map(|entry| entry["offset"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_page_damaged_in_one_image_is_rebuilt_and_in_both_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let at = pages(&data)[0] + 100;
    for image in ["image-a", "image-b"] {
        let pages = data.join(image).join("pages");
        flip(&pages, at);
        verify_finds(&data, &format!("{image}/pages"));
        // A dry run only reads the database. `serve` would rewrite the images.
        let (code, text) = ended(&["restart", "--dry-run", "--data", arg(&data)]);
        assert_eq!(code, 0, "{text}");
        flip(&pages, at);
    }
    flip(&data.join("image-a/pages"), at);
    flip(&data.join("image-b/pages"), at);
    refuses(&data, &["image", "page"]);
    flip(&data.join("image-b/pages"), at);
    serves(&data);
}

#[test]
fn another_databases_image_is_not_taken_for_ours() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let other_dir = tempfile::tempdir().unwrap();
    let other = database(other_dir.path());
    for image in ["image-a", "image-b"] {
        std::fs::copy(
            other.join(image).join("pages"),
            data.join(image).join("pages"),
        )
        .unwrap();
    }
    refuses(&data, &["pages", "another database"]);
    verify_finds(&data, "image-a/pages");
}

/// Returns the paths of the log's segments, oldest first.
fn segments(data: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(data.join("log")).unwrap();
    let mut segments: Vec<PathBuf> = names.map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("s00-")
    });
    segments.sort();
    segments
}

/// Regression: a truncated segment file without blocks led to exit code 3 and the message "acknowledged transactions in
/// it may be missing".
#[test]
fn an_empty_next_segment_of_any_size_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let next = segments(&data).pop().unwrap();
    let whole = std::fs::read(&next).unwrap();
    assert!(
        whole[4096..].iter().all(|byte| *byte == 0),
        "no block is in the newest segment"
    );
    for len in [0, 48, 4096, whole.len() / 2] {
        std::fs::write(&next, &whole[..len]).unwrap();
        let (code, text) = ended(&["verify", "--data", arg(&data)]);
        assert_eq!(code, 0, "{len} bytes: {text}");
        assert!(text.contains("nothing is lost"), "{text}");
    }
    serves(&data);
}

#[test]
fn a_cut_segment_that_the_log_has_come_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let used = segments(&data);
    let used = &used[used.len() - 2];
    let whole = std::fs::read(used).unwrap();
    // The file still has all blocks of the segment, but nothing proves this to a restart.
    std::fs::write(used, &whole[..whole.len() / 2]).unwrap();
    refuses(&data, &["exact size", "may be missing"]);
}

/// Regression: `repair` of an intact database wrote nothing and ended with exit code 0. A script then served an empty
/// directory.
#[test]
fn repair_of_a_whole_database_makes_the_new_one_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    for more in [&[][..], &["--accept-loss"]] {
        let new = dir.path().join(format!("new{}", more.len()));
        let to = ["repair", "--data", arg(&data), "--to", arg(&new)];
        let (code, text) = ended(&[&to[..], more].concat());
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("whole") && text.contains("made"), "{text}");
        let digests = [&data, &new].map(|dir| ended(&["digest", "--data", arg(dir)]).1);
        assert_eq!(digests[0], digests[1]);
        serves(&new);
    }
    serves(&data);
}

/// Regression: `serve` only complained about the number of log directories, with exit code 2, and did not name the
/// missing anchor.
#[test]
fn a_missing_anchor_is_named_whatever_the_directories_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let logs = [dir.path().join("log1"), dir.path().join("log2")];
    let log_dirs = ["--log-dir", arg(&logs[0]), "--log-dir", arg(&logs[1])];
    let server = Server::start(&data, &[&["--streams", "2"], &log_dirs[..]].concat());
    server.ask(&["SET", "key", "value"]);
    server.kill();
    let away = dir.path().join("away");
    std::fs::rename(data.join("anchor"), &away).unwrap();
    for streams in [&["--streams", "2"][..], &[]] {
        let server = Server::spawn(&data, &[streams, &log_dirs[..]].concat());
        let (status, text) = server.wait();
        assert_eq!(status.code(), Some(3), "{text}");
        assert!(
            text.contains("anchor") && text.contains("no such file"),
            "{text}"
        );
    }
    let verify = [&["verify", "--data", arg(&data)], &log_dirs[..]].concat();
    assert_eq!(ended(&verify).0, 3);
    std::fs::rename(&away, data.join("anchor")).unwrap();
    assert_eq!(ended(&verify).0, 0);
}

/// Returns the file and offset of a log position.
fn locate(data: &Path, pos: u64) -> (PathBuf, u64) {
    let start = |path: &PathBuf| -> u64 {
        let name = path.file_stem().unwrap().to_str().unwrap();
        name.rsplit_once("-p").unwrap().1.parse().unwrap()
    };
    let holds = |path: &PathBuf| start(path) <= pos;
    let path = segments(data).into_iter().rfind(holds).unwrap();
    let offset = 4096 + pos - start(&path);
    (path, offset)
}

#[test]
fn damage_in_the_log_before_its_durable_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let (code, text) = ended(&["dump", "log", "--blocks", "--json", "--data", arg(&data)]);
    assert_eq!(code, 0);
    let blocks: Vec<serde_json::Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    // The block must lie after the newest image's checkpoint, so that a restart needs it. It must also lie before the
    // last acknowledged write.
    let late = &blocks[blocks.len() - 20];
    let (segment, offset) = locate(&data, late["pos"].as_u64().unwrap());
    // The changed byte is in the block's body, after its header.
    flip(&segment, offset + to_u64(HEADER_BYTES) + 1);
    refuses(&data, &["log/s00-", "Acknowledged transactions"]);
    verify_finds(&data, "log stream 0");
    let (code, _) = ended(&["dump", "log", "--data", arg(&data)]);
    assert_eq!(code, 3);
    flip(&segment, offset + to_u64(HEADER_BYTES) + 1);
    serves(&data);
}

#[test]
fn what_a_database_always_has_is_missed_by_name_and_with_what_it_costs() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let directory = std::fs::read_dir(data.join("image-a")).unwrap();
    let directory = directory
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("directory-"))
        .unwrap();
    let away = dir.path().join("away");
    for (missing, words) in [
        (data.join("anchor"), ["anchor", "backup"]),
        (
            data.join("log"),
            ["log stream 0", "It contains every transaction"],
        ),
        (data.join("image-a"), ["pages of image A", "image B"]),
        (data.join("image-b/pages"), ["pages of image B", "image A"]),
        (directory, ["directory of image A", "image B"]),
    ] {
        std::fs::rename(&missing, &away).unwrap();
        let told = all_refuse(&data);
        for word in words {
            assert!(told.contains(word), "{word}: {told}");
        }
        assert!(!told.contains("(os error"), "{told}");
        std::fs::rename(&away, &missing).unwrap();
    }
    serves(&data);
}

#[test]
fn foreign_and_stale_files_are_refused_alike_and_their_bytes_stay_off_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let other_dir = tempfile::tempdir().unwrap();
    let other = database(other_dir.path());
    let stale = std::fs::read(data.join("anchor")).unwrap();
    let server = Server::start(&data, &[]);
    assert_eq!(
        server.ask(&["SET", "key199", "value199 of round 2"]),
        Reply::Status("OK".into())
    );
    server.kill();
    let swap = |path: &Path, bytes: &[u8]| {
        let before = std::fs::read(path).unwrap();
        std::fs::write(path, bytes).unwrap();
        let told = all_refuse(&data);
        std::fs::write(path, before).unwrap();
        told
    };
    let told = swap(&data.join("anchor"), &stale);
    assert!(told.contains("an older anchor"), "{told}");
    let foreign = std::fs::read(other.join("anchor")).unwrap();
    let told = swap(&data.join("anchor"), &foreign);
    assert!(told.contains("another database"), "{told}");
    let theirs = std::fs::read(&segments(&other)[0]).unwrap();
    let told = swap(&segments(&data)[0], &theirs);
    assert!(told.contains("belongs to database"), "{told}");
    let told = swap(
        &data.join("VERSION"),
        b"\x1b[2Jhello\x07\xff, which is no damaged version",
    );
    assert!(told.contains("\\x1b[2Jhello\\x07\\xff"), "{told}");
    serves(&data);
}

#[test]
fn repair_makes_a_database_of_what_is_whole_and_lists_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    let repair = |more: &[&str]| ended(&[&["repair", "--data", arg(&data)], more].concat());
    let (code, text) = repair(&[]);
    assert_eq!(
        (code, text.contains("nothing to repair")),
        (0, true),
        "{text}"
    );
    let (_, text) = ended(&["dump", "log", "--blocks", "--json", "--data", arg(&data)]);
    let blocks = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let blocks: Vec<serde_json::Value> = blocks.collect();
    let (segment, offset) = locate(&data, blocks[blocks.len() - 20]["pos"].as_u64().unwrap());
    flip(&segment, offset + to_u64(HEADER_BYTES) + 1);
    let page = pages(&data).pop().unwrap() + 100;
    let flip_pages = || {
        flip(&data.join("image-a/pages"), page);
        flip(&data.join("image-b/pages"), page);
    };
    for lost in ["missing   log stream 0: epochs", "missing   page "] {
        let (code, text) = repair(&["--to", arg(&dir.path().join("no"))]);
        assert_eq!((code, text.contains(lost)), (3, true), "{text}");
        assert!(!dir.path().join("no").exists());
        let new = dir.path().join(lost.split_whitespace().nth(1).unwrap());
        let before = ended(&["verify", "--json", "--data", arg(&data)]).1;
        let (code, text) = repair(&["--to", arg(&new), "--accept-loss"]);
        assert_eq!((code, text.contains(lost)), (0, true), "{text}");
        assert_eq!(before, ended(&["verify", "--json", "--data", arg(&data)]).1);
        assert_eq!(ended(&["verify", "--strict", "--data", arg(&new)]).0, 0);
        let server = Server::start(&new, &[]);
        let Reply::Number(rows) = server.ask(&["DBSIZE"]) else {
            panic!("no number");
        };
        assert!((1..=200).contains(&rows), "{rows}");
        assert_eq!(
            server.ask(&["SET", "key", "value"]),
            Reply::Status("OK".into())
        );
        server.kill();
        let (code, text) = repair(&["--to", arg(&new), "--accept-loss"]);
        assert_eq!((code, text.contains("not empty")), (2, true), "{text}");
        // For the second round the log is repaired, and a page is damaged instead.
        flip(&segment, offset + to_u64(HEADER_BYTES) + 1);
        flip_pages();
    }
}

#[test]
fn a_log_that_is_gone_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = database(dir.path());
    segments(&data)
        .iter()
        .for_each(|path| std::fs::remove_file(path).unwrap());
    refuses(&data, &["log", "missing"]);
}
