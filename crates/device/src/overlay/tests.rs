//! Checks that an overlay works as a disk, changes nothing on the disk below, and does real I/O for its writes.

use std::sync::Arc;

use fastrand::Rng;
use perdura_base::limits::SECTOR_BYTES;

use super::*;
use crate::path::bytes_u64;
use crate::{
    AlignedBuf, FileDisk, MemDisk, ModelDisk, SimDisk, SystemClock, conformance, read_exact_at,
};

fn over(below: Arc<dyn Disk>) -> OverlayDisk {
    OverlayDisk::new(below, &MemDisk::new(), "").unwrap()
}

/// Collects all directories and files of a disk in `found`.
fn everything(disk: &dyn Disk, dir: &str, found: &mut BTreeMap<String, Option<Vec<u8>>>) {
    for name in disk.list(dir).unwrap() {
        let path = if dir.is_empty() {
            name
        } else {
            format!("{dir}/{name}")
        };
        match disk.open(&path, Access::Buffered) {
            Ok(file) => {
                let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
                read_exact_at(&*file, 0, &mut bytes).unwrap();
                found.insert(path, Some(bytes));
            }
            Err(_) => {
                everything(disk, &path, found);
                found.insert(path, None);
            }
        }
    }
}

fn snapshot(disk: &dyn Disk) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    everything(disk, "", &mut found);
    found
}

#[test]
fn an_overlay_is_a_disk() {
    let make = || -> Arc<dyn Disk> {
        let below = Arc::new(MemDisk::new());
        Arc::new(OverlayDisk::new(Arc::clone(&below) as _, &*below, "").unwrap())
    };
    conformance::disk(make);
    conformance::durable_queue(make);
    conformance::disk(|| Arc::new(over(SimDisk::new(1))));
}

#[test]
fn an_overlay_over_real_files_is_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    let make = || -> Arc<dyn Disk> {
        next.set(next.get() + 1);
        let below = FileDisk::new(&dir.path().join(next.get().to_string())).unwrap();
        below.make_dir("d").unwrap();
        let scratch = FileDisk::new(dir.path()).unwrap();
        let _ = scratch.make_dir("scratch");
        let below = FileDisk::new(&dir.path().join(format!("{}x", next.get()))).unwrap();
        Arc::new(OverlayDisk::new(Arc::new(below), &scratch, "scratch").unwrap())
    };
    conformance::disk(make);
    conformance::durable_queue(make);
    assert!(FileDisk::at(dir.path()).list("scratch").unwrap().is_empty());
}

#[test]
fn direct_access_goes_around_the_cache_where_the_disk_can() {
    let dir = tempfile::tempdir().unwrap();
    let below = Arc::new(FileDisk::new(dir.path()).unwrap());
    let mut page = AlignedBuf::zeroed(4 * SECTOR_BYTES);
    page.fill(1);
    let plain = below.create("f", Access::Direct).unwrap();
    plain.write_at(0, &page).unwrap();
    let overlay = OverlayDisk::new(Arc::clone(&below) as _, &*below, "").unwrap();
    let file = overlay.open("f", Access::Direct).unwrap();
    assert_eq!(file.is_direct(), plain.is_direct());
    page[..SECTOR_BYTES].fill(2);
    file.write_at(bytes_u64(SECTOR_BYTES), &page[..2 * SECTOR_BYTES])
        .unwrap();
    file.write_at(7, b"odd").unwrap();
    file.sync().unwrap();
    assert_eq!(file.is_direct(), plain.is_direct(), "no access was refused");
    assert_eq!(file.read_at(0, &mut page).unwrap(), 4 * SECTOR_BYTES);
    let firsts: Vec<u8> = page.chunks(SECTOR_BYTES).map(|part| part[0]).collect();
    assert_eq!(firsts, [1, 2, 1, 1]);
    assert_eq!(&page[6..11], b"\x01odd\x01");
    plain.read_at(0, &mut page).unwrap();
    assert!(
        page.iter().all(|byte| *byte == 1),
        "the file below is as it was"
    );
}

