//! The newest cut of key-addressed tables in an archive, as a new increment compares with it.
//!
//! An image's directory names the checkpoint that wrote each page. A page with the cut's digest that no checkpoint after the
//! cut wrote is that of the cut. The digest must be equal as well: after a restart from the older image, its pages are not
//! those of a later image that was lost. Each of the two images gets a changed page once. So a page that is unchanged since
//! the cut may still be written after it, into the other image. Such a page is compared byte by byte with the archive's.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_archive::backup::{Backup, BackupHeader, PageEntry, Section, UsedPage, is_keyed};
use perdura_archive::keyed::check_base;
use perdura_archive::{BackupId, Store};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::{CkptEpoch, Error, PartitionId, Result, Useq};
use perdura_device::AlignedBuf;
use perdura_page::Chunks;
use perdura_page::layout::{self, META_BYTES};
use perdura_recovery::image::DirEntry;

/// The most files that hold the pages of one cut. A restore opens them all.
pub const HOLDERS_MAX: usize = 64;

/// The newest cut: of the newest sweep, or of an increment that continues it.
pub struct LastCut {
    /// The sweep.
    base: Arc<Backup>,
    /// The checkpoint epoch of the cut's image.
    pub(crate) k: CkptEpoch,
    /// For each partition, the number of the last ordered frame in the cut.
    pub(crate) numbers: Vec<u64>,
    /// The pages of each partition.
    pages: Vec<Vec<UsedPage>>,
    /// The files that hold the pages, and whose pages the next increment does not store again.
    files: BTreeMap<CkptEpoch, Arc<Backup>>,
    /// The sections of the files that were read last, all of one partition.
    sections: BTreeMap<(PartitionId, CkptEpoch), Section>,
    page: AlignedBuf,
}

impl LastCut {
    /// Reads the newest cut. An increment that cannot be read is skipped. `None`: the archive has no sweep, or the database
    /// has pages from before the two pools.
    ///
    /// # Errors
    /// Damage of the sweep; errors of the disk.
    pub fn read(store: &Store) -> Result<Option<LastCut>> {
        let manifest = store.manifest();
        let Some(base) = manifest.newest_sweep() else {
            return Ok(None);
        };
        let Some(mut cut) = LastCut::of_backup(store.open_backup(base)?)? else {
            return Ok(None);
        };
        let mut increments: Vec<BackupId> = manifest.increments_of(base).collect();
        increments.sort_unstable_by_key(|id| id.k);
        for id in increments.iter().rev() {
            let increment = store.open_increment(*id);
            if let Some(increment) = usable(increment)?
                && usable(cut.advance(&increment))?.is_some()
            {
                cut.open_files(store, &increments)?;
                break;
            }
        }
        Ok(Some(cut))
    }

    /// Returns the cut of a sweep. `None`: it has pages in odd chunks that records describe, as in a database that is older
    /// than the two pools.
    fn of_backup(backup: Arc<Backup>) -> Result<Option<LastCut>> {
        let header = *backup.header();
        let (mut pages, mut numbers) = (Vec::new(), Vec::new());
        for partition in (0..header.chunks.partitions).map(PartitionId) {
            let section = backup.section(partition)?;
            if has_older_pages(header.chunks, &section) {
                return Ok(None);
            }
            let keyed = section.pages.into_iter();
            let keyed = keyed.filter(|entry| is_keyed(header.chunks, entry));
            let held = keyed.map(|entry| UsedPage {
                entry,
                holder: header.id.k,
            });
            pages.push(held.collect());
            numbers.push(section.pseq.unwrap_or(0));
        }
        Ok(Some(LastCut {
            files: BTreeMap::from([(header.id.k, Arc::clone(&backup))]),
            base: backup,
            k: header.id.k,
            numbers,
            pages,
            sections: BTreeMap::new(),
            page: AlignedBuf::zeroed(PAGE_BYTES),
        }))
    }

