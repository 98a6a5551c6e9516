//! A database with typed tables, without the image or the log. The open is refused, the error names the missing part,
//! and nothing is lost.

use std::fs;
use std::path::Path;

use perdura::{Db, LogForm, procedure, table};

table! {
    /// A counter.
    pub struct Counter in "counters", addressing = key { key(id: u64), value: u64 }
}

procedure! {
    /// Adds one to a counter, and returns the sum.
    pub fn count(cx, id: u64) -> u64, on [Counter(id)] {
        if !cx.contains::<Counter>(id)? {
            cx.insert(&Counter { id, value: 0 })?;
        }
        cx.modify::<Counter>(id, |counter| counter.value += 1)?;
        Ok(cx.get::<Counter>(id)?.map_or(0, |counter| counter.value))
    }
}

fn open(path: &Path) -> perdura::Result<Db> {
    Db::builder(path)
        .options(|options| options.partitions = 4)
        .table::<Counter>()
        .procedure(count)
        .log(LogForm::Command)
        .open()
}

fn make(path: &Path) -> Vec<u64> {
    let db = open(path).unwrap();
    let mut values = Vec::new();
    for round in 0..3 {
        for id in 0..10 {
            values.push(db.call(count, (id,)).unwrap());
        }
        if round < 2 {
            db.checkpoint().unwrap();
        }
    }
    db.abandon();
    values.split_off(20)
}

fn values(db: &Db) -> Vec<u64> {
    let all = db.read(|tx| {
        let mut all = Vec::new();
        for id in 0..10 {
            all.push(tx.get::<Counter>(id)?.map_or(0, |counter| counter.value));
        }
        Ok::<_, perdura::Abort>(all)
    });
    all.unwrap()
}

/// Moves the folders with the name prefix `prefix` out of a database. Returns the old and the new paths.
fn aside(path: &Path, prefix: &str) -> Vec<(std::path::PathBuf, std::path::PathBuf)> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let names = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let moved: Vec<_> = names
        .map(|entry| {
            let away = path.with_extension(format!("{}-away", entry.file_name().display()));
            fs::rename(entry.path(), &away).unwrap();
            (entry.path(), away)
        })
        .collect();
    assert!(
        !moved.is_empty(),
        "there is something that begins with {prefix}"
    );
    moved
}

#[test]
fn an_image_without_its_log_is_refused_by_name_and_opens_again_when_the_log_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let expected = make(&path);
    let moved = aside(&path, "log");
    let refused = open(&path).err().unwrap().to_string();
    assert!(refused.contains("log"), "{refused}");
    for (to, from) in moved {
        if to.exists() {
            fs::remove_dir_all(&to).unwrap();
        }
        fs::rename(from, to).unwrap();
    }
    assert_eq!(values(&open(&path).unwrap()), expected);
}

#[test]
fn a_log_without_its_images_is_refused_by_name_and_opens_again_when_one_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let expected = make(&path);
    let moved = aside(&path, "image");
    let refused = open(&path).err().unwrap().to_string();
    assert!(refused.contains("image"), "{refused}");
    for (to, from) in moved {
        if to.exists() {
            fs::remove_dir_all(&to).unwrap();
        }
        fs::rename(from, to).unwrap();
    }
    assert_eq!(values(&open(&path).unwrap()), expected);
}
