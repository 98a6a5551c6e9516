//! Verbs that cannot read or write an archive. They must print a clear error and change nothing.

use std::path::{Path, PathBuf};

use crate::support::{arg, ended};

struct Made {
    dir: tempfile::TempDir,
    /// The folder of the database in the archive.
    folder: PathBuf,
}

impl Made {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn restored(&self, to: &str, more: &[&str]) -> (i32, String) {
        let (archive, to) = (self.at("archive"), self.at(to));
        let args = ["restore", "--from", arg(&archive), "--to", arg(&to)];
        ended(&[&args[..], more].concat())
    }

    fn names(&self, folder: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.join(folder)).unwrap();
        let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        names.retain(|path| path.is_file());
        names.sort();
        names
    }
}

/// Creates a database. The database's archive has a backup and some runs.
fn made() -> Made {
    let dir = tempfile::tempdir().unwrap();
    let (data, archive) = (dir.path().join("data"), dir.path().join("archive"));
    let filled = [
        "bench",
        "kv",
        "--data",
        arg(&data),
        "--seconds",
        "0",
        "--keys",
        "100",
        "--fill",
        "100",
    ];
    assert_eq!(ended(&filled).0, 0);
    let backup = [
        "backup",
        "create",
        "--data",
        arg(&data),
        "--archive",
        arg(&archive),
    ];
    assert_eq!(ended(&backup).0, 0);
    let first = std::fs::read_dir(&archive).unwrap().next().unwrap();
    let folder = first.unwrap().path();
    Made { dir, folder }
}

pub fn refused((code, said): (i32, String), with: i32, words: &[&str]) {
    assert_eq!(code, with, "{said}");
    for word in words {
        assert!(said.contains(word), "{word} in: {said}");
    }
}

#[test]
fn places_without_an_archive_are_named() {
    let made = made();
    let restored = |from: &Path| {
        let to = made.at("to");
        ended(&["restore", "--from", arg(from), "--to", arg(&to)])
    };
    refused(restored(&made.at("none")), 2, &["none is not a directory"]);
    refused(restored(&made.at("data")), 2, &["there is no archive in"]);
    std::fs::write(made.at("file"), "x").unwrap();
    refused(restored(&made.at("file")), 2, &["file is not a directory"]);
    refused(made.restored("data", &[]), 2, &["is not empty"]);
    refused(made.restored("file", &[]), 1, &["file"]);
    assert_eq!(std::fs::read(made.at("file")).unwrap(), b"x");
    assert!(!made.at("to").exists(), "nothing was begun");
}

#[test]
fn a_run_whose_manifest_is_lost_is_restored_and_shown() {
    let made = made();
    let manifests = made.names("");
    let is_manifest = |path: &&PathBuf| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("manifest-")
    };
    let (_, whole) = made.restored("whole", &["--json"]);
    let mut newest_first: Vec<&PathBuf> = manifests.iter().filter(is_manifest).collect();
    newest_first.sort_by(|a, b| b.cmp(a));
    let archive = made.at("archive");
    // The newest manifests only note times.
    let is_shown = newest_first.iter().any(|manifest| {
        std::fs::remove_file(manifest).unwrap();
        let (code, status) = ended(&["archive", "status", "--archive", arg(&archive)]);
        assert_eq!(code, 0, "{status}");
        status.contains("not in the manifest yet")
    });
    assert!(is_shown, "a run that no manifest names");
    let (code, again) = made.restored("again", &["--json"]);
    assert_eq!(code, 0, "{again}");
    let epoch = |told: &str| {
        told.lines()
            .find(|line| line.contains("\"epoch\""))
            .map(str::to_owned)
    };
    assert_eq!(epoch(&again), epoch(&whole), "nothing is lost");
}

#[test]
fn lost_objects_are_named_with_what_to_do() {
    let made = made();
    let archive = made.at("archive");
    let mut needed = 0;
    for run in made.names("runs") {
        let bytes = std::fs::read(&run).unwrap();
        std::fs::remove_file(&run).unwrap();
        let name = run.file_name().unwrap().to_str().unwrap();
        refused(
            ended(&["archive", "verify", "--archive", arg(&archive)]),
            3,
            &[name],
        );
        let (code, said) = made.restored("to", &[]);
        if code == 0 {
            // A restore from the newest backup does not need this run.
            std::fs::remove_dir_all(made.at("to")).unwrap();
        } else {
            needed += 1;
            refused((code, said), 3, &[name, "the archive was not changed"]);
            assert!(!made.at("to").exists(), "nothing was begun");
        }
        std::fs::write(&run, bytes).unwrap();
    }
    assert!(needed > 0, "the backup needs some runs");
    assert_eq!(made.restored("to", &[]).0, 0);
}