    /// Advances from the backup to an increment that continues it.
    fn advance(&mut self, increment: &Backup) -> Result<()> {
        check_base(increment, self.base())?;
        let header = increment.header();
        let (mut pages, mut numbers) = (Vec::new(), Vec::new());
        for partition in (0..header.chunks.partitions).map(PartitionId) {
            let (section, used) = increment.used(partition)?;
            pages.push(used);
            numbers.push(section.pseq.unwrap_or(0));
        }
        assert!(header.id.k > self.k, "an increment is later than its base");
        (self.k, self.pages, self.numbers) = (header.id.k, pages, numbers);
        Ok(())
    }

    /// Opens the files that hold the pages. Leaves out damaged files. If there are too many, leaves out those that hold the
    /// fewest pages.
    fn open_files(&mut self, store: &Store, increments: &[BackupId]) -> Result<()> {
        let mut held: BTreeMap<CkptEpoch, u64> = BTreeMap::new();
        for page in self.pages.iter().flatten() {
            *held.entry(page.holder).or_default() += 1;
        }
        for id in increments.iter().filter(|id| held.contains_key(&id.k)) {
            if let Some(file) = usable(store.open_increment(*id))? {
                self.files.insert(id.k, file);
            }
        }
        self.files.retain(|holder, _| held.contains_key(holder));
        let mut by_pages: Vec<CkptEpoch> = self.files.keys().copied().collect();
        by_pages.sort_by_key(|holder| held[holder]);
        // The next increment is one more file.
        let excess = (by_pages.len() + 1).saturating_sub(HOLDERS_MAX);
        for holder in &by_pages[..excess] {
            self.files.remove(holder);
        }
        assert!(self.files.len() < HOLDERS_MAX, "there is room for one more");
        Ok(())
    }

    /// Returns the header of the sweep.
    #[must_use]
    pub fn base(&self) -> &BackupHeader {
        self.base.header()
    }

    /// Returns the page of the cut with the local index `local`. `None`: the cut has no such page, or its file is not to be
    /// used.
    pub(crate) fn page(&self, partition: PartitionId, local: u32) -> Option<&UsedPage> {
        let pages = &self.pages[usize::from(partition.0)];
        let nth = pages
            .binary_search_by_key(&local, |page| page.entry.local)
            .ok()?;
        let page = &pages[nth];
        self.files.contains_key(&page.holder).then_some(page)
    }

    /// Returns whether no checkpoint after the cut wrote a page of an image.
    pub(crate) fn is_older(&self, listed: &DirEntry) -> bool {
        listed.epoch <= self.k
    }

    /// Returns whether an image's page has the bytes of the cut's page `used`, apart from the page's tag.
    ///
    /// # Errors
    /// Errors of the archive's disk. A damaged page of the archive is another page.
    pub(crate) fn is_same(
        &mut self,
        partition: PartitionId,
        used: &UsedPage,
        bytes: &[u8],
    ) -> Result<bool> {
        assert_eq!(bytes.len(), PAGE_BYTES, "a whole page");
        let file = &self.files[&used.holder];
        let key = (partition, used.holder);
        if !self.sections.contains_key(&key) {
            self.sections.retain(|(other, _), _| *other == partition);
            let Some(section) = usable(file.section(partition))? else {
                return Ok(false);
            };
            self.sections.insert(key, section);
        }
        let Some(nth) = self.sections[&key].place(&used.entry) else {
            return Ok(false);
        };
        let one = std::slice::from_ref(&used.entry);
        let read = file.read_pages(partition, nth, one, &mut self.page);
        let same = self.page[META_BYTES..] == bytes[META_BYTES..]
            && layout::useq(&self.page[..]) == layout::useq(bytes);
        Ok(usable(read)?.is_some() && same)
    }
}

/// Returns whether a section has a page of an odd chunk that records describe.
fn has_older_pages(chunks: Chunks, section: &Section) -> bool {
    let is_older = |page: &PageEntry| is_keyed(chunks, page) && page.useq != Useq(0);
    section.pages.iter().any(is_older)
}

/// Returns `None` for a file that is damaged, unreadable or missing.
fn usable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Corrupt(_) | Error::Foreign { .. }) => Ok(None),
        Err(error) if error.is_not_found() || error.is_unreadable() => Ok(None),
        Err(error) => Err(error),
    }
}
