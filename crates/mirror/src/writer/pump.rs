//! The movement of bytes and replies, called *pumping*. Any thread can pump.
//!
//! One thread at a time pumps, with the state locked. A thread that finds the state locked must not wait. But the
//! thread's shipped blocks must not stay unsent until some thread happens to pump. So it leaves a request
//! ([`Mirror::pump_soon`]). The pumping thread unlocks the state and then checks for requests.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Pos, StreamId};

use super::{Log, Mirror};
use crate::choice::{held_by, homes};
use crate::ids::NodeInc;
use crate::state::{Anchored, State};
use crate::view::{Member, Mode, View};

/// The maximum number of times in a row that a thread pumps for the requests of other threads.
const PUMPS_MAX: usize = 64;

impl Mirror {
    /// Sends blocks, reads replies and raises acknowledgements, without waiting. Returns whether acknowledgements rose.
    /// `None`: another thread has locked the state, and this call did nothing. The caller must try again soon.
    pub fn try_pump(&self, log: &dyn Log, now_ns: u64) -> Option<bool> {
        let mut state = self.state.try_lock()?;
        let rose = self.pump_locked(&mut state, log, now_ns);
        drop(state);
        Some(self.pump_missed(log, now_ns) || rose)
    }

    /// Like [`try_pump`](Self::try_pump), but ensures that this thread's shipped blocks are moved. If another thread
    /// has locked the state, that thread pumps once more after it has unlocked the state.
    pub fn pump_soon(&self, log: &dyn Log, now_ns: u64) -> Option<bool> {
        if let Some(rose) = self.try_pump(log, now_ns) {
            return Some(rose);
        }
        self.missed.store(true, Ordering::SeqCst);
        // Pairs with the fence in `is_missed`. Either the other thread sees the request, or this thread finds the
        // state unlocked.
        fence(Ordering::SeqCst);
        self.try_pump(log, now_ns)
    }

    /// Like [`try_pump`](Self::try_pump), but waits for the lock of the state.
    pub fn pump(&self, log: &dyn Log, now_ns: u64) -> bool {
        let rose = self.pump_locked(&mut self.state.lock(), log, now_ns);
        self.pump_missed(log, now_ns) || rose
    }

