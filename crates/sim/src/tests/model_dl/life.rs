//! The steps of a life. Each step is chosen at random by its weight. There are steps for transactions, for closing
//! epochs stream by stream, for syncs, and for new pages.

use fastrand::Rng;

use super::fate::Fate;
use super::state::{Closing, IMAGES, Machine, Page};
use super::variant::Twist;

/// The maximum number of pages of a machine.
const PAGES_MAX: usize = 6;

/// Weights of the steps, in the order of [`Machine::step`].
const WEIGHTS: [u32; 13] = [60, 180, 40, 50, 50, 10, 20, 50, 10, 40, 10, 120, 3];

impl Machine {
    pub fn step(&mut self, rng: &mut Rng) {
        let mut at = rng.u32(0..WEIGHTS.iter().sum());
        let mut kind = 0;
        while at >= WEIGHTS[kind] {
            at -= WEIGHTS[kind];
            kind += 1;
        }
        match kind {
            0 => self.begin(rng),
            1 => self.update(rng),
            2 => self.settle_one(rng),
            3 => self.commit(rng),
            4 if !self.has(Twist::NoAborts) => self.abort(rng),
            4 => {}
            5 => self.close(),
            6 => self.close_begin(),
            7 => self.close_visit(rng),
            8 if !self.has(Twist::OneBit) => self.grow(rng),
            8 => {}
            9 => self.sync(rng),
            10 => self.sync_all(),
            11 => self.sweep_step(rng),
            _ => self.cancel_sweep(),
        }
    }

    /// Finishes closing the epoch that is half closed, if any, and then closes the open epoch too.
    pub fn close(&mut self) {
        for stream in 0..self.streams.len() {
            let unsealed = |closing: &Closing| closing.sealed[stream].is_none();
            if self.closing.as_ref().is_some_and(unsealed) {
                self.seal(stream);
            }
        }
        let ends = self.streams.iter().map(Vec::len).collect();
        self.closed.push((self.epoch, ends));
        self.epoch += 1;
    }

    fn close_begin(&mut self) {
        if self.closing.is_none() {
            self.closing = Some(Closing {
                epoch: self.epoch,
                sealed: vec![None; self.streams.len()],
            });
            self.epoch += 1;
        }
    }

    fn close_visit(&mut self, rng: &mut Rng) {
        let Some(closing) = &self.closing else { return };
        let unsealed = |stream: &usize| closing.sealed[*stream].is_none();
        let unsealed: Vec<usize> = (0..self.streams.len()).filter(unsealed).collect();
        self.seal(unsealed[rng.usize(0..unsealed.len())]);
    }

    fn sync(&mut self, rng: &mut Rng) {
        let stream = rng.usize(0..self.streams.len());
        let (synced, end) = (self.synced[stream], self.streams[stream].len());
        assert!(synced <= end, "{synced} of {end} records are synced");
        self.synced[stream] = rng.usize(synced..=end);
        self.notice_durable();
    }

    fn sync_all(&mut self) {
        self.close();
        self.synced = self.streams.iter().map(Vec::len).collect();
        self.notice_durable();
    }

    /// Marks an epoch as durable once every stream has synced its part of the epoch. Then acknowledges the commits of
    /// this epoch.
    pub fn notice_durable(&mut self) {
        for (epoch, ends) in &self.closed {
            if *epoch > self.durable && self.synced.iter().zip(ends).all(|(s, e)| s >= e) {
                self.durable = *epoch;
            }
        }
        assert!(
            self.durable < self.epoch,
            "epoch {} is open and durable",
            self.epoch
        );
        let by_stream = self.has(Twist::NoEpochs);
        self.acknowledged.clear();
        for (txn, past) in self.past.iter().enumerate() {
            let Fate::Committed(epoch) = past.fate else {
                continue;
            };
            let durable = match by_stream {
                true => self.synced[past.stream] > past.commit_at,
                false => epoch <= self.durable,
            };
            if durable {
                self.acknowledged.push(txn);
            }
        }
    }

    /// Adds a page and stamps it with the id of the newest checkpoint. The image files may have older bytes at the
    /// page's offset. These bytes are not from this page.
    fn grow(&mut self, rng: &mut Rng) {
        if self.pages.len() >= PAGES_MAX {
            return;
        }
        self.pages.push(Page {
            slots: vec![0; self.slots],
            tag: self.g,
            bit: false,
            dirty: [true; IMAGES],
        });
        self.locks.push(vec![None; self.slots]);
        self.writers.push(vec![None; self.slots]);
        assert_eq!(
            (self.locks.len(), self.writers.len()),
            (self.pages.len(), self.pages.len()),
            "each page has its locks and its writers"
        );
        for image in &mut self.images {
            image.push((0..self.slots).map(|_| rng.u8(..)).collect());
        }
    }
}
