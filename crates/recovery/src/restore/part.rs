//! One partition's merge join: the backup's pages and the runs' records, each in their order, become pages of an image.

use std::sync::atomic::Ordering;

use perdura_archive::backup::{PageEntry, READ_PAGES, Section};
use perdura_archive::{Merged, PageAt, RunRecord, Scope, Updates};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u32;
use perdura_base::{CkptEpoch, Error, PageId, PartitionId, Result, Useq};
use perdura_device::AlignedBuf;
use perdura_page::layout;

use super::output::PageOutput;
use super::{RestorePlan, RestoreProgress};
use crate::image::{DirEntry, ImageFile, PageSummer, Places, disk_of};

/// What was made of a partition.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    /// Its pages, ascending.
    pub(super) entries: Vec<(u32, DirEntry)>,
    /// Of a consistent image.
    pub(super) pseq: Option<u64>,
    /// The backup's, if no record made a difference.
    pub(super) sidecar: Vec<u8>,
    pub(super) applied: u64,
    pub(super) taken_out: u64,
    pub(super) skipped: u64,
}

/// What a thread restores partitions with.
pub(super) struct Merging<'a> {
    plan: &'a RestorePlan,
    images: &'a [ImageFile],
    k: CkptEpoch,
    progress: &'a RestoreProgress,
    summer: PageSummer,
    output: PageOutput,
    read: AlignedBuf,
}

impl Part {
    /// Counts a record that makes a difference.
    pub(super) fn count(&mut self, goes_in: bool) {
        let side = if goes_in {
            &mut self.applied
        } else {
            &mut self.taken_out
        };
        *side += 1;
    }

    /// Whether a record made a difference.
    pub(super) fn is_changed(&self) -> bool {
        self.applied + self.taken_out > 0
    }
}

/// The records that change a page, so far.
#[derive(Default)]
pub(super) struct Changes {
    put_in: Option<Updates>,
    taken_out: Option<Updates>,
}

impl Changes {
    pub(super) fn note(&mut self, goes_in: bool, record: &RunRecord<'_>) {
        let side = if goes_in {
            &mut self.put_in
        } else {
            &mut self.taken_out
        };
        *side = Some(match *side {
            None => record.updates,
            Some(before) => before.join(record.updates),
        });
    }

    /// The page's update number; `None` if the records are not exactly those after the backup's, or those up to it.
    pub(super) fn number(&self, base: Useq) -> Option<Useq> {
        match (self.put_in, self.taken_out) {
            (None, None) => Some(base),
            (Some(updates), None) => updates.is_dense_after(base).then_some(updates.last),
            (None, Some(updates)) => {
                let before = number_before(base, updates);
                let leads_up = updates.last == base && updates.is_dense_after(before);
                leads_up.then_some(before)
            }
            (Some(_), Some(_)) => None,
        }
    }

    /// The update number that [`number`](Self::number) gives if no record is missing or twice.
    pub(super) fn number_so_far(&self, base: Useq) -> Useq {
        match (self.put_in, self.taken_out) {
            (None, None) => base,
            (Some(updates), _) => updates.last,
            (None, Some(updates)) => number_before(base, updates),
        }
    }

    /// Whether a page of this update number is of a later time and does not exist at the target. The pages of key-addressed
    /// tables have no update numbers.
    pub(super) fn leave_nothing(&self, useq: Useq, is_in_backup: bool) -> bool {
        useq == Useq(0) && (!is_in_backup || self.taken_out.is_some())
    }
}

/// The number before these updates, which lead up to `last`. More than there are numbers are not dense, whatever it is.
fn number_before(last: Useq, updates: Updates) -> Useq {
    Useq(
        last.0
            .wrapping_sub(u32::try_from(updates.count).unwrap_or(u32::MAX)),
    )
}

