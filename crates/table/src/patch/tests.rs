use crate::Table;
use crate::schema::tests::{Example, example, of_the_page};

fn value(row: &Example) -> Vec<u8> {
    let mut out = Vec::new();
    row.encode_row(&mut out);
    out
}

#[test]
fn the_example_of_the_format_page_is_read_and_written() {
    let before = value(&example());
    let after = value(&Example {
        note: "ho!".into(),
        balance: 5,
        ..example()
    });
    let mut patch = Vec::new();
    let schema = Example::schema();
    schema.patch(&before, &after, &mut patch).unwrap();
    assert_eq!(patch, of_the_page(2));
    assert_eq!(schema.apply_patch(&before, &patch).unwrap(), after);
}

#[test]
fn any_two_values_are_joined_by_a_patch() {
    let mut rng = fastrand::Rng::with_seed(5);
    let schema = Example::schema();
    let mut row = |_| {
        let text = |rng: &mut fastrand::Rng| "ab".repeat(rng.usize(..3));
        value(&Example {
            flag: rng.bool(),
            note: text(&mut rng),
            balance: rng.i64(..2),
            tag: text(&mut rng).into_bytes(),
            ..example()
        })
    };
    let rows: Vec<Vec<u8>> = (0..40).map(&mut row).collect();
    for before in &rows {
        for after in &rows {
            let mut patch = Vec::new();
            schema.patch(before, after, &mut patch).unwrap();
            assert_eq!(&schema.apply_patch(before, &patch).unwrap(), after);
            assert_eq!(patch == [0], before == after);
        }
    }
}

#[test]
fn damaged_patches_and_values_are_refused() {
    let schema = Example::schema();
    let before = value(&example());
    let patch = of_the_page(2);
    for cut in 0..patch.len() {
        assert!(schema.apply_patch(&before, &patch[..cut]).is_err());
    }
    for bad in [&[0x10][..], &[0, 0], &[1, 2], &[2, 1, 0xff]] {
        let error = schema.apply_patch(&before, bad).unwrap_err();
        assert!(error.to_string().contains("examples"), "{error}");
    }
    for cut in 0..before.len() {
        assert!(schema.apply_patch(&before[..cut], &patch).is_err());
    }
}
