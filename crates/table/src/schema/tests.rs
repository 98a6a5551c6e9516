use perdura_base::error::Family;

use super::*;
use crate::Table;

crate::table! {
    pub(crate) struct Example in "examples", order = ordered {
        key(bank: u16, owner: String), flag: bool, note: String, balance: i64, tag: Vec<u8>;
        index by_note(note: String, bank: u16);
        unique index by_balance(bank: u16, balance: i64)
    }
}

crate::table! {
    struct Wide in "wide", addressing = page, replicated {
        key(id: [u8; 3]), a: Option<u32>, b: f64, c: [u8; 24], d: u8,
    }
}

crate::table! {
    struct Event in "events" { what: String }
}

pub(crate) fn example() -> Example {
    Example {
        bank: 258,
        owner: "A\0".into(),
        flag: true,
        note: "hi".into(),
        balance: -2,
        tag: vec![0xff],
    }
}

fn bytes<T: Table>(row: &T) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut value) = (crate::KeyBytes::new(), Vec::new());
    row.encode_key(&mut key);
    row.encode_row(&mut value);
    (key.as_slice().to_vec(), value)
}

/// Returns the bytes of example `n`, counted from 0, in docs/formats/typed-row.md.
pub(crate) fn of_the_page(n: usize) -> Vec<u8> {
    let page = include_str!("../../../../docs/formats/typed-row.md");
    let examples = page.split("## Example").nth(1).expect("there are examples");
    let text = examples.split("```").nth(2 * n + 1).expect("as many");
    let digits = text.trim_start_matches("text").split_whitespace();
    digits
        .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
        .collect()
}

#[test]
fn the_example_of_the_format_page_is_read_and_written() {
    let (key, value) = bytes(&example());
    assert_eq!(key, of_the_page(0));
    assert_eq!(value, of_the_page(1));
    assert_eq!(Example::decode(&key, &value).unwrap(), example());
    Example::schema().check(&key, &value).unwrap();
    assert_eq!(Example::schema().key_text(&key), r#"(258, "A\0")"#);
    assert_eq!(
        Example::schema().value_text(&value),
        r#"flag: true, note: "hi", balance: -2, tag: "�""#
    );
}

#[test]
fn columns_are_read_where_they_lie() {
    let (key, value) = bytes(&example());
    let row = crate::RowView::<Example>::new(key.into(), value.into());
    assert!(row.get(Example::flag).unwrap());
    assert_eq!(row.get(Example::note).unwrap(), "hi");
    assert_eq!(row.get(Example::tag).unwrap(), [0xff]);
    assert_eq!(row.key(Example::owner).unwrap(), "A\0");
    assert_eq!(row.key(Example::bank).unwrap(), 258);
}

#[test]
fn an_edited_row_is_as_if_written_so() {
    let (key, mut value) = bytes(&example());
    let mut edit = crate::RowEdit::<Example>::new(&key, &mut value).unwrap();
    edit.set(Example::balance, 7);
    edit.set(Example::note, "a longer one");
    edit.set(Example::tag, &b""[..]);
    assert_eq!(edit.get(Example::note).unwrap(), "a longer one");
    assert_eq!(edit.key(Example::bank).unwrap(), 258);
    let row = Example {
        note: "a longer one".into(),
        balance: 7,
        tag: Vec::new(),
        ..example()
    };
    assert_eq!(value, bytes(&row).1);
}

#[test]
fn damaged_rows_name_their_table_and_column() {
    let (key, value) = bytes(&example());
    for cut in 0..value.len() {
        let error = Example::schema().check(&key, &value[..cut]).unwrap_err();
        assert_eq!(error.family(), Family::Corruption);
        assert!(error.to_string().contains("examples"), "{error}");
        let _no_panic = Example::decode(&key, &value[..cut]);
    }
    for cut in 0..key.len() {
        let error = Example::decode(&key[..cut], &value).unwrap_err();
        assert!(error.to_string().contains("examples"), "{error}");
        assert!(Example::schema().check(&key[..cut], &value).is_err());
    }
    let mut bad = value;
    bad[0] = 2;
    let error = Example::decode(&key, &bad).unwrap_err().to_string();
    assert!(error.contains("column flag (bool)"), "{error}");
}

#[test]
fn rows_of_every_type_come_back() {
    let row = Wide {
        id: [0, 1, 2],
        a: Some(3),
        b: 0.5,
        c: [7; 24],
        d: 9,
    };
    let (key, value) = bytes(&row);
    assert_eq!(
        value.len(),
        Wide::LAYOUT.fixed_bytes,
        "nothing beside columns"
    );
    assert_eq!(Wide::decode(&key, &value).unwrap(), row);
    let event = Event { what: "x".into() };
    let (key, value) = bytes(&event);
    assert!(key.is_empty() && Event::KEYLESS);
    assert_eq!(Event::decode(&key, &value).unwrap(), event);
}

#[test]
fn a_schema_comes_back_from_its_bytes_and_nothing_else_does() {
    for schema in [Example::schema(), Wide::schema(), Event::schema()] {
        let mut bytes = Vec::new();
        schema.encode(&mut bytes);
        assert_eq!(Schema::decode(&bytes).as_ref(), Some(schema));
        for cut in 0..bytes.len() {
            assert!(Schema::decode(&bytes[..cut]).is_none());
        }
        for at in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                let mut bad = bytes.clone();
                bad[at] = byte;
                if let Some(other) = Schema::decode(&bad) {
                    let mut again = Vec::new();
                    other.encode(&mut again);
                    assert_eq!(again, bad, "a schema has one form");
                }
            }
        }
    }
}

