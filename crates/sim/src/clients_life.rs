//! The life of a database in which clients worked last.

use perdura_recovery::{Life, RestartReport};

/// The life in which clients worked last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientsLife {
    number: u32,
    /// The epoch that was durable when it began.
    began: u64,
}

impl ClientsLife {
    /// Returns the life that a restart began.
    pub fn of(report: &RestartReport) -> ClientsLife {
        ClientsLife {
            number: report.incarnation,
            began: report.durable_epoch,
        }
    }

    /// Returns the epoch up to which a restart has kept this life. A restart of disks that do not know this life has the
    /// state with which it began.
    ///
    /// No client worked in the lives in between. Such a life may have made an epoch durable whose number this life had
    /// open when it ended. Nothing of that epoch was on a disk, so no restart could know of it.
    pub fn kept(self, later: &Life) -> u64 {
        let anchor = later.anchor().get();
        let mut links = anchor.chain.iter();
        let link = links.find(|link| link.incarnation.0 == self.number);
        link.map_or(self.began, |link| link.durable.0)
    }
}
