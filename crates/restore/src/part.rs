//! The merge join of one partition. It makes pages from the backup's pages and the runs' records. Pages and records are
//! sorted by page.

use perdura_archive::backup::{PageEntry, READ_PAGES};
use std::ops::Range;

use perdura_archive::keyed::{PlannedPage, PlannedSection};
use perdura_archive::{Merged, PageAt, RunRecord, Scope, Updates};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Error, PageId, PartitionId, Result, Useq};
use perdura_device::AlignedBuf;
use perdura_page::layout;
use perdura_recovery::image::{DirEntry, PageSummer};

use crate::deadlines::{Settled, Settling};
use crate::plan::RestorePlan;
use crate::progress::RestoreProgress;

/// A destination of pages. It gets the pages partition by partition, in ascending order within a partition.
pub(crate) trait PageSink {
    /// Returns a buffer that the caller fills with the next page.
    fn page(&mut self, id: PageId) -> Result<&mut [u8]>;

    /// Drops the last page that was made.
    fn drop_last(&mut self);

    /// Keeps the last page that was made. `entry` describes it.
    fn keep_last(&mut self, local: u32, entry: &DirEntry) -> Result<()>;

    /// Ends the partition. May move the entries and the sidecar out of `part`.
    fn end_partition(&mut self, part: &mut Part) -> Result<()>;
}

/// The result of making a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// The local numbers and the directory entries of the partition's pages, ascending.
    pub(crate) entries: Vec<(u32, DirEntry)>,
    /// The partition's sequence number. `None`: the image is not consistent.
    pub(crate) pseq: Option<u64>,
    /// The partition's index sidecar from the backup. It is empty if a record was applied or taken out.
    pub(crate) sidecar: Vec<u8>,
    /// The number of pages that were read from the backup.
    pub(crate) page_reads: u64,
    pub(crate) applied: u64,
    pub(crate) taken_out: u64,
    pub(crate) skipped: u64,
    pub(crate) settled: Settled,
}

/// The state and buffers for merging partitions.
pub(crate) struct Merging<S> {
    sink: S,
    /// The tag (checkpoint epoch) that the merged pages get.
    tag: CkptEpoch,
    /// A checkpoint epoch above every tag in backup and runs.
    above: CkptEpoch,
    summer: PageSummer,
    /// The most pages that are read from the backup with one read.
    read_pages: usize,
    read: AlignedBuf,
    /// The cursors of the previous partition. The next partition reuses their buffers.
    spare: Option<Merged>,
    /// The treatment of the keys' deadlines. `None`: they are neither counted nor changed.
    settling: Option<Settling>,
}

/// A partition that is being merged.
pub(crate) struct PartMerge {
    partition: PartitionId,
    section: PlannedSection,
    /// The number of merged pages of the section.
    nth: usize,
    /// The pages of the section that are in the buffer.
    read: Range<usize>,
    records: Records,
    part: Part,
}

impl Part {
    /// Counts a record that was applied (`goes_in` is true) or taken out.
    pub(crate) fn count(&mut self, goes_in: bool) {
        let side = if goes_in {
            &mut self.applied
        } else {
            &mut self.taken_out
        };
        *side += 1;
    }

    /// Returns whether any record was applied or taken out.
    pub(crate) fn is_changed(&self) -> bool {
        self.applied + self.taken_out > 0
    }
}

/// The update numbers of the records applied to a page and of the records taken out.
#[derive(Default)]
pub(crate) struct Changes {
    put_in: Option<Updates>,
    taken_out: Option<Updates>,
}

