//! The life of a database in which clients worked last.

use perdura_recovery::{Life, RestartReport};

/// The life in which clients worked last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientsLife(u32);

impl ClientsLife {
    /// Returns the life that a restart began.
    pub fn of(report: &RestartReport) -> ClientsLife {
        ClientsLife(report.incarnation)
    }

    /// Returns the epoch up to which a restart has kept this life. `durable` is the durable epoch that the
    /// restart found.
    ///
    /// No client worked in the lives after this one. A later life may reuse the number of the epoch that was
    /// open when this life ended, and make it durable. Nothing of this life's epoch was on a disk, so no
    /// restart could know that the number was used.
    pub fn kept(self, later: &Life, durable: u64) -> u64 {
        let anchor = later.anchor().get();
        let mut links = anchor.chain.iter();
        let link = links.find(|link| link.incarnation.0 == self.0);
        link.map_or(durable, |link| link.durable.0)
    }
}
