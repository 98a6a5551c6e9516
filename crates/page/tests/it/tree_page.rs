//! Tests of tree pages: the worked examples of tree pages and of the double-write file; pages compared with a map;
//! damaged pages.

use crate::common::examples;
use fastrand::Rng;
use perdura_base::checksum::crc32c;
use perdura_base::{Gsn, Pid, TableId};
use perdura_page::tree_double::{BatchHead, HEAD_BYTES, newest_number};
use perdura_page::tree_page::{
    Full, Kind, Node, NodeMut, NodeSpec, cell_bytes_max, format, key_bytes_max, separator_between,
};
use std::collections::BTreeMap;

const TREE_PAGE_MD: &str = include_str!("../../../../docs/formats/tree-page.md");
const TREE_DOUBLE_MD: &str = include_str!("../../../../docs/formats/tree-double.md");
const DATABASE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn leaf<'a>(low: &'a [u8], high: Option<&'a [u8]>) -> NodeSpec<'a> {
    NodeSpec {
        kind: Kind::Leaf,
        level: 0,
        pid: Pid(3),
        table: TableId(7),
        database: DATABASE,
        low,
        high,
    }
}

/// Seals a page and reads it as a restart would.
fn reopen(bytes: &mut [u8]) -> Node<'_> {
    NodeMut::over(bytes).seal();
    let pid = NodeMut::over(bytes).node().pid();
    Node::open(bytes, pid, DATABASE).expect("a page")
}

fn rows(node: &Node<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let row = |at| (node.key(at).to_vec(), node.value(at).to_vec());
    (0..node.len()).map(row).collect()
}

#[test]
fn the_example_of_the_page_round_trips() {
    let examples = examples(TREE_PAGE_MD);
    assert_eq!(examples.len(), 2, "a page's begin and its end");
    let mut bytes = format(512, &leaf(b"", Some(b"m")));
    let mut page = NodeMut::over(&mut bytes);
    assert_eq!(page.put(b"a", b"1"), Ok(true));
    assert_eq!(page.put(b"bc", b"23"), Ok(true));
    page.set_plsn(Gsn(300));
    page.set_dlsn(Gsn(258));
    page.seal();
    let (head, tail) = (&examples[0], &examples[1]);
    assert_eq!(&bytes[..head.len()], head);
    assert_eq!(&bytes[512 - tail.len()..], tail);
    assert!(
        bytes[head.len()..512 - tail.len()]
            .iter()
            .all(|byte| *byte == 0)
    );
    let node = Node::open(&bytes, Pid(3), DATABASE).expect("a page");
    assert_eq!((node.plsn(), node.dlsn()), (Gsn(300), Gsn(258)));
    assert_eq!((node.find(b"bc"), node.find(b"b")), (Ok(1), Err(1)));
    assert_eq!((node.low(), node.high()), (&b""[..], Some(&b"m"[..])));
    assert_eq!(node.value(1), b"23");
}

