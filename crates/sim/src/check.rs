//! The comparison after a restart: everything observable is compared with the model.

use std::sync::Arc;

use fastrand::Rng;
use perdura::Core;
use perdura::types::Source;
use perdura_base::error::Family;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{ImageSlot, PartitionId};
use perdura_device::{CrashProfile, SimDisk};
use perdura_recovery::Anchor;
use perdura_recovery::image::{ImageFile, PageSummer, Places, read_directory};
use perdura_recovery::read_anchor;
use perdura_recovery::{Level, METHODS, Method, Player, Schedule, restart};
use perdura_wal::Direction;

use crate::model::State;
use crate::ops::{is_row, key_bytes, key_number};
use crate::report::Check;
use crate::swarm::{draw_schedule, pick};
use crate::world::{World, dry_run_options};

/// The method with its streams read backwards.
static BACKWARD: Method = Method {
    player: Player::Group(Direction::Backward),
    ..METHODS[0]
};

/// Whether a read of this disk failed on purpose: what it did not return may be taken for damaged.
pub(crate) fn read_failed(disk: &SimDisk) -> bool {
    disk.faults()
        .get("read_failed")
        .is_some_and(|count| *count > 0)
}

/// The anchor as the restart found it, if it did: after a failed read it may have put an image
/// aside.
pub(crate) fn anchor_of(disk: &SimDisk) -> Check<Option<Anchor>> {
    read_anchor(disk.life().as_ref()).map_err(|error| format!("the anchor: {error}"))
}

impl World {
    /// Holds an open engine against the rows that must be there: by a walk over the partitions, by
    /// key, by count, with all elements, and by the slots that are taken.
    pub(crate) fn compare(&self, core: &Core, expected: &State) -> Check {
        let (mut unexplained, mut orphans) = (0, 0);
        for database in 0..self.swarm.databases {
            unexplained += self
                .compare_database(core, database, expected)
                .map_err(|what| format!("database {database}: {what}"))?;
        }
        for partition in (0..core.heap().geometry().partitions).map(PartitionId) {
            orphans += core.heap().lock(partition).orphan_rows();
        }
        // An engine on copies of the disks knows no drafts.
        let own = self
            .engine
            .as_ref()
            .is_some_and(|own| std::ptr::eq(own, core));
        let drafted = if own { self.compare_drafts(core)? } else { 0 };
        if unexplained != orphans + drafted {
            return Err(format!(
                "{unexplained} rows belong to no key, {drafted} to drafts, and {orphans} wait to be \
                 removed"
            ));
        }
        Ok(())
    }

    /// Compares a database and counts the rows that belong to none of its keys.
    fn compare_database(&self, core: &Core, database: u8, expected: &State) -> Check<u64> {
        let table = core.database(database);
        let mut scratch = Vec::new();
        let (mut rows, mut slots) = (0, 0);
        let (mut headers, mut wrong) = (Vec::new(), None);
        for partition in (0..core.heap().geometry().partitions).map(PartitionId) {
            let part = core.heap().lock(partition);
            slots += part.slots_taken(table);
            part.for_each(table, |row| {
                rows += 1;
                let key = row.key();
                let place = key_number(&key).map(|key| (database, key));
                let row_is = place.and_then(|place| expected.get(&place));
                let same = row_is.is_some_and(|row_is| {
                    headers.extend(row.home().map(|home| (home, row_is)));
                    is_row(row, row_is, &mut scratch)
                });
                if !same || core.partition_of(&key) != partition {
                    wrong = Some(String::from_utf8_lossy(&key).into_owned());
                }
            });
        }
        if let Some(key) = wrong {
            return Err(format!("the row of {key} is not the model's"));
        }
        let of_database = expected.range((database, 0)..=(database, u8::MAX));
        let (count, expiring) = of_database.clone().fold((0u64, 0u64), |(rows, due), row| {
            (rows + 1, due + u64::from(row.1.expiry_ms.is_some()))
        });
        if rows != count {
            return Err(format!("{rows} rows, the model has {count}"));
        }
        let ((len, due, found, elements, different), _) = core
            .transact(&core.all_partitions(), |tx| {
                let mut found = 0;
                for (place, row) in of_database.clone() {
                    let got = tx.get(table, &key_bytes(place.1))?;
                    found += u64::from(got.is_some() == row.is_visible(tx.now_ms()));
                }
                let (mut elements, mut different) = (0, None);
                for (home, row) in &headers {
                    let source = Source::Rows(tx.elements(table, *home)?);
                    elements += source.len();
                    if !row.value.is_in(&source) {
                        different = Some((*home, row.value.shape()));
                    }
                }
                let (len, due) = (tx.len(table)?, tx.expiring(table)?);
                Ok((len, due, found, elements, different))
            })
            .map_err(|error: perdura::Error| format!("a read failed: {error}"))?;
        if let Some(different) = different {
            return Err(format!("the elements of {different:?} are not the model's"));
        }
        if (len, due, found) != (count, expiring, count) {
            return Err(format!(
                "{len} rows of which {due} expire by count and {found} by key; the model has \
                 {count}, {expiring}"
            ));
        }
        let explained = rows + elements;
        let unexplained = slots.checked_sub(explained);
        unexplained.ok_or_else(|| format!("{slots} slots are taken by {explained} rows"))
    }

