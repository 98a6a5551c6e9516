//! The pages of key-addressed tables, as of the newest cut that serves a moment.
//!
//! A backup and its *increments* are cuts of these tables: each has all their pages as of one instant between
//! transactions. An increment lists its pages and stores those that changed since the cut before. The other pages are in
//! older increments, or in the backup. A restore takes all of them as of one cut, because the ordered frames after a cut
//! apply to no other state.
//!
//! # Invariants
//! * All pages of key-addressed tables in a restored image are of one cut.
//! * A page has the checksum that the cut lists, whichever file holds it.
//!
//! # Source
//! Ours. Paper 001 (*Rethinking Main Memory OLTP Recovery*) takes a whole snapshot for each cut.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result};

use crate::backup::{Backup, BackupHeader, BackupId, PageEntry, Section, UsedPage, is_keyed};
use crate::manifest::{Manifest, ObjectId};

/// A page of a plan, and its place in the file that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedPage {
    /// The entry of the page.
    pub entry: PageEntry,
    /// The index of the file, see [`Keyed::file`]. 0: the backup.
    pub file: usize,
    /// The index of the page in the file's section.
    pub nth: usize,
}

/// The pages of one partition that a restore begins with.
#[derive(Debug, Clone, Default)]
pub struct PlannedSection {
    /// The partition's sequence number at the cut. `None`: the pages show different instants.
    pub pseq: Option<u64>,
    /// The pages in ascending order of their local index.
    pub pages: Vec<PlannedPage>,
    /// The sidecar of the backup. Empty: it does not describe the pages.
    pub sidecar: Vec<u8>,
}

impl PlannedSection {
    /// Returns the section of a backup alone.
    #[must_use]
    pub fn of(section: Section) -> PlannedSection {
        let of_backup = |(nth, entry)| PlannedPage {
            entry,
            file: 0,
            nth,
        };
        PlannedSection {
            pseq: section.pseq,
            pages: section
                .pages
                .into_iter()
                .enumerate()
                .map(of_backup)
                .collect(),
            sidecar: section.sidecar,
        }
    }
}

/// A cut after the backup of a plan.
#[derive(Clone)]
pub struct Keyed {
    cut: Arc<Backup>,
    /// The increments that hold pages of the cut, without the backup.
    files: Vec<Arc<Backup>>,
    /// The pages of the cut that the backup does not hold.
    pages: u64,
}

impl Keyed {
    /// Opens a cut, and the increments that hold its pages. `base` is the backup that it continues. `open` opens an
    /// increment.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a needed increment is damaged or is not in the archive; errors of the disk.
    pub fn open(
        open: impl Fn(BackupId) -> Result<Arc<Backup>>,
        manifest: &Manifest,
        base: &BackupHeader,
        id: BackupId,
    ) -> Result<Keyed> {
        let cut = open(id)?;
        check_base(&cut, base)?;
        let (mut holders, mut pages): (Vec<CkptEpoch>, _) = (Vec::new(), 0);
        for partition in (0..base.chunks.partitions).map(PartitionId) {
            let (_, used) = cut.used(partition)?;
            let held_later = used.iter().filter(|page| page.holder != base.id.k);
            pages += to_u64(held_later.count());
            holders.extend(used.iter().map(|page| page.holder));
            holders.sort_unstable();
            holders.dedup();
        }
        let mut files = Vec::new();
        for holder in holders.into_iter().filter(|holder| *holder != base.id.k) {
            if holder == id.k {
                files.push(Arc::clone(&cut));
                continue;
            }
            let of_holder = manifest.increments().find(|one| one.k == holder);
            let file = match of_holder {
                Some(of_holder) => open(of_holder)?,
                None => return Err(missing(&cut, holder)),
            };
            check_base(&file, base)?;
            files.push(file);
        }
        assert!(
            files.is_sorted_by_key(|file| file.header().id.k),
            "older increments come first"
        );
        assert!(
            files.iter().all(|file| file.header().id.k <= id.k),
            "no later file holds a page"
        );
        Ok(Keyed { cut, files, pages })
    }

    /// Returns the header of the cut's increment.
    #[must_use]
    pub fn header(&self) -> &BackupHeader {
        self.cut.header()
    }

    /// Returns the file with an index above 0. The backup has the index 0.
    ///
    /// # Panics
    /// If no page of a section has this index.
    #[must_use]
    pub fn file(&self, index: usize) -> &Arc<Backup> {
        &self.files[index - 1]
    }

