//! The writer's side: it ships sealed blocks to the nodes, counts what they hold, and changes the view.
//!
//! ```text
//!                 a node is silent                    both are
//! Mirror(a, b) ───────────────────► Solo(b) ───────────────────► Disk        (the tail is synced before)
//!      ▲                               │                           │
//!      └──────── the other one has caught up ──────────────────────┘
//! ```
//! [`Mirror::pump`] moves bytes and replies, and waits for nothing. Any thread that waits for an acknowledgement may
//! call it. [`Mirror::manage`] takes one step that may wait: an operation of the arbiter, an update of the anchor, the
//! start of a connection. The thread that owns the mirror calls it.
//!
//! # Acknowledging
//! The mode of its group decides up to which position a stream is held. In Mirror, both members hold it. In Solo, the
//! member holds it and the disk has synced it. In Disk, the disk has synced it. While the outcome of a change is not
//! known, both the old and the new view must permit the position. So acknowledgements stop by themselves when a node
//! falls silent, and continue when the change is known to be stored.
//!
//! A group leaves Mirror only when everything that was acknowledged is synced. The paper's order, which is also the
//! obvious one, is to change the view and then copy. It loses the tail if the writer fails between the two, because a
//! takeover reads the disk alone in the other modes.
//!
//! # Invariants
//! * An acknowledged position is held by all members of the stream's mode or synced, in every view that may be in
//!   force.
//! * Acknowledgements rest on nodes only while the anchor says so durably.
//! * The view says Disk, and then the anchor, only when all shipped bytes are synced.
//! * A writer that has seen a higher generation acknowledges nothing and changes nothing.

mod pump;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, MutexGuard};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, Incarnation, Pos, Result, StreamId};
use perdura_wal::Sealed;

use crate::auth::{NONCE_BYTES, Nonce};
use crate::choice::{Choice, homes};
use crate::handshake::Caller;
use crate::ids::Generation;
use crate::lease::{Lease, rests_on_disk};
use crate::link::Link;
use crate::net::Net;
use crate::options::MirrorOptions;
use crate::register::{Register, Swap};
use crate::ring::Ring;
use crate::state::{Anchored, State};
use crate::status::{GroupStatus, NodeStatus, Status};
use crate::view::{Mode, View};

/// The log and the anchor that the mirror serves.
pub trait Log: Send + Sync {
    /// Returns the position below which a stream is synced on the log's disk.
    fn synced(&self, stream: StreamId) -> Pos;
    /// Notes that acknowledgements of a stream may go up to a position.
    fn raise(&self, stream: StreamId, end: Pos);
    /// Sets whether acknowledgements rise with the disk by themselves, as they do at first. They may do so only while
    /// every group is Disk in the view in force and in a view that may replace it. In the other modes the disk alone
    /// acknowledges nothing.
    fn follow_disk(&self, follows: bool);
    /// Returns the time now, nanoseconds, of the clock that the mirror is called with.
    fn now_ns(&self) -> u64;
    /// Makes the copy due: shipped bytes are to be synced now.
    fn want_copy(&self);
    /// Returns the commit epoch that is durable on the log's disks.
    fn durable(&self) -> Epoch;
    /// Stops the log: another writer has replaced this one.
    fn fence(&self, why: &str);
    /// Says in the anchor, durably, whether acknowledgements may rest on nodes.
    ///
    /// # Errors
    /// The anchor's. A later update may then store the failed one's record.
    fn anchor(&self, mirrored: bool) -> Result<()>;
}

/// The state with which a writer begins.
pub struct Beginning {
    /// The view in force: this writer's, and all of its groups are Disk.
    pub view: View,
    /// The position at which the life starts in each stream.
    pub start: Vec<Pos>,
    /// True if the anchor says that acknowledgements may rest on nodes.
    pub anchored: bool,
    /// A source of random numbers, for nonces.
    pub random: Box<dyn FnMut() -> u64 + Send>,
}

/// The result of a step of [`Mirror::manage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Managed {
    /// It did something. Another step may follow at once.
    Step,
    /// It did nothing. The caller looks again after a change, or after some time.
    Idle,
    /// The mirror has stopped. Everything is on disk, and view and anchor say so.
    Stopped,
}

/// The mirror of a log.
pub struct Mirror {
    options: MirrorOptions,
    caller: Caller,
    writer: u64,
    life: Incarnation,
    net: Arc<dyn Net>,
    register: Mutex<Box<dyn Register>>,
    /// The shipped bytes of each stream that are not synced. Locked after `state`.
    tails: Vec<Mutex<Ring>>,
    state: Mutex<State>,
    /// True if a thread has found the state taken and left a request to pump: see [`pump_soon`](Self::pump_soon).
    missed: AtomicBool,
}

