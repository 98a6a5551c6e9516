use crate::Table;
use crate::prefix::Prefix;
use crate::schema::tests::{Example, example};

#[test]
fn the_index_key_of_a_row_is_the_prefix_of_its_columns() {
    let derive = Example::schema().derive().expect("it has indexes");
    assert_eq!(derive.indexes(), 2);
    let (mut key, mut value) = (crate::KeyBytes::new(), Vec::new());
    example().encode_key(&mut key);
    example().encode_row(&mut value);
    let of_index = |index| {
        let mut out = Vec::new();
        derive.index_key(index, key.as_slice(), &value, &mut out);
        out
    };
    let mut expected = Vec::new();
    Prefix::<(String, u16)>::put(&("hi", 258), &mut expected);
    assert_eq!(of_index(Example::by_note.index()), expected);
    expected.clear();
    Prefix::<(u16, i64)>::put(&(258, -2), &mut expected);
    assert_eq!(of_index(Example::by_balance.index()), expected);
}

#[test]
fn damaged_rows_have_index_keys_without_a_panic() {
    let derive = Example::schema().derive().expect("it has indexes");
    let (mut key, mut value) = (crate::KeyBytes::new(), Vec::new());
    example().encode_key(&mut key);
    example().encode_row(&mut value);
    for cut in 0..value.len() {
        for index in 0..2 {
            let mut out = Vec::new();
            derive.index_key(
                index,
                &key.as_slice()[..cut.min(3)],
                &value[..cut],
                &mut out,
            );
        }
    }
}

#[test]
fn the_heap_learns_the_form_from_the_schema() {
    let form = Example::schema().form();
    assert!(form.ordered && form.keyed && form.placed);
    assert_eq!(form.indexes(), 2);
    assert!(
        !Example::schema()
            .clone()
            .with_addressing(crate::Addressing::Page)
            .form()
            .keyed
    );
}
