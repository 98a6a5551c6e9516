//! The flusher of one stream: a machine that performs one I/O per step.
//!
//! ```text
//! Idle ──take sealed blocks──► Writing ──all written──► Syncing ──synced──► Idle, D advances
//! ```
//! The engine drives it from a thread, the simulator from its seed: the same code. A failed write
//! or sync latches the log; nobody retries. The one failure that passes is a full disk while a
//! segment is being added: the blocks wait, and the step is taken again later.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::{IN_FLIGHT_BYTES_MAX, SECTOR_BYTES};
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Epoch, Error, Pos, Result, StreamId};
use perdura_device::{AlignedBuf, File};

use crate::block::{self, BlockHeader};
use crate::log::{Stream, Wal};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentId, encode_header, sync_log_dir};
use crate::sizes::Span;
use crate::stream::SealedBlock;
use crate::sync::Ordering;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushProgress {
    /// There was nothing to write.
    Idle,
    /// A block was written; more steps follow.
    Wrote,
    /// Everything taken is synced; D may have advanced.
    Synced,
}

/// The segment being written.
struct Segment {
    span: Span,
    file: Arc<dyn File>,
}

/// A flusher's own state.
pub(crate) struct FlushState {
    batch: std::collections::VecDeque<SealedBlock>,
    /// Written since the last sync.
    written_end: Option<Pos>,
    /// The highest D that a block written since the last sync names.
    names_durable: Epoch,
    segment: Option<Segment>,
    /// Files to sync: the segment written last, and those left behind in this batch.
    unsynced: Vec<Arc<dyn File>>,
    /// A segment is being added: a full disk then only means "later".
    placing: bool,
}

impl FlushState {
    pub fn new() -> Self {
        FlushState {
            batch: std::collections::VecDeque::new(),
            written_end: None,
            names_durable: Epoch(0),
            segment: None,
            unsynced: Vec::new(),
            placing: false,
        }
    }
}

impl Wal {
    /// Takes one step of a stream's flusher.
    ///
    /// # Errors
    /// A full disk, after which the step may be repeated; any other error has latched the log.
    pub fn flush_step(&self, stream: StreamId) -> Result<FlushProgress> {
        self.check()?;
        let s = &self.streams[usize::from(stream.0)];
        let mut state = s.flush.lock();
        let state = &mut *state;
        if state.batch.is_empty() && state.written_end.is_none() {
            self.take_batch(s, state);
            if state.batch.is_empty() {
                return Ok(FlushProgress::Idle);
            }
        }
        let step = if state.batch.is_empty() {
            self.sync_batch(s, state)
        } else {
            self.write_block(stream, s, state)
        };
        step.inspect_err(|error| {
            if error.is_disk_full() && state.placing {
                self.disk_full.store(1, Ordering::Relaxed);
            } else {
                self.fail(&format!("log stream {stream}: {error}"));
            }
        })
    }

    /// Takes blocks whose headers can be completed. The last block of an epoch needs the epoch's
    /// ends, which are known once the epoch's closing has visited every stream.
    fn take_batch(&self, s: &Stream, state: &mut FlushState) {
        let mut inner = s.inner.lock();
        let closed = self
            .ends
            .lock()
            .closed
            .back()
            .map_or(Epoch(0), |newest| newest.epoch);
        let mut bytes = 0;
        while let Some(front) = inner.sealed.front() {
            let known = !front.last || front.epoch <= closed.max(self.durable());
            bytes += to_usize(front.block_len());
            if !known || bytes > self.batch_bytes_max() {
                break;
            }
            state.batch.extend(inner.sealed.pop_front());
        }
    }

