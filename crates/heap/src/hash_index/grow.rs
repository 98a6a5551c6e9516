//! Growing arrays, cutting an array in two, and joining two arrays.

use perdura_base::num::to_u64;

use crate::accesses::NEVER;
use crate::entry::Entry;
use crate::hash_index::range::{Extent, PLACES_MIN, Range, roomy};
use crate::hash_index::refill::{Moving, Refill, fill};
use crate::hash_index::{HashIndex, Many, RANGE_PLACES, Ranges};

/// The maximum number of top bits of a hash that choose a range. They suffice for 1.3 billion entries. In a larger
/// index, the growth of an array takes longer steps.
const DEPTH_MAX: u8 = 16;
/// The minimum number of entries per slot of the directory. An index built in one step has 16,384 entries per slot.
const SLOT_ENTRIES: usize = 64;
/// The number of entries per range in an index that is built in one step.
const FILL: usize = RANGE_PLACES / 2;
/// Two ranges are joined only if together they have at most this many entries.
const JOINED: usize = RANGE_PLACES / 8;

/// A planned array for the hashes of an extent, with the future number of entries.
struct Planned {
    extent: Extent,
    entries: usize,
}

impl HashIndex {
    /// Returns an index with this salt and these entries. The entries arrive in the order in which an index with this
    /// salt keeps them. So adding an entry takes about one step.
    pub(crate) fn of_ordered(
        salt: u64,
        entries: impl ExactSizeIterator<Item = Entry> + Clone,
    ) -> HashIndex {
        let moving = |entry: Entry| (!entry.0, entry.spread(salt), NEVER);
        let mut index = HashIndex::new(salt);
        index.fill_all(entries.len(), entries.map(moving));
        index
    }

    /// Makes room for `more` entries in an index that is empty or has one range. Other indexes grow as entries come.
    pub(crate) fn reserve(&mut self, more: usize) {
        let needed = self.len() + more;
        if self.len() == 0 && roomy(needed) > RANGE_PLACES {
            let depth = depth_for(needed, FILL);
            // By chance some ranges get more entries than others.
            let entries = (needed >> depth) + (needed >> (depth + 4));
            let plan = extents(depth).map(|extent| Planned { extent, entries });
            let refills = arrays(&plan.collect::<Vec<_>>(), false);
            self.set_all(refills);
        } else if let Ranges::One(range) = &self.ranges
            && !range.has_room(more)
        {
            let places = roomy(needed).max(by_half(range));
            self.resize(0, places);
        }
    }

    /// Frees memory after the removal of an entry. Shrinks the array that had the entry, if less than a fifth of the
    /// array is used. If a smaller array would be crowded, the array keeps its size until half of the remaining
    /// entries are gone.
    pub(crate) fn shrink(&mut self, removed: Entry) {
        let (number, _) = self.range(removed.spread(self.salt));
        if self.len() == 0 && self.ranges().len() > 1 {
            return self.set_all(vec![Refill::new(Extent::ALL, 0, false)]);
        }
        if !self.ranges()[number].is_sparse() || self.join(number) {
            return;
        }
        let range = &self.ranges()[number];
        let places = range.len() * 2;
        let smaller = self.refilled(number, &[(range.extent, places)]).remove(0);
        if smaller.is_even() {
            self.change(number, |range| *range = Range::of(smaller, range));
        } else {
            self.change(number, Range::keep);
        }
    }

    /// Like [`shrink`](Self::shrink), for all arrays together.
    pub(crate) fn shrink_all(&mut self) {
        if self.place_count() > 64 && self.len() * 5 < self.place_count() {
            let ranges = self.ranges().iter();
            let moving: Vec<Moving> = ranges.flat_map(|range| range.moving(self.salt)).collect();
            self.fill_all(moving.len(), moving.into_iter());
        }
    }

    /// Makes room for one more entry in a range that is full.
    #[cold]
    pub(super) fn make_room(&mut self, spread: u64, mut number: usize) {
        // After a cut, all entries may be in one of the two halves.
        while !self.ranges()[number].has_room(1) {
            self.grow(number);
            (number, _) = self.range(spread);
        }
    }

    /// Makes a range larger by half, or cuts it in two.
    pub(super) fn grow(&mut self, number: usize) {
        let range = &self.ranges()[number];
        let (extent, had_room) = (range.extent, range.has_room(1));
        let places = by_half(range);
        let grown = if places > RANGE_PLACES && self.may_cut(extent) {
            self.cut(number, places);
            number..number + 2
        } else {
            self.resize(number, places);
            number..number + 1
        };
        for number in grown.filter(|_| had_room) {
            self.change(number, Range::keep);
        }
    }