/// Makes a random call. On disks with the same history, the same state of `rng` gives the same call.
fn act(disk: &dyn Disk, open: &mut Vec<Arc<dyn File>>, rng: &mut Rng) -> String {
    const PATHS: [&str; 7] = ["a", "b", "d/a", "d/b", "d/e/a", "d", "g/a"];
    let path = PATHS[rng.usize(..PATHS.len())];
    let other = PATHS[rng.usize(..PATHS.len())];
    let access = [Access::Buffered, Access::Direct][rng.usize(..2)];
    let kind = |result: Result<()>| match result {
        Ok(()) => String::from("done"),
        Err(Error::Io { source, .. }) => format!("{:?}", source.kind()),
        Err(error) => panic!("{error}"),
    };
    let mut keep = |file: Result<Arc<dyn File>>| file.map(|file| open.push(file));
    match rng.u8(..20) {
        0 => return kind(keep(disk.create(path, access))),
        1..4 if path != "d" => return kind(keep(disk.open(path, access))),
        4 if other != "d" => return kind(disk.rename(path, other)),
        5 => return kind(disk.publish(path, other)),
        6 => return kind(disk.remove(path)),
        7 => {
            return format!(
                "{:?}",
                disk.list(["", "d", "d/e", "g"][rng.usize(..4)]).ok()
            );
        }
        8 if rng.u8(..8) == 0 => return kind(disk.make_dir(["g", "d/e"][rng.usize(..2)])),
        _ => {}
    }
    let Some(file) = open.get(rng.usize(..8)) else {
        return String::new();
    };
    let offset = if rng.bool() {
        rng.u64(..5) * 4096
    } else {
        rng.u64(..20_000)
    };
    let bytes = if rng.bool() {
        rng.usize(..4) * 4096
    } else {
        rng.usize(..9000)
    };
    match rng.u8(..12) {
        0 => kind(file.set_len(offset)),
        1 => kind(file.allocate(offset)),
        2 => kind(file.sync()),
        3..8 if bytes > 0 => kind(file.write_at(offset, &vec![rng.u8(..); bytes])),
        _ => {
            let mut buf = vec![0; bytes];
            let got = file.read_at(offset, &mut buf).unwrap();
            format!("{} {got} {:?}", file.len().unwrap(), &buf[..got])
        }
    }
}

fn filled(rng: &mut Rng) -> Arc<MemDisk> {
    let disk = Arc::new(MemDisk::new());
    disk.make_dir("d/e").unwrap();
    for path in ["a", "d/a", "d/e/a"] {
        let file = disk.create(path, Access::Buffered).unwrap();
        let bytes: Vec<u8> = (0..rng.usize(1..20_000)).map(|_| rng.u8(..)).collect();
        file.write_at(0, &bytes).unwrap();
    }
    disk
}

#[test]
fn an_overlay_shows_what_a_changed_copy_would_and_nothing_below_changes() {
    for seed in 0..300 {
        let below = filled(&mut Rng::with_seed(seed));
        let before = snapshot(&*below);
        let copy = filled(&mut Rng::with_seed(seed));
        let overlay = OverlayDisk::new(Arc::clone(&below) as _, &*below, "d").unwrap();
        let mut rng = Rng::with_seed(seed);
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for step in 0..300 {
            let mut same = rng.clone();
            let got = act(&overlay, &mut here, &mut rng);
            let want = act(&*copy, &mut there, &mut same);
            assert_eq!(got, want, "seed {seed}, step {step}");
        }
        assert_eq!(snapshot(&overlay), snapshot(&*copy), "seed {seed}");
        assert_eq!(snapshot(&*below), before, "seed {seed}");
    }
}

