//! The expected state, and three more ways to compute a state from images and log. The first gives the state at any
//! epoch. The second gives the state of another image. The third combines records beforehand.

use std::collections::BTreeMap;

use super::fate::{Fate, applies, net_reflected};
use super::state::{Delta, Machine, Pages, Record, Update};
use super::variant::Twist;

pub(super) fn xor(pages: &mut Pages, delta: Delta) {
    pages[delta.page][delta.slot] ^= delta.xor;
}

impl Machine {
    /// Returns the expected pages: the sum of all changes committed up to epoch `target`.
    pub fn expected(&self, target: u64) -> Pages {
        let mut pages = vec![vec![0; self.slots]; self.pages.len()];
        for past in &self.past {
            if matches!(past.fate, Fate::Committed(epoch) if epoch <= target) {
                past.deltas.iter().for_each(|delta| xor(&mut pages, *delta));
            }
        }
        pages
    }

    /// Returns an image's pages, followed by a zeroed page for each page added later.
    pub fn padded(&self, image: &[Vec<u8>]) -> Pages {
        assert!(
            image.len() <= self.pages.len(),
            "an image of {} pages, and there are {}",
            image.len(),
            self.pages.len()
        );
        let mut pages = image.to_vec();
        pages.resize_with(self.pages.len(), || vec![0; self.slots]);
        pages
    }

    /// Returns whether the tests must check that images and log give the right state at every moment. The check is
    /// impossible in four kinds of variant: without epochs, with late appends, with one bit as the tag, or with tags
    /// that are read outside the latch.
    pub fn keeps_history(&self) -> bool {
        use Twist::{FlagOutsideLatch, LateAppend, NoEpochs, OneBit};
        ![OneBit, NoEpochs, LateAppend, FlagOutsideLatch]
            .into_iter()
            .any(|twist| self.has(twist))
    }

    pub fn check_history(&self) -> Result<(), String> {
        let records = self.streams.iter().flatten();
        let updates: Vec<(Update, Fate)> = records
            .filter_map(|record| match record {
                Record::Update(update) => Some((*update, self.past[update.txn].fate)),
                _ => None,
            })
            .collect();
        self.check_points_in_time(&updates)?;
        self.check_net_change(&updates)?;
        self.check_advance(&updates)
    }

    fn check_points_in_time(&self, updates: &[(Update, Fate)]) -> Result<(), String> {
        let closed = self.closed.iter().map(|(epoch, _)| *epoch);
        let committed = self.past.iter().filter_map(|past| match past.fate {
            Fate::Committed(epoch) => Some(epoch),
            _ => None,
        });
        let mut targets: Vec<u64> = closed.chain(committed).collect();
        targets.retain(|epoch| *epoch <= self.durable);
        targets.sort_unstable();
        targets.dedup();
        for target in targets {
            let expected = self.expected(target);
            for (k, image) in &self.archive {
                let mut pages = self.padded(image);
                for (update, fate) in updates {
                    if applies(update.tag, *k, *fate, target) {
                        xor(&mut pages, update.delta);
                    }
                }
                if pages != expected {
                    return Err(format!("image {k} does not lead to epoch {target}"));
                }
            }
        }
        Ok(())
    }

    /// Checks that the log's records turn each image into every other image. The check uses only how and when each
    /// transaction ended.
    fn check_advance(&self, updates: &[(Update, Fate)]) -> Result<(), String> {
        for (from, image) in &self.archive {
            for (to, other) in &self.archive {
                let mut pages = self.padded(image);
                for (update, fate) in updates {
                    let [before, after] = [*from, *to].map(|k| net_reflected(update.tag, k, *fate));
                    if before != after {
                        xor(&mut pages, update.delta);
                    }
                }
                if pages[..other.len()] != other[..] {
                    return Err(format!("image {from} does not lead to image {to}"));
                }
            }
        }
        Ok(())
    }

    /// Checks that committed records with the same page, slot and tag can be combined into one record.
    fn check_net_change(&self, updates: &[(Update, Fate)]) -> Result<(), String> {
        let mut combined: BTreeMap<(usize, usize, u64), u8> = BTreeMap::new();
        let mut rest = Vec::new();
        for (update, fate) in updates {
            let Delta { page, slot, xor } = update.delta;
            let tag = match self.has(Twist::NetAcrossTags) {
                true => update.tag / 4 * 4,
                false => update.tag,
            };
            match fate {
                Fate::Committed(epoch) if *epoch <= self.durable => {
                    *combined.entry((page, slot, tag)).or_default() ^= xor;
                }
                _ => rest.push((update, fate)),
            }
        }
        let expected = self.expected(self.durable);
        for (k, image) in &self.archive {
            let mut pages = self.padded(image);
            for (&(page, slot, tag), &change) in &combined {
                if applies(tag, *k, Fate::Committed(0), self.durable) {
                    pages[page][slot] ^= change;
                }
            }
            for (update, fate) in &rest {
                if applies(update.tag, *k, **fate, self.durable) {
                    xor(&mut pages, update.delta);
                }
            }
            if pages != expected {
                return Err(format!("net change from image {k}"));
            }
        }
        Ok(())
    }
}
