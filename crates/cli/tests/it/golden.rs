//! Databases and an archive that an earlier build left when it was killed. They must open with the digests that the
//! earlier build printed.
//!
//! Commit 29b15fa6 made the files in `tests/golden`. `keys` comes from a server with keys of every type, a script, a
//! function, and an archive with one backup. `voter` comes from `bench voter --scheme command`, and `tree` from
//! `bench update --scheme logical`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{arg, ended};

/// Unpacks a stored directory into `to` with `tar`, which recreates the sparse log segments.
fn unpacked(name: &str, to: &Path) -> PathBuf {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.tar.gz"));
    let to = to.join(name);
    std::fs::create_dir(&to).unwrap();
    let status = Command::new("tar")
        .args(["-xzf", arg(&packed), "-C", arg(&to)])
        .status();
    assert!(status.unwrap().success(), "{}", packed.display());
    to
}

/// Runs a verb that must succeed.
fn done(args: &[&str]) -> String {
    let (code, text) = ended(args);
    assert_eq!(code, 0, "{args:?}: {text}");
    text
}

#[test]
fn databases_of_an_earlier_build_open_with_their_digests() {
    let dir = tempfile::tempdir().unwrap();
    for (name, method, digest) in [
        ("keys", "auto", "fee7ba78dd8798b2"),
        ("voter", "command", "5ae1211cc40c44c9"),
        ("tree", "log2", "5325c87a54b8a1cb"),
    ] {
        let data = unpacked(name, dir.path()).join("data");
        let on = ["--data", arg(&data)];
        assert_eq!(done(&[&["digest"], &on[..]].concat()).trim(), digest);
        let verified = done(&[&["verify"], &on[..]].concat());
        assert!(verified.contains("nothing is damaged"), "{verified}");
        let dry = ["restart", "--dry-run", "--json", "--method", method];
        let dry = done(&[&dry[..], &on].concat());
        assert!(dry.contains(digest), "{dry}");
        done(&[&["restart", "--method", method], &on[..]].concat());
        assert_eq!(done(&[&["digest"], &on[..]].concat()).trim(), digest);
    }
}

#[test]
fn an_archive_of_an_earlier_build_is_restored_with_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let archive = unpacked("keys", dir.path()).join("archive");
    let to = dir.path().join("to");
    done(&["restore", "--from", arg(&archive), "--to", arg(&to)]);
    assert_eq!(
        done(&["digest", "--data", arg(&to)]).trim(),
        "fee7ba78dd8798b2"
    );
}