#[test]
fn what_is_written_is_written_once_and_read_from_there() {
    let clock = Arc::new(SystemClock::new());
    let timed = |disk: MemDisk| {
        // Each byte takes a nanosecond of the device's time, but no thread waits.
        Arc::new(ModelDisk::new(
            Arc::new(disk),
            1000,
            0,
            clock.clone(),
            |_| (),
        ))
    };
    let plain = MemDisk::new();
    let file = plain.create("f", Access::Buffered).unwrap();
    file.write_at(0, &[1; 64 << 10]).unwrap();
    let (below, scratch) = (timed(plain), timed(MemDisk::new()));
    let overlay = OverlayDisk::new(Arc::clone(&below) as _, &*scratch, "").unwrap();
    let file = overlay.open("f", Access::Buffered).unwrap();
    let paid = || (below.busy_ns(), scratch.busy_ns());
    let mut page = vec![2; 8192];
    file.read_at(8192, &mut page).unwrap();
    assert_eq!(paid(), (8192, 0));
    file.write_at(8192, &page).unwrap();
    assert_eq!(paid(), (8192, 8192));
    file.read_at(8192, &mut page).unwrap();
    assert_eq!(paid(), (8192, 2 * 8192));
    file.read_at(4096, &mut page).unwrap();
    assert_eq!(
        paid(),
        (8192 + 4096, 2 * 8192 + 4096),
        "half of it lies below"
    );
    file.write_at(0, &[3; 100]).unwrap();
    assert_eq!(
        paid(),
        (8192 + 2 * 4096, 3 * 8192),
        "the rest of a block is read first"
    );
}

#[test]
fn a_scratch_file_of_an_earlier_process_goes_and_a_new_one_has_no_name() {
    let disk = Arc::new(MemDisk::new());
    disk.make_dir("d").unwrap();
    let name = format!("d/overlay.scratch.{}", std::process::id());
    let left = disk.create(&name, Access::Buffered).unwrap();
    left.write_at(0, b"left").unwrap();
    let overlay = OverlayDisk::new(Arc::clone(&disk) as _, &*disk, "d").unwrap();
    assert!(disk.list("d").unwrap().is_empty());
    assert!(overlay.list("d").unwrap().is_empty());
    let refused = OverlayDisk::new(Arc::clone(&disk) as _, &*disk, "no")
        .err()
        .unwrap();
    assert!(refused.is_not_found(), "{refused}");
}

#[test]
fn a_lock_below_is_taken_there() {
    let disk = Arc::new(MemDisk::new());
    drop(disk.lock("LOCK").unwrap());
    let overlay = over(Arc::clone(&disk) as _);
    let held = overlay.lock("LOCK").unwrap();
    assert!(matches!(
        disk.lock("LOCK").err(),
        Some(Error::Locked { .. })
    ));
    drop(held);
    let held = disk.lock("LOCK").unwrap();
    assert!(matches!(
        overlay.lock("LOCK").err(),
        Some(Error::Locked { .. })
    ));
    drop(held);
    overlay.lock("LOCK").unwrap();
}

#[test]
fn writers_of_parts_of_a_block_lose_nothing() {
    let overlay = over(Arc::new(MemDisk::new()));
    let file = overlay.create("f", Access::Buffered).unwrap();
    std::thread::scope(|threads| {
        for part in 0..8u8 {
            let file = &file;
            threads.spawn(move || {
                for round in 0..50u64 {
                    let at = round * 4096 + u64::from(part) * 512;
                    file.write_at(at, &[part + 1; 512]).unwrap();
                }
            });
        }
    });
    let mut bytes = vec![0; 50 * 4096];
    read_exact_at(&*file, 0, &mut bytes).unwrap();
    let parts = bytes.chunks(512).enumerate();
    for (at, part) in parts {
        assert!(
            part.iter().all(|byte| usize::from(*byte) == at % 8 + 1),
            "part {at}"
        );
    }
}

#[test]
fn a_full_scratch_disk_is_an_error_and_what_was_there_stays() {
    let below = Arc::new(MemDisk::new());
    let file = below.create("f", Access::Buffered).unwrap();
    file.write_at(0, &[1; 8192]).unwrap();
    let scratch = SimDisk::new(1);
    scratch.set_plan(crate::FaultPlan {
        capacity_bytes: Some(4096),
        ..crate::FaultPlan::default()
    });
    let overlay = OverlayDisk::new(below, &*scratch, "").unwrap();
    let file = overlay.open("f", Access::Buffered).unwrap();
    let refused = file.write_at(0, &[2; 8192]).unwrap_err();
    assert!(refused.is_disk_full(), "{refused}");
    let mut bytes = vec![0; 8192];
    read_exact_at(&*file, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 8192]);
}
