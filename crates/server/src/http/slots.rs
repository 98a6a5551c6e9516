//! The connections that the HTTP thread serves at the same time. Their number is limited.
//!
//! Invariant: every new connection is accepted. If all slots are taken, the address that holds the most slots
//! loses its oldest connection.

use std::collections::VecDeque;
use std::net::IpAddr;
use tokio::task::AbortHandle;

/// The connections, the oldest first.
#[derive(Debug)]
pub(super) struct Slots {
    count_max: usize,
    taken: VecDeque<(IpAddr, AbortHandle)>,
}

impl Slots {
    /// Returns `count_max` free slots.
    pub(super) fn new(count_max: usize) -> Slots {
        Slots {
            count_max,
            taken: VecDeque::with_capacity(count_max),
        }
    }

    /// Gives a newcomer a slot.
    pub(super) fn take(&mut self, peer: IpAddr, served: AbortHandle) {
        self.taken.retain(|(_, served)| !served.is_finished());
        self.taken.push_back((peer.to_canonical(), served));
        if self.taken.len() <= self.count_max {
            return;
        }
        let held = |peer: &IpAddr| self.taken.iter().filter(|(ip, _)| ip == peer).count();
        let most = self.taken.iter().map(|(ip, _)| held(ip)).max();
        let oldest = self.taken.iter().position(|(ip, _)| Some(held(ip)) == most);
        if let Some((_, served)) = oldest.and_then(|at| self.taken.remove(at)) {
            served.abort();
        }
    }
}
