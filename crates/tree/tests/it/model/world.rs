//! The model's normal operation: operations, splits, epochs, page writes, checkpoints and crashes.

use fastrand::Rng;
use perdura_base::{Gsn, Pid};
use perdura_formats::tree_record::TreeRecord;
use perdura_tree::monitor::{Dirty, Limits, Monitor, Tells};
use std::collections::{BTreeMap, VecDeque};

/// All keys are below this number.
pub const KEYS: u8 = 24;
pub const ROOT: Pid = Pid(0);

type Step = fn(&mut World);

pub const LIMITS: Limits = Limits {
    notes: 16,
    written: 8,
};

/// A seeded mistake in the model, outside the monitor and the analyses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// An operation gets a number first. The monitor notes the operation later, perhaps after operations with higher
    /// numbers.
    NumberBesideNote,
    /// The monitor counts a page as written when its write has ended, before the sync.
    WrittenBeforeSync,
    /// A checkpoint sets `Anchor::begin`, the positions in the streams, only after the redo start got its number.
    BeginAfterMark,
    /// A page has only one number for operations and changes of structure.
    OneLsn,
    /// A method that finds pages by page number does not check the page's fences.
    NoFences,
    /// A restart drops its notes about the pages that it made dirty. The next restart needs these notes.
    RestartNotNoted,
    /// A restart uses the log without making it durable first.
    LogNotDurable,
    /// A restart uses the pages on disk without making them durable first.
    PagesNotDurable,
}

impl Mistake {
    pub const ALL: [Mistake; 8] = [
        Mistake::NumberBesideNote,
        Mistake::WrittenBeforeSync,
        Mistake::BeginAfterMark,
        Mistake::OneLsn,
        Mistake::NoFences,
        Mistake::RestartNotNoted,
        Mistake::LogNotDurable,
        Mistake::PagesNotDurable,
    ];
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub low: u8,
    pub high: u8,
    /// The values by key in a leaf; the child page numbers by separator in the root.
    pub rows: BTreeMap<u8, u32>,
    pub plsn: Gsn,
    pub dlsn: Gsn,
}

pub type Pages = BTreeMap<Pid, Page>;

/// Returns the leaf of a key.
pub fn lookup(pages: &Pages, key: u8) -> Pid {
    let (_, child) = pages[&ROOT].rows.range(..=key).next_back().expect("a leaf");
    Pid(*child)
}

#[derive(Debug, Clone, Copy)]
pub struct Op {
    pub gsn: Gsn,
    pub key: u8,
    pub value: u32,
    pub pid: Pid,
}

#[derive(Debug, Clone)]
pub struct Split {
    pub gsn: Gsn,
    pub left: Pid,
    pub right: Pid,
    pub separator: u8,
    pub image: Page,
}

/// The body of a frame.
#[derive(Debug, Clone)]
pub enum Body {
    Ops(Vec<Op>),
    Split(Split),
    Tree(Vec<u8>),
}

#[derive(Debug, Default)]
pub struct Stream {
    pub frames: Vec<Body>,
    /// Count of durable frames.
    pub synced: usize,
}

/// A closed epoch. `lens` has the epoch's end position in each stream. `gsn` was the newest number when the epoch
/// closed.
#[derive(Debug, Clone)]
pub struct Ended {
    pub epoch: u64,
    pub lens: Vec<usize>,
    pub gsn: Gsn,
}

/// The starting point of a restart.
#[derive(Debug, Clone)]
pub struct Anchor {
    pub rssp: Gsn,
    /// In each stream, the first position that may have an operation after the redo start.
    pub begin: Vec<usize>,
    /// The position of the redo start in stream 0.
    pub mark: usize,
}

#[derive(Debug)]
struct Checkpoint {
    begin: Option<Vec<usize>>,
    mark: Option<(Gsn, usize)>,
    /// The epoch of the checkpoint's end record.
    end: Option<u64>,
}

/// A page that is being written.
#[derive(Debug)]
pub struct Write {
    pub pid: Pid,
    pub page: Page,
    pub copied: Dirty,
}

