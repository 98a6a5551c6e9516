//! Damaged archives, as an operator meets them. Damage of one file costs at most what that file alone held.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perdura_archive::report::{Outcome, Reporting, newest_report};
use perdura_archive::{ReportKind, list_archives};
use perdura_device::{Disk, FileDisk};

use crate::archive_refusals::refused;
use crate::support::{Client, Server, arg, ended};

struct Made {
    dir: tempfile::TempDir,
    /// The folder of the database in the archive.
    folder: PathBuf,
}

impl Made {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn archive(&self, verb: &str, more: &[&str]) -> (i32, String) {
        let archive = self.at("archive");
        ended(&[&["archive", verb, "--archive", arg(&archive)], more].concat())
    }

    fn restored(&self, to: &str, more: &[&str]) -> (i32, String) {
        let (archive, to) = (self.at("archive"), self.at(to));
        let args = ["restore", "--from", arg(&archive), "--to", arg(&to)];
        ended(&[&args[..], more].concat())
    }

    /// Restores the last state, and returns its digest.
    fn digest(&self, what: &str) -> String {
        let (code, said) = self.restored("to", &[]);
        assert_eq!(code, 0, "{what}: {said}");
        let to = self.at("to");
        let (code, digest) = ended(&["digest", "--data", arg(&to)]);
        assert_eq!(code, 0, "{what}: {digest}");
        std::fs::remove_dir_all(to).unwrap();
        digest
    }

    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let folder = match prefix {
            "run-" => self.folder.join("runs"),
            _ => self.folder.clone(),
        };
        let entries = std::fs::read_dir(folder).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| name(path).starts_with(prefix));
        files.sort();
        files
    }
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Makes an archive with a backup and the log of three servers after it. Each of them wrote another value.
fn made() -> Made {
    let dir = tempfile::tempdir().unwrap();
    let (data, archive) = (dir.path().join("data"), dir.path().join("archive"));
    Server::start(&data, &[]).stop();
    let backup = [
        "backup",
        "create",
        "--data",
        arg(&data),
        "--archive",
        arg(&archive),
    ];
    assert_eq!(ended(&backup).0, 0);
    for round in 0..3 {
        let server = Server::start(&data, &["--archive", arg(&archive)]);
        let mut client = Client::connect(server.port()).unwrap();
        for key in 0..20 {
            let (key, value) = (format!("key:{key}"), format!("{round}"));
            client.ask(&["SET", &key, &value]).unwrap();
        }
        server.stop();
    }
    let first = std::fs::read_dir(&archive).unwrap().next().unwrap();
    let folder = first.unwrap().path();
    Made { dir, folder }
}

/// One flipped bit in any of about 16 manifests, 15 of them history, used to block every verb.
#[test]
fn a_flipped_bit_in_any_manifest_hinders_no_restore() {
    let made = made();
    let whole = made.digest("undamaged");
    let manifests = made.files("manifest-");
    assert!(manifests.len() > 5, "{manifests:?}");
    for manifest in &manifests {
        let bytes = std::fs::read(manifest).unwrap();
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 4;
        std::fs::write(manifest, flipped).unwrap();
        assert_eq!(made.digest(name(manifest)), whole);
        refused(made.archive("verify", &[]), 3, &[name(manifest)]);
        assert_eq!(made.archive("status", &[]).0, 0);
        std::fs::write(manifest, bytes).unwrap();
    }
    refused(made.archive("verify", &[]), 0, &["whole"]);
}

#[test]
fn a_manifest_is_made_of_the_files_if_all_are_lost() {
    let made = made();
    let whole = made.digest("undamaged");
    for manifest in made.files("manifest-") {
        std::fs::write(manifest, "nothing").unwrap();
    }
    refused(made.restored("to", &[]), 3, &["perdura archive rebuild"]);
    refused(
        made.archive("rebuild", &[]),
        0,
        &["rebuilt", "runs of epochs"],
    );
    assert_eq!(made.digest("rebuilt"), whole);
    // The database continues with it.
    let (data, archive) = (made.at("data"), made.at("archive"));
    let server = Server::start(&data, &["--archive", arg(&archive)]);
    let mut client = Client::connect(server.port()).unwrap();
    client.ask(&["SET", "later", "1"]).unwrap();
    server.stop();
    assert_ne!(made.digest("continued"), whole);
}

