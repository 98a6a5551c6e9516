//! The versions of a page that open cuts need. A version has before-images: the bytes that commits have overwritten.
//!
//! While a cut is open, each commit puts the bytes that it overwrites into a *version*. The version's label is the
//! number of the newest cut. A version keeps the first value that it gets for each byte, and ignores later values. The
//! first value is the byte as of the cut. So every change since a cut is undone by the version with the cut's number
//! and the newer versions. To get the page as of cut c, a reader copies the live page. The reader then puts the bytes
//! of all versions with labels of at least c into the copy. It begins with the newest version.
//!
//! A version is as big as the changed bytes: changing a row's counter costs a few bytes. If the byte ranges of a
//! version exceed [`RANGES_BYTES_MAX`], a copy of the whole page replaces them.
//!
//! Before-images leave out the first [`META_BYTES`] bytes of a page. So each version has a separate copy of these
//! bytes.

use std::ops::Range;

use perdura_page::layout::{META_BYTES, PAGE_BYTES};
use smallvec::SmallVec;

use crate::shadow::Shadow;
use crate::undo::{PartUndo, Save};

/// The number of bytes above which a version becomes a copy of the page.
const RANGES_BYTES_MAX: usize = 4096;

/// The data kept for one page.
#[derive(Default)]
pub(crate) struct Kept {
    /// A bit for each image slot. A set bit says that the slot does not hold the page as of the checkpoint's cut.
    /// `Some` if the page has changed since the cut and the checkpoint has not visited the page yet.
    pub(crate) pending: Option<u8>,
    /// The page as of the checkpoint's cut, kept in row mode. If it is present, the checkpoint needs no version of the
    /// page.
    pub(crate) shadow: Option<Shadow>,
    /// The versions, the oldest first, with ascending labels. Usually there is only one, which lies inside this
    /// structure.
    versions: SmallVec<[Version; 1]>,
}

struct Version {
    /// The number of the newest cut that the bytes are valid for.
    label: u64,
    meta: [u8; META_BYTES],
    before: Before,
}

enum Before {
    Ranges(Ranges),
    Page(Box<[u8]>),
}

/// Byte ranges of a page, in ascending order and without overlap.
#[derive(Default)]
struct Ranges {
    runs: Vec<Run>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Run {
    from: u16,
    to: u16,
    /// The position of the run's bytes in [`Ranges::bytes`].
    at: u16,
}

impl Kept {
    /// Notes that the checkpoint has visited the page or has ended.
    pub(crate) fn settle(&mut self) {
        self.pending = None;
        self.shadow = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_none() && self.versions.is_empty()
    }

    /// Returns the bytes that the memory account counts for the page's kept data.
    pub(crate) fn bytes(&self) -> usize {
        let versions = self.versions.iter().map(|version| match &version.before {
            Before::Ranges(ranges) => {
                ranges.bytes.capacity() + ranges.runs.capacity() * size_of::<Run>()
            }
            Before::Page(page) => page.len(),
        });
        size_of::<Kept>()
            + self.shadow.as_ref().map_or(0, Shadow::bytes)
            + (self.versions.capacity() - 1) * size_of::<Version>()
            + versions.sum::<usize>()
    }

    /// Keeps the bytes that a commit has overwritten in `page`. `saves` are the commit's before-images, the earliest
    /// first. `newest` is the number of the newest open cut.
    pub(crate) fn keep(&mut self, newest: u64, page: &[u8], part: &PartUndo, saves: &[&Save]) {
        if self.versions.last().is_none_or(|last| last.label < newest) {
            let mut meta = [0; META_BYTES];
            meta.copy_from_slice(&page[..META_BYTES]);
            self.versions.push(Version {
                label: newest,
                meta,
                before: Before::Ranges(Ranges::default()),
            });
        }
        if let Some(version) = self.versions.last_mut() {
            version.keep(page, part, saves);
        }
    }

    /// Discards all versions. Only a seeded bug calls it, when a second cut is made.
    pub(crate) fn forget_versions(&mut self) {
        self.versions.clear();
    }

    /// Returns whether undoing versions is needed to get the page as of cut `number`.
    pub(crate) fn reaches(&self, number: u64) -> bool {
        self.versions
            .last()
            .is_some_and(|version| version.label >= number)
    }

    /// Turns the live page into the page as of a cut.
    pub(crate) fn undo_to(&self, number: u64, page: &mut [u8]) {
        debug_assert!(self.reaches(number), "the page has changed since the cut");
        let behind = self.versions.iter().rev().take_while(|v| v.label >= number);
        for version in behind {
            version.undo(page);
        }
    }

