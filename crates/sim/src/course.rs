//! The course of a run, in any world: how many lives it has, how long they are, and the faults that strike them. A
//! life lasts from a restart to the next crash.

use fastrand::Rng;
use perdura_device::CrashProfile;

use crate::swarm::pick;

/// The part of a run's character that is common to all worlds: streams, lives, crashes and faults.
#[derive(Debug, Clone)]
pub struct Course {
    /// The number of log streams.
    pub streams: u8,
    /// By stream, the odds out of 100 that the stream flushes when a flush is requested.
    pub stream_speed: Vec<u8>,
    /// The number of planned crashes.
    pub crashes: u32,
    /// The maximum number of steps in a life.
    pub steps: u32,
    /// Odds, out of 100, that a life gets a planned fault.
    pub faults: u8,
    /// Odds, out of 100, that crashes interrupt a restart.
    pub nested: u8,
    /// True if bit rot strikes at the last crash.
    pub rot: bool,
    /// The crash profile, which decides which unsynced writes survive a crash. `None`: each crash gets a random
    /// profile.
    pub profile: Option<CrashProfile>,
    /// True if transactions may run out of memory.
    pub memory_is_short: bool,
}

impl Course {
    /// Returns a course of one short life without faults. The log has `streams` streams. Each stream flushes whenever a
    /// flush is requested.
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

    /// Returns how many disks the log has besides the data disk: one for each stream if `apart`, otherwise 0.
    pub(crate) fn log_disks(&self, apart: bool) -> u64 {
        if apart { u64::from(self.streams) } else { 0 }
    }

    /// Chooses, at random, the odds of faults and the odds that each stream flushes. Some streams flush a hundred times
    /// less often than other streams.
    pub(crate) fn draw_faults(&mut self, rng: &mut Rng) {
        for speed in &mut self.stream_speed {
            *speed = pick(rng, &[100, 100, 100, 50, 50, 5, 1]);
        }
        self.faults = pick(rng, &[0, 30, 70]);
        self.nested = pick(rng, &[0, 0, 10, 40]);
    }
}