    /// Returns whether a range may be cut. The directory must stay small compared with the entries, however the
    /// entries are distributed. Cutting never separates entries with the same hash.
    fn may_cut(&self, extent: Extent) -> bool {
        extent.depth < DEPTH_MAX && 2 << extent.depth <= self.len() / SLOT_ENTRIES
    }

    /// Gives a range `places` places. Returns the largest distance between an entry and its home in the new array.
    fn resize(&mut self, number: usize, places: usize) -> usize {
        let extent = self.ranges()[number].extent;
        let refill = self.refilled(number, &[(extent, places)]).remove(0);
        let farthest = refill.farthest;
        self.change(number, |range| *range = Range::of(refill, range));
        farthest
    }

    /// Returns new arrays with the given extents and sizes, filled with the entries of a range.
    fn refilled(&self, number: usize, arrays: &[(Extent, usize)]) -> Vec<Refill> {
        let range = &self.ranges()[number];
        let arrays = arrays.iter();
        let empty =
            arrays.map(|(extent, places)| Refill::new(*extent, *places, range.has_accesses()));
        fill(empty.collect(), range.moving(self.salt))
    }

    /// Cuts a range in two. The two halves have `places` places together.
    fn cut(&mut self, number: usize, places: usize) {
        let range = &self.ranges()[number];
        let halves = range.extent.halves();
        let upper = range
            .moving(self.salt)
            .filter(|(_, spread, _)| halves[1].has(*spread));
        let upper = upper.count();
        let counts = [range.len() - upper, upper];
        // The lower half gets seven eighths of its share, the upper half nine eighths.
        let shares = [7, 9].into_iter().zip(counts);
        let room = shares.map(|(eighths, entries)| match entries {
            0 => 0,
            _ => roomy(entries + 1).max(places * entries / range.len() * eighths / 8),
        });
        let arrays: Vec<_> = halves.into_iter().zip(room).collect();
        let refills = self.refilled(number, &arrays);
        self.replace(number, 1, refills);
    }

    /// Joins a range with its sibling if the two have few entries together. Two siblings are the halves of one cut
    /// range. Returns whether the two were joined.
    fn join(&mut self, number: usize) -> bool {
        let range = &self.ranges()[number];
        let Some(whole) = range.extent.whole() else {
            return false;
        };
        let [lower, upper] = whole.halves();
        let first = if range.extent == lower {
            number
        } else {
            number - 1
        };
        let pair = [&self.ranges()[first], &self.ranges()[first + 1]];
        let entries = pair[0].len() + pair[1].len();
        if [pair[0].extent, pair[1].extent] != [lower, upper] || entries > JOINED {
            return false;
        }
        let noted = pair.iter().any(|range| range.has_accesses());
        let empty = Refill::new(whole, PLACES_MIN.max(entries * 2), noted);
        let entries = pair.into_iter().flat_map(|range| range.moving(self.salt));
        let joined = fill(vec![empty], entries);
        let is_even = joined[0].is_even();
        if is_even {
            self.replace(first, 2, joined);
        }
        is_even
    }

    /// Replaces `count` ranges, beginning with the range number `first`, by the given arrays.
    fn replace(&mut self, first: usize, count: usize, refills: Vec<Refill>) {
        let mut ranges =
            match std::mem::replace(&mut self.ranges, Ranges::One(Range::new(Extent::ALL))) {
                Ranges::One(range) => vec![range],
                Ranges::Many(many) => many.ranges,
            };
        let like = &ranges[first];
        let new: Vec<_> = refills
            .into_iter()
            .map(|refill| Range::of(refill, like))
            .collect();
        ranges.splice(first..first + count, new);
        self.ranges = directed(ranges);
    }

    /// Replaces all ranges by the given arrays.
    fn set_all(&mut self, refills: Vec<Refill>) {
        self.replace(0, self.ranges().len(), refills);
    }

