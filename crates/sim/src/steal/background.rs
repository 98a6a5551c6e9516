//! Epochs, flushers, checkpoints, segments, the clock: everything that is not a transaction.

use perdura_base::StreamId;
use perdura_recovery::CheckpointProgress;
use perdura_wal::{FlushProgress, Rung};

use crate::world::Check;

use super::world::World;

impl World {
    /// Takes one step, drawn by the run's odds.
    pub fn step(&mut self) -> Check {
        let odds = self.swarm.odds;
        let mut at = self.rng.u32(0..odds.iter().sum());
        let mut kind = 0;
        while at >= odds[kind] {
            at -= odds[kind];
            kind += 1;
        }
        self.note(u64::try_from(kind).unwrap_or(0));
        match kind {
            0 => self.begin(),
            1 => return self.change(false),
            2 => return self.insert(),
            3 => return self.change(true),
            4 => self.commit(),
            5 => self.abort(),
            6 => drop(self.steal().close_epoch()),
            7 => self.close_part(),
            8 => return self.flush_one(),
            9 => return self.checkpoint_begin(),
            10 => return self.checkpoint_steps(),
            11 => return self.grow(),
            12 => return self.read(),
            13 => drop(self.steal().checkpoint_cancel()),
            14 => return self.prepare(),
            _ => return self.vouch(),
        }
        Ok(())
    }

    fn close_part(&mut self) {
        let stream = StreamId(self.rng.u8(0..self.swarm.streams));
        match self.rng.u8(0..3) {
            0 => drop(self.steal().close_begin()),
            _ => self.steal().close_visit(stream),
        }
    }

    fn vouch(&mut self) -> Check {
        let durable = self.steal().wal().durable(Rung::Disk).0;
        match self.steal().vouch() {
            Ok(_) => {
                self.evidence = self.evidence.max(durable);
                Ok(())
            }
            Err(error) => self.tolerate("vouch", &error),
        }
    }

    fn prepare(&mut self) -> Check {
        self.clock.advance_us(self.rng.u64(0..2_000_000));
        let stream = StreamId(self.rng.u8(0..self.swarm.streams));
        match self.steal().wal().prepare_segment(stream, &|| {}) {
            Ok(_) => Ok(()),
            Err(error) => self.tolerate("prepare_segment", &error),
        }
    }

    fn flush_one(&mut self) -> Check {
        let stream = self.rng.u8(0..self.swarm.streams);
        if self.rng.u8(0..100) >= self.swarm.stream_speed[usize::from(stream)] {
            return Ok(());
        }
        for _ in 0..self.rng.u8(1..=6) {
            if self.flush_step(stream)? != Some(FlushProgress::Wrote) {
                break;
            }
        }
        Ok(())
    }

    /// One step of a flusher; `None` if it failed as it may.
    fn flush_step(&mut self, stream: u8) -> Check<Option<FlushProgress>> {
        let s = usize::from(stream);
        let durable = self.steal().wal().durable(Rung::Disk).0;
        match self.steal().flush_step(StreamId(stream)) {
            Ok(progress) => {
                match progress {
                    FlushProgress::Wrote => self.named[s] = self.named[s].max(durable),
                    FlushProgress::Synced => self.evidence = self.evidence.max(self.named[s]),
                    FlushProgress::Idle => {}
                }
                Ok(Some(progress))
            }
            Err(error) => self.tolerate("flush_step", &error).map(|()| None),
        }
    }

    pub fn flush_all(&mut self) -> Check {
        self.steal().close_epoch();
        for stream in 0..self.swarm.streams {
            while !self.stopped {
                match self.flush_step(stream)? {
                    None | Some(FlushProgress::Idle) => break,
                    Some(_) => {}
                }
            }
        }
        self.observe();
        Ok(())
    }

    pub fn checkpoint_begin(&mut self) -> Check {
        match self.steal().checkpoint_begin() {
            Ok(()) => Ok(()),
            Err(error) => self.tolerate("checkpoint_begin", &error),
        }
    }

    fn checkpoint_steps(&mut self) -> Check {
        for _ in 0..self.rng.u8(1..=4) {
            match self.checkpoint_step()? {
                Some(CheckpointProgress::Working(_)) => {}
                Some(CheckpointProgress::Waiting) => {
                    if self.rng.u8(0..3) == 0 {
                        self.flush_all()?;
                    }
                    break;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// One step of the checkpoint; `None` if it failed as it may.
    fn checkpoint_step(&mut self) -> Check<Option<CheckpointProgress>> {
        match self.steal().checkpoint_step() {
            Ok(progress) => {
                if progress == CheckpointProgress::Done {
                    self.tally.checkpoints += 1;
                    self.note(77);
                }
                Ok(Some(progress))
            }
            Err(error) => self.tolerate("checkpoint_step", &error).map(|()| None),
        }
    }

    /// A whole checkpoint, flushing as it goes, unless a fault is in its way.
    pub fn checkpoint_now(&mut self) -> Check {
        self.checkpoint_begin()?;
        while !self.stopped {
            match self.checkpoint_step()? {
                Some(CheckpointProgress::Working(_)) => {}
                Some(CheckpointProgress::Waiting) => {
                    self.flush_all()?;
                    // The log's disk is full: it waits on.
                    if !self.steal().wal().is_idle() {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }
}