#[test]
fn the_example_of_the_double_write_file_round_trips() {
    let examples = examples(TREE_DOUBLE_MD);
    assert_eq!(examples.len(), 2, "a head's begin and its end");
    let head = BatchHead {
        page_bytes: 512,
        database: DATABASE,
        newest: Gsn(300),
        pages: vec![(Pid(3), 0x4433_2211), (Pid(260), 0x8877_6655)],
    };
    let mut bytes = vec![0xff; HEAD_BYTES];
    head.encode(&mut bytes);
    let (begin, end) = (&examples[0], &examples[1]);
    assert_eq!(&bytes[..begin.len()], begin);
    assert_eq!(&bytes[HEAD_BYTES - end.len()..], end);
    assert_eq!(BatchHead::decode(&bytes), Ok(Some(head)));
    assert_eq!(BatchHead::decode(&bytes[1..]), Ok(None));
    assert_eq!(newest_number(&bytes[..512], DATABASE), Some(Gsn(300)));
    assert_eq!(newest_number(&bytes[..31], DATABASE), None);
    assert_eq!(newest_number(&bytes, *b"another!"), None);
    for at in 0..HEAD_BYTES {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert_eq!(BatchHead::decode(&damaged), Ok(None), "byte {at}");
        let newest = (at >= 32).then_some(Gsn(300));
        assert_eq!(newest_number(&damaged, DATABASE), newest, "byte {at}");
        if at < HEAD_BYTES - 4 {
            // With a corrected checksum, the damaged head is read or refused.
            let crc = crc32c(&damaged[..HEAD_BYTES - 4]);
            damaged[HEAD_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
            match BatchHead::decode(&damaged) {
                Ok(read) => assert!(read.is_some() && (32..48).contains(&at), "byte {at}"),
                Err(refused) => assert!(refused.at <= at.max(48), "{refused} for byte {at}"),
            }
        }
    }
}

#[test]
fn a_leaf_is_a_map_that_fills_and_splits() {
    let mut rng = Rng::with_seed(7);
    for round in 0..300 {
        let size = [512, 1024, 4096, 32_768][round % 4];
        let mut bytes = format(size, &leaf(b"", None));
        let mut map = BTreeMap::new();
        let mut splits = 0;
        for gsn in 1..400 {
            let key: Vec<u8> = (0..rng.usize(0..6)).map(|_| rng.u8(b'a'..b'e')).collect();
            let key_bytes = key.len() + rng.usize(..=key_bytes_max(size) - 6) / 4;
            let key = [&key[..], &vec![b'x'; key_bytes - key.len()]].concat();
            let mut page = NodeMut::over(&mut bytes);
            if !page.node().covers(&key) {
                continue;
            }
            if rng.u8(..4) == 0 {
                assert_eq!(page.remove(&key), map.remove(&key).is_some());
            } else {
                let most = cell_bytes_max(size) - key.len() - 6;
                let value = vec![rng.u8(..); rng.usize(..most)];
                let before = page.node().room();
                match page.put(&key, &value) {
                    Ok(new) => assert_eq!(new, map.insert(key, value).is_none()),
                    Err(Full) => {
                        assert!(before < key.len() + value.len() + 8, "there was room");
                        assert!(!NodeMut::over(&mut bytes).node().has_room_for(&key, &value));
                        split(&mut bytes, &mut map, &mut rng);
                        splits += 1;
                    }
                }
            }
            NodeMut::over(&mut bytes).set_plsn(Gsn(gsn));
            let node = reopen(&mut bytes);
            assert_eq!(rows(&node), map);
            assert!(node.used() + node.room() + 48 <= size);
        }
        assert!(splits > 0 || size == 32_768, "round {round}");
    }
}

/// Splits a full leaf. Keeps one half in `bytes` and its rows in `map`.
fn split(bytes: &mut Box<[u8]>, map: &mut BTreeMap<Vec<u8>, Vec<u8>>, rng: &mut Rng) {
    let mut page = NodeMut::over(bytes);
    let node = page.node();
    let at = node.len() / 2;
    let separator = separator_between(node.key(at - 1), node.key(at)).to_vec();
    let (plsn, high) = (node.plsn(), node.high().map(<[u8]>::to_vec));
    let mut right = page.right_of(&separator, Pid(9));
    page.cut_at(&separator);
    let moved = map.split_off(&separator);
    let left = reopen(bytes);
    assert_eq!(rows(&left), *map);
    assert_eq!((left.high(), left.pid()), (Some(&separator[..]), Pid(3)));
    let new = reopen(&mut right);
    assert_eq!(rows(&new), moved);
    assert_eq!((new.low(), new.high()), (&separator[..], high.as_deref()));
    assert_eq!((new.plsn(), new.pid()), (plsn, Pid(9)));
    if rng.bool() {
        *map = moved;
        *bytes = right;
        // The right half continues with the left half's `Pid`.
        bytes[8] = 3;
    }
}

#[test]
fn an_inner_page_leads_to_the_child_of_a_key() {
    let spec = NodeSpec {
        kind: Kind::Inner,
        level: 1,
        ..leaf(b"b", Some(b"y"))
    };
    let mut bytes = format(512, &spec);
    let mut page = NodeMut::over(&mut bytes);
    for (key, child) in [(&b"b"[..], 10), (b"m", 30), (b"f", 20)] {
        assert_eq!(page.put_child(key, Pid(child)), Ok(true));
    }
    let node = reopen(&mut bytes);
    for (key, child) in [
        (&b"b"[..], 10),
        (b"eee", 10),
        (b"f", 20),
        (b"lz", 20),
        (b"m", 30),
        (b"x", 30),
    ] {
        assert_eq!(node.child_of(key), Pid(child), "{}", key.escape_ascii());
    }
    assert!(!node.covers(b"a") && !node.covers(b"y"));
}

#[test]
fn separators_part_and_are_short() {
    for (left, right, separator) in [
        (&b""[..], &b"a"[..], &b"a"[..]),
        (b"abc", b"abd", b"abd"),
        (b"ab", b"abcd", b"abc"),
        (b"a", b"zzzz", b"z"),
    ] {
        assert_eq!(separator_between(left, right), separator);
    }
}

/// Calls every accessor that the page's kind allows.
fn read_all(node: &Node<'_>) {
    assert!(node.low().len() + node.high().map_or(0, <[u8]>::len) <= node.used());
    for at in 0..node.len() {
        assert_eq!(node.find(node.key(at)), Ok(at));
        match node.kind() {
            Kind::Leaf => assert!(node.value(at).len() < node.used()),
            Kind::Inner => assert_eq!(node.child_of(node.key(at)), node.child(at)),
            Kind::Meta => assert!(node.value(at).len() < node.used()),
            Kind::Chain | Kind::Free => unreachable!("they have no slots"),
        }
    }
}

#[test]
fn what_is_damaged_under_a_checksum_that_holds_is_read_or_refused_and_nothing_else() {
    let mut rng = Rng::with_seed(11);
    let (mut read, mut refused) = (0, BTreeMap::new());
    for _ in 0..200_000 {
        let spec = NodeSpec {
            kind: if rng.bool() { Kind::Leaf } else { Kind::Inner },
            ..leaf(b"a", Some(&b"w"[..]).filter(|_| rng.bool()))
        };
        let spec = NodeSpec {
            level: u8::from(spec.kind == Kind::Inner),
            ..spec
        };
        let mut bytes = format(512, &spec);
        let mut page = NodeMut::over(&mut bytes);
        for key in [&b"a"[..], b"abc", b"f", b"gggggg", b"q"] {
            let put = match spec.kind {
                Kind::Inner => page.put_child(key, Pid(rng.u32(..))),
                _ => page.put(key, &vec![0; rng.usize(..20)]),
            };
            assert_eq!(put, Ok(true));
        }
        page.remove([&b"abc"[..], b"q", b"nobody"][rng.usize(..3)]);
        for _ in 0..rng.usize(1..4) {
            // The offset of a byte in the header, the slots, the cells or the fences.
            let at = [rng.usize(4..60), rng.usize(420..512)][rng.usize(..2)];
            bytes[at] = match rng.u8(..3) {
                0 => rng.u8(..),
                1 => bytes[at] ^ 1 << rng.u8(..8),
                _ => bytes[at].wrapping_add(1),
            };
        }
        NodeMut::over(&mut bytes).seal();
        match Node::open(&bytes, Pid(3), DATABASE) {
            Ok(node) => {
                read += 1;
                read_all(&node);
            }
            Err(no_page) => {
                assert!(no_page.at < 512);
                *refused.entry(no_page.expected).or_insert(0) += 1;
            }
        }
    }
    println!("{read} read, {refused:#?}");
    assert!(read > 1000 && refused.len() >= 9);
}

#[test]
fn a_page_of_another_place_or_database_is_refused_by_name() {
    let mut bytes = format(512, &leaf(b"", None));
    NodeMut::over(&mut bytes).seal();
    let expected = |bytes: &[u8], pid, database| {
        let refused = Node::open(bytes, pid, database).expect_err("no page");
        refused.to_string()
    };
    assert_eq!(
        expected(&bytes, Pid(4), DATABASE),
        "byte 8: expected the page of this place"
    );
    assert_eq!(
        expected(&bytes, Pid(3), [0; 8]),
        "byte 32: expected a page of this database"
    );
    let sizes = "byte 0: expected a page of 512 to 32768 bytes, a power of two";
    assert_eq!(expected(&bytes[..500], Pid(3), DATABASE), sizes);
    bytes[511] ^= 1;
    let torn = "byte 0: expected the checksum of what follows";
    assert_eq!(expected(&bytes, Pid(3), DATABASE), torn);
}
