//! The arrays in which nodes hold items or children. An array grows and shrinks by a few places at a time. A full array
//! is cut in two, and thin arrays are joined. Each function updates the count of the arrays' bytes.

use super::node::Edges;

/// The growth step of an array, in places.
const STEP: usize = 8;

/// Returns the size of an array on the heap, bytes.
pub(super) fn heap_bytes<T>(array: &Vec<T>) -> usize {
    array.capacity() * size_of::<T>()
}

/// Inserts `new` at `at`. If the array is full, first cuts the array in two and returns the second part.
pub(super) fn put<T, const WIDTH_MAX: usize>(
    array: &mut Vec<T>,
    at: usize,
    new: T,
    edges: Edges,
    bytes: &mut usize,
) -> Option<Vec<T>> {
    if array.len() < WIDTH_MAX {
        *bytes -= heap_bytes(array);
        if array.len() == array.capacity() {
            array.reserve_exact(STEP);
        }
        array.insert(at, new);
        *bytes += heap_bytes(array);
        return None;
    }
    let cut = edges.cut(at, array.len());
    let behind = array.len() - cut;
    let mut right = filled(array.drain(cut..), behind, bytes);
    trim(array, bytes);
    // If `at` is exactly the cut, the value goes to the emptier side.
    let (side, at) = if at < cut || (at == cut && cut <= behind) {
        (&mut *array, at)
    } else {
        (&mut right, at - cut)
    };
    let split = put::<T, WIDTH_MAX>(side, at, new, edges, bytes);
    debug_assert!(split.is_none(), "half a node has room");
    Some(right)
}

/// Frees unused places of an array, but only if there are at least `2 * STEP`.
pub(super) fn trim<T>(array: &mut Vec<T>, bytes: &mut usize) {
    if array.capacity() >= array.len() + 2 * STEP {
        *bytes -= heap_bytes(array);
        array.shrink_to(array.len().next_multiple_of(STEP));
        *bytes += heap_bytes(array);
    }
}

/// Returns an array of an iterator's values, with capacity for at least `room` values.
pub(super) fn filled<T>(new: impl Iterator<Item = T>, room: usize, bytes: &mut usize) -> Vec<T> {
    let mut array = Vec::new();
    array.reserve_exact(room.next_multiple_of(STEP));
    array.extend(new);
    *bytes += heap_bytes(&array);
    array
}

/// Cuts a sequence into arrays of nearly equal length, each at most seven eighths full.
pub(super) fn parts<T>(
    all: impl ExactSizeIterator<Item = T>,
    width_max: usize,
    bytes: &mut usize,
) -> impl Iterator<Item = Vec<T>> {
    let count = all.len();
    let arrays = count.div_ceil(width_max / 8 * 7);
    let mut all = all;
    (0..arrays).map(move |i| {
        let width = count / arrays + usize::from(i < count % arrays);
        filled(all.by_ref().take(width), width, bytes)
    })
}

/// Joins `b` to `a` if they fit in three quarters of a node, and returns `None`. Otherwise moves values so that both
/// have about the same length, and returns `b`.
pub(super) fn level<T>(
    a: &mut Vec<T>,
    mut b: Vec<T>,
    width_max: usize,
    bytes: &mut usize,
) -> Option<Vec<T>> {
    let together = a.len() + b.len();
    *bytes -= heap_bytes(a) + heap_bytes(&b);
    let joined = together <= width_max / 4 * 3;
    if joined {
        a.reserve_exact((together - a.len()).next_multiple_of(STEP));
        a.append(&mut b);
    } else {
        let half = together / 2;
        if a.len() < half {
            a.reserve_exact((half - a.len()).next_multiple_of(STEP));
            a.extend(b.drain(..half - a.len()));
        } else {
            let moved = a.len() - half;
            b.reserve_exact(moved.next_multiple_of(STEP));
            b.splice(..0, a.drain(half..));
        }
        *bytes += heap_bytes(&b);
    }
    *bytes += heap_bytes(a);
    trim(a, bytes);
    if joined {
        return None;
    }
    trim(&mut b, bytes);
    Some(b)
}
