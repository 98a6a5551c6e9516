//! The sizes of the experiments of paper 001.

use std::time::Duration;

use crate::tpcc::inputs::Scale as Warehouses;

/// The sizes of the experiments.
#[derive(Debug, Clone, Copy)]
pub struct TypedScale {
    /// The number of rounds. In each round, all schemes are measured with new databases. The median counts.
    pub rounds: usize,
    /// The size of TPC-C in figures 6 to 8, and in the measurements of record sizes.
    pub tpcc: Warehouses,
    /// The size of TPC-C in figure 9.
    pub distributed: Warehouses,
    /// The size of each of the three TPC-C databases in figure 10.
    pub replicated: Warehouses,
    /// The clients' rates, as parts of the throughput without a log.
    pub rates: &'static [f64],
    /// The length of the measured time of a run.
    pub measured: Duration,
    /// The length of the warm-up at the start of a run. The warm-up is not measured.
    pub warm_up: Duration,
    /// The rates before a crash, as parts of the throughput without a limit.
    pub crash_rates: &'static [f64],
    /// The number of transactions between the last image and a crash, of Voter and of TPC-C.
    pub crash_txns: [u64; 2],
    /// The number of restarts of one crash. The median counts.
    pub restarts: usize,
    /// The numbers of remote lines in a hundred order lines that figures 9 and 10 compare.
    pub remote: &'static [f64],
    /// The highest number of transactions in a measurement of figure 10.
    pub replicated_txns: u64,
    /// The highest number of distributed transactions in a measurement of figure 10. Each of them waits for its round
    /// trips.
    pub replicated_waits: f64,
    /// The number of transactions whose bytes are counted.
    pub sized_txns: u64,
}

/// Returns `warehouses` warehouses of the specification's size.
const fn whole(warehouses: u16) -> Warehouses {
    Warehouses {
        warehouses,
        items: 100_000,
        customers: 3_000,
    }
}

/// Returns `warehouses` warehouses of a fifth of the specification's size.
const fn fifth(warehouses: u16) -> Warehouses {
    Warehouses {
        warehouses,
        items: 20_000,
        customers: 600,
    }
}

impl TypedScale {
    /// The paper's sizes, except for the number of warehouses in figure 10.
    pub const FULL: TypedScale = TypedScale {
        rounds: 5,
        tpcc: whole(8),
        distributed: whole(12),
        replicated: fifth(12),
        rates: &[0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5],
        measured: Duration::from_millis(1500),
        warm_up: Duration::from_millis(400),
        crash_rates: &[0.2, 0.4, 0.6, 0.8],
        crash_txns: [400_000, 150_000],
        restarts: 5,
        remote: &[0.0, 0.1, 0.5, 1.0, 3.0, 6.7, 15.0, 40.0],
        replicated_txns: 40_000,
        replicated_waits: 10_000.0,
        sized_txns: 60_000,
    };

    /// Fewer warehouses, each of a fifth of the size.
    pub const SMALL: TypedScale = TypedScale {
        rounds: 3,
        tpcc: fifth(4),
        distributed: fifth(8),
        replicated: fifth(4),
        rates: &[0.25, 0.5, 0.75, 0.9, 1.0, 1.25],
        measured: Duration::from_millis(700),
        warm_up: Duration::from_millis(200),
        crash_rates: &[0.3, 0.6],
        crash_txns: [100_000, 30_000],
        restarts: 3,
        remote: &[0.0, 0.5, 1.0, 6.7, 40.0],
        replicated_txns: 10_000,
        replicated_waits: 1_000.0,
        sized_txns: 20_000,
    };

    /// Sizes that only test the code of the experiment.
    pub const TINY: TypedScale = TypedScale {
        rounds: 1,
        tpcc: Warehouses {
            warehouses: 2,
            items: 100,
            customers: 30,
        },
        distributed: Warehouses {
            warehouses: 2,
            items: 100,
            customers: 30,
        },
        replicated: Warehouses {
            warehouses: 2,
            items: 100,
            customers: 30,
        },
        rates: &[0.25, 0.5],
        measured: Duration::from_millis(60),
        warm_up: Duration::from_millis(20),
        crash_rates: &[0.5],
        crash_txns: [500, 300],
        restarts: 1,
        remote: &[0.0, 0.5, 1.0, 6.7, 40.0],
        replicated_txns: 200,
        replicated_waits: 100.0,
        sized_txns: 500,
    };
}
