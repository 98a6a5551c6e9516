//! Net change: the records of one page are combined into one if no kept moment and no image lies between them.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Result};
use perdura_page::diff::{FragmentWriter, xor_into};
use perdura_page::layout::{META_BYTES, ZERO_PAGE};

use crate::record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};
use crate::run::Moment;

/// The size of a line of a page, bytes. A [`Sum`] notes which lines its records have changed.
const LINE_BYTES: usize = 64;
/// The number of lines in a page.
const LINES: usize = PAGE_BYTES / LINE_BYTES;

/// The images that a restore may begin with. Two tags are on one *side* of these images if each image contains either
/// the changes of both tags or the changes of neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images {
    /// The checkpoint epochs of all images and backups that are retained.
    pub retained: Vec<CkptEpoch>,
    /// The checkpoint epoch of the image that is being built. Records on opposite sides of this image must not be
    /// combined, because some of the image's pages are already written.
    pub building: Option<CkptEpoch>,
}

impl Images {
    fn all(&self) -> impl Iterator<Item = CkptEpoch> + '_ {
        self.retained.iter().copied().chain(self.building)
    }

    /// Returns how many images have a checkpoint epoch of at most `tag`. Two tags are on the same side of every image
    /// if their two counts are equal.
    #[must_use]
    pub fn side(&self, tag: CkptEpoch) -> u64 {
        to_u64(self.all().filter(|k| *k <= tag).count())
    }

    /// Returns whether an image contains the changes of exactly one of two tags. For the lower tag a, the higher tag b
    /// and the image's checkpoint epoch k this means a < k <= b.
    #[must_use]
    pub fn part(&self, first: CkptEpoch, second: CkptEpoch) -> bool {
        let (low, high) = if armed(Flaw::TagsTakenForRising) {
            (first, second)
        } else {
            (first.min(second), first.max(second))
        };
        let parts = |k: CkptEpoch| low < k && k <= high;
        let retained = self.retained.iter().any(|k| parts(*k));
        let building = self.building.is_some_and(parts);
        retained && !armed(Flaw::NetAcrossImage) || building && !armed(Flaw::NetAcrossBuilding)
    }
}

/// The moments and images that limit combining. No two records are combined if one of these lies between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    /// The moments that must stay restorable, ascending. The last epoch of the merged run need not be listed: it always
    /// stays a moment.
    /// For a retained backup of kind `Cut(e)`, the list must contain a moment at e.
    pub moments: Vec<Moment>,
    /// The images that a restore can still begin with.
    pub images: Images,
}

/// The sum (XOR) of some records of one page.
struct Sum {
    epochs: EpochSpan,
    /// The highest tag of the records.
    tag: CkptEpoch,
    updates: Updates,
    count: u32,
    /// The encoded fragments of the first record. When the sum is complete, [`encode`](Sum::encode) replaces these
    /// bytes with the encoded sum.
    bytes: Vec<u8>,
    /// The XOR of the records, if there are several. All bytes are zero while the sum has only one record.
    /// [`encode`](Sum::encode) sets all bytes to zero again.
    page: Vec<u8>,
    /// A bit for each line of `page`. It is set if a record has changed the line.
    lines: [u64; LINES / 64],
    is_several: bool,
}

impl Sum {
    fn new() -> Sum {
        Sum {
            epochs: EpochSpan::one(Epoch(0)),
            tag: CkptEpoch(0),
            updates: Updates::one(perdura_base::Useq(0)),
            count: 0,
            bytes: Vec::new(),
            page: vec![0; PAGE_BYTES],
            lines: [0; LINES / 64],
            is_several: false,
        }
    }

    /// Begins the sum with its first record.
    fn begin(&mut self, record: &RunRecord<'_>) {
        debug_assert_eq!(self.lines, [0; LINES / 64], "the page is zeros");
        self.epochs = record.epochs;
        self.tag = record.tag;
        self.updates = record.updates;
        self.count = record.fragment_count();
        self.bytes.clear();
        self.bytes.extend_from_slice(record.fragment_bytes());
        self.is_several = false;
    }

    /// Adds another record of the same page to the sum.
    fn join(&mut self, record: &RunRecord<'_>) {
        if !self.is_several {
            let first = std::mem::take(&mut self.bytes);
            let fragments = perdura_page::diff::Fragments::new(&first, u64::from(self.count));
            self.apply(fragments);
            self.bytes = first;
            self.is_several = true;
        }
        self.apply(record.fragments());
        self.epochs = self.epochs.join(record.epochs);
        self.tag = self.tag.max(record.tag);
        let updates = self.updates.join(record.updates);
        self.updates = if armed(Flaw::UpdateSpanLost) {
            Updates {
                count: updates.count,
                ..record.updates
            }
        } else {
            updates
        };
    }

