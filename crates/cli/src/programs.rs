//! The procedures in this command: the procedures of the benchmark workloads. If a log has calls of other procedures,
//! only a program with those procedures can replay the log.

use std::sync::Arc;

use perdura::Db;
use perdura::typed::replay::Replayer;
use perdura::typed::{AcceptDivergence, TypedOptions};
use perdura_base::limits::VALUE_BYTES_MAX;
use perdura_recovery::ordered::OrderedPlayer;
use perdura_workloads::{tpcc, voter};

/// Returns the procedures for a replay. The replay does not add them to the database's catalog.
pub fn replayed() -> TypedOptions {
    let programs = voter::bench::declare(tpcc::bench::declare(Db::builder("")));
    TypedOptions {
        replayed: programs.into_options().typed.procedures,
        ..TypedOptions::default()
    }
}

/// Returns a player of ordered frames for one restart.
pub fn player(accept: Option<AcceptDivergence>) -> Arc<dyn OrderedPlayer> {
    let options = TypedOptions {
        accept,
        ..replayed()
    };
    Arc::new(Replayer::new(options, VALUE_BYTES_MAX))
}
