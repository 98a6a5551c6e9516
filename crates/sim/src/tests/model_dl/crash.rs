//! A crash, the restart by the rule, and the first state of the next life.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::fate::{Fate, applies};
use super::oracle::xor;
use super::state::{IMAGES, Machine, Page, Pages, Record, Tid};
use super::variant::Twist;

/// The result of a restart: the pages, and for each page whether the log changed it.
pub(super) struct Restarted {
    pub pages: Pages,
    pub touched: Vec<bool>,
}

impl Restarted {
    pub fn apply(&mut self, delta: super::state::Delta) {
        xor(&mut self.pages, delta);
        self.touched[delta.page] = true;
    }
}

/// The cut of the log at a restart: each stream's end, and the durable epoch. The epoch is `None` if the variant
/// ignores epochs.
pub(super) struct Cut {
    pub ends: Vec<usize>,
    pub durable: Option<u64>,
}

impl Machine {
    /// Crashes and restarts the machine. At the power failure, each stream has some of its unsynced records on disk.
    /// The restarted machine must keep its promises.
    pub fn crash(&mut self, rng: &mut Rng) -> Result<(), String> {
        let on_disk = |(synced, stream): (&usize, &Vec<Record>)| rng.usize(*synced..=stream.len());
        let ends: Vec<usize> = self.synced.iter().zip(&self.streams).map(on_disk).collect();
        let cut = self.cut(ends);
        let within = |(end, stream): (&usize, &Vec<Record>)| *end <= stream.len();
        assert!(
            cut.ends.iter().zip(&self.streams).all(within) && cut.durable >= self.floor(),
            "a restart keeps less than was durable"
        );
        self.settle_fates(&cut)?;
        let restarted = match self.has(Twist::OneBit) {
            true => self.restart_as_printed(&cut),
            false => self.restart(&cut),
        };
        let expected = self.expected(u64::MAX);
        if restarted.pages != expected {
            return Err(format!(
                "the restart made {:?}, committed was {expected:?}",
                restarted.pages
            ));
        }
        self.next_life(&cut, restarted);
        Ok(())
    }

    /// Returns the durable epoch, or `None` if the variant ignores epochs.
    fn floor(&self) -> Option<u64> {
        (!self.has(Twist::NoEpochs)).then_some(self.durable)
    }

    fn cut(&self, on_disk: Vec<usize>) -> Cut {
        if self.has(Twist::NoEpochs) {
            return Cut {
                ends: on_disk,
                durable: None,
            };
        }
        let whole = |ends: &[usize]| on_disk.iter().zip(ends).all(|(disk, end)| disk >= end);
        let newest = self.closed.iter().rev().find(|(_, ends)| whole(ends));
        let (durable, ends) = newest.expect("the last restart's cut is on disk");
        Cut {
            ends: match self.has(Twist::NoCut) {
                true => on_disk,
                false => ends.clone(),
            },
            durable: Some(*durable),
        }
    }

    /// Returns whether a commit of this epoch counts, given that its record lies within the cut.
    fn counts(&self, epoch: u64, cut: &Cut) -> bool {
        self.has(Twist::BlockEpochDecides)
            || cut
                .durable
                .is_none_or(|durable| epoch <= durable && !self.is_void(epoch))
    }

    /// Decides from the log alone which transactions survived. Checks that every acknowledged transaction is among
    /// them.
    fn settle_fates(&mut self, cut: &Cut) -> Result<(), String> {
        let (mut survives, mut ended) =
            (vec![false; self.past.len()], vec![false; self.past.len()]);
        for (stream, end) in self.streams.iter().zip(&cut.ends) {
            for record in &stream[..*end] {
                match record {
                    Record::Commit { txn, epoch, .. } if self.counts(*epoch, cut) => {
                        survives[*txn] = true;
                    }
                    Record::Abort { txn, .. } => ended[*txn] = true,
                    _ => {}
                }
            }
        }
        if self.acknowledged.iter().any(|txn| !survives[*txn]) {
            return Err("an acknowledged transaction is lost".to_owned());
        }
        let committed = |txn: Tid| matches!(self.past[txn].fate, Fate::Committed(_));
        for txn in (0..self.past.len()).filter(|txn| survives[*txn] && committed(*txn)) {
            let needs = &self.past[txn].needs;
            if needs
                .iter()
                .any(|need| committed(*need) && !survives[*need])
            {
                return Err("a survivor depends on a lost transaction".to_owned());
            }
        }
        for (txn, past) in self.past.iter_mut().enumerate() {
            let lost = match past.fate {
                Fate::Committed(_) => !survives[txn],
                Fate::InFlight => true,
                Fate::Lost(_) => false,
                _ => !ended[txn],
            };
            if lost {
                past.fate = Fate::Lost(self.g);
            }
        }
        Ok(())
    }

