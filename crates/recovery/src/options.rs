//! The arguments of a restart: disks, clock, memory, and how to play the log.

use std::sync::Arc;

use perdura_device::Clock;
use perdura_heap::MemoryAccount;
use perdura_wal::EpochEnds;

use crate::anchor::Anchor;
use crate::disks::Disks;
use crate::indexing::{NoTables, ReadCatalog};
use crate::level::Schedule;
use crate::method::Methods;
use crate::ordered_player::OrderedPlayer;
use crate::report::Progress;
use crate::tree_means::TreeMeans;

/// The fate of a log's end that was acknowledged when nodes held it, before the log's disks did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tail {
    /// No node was asked: the log's disks must hold the whole log. A database whose anchor says that nodes may hold
    /// more is refused.
    #[default]
    OnDisk,
    /// No node was asked, and nothing will be changed: the restart looks at what the log's disks have, whatever nodes
    /// may hold.
    LookedAt,
    /// Arbiter and nodes were asked, and what they had is on the log's disks.
    Drained,
    /// The operator gives up what only nodes may hold. The anchor keeps a note of it for ever.
    GivenUp,
}

impl Tail {
    /// Returns whether the log's disks may end before what was acknowledged.
    #[must_use]
    pub fn may_lack(self, anchor: &Anchor) -> bool {
        match self {
            Tail::OnDisk | Tail::Drained => false,
            Tail::LookedAt => anchor.mirrored.is_some(),
            Tail::GivenUp => true,
        }
    }
}

/// The purpose of a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartMode {
    /// It begins a new life of the database.
    Real,
    /// It changes nothing on the disks: its writes go to memory.
    Dry,
    /// Like a dry one. Pages that no image has are left empty, and their records are skipped.
    Salvage,
}

impl RestartMode {
    /// Returns whether a restart of this mode changes what is on the disks.
    #[must_use]
    pub fn changes_disks(self) -> bool {
        match self {
            RestartMode::Real => true,
            RestartMode::Dry | RestartMode::Salvage => false,
        }
    }
}

/// The inputs of a restart.
pub struct RestartOptions {
    /// The disks.
    pub disks: Disks,
    /// Time, for the report.
    pub clock: Arc<dyn Clock>,
    /// Level, threads, memory.
    pub schedule: Schedule,
    /// The methods that were chosen. Without one, each owner's default.
    pub methods: Methods,
    /// The means to restart a tree, if the database has one.
    pub tree: TreeMeans,
    /// Plays the ordered frames, after all else. Without it a restart that needs one fails.
    pub ordered: Option<Arc<dyn OrderedPlayer>>,
    /// The end of the log in the archive, by its manifest. `None`: no archive is configured.
    pub archived: Option<EpochEnds>,
    /// The purpose.
    pub mode: RestartMode,
    /// The fate of the end of the log that only nodes may hold.
    pub tail: Tail,
    /// The account that the heap is on.
    pub memory: Arc<MemoryAccount>,
    /// Reads the catalog from a heap whose table 0 is indexed.
    pub catalog: Arc<dyn ReadCatalog>,
    /// The counters in which it reports its progress.
    pub progress: Arc<Progress>,
}

impl RestartOptions {
    /// Returns the options of a real restart of a database that has records only: no tables, no ordered frames, no
    /// archive. Its heap has a separate account.
    #[must_use]
    pub fn of_records(
        disks: Disks,
        clock: Arc<dyn Clock>,
        schedule: Schedule,
        methods: impl Into<Methods>,
    ) -> RestartOptions {
        RestartOptions {
            disks,
            clock,
            schedule,
            methods: methods.into(),
            tree: TreeMeans::default(),
            ordered: None,
            archived: None,
            mode: RestartMode::Real,
            tail: Tail::OnDisk,
            memory: Arc::new(MemoryAccount::new(u64::MAX)),
            catalog: Arc::new(NoTables),
            progress: Arc::new(Progress::default()),
        }
    }
}
