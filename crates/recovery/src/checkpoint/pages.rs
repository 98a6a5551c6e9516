//! The copying of pages by a sweep: from memory to the staging buffer, then to the pages files.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{PageId, PartitionId, Result};
use perdura_heap::Visit;

use super::lanes::Swept;
use super::phase::{Event, Phase, TREES};
use super::writer::{PageRun, Unwritten, Writer};
use super::{CheckpointProgress, Checkpointer, Staged, Sweep, Taken, VISIT_PAGES};
use crate::heap_pages::visit;
use crate::image::{DirEntry, directory_path, disk_of, folder};
use crate::sweep_digest::digest_of;

impl Checkpointer {
    /// Takes a step of the sweep.
    pub(crate) fn sweep_heap(&mut self, sweep: &mut Sweep, phase: Phase) -> Result<Taken> {
        let (event, next) = match phase {
            Phase::Copy => (Event::Staged, self.copy(sweep)),
            Phase::Write { run, .. } if run < self.staged.len() => {
                return self.write(sweep, phase);
            }
            Phase::Write {
                partition, is_last, ..
            } => self.finish_batch(sweep, PartitionId(partition), is_last)?,
            Phase::SyncPages => {
                for writer in &mut sweep.writers {
                    writer.drain()?;
                }
                if !armed(Flaw::AnchorBeforeImage) {
                    self.sync(sweep)?;
                }
                (Event::Synced, Phase::Directory)
            }
            _ => {
                assert_eq!(phase, Phase::Directory, "a phase of the sweep");
                if let Some(writer) = sweep.writer.take() {
                    sweep.directory_crc = writer.finish()?;
                }
                return self.parts.shares[TREES].step(self, sweep, Phase::Trees);
            }
        };
        Ok(Taken::worked(event, next))
    }

    /// Gives up the sweep, after all its writes have returned. Copied pages that perhaps were not written are marked
    /// dirty again for the slot.
    pub(crate) fn cancel_sweep(&mut self, sweep: &mut Sweep) {
        let mut unwritten: Vec<Unwritten> =
            sweep.writers.iter_mut().flat_map(Writer::end).collect();
        let tmp = format!("{}.tmp", directory_path(sweep.slot, sweep.k));
        // The unfinished directory would take space on a full disk. If it cannot be removed now, the next complete
        // checkpoint of this slot removes it.
        let _gone_or_later = self.parts.disks.data.remove(&tmp);
        if armed(Flaw::FailedWriteClean) {
            return;
        }
        let heap = &self.parts.heap;
        unwritten.extend(self.staged.drain(..).map(|staged| Unwritten {
            partition: heap.geometry().partition_of_page(staged.page),
            local: staged.local,
        }));
        for Unwritten { partition, local } in unwritten {
            heap.lock(partition).mark_dirty(local, sweep.slot);
        }
    }

    /// Writes, as one step, the next run of staged pages. The run begins at index `run`, and its pages lie side by side
    /// in the file.
    fn write(&mut self, sweep: &mut Sweep, phase: Phase) -> Result<Taken> {
        let Phase::Write {
            partition,
            is_last,
            run,
        } = phase
        else {
            unreachable!("{phase:?} writes no pages");
        };
        let end = self.write_run(sweep, PartitionId(partition), run)?;
        let next = Phase::Write {
            partition,
            is_last,
            run: end,
        };
        Ok(Taken {
            progress: CheckpointProgress::Working(to_u64((end - run) * PAGE_BYTES)),
            ..Taken::worked(Event::RunWritten, next)
        })
    }