impl Mirror {
    /// Makes the mirror of the writer that made the view in `beginning`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the options are not possible; [`Error::OutOfMemory`] without memory for the tails.
    pub fn new(
        options: MirrorOptions,
        net: Arc<dyn Net>,
        register: Box<dyn Register>,
        beginning: Beginning,
    ) -> Result<Mirror> {
        options.check()?;
        let Beginning {
            view,
            start,
            anchored,
            random,
        } = beginning;
        assert_eq!(view.homes.len(), start.len(), "a home for each stream");
        assert_eq!(
            view.groups.len(),
            options.groups.len(),
            "a mode for each group"
        );
        assert!(
            !view.is_mirrored() && view.rings == view.generation,
            "a writer begins with all on disk"
        );
        let mut tails = Vec::new();
        for start in &start {
            let tail = Ring::new(*start, options.tail_bytes_max);
            let used = options.tail_bytes_max;
            tails.push(Mutex::new(
                tail.ok_or(Error::OutOfMemory { used, limit: 0 })?,
            ));
        }
        let streams = u8::try_from(start.len()).expect("at most 16 streams");
        let link = |address: &String| Link::new(address.clone(), streams);
        let groups = options.groups.iter();
        let groups: Vec<[Link; 2]> = groups
            .map(|pair| [link(&pair[0]), link(&pair[1])])
            .collect();
        Ok(Mirror {
            caller: Caller {
                uuid: view.uuid,
                generation: view.generation,
                key: options.key.clone(),
                ring_bytes_min: options.tail_bytes_max,
            },
            writer: view.writer,
            life: view.life,
            net,
            register: Mutex::new(register),
            tails,
            state: Mutex::new(State {
                view,
                pending: None,
                unretired: vec![[true; 2]; groups.len()],
                groups,
                raised: start,
                anchored: Anchored::of(anchored),
                lease: Lease::new(options.lease_ns),
                is_stopping: false,
                fenced: None,
                random,
                events: Vec::new(),
            }),
            options,
            missed: AtomicBool::new(false),
        })
    }

    /// Begins, once the log takes calls: acknowledgements follow the disk, or the lease of the writer.
    pub fn begin(&self, log: &dyn Log) {
        if self.state.lock().lease.is_needed() {
            log.follow_disk(false);
        }
    }

    /// Takes a sealed block of the log, as the device of [`perdura_wal::Wal::ship_by`]. `synced` is the position up to
    /// which its stream is synced.
    pub fn ship(&self, block: Sealed<'_>, synced: Pos) {
        let mut tail = self.tails[usize::from(block.stream.0)].lock();
        tail.forget(synced);
        let taken = tail.append(block.pos, block.bytes, 0);
        assert_eq!(taken, Ok(()), "the log's tail has the same bound");
    }

    /// Takes one step that may wait.
    ///
    /// # Errors
    /// The arbiter's or the anchor's, after which it may be called again; [`Error::Fenced`] once another writer has
    /// replaced this one.
    pub fn manage(&self, log: &dyn Log, now_ns: u64) -> Result<Managed> {
        let mut state = self.state.lock();
        if let Some(why) = &state.fenced {
            return Err(Error::Fenced(why.clone()));
        }
        let mut views = std::iter::once(&state.view).chain(&state.pending);
        if let Some(ns) = state.lease.over_ns(now_ns)
            && views.any(rests_on_disk)
        {
            let why = format!(
                "the view directory (log-view) has not answered for {} ms, longer than the lease \
                 (log-lease). Another process may have replaced this one",
                ns / 1_000_000
            );
            return self.end(state, log, why);
        }
        let is_due = state.lease.take_due(now_ns);
        if is_due || state.pending.is_some() || is_deposed(&state, self.caller.generation) {
            drop(state);
            return self.learn(log, now_ns);
        }
        if self.connect_one(&mut state, now_ns)
            || self.move_home(&mut state, now_ns)
            || self.retire_one(&mut state, now_ns)
        {
            return Ok(Managed::Step);
        }
        let choice = Choice {
            state: &state,
            options: &self.options,
            log,
            is_synced: self.is_synced(log),
            now_ns,
        };
        let Some(mut next) = choice.view() else {
            let mut modes = state.view.groups.iter();
            let ends = state.is_stopping && modes.all(|mode| *mode == Mode::Disk);
            let too_early = state.is_stopping && armed(Flaw::AnchorBeforeTail);
            drop(state);
            return match ends && (self.is_synced(log) || armed(Flaw::DiskBeforeTail)) {
                true => self.stop(log),
                false if too_early => self.stop(log).map(|_| Managed::Idle),
                false => Ok(Managed::Idle),
            };
        };
        let is_anchored = state.anchored == Anchored::Yes;
        if next.is_mirrored() && !is_anchored && !armed(Flaw::MirrorBeforeAnchor) {
            drop(state);
            self.anchor(log, true)?;
            return Ok(Managed::Step);
        }
        assert!(state.pending.is_none(), "one change of view at a time");
        (next.writer, next.life) = (self.writer, self.life);
        log.want_copy();
        if !is_all_disk(&next) && !armed(Flaw::DiskAcknowledges) {
            log.follow_disk(false);
        }
        state.pending = Some(next.clone());
        drop(state);
        match self.register.lock().replace(&next)? {
            Swap::Done => self.adopt(&mut self.state.lock(), log, next, now_ns),
            // Another writer has stored one, or this writer has by a try whose outcome was not known. The next step
            // reads it.
            Swap::Lost => {}
        }
        Ok(Managed::Step)
    }

