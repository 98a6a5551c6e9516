//! The writer's side: it ships sealed blocks to the nodes, tracks which bytes they hold, and changes the view.
//!
//! ```text
//!                 a node is silent                    both are
//! Mirror(a, b) ───────────────────► Solo(b) ───────────────────► Disk        (after all acknowledged bytes are synced)
//!      ▲                               │                           │
//!      └──────── the other one has caught up ──────────────────────┘
//! ```
//! [`Mirror::pump`] moves bytes and replies and never blocks. Any thread that waits for an acknowledgement may call it.
//! [`Mirror::manage`] takes one step that may block: an operation of the arbiter, an update of the anchor, or the start
//! of a connection. Only the thread that owns the mirror calls it.
//!
//! # Acknowledging
//! A stream is acknowledged up to a position that depends on the mode of its group. In Mirror, the two members hold the
//! bytes before the position. In Solo, the member holds these bytes and the disk has synced these bytes. In Disk, the
//! disk has synced these bytes. While it is unknown whether a new view was stored, both the old view and the new view
//! must permit a position. So acknowledgements stop when a node falls silent, and continue when the new view is known
//! to be stored.
//!
//! A group leaves Mirror only when all acknowledged bytes are synced. The paper that this crate follows changes the
//! view first and copies afterwards. In that order the newest bytes are lost if the writer fails in between. The reason
//! is that a takeover reads only the disk if the mode is not Mirror.
//!
//! # Invariants
//! * Acknowledged bytes are synced or, in mode Mirror, held by the two members of the group. This is so in every view
//!   that may be in force.
//! * Bytes that only nodes hold are acknowledged only while the durable anchor permits it.
//! * When the mirror stops, all groups first change to mode Disk, and then the anchor withdraws the permission. Both
//!   steps wait until all shipped bytes are synced.
//! * After a writer has seen a higher generation, the writer acknowledges nothing and changes nothing.

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

/// The log and the anchor that a mirror works for.
pub trait Log: Send + Sync {
    /// Returns the end of a stream's synced bytes on the log's disk.
    fn synced(&self, stream: StreamId) -> Pos;
    /// Permits acknowledgements of a stream up to a position.
    fn raise(&self, stream: StreamId, end: Pos);
    /// Sets whether the log acknowledges all synced bytes by itself. At first it does. The log may do this only while
    /// every group is in mode Disk, both in the view in force and in a pending view if there is one. In the other modes
    /// bytes may not be acknowledged just because they are synced.
    fn follow_disk(&self, follows: bool);
    /// Returns the present time in nanoseconds. Callers of the mirror's methods pass a time of this clock as `now_ns`.
    fn now_ns(&self) -> u64;
    /// Requests that the log sync the shipped bytes now.
    fn want_copy(&self);
    /// Returns the commit epoch that is durable on the log's disks.
    fn durable(&self) -> Epoch;
    /// Stops the log, because another writer has replaced this writer.
    fn fence(&self, why: &str);
    /// Stores durably in the anchor whether bytes that only nodes hold may be acknowledged.
    ///
    /// # Errors
    /// Errors of the anchor. After an error, a later update of the anchor may still store the failed update's record.
    fn anchor(&self, mirrored: bool) -> Result<()>;
}

/// The state of a writer at its begin.
pub struct Beginning {
    /// The view in force. This writer has made it, and all its groups are in mode Disk.
    pub view: View,
    /// The begin of the writer's life in each stream.
    pub start: Vec<Pos>,
    /// True if the anchor permits the acknowledgement of bytes that only nodes hold.
    pub anchored: bool,
    /// A source of random numbers for nonces.
    pub random: Box<dyn FnMut() -> u64 + Send>,
}

/// The result of a step of [`Mirror::manage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Managed {
    /// A step was taken. Another may follow at once.
    Step,
    /// There was nothing to do. The caller tries again when something has changed or some time has passed.
    Idle,
    /// The mirror has stopped. All bytes are on disk, all groups are in mode Disk, and the anchor's permission is
    /// withdrawn.
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
    /// For each stream, the shipped bytes that are not synced. Lock `state` before these.
    tails: Vec<Mutex<Ring>>,
    state: Mutex<State>,
    /// True if a thread could not lock the state and left a request to pump: see [`pump_soon`](Self::pump_soon).
    missed: AtomicBool,
}

impl Mirror {
    /// Makes the mirror of a writer. The writer must have made the view in `beginning`.
    ///
    /// # Errors
    /// [`Error::Usage`] for invalid options; [`Error::OutOfMemory`] if there is no memory for the tails.
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

