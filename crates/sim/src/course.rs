//! The course of a run, in any world: how many lives it has, how long they are, and what befalls them.

use fastrand::Rng;
use perdura_device::CrashProfile;

use crate::swarm::pick;

/// The part of a swarm that every world has.
#[derive(Debug, Clone)]
pub struct Course {
    /// Log streams.
    pub streams: u8,
    /// How willingly each stream flushes, of 100.
    pub stream_speed: Vec<u8>,
    /// Crashes that are planned.
    pub crashes: u32,
    /// Steps in a life at most.
    pub steps: u32,
    /// Odds that a life has a fault planned, of 100.
    pub faults: u8,
    /// Odds that a restart is disturbed, of 100.
    pub nested: u8,
    /// Bit rot strikes at the last crash.
    pub rot: bool,
    /// What crashes keep, if not drawn each time.
    pub profile: Option<CrashProfile>,
    /// Whether transactions may find too little memory.
    pub memory_is_short: bool,
}

impl Course {
    /// One short life on so many streams, which flush whenever they are asked; nothing goes wrong.
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

    /// Disks beside the data's that the streams have, if each has its own.
    pub(crate) fn log_disks(&self, apart: bool) -> u64 {
        if apart { u64::from(self.streams) } else { 0 }
    }

    /// Draws how willingly each stream flushes, some a hundred times less than others, and how often faults
    /// strike.
    pub(crate) fn draw_faults(&mut self, rng: &mut Rng) {
        for speed in &mut self.stream_speed {
            *speed = pick(rng, &[100, 100, 100, 50, 50, 5, 1]);
        }
        self.faults = pick(rng, &[0, 30, 70]);
        self.nested = pick(rng, &[0, 0, 10, 40]);
    }
}
