//! A model of differential logging small enough to run tens of thousands of histories a second:
//! streams are vectors of records, pages a few bytes, disks a prefix of each vector.
//!
//! It uses no code of the engine except the predicates of `perdura_recovery::rule`: a run tests the
//! algorithm, and that those predicates implement it. Histories consist
//! of interleaved transactions with slot locks and early lock release, rollbacks inside and
//! outside of checkpoint windows, epochs closed stream by stream, fuzzy and cancelled sweeps, page
//! growth, crashes and restarts in a chain. After each life the state is computed
//!
//! * from the newest image and the log as restart does, and compared with the sum of the committed changes;
//! * from every image to every epoch (point in time);
//! * from every image to every other image, knowing of a transaction only when it ended;
//! * from every image by records that were combined before (net change).
//!
//! Each known mistake in such an algorithm, including those of the printed one, is a [`Twist`];
//! [`VARIANTS`] lists the combinations with the verdict that their runs must reach.
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

/// Crashes in a run.
const CRASHES: u32 = 4;
/// Steps in a life at most.
const STEPS_MAX: u32 = 120;

/// The runs of a variant.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// How many there were.
    pub runs: u64,
    /// How many broke a promise.
    pub failures: u64,
    /// The first that did: its seed, and what was wrong.
    pub first: Option<(u64, String)>,
}

/// One history with its crashes.
///
/// # Errors
/// A broken promise, in words.
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

/// Runs of a variant, with seeds from `seed` on, until `enough` of them failed.
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