    fn apply(&mut self, fragments: perdura_page::diff::Fragments<'_>) {
        for fragment in fragments {
            let end = fragment.offset + fragment.bytes.len();
            xor_into(&mut self.page[fragment.offset..end], fragment.bytes);
            for line in fragment.offset / LINE_BYTES..=(end - 1) / LINE_BYTES {
                self.lines[line / 64] |= 1 << (line % 64);
            }
        }
    }

    /// Searches the lines from index `from` on. Returns the index of the first changed line if `changed` is true,
    /// otherwise of the first unchanged line. Returns `LINES` if no such line is left.
    fn next_line(&self, from: usize, changed: bool) -> usize {
        let is = |line: &usize| (self.lines[line / 64] >> (line % 64) & 1 == 1) == changed;
        (from..LINES).find(is).unwrap_or(LINES)
    }

    /// Encodes the sum and sets the page to zeros again. A sum of one record is already encoded.
    fn encode(&mut self) {
        if !self.is_several {
            return;
        }
        self.bytes.clear();
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut writer = FragmentWriter::new(&mut bytes);
        let mut line = self.next_line(0, true);
        while line < LINES {
            let end = self.next_line(line, false);
            let (from, to) = ((line * LINE_BYTES).max(META_BYTES), end * LINE_BYTES);
            writer.range(from, &ZERO_PAGE[from..to], &self.page[from..to]);
            self.page[from..to].fill(0);
            line = self.next_line(end, true);
        }
        self.count = writer.count();
        self.bytes = bytes;
        self.lines = [0; LINES / 64];
        debug_assert!(
            self.page.iter().all(|byte| *byte == 0),
            "the page is zeros again"
        );
    }

    fn record(&self, at: PageAt) -> RunRecord<'_> {
        let fragments = FragmentBytes {
            count: self.count,
            bytes: &self.bytes,
        };
        RunRecord::checked(at, self.epochs, self.tag, self.updates, fragments)
    }
}

/// A state machine that combines records. The records arrive in the order that records have in a run.
pub(crate) struct NetChange {
    /// The moments that are kept, ascending.
    moments: Vec<Epoch>,
    images: Images,
    /// The page of the open sums, and the index of their interval. The kept moments divide the epochs into intervals,
    /// and one interval contains the epochs of all records in the open sums. `None`: no sum is open.
    open: Option<(PageAt, usize)>,
    /// The sums of the page's records, one for each side of the images. Only the first `used` sums are open; the rest
    /// are spare.
    sums: Vec<Sum>,
    used: usize,
}

impl NetChange {
    pub(crate) fn new(moments: Vec<Epoch>, images: Images) -> NetChange {
        debug_assert!(moments.is_sorted(), "moments ascend");
        NetChange {
            moments,
            images,
            open: None,
            sums: Vec::new(),
            used: 0,
        }
    }

    /// Adds a record. If the open sums have a different page or interval, first passes the sums to `out`.
    pub(crate) fn add(
        &mut self,
        record: &RunRecord<'_>,
        out: impl FnMut(&RunRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let interval = |epoch: Epoch| self.moments.partition_point(|m| *m < epoch);
        let place = (record.at, interval(record.epochs.first));
        // The inputs have the kept moments, so no net record of an input spans a kept moment.
        debug_assert_eq!(
            place.1,
            interval(record.epochs.last),
            "no moment parts a record"
        );
        if self.open != Some(place) {
            self.flush(out)?;
            self.open = Some(place);
        }
        let images = &self.images;
        let mut open = self.sums[..self.used].iter_mut();
        if let Some(sum) = open.find(|sum| !images.part(sum.tag, record.tag)) {
            sum.join(record);
            return Ok(());
        }
        if self.used == self.sums.len() {
            self.sums.push(Sum::new());
        }
        self.sums[self.used].begin(record);
        self.used += 1;
        Ok(())
    }

    /// Passes the open sums to `out` as records, and closes them.
    pub(crate) fn flush(
        &mut self,
        mut out: impl FnMut(&RunRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some((at, _)) = self.open.take() else {
            return Ok(());
        };
        assert!(self.used > 0, "an open page has a sum");
        let sums = &mut self.sums[..self.used];
        self.used = 0;
        sums.iter_mut().for_each(Sum::encode);
        sums.sort_unstable_by_key(|sum| (sum.epochs.first, sum.updates.first.0));
        sums.iter().try_for_each(|sum| out(&sum.record(at)))
    }
}
