use super::*;

/// The default of `hll-sparse-max-bytes` in Redis.
const SPARSE_MAX: u64 = 3000;

fn added(elements: impl IntoIterator<Item = u64>, sparse_max: u64) -> Vec<u8> {
    let mut bytes = Cow::Owned(empty());
    for element in elements {
        let element = element.to_string();
        add(&mut bytes, element.as_bytes(), sparse_max).expect("a sketch");
    }
    bytes.into_owned()
}

fn values_of(bytes: &[u8]) -> Vec<u8> {
    registers(bytes).expect("a sketch")
}

#[test]
fn counts_are_near_the_truth_and_the_form_does_not_matter() {
    for n in [0u64, 1, 10, 100, 1000, 10_000, 100_000] {
        let (sparse, dense) = (added(0..n, u64::MAX), added(0..n, 0));
        assert_eq!(values_of(&sparse), values_of(&dense), "{n}");
        let counted = count(&sparse).expect("a count");
        assert_eq!(count(&dense), Ok(counted));
        assert!(counted.abs_diff(n) <= n / 20, "{counted} of {n}");
    }
    self_test(77, SPARSE_MAX).expect("nothing wrong");
}

/// The expected bytes are the result of GET in Redis 7.0.15 after `PFADD h a b c`.
#[test]
fn strings_are_those_of_redis() {
    let mut bytes = Cow::Owned(empty());
    assert_eq!(&*bytes, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff");
    for element in [b"a", b"b", b"c"] {
        assert_eq!(add(&mut bytes, element, SPARSE_MAX), Ok(Raised::All));
        assert_eq!(add(&mut bytes, element, SPARSE_MAX), Ok(Raised::Not));
    }
    let wanted = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x60\xf3\x80P\xb1\x84K\xfb\x80BZ";
    assert_eq!(&*bytes, wanted);
    assert_eq!(known(&bytes), None);
    let (at, estimate) = remembered(3);
    bytes.to_mut()[at..at + 8].copy_from_slice(&estimate);
    assert_eq!(known(&bytes), Some(3));
    assert_eq!(outdate(&mut bytes), Some(15..16));
    assert_eq!(known(&bytes), None);
}

/// Compares the two forms with an array. The array's registers are raised one by one.
#[test]
fn registers_hold_the_greatest_of_their_values_in_either_form() {
    let mut rng = fastrand::Rng::with_seed(21);
    for round in 0..60 {
        let sparse_max = [0, 100, SPARSE_MAX, u64::MAX][round % 4];
        let mut bytes: Cow<'_, [u8]> = Cow::Owned(empty());
        let mut model = vec![0u8; REGISTERS];
        // The registers are few and near each other, so that runs are divided and joined.
        let stretch = [20, 300, REGISTERS][round % 3];
        let first = rng.usize(0..=REGISTERS - stretch);
        for _ in 0..1500 {
            let register = first + rng.usize(0..stretch);
            let value = match rng.u8(..) {
                0 => rng.u8(1..=51),
                _ => rng.u8(1..5),
            };
            let before = bytes.to_vec();
            let raised = raise(&mut bytes, register, value, sparse_max).expect("a sketch");
            assert_eq!(raised != Raised::Not, value > model[register]);
            if let Raised::At(at) = raised {
                let mut before = before;
                before[at..at + GROUP_BYTES].copy_from_slice(&bytes[at..at + GROUP_BYTES]);
                assert_eq!(before, *bytes, "nothing else has changed");
            }
            model[register] = model[register].max(value);
        }
        assert_eq!(values_of(&bytes), model);
        if form(&bytes) == Some(Form::Sparse) {
            let len = u64::try_from(bytes.len()).expect("short");
            assert!(len <= sparse_max.max(18), "{len}");
            let mut dense = bytes.clone();
            to_dense(&mut dense).expect("a sketch");
            assert_eq!(values_of(&dense), model);
            assert_eq!(count(&dense), count(&bytes));
        }
    }
}

#[test]
fn a_union_counts_what_is_in_any() {
    let (a, b) = (added(0..3000, SPARSE_MAX), added(2000..2400, SPARSE_MAX));
    assert_eq!(
        (form(&a), form(&b)),
        (Some(Form::Dense), Some(Form::Sparse))
    );
    let mut union = Union::default();
    union.add(&a).expect("a sketch");
    union.add(&b).expect("a sketch");
    assert_eq!(Ok(union.count()), count(&a));
    let both = added((0..3000).chain(2000..2400), 0);
    let kept = values_of(&both);
    assert!(union.values().all(|(at, value)| kept[at] == value));
}

#[test]
fn what_is_no_sketch_is_not_taken_for_one() {
    let sketch = empty();
    for end in 0..HEAD_BYTES {
        assert_eq!(form(&sketch[..end]), None, "{end}");
    }
    for (at, byte) in [(0, b'X'), (3, b'l'), (4, 2), (4, 255), (4, 0)] {
        let mut other = sketch.clone();
        other[at] = byte;
        assert_eq!(form(&other), None, "{at} {byte}");
    }
    let mut dense = Cow::Owned(sketch);
    to_dense(&mut dense).expect("a sketch");
    for bytes in [&dense[1..], &[&*dense, b"x"].concat()] {
        assert_eq!(form(bytes), None);
    }
}

/// If every register has its greatest value, the estimate is infinite.
#[test]
fn a_count_that_is_no_number_has_the_bits_of_the_least_integer() {
    let mut full = Cow::Owned(empty());
    to_dense(&mut full).expect("a sketch");
    full.to_mut()[HEAD_BYTES..].fill(0xff);
    assert_eq!(count(&full), Ok(1 << 63));
}

/// A count of a damaged string fails exactly if the string does not have 16,384 registers. If a register of such a
/// string cannot be raised, the string stays unchanged. Nothing panics.
#[test]
fn damage_is_refused_and_never_a_panic() {
    let mut rng = fastrand::Rng::with_seed(22);
    for _ in 0..4000 {
        let elements = rng.u64(0..300);
        let mut string = added(0..elements, u64::MAX);
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(HEAD_BYTES..string.len());
            match rng.u8(0..4) {
                0 => string[at] = rng.u8(..),
                1 => string.truncate(at.max(HEAD_BYTES + 1)),
                2 => string.insert(at, rng.u8(..)),
                _ => string[at] ^= 1 << rng.u8(0..8),
            }
        }
        let registers: usize = sparse::runs(&string).map(|run| run.len).sum();
        assert_eq!(count(&string).is_ok(), registers == REGISTERS);
        let before = string.clone();
        let mut string = Cow::Owned(string);
        let register = rng.usize(..REGISTERS);
        let sparse_max = [0, SPARSE_MAX][rng.usize(..2)];
        let raised = raise(&mut string, register, rng.u8(1..=51), sparse_max);
        if matches!(raised, Ok(Raised::Not) | Err(_)) {
            assert_eq!(*string, before);
        }
        let _ = Union::default().add(&string);
        if form(&string) == Some(Form::Sparse) {
            let _ = to_dense(&mut string);
        }
    }
}