    /// Drops the versions that none of `cuts` needs. `cuts` are the numbers of all cuts that need the page, in
    /// ascending order. Joins neighbouring versions if no cut lies between them.
    pub(crate) fn prune(&mut self, cuts: &[u64]) {
        let needed = |label: u64| cuts.first().is_some_and(|oldest| *oldest <= label);
        self.versions.retain(|version| needed(version.label));
        if self.versions.len() < 2 {
            return;
        }
        let mut joined: SmallVec<[Version; 1]> = SmallVec::new();
        for version in self.versions.drain(..) {
            match joined.last_mut() {
                Some(older)
                    if !cuts
                        .iter()
                        .any(|cut| (older.label + 1..=version.label).contains(cut)) =>
                {
                    older.join(version);
                }
                _ => joined.push(version),
            }
        }
        self.versions = joined;
        debug_assert!(
            self.versions.is_sorted_by(|a, b| a.label < b.label),
            "a version for each cut at most"
        );
    }
}

impl Version {
    fn keep(&mut self, page: &[u8], part: &PartUndo, saves: &[&Save]) {
        let Before::Ranges(ranges) = &mut self.before else {
            return;
        };
        let is_long = saves
            .iter()
            .any(|save| save.range().len() > RANGES_BYTES_MAX);
        if !is_long {
            for save in saves {
                ranges.add(save.range(), part.before(save));
            }
            if ranges.bytes.len() <= RANGES_BYTES_MAX {
                return;
            }
        }
        let mut copy = Box::<[u8]>::from(page);
        for save in saves.iter().rev() {
            copy[save.range()].copy_from_slice(part.before(save));
        }
        ranges.undo(&mut copy);
        debug_assert_eq!(copy.len(), PAGE_BYTES, "a copy is of a whole page");
        self.before = Before::Page(copy);
    }

    fn undo(&self, page: &mut [u8]) {
        debug_assert_eq!(page.len(), PAGE_BYTES, "a version is of a whole page");
        match &self.before {
            Before::Ranges(ranges) => ranges.undo(page),
            Before::Page(copy) => page.copy_from_slice(copy),
        }
        page[..META_BYTES].copy_from_slice(&self.meta);
    }

    /// Merges the next newer version into this version. If both versions have a byte, the byte in this version stays,
    /// because this version is older.
    fn join(&mut self, newer: Version) {
        assert!(self.label < newer.label, "versions are joined in order");
        self.label = newer.label;
        let Before::Ranges(mine) = &mut self.before else {
            return;
        };
        match newer.before {
            Before::Ranges(theirs) => {
                for run in &theirs.runs {
                    mine.add(run.range(), theirs.bytes_of(run));
                }
            }
            Before::Page(mut copy) => {
                mine.undo(&mut copy);
                self.before = Before::Page(copy);
            }
        }
    }
}

impl Run {
    fn range(&self) -> Range<usize> {
        usize::from(self.from)..usize::from(self.to)
    }
}

impl Ranges {
    fn bytes_of(&self, run: &Run) -> &[u8] {
        let at = usize::from(run.at);
        &self.bytes[at..at + run.range().len()]
    }

    /// Adds the bytes of a range at the positions that no run covers yet.
    fn add(&mut self, range: Range<usize>, bytes: &[u8]) {
        assert!(
            range.end <= PAGE_BYTES && range.len() == bytes.len(),
            "a range of a page and its bytes"
        );
        let mut from = range.start;
        let mut i = self.runs.partition_point(|run| run.range().end <= from);
        while from < range.end {
            let next = self.runs.get(i).map(Run::range);
            if let Some(covered) = next.clone().filter(|next| next.start <= from) {
                from = covered.end;
            } else {
                let to = next.map_or(range.end, |next| next.start.min(range.end));
                let run = Run {
                    from: narrow(from),
                    to: narrow(to),
                    at: narrow(self.bytes.len()),
                };
                self.bytes
                    .extend_from_slice(&bytes[from - range.start..to - range.start]);
                self.runs.insert(i, run);
                from = to;
            }
            i += 1;
        }
        debug_assert!(
            self.runs.windows(2).all(|two| two[0].to <= two[1].from),
            "a position is kept once"
        );
    }

    fn undo(&self, page: &mut [u8]) {
        for run in &self.runs {
            page[run.range()].copy_from_slice(self.bytes_of(run));
        }
    }
}

fn narrow(at: usize) -> u16 {
    u16::try_from(at).expect("a page and what is kept of it are shorter than 2^16")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_bytes_of_a_position_win_whatever_overlaps() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let mut want: Vec<Option<u8>> = vec![None; 300];
            let mut ranges = Ranges::default();
            for _ in 0..rng.usize(..40) {
                let from = rng.usize(..300);
                let bytes: Vec<u8> = (0..rng.usize(..=40.min(300 - from)))
                    .map(|_| rng.u8(..))
                    .collect();
                ranges.add(from..from + bytes.len(), &bytes);
                for (at, byte) in (from..).zip(&bytes) {
                    want[at].get_or_insert(*byte);
                }
            }
            let mut page = vec![0; PAGE_BYTES];
            ranges.undo(&mut page);
            let kept: usize = ranges.runs.iter().map(|run| run.range().len()).sum();
            assert_eq!(kept, want.iter().flatten().count(), "each position once");
            assert!((0..300).all(|at| page[at] == want[at].unwrap_or(0)));
        }
    }
}
