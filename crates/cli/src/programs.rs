//! The procedures that this command has: those of the workloads that it measures. A log with calls of
//! others needs the program that made them.

use std::sync::Arc;

use perdura::Db;
use perdura::typed::replay::Replayer;
use perdura_base::limits::VALUE_BYTES_MAX;
use perdura_recovery::ordered::OrderedPlayer;
use perdura_workloads::{tpcc, voter};

/// A player of ordered frames, for one restart.
pub fn player() -> Arc<dyn OrderedPlayer> {
    let programs = voter::bench::declare(tpcc::bench::declare(Db::builder("")));
    let declared = programs.into_options().typed;
    Arc::new(Replayer::new(declared, VALUE_BYTES_MAX))
}
