//! A restart for good of a database with a tree.

use anyhow::{Context, Result};
use perdura::RestartReport;
use perdura_recovery::{Method, Schedule};
use perdura_steal::keyed::contents;
use perdura_steal::{Keyed, KeyedOptions};
use perdura_wal::Rung;

use super::to_write;
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
    let scheme = offline.anchor.scheme;
    let (env, _locks) = to_write(directories, offline)?;
    let options = KeyedOptions {
        schedule: *schedule,
        method: method.name,
        ..pool.keyed(scheme)
    };
    let opened = Keyed::open(env, options)?.context("the anchor is gone")?;
    opened.close()?;
    let contents = contents(opened.tree(), opened.wal().eosl(Rung::Disk))?;
    let mut report = with_digest(opened.report().clone(), contents.digest);
    report.rows = contents.rows;
    Ok(report)
}
