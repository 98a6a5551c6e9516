//! A model of differential logging. It is small enough to run tens of thousands of histories in a second. A stream is
//! a vector of records, a page is a few bytes, and a disk holds a prefix of each vector.
//!
//! The model uses no code of the engine except the predicates of `perdura_recovery::rule`. So a run tests the
//! algorithm, and tests that these predicates implement it. A history has interleaved transactions with slot locks and
//! early lock release. Rollbacks happen inside and outside of checkpoint windows. Epochs close stream by stream, sweeps
//! are fuzzy or cancelled, and pages are added. Several crashes follow, each with a restart. At the end of each life
//! the state is computed in four ways:
//!
//! * From the newest image and the log, as a restart does. The result must equal the sum of the committed changes.
//! * From every image to every epoch (point in time).
//! * From every image to every other image. This uses only how and when a transaction ended.
//! * From every image, with records combined beforehand (net change).
//!
//! Each known mistake is a [`Twist`], including mistakes of the algorithm in the paper. [`VARIANTS`] lists combinations
//! of twists, and whether runs with them must keep all promises.
//!
//! # Source
//! *Differential Logging* (000), algorithms 1-3 and section 4.

mod crash;
mod fate;
mod life;
mod oracle;
mod printed;
mod state;
mod sweep;
mod txn;
mod variant;

use fastrand::Rng;

use crate::content::scramble;
use state::Machine;

pub use variant::{Twist, Twists, VARIANTS};

/// The number of crashes in a run.
const CRASHES: u32 = 4;
/// The maximum number of steps in a life.
const STEPS_MAX: u32 = 120;

/// The result of a variant's runs.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The number of runs.
    pub runs: u64,
    /// The number of runs that broke a promise.
    pub failures: u64,
    /// The seed of the first failed run, and the promise that it broke.
    pub first: Option<(u64, String)>,
}

/// Runs one history with all its crashes.
///
/// # Errors
/// Returns a description of the broken promise.
pub fn run_one(seed: u64, twists: Twists) -> Result<(), String> {
    let mut rng = Rng::with_seed(scramble(seed));
    let mut machine = Machine::new(&mut rng, twists);
    for _ in 0..CRASHES {
        for _ in 0..rng.u32(1..=STEPS_MAX) {
            machine.step(&mut rng);
        }
        if machine.keeps_history() {
            machine.check_history()?;
        }
        machine.crash(&mut rng)?;
    }
    Ok(())
}

/// Runs a variant with the seeds from `seed` on. Stops after `runs` runs, or when `enough` runs have failed.
#[must_use]
pub fn run_variant(twists: Twists, seed: u64, runs: u64, enough: u64) -> Outcome {
    let mut outcome = Outcome::default();
    for seed in seed..seed.saturating_add(runs) {
        outcome.runs += 1;
        if let Err(what) = run_one(seed, twists) {
            outcome.failures += 1;
            outcome.first.get_or_insert((seed, what));
            if outcome.failures >= enough {
                break;
            }
        }
    }
    outcome
}
