//! The fuzzy checkpoint. Each step visits one page or completes one phase.

use fastrand::Rng;

use super::state::{Anchor, Machine, Phase, Record, Sweep, Tid};
use super::variant::Twist;

impl Machine {
    pub fn sweep_step(&mut self, rng: &mut Rng) {
        let Some(mut sweep) = self.sweep.take() else {
            return self.sweep_begin();
        };
        match sweep.phase {
            Phase::Scan => self.visit(&mut sweep),
            Phase::End => self.sweep_end(rng, &mut sweep),
            Phase::Sync => {
                if !self.has(Twist::AnchorBeforeLog) {
                    self.sync_up_to(sweep.end_epoch);
                }
                sweep.phase = Phase::Anchor;
            }
            Phase::Anchor => return self.sweep_complete(sweep),
        }
        self.sweep = Some(sweep);
    }

    fn sweep_begin(&mut self) {
        self.g += 1;
        let begin = self.streams.iter().map(Vec::len).collect();
        for stream in 0..self.streams.len() {
            self.append(stream, Record::BeginCheckpoint);
        }
        self.sweep = Some(Sweep {
            k: self.g,
            image: 1 - self.anchor.image,
            at: 0,
            pages: self.pages.len(),
            begin,
            end: Vec::new(),
            end_epoch: 0,
            phase: Phase::Scan,
            early_list: None,
        });
    }

    /// Stamps one page. Copies the page into the image if the page is dirty for this image. In the engine all of this
    /// happens under the page's latch, so here it is one step.
    fn visit(&mut self, sweep: &mut Sweep) {
        if self.has(Twist::BornSwept) {
            sweep.pages = self.pages.len();
        }
        if sweep.at == sweep.pages {
            sweep.phase = Phase::End;
            return;
        }
        let page = &mut self.pages[sweep.at];
        assert!(
            page.tag <= sweep.k && sweep.k == self.g,
            "checkpoint {} visits a page of {}",
            sweep.k,
            page.tag
        );
        page.tag = sweep.k;
        page.bit = !page.bit;
        if std::mem::take(&mut page.dirty[sweep.image]) {
            self.images[sweep.image][sweep.at].clone_from(&page.slots);
        }
        sweep.at += 1;
    }

    fn sweep_end(&mut self, rng: &mut Rng, sweep: &mut Sweep) {
        if self.has(Twist::ListRace) && sweep.early_list.is_none() {
            sweep.early_list = Some(self.active_lists());
            return;
        }
        if self.has(Twist::Quiesce) {
            for at in 0..self.running.len() {
                self.settle(rng, at);
            }
        }
        let lists = sweep.early_list.take();
        let lists = lists.unwrap_or_else(|| self.active_lists());
        for (stream, active) in lists.into_iter().enumerate() {
            let record = Record::EndCheckpoint { k: sweep.k, active };
            let end = self.append(stream, record);
            sweep.end.push(end);
        }
        self.close();
        sweep.end_epoch = self.epoch - 1;
        sweep.phase = Phase::Sync;
    }

    fn active_lists(&self) -> Vec<Vec<(Tid, usize)>> {
        let mut lists = vec![Vec::new(); self.streams.len()];
        for running in &self.running {
            if let Some(first) = running.first {
                lists[self.past[running.txn].stream].push((running.txn, first));
            }
        }
        lists
    }

    fn sync_up_to(&mut self, epoch: u64) {
        let closed = self.closed.iter().find(|(closed, _)| *closed == epoch);
        let (_, ends) = closed.expect("the epoch was closed when the sweep ended");
        for (synced, end) in self.synced.iter_mut().zip(ends) {
            *synced = (*synced).max(*end);
        }
        self.notice_durable();
    }

    fn sweep_complete(&mut self, sweep: Sweep) {
        assert!(
            sweep.image != self.anchor.image && sweep.k > self.anchor.k,
            "image {} replaces the one that the anchor rests on",
            sweep.image
        );
        let marks = sweep.begin.iter().zip(&sweep.end);
        assert!(
            marks.len() == self.streams.len() && marks.into_iter().all(|(a, b)| a < b),
            "a window begins before it ends, in each stream"
        );
        let pages = self.images[sweep.image][..sweep.pages].to_vec();
        self.archive.push((sweep.k, pages));
        self.anchor = Anchor {
            k: sweep.k,
            image: sweep.image,
            pages: sweep.pages,
            begin: sweep.begin,
            end: sweep.end,
            bit: self.pages[0].bit,
        };
    }

    /// Cancels the checkpoint by stopping it. The printed algorithm cannot cancel a checkpoint, because some pages
    /// would keep their toggled bits.
    pub fn cancel_sweep(&mut self) {
        let early = |sweep: &Sweep| matches!(sweep.phase, Phase::Scan | Phase::End);
        if !self.has(Twist::OneBit) && self.sweep.as_ref().is_some_and(early) {
            self.sweep = None;
        }
    }
}
