//! Tests with damaged trees. Verbs must refuse them, name the damage, and overwrite nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use perdura_page::tree_page::{Kind, Node};
use perdura_wal::Scheme;

use crate::keyed::{Crashed, PAGE_BYTES};
use crate::support::arg;

/// Changes the tree's file of pages, runs `f`, checks that `f` overwrote nothing, and restores the file.
fn with_pages(crashed: &Crashed, change: impl FnOnce(&mut Vec<u8>), f: impl FnOnce()) {
    let path = crashed.data.join("tree").join("pages");
    let whole = std::fs::read(&path).unwrap();
    let mut changed = whole.clone();
    change(&mut changed);
    std::fs::write(&path, &changed).unwrap();
    let before = crashed.files();
    f();
    assert_kept(crashed, &before);
    std::fs::write(&path, whole).unwrap();
}

/// Returns the numbers of all pages on disk that have this kind.
fn pages(crashed: &Crashed, kind: Kind) -> Vec<usize> {
    let bytes = std::fs::read(crashed.data.join("tree").join("pages")).unwrap();
    let of_kind =
        |page: &[u8]| page.iter().any(|byte| *byte != 0) && Node::over(page).kind() == kind;
    let found = bytes.chunks(PAGE_BYTES).enumerate();
    found
        .filter(|(_, page)| of_kind(page))
        .map(|(at, _)| at)
        .collect()
}

/// Checks that no byte of `before` has changed. A file may be longer now: if it was truncated, a restart appends the
/// missing pages from copies.
fn assert_kept(crashed: &Crashed, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let now = crashed.files();
    for (path, bytes) in before {
        let kept = now.get(path).is_some_and(|now| now.starts_with(bytes));
        assert!(kept, "{} is overwritten", path.display());
    }
}

/// Checks that a verb ends with exit code `code`, and that its message contains every text in `says`.
fn refused(crashed: &Crashed, words: &[&str], code: i32, says: &[&str]) {
    let (found, text) = crashed.verb(words);
    assert_eq!(found, code, "{words:?}: {text}");
    for said in says {
        assert!(text.contains(said), "{words:?} does not say {said}: {text}");
    }
}

#[test]
fn verify_reads_each_page_and_names_the_keys_that_a_damaged_one_has() {
    let dir = tempfile::tempdir().unwrap();
    let crashed = Crashed::new(dir.path(), Scheme::Logical);
    let verified = crashed.report(&["verify", "--strict", "--pool-pages", "32"]);
    assert_eq!(verified["digest"], crashed.digest, "{verified}");
    let tree = &verified["tree"];
    assert!(tree["leaves"].as_u64() > Some(100), "{verified}");
    assert!(tree["inner"].as_u64() > Some(1), "{verified}");
    let (code, text) = crashed.verb(&["verify"]);
    assert!(code == 0 && text.contains("tree "), "{text}");

    // The test removes the copies in the double-write file, because they could repair the damage. No page was torn, so
    // nothing else needs them.
    let double = crashed.data.join("tree").join("double");
    let bytes = std::fs::metadata(&double).unwrap().len();
    std::fs::write(&double, vec![0; usize::try_from(bytes).unwrap()]).unwrap();
    // The test damages a leaf in the middle of the table, which a restart may not read.
    let leaves = pages(&crashed, Kind::Leaf);
    let leaf = leaves[leaves.len() / 2];
    let at = leaf * PAGE_BYTES + 700;
    let flip = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 1;
    with_pages(&crashed, flip(at), || {
        let page = format!("page {leaf}:");
        let place = format!("tree/pages at byte {}", leaf * PAGE_BYTES);
        let says = [&page[..], &place, "Lost: table 1, keys from \"key"];
        refused(&crashed, &["verify"], 3, &says);
        let page = format!("page {leaf}");
        refused(&crashed, &["digest"], 3, &[&page, "tree/pages"]);
    });
    // The test damages an inner page. All rows of the leaves below it are lost.
    let inner = pages(&crashed, Kind::Inner);
    with_pages(&crashed, flip(inner[0] * PAGE_BYTES + 700), || {
        let page = format!("page {}:", inner[0]);
        refused(&crashed, &["verify"], 3, &[&page, "Lost: table 1"]);
    });
    // Without the meta page no table can be found.
    with_pages(&crashed, flip(60), || {
        refused(
            &crashed,
            &["verify"],
            3,
            &["page 0:", "tree/pages at byte 0"],
        );
        refused(&crashed, &["restart", "--dry-run"], 3, &["page 0"]);
    });
    // The test overwrites a page with another page of the same tree.
    let copy = |bytes: &mut Vec<u8>| {
        let from = leaves[3] * PAGE_BYTES;
        bytes.copy_within(from..from + PAGE_BYTES, leaf * PAGE_BYTES);
    };
    with_pages(&crashed, copy, || {
        let page = format!("page {leaf}: expected the page of this place");
        refused(&crashed, &["verify"], 3, &[&page]);
    });
    let whole = crashed.report(&["verify", "--strict"]);
    assert_eq!(whole["digest"], crashed.digest);
}