impl Changes {
    pub(crate) fn note(&mut self, goes_in: bool, record: &RunRecord<'_>) {
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

    /// Returns the page's update number after the changes, or `None` if an update is missing or repeated. `base` is the
    /// page's update number in the backup. The applied records must have the numbers `base` + 1, `base` + 2 and so on.
    /// The records taken out must have consecutive numbers that end with `base`.
    pub(crate) fn number(&self, base: Useq) -> Option<Useq> {
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

    /// Returns the update number after the changes noted so far. Unlike [`number`](Self::number) it does not check that
    /// no record is missing or occurs twice.
    pub(crate) fn number_so_far(&self, base: Useq) -> Useq {
        match (self.put_in, self.taken_out) {
            (None, None) => base,
            (Some(updates), _) => updates.last,
            (None, Some(updates)) => number_before(base, updates),
        }
    }

    /// Returns whether a page with the update number `useq` does not exist in the restored state, because the page
    /// was first used later. A page of a key-addressed table always has the update number 0. Such a page exists if it
    /// is in the backup.
    pub(crate) fn leave_nothing(&self, useq: Useq, is_in_backup: bool) -> bool {
        useq == Useq(0) && (!is_in_backup || self.taken_out.is_some())
    }
}

/// Returns the update number directly before the oldest of `updates`. The newest of them has the number `last`. If
/// there are more than `last` updates, the result is meaningless. Callers then reject the updates, because their
/// numbers are not dense.
fn number_before(last: Useq, updates: Updates) -> Useq {
    Useq(
        last.0
            .wrapping_sub(u32::try_from(updates.count).unwrap_or(u32::MAX)),
    )
}

impl<S: PageSink> Merging<S> {
    /// Makes the state for merging into `sink`. The merged pages get the tag `tag`. Every page of the backup must have
    /// a tag below `above`; otherwise it is damaged.
    pub(crate) fn new(sink: S, tag: CkptEpoch, above: CkptEpoch) -> Merging<S> {
        Merging {
            sink,
            tag,
            above,
            summer: PageSummer::new(),
            read_pages: READ_PAGES,
            read: AlignedBuf::zeroed(READ_PAGES * PAGE_BYTES),
            spare: None,
            settling: None,
        }
    }

    /// Counts and changes the deadlines of the keys.
    pub(crate) fn settling(self, settling: Settling) -> Merging<S> {
        Merging {
            settling: Some(settling),
            ..self
        }
    }

    /// Reads at most `pages` pages of the backup with one read, and keeps no more of them in memory.
    pub(crate) fn reading(self, pages: usize) -> Merging<S> {
        assert!(pages > 0, "a page is read into memory");
        Merging {
            read_pages: pages,
            read: AlignedBuf::zeroed(pages * PAGE_BYTES),
            ..self
        }
    }

    /// Returns the sink.
    pub(crate) fn into_sink(self) -> S {
        self.sink
    }

    /// Merges a partition.
    pub(crate) fn merge(
        &mut self,
        plan: &RestorePlan,
        partition: PartitionId,
        progress: &RestoreProgress,
    ) -> Result<Part> {
        let mut open = self.begin(plan, partition)?;
        while self.advance(plan, &mut open, progress)? {}
        self.end(open, progress)
    }

    /// Begins to merge a partition. The plan must not change between partitions.
    pub(crate) fn begin(
        &mut self,
        plan: &RestorePlan,
        partition: PartitionId,
    ) -> Result<PartMerge> {
        let section = plan.section(partition)?;
        let scope = Scope::Partition(partition);
        let again = self.spare.take().map(|mut merged| {
            merged.restart(&scope);
            merged
        });
        let runs = again.or_else(|| {
            let any = !plan.runs.is_empty();
            any.then(|| Merged::new(&plan.runs, &scope))
        });
        Ok(PartMerge {
            partition,
            part: Part {
                pseq: section.pseq,
                ..Part::default()
            },
            section,
            nth: 0,
            read: 0..0,
            records: Records::new(runs)?,
        })
    }

    /// Makes the next page. Returns false if there is no page left.
    pub(crate) fn advance(
        &mut self,
        plan: &RestorePlan,
        open: &mut PartMerge,
        progress: &RestoreProgress,
    ) -> Result<bool> {
        let next = open.section.pages.get(open.nth).copied();
        let listed = next.map(|page| page.entry.local);
        let local = match (listed, open.records.local()) {
            (Some(a), Some(b)) => a.min(b),
            (Some(local), None) | (None, Some(local)) => local,
            (None, None) => return Ok(false),
        };
        let id = plan.backup.header().chunks.page_id(open.partition, local);
        let id = id.expect("the section was checked, and so were the runs");
        let base = next.filter(|_| listed == Some(local));
        let base = match base {
            Some(page) => {
                self.fetch(plan, open)?;
                let at = open.nth - open.read.start;
                open.nth += 1;
                Some((page, at))
            }
            None => None,
        };
        if self.make(plan, (id, local), base, open)? {
            progress.add_page();
        }
        Ok(true)
    }

    /// Ends a partition that has no more pages.
    pub(crate) fn end(&mut self, open: PartMerge, progress: &RestoreProgress) -> Result<Part> {
        let mut part = open.part;
        progress.finish_partition(to_u64(part.entries.len()));
        self.spare = open.records.merged;
        if !part.is_changed() && part.settled.changed == 0 {
            part.sidecar = open.section.sidecar;
        }
        self.sink.end_partition(&mut part)?;
        Ok(part)
    }

    /// Reads the next pages into the buffer, if all pages in the buffer have been used. The pages lie side by side in
    /// one file.
    fn fetch(&mut self, plan: &RestorePlan, open: &mut PartMerge) -> Result<()> {
        if open.read.contains(&open.nth) {
            return Ok(());
        }
        let rest = &open.section.pages[open.nth..];
        let first = rest[0];
        let is_beside = |(nth, page): &(usize, &PlannedPage)| {
            (page.file, page.nth) == (first.file, first.nth + nth)
        };
        let beside = rest.iter().take(self.read_pages).enumerate();
        let some: Vec<PageEntry> = beside
            .take_while(is_beside)
            .map(|(_, page)| page.entry)
            .collect();
        assert!(!some.is_empty(), "a page that is listed");
        open.part.page_reads += to_u64(some.len());
        open.read = open.nth..open.nth + some.len();
        plan.file(&first)
            .read_pages(open.partition, first.nth, &some, &mut self.read)
    }

    /// Makes a page: copies the backup's page, or zeros if `base` is `None`, and applies or takes out records. `base` is
    /// the page with its index in the buffer. Returns false if the page does not exist at the target.
    fn make(
        &mut self,
        plan: &RestorePlan,
        (id, local): (PageId, u32),
        base: Option<(PlannedPage, usize)>,
        open: &mut PartMerge,
    ) -> Result<bool> {
        let (records, part) = (&mut open.records, &mut open.part);
        let page = self.sink.page(id)?;
        match base {
            Some((_, nth)) => {
                let at = nth * PAGE_BYTES;
                page.copy_from_slice(&self.read[at..at + PAGE_BYTES]);
            }
            None if armed(Flaw::PageBeyondBackupKept) => {}
            None => page.fill(0),
        }
        let number = layout::useq(page);
        let mut changes = Changes::default();
        while let Some(record) = records.of(local) {
            match plan.gate(&record)? {
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
            self.sink.drop_last();
            return Ok(false);
        }
        let tag = layout::epoch(page);
        if tag >= self.above {
            let expected = format!("page {id} with a tag below {}", self.above);
            let hint =
                "The backup is damaged. Restore from an older backup; it needs the runs after it.";
            return Err(Error::corrupt(
                base.map_or(&plan.backup, |(page, _)| plan.file(&page))
                    .path(),
                0,
                expected,
                format!("tag {tag}"),
                hint,
            ));
        }
        layout::set_epoch(page, self.tag);
        layout::set_useq(page, useq);
        layout::set_page_id(page, id);
        if let Some(settling) = &self.settling {
            settling.settle(page, &mut part.settled);
        }
        let entry = DirEntry::describe(id, page, self.tag, &self.summer);
        debug_assert!(
            part.entries.last().is_none_or(|(last, _)| *last < local),
            "pages are made in their order"
        );
        part.entries.push((local, entry));
        self.sink.keep_last(local, &entry)?;
        Ok(true)
    }
}

/// A cursor over the records of a partition.
struct Records {
    merged: Option<Merged>,
    at: Option<PageAt>,
}

impl Records {
    fn new(merged: Option<Merged>) -> Result<Records> {
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

    /// Returns the local number of the next record's page.
    fn local(&self) -> Option<u32> {
        self.at.map(|at| at.local)
    }

    /// Returns the next record, if it belongs to page `local`.
    fn of(&self, local: u32) -> Option<RunRecord<'_>> {
        let merged = self.merged.as_ref()?;
        (self.local() == Some(local)).then(|| merged.record())
    }
}

/// Returns the error for a page with missing or repeated records.
pub(crate) fn gap(id: PageId, base: Useq, changes: &Changes) -> Error {
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
        "A run lacks records or has some twice. Restore from another backup, or restore an earlier moment.",
    )
}
