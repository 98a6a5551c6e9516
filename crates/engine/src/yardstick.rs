//! The yardstick's way in: databases whose log is less than a database's, which figures compare the product with.
//!
//! No setting names these. What they lose in a crash is lost on purpose.

use std::sync::Arc;

use perdura_base::Result;
use perdura_device::Disk;
use perdura_recovery::Progress;
use perdura_recovery::disks::{Disks, Locks};
use perdura_txn::Sink;
use perdura_wal::{Scheme, Wal};

use crate::core::{Core, Env};
use crate::db::{Db, Opening};
use crate::options::{CoreOptions, Options};

/// What the log and the archive get of a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Yardstick {
    /// All of it: every other open is by this one.
    #[default]
    Product,
    /// Nothing. A crash loses what the newest image does not have.
    Unlogged,
    /// So many bytes of each frame of effects, which cannot be replayed.
    Cut(usize),
    /// All of it in the log; in the archive, copies in the log's order, which restore nothing.
    Unsorted,
}

impl Yardstick {
    /// Opens a database on these disks, making it if there is none. Its archive is on `archive`, if that is a disk.
    ///
    /// # Errors
    /// As [`Db::open_archived`].
    pub fn open(
        self,
        options: Options,
        disks: Disks,
        locks: Locks,
        archive: Option<Arc<dyn Disk>>,
    ) -> Result<Db> {
        let opening = Opening {
            options,
            disks,
            locks,
            progress: Arc::new(Progress::default()),
            archive,
        };
        opening.open(self)
    }

    /// Opens the core of a database.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_core(self, env: Env, options: CoreOptions) -> Result<Core> {
        Core::open_by(self, env, options, Arc::new(Progress::default()))
    }

    /// Returns the scheme of a database that is made.
    pub(crate) fn scheme(self) -> Scheme {
        match self {
            Yardstick::Unlogged => Scheme::Unlogged,
            Yardstick::Product | Yardstick::Cut(_) | Yardstick::Unsorted => Scheme::Differential,
        }
    }

    /// Returns where the records of commits go.
    pub(crate) fn sink(self, wal: Arc<Wal>) -> Sink {
        match self {
            Yardstick::Unlogged => Sink::Unlogged(wal),
            Yardstick::Cut(bytes) => Sink::Cut(wal, bytes),
            Yardstick::Product | Yardstick::Unsorted => Sink::Append(wal),
        }
    }
}
