//! Net change: the records of one page that need not stay apart become one.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Result};
use perdura_page::diff::{FragmentWriter, xor_into};
use perdura_page::layout::{META_BYTES, ZERO_PAGE};

use crate::record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};
use crate::run::Moment;

/// The size of a line, bytes: the unit in which a sum records its changes.
const LINE_BYTES: usize = 64;
/// Lines of a page.
const LINES: usize = PAGE_BYTES / LINE_BYTES;

/// The images that a restore may begin with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images {
    /// The checkpoint epochs of all images and backups that are retained.
    pub retained: Vec<CkptEpoch>,
    /// The checkpoint epoch of the image that is being built. It counts as well, because some of its pages have been
    /// visited.
    pub building: Option<CkptEpoch>,
}

impl Images {
    fn all(&self) -> impl Iterator<Item = CkptEpoch> + '_ {
        self.retained.iter().copied().chain(self.building)
    }

    /// Returns the number of images that are numbered at most `tag`. It gives the side of each image on which a record
    /// of this tag is.
    #[must_use]
    pub fn side(&self, tag: CkptEpoch) -> u64 {
        to_u64(self.all().filter(|k| *k <= tag).count())
    }

    /// Returns whether an image k reflects one of two tags and not the other: a < k <= b for the lower tag a and the
    /// higher tag b.
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

/// The moments and images that must stay apart when records are combined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keep {
    /// The moments that can still be restored, ascending. The last epoch of the merged run is one in any case. A
    /// retained image of the kind `Cut(e)` needs a moment at e.
    pub moments: Vec<Moment>,
    /// The images with which a restore can still begin.
    pub images: Images,
}

/// The sum of some records of a page.
struct Sum {
    epochs: EpochSpan,
    /// The highest tag.
    tag: CkptEpoch,
    updates: Updates,
    count: u32,
    /// The encoded fragments. While the sum has one record they are its fragments, later those of the sum.
    bytes: Vec<u8>,
    /// The XOR of several records. It is zeros before the first and after encoding.
    page: Vec<u8>,
    /// The lines of `page` that a record changed, a bit each.
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

    /// Begins with a record.
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

    /// Joins a record of the same page to the sum.
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

    /// Returns the first line from `from` on that was changed, or was not.
    fn next_line(&self, from: usize, changed: bool) -> usize {
        let is = |line: &usize| (self.lines[line / 64] >> (line % 64) & 1 == 1) == changed;
        (from..LINES).find(is).unwrap_or(LINES)
    }

    /// Encodes the sum of several records, and makes the page zeros again.
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

/// A machine that combines the records of pages, which come in the order of runs.
pub(crate) struct NetChange {
    /// The moments that are kept, ascending.
    moments: Vec<Epoch>,
    images: Images,
    /// The page of `sums`, and their interval between two moments.
    open: Option<(PageAt, usize)>,
    /// The sums, one for each side of the images that records are on. The first `used` are in use.
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

    /// Adds a record. Hands the sums of the page or interval before it to `out`.
    pub(crate) fn add(
        &mut self,
        record: &RunRecord<'_>,
        out: impl FnMut(&RunRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let interval = |epoch: Epoch| self.moments.partition_point(|m| *m < epoch);
        let place = (record.at, interval(record.epochs.first));
        // The inputs have the moments that are kept, so no net record of theirs spans one.
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

    /// Hands the sums that are open to `out`.
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
