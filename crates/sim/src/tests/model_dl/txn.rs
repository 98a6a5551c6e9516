//! Transactions: begin, update, commit with early lock release, and two kinds of rollback.

use fastrand::Rng;

use super::fate::Fate;
use super::state::{Delta, Machine, Past, Record, Running, Update};
use super::variant::Twist;

const RUNNING_MAX: usize = 4;

impl Machine {
    pub fn begin(&mut self, rng: &mut Rng) {
        if self.running.len() >= RUNNING_MAX {
            return;
        }
        self.past.push(Past {
            stream: rng.usize(0..self.streams.len()),
            deltas: Vec::new(),
            needs: Vec::new(),
            commit_at: 0,
            fate: Fate::InFlight,
        });
        self.running.push(Running {
            txn: self.past.len() - 1,
            undo: Vec::new(),
            first: None,
            rolling_back: false,
            compensates: false,
            unlogged: None,
            half: None,
        });
    }

    /// Picks a running transaction and returns its index. A transaction that is rolling back can be picked only if
    /// `rolling_back_too`.
    fn pick(&self, rng: &mut Rng, rolling_back_too: bool) -> Option<usize> {
        let fits = |t: &&usize| rolling_back_too || !self.running[**t].rolling_back;
        let candidates: Vec<usize> = (0..self.running.len()).collect();
        let candidates: Vec<usize> = candidates.iter().filter(fits).copied().collect();
        (!candidates.is_empty()).then(|| candidates[rng.usize(0..candidates.len())])
    }

    /// Finishes the action that a transaction left half done. Every later action of this transaction first calls this
    /// function.
    pub fn settle(&mut self, rng: &mut Rng, at: usize) {
        if let Some(update) = self.running[at].half.take() {
            self.apply(rng, at, update);
        }
        if let Some(update) = self.running[at].unlogged.take() {
            self.log(at, update);
        }
    }

    fn log(&mut self, at: usize, update: Update) {
        let stream = self.past[update.txn].stream;
        let position = self.append(stream, Record::Update(update));
        let first = *self.running[at].first.get_or_insert(position);
        assert!(first <= position, "record {position} comes before {first}");
    }

    fn apply(&mut self, rng: &mut Rng, at: usize, update: Update) {
        if self.has(Twist::LateAppend) && rng.bool() {
            self.running[at].unlogged = Some(update);
        } else {
            self.log(at, update);
        }
        self.change(update.delta);
    }

    fn change(&mut self, delta: Delta) {
        let page = &mut self.pages[delta.page];
        page.slots[delta.slot] ^= delta.xor;
        page.dirty = [true, true];
    }

    fn stamped(&self, at: usize, delta: Delta) -> Update {
        let page = &self.pages[delta.page];
        Update {
            txn: self.running[at].txn,
            delta,
            tag: page.tag,
            bit: page.bit,
        }
    }

    pub fn update(&mut self, rng: &mut Rng) {
        let Some(at) = self.pick(rng, false) else {
            return;
        };
        self.settle(rng, at);
        let txn = self.running[at].txn;
        let (page, slot) = (rng.usize(0..self.pages.len()), rng.usize(0..self.slots));
        let lock = &mut self.locks[page][slot];
        if *lock.get_or_insert(txn) != txn {
            return;
        }
        if let Some(writer) = self.writers[page][slot] {
            self.past[txn].needs.push(writer);
        }
        let xor = rng.u8(1..);
        let delta = Delta { page, slot, xor };
        self.running[at].undo.push(delta);
        self.past[txn].deltas.push(delta);
        let update = self.stamped(at, delta);
        if self.has(Twist::FlagOutsideLatch) && self.sweep.is_none() && rng.bool() {
            self.running[at].half = Some(update);
        } else {
            self.apply(rng, at, update);
        }
    }

    pub fn settle_one(&mut self, rng: &mut Rng) {
        if let Some(at) = self.pick(rng, false) {
            self.settle(rng, at);
        }
    }

    fn end(&mut self, at: usize, fate: Fate) {
        let txn = self.running.swap_remove(at).txn;
        assert_eq!(
            self.past[txn].fate,
            Fate::InFlight,
            "a transaction ends once"
        );
        self.past[txn].fate = fate;
        for lock in self.locks.iter_mut().flatten() {
            if *lock == Some(txn) {
                *lock = None;
            }
        }
    }

    pub fn commit(&mut self, rng: &mut Rng) {
        let Some(at) = self.pick(rng, false) else {
            return;
        };
        self.settle(rng, at);
        let (txn, first, epoch) = (self.running[at].txn, self.running[at].first, self.epoch);
        let stream = self.past[txn].stream;
        let commit_at = self.append(stream, Record::Commit { txn, epoch, first });
        self.past[txn].commit_at = commit_at;
        assert_eq!(
            self.running[at].undo, self.past[txn].deltas,
            "a transaction commits what it could take back"
        );
        for delta in &self.past[txn].deltas {
            assert_eq!(
                self.locks[delta.page][delta.slot],
                Some(txn),
                "a transaction changes what it has locked"
            );
            self.writers[delta.page][delta.slot] = Some(txn);
        }
        self.end(at, Fate::Committed(epoch));
    }

    /// Begins a rollback, or takes one more step of a rollback in progress. A rollback that begins outside of a
    /// checkpoint window ends in one step. A rollback that begins within a window writes compensations until the
    /// rollback ends.
    pub fn abort(&mut self, rng: &mut Rng) {
        let Some(at) = self.pick(rng, true) else {
            return;
        };
        self.settle(rng, at);
        let unlogged = self.has(Twist::NoCompensation);
        if !self.running[at].rolling_back {
            let window = self.sweep.is_some() && !unlogged;
            let compensates = window || self.has(Twist::AlwaysCompensate);
            self.running[at].rolling_back = true;
            self.running[at].compensates = compensates;
            if !compensates && !unlogged {
                while let Some(delta) = self.running[at].undo.pop() {
                    self.change(delta);
                }
                return self.end_rollback(at);
            }
        }
        match self.running[at].undo.pop() {
            Some(delta) if self.running[at].compensates => {
                let update = self.stamped(at, delta);
                self.apply(rng, at, update);
            }
            Some(delta) => self.change(delta),
            None => self.end_rollback(at),
        }
    }

    fn end_rollback(&mut self, at: usize) {
        let Running {
            txn,
            first,
            compensates,
            ..
        } = self.running[at];
        let g = self.g;
        assert!(
            self.running[at].undo.is_empty(),
            "a rollback ends when nothing is left to take back"
        );
        let record = Record::Abort {
            txn,
            compensated: compensates,
            g,
            first,
        };
        self.append(self.past[txn].stream, record);
        let fate = match compensates {
            true => Fate::AbortedCompensated,
            false => Fate::AbortedClean(g),
        };
        self.end(at, fate);
    }
}
