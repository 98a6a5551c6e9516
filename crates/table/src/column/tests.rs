use super::*;
use crate::key::{from_value, placement, take_column, to_value};

fn geometry(partitions: u16) -> Geometry {
    Geometry {
        partitions,
        chunk_pages: 128,
        hash_seed: 7,
    }
}

/// Checks that a value's row form and key form can be read back.
fn check<C: KeyType + PartialEq + fmt::Debug>(value: &C) {
    let mut row = Vec::new();
    C::put(value.view(), &mut row);
    assert!(C::TYPE.holds(&row), "{value:?}");
    assert_eq!(C::read(&row).map(C::own).as_ref(), Some(value));
    let mut key = Vec::new();
    C::put_key(value.view(), &mut key);
    key.push(0x77);
    let mut r = Reader::new(&key);
    assert_eq!(C::take_key(&mut r).as_ref(), Some(value));
    assert_eq!(r.remaining(), 1, "a column delimits itself");

    let base = C::TYPE.base;
    let column = take_column(base, &mut Reader::new(&key)).expect("whole");
    assert_eq!(column, &key[..key.len() - 1]);
    let mut back = Vec::new();
    to_value(base, column, &mut back).expect("whole");
    assert_eq!(back, row, "{value:?}: from key to value");
    let mut again = Vec::new();
    from_value(base, &row, &mut again);
    assert_eq!(again, column, "{value:?}: from value to key");
    for partitions in [1, 4, 256] {
        let geometry = geometry(partitions);
        let home = placement(base, column).expect("whole").home(&geometry);
        assert_eq!(C::home(value.view(), &geometry), home, "{value:?}");
    }
    for cut in 0..column.len() {
        assert!(C::take_key(&mut Reader::new(&column[..cut])).is_none());
    }
}

/// Checks that the byte order of keys is the order of their values.
fn ordered<C: KeyType + PartialOrd>(mut values: Vec<C>) {
    values.sort_by(|a, b| a.partial_cmp(b).expect("comparable"));
    let keys: Vec<Vec<u8>> = values
        .iter()
        .map(|value| {
            let mut key = Vec::new();
            C::put_key(value.view(), &mut key);
            key
        })
        .collect();
    assert!(keys.is_sorted());
}

#[test]
fn values_come_back_from_rows_and_keys_and_keep_their_order() {
    let mut rng = fastrand::Rng::with_seed(3);
    let bytes =
        |rng: &mut fastrand::Rng| -> Vec<u8> { (0..rng.usize(..9)).map(|_| rng.u8(..)).collect() };
    macro_rules! integers {
        ($($type:ident),*) => {$(
            let mut all = vec![$type::MIN, 0, 1, $type::MAX];
            all.extend((0..100).map(|_| rng.$type(..)));
            all.iter().for_each(check);
            ordered(all);
        )*};
    }
    integers!(u8, u16, u32, u64, i8, i16, i32, i64);
    let floats: Vec<f64> = (0..100).map(|_| (rng.f64() - 0.5) * 1e9).collect();
    floats.iter().for_each(check);
    ordered(floats);
    let blobs: Vec<Vec<u8>> = (0..200).map(|_| bytes(&mut rng)).collect();
    blobs.iter().for_each(check);
    ordered(blobs);
    let strings: Vec<String> = (0..200)
        .map(|_| {
            (0..rng.usize(..5))
                .map(|_| rng.char('\0'..='\u{3}'))
                .collect()
        })
        .collect();
    strings.iter().for_each(check);
    ordered(strings);
    let arrays: Vec<[u8; 3]> = (0..100).map(|_| [rng.u8(..), rng.u8(..), 0]).collect();
    arrays.iter().for_each(check);
    ordered(arrays);
    [false, true].iter().for_each(check);
    let ids: Vec<RowId> = (0..100)
        .map(|n| RowId::new(n, PartitionId(0)).expect("small"))
        .collect();
    ids.iter().for_each(check);
}

#[test]
fn a_nan_and_a_minus_zero_are_normalised() {
    for (given, kept) in [(f64::NAN, f64::NAN), (-f64::NAN, f64::NAN), (-0.0, 0.0)] {
        let (mut row, mut key) = (Vec::new(), Vec::new());
        f64::put(given, &mut row);
        f64::put_key(given, &mut key);
        assert!(f64::TYPE.holds(&row));
        let bits = |value: f64| value.to_bits();
        assert_eq!(f64::read(&row).map(bits), Some(kept.to_bits()));
        assert_eq!(
            f64::take_key(&mut Reader::new(&key)).map(bits),
            Some(kept.to_bits())
        );
    }
}

#[test]
fn an_optional_column_is_there_or_not() {
    for value in [None, Some(7u32)] {
        let mut row = Vec::new();
        Option::<u32>::put(value.view(), &mut row);
        assert_eq!(row.len(), 5);
        assert_eq!(Option::<u32>::read(&row), Some(value));
    }
    assert_eq!(Option::<u32>::read(&[0, 1, 0, 0, 0]), None);
}

#[test]
fn a_row_id_names_its_partition() {
    let id = RowId::new(1 << 40, PartitionId(200)).expect("it fits");
    assert_eq!(id.partition(), PartitionId(200));
    assert_eq!(RowId::new(1 << 56, PartitionId(0)), None);
}
