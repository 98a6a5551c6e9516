//! A log with a missing transaction. No crash can cause this gap. The test forges a frame with a number that does not
//! follow the previous number. A restart must refuse this log.

use std::sync::Arc;

use perdura::{Core, PartitionId, PartitionSet};
use perdura_base::error::Family;
use perdura_base::{CkptEpoch, StreamId};
use perdura_device::{CrashProfile, SimDisk};
use perdura_formats::ordered::encode_head;
use perdura_wal::{FlushProgress, FrameKind};

use crate::machine::Engine;
use crate::over_core::OverCore;
use crate::report::Check;

use super::world::World;

impl World {
    /// Forges a gap in the log's numbers, on copies of a sound database's disks. Checks that a restart refuses the
    /// gap.
    pub fn check_gap(&self, copies: &[Arc<SimDisk>], choice: u64) -> Check {
        if self.swarm.declared == 0 {
            return Ok(());
        }
        let text = |error: perdura::Error| format!("a log to be forged: {error}");
        let core = self.open_core(copies).map_err(text)?;
        let partitions = u64::from(self.swarm.options.partitions);
        let partition = PartitionId(u16::try_from(choice % partitions).unwrap_or(0));
        let stream = u64::from(self.course.streams);
        let stream = StreamId(u8::try_from(choice / partitions % stream).unwrap_or(0));
        let number = core.heap().lock(partition).pseq() + 2;
        assert!(number > 1, "a number is left out before it");
        let mut payload = Vec::new();
        encode_head(&mut payload, &[(partition, number)], false);
        let parts: PartitionSet = [partition].into_iter().collect();
        core.admit(payload.len()).map_err(text)?;
        let kind = FrameKind::Effects;
        let _forged = core
            .wal()
            .append(stream, kind, &payload, &parts, CkptEpoch(0));
        flush(&core, self.course.streams).map_err(text)?;
        drop(core);
        copies
            .iter()
            .for_each(|disk| disk.crash(CrashProfile::Nothing, choice));
        match self.open_core(copies) {
            Err(error) if error.family() == Family::Corruption => Ok(()),
            Err(error) => Err(format!("a gap in partition {partition}: {error}")),
            Ok(_) => Err(format!(
                "transaction {number} of partition {partition} follows number {}, and yet the database \
                 started",
                number - 2
            )),
        }
    }
}

/// Closes the epoch and makes everything durable.
fn flush(core: &Core, streams: u8) -> perdura::Result<()> {
    Engine::close_epoch(core);
    for stream in (0..streams).map(StreamId) {
        while Engine::flush_step(core, stream)? != FlushProgress::Idle {}
    }
    Ok(())
}
