//! The arguments of a restart: disks, clock, memory, the methods of playing the log, and others.

use std::sync::Arc;

use perdura_base::LifeId;
use perdura_base::checksum::mix64;
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

/// The treatment of the log's end. If nodes mirror the log, the last transactions may have been acknowledged before
/// they were on the log's disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tail {
    /// The nodes were not read, so the log's disks must hold the whole log. A database is refused if the anchor says
    /// that nodes may hold more.
    #[default]
    OnDisk,
    /// The nodes were not read, and the restart changes nothing. It reads the log on the disks even if nodes may hold
    /// more.
    LookedAt,
    /// The log's end was copied from the arbiter and the nodes to the log's disks.
    Drained,
    /// The operator gives up the part of the log that only nodes may hold. The anchor keeps a note of this for ever.
    GivenUp,
}

impl Tail {
    /// Returns whether the log's disks may lack acknowledged transactions.
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
    /// The restart begins a new life of the database.
    Real,
    /// The restart changes nothing on the disks: its writes go to memory.
    Dry,
    /// As [`Real`](Self::Real), but partitions are loaded when they are needed; see [`crate::demand`].
    OnDemand,
    /// As [`Dry`](Self::Dry), but a page without an intact copy stays empty, and the page's records are skipped.
    Salvage,
}

impl RestartMode {
    /// Returns the mode of a restart that begins a new life, and loads partitions on demand if `on_demand` is true.
    #[must_use]
    pub fn of(on_demand: bool) -> RestartMode {
        match on_demand {
            true => RestartMode::OnDemand,
            false => RestartMode::Real,
        }
    }

    /// Returns whether a restart of this mode changes files on the disks.
    #[must_use]
    pub fn changes_disks(self) -> bool {
        match self {
            RestartMode::Real | RestartMode::OnDemand => true,
            RestartMode::Dry | RestartMode::Salvage => false,
        }
    }
}

/// The inputs of a restart.
pub struct RestartOptions {
    /// The disks.
    pub disks: Disks,
    /// The clock that measures times for the report.
    pub clock: Arc<dyn Clock>,
    /// The level, the threads and the memory budget.
    pub schedule: Schedule,
    /// The methods that the operator chose. If no method was chosen for an owner, the default method plays its records.
    pub methods: Methods,
    /// The options for restarting the tree, if the database has one.
    pub tree: TreeMeans,
    /// The player of ordered frames. `None`: the restart fails if there is an ordered frame to play.
    pub ordered: Option<Arc<dyn OrderedPlayer>>,
    /// The end of the archived log, from the archive's manifest. `None`: no archive is configured.
    pub archived: Option<EpochEnds>,
    /// The number of the new life. Every restart of any copy of the database needs a different one.
    pub life: LifeId,
    /// The purpose of the restart.
    pub mode: RestartMode,
    /// The treatment of the log's end, which may be in the memory of nodes and not on the disks.
    pub tail: Tail,
    /// The memory account that the heap is charged to.
    pub memory: Arc<MemoryAccount>,
    /// The reader of the catalog.
    pub catalog: Arc<dyn ReadCatalog>,
    /// The counters of the restart's progress.
    pub progress: Arc<Progress>,
}

impl RestartOptions {
    /// Returns the options for a real restart of a database that has only page records: no tables, no ordered frames,
    /// no archive. The heap gets a new memory account.
    #[must_use]
    pub fn of_records(
        disks: Disks,
        clock: Arc<dyn Clock>,
        schedule: Schedule,
        methods: impl Into<Methods>,
    ) -> RestartOptions {
        let clock_seed = clock.wall_us();
        RestartOptions {
            disks,
            clock,
            schedule,
            methods: methods.into(),
            tree: TreeMeans::default(),
            ordered: None,
            archived: None,
            life: LifeId(mix64(clock_seed)),
            mode: RestartMode::Real,
            tail: Tail::OnDisk,
            memory: Arc::new(MemoryAccount::new(u64::MAX)),
            catalog: Arc::new(NoTables),
            progress: Arc::new(Progress::default()),
        }
    }
}