    /// Holds a restart without damage against the model.
    pub(crate) fn verify(&self, core: &Core) -> Check {
        let report = core.report();
        let durable = report.durable_epoch;
        if durable < self.must_survive {
            return Err(format!(
                "epoch {} was acknowledged, the restart kept only {durable}",
                self.must_survive
            ));
        }
        let unusable = |note: &String| note.contains("cannot be used");
        let damaged = report.pages_rebuilt > 0 || report.notes.iter().any(unusable);
        if damaged && !self.disks.iter().any(|disk| read_failed(disk)) {
            return Err(format!(
                "an image is damaged although nothing rots: {:?}",
                report.notes
            ));
        }
        let doubted = |note: &&String| note.ends_with("are valid");
        if let Some(doubted) = report.notes.iter().find(doubted) {
            return Err(format!("not durable before the first block: {doubted}"));
        }
        if report.void_blocks > 0 && core.wal().current().0 < durable + 2 {
            return Err(format!(
                "epoch {} is in a void block and used again",
                durable + 1
            ));
        }
        if self.closed_cleanly.is_some_and(|was| was != report.clean) && !report.created {
            return Err(format!("the report says clean: {}", report.clean));
        }
        let expected = self.model.state_at(durable);
        self.compare(core, &expected)
            .map_err(|what| format!("after the restart at epoch {durable}: {what}"))
    }

    /// As [`verify`](Self::verify), for the engine that is open; the model then forgets what was
    /// not durable.
    pub(crate) fn check_state(&mut self) -> Check {
        self.verify(self.core())?;
        let durable = self.core().report().durable_epoch;
        self.model.restart(durable);
        if let Some(scan) = &mut self.scan {
            scan.restart(self.model.live());
        }
        self.closed_cleanly = Some(false);
        self.must_survive = durable;
        self.evidence = durable;
        self.tally.restarts += 1;
        self.note(durable);
        Ok(())
    }

    /// With the image that a restart used damaged, wholly or in one page, the other one must lead
    /// to the same rows, now and after the next checkpoint; and every level of parallelism to the
    /// same as any other. `before` are the disks as the restart found them.
    pub(crate) fn check_other_ways(&self, before: &[Arc<SimDisk>], choice: u64) -> Check {
        let core = self.core();
        self.check_levels(before, choice)?;
        self.check_images(&before[0])?;
        let Some(anchor) = anchor_of(&before[0])? else {
            let created = self.core().report().created;
            return created.then_some(()).ok_or("the anchor is gone".to_owned());
        };
        let Some(newest) = anchor.newest_image() else {
            return Ok(());
        };
        let folder = perdura_recovery::image::folder(newest);
        let directory = perdura_recovery::image::directory_path(newest, anchor.image(newest).k);
        let both = anchor.images.iter().all(|image| image.is_complete());
        let one_page = choice.is_multiple_of(2) && core.report().pages_fetched > 0;
        if one_page {
            damage_page(&before[0], &format!("{folder}/pages"), choice / 2);
        } else if !before[0].flip(&directory, 40, 3) {
            return Err(format!(
                "{directory} is not there although the anchor names it"
            ));
        }
        let other = match self.open_core(before) {
            Ok(other) => other,
            Err(error) if both => {
                return Err(format!("the older image does not stand in: {error}"));
            }
            Err(error) if error.family() == Family::Corruption => return Ok(()),
            Err(error) => return Err(format!("a damaged image: {error}")),
        };
        // The page may be one that the image does not list.
        if !both && !one_page {
            return Err("the only image is damaged and yet the database started".to_owned());
        }
        let same = |other: &Core, when: &str| {
            if other.report().durable_epoch < core.report().durable_epoch {
                return Err(format!("{when}: acknowledged epochs are missing"));
            }
            self.compare(other, self.model.live())
                .map_err(|what| format!("{when}: {what}"))
        };
        same(&other, "from the older image")?;
        other
            .checkpoint_now()
            .map_err(|error| format!("the repairing checkpoint: {error}"))?;
        before
            .iter()
            .for_each(|disk| disk.crash(CrashProfile::Nothing, choice));
        drop(other);
        let again = self.open_core(before);
        let again = again.map_err(|error| format!("after the repairing checkpoint: {error}"))?;
        same(&again, "after the repairing checkpoint")
    }

