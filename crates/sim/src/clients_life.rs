//! The latest life with working clients. A life lasts from a restart to the next crash.

use perdura_recovery::{Life, RestartReport};

/// The latest life with working clients.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClientsLife {
    number: u32,
    /// The epoch that was durable when this life began.
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

    /// Returns the last epoch of this life that a later restart has kept. If the restarted disks have no record of this
    /// life, returns the epoch that was durable when this life began.
    ///
    /// This life's last epoch was still open at the end of the life, and was on no disk. So no restart has kept that
    /// epoch. A life between this life and `later` may have given that epoch's number to another epoch, and made the
    /// other epoch durable. No client worked in such a life.
    pub fn kept(self, later: &Life) -> u64 {
        let anchor = later.anchor().get();
        let mut links = anchor.chain.iter();
        let link = links.find(|link| link.incarnation.0 == self.number);
        link.map_or(self.began, |link| link.durable.0)
    }
}
