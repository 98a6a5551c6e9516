//! The order of the found members: the nearest or the farthest first.
//!
//! If all members are wanted, a stable sort keeps the order of members at equal distance. If only some are wanted, a
//! quicksort sorts only the parts that contain them. The quicksort may change the order of members at equal distance.
//! That order depends on the pivots, so the pivots are chosen as in Redis.

use std::cmp::Ordering;
use std::ops::Range;

use super::Found;

/// The order of the returned members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// The members nearest to the centre come first.
    Nearest,
    /// The members farthest from the centre come first.
    Farthest,
}

/// Sorts `found` until at least the first `wanted` members are in place.
pub fn sort(found: &mut [Found<'_>], first: First, wanted: usize) {
    let compare = |a: &Found<'_>, b: &Found<'_>| match first {
        First::Nearest => a.distance.total_cmp(&b.distance),
        First::Farthest => b.distance.total_cmp(&a.distance),
    };
    if wanted >= found.len() {
        found.sort_by(compare);
    } else {
        sort_some(found, wanted, &compare);
    }
}

/// Fewer items than this are sorted by insertion.
const FEW: usize = 7;
/// With more items than this, the pivot is a median of nine items.
const MANY: usize = 40;

/// Sorts `items` until at least the first `wanted` items are in place.
fn sort_some<T>(items: &mut [T], wanted: usize, compare: &impl Fn(&T, &T) -> Ordering) {
    // `parts` has the parts that are not in order yet, each with its level of division. Items that were chosen to
    // defeat the pivots divide into more levels than `levels_max`. Parts beyond that level are sorted by the standard
    // library.
    let levels_max = 4 * (items.len().max(1).ilog2() + 2);
    let mut parts = vec![(0..items.len(), 0)];
    while let Some((part, level)) = parts.pop() {
        let slice = &mut items[part.clone()];
        if slice.len() < FEW {
            insert_each(slice, compare);
            continue;
        }
        if level > levels_max {
            slice.sort_by(compare);
            continue;
        }
        let (less, greater) = divide(slice, compare);
        for side in [less, greater] {
            let side = part.start + side.start..part.start + side.end;
            if side.len() > 1 && side.start < wanted {
                parts.push((side, level + 1));
            }
        }
    }
}

fn insert_each<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) {
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && compare(&items[at - 1], &items[at]).is_gt() {
            items.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// Moves items less than a pivot to the front and greater items to the back, and returns the ranges
/// of the lesser and of the greater items. Between the two ranges are the items equal to the pivot.
fn divide<T>(
    items: &mut [T],
    compare: &impl Fn(&T, &T) -> Ordering,
) -> (Range<usize>, Range<usize>) {
    debug_assert!(items.len() >= FEW, "a part is worth dividing");
    let len = items.len();
    let pivot = pivot(items, compare);
    items.swap(0, pivot);
    // From front to back, the items are: equal to the pivot (before `equal`), less (before `low`), not compared yet (up
    // to `high`), greater (up to `equal_back`), equal.
    let (mut equal, mut low, mut high, mut equal_back) = (1, 1, len - 1, len - 1);
    loop {
        while low <= high {
            match compare(&items[low], &items[0]) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    items.swap(equal, low);
                    equal += 1;
                }
                Ordering::Less => {}
            }
            low += 1;
        }
        while low <= high {
            match compare(&items[high], &items[0]) {
                Ordering::Less => break,
                Ordering::Equal => {
                    items.swap(high, equal_back);
                    equal_back -= 1;
                }
                Ordering::Greater => {}
            }
            high -= 1;
        }
        if low > high {
            break;
        }
        items.swap(low, high);
        low += 1;
        high -= 1;
    }
    let (less, greater) = (low - equal, equal_back - high);
    let moved = equal.min(less);
    exchange(items, 0, low - moved, moved);
    let moved = greater.min(len - 1 - equal_back);
    exchange(items, low, len - moved, moved);
    debug_assert!(less + greater < len, "the pivot is on neither side");
    (0..less, len - greater..len)
}

fn exchange<T>(items: &mut [T], a: usize, b: usize, count: usize) {
    for at in 0..count {
        items.swap(a + at, b + at);
    }
}

/// Returns the index of the pivot. For [`FEW`] items, it is the middle item. For at most [`MANY`] items, it is the
/// median of three items, and otherwise the median of three such medians.
fn pivot<T>(items: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let last = items.len() - 1;
    let median = |a: usize, b: usize, c: usize| {
        let compare = |a: usize, b: usize| compare(&items[a], &items[b]);
        let (ab, bc) = (compare(a, b), compare(b, c));
        match (ab.is_lt(), bc) {
            (true, Ordering::Less) | (false, Ordering::Greater) => b,
            (true, _) if compare(a, c).is_lt() => c,
            (true, _) => a,
            (false, _) if compare(a, c).is_lt() => a,
            (false, _) => c,
        }
    };
    let middle = items.len() / 2;
    if items.len() == FEW {
        return middle;
    }
    if items.len() <= MANY {
        return median(0, middle, last);
    }
    let d = items.len() / 8;
    median(
        median(0, d, 2 * d),
        median(middle - d, middle, middle + d),
        median(last - 2 * d, last - d, last),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_those_of_a_sorted_row() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..3000 {
            let len = rng.usize(0..300);
            let distinct = rng.u32(1..300);
            let mut items: Vec<u32> = (0..len).map(|_| rng.u32(0..distinct)).collect();
            let mut sorted = items.clone();
            sorted.sort_unstable();
            let wanted = rng.usize(0..=len);
            sort_some(&mut items, wanted, &u32::cmp);
            assert_eq!(items[..wanted], sorted[..wanted]);
            items.sort_unstable();
            assert_eq!(items, sorted, "nothing is lost");
        }
    }

    /// McIlroy's adversary ("A Killer Adversary for Quicksort", 1999) decides which of two items is
    /// less only when they are compared. So each pivot turns out to be among the least items.
    #[test]
    fn items_that_defeat_every_pivot_are_sorted_in_time() {
        use std::cell::{Cell, RefCell};
        const LEN: usize = 20_000;
        let values = RefCell::new(vec![usize::MAX; LEN]);
        let (solid, candidate, questions) = (Cell::new(0), Cell::new(0), Cell::new(0u64));
        let compare = |a: &usize, b: &usize| {
            questions.set(questions.get() + 1);
            let mut values = values.borrow_mut();
            if values[*a] == usize::MAX && values[*b] == usize::MAX {
                let frozen = if *a == candidate.get() { *a } else { *b };
                values[frozen] = solid.get();
                solid.set(solid.get() + 1);
            }
            if values[*a] == usize::MAX {
                candidate.set(*a);
            } else if values[*b] == usize::MAX {
                candidate.set(*b);
            }
            values[*a].cmp(&values[*b])
        };
        let mut items: Vec<usize> = (0..LEN).collect();
        sort_some(&mut items, LEN - 1, &compare);
        let most = 40 * u64::try_from(LEN).expect("few") * 15;
        assert!(questions.get() < most, "{}", questions.get());
    }
}
