//! Tests of the contract that every arbiter keeps.

use std::sync::Arc;

use perdura_base::{Error, Uuid};
use perdura_device::{Access, Disk, MemDisk};
use perdura_mirror::sim::SimRegister;
use perdura_mirror::{LockedFile, NumberedFiles, Register, Swap, View};

use crate::view::first;

type Make = fn(&Arc<dyn Disk>, u64) -> Box<dyn Register>;

const KINDS: [Make; 2] = [
    |disk, token| Box::new(NumberedFiles::new(Arc::clone(disk), first().uuid, token)),
    |disk, _| Box::new(LockedFile::new(Arc::clone(disk), first().uuid)),
];

fn numbered(v: u64, writer: u64) -> View {
    View {
        v,
        writer,
        ..first()
    }
}

fn keeps_the_contract(one: &mut dyn Register, other: &mut dyn Register) {
    assert_eq!(one.read().unwrap(), None);
    assert_eq!(one.replace(&numbered(2, 1)).unwrap(), Swap::Lost);
    assert_eq!(one.replace(&numbered(1, 1)).unwrap(), Swap::Done);
    assert_eq!(other.replace(&numbered(1, 2)).unwrap(), Swap::Lost);
    assert_eq!(other.read().unwrap(), Some(numbered(1, 1)));
    for v in 2..=40 {
        let (winner, loser) = (&mut *one, &mut *other);
        assert_eq!(winner.replace(&numbered(v, v)).unwrap(), Swap::Done);
        assert_eq!(loser.replace(&numbered(v, 0)).unwrap(), Swap::Lost);
        assert_eq!(winner.replace(&numbered(v, v)).unwrap(), Swap::Lost);
        assert_eq!(loser.replace(&numbered(v + 2, 0)).unwrap(), Swap::Lost);
        assert_eq!(loser.read().unwrap(), Some(numbered(v, v)));
    }
}

#[test]
fn of_all_that_store_a_view_with_one_number_one_is_told_so() {
    for kind in KINDS {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        keeps_the_contract(kind(&disk, 1).as_mut(), kind(&disk, 2).as_mut());
    }
    let arbiter = SimRegister::new();
    keeps_the_contract(&mut arbiter.clone(), &mut arbiter.clone());
}

#[test]
fn old_views_are_removed_and_other_files_are_not() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    for name in ["view-1", "notes.txt", "view-0000000000000000000x"] {
        disk.create(name, Access::Buffered).unwrap();
    }
    let mut register = NumberedFiles::new(Arc::clone(&disk), first().uuid, 1);
    for v in 1..=30 {
        register.replace(&numbered(v, 1)).unwrap();
    }
    let names = disk.list("").unwrap();
    let views = names
        .iter()
        .filter(|name| name.len() == 25 && !name.ends_with('x'));
    assert_eq!(views.count(), 16);
    assert!(names.iter().any(|name| name == "notes.txt") && names.len() == 19);
}

/// A writer sleeps after it has listed the directory and before it renames its file. In the meantime other writers
/// store newer views. One of them has the number that the sleeping writer wants to use. This view is removed later,
/// because it is too old.
#[test]
fn a_view_that_comes_too_late_is_not_stored() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let mut register = NumberedFiles::new(Arc::clone(&disk), first().uuid, 1);
    for v in 1..=30 {
        register.replace(&numbered(v, 1)).unwrap();
    }
    disk.remove("view-00000000000000000030").unwrap();
    let mut late = NumberedFiles::new(Arc::clone(&disk), first().uuid, 2);
    let newest = disk
        .create("view-00000000000000000031", Access::Buffered)
        .unwrap();
    newest.write_at(0, &numbered(31, 1).encode()).unwrap();
    assert_eq!(late.replace(&numbered(30, 2)).unwrap(), Swap::Lost);
    assert_eq!(late.read().unwrap(), Some(numbered(31, 1)));
}

#[test]
fn damaged_foreign_and_renamed_views_are_refused_by_name() {
    for (kind, name) in KINDS.into_iter().zip(["view-00000000000000000003", "view"]) {
        let with = |bytes: &[u8]| {
            let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
            let file = disk.create(name, Access::Buffered).unwrap();
            file.write_at(0, bytes).unwrap();
            kind(&disk, 1).read().unwrap_err()
        };
        let whole = numbered(3, 1).encode();
        for bytes in [&whole[..whole.len() - 1], &[0; 100], b"", &[7; 20_000]] {
            let error = with(bytes);
            let Error::Corrupt(corruption) = &error else {
                panic!("{error}");
            };
            assert!(
                corruption.file == name && error.to_string().contains("--accept-loss"),
                "{error}"
            );
        }
        let other = View {
            uuid: Uuid([1; 16]),
            ..numbered(3, 1)
        };
        let error = with(&other.encode());
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
    }
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let file = disk
        .create("view-00000000000000000004", Access::Buffered)
        .unwrap();
    file.write_at(0, &numbered(3, 1).encode()).unwrap();
    let error = KINDS[0](&disk, 1).read().unwrap_err();
    assert!(error.to_string().contains("renamed"), "{error}");
}
