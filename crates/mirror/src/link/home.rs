//! The way to a node on the writer's machine that passes memory: its tries, and whether the link uses it.

use super::{Link, Progress};
use crate::auth::Nonce;
use crate::handshake::Caller;
use crate::ids::NodeInc;
use crate::net::Net;

/// The pause before the memory of a node on this machine is tried again, nanoseconds, for one start of the node. It
/// could not be had, or the link has left it. The pause doubles each time, up to [`HOME_MAX_NS`], because a move breaks
/// a connection that serves.
const HOME_NS: u64 = 2_000_000_000;
const HOME_MAX_NS: u64 = 64_000_000_000;

/// A try to reach a node by the memory that it offers on its machine.
#[derive(Clone, Copy)]
pub(super) struct HomeTry {
    inc: NodeInc,
    at_ns: u64,
    /// The pause before the next try, nanoseconds.
    pause_ns: u64,
}

impl Link {
    /// Moves to the connection that a node on this machine offers. It does so at once after a start of the node, and
    /// from time to time if it has left that connection. Returns whether it has moved.
    pub fn move_home(
        &mut self,
        net: &dyn Net,
        caller: &Caller,
        nonce: &mut dyn FnMut() -> Nonce,
        now_ns: u64,
    ) -> bool {
        let Some(identity) = self.identity.filter(|_| self.is_ready()) else {
            return false;
        };
        if self.is_local || !self.is_home_try_due(identity.inc, now_ns) {
            return false;
        }
        let Some(connection) = net.local(&identity) else {
            return false;
        };
        self.break_off("it moves to the node's own memory".into(), now_ns);
        self.is_local = true;
        self.greet(connection, caller, nonce(), now_ns);
        true
    }

    /// Returns whether the node's own memory is to be tried now. If so, the next try is later.
    fn is_home_try_due(&mut self, inc: NodeInc, now_ns: u64) -> bool {
        let before = self.home_try.filter(|before| before.inc == inc);
        let pause_ns = before.map_or(HOME_NS / 2, |before| before.pause_ns);
        if before.is_some_and(|before| now_ns < before.at_ns.saturating_add(pause_ns)) {
            return false;
        }
        let stood = before.is_some_and(|before| now_ns.saturating_sub(before.at_ns) > HOME_MAX_NS);
        self.home_try = Some(HomeTry {
            inc,
            at_ns: now_ns,
            pause_ns: if stood {
                HOME_NS
            } else {
                HOME_MAX_NS.min(2 * pause_ns)
            },
        });
        true
    }

    /// Returns whether blocks are written into the node's memory, in each stream that is open.
    pub fn is_mapped(&self) -> bool {
        let mut open = self.streams.iter().zip(&self.mapped);
        self.is_ready()
            && self.has_mapped()
            && open.all(|(of, ring)| ring.is_some() || !matches!(of, Progress::Open { .. }))
    }

    pub(super) fn has_mapped(&self) -> bool {
        self.mapped.iter().any(Option::is_some)
    }
}