    /// Replaces all arrays by new arrays that contain exactly these entries. The new arrays have sizes that suit the
    /// entries.
    fn fill_all(&mut self, count: usize, entries: impl Iterator<Item = Moving> + Clone) {
        let noted = self.ranges().iter().any(Range::has_accesses);
        let plan = plan(count, entries.clone().map(|(_, spread, _)| spread));
        let refills = fill(arrays(&plan, noted), entries);
        let farthest: Vec<usize> = refills.iter().map(|refill| refill.farthest).collect();
        self.set_all(refills);
        assert_eq!(self.len(), count, "every entry is in an array");
        for (number, mut farthest) in farthest.into_iter().enumerate() {
            while self.ranges()[number].wants_more(farthest) {
                farthest = self.resize(number, by_half(&self.ranges()[number]));
                self.change(number, Range::keep);
            }
        }
    }
}

/// Returns the number of places that a range gets when it grows by half.
fn by_half(range: &Range) -> usize {
    let places = range.place_count();
    (places + places / 2).max(PLACES_MIN)
}

/// Returns the smallest depth with at most `fill` entries in a range, for `entries` evenly distributed entries.
fn depth_for(entries: usize, fill: usize) -> u8 {
    (0..DEPTH_MAX)
        .find(|depth| entries >> depth <= fill)
        .unwrap_or(DEPTH_MAX)
}

/// Returns all extents of a depth, in order.
fn extents(depth: u8) -> impl Iterator<Item = Extent> {
    let start = move |nth: u64| u32::try_from(nth << 32 >> depth).unwrap_or(u32::MAX);
    (0..1u64 << depth).map(move |nth| Extent {
        start: start(nth),
        depth,
    })
}

/// Plans the ranges of an index that will have these spread hashes.
fn plan(count: usize, spreads: impl Iterator<Item = u64>) -> Vec<Planned> {
    let (mut plan, whole) = (Vec::new(), Extent::ALL);
    if roomy(count) <= RANGE_PLACES {
        plan.push(Planned {
            extent: whole,
            entries: count,
        });
        return plan;
    }
    let depth = DEPTH_MAX.min(depth_for(count, FILL) + 4);
    let mut counts = vec![0; 1 << depth];
    for spread in spreads {
        counts[usize::try_from(spread >> (64 - u32::from(depth))).unwrap_or(0)] += 1;
    }
    plan_extent(whole, &counts, &mut plan);
    plan
}

fn plan_extent(extent: Extent, counts: &[usize], plan: &mut Vec<Planned>) {
    let entries = counts.iter().sum();
    if entries <= FILL || counts.len() == 1 {
        return plan.push(Planned { extent, entries });
    }
    let halves = counts.split_at(counts.len() / 2);
    let [lower, upper] = extent.halves();
    plan_extent(lower, halves.0, plan);
    plan_extent(upper, halves.1, plan);
}

/// Returns empty arrays for the plan. If there are several, they get different amounts of spare room: from none to
/// seven sixteenths of their entries.
fn arrays(plan: &[Planned], noted: bool) -> Vec<Refill> {
    let is_alone = plan.len() == 1;
    let array = |(nth, planned): (usize, &Planned)| {
        let entries = planned.entries;
        let spare = if is_alone { 0 } else { nth * 5 % 8 };
        let places = match entries {
            0 => 0,
            _ => roomy(entries) + entries * spare / 16,
        };
        Refill::new(planned.extent, places, noted)
    };
    plan.iter().enumerate().map(array).collect()
}

/// Returns `Ranges::One` for a single range, and otherwise the ranges together with a directory.
fn directed(mut ranges: Vec<Range>) -> Ranges {
    let depth = ranges
        .iter()
        .map(|range| range.extent.depth)
        .max()
        .unwrap_or(0);
    if depth == 0 {
        let range = ranges.pop().expect("an index has a range");
        assert!(ranges.is_empty(), "one range covers all hashes alone");
        return Ranges::One(range);
    }
    let mut directory = Vec::with_capacity(1 << depth);
    for (number, range) in (0..).zip(&ranges) {
        let start = to_u64(directory.len()) << (32 - u32::from(depth));
        assert_eq!(
            u64::from(range.extent.start),
            start,
            "ranges follow each other"
        );
        let slots = 1usize << (depth - range.extent.depth);
        directory.resize(directory.len() + slots, number);
    }
    assert_eq!(directory.len(), 1 << depth, "ranges cover all hashes");
    Ranges::Many(Many {
        len: ranges.iter().map(Range::len).sum(),
        places: ranges.iter().map(Range::place_count).sum(),
        widest: ranges.iter().map(Range::place_count).max().unwrap_or(0),
        ranges,
        directory,
        depth,
    })
}

#[cfg(test)]
mod tests;