#[test]
fn files_that_are_missing_short_or_of_another_database_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let crashed = Crashed::new(&dir.path().join("one"), Scheme::Logical);
    let other = Crashed::new_seeded(&dir.path().join("two"), Scheme::Logical, 2);
    let verbs = [
        &["restart"][..],
        &["restart", "--dry-run"],
        &["verify"],
        &["digest"],
    ];
    for name in ["pages", "double"] {
        let path = crashed.data.join("tree").join(name);
        let away = dir.path().join(name);
        std::fs::rename(&path, &away).unwrap();
        for verb in verbs {
            refused(&crashed, verb, 3, &["tree/pages", "no such file"]);
        }
        assert!(!path.exists(), "no file is made in its place");
        std::fs::rename(&away, &path).unwrap();
    }
    // The test cuts the file in half. The verbs must notice this before they accept transactions.
    for verb in verbs {
        let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
        with_pages(&crashed, cut, || {
            refused(&crashed, verb, 3, &["tree/pages"])
        });
    }
    // The test replaces the file of pages by that of another database, alone or together with the double-write file.
    let foreign = |name: &str| std::fs::read(other.data.join("tree").join(name)).unwrap();
    for verb in verbs {
        let swap = |bytes: &mut Vec<u8>| *bytes = foreign("pages");
        let says = ["tree/pages", "of another database", "Nothing was changed"];
        with_pages(&crashed, swap, || refused(&crashed, verb, 3, &says));
    }
    let path = crashed.data.join("tree").join("double");
    let own = std::fs::read(&path).unwrap();
    std::fs::write(&path, foreign("double")).unwrap();
    for verb in verbs {
        let before = crashed.files();
        refused(&crashed, verb, 3, &["tree/double", "of this database"]);
        assert_kept(&crashed, &before);
    }
    std::fs::write(&path, own).unwrap();
    assert_eq!(crashed.report(&["restart"])["digest"], crashed.digest);
}

#[test]
fn what_does_not_go_with_a_tree_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let by_page = Crashed::new(&dir.path().join("one"), Scheme::Physiological);
    let before = by_page.files();
    for (method, says) in [
        ("log1", "scheme physiological"),
        ("log2", "scheme physiological"),
        ("dl1p", "scheme differential"),
        ("sql1,aries", "apply the same records"),
    ] {
        for dry in [&["restart", "--dry-run"][..], &["restart"]] {
            let way = [dry, &["--method", method]].concat();
            refused(&by_page, &way, 2, &[says]);
        }
    }
    for dry in [&["restart", "--dry-run"][..], &["restart"]] {
        let few = [dry, &["--pool-pages", "7"]].concat();
        refused(&by_page, &few, 2, &["7 pages of memory are too few"]);
    }
    refused(
        &by_page,
        &["restart", "--scratch", "s"],
        2,
        &["--scratch", "--dry-run"],
    );
    let nowhere = ["digest", "--scratch", "/nowhere"];
    refused(&by_page, &nowhere, 1, &["/nowhere"]);
    refused(&by_page, &["repair"], 2, &["tree"]);
    let archive = dir.path().join("archive");
    let others = [
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--archive",
            arg(&archive),
        ][..],
        &["backup", "create", "--archive", arg(&archive)],
    ];
    for verb in others {
        refused(&by_page, verb, 2, &["cannot be archived"]);
    }
    assert_kept(&by_page, &before);
}

#[test]
fn pages_and_the_redo_start_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let crashed = Crashed::new(dir.path(), Scheme::Logical);
    let dump = |what: &[&str]| crashed.report(&[&["dump"], what].concat());
    let anchor = dump(&["anchor"]);
    let tree = &anchor["tree"];
    assert_eq!(tree["page_bytes"], PAGE_BYTES, "{anchor}");
    assert!(tree["redo_start"].as_u64() > Some(0), "{anchor}");
    let images = dump(&["checkpoint"]);
    let newest = images.as_array().unwrap().iter();
    let shown: Vec<_> = newest
        .filter(|image| image["redo_start"].is_u64())
        .collect();
    assert_eq!(shown.len(), 1, "{images}");
    assert_eq!(shown[0]["redo_start"], tree["redo_start"]);
    assert_eq!(shown[0]["checkpoint"], tree["checkpoint"]);

    assert_eq!(dump(&["page", "0"])["kind"], "meta");
    let inner = pages(&crashed, Kind::Inner)[0];
    let inner = dump(&["page", &inner.to_string()]);
    assert_eq!(inner["kind"], "inner", "{inner}");
    let child = inner["rows"][1]["child"].to_string();
    let leaf = dump(&["page", &child]);
    assert_eq!(leaf["kind"], "leaf", "{leaf}");
    assert!(
        leaf["rows"][0]["key"].as_str().unwrap().contains("key"),
        "{leaf}"
    );
    assert_eq!(leaf["low"], inner["rows"][1]["key"]);
    refused(
        &crashed,
        &["dump", "page", "999999"],
        2,
        &["is not in tree/pages"],
    );
    refused(
        &crashed,
        &["dump", "page", "0", "--image", "A"],
        2,
        &["not in images"],
    );
    let flip = |bytes: &mut Vec<u8>| bytes[60] ^= 1;
    with_pages(&crashed, flip, || {
        refused(
            &crashed,
            &["dump", "page", "0"],
            3,
            &["NOT WHOLE", "checksum"],
        );
    });
}
