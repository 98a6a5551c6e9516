//! The paper's algorithm 3 as printed: one backward pass over each stream, with one bit as the tag.

use std::collections::BTreeSet;

use super::crash::{Cut, Restarted};
use super::state::{Machine, Record};

impl Machine {
    pub fn restart_as_printed(&self, cut: &Cut) -> Restarted {
        let mut made = Restarted {
            pages: self.images[self.anchor.image].clone(),
            touched: vec![false; self.pages.len()],
        };
        for stream in 0..self.streams.len() {
            self.play_backward(stream, cut.ends[stream], &mut made);
        }
        made
    }

    fn play_backward(&self, s: usize, cut: usize, made: &mut Restarted) {
        let stream = &self.streams[s];
        let (mut committed, mut active) = (BTreeSet::new(), BTreeSet::new());
        // The paper's step 4 plays the records behind the checkpoint. Without a checkpoint, these are all records.
        let first_behind = match self.anchor.k {
            0 => 0,
            _ => self.anchor.end[s] + 1,
        };
        for record in stream[first_behind.min(cut)..cut].iter().rev() {
            match record {
                Record::Commit { txn, .. } => drop(committed.insert(*txn)),
                Record::Update(update) if committed.contains(&update.txn) => {
                    made.apply(update.delta);
                }
                _ => {}
            }
        }
        if self.anchor.k == 0 {
            return;
        }
        // Step 5 finds the losers: active at the checkpoint's end, and not committed.
        if let Record::EndCheckpoint { active: listed, .. } = &stream[self.anchor.end[s]] {
            let losers = listed.iter().map(|(txn, _)| *txn);
            active.extend(losers.filter(|txn| !committed.contains(txn)));
        }
        // Step 6 plays the records of the checkpoint window, newest first.
        for record in stream[self.anchor.begin[s]..self.anchor.end[s]]
            .iter()
            .rev()
        {
            match record {
                Record::Commit { txn, .. } => drop(committed.insert(*txn)),
                Record::Abort { txn, .. } => drop(active.insert(*txn)),
                Record::Update(update) => {
                    let same = update.bit == self.anchor.bit;
                    if committed.contains(&update.txn) == same {
                        made.apply(update.delta);
                    }
                }
                _ => {}
            }
        }
        // Step 7 removes the losers' changes from before the checkpoint.
        for record in stream[..self.anchor.begin[s]].iter().rev() {
            if let Record::Update(update) = record
                && active.contains(&update.txn)
            {
                made.apply(update.delta);
            }
        }
    }
}