    fn write_block(
        &self,
        stream: StreamId,
        s: &Stream,
        state: &mut FlushState,
    ) -> Result<FlushProgress> {
        let Some(next) = state.batch.front() else {
            return Ok(FlushProgress::Idle);
        };
        let (pos, end) = (next.pos, next.end());
        if state
            .segment
            .as_ref()
            .is_none_or(|segment| pos >= segment.span.end())
        {
            self.next_segment(stream, s, state, pos)?;
        }
        let (Some(segment), Some(mut block)) = (&state.segment, state.batch.pop_front()) else {
            return Ok(FlushProgress::Idle);
        };
        assert!(
            segment.span.start <= pos && end <= segment.span.end(),
            "a block lies in one segment"
        );
        let synced = s.synced.load(Ordering::Relaxed);
        assert!(
            end.0 - synced <= IN_FLIGHT_BYTES_MAX,
            "too much is in flight"
        );
        let durable = self.durable();
        let header = self.header_of(stream, &block, durable);
        let len = to_usize(block.block_len());
        block::seal(&header, &mut block.buf[..len]);
        segment.file.write_at(
            SEGMENT_HEADER_BYTES + (pos.0 - segment.span.start.0),
            &block.buf[..len],
        )?;
        state.written_end = Some(end);
        state.names_durable = state.names_durable.max(durable);
        self.counters.blocks.fetch_add(1, Ordering::Relaxed);
        self.counters
            .device_bytes
            .fetch_add(to_u64(len), Ordering::Relaxed);
        s.inner.lock().recycle(block.buf);
        Ok(FlushProgress::Wrote)
    }

    fn header_of(&self, stream: StreamId, block: &SealedBlock, durable: Epoch) -> BlockHeader {
        let ends = block.last.then(|| {
            let ends = self.ends.lock();
            let of_epoch = ends.closed.iter().find(|e| e.epoch == block.epoch);
            of_epoch
                .expect("an epoch's ends stay until it is durable")
                .ends
                .clone()
        });
        BlockHeader {
            stream,
            database: self.uuid.short(),
            incarnation: self.incarnation,
            pos: block.pos,
            prev_pos: block.prev_pos,
            epoch: block.epoch,
            durable,
            wall_us: self.stamp(),
            ckpt_epoch: block.ckpt_epoch,
            body_len: block.body_len,
            first_frame: block.first_frame,
            streams: self.streams(),
            partitions: block.partitions,
            ends,
        }
    }

    fn next_segment(
        &self,
        stream: StreamId,
        s: &Stream,
        state: &mut FlushState,
        pos: Pos,
    ) -> Result<()> {
        state.placing = true;
        let life = self.start[usize::from(stream.0)];
        let span = self.options.segments.span_at(life, pos);
        let id = SegmentId {
            stream,
            start: span.start,
            incarnation: self.incarnation,
        };
        let plan = {
            let mut shelf = s.shelf.lock();
            (!shelf.has_spare(span.bytes)).then(|| shelf.plan_spare(span.bytes))
        };
        if let Some(plan) = plan {
            let spare = plan.prepare(&|| {})?;
            s.shelf.lock().add_spare(spare);
        }
        let file = s.shelf.lock().place(id, span.bytes)?;
        s.allocated_end.store(span.end().0, Ordering::Relaxed);
        self.disk_full.store(0, Ordering::Relaxed);
        state.placing = false;
        // The name first: then the segment before it may say that this one exists, and a restart
        // that misses it knows that it was lost.
        let disk = Arc::clone(&s.shelf.lock().disk);
        sync_log_dir(disk.as_ref())?;
        if let Some(old) = state.segment.replace(Segment { span, file }) {
            // To be synced with this batch whatever happens next: it holds blocks of it.
            state.unsynced.push(Arc::clone(&old.file));
            let id = SegmentId {
                start: old.span.start,
                ..id
            };
            let mut header = AlignedBuf::zeroed(SECTOR_BYTES);
            let bytes = encode_header(id, &self.uuid, old.span.bytes, true);
            header.copy_from_slice(&bytes);
            old.file.write_at(0, &header)?;
        }
        Ok(())
    }

    fn sync_batch(&self, s: &Stream, state: &mut FlushState) -> Result<FlushProgress> {
        for file in &state.unsynced {
            self.sync_file(file.as_ref())?;
        }
        state.unsynced.clear();
        if let Some(segment) = &state.segment {
            self.sync_file(segment.file.as_ref())?;
        }
        let Some(end) = state.written_end.take() else {
            return Err(Error::Stopped("a sync without a write".into()));
        };
        s.synced.store(end.0, Ordering::SeqCst);
        self.evidenced
            .fetch_max(state.names_durable.0, Ordering::SeqCst);
        self.advance_durable();
        Ok(FlushProgress::Synced)
    }

    fn sync_file(&self, file: &dyn File) -> Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        let first = file.sync();
        if first.is_err() && armed(Flaw::SyncRetried) {
            return file.sync();
        }
        first
    }
}