pub struct World {
    pub rng: Rng,
    pub mistake: Option<Mistake>,
    pub streams: Vec<Stream>,
    pub epoch: u64,
    pub durable: u64,
    pub acked: u64,
    pub closed: VecDeque<Ended>,
    pub cuts: Vec<Ended>,
    pub gsn: Gsn,
    pub eosl: Gsn,
    pub next_pid: u32,
    pub memory: Pages,
    /// The pages that reads of the disk return. `safe` has the pages that survive a power cut.
    pub disk: Pages,
    pub safe: Pages,
    pub issued: Vec<Write>,
    pub unsynced: Vec<Write>,
    pub monitor: Monitor,
    pub anchor: Anchor,
    checkpoint: Option<Checkpoint>,
    /// Numbered operations that the monitor has not noted yet.
    pending: VecDeque<Op>,
    pub tells: Tells,
}

impl World {
    pub fn new(seed: u64, mistake: Option<Mistake>) -> World {
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(1..=3);
        let page = |rows| Page {
            low: 0,
            high: KEYS,
            rows,
            plsn: Gsn(0),
            dlsn: Gsn(0),
        };
        let root = page(BTreeMap::from([(0, 1)]));
        let disk = Pages::from([(ROOT, root), (Pid(1), page(BTreeMap::new()))]);
        let tells = [Tells::Deltas, Tells::DeltasWithNumbers][usize::from(rng.bool())];
        let mut monitor = Monitor::new(LIMITS, 0, tells);
        monitor.end_restart();
        World {
            rng,
            mistake,
            streams: (0..count).map(|_| Stream::default()).collect(),
            epoch: 1,
            durable: 0,
            acked: 0,
            closed: VecDeque::new(),
            cuts: Vec::new(),
            gsn: Gsn(0),
            eosl: Gsn(0),
            next_pid: 2,
            memory: disk.clone(),
            safe: disk.clone(),
            disk,
            issued: Vec::new(),
            unsynced: Vec::new(),
            monitor,
            anchor: Anchor {
                rssp: Gsn(0),
                begin: vec![0; count],
                mark: 0,
            },
            checkpoint: None,
            pending: VecDeque::new(),
            tells,
        }
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Takes a random number of random steps.
    pub fn live(&mut self) {
        let steps: [(Step, u32); 12] = [
            (World::transact, 20),
            (World::settle, 6),
            (World::split, 3),
            (World::close_epoch, 8),
            (World::flush_log, 12),
            (World::hear_eosl, 8),
            (World::issue, 9),
            (World::complete, 9),
            (World::sync, 5),
            (World::cut, 4),
            (World::step_checkpoint, 6),
            (World::write_owed, 4),
        ];
        let all: u32 = steps.iter().map(|(_, weight)| weight).sum();
        for _ in 0..self.rng.usize(10..160) {
            let mut drawn = self.rng.u32(0..all);
            let step = steps.iter().find(|(_, weight)| {
                let hit = drawn < *weight;
                drawn = drawn.saturating_sub(*weight);
                hit
            });
            step.expect("a step").0(self);
        }
    }

    fn next_gsn(&mut self) -> Gsn {
        self.gsn.0 += 1;
        self.gsn
    }

    fn append(&mut self, stream: usize, body: Body) {
        self.streams[stream].frames.push(body);
    }

    pub fn append_record(&mut self, record: &TreeRecord) -> Gsn {
        let gsn = self.next_gsn();
        let mut bytes = Vec::new();
        record.encode(&mut bytes, gsn);
        self.append(0, Body::Tree(bytes));
        gsn
    }

    fn is_latched(&self, pid: Pid) -> bool {
        self.pending.iter().any(|op| op.pid == pid)
    }

    fn transact(&mut self) {
        let stream = self.rng.usize(..self.streams.len());
        let mut ops = Vec::new();
        for _ in 0..self.rng.usize(1..=3) {
            let (key, value) = (self.rng.u8(..KEYS), self.rng.u32(..));
            let pid = lookup(&self.memory, key);
            if self.is_latched(pid) {
                continue;
            }
            let gsn = self.next_gsn();
            let op = Op {
                gsn,
                key,
                value,
                pid,
            };
            ops.push(op);
            if self.makes(Mistake::NumberBesideNote) && self.rng.bool() {
                self.pending.push_back(op);
            } else {
                self.note(op);
            }
        }
        self.append(stream, Body::Ops(ops));
    }

    fn note(&mut self, op: Op) {
        self.monitor.note(op.pid, op.gsn);
        let page = self.memory.get_mut(&op.pid).expect("a page");
        page.rows.insert(op.key, op.value);
        page.plsn = op.gsn;
    }

    fn settle(&mut self) {
        if let Some(op) = self.pending.pop_front() {
            self.note(op);
        }
    }

    fn split(&mut self) {
        let wide = |(pid, page): (&Pid, &Page)| {
            (*pid != ROOT && page.rows.len() >= 2 && !self.is_latched(*pid)).then_some(*pid)
        };
        let wide: Vec<Pid> = self.memory.iter().filter_map(wide).collect();
        if wide.is_empty() {
            return;
        }
        let left = wide[self.rng.usize(..wide.len())];
        let gsn = self.next_gsn();
        let right = Pid(self.next_pid);
        self.next_pid += 1;
        let one_lsn = self.makes(Mistake::OneLsn);
        let page = self.memory.get_mut(&left).expect("a page");
        let separator = *page.rows.keys().nth(page.rows.len() / 2).expect("a key");
        let mut image = Page {
            low: separator,
            high: page.high,
            rows: page.rows.split_off(&separator),
            plsn: page.plsn,
            dlsn: gsn,
        };
        (page.high, page.dlsn) = (separator, gsn);
        if one_lsn {
            (page.plsn, image.plsn) = (gsn, gsn);
        }
        let root = self.memory.get_mut(&ROOT).expect("a root");
        root.rows.insert(separator, right.0);
        root.dlsn = gsn;
        self.memory.insert(right, image.clone());
        for pid in [left, right, ROOT] {
            self.monitor.note(pid, gsn);
        }
        let split = Split {
            gsn,
            left,
            right,
            separator,
            image,
        };
        self.append(0, Body::Split(split));
    }

    fn close_epoch(&mut self) {
        let lens: Vec<usize> = self.streams.iter().map(|s| s.frames.len()).collect();
        let ended = Ended {
            epoch: self.epoch,
            lens,
            gsn: self.gsn,
        };
        self.closed.push_back(ended.clone());
        self.cuts.push(ended);
        self.epoch += 1;
    }

    fn flush_log(&mut self) {
        let stream = self.rng.usize(..self.streams.len());
        let least = self.streams[stream].synced;
        let most = self.closed.back().map_or(least, |ended| ended.lens[stream]);
        self.streams[stream].synced = self.rng.usize(least..=most.max(least));
        while let Some(ended) = self.closed.front() {
            let holds = |(stream, len): (&Stream, &usize)| stream.synced >= *len;
            if !self.streams.iter().zip(&ended.lens).all(holds) {
                return;
            }
            self.durable = ended.epoch;
            self.acked = self.acked.max(ended.epoch);
            self.closed.pop_front();
        }
    }

    /// Raises EOSL (the end of the stable log) to the end of the newest durable epoch. Before this step, EOSL may be
    /// lower.
    fn hear_eosl(&mut self) {
        let durable = self.cuts.iter().rfind(|ended| ended.epoch <= self.durable);
        if let Some(ended) = durable {
            self.eosl = self.eosl.max(ended.gsn);
        }
    }

    fn issue(&mut self) {
        let dirty: Vec<Pid> = self.monitor.dirty_pages().map(|(pid, _)| pid).collect();
        if !dirty.is_empty() {
            let pid = dirty[self.rng.usize(..dirty.len())];
            self.issue_page(pid);
        }
    }

    fn issue_page(&mut self, pid: Pid) {
        let mut under_way = self.issued.iter().chain(&self.unsynced);
        let is_under_way = under_way.any(|write| write.pid == pid);
        let Some(copied) = self.monitor.dirty(pid).filter(|_| !is_under_way) else {
            return;
        };
        if !self.monitor.may_write(pid, self.eosl) || self.is_latched(pid) {
            return;
        }
        let page = self.memory[&pid].clone();
        self.issued.push(Write { pid, page, copied });
    }

    /// Ends a write. Reads of the disk now return the new page, but a power cut may still lose it.
    fn complete(&mut self) {
        if self.issued.is_empty() {
            return;
        }
        let write = self.issued.swap_remove(self.rng.usize(..self.issued.len()));
        self.disk.insert(write.pid, write.page.clone());
        if self.makes(Mistake::WrittenBeforeSync) {
            self.monitor
                .note_written(write.pid, write.copied, self.eosl);
        }
        self.unsynced.push(write);
    }

    fn sync(&mut self) {
        self.safe = self.disk.clone();
        for write in std::mem::take(&mut self.unsynced) {
            if !self.makes(Mistake::WrittenBeforeSync) {
                self.monitor
                    .note_written(write.pid, write.copied, self.eosl);
            }
        }
    }

    pub fn cut(&mut self) {
        if let Some((delta, writes)) = self.monitor.cut(self.eosl) {
            self.append_record(&TreeRecord::Delta(delta));
            if let Some(writes) = writes {
                self.append_record(&TreeRecord::Writes(writes));
            }
        }
    }

    fn positions(&self) -> Vec<usize> {
        self.streams.iter().map(|s| s.frames.len()).collect()
    }

    fn step_checkpoint(&mut self) {
        let late = self.makes(Mistake::BeginAfterMark);
        let Some(mut checkpoint) = self.checkpoint.take() else {
            self.checkpoint = Some(Checkpoint {
                begin: (!late).then(|| self.positions()),
                mark: None,
                end: None,
            });
            return;
        };
        match (&checkpoint.mark, &checkpoint.begin, &checkpoint.end) {
            (None, ..) => {
                if !self.pending.is_empty() {
                    self.checkpoint = Some(checkpoint);
                    return;
                }
                let at = self.streams[0].frames.len();
                let gsn = self.append_record(&TreeRecord::RedoStart);
                let rssp = self.monitor.begin_checkpoint(|| gsn);
                checkpoint.mark = Some((rssp, at));
            }
            (_, None, _) => checkpoint.begin = Some(self.positions()),
            (_, _, None) => {
                if let Some(end) = self.monitor.end_checkpoint() {
                    self.append_record(&TreeRecord::EndCheckpoint(end));
                    checkpoint.end = Some(self.epoch);
                }
            }
            (Some((rssp, mark)), Some(begin), Some(epoch)) => {
                if self.durable >= *epoch {
                    self.anchor = Anchor {
                        rssp: *rssp,
                        begin: begin.clone(),
                        mark: *mark,
                    };
                    return;
                }
            }
        }
        self.checkpoint = Some(checkpoint);
    }

    fn write_owed(&mut self) {
        let owed: Vec<Pid> = self.monitor.owed().collect();
        for pid in owed {
            self.issue_page(pid);
        }
    }

    /// Crashes by a kill or by a power cut. A kill keeps all completed page writes. The log ends with the newest epoch
    /// that is whole in every stream after the crash.
    pub fn crash(&mut self) -> Result<(), String> {
        let is_killed = self.rng.u8(..10) < 4;
        for write in std::mem::take(&mut self.issued) {
            if self.rng.bool() {
                self.disk.insert(write.pid, write.page.clone());
                self.unsynced.push(write);
            }
        }
        if !is_killed {
            self.lose_pages();
        }
        let keep = |stream: &Stream, rng: &mut Rng| {
            let len = stream.frames.len();
            if is_killed {
                len
            } else {
                rng.usize(stream.synced..=len)
            }
        };
        let rng = &mut self.rng;
        let kept: Vec<usize> = self.streams.iter().map(|s| keep(s, rng)).collect();
        let holds = |ended: &&Ended| kept.iter().zip(&ended.lens).all(|(kept, len)| kept >= len);
        let cut = self.cuts.iter().take_while(holds).last().cloned();
        let (durable, lens) = cut.map_or((0, vec![0; kept.len()]), |e| (e.epoch, e.lens));
        if durable < self.acked {
            return Err(format!("epoch {} is lost", self.acked));
        }
        self.cuts.retain(|ended| ended.epoch <= durable);
        let believes = !self.makes(Mistake::LogNotDurable);
        for (stream, len) in self.streams.iter_mut().zip(lens) {
            stream.frames.truncate(len);
            stream.synced = if is_killed && !believes {
                stream.synced.min(len)
            } else {
                len
            };
        }
        self.durable = durable;
        self.closed.clear();
        self.pending.clear();
        self.checkpoint = None;
        Ok(())
    }

    /// Cuts the power. A page with unsynced writes keeps one of its versions.
    pub fn lose_pages(&mut self) {
        for write in std::mem::take(&mut self.unsynced) {
            if self.rng.bool() {
                self.safe.insert(write.pid, write.page);
            }
        }
        self.disk = self.safe.clone();
    }
}