#[test]
fn the_example_of_the_catalog_page_is_the_schema_of_a_table() {
    crate::table! {
        struct Account in "accounts", addressing = key {
            key(id: u64), owner: String, balance: i64; index by_owner(owner: String)
        }
    }
    let page = include_str!("../../../../docs/formats/catalog.md");
    let text = page.split("```").nth(3).expect("the second block");
    let digits = text.trim_start_matches("text").split_whitespace();
    let expected: Vec<u8> = digits
        .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
        .collect();
    let mut bytes = Vec::new();
    Account::schema().encode(&mut bytes);
    assert_eq!(bytes, expected, "{bytes:02x?}");
}

#[test]
fn a_difference_of_schemas_is_named_with_both_sides() {
    mod other {
        crate::table! {
            pub struct Example in "examples", order = ordered {
                key(bank: u16, owner: String), flag: bool, note: String, balance: u64, tag: Vec<u8>
            }
        }
    }
    let (mine, theirs) = (Example::schema(), other::Example::schema());
    assert_eq!(mine.differs(mine), None);
    assert_eq!(
        mine.differs(theirs).unwrap(),
        "column balance is i64 in the database and u64 in the program"
    );
    let paged = mine.clone().with_addressing(crate::Addressing::Page);
    assert_eq!(
        mine.differs(&paged).unwrap(),
        "addressing is key in the database and page in the program"
    );
    assert!(mine.differs(Event::schema()).unwrap().contains("name is"));
}

#[test]
fn a_unique_index_that_an_earlier_version_took_opens_as_a_plain_one() {
    use crate::declare::{Declaration, IndexDeclaration};
    const BALANCE: (&str, crate::types::Type) = ("balance", <i64 as crate::ColumnType>::TYPE);
    const fn index(unique: bool) -> IndexDeclaration {
        IndexDeclaration {
            name: "by_balance",
            unique,
            columns: &[BALANCE],
        }
    }
    // A program can no longer declare this schema, but a catalog may have it.
    const OLD: Declaration = Declaration {
        indexes: &[index(true)],
        ..Example::DECLARATION
    };
    const NEW: Declaration = Declaration {
        indexes: &[index(false)],
        ..Example::DECLARATION
    };
    let (old, new) = (Schema::new(&OLD), Schema::new(&NEW));
    assert_eq!(old.differs(&new), None);
    assert!(Example::schema().differs(&new).is_some());
    let replicated = |declaration: &Declaration| Schema::new(&declaration.in_all_partitions());
    let fault = replicated(&OLD).differs(&replicated(&NEW)).unwrap();
    assert!(fault.contains("unique index by_balance"), "{fault}");
}

#[test]
fn the_home_is_the_same_for_rows_and_for_keys() {
    let geometry = Geometry {
        partitions: 8,
        chunk_pages: 1,
        hash_seed: 3,
    };
    let (key, _) = bytes(&example());
    let home = Example::schema().home(&geometry, &key).unwrap();
    assert_eq!(Some(home), example().home(&geometry));
    assert_eq!(home, PartitionId(2));
    assert!(Example::schema().home(&geometry, &key[..1]).is_err());
}
