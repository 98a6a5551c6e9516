//! A restart for good of a database with a tree.

use std::sync::Arc;

use anyhow::{Context, Result};
use perdura::RestartReport;
use perdura_device::SystemClock;
use perdura_recovery::disks::{Demand, Opening};
use perdura_recovery::{Method, Schedule};
use perdura_steal::keyed::digest;
use perdura_steal::{Keyed, KeyedOptions, StealEnv};
use perdura_wal::Rung;

use super::interleaved::open_dir;
use crate::offline::{Directories, Offline, with_digest};

/// Threads that read pages ahead.
const READERS: usize = 32;

/// Opens the database with so many pages in memory, takes back what was open, and leaves it with a checkpoint.
pub fn restart(
    directories: &Directories,
    offline: Offline,
    method: &'static Method,
    schedule: &Schedule,
    frames: usize,
) -> Result<RestartReport> {
    let (scheme, streams) = (offline.anchor.scheme, offline.anchor.streams);
    // Its locks are shared, and stand in the way of the ones that follow.
    drop(offline);
    let paths = directories.paths();
    let opening = Opening::begin(&paths, &open_dir)?;
    let (disks, _locks) = opening.finish(streams, paths.image_disks(), Demand::All)?;
    let env = StealEnv {
        disks,
        clock: Arc::new(SystemClock::new()),
        seed: 0,
    };
    let options = KeyedOptions {
        schedule: *schedule,
        method: method.name,
        readers: READERS,
        ..KeyedOptions::new(scheme, frames)
    };
    let opened = Keyed::open(env, options)?.context("the anchor is gone")?;
    opened.checkpoint_now()?;
    let digest = digest(opened.tree(), opened.wal().eosl(Rung::Disk))?;
    Ok(with_digest(opened.report().clone(), digest))
}