    /// Clears the anchor's mark. The view says that everything is on disk, so the anchor may say so, too.
    fn stop(&self, log: &dyn Log) -> Result<Managed> {
        let anchored = self.state.lock().anchored;
        if anchored != Anchored::No {
            self.anchor(log, false)?;
        }
        Ok(Managed::Stopped)
    }

    /// Makes the anchor say whether acknowledgements may rest on nodes.
    fn anchor(&self, log: &dyn Log, mirrored: bool) -> Result<()> {
        self.state.lock().anchored = Anchored::Perhaps;
        log.anchor(mirrored)?;
        self.state.lock().anchored = Anchored::of(mirrored);
        Ok(())
    }

    /// Asks the arbiter which view is in force.
    fn learn(&self, log: &dyn Log, now_ns: u64) -> Result<Managed> {
        let found = self.register.lock().read()?;
        let mut state = self.state.lock();
        if found.as_ref() == Some(&state.view) {
            state.lease.note_in_force(now_ns);
        }
        let pending = state.pending.clone();
        match (found, pending) {
            (Some(found), Some(pending)) if found == pending => {
                self.adopt(&mut state, log, pending, now_ns)
            }
            // It may still arrive. So it is sent again, and no other view before its fate is known.
            (Some(found), Some(_)) if found == state.view && armed(Flaw::PendingViewGivenUp) => {
                state.pending = None;
            }
            (Some(found), Some(pending)) if found == state.view => {
                drop(state);
                if self.register.lock().replace(&pending)? == Swap::Done {
                    self.adopt(&mut self.state.lock(), log, pending, now_ns);
                }
                return Ok(Managed::Step);
            }
            (Some(found), None) if found == state.view => {}
            (Some(found), _) if armed(Flaw::FenceIgnored) => {
                (state.view.v, state.pending) = (found.v, None);
            }
            (found, _) => {
                let why = match found {
                    Some(found) => format!(
                        "view {} of generation {} replaces view {} of generation {}",
                        found.v, found.generation, state.view.v, state.view.generation
                    ),
                    None => "the view directory (log-view) has lost the view".to_owned(),
                };
                return self.end(state, log, why);
            }
        }
        // If a node reported a higher generation, it came from no takeover of this database's arbiter.
        let seen = state.view.generation;
        state
            .groups
            .iter_mut()
            .flatten()
            .for_each(|link| link.seen = link.seen.min(seen));
        Ok(Managed::Step)
    }

    /// Ends the writer: it acknowledges nothing more.
    fn end(&self, mut state: MutexGuard<'_, State>, log: &dyn Log, why: String) -> Result<Managed> {
        state.fenced = Some(why.clone());
        drop(state);
        log.fence(&why);
        Err(Error::Fenced(why))
    }

    /// Takes a view that is in force. The question that says so was sent at `asked_ns`.
    fn adopt(&self, state: &mut State, log: &dyn Log, next: View, asked_ns: u64) {
        assert!(
            next.v == state.view.v + 1 && next.generation == self.caller.generation,
            "a view follows the one before"
        );
        for (number, (before, after)) in state.view.groups.iter().zip(&next.groups).enumerate() {
            if before != after {
                let line = format!(
                    "view {}: group {number} changes from {before} to {after}",
                    next.v
                );
                state.events.push(line);
            }
        }
        state.lease.note_in_force(asked_ns);
        if is_all_disk(&next) && !state.lease.is_needed() {
            log.follow_disk(true);
        }
        state.view = next;
        state.pending = None;
    }

    fn connect_one(&self, state: &mut State, now_ns: u64) -> bool {
        let retry_ns = self.options.retry_ns;
        let mut links = state.groups.iter_mut().flatten();
        let due = |link: &&mut Link| link.due_ns(retry_ns).is_some_and(|due| due <= now_ns);
        let Some(link) = links.find(due) else {
            return false;
        };
        let nonce = nonce(&mut state.random);
        link.connect(self.net.as_ref(), &self.caller, nonce, now_ns);
        true
    }

