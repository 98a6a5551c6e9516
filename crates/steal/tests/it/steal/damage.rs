//! Random histories over several crashes and restarts, with damage to the newest image. A restart rebuilds the damaged
//! pages from the older image, or uses the older image alone. Restarts by every method, level, number of threads and
//! order of jobs must find the same rows. The open database must have the committed rows. Some of the damage stays for
//! later restarts.

use perdura_base::{ImageSlot, PageId};
use perdura_device::{Access, FaultPlan, File, SimDisk};
use perdura_heap::Geometry;
use perdura_recovery::image::{Places, directory_path, folder};
use perdura_recovery::read_anchor;
use perdura_recovery::{CheckpointProgress, Level, Method, Schedule};
use perdura_steal::{Records, Steal};
use perdura_wal::Scheme;

use crate::steal::harness::{Disks, STEAL_SCHEMES, options, row};
use crate::steal::restarts::{Found, dry_run, methods, placed};
use crate::steal::walk::{Walk, seeds};

const LIVES: u32 = 6;

/// Counts of the effects of damage, over all seeds. The test fails if an effect never occurred. Otherwise it could pass
/// without testing that effect.
#[derive(Default, Debug)]
struct Seen {
    damaged: u32,
    kept: u32,
    rebuilt: u32,
    older: u32,
}

/// Damage to the newest image. If the same damage is applied twice, the image is intact again.
enum Damage {
    Directory(ImageSlot, perdura_base::CkptEpoch),
    /// The damaged pages, and the offset of the flipped byte in each page.
    Pages(ImageSlot, Vec<PageId>, u64),
}

impl Damage {
    /// Chooses damage to the newest image, if the two images are complete.
    fn draw(rng: &mut fastrand::Rng, disks: &Disks) -> Option<Damage> {
        let anchor = read_anchor(disks.env.disks.data.as_ref()).unwrap().unwrap();
        let complete = |image: &perdura_recovery::ImageStatus| image.is_complete();
        if !anchor.images.iter().all(complete) {
            return None;
        }
        let newest = anchor.newest_image()?;
        if rng.bool() {
            return Some(Damage::Directory(newest, anchor.image(newest).k));
        }
        let pages = (0..40).filter(|_| rng.u32(..3) == 0).map(PageId);
        Some(Damage::Pages(newest, pages.collect(), rng.u64(..16384)))
    }

    fn flip(&self, disks: &Disks, geometry: &Geometry) {
        match self {
            Damage::Directory(slot, k) => {
                let path = directory_path(*slot, *k);
                let file = disks.env.disks.data.open(&path, Access::Buffered).unwrap();
                flip_byte(file.as_ref(), 30);
            }
            Damage::Pages(slot, pages, at) => {
                let anchor = read_anchor(disks.env.disks.data.as_ref()).unwrap().unwrap();
                for page in pages {
                    let partition = usize::from(geometry.partition_of_page(*page).0);
                    let disk = &disks.env.disks.images[partition % disks.env.disks.images.len()];
                    let path = format!("{}/pages", folder(*slot));
                    let file = disk.open(&path, Access::Buffered).unwrap();
                    let place = Places::of(&anchor).place(*page);
                    flip_byte(file.as_ref(), place.offset() + at);
                }
            }
        }
    }
}

fn flip_byte(file: &dyn File, at: u64) {
    let mut byte = [0];
    if file.read_at(at, &mut byte).unwrap() == 1 {
        file.write_at(at, &[byte[0] ^ 0x41]).unwrap();
    }
}

fn draw_schedule(rng: &mut fastrand::Rng, scheme: Scheme) -> Schedule {
    let highest = Method::highest_level(scheme).number();
    let level = Level::new(rng.u8(1..=highest)).unwrap();
    let mut schedule = match rng.u32(..4) {
        0 => Schedule::new(level, rng.usize(0..4)),
        _ => Schedule::inline(level, rng.u64(..1000)),
    };
    if rng.bool() {
        schedule.pile_bytes = [0, 1, 5000][rng.usize(..3)];
    }
    schedule
}

struct Run<'a> {
    rng: fastrand::Rng,
    disks: Disks,
    scheme: Scheme,
    methods: Vec<&'static Method>,
    seen: &'a mut Seen,
}

