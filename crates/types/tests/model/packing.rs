//! Tests of collections with limits that change between transactions.

use super::{open, run};
use perdura::types::{encoding, hash, list, set, zset};
use perdura::{Db, End, Packing};

const LOW: Packing = Packing {
    hash_entries: 3,
    hash_bytes: 4,
    list_entries: 3,
    set_integers: 3,
    set_entries: 2,
    set_bytes: 4,
    zset_entries: 3,
    zset_bytes: 4,
};

fn form(db: &Db, key: &[u8]) -> &'static str {
    run(db, |tx, table| {
        let row = tx.get(table, key)?.expect("a key");
        Ok(match row.kind() {
            perdura::Kind::Header(_) => "rows",
            _ => encoding(&row),
        })
    })
    .expect("read")
}

fn fields(db: &Db, packing: Packing, key: &[u8], pairs: &[(&[u8], &[u8])]) {
    run(db, |tx, table| {
        tx.set_packing(packing);
        hash::set(tx, table, key, pairs.iter().copied())
    })
    .expect("set");
}

#[test]
fn a_hash_beyond_a_lowered_limit_becomes_rows_at_its_next_write_of_a_field_and_stays_rows() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let four: [(&[u8], &[u8]); 4] = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4")];
    fields(&db, Packing::FULL, b"h", &four);
    fields(&db, LOW, b"low", &four[..3]);
    assert_eq!(
        (form(&db, b"h"), form(&db, b"low")),
        ("listpack", "listpack")
    );
    // Removing a field checks no limit. Writing a field does, even if the field already exists.
    let gone = run(&db, |tx, table| {
        tx.set_packing(LOW);
        hash::remove(tx, table, b"none", [&b"a"[..]])
    });
    assert!(gone.is_some());
    assert_eq!(form(&db, b"h"), "listpack");
    fields(&db, LOW, b"h", &four[..1]);
    fields(&db, LOW, b"low", &[(b"a", b"longer")]);
    assert_eq!((form(&db, b"h"), form(&db, b"low")), ("rows", "rows"));
    fields(&db, Packing::FULL, b"h", &four);
    assert_eq!(form(&db, b"h"), "rows");
}

#[test]
fn other_collections_ask_for_their_limit_when_an_element_is_new() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let add = |packing: Packing, key: &[u8], members: &[&[u8]]| {
        run(&db, |tx, table| {
            tx.set_packing(packing);
            set::add(tx, table, key, members.iter().copied())
        });
        form(&db, key)
    };
    assert_eq!(add(LOW, b"i", &[b"1", b"2", b"3"]), "intset");
    assert_eq!(add(LOW, b"i", &[b"3"]), "intset");
    assert_eq!(add(LOW, b"i", &[b"4"]), "rows");
    assert_eq!(add(LOW, b"s", &[b"1", b"a"]), "hashtable");
    assert_eq!(add(LOW, b"s", &[b"2"]), "rows");
    assert_eq!(add(LOW, b"t", &[b"abcde"]), "rows");
    assert_eq!(add(LOW, b"u", &[b"123456"]), "intset");

    let score = |packing: Packing, key: &[u8], members: &[(&[u8], f64)]| {
        run(&db, |tx, table| {
            tx.set_packing(packing);
            zset::add(
                tx,
                table,
                key,
                zset::Conditions::default(),
                members.iter().copied(),
            )
        });
        form(&db, key)
    };
    let four: [(&[u8], f64); 4] = [(b"a", 1.0), (b"b", 2.0), (b"c", 3.0), (b"d", 4.0)];
    assert_eq!(score(Packing::FULL, b"z", &four), "listpack");
    assert_eq!(score(LOW, b"z", &[(b"a", 9.0)]), "listpack");
    assert_eq!(score(LOW, b"z", &[(b"e", 9.0)]), "rows");
    assert_eq!(score(LOW, b"y", &[(b"abcde", 9.0)]), "rows");

    let push = |packing: Packing, key: &[u8], items: &[&[u8]]| {
        run(&db, |tx, table| {
            tx.set_packing(packing);
            list::push(tx, table, key, End::Back, items.iter().copied(), false)
        });
        form(&db, key)
    };
    assert_eq!(push(LOW, b"l", &[b"a", b"b", b"longer"]), "quicklist");
    let set = run(&db, |tx, table| {
        tx.set_packing(LOW);
        list::set(tx, table, b"l", 0, b"other")
    });
    assert_eq!(set, Some(Some(true)));
    assert_eq!(form(&db, b"l"), "quicklist");
    assert_eq!(push(LOW, b"l", &[b"d"]), "rows");
}

#[test]
fn a_stored_result_and_a_limit_of_nothing_follow_the_limits() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = open(dir.path());
    let none = Packing {
        hash_entries: 0,
        set_integers: 0,
        zset_entries: 0,
        list_entries: 1,
        ..LOW
    };
    let members: Vec<(Vec<u8>, f64)> = (0..4).map(|n| (vec![b'a' + n], 1.0)).collect();
    run(&db, |tx, table| {
        tx.set_packing(LOW);
        zset::store(tx, table, b"few", &members[..3])?;
        zset::store(tx, table, b"many", &members)?;
        tx.set_packing(none);
        hash::set(tx, table, b"h", [(&b"a"[..], &b"b"[..])])?;
        set::add(tx, table, b"s", [&b"1"[..]])?;
        zset::store(tx, table, b"z", &members[..1])?;
        list::push(tx, table, b"l", End::Front, [&b"a"[..]], false)?;
        Ok(())
    })
    .expect("written");
    let forms = [b"few", &b"many"[..], b"h", b"s", b"z", b"l"].map(|key| form(&db, key));
    assert_eq!(
        forms,
        ["listpack", "rows", "rows", "rows", "rows", "quicklist"]
    );
}
