//! The traditional restore, the baseline of the paper's figures 1 and 4. It first copies the backup. Then it applies
//! the log's records to the copy in the order of the log, through a buffer pool.
//!
//! In the order of the log, successive records change distant pages of the image. So pages are read one at a time, and
//! written back when the pool is full. The records come from the archive's runs, which are sorted by page. A log has
//! the records in the order of the epochs. Within an epoch the pages are in no order. So a thread reads the runs ahead
//! and sorts the records of each run into the log's order. The time that the replay waits for the sorting is not
//! counted: the baseline pays for reading the log, but not for sorting it. The baseline has two more advantages. It
//! makes a page that the backup lacks in the pool, without a read. At the end, it writes the remaining changed pages in
//! the order of their places in the image.
//!
//! # Source
//! C. Sauer, G. Graefe, T. Härder, "Single-pass restore after a media failure", section 3.2; figures 1 and 4.
//! # Deviations
//! The paper's traditional restore is Shore-MT's. Shore-MT's pool also serves other work. In Shore-MT a page's LSN
//! shows which records the page has. Here a record's tag and epoch show whether the backup's page has the record.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use perdura_archive::{LogOrder, Run, RunRecord};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{CkptEpoch, Error, PageId, PartitionId, Result, Useq};
use perdura_page::layout;
use perdura_recovery::image::{DirEntry, ImageFile, PageSummer, Places};
use perdura_recovery::threads::start;

use crate::buffers::Buffers;
use crate::deadlines::Deadlines;
use crate::part::{Changes, Merging, Part, gap};
use crate::plan::RestorePlan;
use crate::pool::Pool;
use crate::restore::{RestoreMeans, RestoreReport, geometry, make_database, restore_parts};

/// The report of a restore in the order of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// The report of the restore. Its counts of pages and bytes include copying the backup.
    pub restored: RestoreReport,
    /// Pages that the replay read from the new database into its pool.
    pub page_reads: u64,
    /// Pages that the replay wrote from its pool to the new database.
    pub page_writes: u64,
    /// The time spent on copying the backup, in nanoseconds.
    pub copy_ns: u64,
    /// The time of the replay alone, in nanoseconds. It includes the last sync. It excludes copying the backup, and
    /// waiting for the runs to be sorted.
    pub replay_ns: u64,
    /// The time that the replay waited for runs to be sorted, in nanoseconds.
    pub waited_ns: u64,
}

/// Makes a new database like [`restore`](crate::restore()), but applies the records in the order of the log, through a
/// pool of `buffer_pages` pages.
///
/// # Errors
/// As [`restore`](crate::restore()). [`Error::Usage`] if `buffer_pages` is 0, or if deadlines are to be changed.
/// [`Error::Usage`] for a run that is too large to be sorted.
pub fn restore_in_log_order(
    plan: &RestorePlan,
    means: &RestoreMeans<'_>,
    buffer_pages: usize,
) -> Result<ReplayReport> {
    if buffer_pages == 0 {
        return Err(Error::Usage("a buffer pool has at least one page".into()));
    }
    if means.deadlines != Deadlines::Keep {
        return Err(Error::Usage(
            "a restore in log order keeps the deadlines of keys. Restore by the single pass".into(),
        ));
    }
    let mut report = ReplayReport::default();
    let mut copied_pages = 0;
    let restored = make_database(plan, means, |images, k| {
        let begun = means.clock.mono_ns();
        let backup = plan.without_runs();
        let merging = |sink| Merging::new(sink, k, k);
        let buffers = Buffers::most(means.threads);
        let parts = restore_parts(&backup, means, buffers, images, &merging)?;
        let copied = means.clock.mono_ns();
        copied_pages = parts.iter().map(|part| to_u64(part.entries.len())).sum();
        let mut replay = Replay::new(plan, images, k, buffer_pages, parts);
        report.waited_ns = replay.play_all(means)?;
        let (parts, pool) = replay.finish()?;
        report.copy_ns = copied - begun;
        report.replay_ns = means.clock.mono_ns() - copied - report.waited_ns;
        (report.page_reads, report.page_writes) = (pool.reads, pool.writes);
        Ok(parts)
    })?;
    report.restored = restored;
    report.restored.page_reads += report.page_reads;
    report.restored.page_writes = copied_pages + report.page_writes;
    report.restored.bytes_read += report.page_reads * to_u64(PAGE_BYTES);
    let listed = report.restored.pages * to_u64(PAGE_BYTES);
    let written = report.restored.page_writes * to_u64(PAGE_BYTES);
    report.restored.bytes_written = report.restored.bytes_written - listed + written;
    Ok(report)
}

/// The state of a page of the new database.
struct PageState {
    /// The page's update number in the backup. `None`: the backup does not have the page.
    base: Option<Useq>,
    changes: Changes,
    /// The page's directory entry since the replay's last write of the page. `None`: the replay has not written the
    /// page yet.
    entry: Option<DirEntry>,
}

/// The state of a replay: the pages, and the pool.
struct Replay<'a> {
    plan: &'a RestorePlan,
    k: CkptEpoch,
    pool: Pool<'a>,
    pages: HashMap<PageId, PageState>,
    parts: Vec<Part>,
    summer: PageSummer,
}

/// A run's records in the order of the log, and the time that the sorting took, in nanoseconds.
type Sorted = Result<(LogOrder, u64)>;