    /// Returns whether a thread has left a request to pump. If so, blocks of that thread may still be unsent. Each
    /// thread that has locked the state must call this method, or must pump, after it has unlocked the state.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.missed.load(Ordering::SeqCst)
    }

    /// Pumps while other threads have left requests. Returns whether acknowledgements rose.
    fn pump_missed(&self, log: &dyn Log, now_ns: u64) -> bool {
        let mut rose = false;
        for _ in 0..PUMPS_MAX {
            if !self.is_missed() {
                break;
            }
            // The thread that has now locked the state checks for requests after unlocking it.
            let Some(mut state) = self.state.try_lock() else {
                break;
            };
            rose |= self.pump_locked(&mut state, log, now_ns);
        }
        rose
    }

    fn pump_locked(&self, state: &mut State, log: &dyn Log, now_ns: u64) -> bool {
        // All blocks that were shipped before a request are in the tails by now, so this round sends them.
        self.missed.store(false, Ordering::SeqCst);
        if state.fenced.is_some() {
            return false;
        }
        mark_counted(state);
        let mut is_more_left = self.send(state, log, now_ns);
        // If a reply has opened a ring, the ring's blocks can be sent in this round.
        if self.receive(state, now_ns) {
            mark_counted(state);
            is_more_left |= self.send(state, log, now_ns);
        }
        for link in state.groups.iter_mut().flatten() {
            link.ping(self.options.ping_ns, now_ns);
        }
        // The rest is sent in the next round, so that the other connections get their turn first.
        self.missed.fetch_or(is_more_left, Ordering::SeqCst);
        self.raise(state, log)
    }

    /// Sends blocks to the nodes that lack them. Remote nodes come first, so that they work while this thread writes
    /// into the memory of nodes on this machine. Returns whether more blocks are left for the next round.
    fn send(&self, state: &mut State, log: &dyn Log, now_ns: u64) -> bool {
        let mut is_more_left = false;
        for is_written in [false, true] {
            for (number, tail) in (0u8..).zip(&self.tails) {
                let stream = StreamId(number);
                let mut tail = tail.lock();
                tail.forget(log.synced(stream));
                for home in homes(state, stream) {
                    let links = state.groups[home].iter_mut();
                    for link in links.filter(|link| link.is_written(stream) == is_written) {
                        is_more_left |= link.send(&self.caller, stream, &tail, now_ns);
                    }
                }
            }
        }
        is_more_left
    }

    /// Reads the replies of the nodes. Returns whether a reply has arrived.
    fn receive(&self, state: &mut State, now_ns: u64) -> bool {
        let mut links = state.groups.iter_mut().flatten();
        if !links.any(|link| link.is_looked_at(now_ns)) {
            return false;
        }
        let ends: Vec<Pos> = self.tails.iter().map(|tail| tail.lock().end()).collect();
        let mut heard = false;
        for link in state.groups.iter_mut().flatten() {
            if link.is_looked_at(now_ns) {
                heard |= link.receive(&self.caller, &ends, now_ns);
            }
            state.events.extend(link.take_news(now_ns));
        }
        heard
    }

    /// Waits until a reply has arrived or the timeout is over. Does not read the reply.
    pub fn wait(&self, timeout: Duration) {
        self.net.wait(timeout);
    }

    fn raise(&self, state: &mut State, log: &dyn Log) -> bool {
        let mut rose = false;
        for number in 0..state.raised.len() {
            let stream = StreamId(u8::try_from(number).expect("at most 16 streams"));
            let mut end = self.reached(state, &state.view, stream, log);
            if let Some(pending) = &state.pending
                && !armed(Flaw::PendingViewIgnored)
            {
                end = end.min(self.reached(state, pending, stream, log));
            }
            if end > state.raised[number] {
                assert!(
                    end <= self.tails[number].lock().end(),
                    "what was not shipped is not acknowledged"
                );
                state.raised[number] = end;
                log.raise(stream, end);
                rose = true;
            }
        }
        rose
    }

    /// Returns the highest position up to which `view` permits acknowledgements of a stream.
    fn reached(&self, state: &State, view: &View, stream: StreamId, log: &dyn Log) -> Pos {
        let home = usize::from(view.homes[usize::from(stream.0)]);
        let held = |member: &Member| held_by(&state.groups[home], member, stream);
        let by_disk = || {
            let synced = log.synced(stream);
            // The clock is read after the synced position. If the lease was not over at that time, a takeover can only
            // read the disk later. So it finds the synced bytes.
            let holds = !state.lease.is_needed() || state.lease.holds(log.now_ns());
            if holds { synced } else { Pos(0) }
        };
        match view.mode_of(stream) {
            Mode::Disk => by_disk(),
            Mode::Solo(member) if armed(Flaw::SoloBeforeFlush) => held(member),
            Mode::Solo(member) => held(member).min(by_disk()),
            Mode::Mirror(members) => {
                assert!(
                    state.anchored == Anchored::Yes,
                    "the anchor says that acknowledgements rest on nodes"
                );
                let (one, other) = (held(&members[0]), held(&members[1]));
                match armed(Flaw::OneReplyIsEnough) {
                    true => one.max(other),
                    false => one.min(other),
                }
            }
        }
    }
}

/// Sets `is_counted` of each link with a spoiled ring: whether the link's node is a member of the view in force or of
/// the pending view.
fn mark_counted(state: &mut State) {
    let State {
        view,
        pending,
        groups,
        ..
    } = state;
    let views = || std::iter::once(&*view).chain(pending.as_ref());
    let counts = |inc: NodeInc| {
        let mut members = views().flat_map(|view| view.groups.iter().flat_map(Mode::members));
        members.any(|member| member.inc == inc)
    };
    for link in groups.iter_mut().flatten().filter(|link| link.is_spoiled()) {
        let is_counted = link.identity().is_none_or(|of| counts(of.inc));
        link.is_counted = is_counted && !armed(Flaw::SpoiledRenewedAtOnce);
    }
}
