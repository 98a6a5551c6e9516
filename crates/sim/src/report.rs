//! The options of the simulator, and its report.

use std::collections::BTreeMap;

use perdura_device::CrashProfile;
use serde::Serialize;

/// The result of a step. The error describes a contradiction.
pub type Check<T = ()> = Result<T, String>;

/// The engine and the kind of transactions to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The product: whole transactions under partition latches.
    Executor,
    /// The paper's setting: interleaved transactions with slot locks.
    Steal,
    /// `Executor` and `Steal` in turn, as the seed decides.
    #[default]
    Both,
    /// The product's typed tables and procedures.
    Tables,
    /// Typed tables and a tree in one database.
    Mixed,
    /// The product with its archive of sorted log files. Archive files are merged, backups are taken, and lost disks
    /// are restored.
    Archive,
    /// Interleaved transactions that address rows of a tree by key.
    Tree,
    /// The product with the newest part of its log in the memory of nodes.
    Mirror,
    /// `Steal`, `Executor`, `Tables` and `Mixed` in turn, as the seed decides.
    All,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 9] = [
        Mode::Executor,
        Mode::Steal,
        Mode::Both,
        Mode::Tables,
        Mode::Mixed,
        Mode::Archive,
        Mode::Tree,
        Mode::Mirror,
        Mode::All,
    ];

    /// Returns the mode's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::Executor => "executor",
            Mode::Steal => "steal",
            Mode::Both => "both",
            Mode::Tables => "tables",
            Mode::Mixed => "mixed",
            Mode::Archive => "archive",
            Mode::Tree => "tree",
            Mode::Mirror => "mirror",
            Mode::All => "all",
        }
    }
}

/// The options of a simulation.
#[derive(Debug, Clone)]
pub struct CrashOptions {
    /// The mode: the engine and the transactions to simulate.
    pub mode: Mode,
    /// The seed of the first run; run i has seed `seed + i`.
    pub seed: u64,
    /// The number of runs.
    pub runs: u64,
    /// The number of log streams. `None`: each run chooses the number at random.
    pub streams: Option<u8>,
    /// The crash profile, which chooses the surviving unsynced writes. `None`: each crash chooses a profile at random.
    pub profile: Option<CrashProfile>,
    /// The number of violations that ends the simulation.
    pub violations_max: usize,
}

impl Default for CrashOptions {
    fn default() -> Self {
        CrashOptions {
            mode: Mode::default(),
            seed: 1,
            runs: 1000,
            streams: None,
            profile: None,
            violations_max: 10,
        }
    }
}

/// A run with a result that contradicted the oracle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The run's seed.
    pub seed: u64,
    /// A description of the contradiction.
    pub what: String,
    /// The command that repeats the run.
    pub replay_command: String,
}

/// The counts of a simulation.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CrashReport {
    /// The number of runs that count. Each has at least 20 transactions, a completed checkpoint, a crash, a restart
    /// and a full comparison.
    pub runs: u64,
    /// The number of runs that count, by the name of their mode.
    pub runs_by_mode: BTreeMap<&'static str, u64>,
    /// Crashes, including crashes within restarts.
    pub crashes: u64,
    /// Restarts that succeeded and were compared with the model.
    pub restarts: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Transactions that committed or only read.
    pub transactions: u64,
    /// Replies that clients got because their epoch was durable.
    pub acknowledged: u64,
    /// Faults injected, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// The number of times that runs reached each rare state, by the state's name.
    pub reached: BTreeMap<&'static str, u64>,
    /// The violations that were found.
    pub violations: Vec<Violation>,
    /// The duration of the simulation, in seconds.
    pub seconds: f64,
    /// The number of runs in one second.
    pub runs_per_second: f64,
    /// A hash over everything that happened. Equal seeds give equal hashes.
    pub trace: u64,
}

impl CrashReport {
    /// Adds the counts of a run.
    pub(crate) fn absorb(&mut self, part: &Tally) {
        assert!(
            part.restarts <= part.crashes + 1 && part.acknowledged <= part.transactions,
            "more comes back than there was: {part:?}"
        );
        self.crashes += part.crashes;
        self.restarts += part.restarts;
        self.checkpoints += part.checkpoints;
        self.transactions += part.transactions;
        self.acknowledged += part.acknowledged;
        for (kind, count) in &part.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (mark, count) in &part.reached {
            *self.reached.entry(mark).or_default() += count;
        }
    }
}

/// The counts of one run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub crashes: u64,
    pub restarts: u64,
    pub checkpoints: u64,
    pub transactions: u64,
    pub acknowledged: u64,
    pub faults: BTreeMap<&'static str, u64>,
    pub reached: BTreeMap<&'static str, u64>,
}