impl<'a> Replay<'a> {
    fn new(
        plan: &'a RestorePlan,
        images: &'a [ImageFile],
        k: CkptEpoch,
        buffer_pages: usize,
        parts: Vec<Part>,
    ) -> Replay<'a> {
        let header = plan.backup.header();
        let mut pages = HashMap::new();
        for (partition, part) in (0..).map(PartitionId).zip(&parts) {
            for (local, entry) in &part.entries {
                let page = header.chunks.page_id(partition, *local);
                let state = PageState {
                    base: Some(entry.useq),
                    changes: Changes::default(),
                    entry: Some(*entry),
                };
                pages.insert(page.expect("a page that was made"), state);
            }
        }
        let places = Places::new(geometry(header), to_u32(images.len()));
        Replay {
            plan,
            k,
            pool: Pool::new(images, places, buffer_pages),
            pages,
            parts,
            summer: PageSummer::new(),
        }
    }

    /// Plays all runs. Returns the time in nanoseconds that the replay waited for runs to be sorted.
    fn play_all(&mut self, means: &RestoreMeans<'_>) -> Result<u64> {
        let (clock, runs) = (means.clock, &self.plan.runs);
        let (sender, receiver) = sync_channel::<Sorted>(1);
        std::thread::scope(|scope| {
            start(scope, move || {
                for run in runs {
                    let sorted = sorted(run, || clock.mono_ns());
                    let is_over = sorted.is_err();
                    if sender.send(sorted).is_err() || is_over {
                        return;
                    }
                }
            })?;
            self.play(receiver, || clock.mono_ns())
        })
    }

    fn play(&mut self, sorted: Receiver<Sorted>, now_ns: impl Fn() -> u64) -> Result<u64> {
        let mut waited_ns = 0;
        loop {
            let begun = now_ns();
            let Ok(next) = sorted.recv() else {
                return Ok(waited_ns);
            };
            let (run, sort_ns) = next?;
            waited_ns += (now_ns() - begun).min(sort_ns);
            for record in run.records() {
                self.apply(&record)?;
            }
        }
    }

    fn apply(&mut self, record: &RunRecord<'_>) -> Result<()> {
        let part = &mut self.parts[usize::from(record.at.partition.0)];
        let Some(goes_in) = self.plan.gate(record)? else {
            part.skipped += 1;
            return Ok(());
        };
        part.count(goes_in);
        let chunks = self.plan.backup.header().chunks;
        let page = chunks.page_id(record.at.partition, record.at.local);
        let page = page.expect("the runs were checked");
        let frame = match self.pool.find(page) {
            Some(frame) => frame,
            None => self.fetch(page)?,
        };
        record.xor_into(self.pool.change(frame));
        let state = self.pages.get_mut(&page).expect("it was fetched");
        state.changes.note(goes_in, record);
        Ok(())
    }

    /// Brings a page into the pool, in place of another page. Returns the page's frame.
    fn fetch(&mut self, page: PageId) -> Result<usize> {
        let (frame, changed) = self.pool.choose();
        if let Some(changed) = changed {
            self.write_back(frame, changed)?;
        }
        let state = self.pages.entry(page).or_insert_with(|| PageState {
            base: None,
            changes: Changes::default(),
            entry: None,
        });
        let Some(entry) = &state.entry else {
            self.pool.begin(frame, page);
            return Ok(frame);
        };
        let got = self.pool.read(frame, page)?;
        if got < PAGE_BYTES || !ImageFile::is_listed(page, self.pool.bytes(frame), entry) {
            return Err(Error::corrupt(
                "the new database",
                0,
                format!("page {page} as it was written"),
                "other bytes",
                "The target's disk does not return what was written to it. Restore onto another disk.",
            ));
        }
        Ok(frame)
    }

    /// Writes a changed page to its place in the new database.
    fn write_back(&mut self, frame: usize, page: PageId) -> Result<()> {
        let state = self.pages.get_mut(&page).expect("it was fetched");
        let useq = state.changes.number_so_far(state.base.unwrap_or_default());
        let bytes = self.pool.change(frame);
        layout::set_epoch(bytes, self.k);
        layout::set_useq(bytes, useq);
        layout::set_page_id(bytes, page);
        state.entry = Some(DirEntry::describe(page, bytes, self.k, &self.summer));
        self.pool.write_back(frame)
    }

    /// Writes the remaining changed pages. Fails if a page lacks a record or got a record twice.
    fn finish(mut self) -> Result<(Vec<Part>, Pool<'a>)> {
        for (frame, page) in self.pool.dirty() {
            self.write_back(frame, page)?;
        }
        self.pool.sync()?;
        let chunks = self.plan.backup.header().chunks;
        for part in &mut self.parts {
            part.entries.clear();
        }
        for (page, state) in &self.pages {
            let (base, changes) = (state.base, &state.changes);
            let number = base.unwrap_or_default();
            let Some(useq) = changes.number(number) else {
                return Err(gap(*page, number, changes));
            };
            if changes.leave_nothing(useq, base.is_some()) {
                continue;
            }
            let entry = state.entry.expect("a page was written");
            assert_eq!(
                entry.useq, useq,
                "page {page} was written after its last change"
            );
            let part = &mut self.parts[usize::from(chunks.partition_of(*page).0)];
            part.entries.push((chunks.local_index(*page), entry));
        }
        for part in &mut self.parts {
            part.entries.sort_by_key(|(local, _)| *local);
            if part.is_changed() {
                part.sidecar.clear();
            }
        }
        Ok((self.parts, self.pool))
    }
}

/// Reads a run and sorts it.
fn sorted(run: &Arc<Run>, now_ns: impl Fn() -> u64) -> Sorted {
    let mut log = LogOrder::read(run)?;
    let begun = now_ns();
    log.sort();
    Ok((log, now_ns() - begun))
}