    /// Moves the link of one node on this machine to the way that passes memory.
    fn move_home(&self, state: &mut State, now_ns: u64) -> bool {
        let State { groups, random, .. } = state;
        let mut nonce = || nonce(random);
        let mut links = groups.iter_mut().flatten();
        links.any(|link| link.move_home(self.net.as_ref(), &self.caller, &mut nonce, now_ns))
    }

    /// Makes one node drop the rings of the writers before. Their bytes are on disk, and the anchor names this life.
    fn retire_one(&self, state: &mut State, now_ns: u64) -> bool {
        let links = state.groups.iter_mut().flatten();
        let mut all = links.zip(state.unretired.iter_mut().flatten());
        let due = all.find(|(link, unretired)| **unretired && link.is_ready());
        due.is_some_and(|(link, unretired)| {
            *unretired = !link.retire(&self.caller, now_ns);
            !*unretired
        })
    }

    /// Returns whether all shipped bytes are on the log's disk.
    fn is_synced(&self, log: &dyn Log) -> bool {
        let mut streams = (0u8..).map(StreamId).zip(&self.tails);
        streams.all(|(stream, tail)| log.synced(stream) >= tail.lock().end())
    }

    /// Begins the end of the mirror. Nothing is shipped any more, and once everything is synced, view and anchor say
    /// so. Then [`manage`](Self::manage) returns [`Managed::Stopped`].
    pub fn begin_stop(&self) {
        self.state.lock().is_stopping = true;
    }

    /// Returns the events since the last call, a line for each change of view.
    pub fn take_events(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().events)
    }

    /// Returns the view in force, and the nodes with their progress.
    pub fn status(&self, now_ns: u64) -> Status {
        let state = self.state.lock();
        let node = |group: usize, link: &Link| {
            let mut lag_bytes = 0;
            for (number, tail) in (0u8..).zip(&self.tails) {
                let stream = StreamId(number);
                if homes(&state, stream).any(|home| home == group) {
                    let end = tail.lock().end();
                    lag_bytes += end.0 - link.held(stream).0.min(end.0);
                }
            }
            NodeStatus {
                address: link.address.clone(),
                is_ready: link.is_ready(),
                is_mapped: link.is_mapped(),
                identity: link.identity().map(|of| (of.inc, of.machine)),
                lag_bytes,
                silent_ns: link
                    .silent_since_ns()
                    .map_or(0, |since| now_ns.saturating_sub(since)),
                trouble: (link.trouble.clone()).or_else(|| self.same(&state.groups[group], link)),
            }
        };
        let groups = state.groups.iter().zip(&state.view.groups).enumerate();
        Status {
            v: state.view.v,
            generation: state.view.generation,
            is_pending: state.pending.is_some(),
            groups: groups
                .map(|(number, (links, mode))| GroupStatus {
                    mode: mode.clone(),
                    nodes: [node(number, &links[0]), node(number, &links[1])],
                })
                .collect(),
            homes: state.view.homes.clone(),
        }
    }

    /// Returns the reason why a node cannot be the second node of its group beside the first. `None`: it can.
    fn same(&self, [first, second]: &[Link; 2], link: &Link) -> Option<String> {
        let (one, two) = (first.identity()?, second.identity()?);
        let address = &first.address;
        if link.address != second.address || !first.is_ready() {
            return None;
        }
        if one.inc == two.inc {
            return Some(format!("it is the same node as {address}"));
        }
        (one.machine == two.machine && !self.options.one_machine).then(|| {
            format!(
                "it is on the same machine as {address}, and both would fail together. Use a \
                 node on another machine, or allow this (log-one-machine)"
            )
        })
    }

    /// Returns whether acknowledgements of some stream may rest on nodes, in the view in force or one that may replace
    /// it.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        let state = self.state.lock();
        let pending = state.pending.as_ref().is_some_and(View::is_mirrored);
        state.view.is_mirrored() || pending
    }
}

/// Returns whether acknowledgements wait for the disk alone, in every group.
fn is_all_disk(view: &View) -> bool {
    view.groups.iter().all(|mode| *mode == Mode::Disk)
}

/// Returns whether a node has seen a higher generation than the writer's.
fn is_deposed(state: &State, generation: Generation) -> bool {
    let mut links = state.groups.iter().flatten();
    links.any(|link| link.seen > generation)
}

pub(crate) fn nonce(random: &mut dyn FnMut() -> u64) -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    for part in nonce.chunks_exact_mut(8) {
        part.copy_from_slice(&random().to_le_bytes());
    }
    nonce
}
