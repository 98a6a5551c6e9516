//! The copying of pages by a sweep: from memory to the staging buffer, then to the pages files.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{PageId, PartitionId, Result};
use perdura_heap::Visit;

use super::phase::{Event, Phase, TREES};
use super::{CheckpointProgress, Checkpointer, Staged, Sweep, Taken, VISIT_PAGES};
use crate::heap_pages::visit;
use crate::image::{DirEntry, directory_path, disk_of, folder};
use crate::sweep_digest::digest_of;

impl Checkpointer {
    /// Takes a step of the sweep.
    pub(crate) fn sweep_heap(&mut self, sweep: &mut Sweep, phase: Phase) -> Result<Taken> {
        let (event, next) = match phase {
            Phase::Copy { partition, local } => (Event::Staged, self.copy(sweep, partition, local)),
            Phase::Write {
                partition,
                next_local,
                run,
            } if run < self.staged.len() => {
                return self.write(sweep, partition, next_local, run);
            }
            Phase::Write {
                partition,
                next_local,
                ..
            } => self.finish_batch(sweep, partition, next_local)?,
            Phase::SyncPages => {
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

    /// Gives up the sweep. Copied pages that perhaps were not written are marked dirty again for the slot.
    pub(crate) fn cancel_sweep(&mut self, sweep: &Sweep) {
        let tmp = format!("{}.tmp", directory_path(sweep.slot, sweep.k));
        // The unfinished directory would take space on a full disk. If it cannot be removed now, the next complete
        // checkpoint of this slot removes it.
        let _gone_or_later = self.parts.disks.data.remove(&tmp);
        if armed(Flaw::FailedWriteClean) {
            return;
        }
        for staged in self.staged.drain(..) {
            let heap = &self.parts.heap;
            let id = heap.geometry().partition_of_page(staged.page);
            heap.lock(id).mark_dirty(staged.local, sweep.slot);
        }
    }

    /// Writes, as one step, the next run of staged pages. The run begins at index `run`, and its pages lie side by side
    /// in the file.
    fn write(
        &mut self,
        sweep: &mut Sweep,
        partition: u16,
        next_local: Option<u32>,
        run: usize,
    ) -> Result<Taken> {
        let end = self.write_run(sweep, PartitionId(partition), run)?;
        let next = Phase::Write {
            partition,
            next_local,
            run: end,
        };
        Ok(Taken {
            progress: CheckpointProgress::Working(to_u64((end - run) * PAGE_BYTES)),
            ..Taken::worked(Event::RunWritten, next)
        })
    }

    /// Visits up to [`VISIT_PAGES`] pages of a partition under its latch.
    pub(super) fn copy(&mut self, sweep: &mut Sweep, partition: u16, local: u32) -> Phase {
        let id = PartitionId(partition);
        #[cfg(feature = "flaws")]
        if armed(Flaw::CutLatchesSingly) && partition > 0 && local == 0 {
            sweep.cut_late(id);
        }
        self.staged.clear();
        self.staging.clear();
        self.sidecar.clear();
        let Checkpointer {
            parts,
            directories,
            staging,
            staged,
            sidecar,
            ..
        } = self;
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
            sweep.goes_on = Some((partition, local));
            return Phase::Write {
                partition: fullest.0,
                next_local: None,
                run: 0,
            };
        }
        let next_local = visit(&parts.heap, (id, pages), kind, sidecar, take);
        Phase::Write {
            partition,
            next_local,
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
        let image = &sweep.images[disk_of(id, sweep.images.len())];
        image.write(place, &self.staging[run * PAGE_BYTES..end * PAGE_BYTES])?;
        sweep.pages += to_u64(side_by_side);
        sweep.bytes += to_u64(side_by_side * PAGE_BYTES);
        Ok(end)
    }

    /// Ends a batch and returns the next phase. After a partition's last batch, first writes the partition's section of
    /// the directory.
    pub(super) fn finish_batch(
        &mut self,
        sweep: &mut Sweep,
        partition: u16,
        next_local: Option<u32>,
    ) -> Result<(Event, Phase)> {
        self.staged.clear();
        if let Some((partition, local)) = sweep.goes_on.take() {
            return Ok((Event::BatchWritten, Phase::Copy { partition, local }));
        }
        if let Some(local) = next_local {
            return Ok((Event::BatchWritten, Phase::Copy { partition, local }));
        }
        let id = PartitionId(partition);
        let pseq = sweep.pseq(id);
        let directory = &self.directories[sweep.slot.index()];
        let section = directory.encode_section(id, pseq, &self.sidecar);
        self.sidecar.clear();
        let geometry = self.parts.heap.geometry();
        let consistent = sweep.cut.is_some();
        let digest = digest_of(directory, id, geometry, consistent);
        sweep.digests.push(digest);
        if let Some(writer) = &mut sweep.writer {
            writer.add_section(&section)?;
        }
        assert_eq!(
            u64::from(partition),
            self.stats.partitions_done,
            "sections stand in the order of the partitions"
        );
        self.stats.partitions_done += 1;
        if partition + 1 < self.parts.heap.geometry().partitions {
            let next = Phase::Copy {
                partition: partition + 1,
                local: 0,
            };
            return Ok((Event::BatchWritten, next));
        }
        assert_eq!(
            self.stats.partitions_done,
            u64::from(self.parts.heap.geometry().partitions),
            "the sweep ends when every partition has its section"
        );
        Ok((Event::LastBatchWritten, Phase::SyncPages))
    }

    pub(super) fn sync(&self, sweep: &Sweep) -> Result<()> {
        for image in &sweep.images {
            image.sync().inspect_err(|error| {
                self.parts.wal.stop(folder(sweep.slot), error);
            })?;
        }
        Ok(())
    }
}
