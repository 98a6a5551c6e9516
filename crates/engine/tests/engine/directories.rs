//! A database over several directories.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perdura::{Db, Error, Options};

use crate::with_threads::set;

/// Returns options with images on two disks and log streams on two others.
fn spread(root: &Path) -> Options {
    let dirs = |names: [&str; 2]| -> Vec<PathBuf> { names.map(|name| root.join(name)).to_vec() };
    Options {
        segment_bytes: 1 << 20,
        partitions: 4,
        streams: 2,
        lock_wait: Duration::from_millis(100),
        log_dirs: dirs(["log-0", "log-1"]),
        image_dirs: dirs(["images-0", "images-1"]),
        ..Options::new(root.join("data"))
    }
}

fn refusal(options: Options) -> Error {
    Db::open(options).map(drop).expect_err("it is refused")
}

fn pages_bytes(dir: &Path) -> u64 {
    let file = |slot| dir.join(slot).join("pages").metadata();
    ["image-a", "image-b"]
        .map(|slot| file(slot).expect("a pages file").len())
        .iter()
        .sum()
}

#[test]
fn images_spread_over_disks_come_back_and_a_disk_that_is_missing_is_named() {
    let root = tempfile::tempdir().unwrap();
    let options = spread(root.path());
    let db = Db::open(options.clone()).unwrap();
    for i in 0..2000u32 {
        let ticket = set(&db, &i.to_le_bytes(), &[7; 100]);
        if i % 1000 == 999 {
            db.wait(ticket).unwrap();
            db.checkpoint().unwrap();
        }
    }
    db.wait(set(&db, b"after the checkpoint", b"value"))
        .unwrap();
    let digest = db.digest().unwrap();
    db.abandon();
    for dir in &options.image_dirs {
        assert!(pages_bytes(dir) > 2 * 4096, "{} holds pages", dir.display());
    }
    assert!(!root.path().join("data/image-a/pages").exists());

    let mut swapped = options.clone();
    swapped.image_dirs.reverse();
    let why = refusal(swapped).to_string();
    assert!(why.contains("is given as image directory 0"), "{why}");
    let one = Options {
        image_dirs: Vec::new(),
        ..options.clone()
    };
    let why = refusal(one).to_string();
    assert!(
        why.contains("has 2 image director(ies), but 1 would be used"),
        "{why}"
    );
    let (away, gone) = (root.path().join("away"), &options.image_dirs[1]);
    std::fs::rename(gone, &away).unwrap();
    let why = refusal(options.clone()).to_string();
    assert!(
        why.contains("image disk 1") && why.contains("--image-dir"),
        "{why}"
    );
    assert!(!gone.exists(), "a directory that is missing is not made");
    std::fs::rename(&away, gone).unwrap();

    let db = Db::open(options).unwrap();
    assert_eq!(db.digest().unwrap(), digest);
    db.close().unwrap();
}

/// Pages on a separate disk may belong to another database, with its anchor elsewhere.
#[test]
fn a_new_database_does_not_take_the_image_disk_of_another() {
    let root = tempfile::tempdir().unwrap();
    let first = spread(&root.path().join("first"));
    Db::open(first.clone()).unwrap().close().unwrap();
    let mut second = spread(&root.path().join("second"));
    second.image_dirs.clone_from(&first.image_dirs);
    let why = refusal(second.clone());
    assert!(matches!(why, Error::Foreign { .. }), "{why}");
    let db = Db::open(first).unwrap();
    let why = refusal(second);
    assert!(matches!(why, Error::Locked { .. }), "{why}");
    db.close().unwrap();
}

/// A list of image disks that names one directory twice must be refused at once. Otherwise the database would be made,
/// but every later start would be refused.
#[test]
fn a_directory_that_is_named_for_two_image_disks_is_refused_before_anything_is_made() {
    let root = tempfile::tempdir().unwrap();
    let mut options = spread(root.path());
    options.image_dirs[1] = options.image_dirs[0].join("../images-0");
    std::fs::create_dir(&options.image_dirs[0]).unwrap();
    let why = refusal(options.clone());
    assert!(matches!(why, Error::Usage(_)), "{why}");
    assert!(why.to_string().contains("twice"), "{why}");
    options.image_dirs[1] = root.path().join("images-1");
    Db::open(options).unwrap().close().unwrap();
}

/// The data directory may also be an image disk, even the only one.
#[test]
fn the_data_directory_can_be_an_image_disk() {
    let root = tempfile::tempdir().unwrap();
    let mut options = spread(root.path());
    options.image_dirs[1].clone_from(&options.data);
    let db = Db::open(options.clone()).unwrap();
    db.wait(set(&db, b"key", b"value")).unwrap();
    db.close().unwrap();
    assert!(!options.data.join("LOCK.i01").exists());
    Db::open(options).unwrap().close().unwrap();
}

#[test]
fn an_image_directory_for_a_database_whose_images_are_in_its_data_directory_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let with = Options {
        image_dirs: vec![root.path().join("images")],
        partitions: 4,
        segment_bytes: 1 << 20,
        ..Options::new(root.path().join("data"))
    };
    let without = Options {
        image_dirs: Vec::new(),
        ..with.clone()
    };
    Db::open(without.clone()).unwrap().close().unwrap();
    let why = refusal(with.clone()).to_string();
    assert!(why.contains("without --image-dir"), "{why}");
    assert!(!with.image_dirs[0].exists(), "and nothing is made");
    Db::open(without).unwrap().close().unwrap();
}

#[test]
fn an_image_directory_that_is_not_named_is_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let with = Options {
        image_dirs: vec![root.path().join("images")],
        partitions: 4,
        segment_bytes: 1 << 20,
        ..Options::new(root.path().join("data"))
    };
    Db::open(with.clone()).unwrap().close().unwrap();
    let without = Options {
        image_dirs: Vec::new(),
        ..with
    };
    let why = refusal(without).to_string();
    assert!(why.contains("--image-dir"), "{why}");
}

#[test]
fn who_waits_for_a_lock_says_at_once_for_which_process_and_how_long() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        lock_wait: Duration::from_millis(100),
        ..Options::new(root.path().join("data"))
    };
    let first = Db::open(options.clone()).unwrap();
    let lines = RefCell::new(Vec::new());
    let tell = |line: &str| lines.borrow_mut().push(String::from(line));
    let refused = perdura::files::open_telling(&options, &tell);
    assert!(matches!(refused, Err(Error::Locked { .. })));
    let said = lines.take();
    let [line] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(line.contains("0.1 s at most"), "{line}");
    assert!(
        line.contains("process") && line.contains("locked by process"),
        "{line}"
    );
    // The test releases the lock as soon as the wait is reported.
    let patient = Options {
        lock_wait: Duration::from_secs(60),
        ..options
    };
    let held = RefCell::new(Some(first));
    let free = |line: &str| {
        tell(line);
        if let Some(db) = held.take() {
            db.close().unwrap();
        }
    };
    perdura::files::open_telling(&patient, &free).expect("it is free");
    let said = lines.take();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].contains("free after"), "{said:?}");
}
