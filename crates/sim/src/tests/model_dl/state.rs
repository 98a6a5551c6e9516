//! The state of the model: pages, streams, images and transactions. Also the functions that append to the log.

use fastrand::Rng;

use super::fate::Fate;
use super::variant::{Twist, Twists};

/// The content of a page: a few slots of one byte.
pub(super) type Slots = Vec<u8>;
/// Pages by number.
pub(super) type Pages = Vec<Slots>;
/// The number of a transaction; the first is 0.
pub(super) type Tid = usize;

/// The number of images. Checkpoints write them in turn.
pub(super) const IMAGES: usize = 2;

#[derive(Debug, Clone)]
pub(super) struct Page {
    pub slots: Slots,
    pub tag: u64,
    /// The tag bit of the paper, which calls it BackupID.
    pub bit: bool,
    pub dirty: [bool; IMAGES],
}

/// A change of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Delta {
    pub page: usize,
    pub slot: usize,
    pub xor: u8,
}

/// A logged change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Update {
    pub txn: Tid,
    pub delta: Delta,
    pub tag: u64,
    pub bit: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Record {
    Update(Update),
    Commit {
        txn: Tid,
        epoch: u64,
        first: Option<usize>,
    },
    Abort {
        txn: Tid,
        compensated: bool,
        g: u64,
        first: Option<usize>,
    },
    BeginCheckpoint,
    /// The end of a checkpoint. It lists the stream's active transactions, each with the position of its first
    /// record.
    EndCheckpoint {
        k: u64,
        active: Vec<(Tid, usize)>,
    },
}

/// The data of a transaction that has ended.
#[derive(Debug, Clone)]
pub(super) struct Past {
    pub stream: usize,
    pub deltas: Vec<Delta>,
    /// The transactions with values that this transaction overwrote.
    pub needs: Vec<Tid>,
    /// The position of the transaction's commit record.
    pub commit_at: usize,
    pub fate: Fate,
}

/// A running transaction.
#[derive(Debug, Clone)]
pub(super) struct Running {
    pub txn: Tid,
    pub undo: Vec<Delta>,
    pub first: Option<usize>,
    pub rolling_back: bool,
    pub compensates: bool,
    /// The record of a change that is already applied. The record is not yet appended.
    pub unlogged: Option<Update>,
    /// An update that is not yet applied, although its tag was read.
    pub half: Option<Update>,
}

/// An epoch that is being closed. For each stream, `sealed` has the end of the stream's part of the epoch, or `None` if
/// this part is not sealed yet.
#[derive(Debug, Clone)]
pub(super) struct Closing {
    pub epoch: u64,
    pub sealed: Vec<Option<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Scan,
    End,
    Sync,
    Anchor,
}

#[derive(Debug, Clone)]
pub(super) struct Sweep {
    pub k: u64,
    pub image: usize,
    pub at: usize,
    pub pages: usize,
    pub begin: Vec<usize>,
    pub end: Vec<usize>,
    pub end_epoch: u64,
    pub phase: Phase,
    pub early_list: Option<Vec<Vec<(Tid, usize)>>>,
}

#[derive(Debug, Clone)]
pub(super) struct Anchor {
    pub k: u64,
    pub image: usize,
    pub pages: usize,
    pub begin: Vec<usize>,
    pub end: Vec<usize>,
    pub bit: bool,
}

/// A closed epoch: its id, and for each stream the end of the stream's part of the epoch.
pub(super) type Closed = (u64, Vec<usize>);

pub(super) struct Machine {
    pub twists: Twists,
    pub slots: usize,
    pub pages: Vec<Page>,
    pub streams: Vec<Vec<Record>>,
    pub synced: Vec<usize>,
    /// The open epoch.
    pub epoch: u64,
    pub durable: u64,
    /// The closed epochs, in ascending order.
    pub closed: Vec<Closed>,
    pub closing: Option<Closing>,
    /// The ranges of epochs that restarts voided. A range excludes the first number and includes the second.
    pub void: Vec<(u64, u64)>,
    /// The id of the newest checkpoint that has begun.
    pub g: u64,
    pub sweep: Option<Sweep>,
    pub anchor: Anchor,
    pub images: [Pages; IMAGES],
    /// Every completed image, with the id of its checkpoint.
    pub archive: Vec<(u64, Pages)>,
    pub running: Vec<Running>,
    pub past: Vec<Past>,
    pub acknowledged: Vec<Tid>,
    /// By page and slot, the transaction that holds the slot's lock.
    pub locks: Vec<Vec<Option<Tid>>>,
    /// By page and slot, the transaction of the slot's last committed write.
    pub writers: Vec<Vec<Option<Tid>>>,
}

impl Machine {
    pub fn new(rng: &mut Rng, twists: Twists) -> Machine {
        let pages = rng.usize(1..=4);
        let slots = rng.usize(1..=3);
        let streams = rng.usize(1..=3);
        let page = Page {
            slots: vec![0; slots],
            tag: 0,
            bit: false,
            dirty: [false, true],
        };
        let empty = vec![vec![0; slots]; pages];
        Machine {
            twists,
            slots,
            pages: vec![page; pages],
            streams: vec![Vec::new(); streams],
            synced: vec![0; streams],
            epoch: 1,
            durable: 0,
            closed: vec![(0, vec![0; streams])],
            closing: None,
            void: Vec::new(),
            g: 0,
            sweep: None,
            anchor: Anchor {
                k: 0,
                image: 0,
                pages,
                begin: vec![0; streams],
                end: vec![0; streams],
                bit: false,
            },
            images: [empty.clone(), empty.clone()],
            archive: vec![(0, empty)],
            running: Vec::new(),
            past: Vec::new(),
            acknowledged: Vec::new(),
            locks: vec![vec![None; slots]; pages],
            writers: vec![vec![None; slots]; pages],
        }
    }

    pub fn has(&self, twist: Twist) -> bool {
        self.twists.has(twist)
    }

    /// Appends a record and returns its position. A block holds records of one epoch only. So if an epoch is being
    /// closed, this function first seals the stream's part of that epoch.
    pub fn append(&mut self, stream: usize, record: Record) -> usize {
        let open = |closing: &Closing| closing.sealed[stream].is_none();
        if !self.has(Twist::Impure) && self.closing.as_ref().is_some_and(open) {
            self.seal(stream);
        }
        self.streams[stream].push(record);
        self.streams[stream].len() - 1
    }

    /// Seals a stream's part of the epoch that is being closed: records the stream's present end as the end of this
    /// part.
    pub fn seal(&mut self, stream: usize) {
        let Some(closing) = &mut self.closing else {
            return;
        };
        let end = self.streams[stream].len();
        assert!(
            closing.sealed[stream].is_none(),
            "an epoch ends once in a stream"
        );
        closing.sealed[stream] = Some(end);
        if let Some(ends) = closing.sealed.iter().copied().collect::<Option<Vec<_>>>() {
            let (epoch, before) = (closing.epoch, self.closed.last());
            assert!(
                before.is_none_or(|(before, _)| *before < epoch) && epoch < self.epoch,
                "epoch {epoch} closes behind {before:?}"
            );
            self.closed.push((epoch, ends));
            self.closing = None;
        }
    }

    pub fn is_void(&self, epoch: u64) -> bool {
        self.has(Twist::VoidRanges)
            && self
                .void
                .iter()
                .any(|(after, to)| *after < epoch && epoch <= *to)
    }
}