    /// Begins the mirror's work. The log must be ready for calls. If the writer needs a lease, the log no longer
    /// acknowledges synced bytes by itself.
    pub fn begin(&self, log: &dyn Log) {
        if self.state.lock().lease.is_needed() {
            log.follow_disk(false);
        }
    }

    /// Takes a sealed block of the log. The device that was passed to [`perdura_wal::Wal::ship_by`] calls this.
    /// `synced` is the end of the synced bytes in the block's stream.
    pub fn ship(&self, block: Sealed<'_>, synced: Pos) {
        let mut tail = self.tails[usize::from(block.stream.0)].lock();
        tail.forget(synced);
        let taken = tail.append(block.pos, block.bytes, 0);
        assert_eq!(taken, Ok(()), "the log's tail has the same bound");
    }

    /// Takes one step that may block.
    ///
    /// # Errors
    /// Errors of the arbiter or the anchor; the caller may try again. [`Error::Fenced`] when another writer has
    /// replaced this writer.
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
        let swap = self.register.lock().replace(&next)?;
        match swap {
            Swap::Done => self.adopt(&mut self.state.lock(), log, next, now_ns),
            // Another process has stored a view with this number, or an earlier attempt of this writer has. The next
            // step reads that view.
            Swap::Lost => {}
        }
        Ok(Managed::Step)
    }

    /// Withdraws the anchor's permission. The view already says that all bytes are on disk.
    fn stop(&self, log: &dyn Log) -> Result<Managed> {
        let anchored = self.state.lock().anchored;
        if anchored != Anchored::No {
            self.anchor(log, false)?;
        }
        Ok(Managed::Stopped)
    }

    /// Stores in the anchor whether bytes that only nodes hold may be acknowledged.
    fn anchor(&self, log: &dyn Log, mirrored: bool) -> Result<()> {
        self.state.lock().anchored = Anchored::Perhaps;
        log.anchor(mirrored)?;
        self.state.lock().anchored = Anchored::of(mirrored);
        Ok(())
    }

    /// Reads from the arbiter which view is in force, and acts on it.
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
            // The pending view may still be stored. So this writer sends it again. It sends no other view until it
            // knows whether the pending one was stored.
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
        // A node may have reported a higher generation. No takeover has stored that generation in this arbiter, so it
        // is ignored.
        let seen = state.view.generation;
        state
            .groups
            .iter_mut()
            .flatten()
            .for_each(|link| link.seen = link.seen.min(seen));
        Ok(Managed::Step)
    }

    /// Ends the writer. From now on it acknowledges nothing.
    fn end(&self, mut state: MutexGuard<'_, State>, log: &dyn Log, why: String) -> Result<Managed> {
        state.fenced = Some(why.clone());
        drop(state);
        log.fence(&why);
        Err(Error::Fenced(why))
    }

    /// Adopts a view that is in force. `asked_ns` is the time of the question to the arbiter.
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

    /// Replaces the connection to one node on this machine. Over the new connection the node shares its memory. Returns
    /// whether a connection was replaced.
    fn move_home(&self, state: &mut State, now_ns: u64) -> bool {
        let State { groups, random, .. } = state;
        let mut nonce = || nonce(random);
        let mut links = groups.iter_mut().flatten();
        links.any(|link| link.move_home(self.net.as_ref(), &self.caller, &mut nonce, now_ns))
    }

    /// Asks one node to drop the rings of earlier writers. The bytes of these rings are on disk, and the anchor names
    /// this life. Returns whether a request was sent.
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

    /// Begins to stop the mirror. No more blocks may be shipped. When all bytes are synced, all groups change to mode
    /// Disk and the anchor's permission is withdrawn. Then [`manage`](Self::manage) returns [`Managed::Stopped`].
    pub fn begin_stop(&self) {
        self.state.lock().is_stopping = true;
    }

    /// Returns the events since the last call. Each change of the view is one line.
    pub fn take_events(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().events)
    }

    /// Returns the view in force, and the state of each node.
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

    /// Returns the reason why `link`'s node cannot be the second node of its group. `None`: no reason is known, or
    /// the node is the first of its group.
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

    /// Returns whether the view in force or a pending one has a stream in mode Mirror. Bytes of that stream may be
    /// acknowledged before they are on disk.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        let state = self.state.lock();
        let pending = state.pending.as_ref().is_some_and(View::is_mirrored);
        state.view.is_mirrored() || pending
    }
}

/// Returns whether all groups are in mode Disk.
fn is_all_disk(view: &View) -> bool {
    view.groups.iter().all(|mode| *mode == Mode::Disk)
}

/// Returns whether a node has reported a higher generation than the writer's.
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