    /// Visits up to [`VISIT_PAGES`] pages of the next partition under its latch.
    pub(super) fn copy(&mut self, sweep: &mut Sweep) -> Phase {
        let (id, local) = {
            let Sweep { lanes, writers, .. } = sweep;
            lanes.pick(|disk| writers[disk].load())
        };
        #[cfg(feature = "flaws")]
        if armed(Flaw::CutLatchesSingly) && id.0 > 0 && local == 0 {
            sweep.cut_late(id);
        }
        self.make_staging();
        self.staged.clear();
        self.sidecar.clear();
        let Checkpointer {
            parts,
            directories,
            staging,
            staged,
            sidecar,
            ..
        } = self;
        let staging = Arc::get_mut(staging).expect("no thread writes from this buffer");
        staging.clear();
        let pages = local..local.saturating_add(VISIT_PAGES);
        let kind = (sweep.slot, sweep.k);
        let mut take = |local: u32, page: PageId, visit: Visit<'_>| match visit {
            Visit::Born | Visit::Untouched => {
                directories[sweep.slot.index()].set(id, local, DirEntry::default());
            }
            Visit::Clean => {}
            Visit::Dirty(bytes) => {
                staging.push(bytes);
                staged.push(Staged { local, page });
            }
        };
        if let Some(fullest) = sweep.visit_kept(&mut take) {
            return Phase::Write {
                partition: fullest.0,
                is_last: false,
                run: 0,
            };
        }
        let next_local = visit(&parts.heap, (id, pages), kind, sidecar, take);
        sweep.lanes.advance(next_local);
        Phase::Write {
            partition: id.0,
            is_last: next_local.is_none(),
            run: 0,
        }
    }

    /// Writes the run of staged pages that begins at index `run`. The pages of a run lie side by side in the file.
    /// Returns the index of the first staged page after the run.
    pub(super) fn write_run(
        &mut self,
        sweep: &mut Sweep,
        id: PartitionId,
        run: usize,
    ) -> Result<usize> {
        let first = self.staged[run];
        let place = self.places.place(first.page);
        let side_by_side = self.staged[run..]
            .iter()
            .zip(place.0..)
            .take_while(|(staged, expected)| self.places.place(staged.page).0 == *expected)
            .count();
        let end = run + side_by_side;
        assert!(
            run < end && end * PAGE_BYTES <= self.staging.len(),
            "a run of staged pages lies in the staging buffer"
        );
        #[cfg(feature = "flaws")]
        if armed(Flaw::CopyAfterLatch) {
            self.recopy(id, run..end);
        }
        for at in run..end {
            let Staged { local, page } = self.staged[at];
            let bytes = &self.staging[at * PAGE_BYTES..(at + 1) * PAGE_BYTES];
            let entry = DirEntry::describe(page, bytes, sweep.k, &self.summer);
            self.directories[sweep.slot.index()].set(id, local, entry);
        }
        assert!(
            self.staged[run..end]
                .iter()
                .all(|staged| { self.parts.heap.geometry().partition_of_page(staged.page) == id }),
            "the staged pages are those of the partition whose image is written"
        );
        let disk = disk_of(id, sweep.writers.len());
        sweep.writers[disk].write(PageRun {
            partition: id,
            locals: self.staged[run..end].iter().map(|s| s.local).collect(),
            place,
            staging: Arc::clone(&self.staging),
            range: run * PAGE_BYTES..end * PAGE_BYTES,
        })?;
        sweep.pages += to_u64(side_by_side);
        sweep.bytes += to_u64(side_by_side * PAGE_BYTES);
        Ok(end)
    }

    /// Ends a batch and returns the next phase. After a partition's last batch, first writes the sections of the
    /// directory that no earlier partition is missing for.
    pub(super) fn finish_batch(
        &mut self,
        sweep: &mut Sweep,
        id: PartitionId,
        is_last: bool,
    ) -> Result<(Event, Phase)> {
        self.staged.clear();
        if is_last {
            let swept = self.swept(sweep, id);
            for swept in sweep.lanes.add(id, swept) {
                sweep.digests.push(swept.digest);
                if let Some(writer) = &mut sweep.writer {
                    writer.add_section(&swept.section)?;
                }
                self.stats.partitions_done += 1;
            }
        }
        if !sweep.lanes.has_ended() {
            return Ok((Event::BatchWritten, Phase::Copy));
        }
        assert_eq!(
            self.stats.partitions_done,
            u64::from(self.parts.heap.geometry().partitions),
            "the sweep ends when every partition has its section"
        );
        Ok((Event::LastBatchWritten, Phase::SyncPages))
    }

    /// Returns the section and the digest of a partition after its last page was visited.
    fn swept(&mut self, sweep: &Sweep, id: PartitionId) -> Swept {
        let pseq = sweep.pseq(id);
        let directory = &self.directories[sweep.slot.index()];
        let section = directory.encode_section(id, pseq, &self.sidecar);
        self.sidecar.clear();
        let geometry = self.parts.heap.geometry();
        let digest = digest_of(directory, id, geometry, sweep.cut.is_some());
        Swept { section, digest }
    }

    /// Makes the pages files durable, all disks at the same time.
    pub(super) fn sync(&self, sweep: &Sweep) -> Result<()> {
        let begun = sweep.writers.iter().try_for_each(Writer::begin_sync);
        let synced = begun.and_then(|()| sweep.writers.iter().try_for_each(Writer::end_sync));
        synced.inspect_err(|error| self.parts.wal.stop(folder(sweep.slot), error))
    }
}
