//! Every file of a small archive, damaged in every way. Each moment is then restored as it was, or refused by an error
//! that names a file or an epoch. An older state is never returned in silence.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_archive::Role;
use perdura_archive::{Merger, MergerOptions, Store, Writer};
use perdura_base::error::Family;
use perdura_base::{Epoch, Error, Uuid};
use perdura_device::{Access, Disk, SimDisk};
use perdura_page::RegionDigest;
use perdura_restore::RestorePlan;

use crate::lost_disk::{World, carry_out, values};

/// The size of a sector, bytes.
const SECTOR: u64 = 512;
/// A file is cut at this many places at most.
const CUTS_MAX: u64 = 40;
/// The number of bits that are flipped in a file, one at a time.
const FLIPS: u64 = 8;

type Values = BTreeMap<usize, Vec<u8>>;

/// An archive, and the states that it has.
struct Whole {
    archive: Arc<SimDisk>,
    uuid: Uuid,
    moments: Vec<(Epoch, Values)>,
}

/// Counts of the restores.
#[derive(Debug, Default)]
struct Seen {
    restored: u64,
    refused: u64,
}

/// Makes an archive with two backups, merged runs and new runs.
fn whole() -> Whole {
    let mut rng = fastrand::Rng::with_seed(43);
    let mut world = World::new(43);
    let mut ends = Vec::new();
    for round in 0..9 {
        if round % 4 == 1 {
            world.back_up();
        }
        for _ in 0..3 {
            world.set_any(&mut rng);
            world.flush();
        }
        world.archive();
        ends.push(world.changes.last().expect("changes").epoch);
    }
    let writer = Writer {
        role: Role::Agent,
        life: 5,
    };
    let opened = Store::open(world.archive.life(), &world.uuid, writer, None);
    let (store, _) = opened.expect("it is whole");
    let options = MergerOptions {
        fan_in: 3,
        ..MergerOptions::default()
    };
    let digest = Arc::new(RegionDigest::new());
    let mut merger = Merger::new(store, options, digest).expect("a lease");
    assert!(!merger.run().expect("it is whole").is_empty());
    let last = world.store().expect("it is whole").manifest().held().0;
    let states = ends.into_iter().chain([last]);
    Whole {
        moments: states.map(|end| (end, world.state(end))).collect(),
        archive: Arc::clone(&world.archive),
        uuid: world.uuid,
    }
}

fn copy(disk: &Arc<SimDisk>) -> Arc<SimDisk> {
    let copy = SimDisk::new(0);
    copy.restore(&disk.snapshot());
    copy
}

fn restored(disk: &Arc<SimDisk>, uuid: &Uuid, at: Option<Epoch>) -> Result<(Epoch, Values), Error> {
    let store = Store::read_only(disk.life(), uuid)?;
    let plan = RestorePlan::from_archive(&store, at, |_, _| {})?;
    let (disks, report) = carry_out(&plan)?;
    Ok((report.epoch, values(&disks.open()?)))
}

impl Whole {
    /// Restores every moment from a damaged archive.
    fn check(&self, disk: &Arc<SimDisk>, damage: &str, seen: &mut Seen) {
        let last = self.moments.last().expect("a moment");
        let moments = self
            .moments
            .iter()
            .map(|(epoch, state)| (Some(*epoch), state));
        for (at, expected) in moments.chain([(None, &last.1)]) {
            match restored(disk, &self.uuid, at) {
                Ok((epoch, found)) => {
                    assert_eq!(epoch, at.unwrap_or(last.0), "{damage}, at {at:?}");
                    assert_eq!(&found, expected, "{damage}, at {at:?}");
                    seen.restored += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert_eq!(
                        error.family(),
                        Family::Corruption,
                        "{damage}, at {at:?}: {text}"
                    );
                    let names = ["run-", "backup-", "manifest-", "epoch"];
                    let is_named = names.iter().any(|name| text.contains(name));
                    assert!(is_named, "{damage}, at {at:?}: {text}");
                    seen.refused += 1;
                }
            }
        }
    }

    /// Returns the archive's files and their lengths.
    fn files(&self) -> Vec<(String, u64)> {
        let files = self.archive.files().into_iter();
        let mut files: Vec<(String, u64)> = files.filter(|(_, len)| *len > 0).collect();
        files.sort_unstable();
        files
    }
}

/// Replaces the content of a file.
fn put(disk: &Arc<SimDisk>, path: &str, bytes: &[u8]) {
    let disk: Arc<dyn Disk> = disk.life();
    if disk.open(path, Access::Buffered).is_ok() {
        disk.remove(path).expect("a file");
    }
    let file = disk.create(path, Access::Buffered).expect("a file");
    file.write_at(0, bytes).expect("a file");
    file.sync().expect("a file");
}

#[test]
fn every_moment_is_right_or_refused_whatever_one_file_is() {
    let whole = whole();
    let mut seen = Seen::default();
    whole.check(&copy(&whole.archive), "nothing", &mut seen);
    assert_eq!(seen.refused, 0, "it is whole");
    let files = whole.files();
    let mut rng = fastrand::Rng::with_seed(7);
    for (nth, (path, len)) in files.iter().enumerate() {
        let bytes = whole.archive.read_all(path).expect("a file");
        let damaged = |how: &str, seen: &mut Seen, damage: &dyn Fn(&Arc<SimDisk>)| {
            let disk = copy(&whole.archive);
            damage(&disk);
            whole.check(&disk, &format!("{path} {how}"), seen);
        };
        damaged("removed", &mut seen, &|disk| {
            disk.life().remove(path).expect("a file");
        });
        let cuts = len.div_ceil(SECTOR);
        for cut in (0..cuts).step_by(usize::try_from(cuts.div_ceil(CUTS_MAX).max(1)).unwrap()) {
            damaged(&format!("cut at sector {cut}"), &mut seen, &|disk| {
                disk.truncate_file(path, cut * SECTOR);
            });
        }
        for _ in 0..FLIPS {
            let (byte, bit) = (rng.u64(..*len), rng.u8(..8));
            damaged(&format!("flipped at {byte}.{bit}"), &mut seen, &|disk| {
                assert!(disk.flip(path, byte, bit));
            });
        }
        damaged("doubled", &mut seen, &|disk| {
            put(disk, path, &[&bytes[..], &bytes[..]].concat());
        });
        // Another file of the same kind: an older version of a manifest, or another run or backup.
        let kind = |path: &str| path.split('-').next().map(str::to_owned);
        let other = files[..nth]
            .iter()
            .rev()
            .find(|(other, _)| kind(other) == kind(path));
        if let Some((other, _)) = other {
            let older = whole.archive.read_all(other).expect("a file");
            damaged("replaced by an older one", &mut seen, &|disk| {
                put(disk, path, &older)
            });
            damaged("swapped with an older one", &mut seen, &|disk| {
                put(disk, path, &older);
                put(disk, other, &bytes);
            });
        }
    }
    println!("{seen:?}");
    assert!(seen.restored > 1000 && seen.refused > 100, "{seen:?}");
}