    /// Restarts by the rule, in one pass. The pass plays each stream's records from the begin-checkpoint record to
    /// the cut. It also plays the earlier records of transactions that failed.
    fn restart(&self, cut: &Cut) -> Restarted {
        let k = self.anchor.k;
        let target = cut.durable.unwrap_or(u64::MAX);
        let mut made = Restarted {
            pages: self.padded(&self.images[self.anchor.image][..self.anchor.pages]),
            touched: vec![false; self.pages.len()],
        };
        for (s, stream) in self.streams.iter().enumerate() {
            let (begin, log) = (self.anchor.begin[s], &stream[..cut.ends[s]]);
            let (fates, firsts) = self.read_fates(&log[begin..], begin, cut);
            // The log names no end of this transaction, so it was active when the checkpoint began.
            let fate = |txn: Tid| fates.get(&txn).copied().unwrap_or(Fate::Lost(k));
            for record in &log[begin..] {
                if let Record::Update(update) = record
                    && applies(update.tag, k, fate(update.txn), target)
                {
                    made.apply(update.delta);
                }
            }
            for (txn, first) in firsts {
                if matches!(fate(txn), Fate::Committed(_) | Fate::AbortedCompensated) {
                    continue;
                }
                for record in log.get(first..begin).unwrap_or_default() {
                    if let Record::Update(update) = record
                        && update.txn == txn
                        && applies(update.tag, k, fate(txn), target)
                    {
                        made.apply(update.delta);
                    }
                }
            }
        }
        made
    }

    /// Returns the fate of each transaction in a stream, and the position of each loser's first record.
    fn read_fates(
        &self,
        log: &[Record],
        begin: usize,
        cut: &Cut,
    ) -> (BTreeMap<Tid, Fate>, BTreeMap<Tid, usize>) {
        let (mut fates, mut firsts) = (BTreeMap::new(), BTreeMap::new());
        for record in log {
            match record {
                Record::Commit { txn, epoch, first } => {
                    if self.counts(*epoch, cut) {
                        // This commit is already known to count, so the rule must not check its epoch again. Epoch 0
                        // always passes the check.
                        fates.insert(*txn, Fate::Committed(0));
                    } else {
                        firsts.insert(*txn, first.unwrap_or(begin));
                    }
                }
                Record::Abort {
                    txn,
                    compensated,
                    g,
                    first,
                } => {
                    let fate = match compensated {
                        true if self.has(Twist::CompensatedAsLoser) => Fate::AbortedTakenOut,
                        true => Fate::AbortedCompensated,
                        false => Fate::AbortedClean(*g),
                    };
                    fates.insert(*txn, fate);
                    firsts.extend(first.map(|first| (*txn, first)));
                }
                Record::EndCheckpoint { k, active } if *k == self.anchor.k => {
                    for (txn, first) in active {
                        firsts.entry(*txn).or_insert(*first);
                    }
                }
                _ => {}
            }
        }
        (fates, firsts)
    }

    fn next_life(&mut self, cut: &Cut, made: Restarted) {
        let k = self.anchor.k;
        let loaded = self.anchor.image;
        let other_trusted = self.has(Twist::OtherImageTrusted);
        let clean = self.has(Twist::RestartChangesClean);
        let pages = made.pages.into_iter().zip(made.touched).enumerate();
        self.pages = pages
            .map(|(at, (slots, touched))| {
                let mut dirty = [true; IMAGES];
                if at < self.anchor.pages {
                    dirty[loaded] = touched && !clean;
                    dirty[1 - loaded] = touched || !other_trusted;
                }
                Page {
                    slots,
                    tag: k,
                    bit: self.anchor.bit,
                    dirty,
                }
            })
            .collect();
        assert_eq!(
            self.pages.len(),
            self.locks.len(),
            "a restart makes the pages there were"
        );
        for (stream, end) in self.streams.iter_mut().zip(&cut.ends) {
            stream.truncate(*end);
        }
        self.synced.clone_from(&cut.ends);
        self.running.clear();
        self.sweep = None;
        self.closing = None;
        self.locks
            .iter_mut()
            .flatten()
            .for_each(|lock| *lock = None);
        for writer in self.writers.iter_mut().flatten() {
            let committed = |txn: &Tid| matches!(self.past[*txn].fate, Fate::Committed(_));
            *writer = writer.filter(committed);
        }
        self.durable = cut.durable.unwrap_or(self.epoch);
        self.closed = vec![(self.durable, cut.ends.clone())];
        self.void.push((self.durable, self.epoch));
        self.epoch += 1;
        if self.has(Twist::CkptEpochReused) {
            self.g = k;
        }
    }
}