    /// Returns the bytes of the pages that increments hold.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages * to_u64(PAGE_BYTES)
    }

    /// Returns the increment whose file has this path.
    #[must_use]
    pub fn of_path(&self, path: &str) -> Option<ObjectId> {
        let mut all = self.files.iter().chain([&self.cut]);
        let file = all.find(|file| file.path() == path)?;
        Some(ObjectId::Increment(file.header().id))
    }

    /// Returns the pages of a partition: those of key-addressed tables as of the cut, and all others of the backup.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a file is damaged, or does not hold a page that the cut needs from it.
    pub fn section(&self, backup: &Backup, partition: PartitionId) -> Result<PlannedSection> {
        let (own, used) = self.cut.used(partition)?;
        let mut of_backup = backup.section(partition)?;
        let mut sections: BTreeMap<CkptEpoch, (usize, Section)> = BTreeMap::new();
        let mut pages = Vec::with_capacity(used.len());
        for page in used {
            let holder = page.holder;
            let (file, section) = match sections.entry(holder) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(self.section_of(backup, &of_backup, holder, partition)?)
                }
            };
            let nth = section
                .place(&page.entry)
                .ok_or_else(|| self.lacks(&page, partition))?;
            pages.push(PlannedPage {
                entry: page.entry,
                file: *file,
                nth,
            });
        }
        of_backup.sidecar.clear();
        let chunks = backup.header().chunks;
        assert!(
            pages.iter().all(|page| page.file <= self.files.len()),
            "each page has a file"
        );
        let mut planned = PlannedSection::of(of_backup);
        planned.pages.retain(|page| !is_keyed(chunks, &page.entry));
        planned.pages.extend(pages);
        planned.pages.sort_unstable_by_key(|page| page.entry.local);
        let twice = planned
            .pages
            .windows(2)
            .find(|pair| pair[0].entry.local == pair[1].entry.local);
        if let Some(pair) = twice {
            let found = format!(
                "page {} of another table in the backup",
                pair[0].entry.local
            );
            return Err(self.corrupt(partition, found));
        }
        assert!(own.pseq.is_some(), "a cut has numbers");
        planned.pseq = own.pseq;
        Ok(planned)
    }

    /// Returns the index and the section of the file that holds pages for `holder`.
    fn section_of(
        &self,
        backup: &Backup,
        of_backup: &Section,
        holder: CkptEpoch,
        partition: PartitionId,
    ) -> Result<(usize, Section)> {
        if holder == backup.header().id.k {
            return Ok((0, of_backup.clone()));
        }
        let mut all = (1..).zip(&self.files);
        match all.find(|(_, file)| file.header().id.k == holder) {
            Some((index, file)) => Ok((index, file.section(partition)?)),
            None => Err(missing(&self.cut, holder)),
        }
    }

    #[cold]
    fn lacks(&self, page: &UsedPage, partition: PartitionId) -> Error {
        let found = format!(
            "no local page {} with checksum {:08x} in the file of checkpoint {}",
            page.entry.local, page.entry.crc, page.holder
        );
        self.corrupt(partition, found)
    }

    #[cold]
    fn corrupt(&self, partition: PartitionId, found: String) -> Error {
        let expected = format!("the pages of partition {partition} that the increment lists");
        damage(&self.cut, expected, found)
    }
}

/// Fails if an increment does not continue this backup.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn check_base(increment: &Backup, base: &BackupHeader) -> Result<()> {
    let header = increment.header();
    if header.continues() == Some(base.id) && header.chunks == base.chunks {
        return Ok(());
    }
    let expected = format!("an increment that continues {}", base.id.name());
    let found = header.continues().map_or_else(
        || "a backup".to_owned(),
        |other| format!("one that continues {}", other.name()),
    );
    Err(damage(increment, expected, found))
}

fn missing(cut: &Backup, holder: CkptEpoch) -> Error {
    let expected = format!("the increment of checkpoint {holder}, which holds pages of this one");
    damage(cut, expected, "no such file in the archive".to_owned())
}

#[cold]
fn damage(file: &Backup, expected: String, found: String) -> Error {
    Error::corrupt(
        file.path(),
        0,
        expected,
        found,
        "This increment is not used. An older increment or the backup serves as well, with more changes to replay.",
    )
}

/// Returns the increments that may continue a backup and serve `target`, the newest first.
#[must_use]
pub fn candidates(manifest: &Manifest, base: BackupId, target: Epoch) -> Vec<BackupId> {
    let mut found: Vec<BackupId> = manifest.increments_of(base).collect();
    found.sort_unstable_by_key(|id| id.k);
    // A cut is before the end of its image. So the first image that ends after the target may serve as well.
    let before = found.partition_point(|id| id.end <= target);
    found.truncate(before + 1);
    debug_assert!(
        found.iter().all(|id| id.k > base.k),
        "an increment is later than its base"
    );
    found.reverse();
    found
}
