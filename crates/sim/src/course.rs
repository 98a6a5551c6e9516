//! The course of a run, in any world: the number and length of its lives, and the faults that befall them.

use fastrand::Rng;
use perdura_device::CrashProfile;

use crate::swarm::pick;

/// The part of a swarm that every world has.
#[derive(Debug, Clone)]
pub struct Course {
    /// The number of log streams.
    pub streams: u8,
    /// The odds that a stream flushes when a flush is requested, of 100, by stream.
    pub stream_speed: Vec<u8>,
    /// The number of planned crashes.
    pub crashes: u32,
    /// The most steps in a life.
    pub steps: u32,
    /// Odds that a life has a fault planned, of 100.
    pub faults: u8,
    /// Odds that a restart is disturbed, of 100.
    pub nested: u8,
    /// True if bit rot strikes at the last crash.
    pub rot: bool,
    /// The profile that decides which unsynced writes survive a crash. `None`: drawn for each
    /// crash.
    pub profile: Option<CrashProfile>,
    /// True if transactions may run out of memory.
    pub memory_is_short: bool,
}

impl Course {
    /// Returns a course of one short life without faults. It has the given number of streams, which flush on
    /// every request.
    pub(crate) fn calm(streams: u8, profile: Option<CrashProfile>) -> Course {
        Course {
            streams,
            stream_speed: vec![100; usize::from(streams)],
            crashes: 1,
            steps: 80,
            faults: 0,
            nested: 0,
            rot: false,
            profile,
            memory_is_short: false,
        }
    }

    /// Returns the number of disks beside the data disk: one for each stream if `apart`, otherwise
    /// 0.
    pub(crate) fn log_disks(&self, apart: bool) -> u64 {
        if apart { u64::from(self.streams) } else { 0 }
    }

    /// Draws the odds of faults, and the odds that each stream flushes. Some streams flush a hundred times
    /// less often than others.
    pub(crate) fn draw_faults(&mut self, rng: &mut Rng) {
        for speed in &mut self.stream_speed {
            *speed = pick(rng, &[100, 100, 100, 50, 50, 5, 1]);
        }
        self.faults = pick(rng, &[0, 30, 70]);
        self.nested = pick(rng, &[0, 0, 10, 40]);
    }
}