/// A run that no wanted moment needs used to make every restore by time refuse, and `status` showed no moments.
#[test]
fn a_damaged_run_is_skipped_for_moments_that_do_not_need_it() {
    let made = made();
    let archive = made.at("archive");
    let virtually = ["backup", "virtual", "--archive", arg(&archive)];
    assert_eq!(ended(&virtually).0, 0);
    let whole = made.digest("undamaged");
    let runs = made.files("run-");
    assert!(runs.len() > 2, "{runs:?}");
    for run in &runs {
        let bytes = std::fs::read(run).unwrap();
        std::fs::write(run, &bytes[..bytes.len() / 2]).unwrap();
        let what = name(run);
        assert_eq!(made.digest(what), whole, "the cut needs no run");
        refused(made.archive("status", &[]), 0, &["moments   ", what]);
        let (code, said) = made.restored("end", &["--at", "end-0s"]);
        if code == 0 {
            std::fs::remove_dir_all(made.at("end")).unwrap();
        } else {
            // The last run tells where the end is. Another run has the moments around the time.
            assert!([2, 3].contains(&code), "{said}");
            assert!(said.contains(what), "{said}");
        }
        std::fs::write(run, bytes).unwrap();
    }
}

/// `archive verify` exited 0 and `restore` proceeded although a failed proof or drill was in the archive.
#[test]
fn a_failed_drill_stops_a_restore_until_it_is_accepted() {
    let made = made();
    let whole = made.digest("undamaged");
    assert_eq!(made.archive("drill", &[]).0, 0);
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(&made.at("archive")).unwrap());
    let uuid = list_archives(disk.as_ref()).unwrap()[0];
    let report = newest_report(disk.as_ref(), &uuid, ReportKind::Drill).unwrap();
    let mut report = report.expect("a drill was held");
    report.wall_us += 1;
    report.outcome = Outcome::Fails;
    report.text = "partition 3 differs".into();
    Reporting::new(Arc::clone(&disk), report).run().unwrap();
    refused(
        made.archive("verify", &[]),
        3,
        &["the last drill failed", "partition 3 differs"],
    );
    refused(
        made.restored("to", &[]),
        3,
        &["partition 3 differs", "--unproven"],
    );
    assert!(!made.at("to").exists(), "nothing was begun");
    assert_eq!(made.restored("to", &["--unproven"]).0, 0);
    std::fs::remove_dir_all(made.at("to")).unwrap();
    assert_eq!(made.archive("drill", &[]).0, 0);
    assert_eq!(made.digest("a later drill holds"), whole);
    let reports = std::fs::read_dir(made.folder.join("reports")).unwrap();
    let report = reports.map(|entry| entry.unwrap().path()).max().unwrap();
    std::fs::write(&report, "nothing").unwrap();
    refused(made.archive("verify", &[]), 3, &[name(&report)]);
}

#[test]
fn targets_and_names_are_taken_as_people_give_them() {
    let made = made();
    let inside = made.at("archive").join("new");
    let archive = made.at("archive");
    let args = ["restore", "--from", arg(&archive), "--to", arg(&inside)];
    refused(ended(&args), 2, &["inside the archive"]);
    assert!(!inside.exists(), "nothing was begun");
    std::fs::create_dir_all(made.at("disk/lost+found")).unwrap();
    let uuid = name(&made.folder).to_owned();
    assert_eq!(made.restored("disk", &["--uuid", &uuid]).0, 0);
    assert!(made.at("disk/lost+found").is_dir());
}

/// Restored keys whose deadlines had passed vanished without a word.
#[test]
fn keys_whose_deadline_has_passed_are_counted_kept_or_given_their_time_again() {
    let made = made();
    let (data, archive) = (made.at("data"), made.at("archive"));
    let server = Server::start(&data, &["--archive", arg(&archive)]);
    let mut client = Client::connect(server.port()).unwrap();
    client.ask(&["SET", "session", "1", "PX", "1500"]).unwrap();
    client.ask(&["SET", "later", "1", "EX", "9000"]).unwrap();
    server.stop();
    std::thread::sleep(std::time::Duration::from_millis(1700));
    let served = |to: &str, words: &[&str]| {
        let server = Server::start(&made.at(to), &[]);
        let mut client = Client::connect(server.port()).unwrap();
        let reply = format!("{:?}", client.ask(words).unwrap());
        server.stop();
        reply
    };
    let (code, said) = made.restored("kept", &[]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 keys had passed"), "{said}");
    assert!(served("kept", &["EXISTS", "session", "later"]).contains('1'));
    refused(
        made.restored("dropped", &["--deadlines", "drop"]),
        0,
        &["2 keys lost theirs"],
    );
    let ttls = served("dropped", &["TTL", "session"]);
    assert!(ttls.contains("-1"), "{ttls}");
    refused(
        made.restored("shifted", &["--deadlines", "shift"]),
        0,
        &["2 keys have the time"],
    );
    let left = served("shifted", &["TTL", "later"]);
    assert!(left.contains("89") || left.contains("9000"), "{left}");
}
