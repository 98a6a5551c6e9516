//! A restart for good of a database with a tree.

use std::sync::Arc;

use anyhow::{Context, Result};
use perdura::RestartReport;
use perdura_device::SystemClock;
use perdura_recovery::disks::{Demand, Opening};
use perdura_recovery::{Method, Schedule};
use perdura_steal::keyed::contents;
use perdura_steal::{Keyed, KeyedOptions, StealEnv};
use perdura_wal::Rung;

use super::interleaved::open_dir;
use crate::in_memory::Pool;
use crate::offline::{Directories, Offline, with_digest};

/// Opens the database with so many pages in memory, takes back what was open, and leaves it with a checkpoint.
pub fn restart(
    directories: &Directories,
    offline: Offline,
    method: &'static Method,
    schedule: &Schedule,
    pool: &Pool,
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
        ..pool.keyed(scheme)
    };
    let opened = Keyed::open(env, options)?.context("the anchor is gone")?;
    opened.checkpoint_now()?;
    let contents = contents(opened.tree(), opened.wal().eosl(Rung::Disk))?;
    let mut report = with_digest(opened.report().clone(), contents.digest);
    report.rows = contents.rows;
    Ok(report)
}