impl<'a> Merging<'a> {
    pub(super) fn new(
        plan: &'a RestorePlan,
        images: &'a [ImageFile],
        k: CkptEpoch,
        progress: &'a RestoreProgress,
    ) -> Merging<'a> {
        let header = plan.backup.header();
        let geometry = super::geometry(header);
        Merging {
            plan,
            images,
            k,
            progress,
            summer: PageSummer::new(),
            output: PageOutput::new(Places::new(geometry, to_u32(images.len()))),
            read: AlignedBuf::zeroed(READ_PAGES * PAGE_BYTES),
        }
    }

    /// Restores a partition.
    pub(super) fn restore(&mut self, partition: PartitionId) -> Result<Part> {
        let plan = self.plan;
        let section = plan.backup.section(partition)?;
        let mut runs =
            (!plan.runs.is_empty()).then(|| Merged::new(&plan.runs, &Scope::Partition(partition)));
        let mut records = Records::new(runs.as_mut())?;
        let mut part = Part {
            pseq: section.pseq,
            ..Part::default()
        };
        let images = self.images;
        let file = &images[disk_of(partition, images.len())];
        let mut nth = 0;
        loop {
            let listed = section.pages.get(nth).map(|entry| entry.local);
            let local = match (listed, records.local()) {
                (Some(a), Some(b)) => a.min(b),
                (Some(local), None) | (None, Some(local)) => local,
                (None, None) => break,
            };
            let id = plan.backup.header().chunks.page_id(partition, local);
            let id = id.expect("the section was checked, and so were the runs");
            let base = (listed == Some(local)).then_some(nth);
            if base.is_some() {
                self.fetch(partition, &section, nth)?;
                nth += 1;
            }
            self.make(file, (id, local), base, &mut records, &mut part)?;
        }
        self.output.flush(file)?;
        if !part.is_changed() {
            part.sidecar = section.sidecar;
        }
        Ok(part)
    }

    /// Reads the backup's next pages, if the page that is listed `nth` is the first of them.
    fn fetch(&mut self, partition: PartitionId, section: &Section, nth: usize) -> Result<()> {
        if !nth.is_multiple_of(READ_PAGES) {
            return Ok(());
        }
        assert!(nth < section.pages.len(), "a page that is listed");
        debug_assert!(
            nth + READ_PAGES <= section.pages.len() || section.pages.len() - nth < READ_PAGES,
            "only the last read is short"
        );
        let rest: &[PageEntry] = &section.pages[nth..];
        let some = &rest[..rest.len().min(READ_PAGES)];
        let backup = &self.plan.backup;
        backup.read_pages(partition, nth, some, &mut self.read)
    }

    /// Makes a page of the backup's, or of zeros, and its records.
    fn make(
        &mut self,
        file: &ImageFile,
        (id, local): (PageId, u32),
        base: Option<usize>,
        records: &mut Records<'_>,
        part: &mut Part,
    ) -> Result<()> {
        let page = self.output.page(file, id)?;
        match base {
            Some(nth) => {
                let at = nth % READ_PAGES * PAGE_BYTES;
                page.copy_from_slice(&self.read[at..at + PAGE_BYTES]);
            }
            None if armed(Flaw::PageBeyondBackupKept) => {}
            None => page.fill(0),
        }
        let number = layout::useq(page);
        let mut changes = Changes::default();
        while let Some(record) = records.of(local) {
            match self.plan.gate(&record)? {
                None => part.skipped += 1,
                Some(goes_in) => {
                    record.xor_into(page);
                    changes.note(goes_in, &record);
                    part.count(goes_in);
                }
            }
            records.advance()?;
        }
        let Some(useq) = changes.number(number) else {
            return Err(gap(id, number, &changes));
        };
        if changes.leave_nothing(useq, base.is_some()) {
            self.output.drop_last();
            return Ok(());
        }
        let tag = layout::epoch(page);
        if tag >= self.k {
            let expected = format!("page {id} with a tag below {}", self.k);
            let hint = "The backup is damaged. An older one serves, with the runs behind it.";
            return Err(Error::corrupt(
                "archive",
                0,
                expected,
                format!("tag {tag}"),
                hint,
            ));
        }
        layout::set_epoch(page, self.k);
        layout::set_useq(page, useq);
        layout::set_page_id(page, id);
        let entry = DirEntry::describe(id, page, self.k, &self.summer);
        debug_assert!(
            part.entries.last().is_none_or(|(last, _)| *last < local),
            "pages are made in their order"
        );
        part.entries.push((local, entry));
        self.progress.pages.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The records of a partition, one after the other.
struct Records<'a> {
    merged: Option<&'a mut Merged>,
    at: Option<PageAt>,
}

impl<'a> Records<'a> {
    fn new(merged: Option<&'a mut Merged>) -> Result<Records<'a>> {
        let mut records = Records { merged, at: None };
        records.advance()?;
        Ok(records)
    }

    fn advance(&mut self) -> Result<()> {
        self.at = None;
        if let Some(merged) = &mut self.merged
            && merged.advance()?
        {
            self.at = Some(merged.record().at);
        }
        Ok(())
    }

    /// The page of the next one.
    fn local(&self) -> Option<u32> {
        self.at.map(|at| at.local)
    }

    /// The next one, if it is of this page.
    fn of(&self, local: u32) -> Option<RunRecord<'_>> {
        let merged = self.merged.as_ref()?;
        (self.local() == Some(local)).then(|| merged.record())
    }
}

/// Records are missing or doubled.
pub(super) fn gap(id: PageId, base: Useq, changes: &Changes) -> Error {
    let side = changes.put_in.or(changes.taken_out);
    let found = side.map_or_else(String::new, |updates| {
        format!(
            "{} of them, {} to {}",
            updates.count, updates.first.0, updates.last.0
        )
    });
    Error::corrupt(
        "archive",
        0,
        format!(
            "the updates of page {id} next to number {}, each once",
            base.0
        ),
        found,
        "A run lacks records or has some twice. Restore from another backup, or a moment before.",
    )
}