    /// Neither the level of parallelism matters, nor the order of the jobs that it allows, nor
    /// the direction in which the log is read.
    fn check_levels(&self, before: &[Arc<SimDisk>], choice: u64) -> Check {
        let mut rng = Rng::with_seed(choice);
        let first = self.dry_run(before, &METHODS[0], Schedule::inline(Level::Four, 0))?;
        for level in Level::ALL {
            let mut schedule = draw_schedule(&mut rng, level);
            if rng.u8(0..16) == 0 {
                schedule = Schedule::new(level, rng.usize(1..=3));
            }
            let method = pick(&mut rng, &[&METHODS[0], &BACKWARD]);
            if self.dry_run(before, method, schedule)? != first {
                let (way, level) = (method.player.direction(), level.number());
                return Err(format!("level {level}, log read {way:?}: other rows"));
            }
        }
        Ok(())
    }

    /// Every page that a complete image lists is there with its checksum and its digest, and the
    /// digests add up to the image's proof.
    fn check_images(&self, disk: &SimDisk) -> Check {
        let anchor = self.core().anchor().get();
        let geometry = *self.core().heap().geometry();
        let disk = disk.life();
        let (summer, places) = (PageSummer::new(), Places::of(&anchor));
        let mut bytes = vec![0; PAGE_BYTES];
        for slot in ImageSlot::ALL {
            if !anchor.image(slot).is_complete() {
                continue;
            }
            let failed = |error: perdura::Error| format!("image {slot}: {error}");
            let listed = read_directory(disk.as_ref(), &anchor, slot, &geometry);
            let listed = listed.map_err(failed)?.directory;
            let file = ImageFile::open(disk.as_ref(), slot, &anchor.uuid).map_err(failed)?;
            let mut proof = 0;
            for id in (0..geometry.partitions).map(PartitionId) {
                for (local, entry) in listed.present(id) {
                    let page = geometry
                        .page_id(id, local)
                        .ok_or("a page beyond the last")?;
                    let place = places.place(page);
                    file.read(place, &mut bytes).map_err(failed)?;
                    let digest = summer.digest(&bytes);
                    if !ImageFile::is_listed(page, &bytes, &entry) || digest != entry.digest {
                        return Err(format!("image {slot}: page {page} is not as listed"));
                    }
                    proof ^= digest;
                }
            }
            if proof != listed.proof() {
                return Err(format!(
                    "image {slot}: the pages do not add up to its proof"
                ));
            }
        }
        Ok(())
    }

    fn dry_run(
        &self,
        disks: &[Arc<SimDisk>],
        method: &'static Method,
        schedule: Schedule,
    ) -> Check<u64> {
        let env = self.env(disks);
        match restart(&dry_run_options(&env, method, schedule)) {
            Ok(Some(restarted)) => perdura::digest::digest(restarted.heap.as_ref())
                .map_err(|error| format!("the digest: {error}")),
            Ok(None) => Ok(0),
            Err(error) => Err(format!("dry run: {error}")),
        }
    }

    /// After damage: an error of the corruption family, or exactly a durable prefix that reaches
    /// at least to `evidence`. Returns the epoch it started at.
    pub(crate) fn check_damaged(
        &self,
        disks: &[Arc<SimDisk>],
        evidence: u64,
        damage: &str,
    ) -> Check<Option<u64>> {
        let core = match self.open_core(disks) {
            Ok(core) => core,
            Err(error) if error.family() == Family::Corruption => return Ok(None),
            Err(error) => return Err(format!("{damage}: {error}")),
        };
        let durable = core.report().durable_epoch;
        if durable < evidence {
            return Err(format!(
                "{damage}: started at epoch {durable}, but {evidence} has later evidence"
            ));
        }
        self.compare(&core, &self.model.state_at(durable))
            .map_err(|what| format!("{damage}: started at epoch {durable}: {what}"))?;
        Ok(Some(durable))
    }
}

/// Flips a byte in one of the pages that hold something.
pub(crate) fn damage_page(disk: &SimDisk, path: &str, choice: u64) {
    let Ok(bytes) = disk.read_all(path) else {
        return;
    };
    let header = to_usize(perdura_recovery::image::PAGES_HEADER_BYTES);
    let pages = bytes.len().saturating_sub(header) / PAGE_BYTES;
    let holds = |page: &usize| {
        let start = header + page * PAGE_BYTES;
        bytes[start..start + 64].iter().any(|byte| *byte != 0)
    };
    let held: Vec<usize> = (0..pages).filter(holds).collect();
    if !held.is_empty() {
        let page = held[to_usize(choice % to_u64(held.len()))];
        disk.flip(path, to_u64(header + page * PAGE_BYTES + 9), 3);
    }
}
