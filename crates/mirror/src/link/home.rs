//! The link's attempts to switch to the connection over which a node on the writer's machine shares its memory.

use super::{Link, Progress};
use crate::auth::Nonce;
use crate::handshake::Caller;
use crate::ids::NodeInc;
use crate::net::Net;

/// The pause after the link's first attempt to use a node's shared memory, nanoseconds. The link tries again if the
/// memory could not be used, or if the link has stopped using the memory. The pause doubles each time, up to
/// [`HOME_MAX_NS`], because each attempt breaks a connection that works. After a restart of the node, the first attempt
/// comes without a pause.
const HOME_NS: u64 = 2_000_000_000;
const HOME_MAX_NS: u64 = 64_000_000_000;

/// An attempt to use the memory that a node shares on its machine.
#[derive(Clone, Copy)]
pub(super) struct HomeTry {
    inc: NodeInc,
    at_ns: u64,
    /// The pause before the next attempt, nanoseconds.
    pause_ns: u64,
}

impl Link {
    /// Switches to the connection over which the node shares its memory, if the node is on this machine. After a node's
    /// start the first attempt comes at once. Each later attempt follows a pause. Returns whether the link has
    /// switched.
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

    /// Returns whether to try the node's shared memory now. If so, sets the time of the next attempt.
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

    /// Returns whether the link writes all open streams directly into the node's memory. Returns false if the link
    /// writes no stream there.
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
