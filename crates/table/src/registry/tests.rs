use super::*;

crate::table! {
    struct Account in "accounts" { key(id: u64), balance: i64 }
}

mod other {
    crate::table! {
        pub(super) struct Account in "accounts" { key(id: u64), balance: u64 }
    }
}

fn registry() -> Registry {
    let geometry = Geometry {
        partitions: 4,
        chunk_pages: 1,
        hash_seed: 1,
    };
    Registry::new(geometry, 1)
}

#[test]
fn a_type_finds_its_table_by_name_and_schema() {
    let mut registry = registry();
    let error = registry.table::<Account>().unwrap_err().to_string();
    assert!(error.contains("accounts"), "{error}");
    registry.add(TableId(7), Account::schema().clone());
    for _ in 0..2 {
        let table = registry.table::<Account>().unwrap();
        assert_eq!((table.id, table.keyed), (TableId(7), true));
    }
    let error = registry.table::<other::Account>().unwrap_err().to_string();
    assert!(error.contains("column balance is i64"), "{error}");
    registry.mark_dropped(TableId(7));
    assert!(registry.table::<Account>().is_err());
}

#[test]
fn two_databases_may_have_the_table_at_different_places() {
    let (mut first, mut second) = (registry(), registry());
    second.add(TableId(1), other_schema());
    first.add(TableId(5), Account::schema().clone());
    second.add(
        TableId(6),
        Account::schema()
            .clone()
            .with_addressing(crate::Addressing::Page),
    );
    for _ in 0..2 {
        assert_eq!(first.table::<Account>().unwrap().id, TableId(5));
        let table = second.table::<Account>().unwrap();
        assert_eq!((table.id, table.keyed), (TableId(6), false));
    }
}

fn other_schema() -> Schema {
    crate::table! {
        struct Item in "items" { key(id: u64), price: i64 }
    }
    Item::schema().clone()
}