impl Run<'_> {
    fn live(&mut self, walk: &mut Walk, steal: &Steal) {
        for _ in 0..self.rng.usize(1..250) {
            if self.rng.u32(..66) < 47 {
                walk.step(&mut self.rng, steal, 6);
            } else if !steal.checkpoint_is_running() {
                steal.checkpoint_begin().unwrap();
            } else if self.rng.u32(..60) == 0 {
                steal.checkpoint_cancel();
            } else {
                self.advance_checkpoint(steal);
            }
        }
        if self.rng.bool() {
            steal.flush_all().unwrap();
        }
    }

    fn advance_checkpoint(&mut self, steal: &Steal) {
        for _ in 0..self.rng.usize(1..12) {
            if steal.checkpoint_step().unwrap() == CheckpointProgress::Waiting {
                if self.rng.u32(..3) != 0 {
                    return;
                }
                steal.flush_all().unwrap();
            }
        }
    }

    /// Restarts `times` times, each time with a random method and schedule. For each restart, adds a pair to `all`: the
    /// method and schedule as text, and the restart's result.
    fn look(&mut self, times: u32, all: &mut Vec<(String, Result<Found, String>)>) {
        for _ in 0..times {
            let method = self.methods[self.rng.usize(..self.methods.len())];
            let schedule = draw_schedule(&mut self.rng, self.scheme);
            let found = dry_run(&self.disks, method, schedule);
            let noted = |what: &str| match &found {
                Ok(found) => u32::from(found.report.notes.iter().any(|note| note.contains(what))),
                Err(_) => 0,
            };
            self.seen.rebuilt += noted("rebuilt");
            self.seen.older += noted("cannot be used");
            all.push((format!("{} {schedule:?}", method.name), found));
        }
    }

    fn run(&mut self, records: Records) -> Result<(), String> {
        let mut options = options(self.scheme, records);
        let mut walk = Walk::default();
        let mut steal = Steal::create(self.disks.env.clone(), options.clone()).unwrap();
        for life in 0..LIVES {
            let geometry = *steal.heap().geometry();
            self.live(&mut walk, &steal);
            let acked = walk.end_of_life(&steal);
            drop(steal);
            let mut all = Vec::new();
            self.look(3, &mut all);
            if let Some(damage) = Damage::draw(&mut self.rng, &self.disks) {
                self.seen.damaged += 1;
                damage.flip(&self.disks, &geometry);
                self.look(5, &mut all);
                if self.rng.u32(..3) == 0 {
                    self.seen.kept += 1;
                } else {
                    damage.flip(&self.disks, &geometry);
                }
            }
            options.schedule = draw_schedule(&mut self.rng, self.scheme);
            options.method = self.methods[self.rng.usize(..self.methods.len())].name;
            let how = format!("life {life}, {} {:?}", options.method, options.schedule);
            let back = Steal::open(self.disks.env.clone(), options.clone());
            let back = back.map_err(|error| format!("{how}: {error}"))?;
            steal = back.expect("there is a database");
            let checked = walk.check(&steal, &acked);
            checked.map_err(|wrong| format!("{how}: {wrong}"))?;
            let expected = (steal.digest(), placed(steal.heap()));
            for (what, found) in all {
                let found = found.map_err(|error| format!("life {life}, {what}: {error}"))?;
                if (found.digest, found.placed) != expected {
                    return Err(format!("life {life}, {what}: another state than {how}"));
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_damaged_image_is_made_good_by_the_older_one_and_the_log_in_every_life() {
    let mut seen = Seen::default();
    for seed in 0..seeds(20) {
        for scheme in STEAL_SCHEMES {
            let mut rng = fastrand::Rng::with_seed(seed);
            let disks = Disks::new(rng.usize(1..6), rng.usize(1..4));
            let records = [Records::Full, Records::Sparse][usize::from(seed % 2 == 1)];
            let mut run = Run {
                rng,
                disks,
                scheme,
                methods: methods(scheme),
                seen: &mut seen,
            };
            let end = run.run(records);
            assert_eq!(end, Ok(()), "seed {seed} {scheme:?} {records:?}");
        }
    }
    let all = [seen.damaged, seen.kept, seen.rebuilt, seen.older];
    assert!(all.iter().all(|times| *times > 0), "{seen:?}");
}

/// If a disk has one partition, its chunks lie side by side. So one read of several pages can span two chunks. If such
/// a read fails, the restart reads the pages again one at a time. An earlier version computed the pages' places from
/// the page numbers. At the end of a chunk, these numbers are not consecutive, so the places were wrong. The restart
/// regarded intact pages as damaged.
#[test]
fn pages_of_a_run_that_cannot_be_read_at_once_are_read_again_from_their_places() {
    let mut disks = Disks::new(1, 2);
    let images = [SimDisk::new(1), SimDisk::new(2)];
    disks.env.disks.images = images.each_ref().map(|disk| disk.life() as _).to_vec();
    let steal = Steal::create(disks.env.clone(), options(Scheme::Dl1p, Records::Full)).unwrap();
    assert_eq!(steal.fill((0..300).map(row)).unwrap(), 300);
    steal.checkpoint_now().unwrap();
    steal.checkpoint_now().unwrap();
    drop(steal);
    let method = methods(Scheme::Dl1p)[0];
    for nth in 1..20 {
        images[0].set_plan(FaultPlan {
            fail_read_at: Some(nth),
            ..FaultPlan::default()
        });
        // If the failed read was of a header or a directory, the older image is used.
        let found = dry_run(&disks, method, Schedule::inline(Level::Two, 0)).unwrap();
        let rebuilt = found
            .report
            .notes
            .iter()
            .find(|note| note.contains("rebuilt"));
        assert_eq!(rebuilt, None, "read {nth}");
    }
    // The first three reads that can fail are of headers: two when the options are checked, one when the image is
    // loaded.
    assert!(
        images[0].faults()["read_failed"] > 3,
        "the pages were not reached"
    );
}
