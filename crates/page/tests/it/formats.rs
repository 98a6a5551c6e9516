//! Tests of the worked examples in docs/formats, of records with random bytes, and of records of random pages.

use crate::common::examples;
use perdura_base::{CkptEpoch, PageId, PartitionId, TableId, TxnId, Useq};
use perdura_page::diff::FragmentWriter;
use perdura_page::layout::{META_BYTES, PAGE_BYTES};
use perdura_page::record::{RecordHead, encode_group_head, encode_record_head};
use perdura_page::txn_record::{
    Range, SlotChange, UpdateHead, encode_abort, encode_begin, encode_commit, encode_images,
    encode_xor,
};
use perdura_page::{
    CollectionId, Home, Kind, PageHeader, PageKind, PageRecord, Row, Shape, SlotClass, TxnRecord,
    decode_group, decode_txn_record, kind,
};
use proptest::prelude::*;

const PAGE_MD: &str = include_str!("../../../../docs/formats/page.md");
const TXN_RECORD_MD: &str = include_str!("../../../../docs/formats/txn-record.md");
const RECORD_MD: &str = include_str!("../../../../docs/formats/record.md");

/// Encodes decoded records again.
fn encode(records: &[PageRecord<'_>], tag_max: CkptEpoch) -> Vec<u8> {
    let mut out = Vec::new();
    encode_group_head(&mut out, tag_max, records.len());
    for record in records {
        let mut body = Vec::new();
        let mut writer = FragmentWriter::new(&mut body);
        for fragment in record.fragments() {
            writer.range(
                fragment.offset,
                &vec![0; fragment.bytes.len()],
                fragment.bytes,
            );
        }
        let (page, useq, tag) = (record.page, record.useq, record.tag);
        let head = RecordHead {
            page,
            useq,
            tag,
            fragments: writer.count(),
        };
        encode_record_head(&mut out, tag_max, &head);
        out.extend_from_slice(&body);
    }
    out
}

#[test]
fn the_example_of_the_page_format_round_trips() {
    let examples = examples(PAGE_MD);
    assert_eq!(examples.len(), 1);
    let header = PageHeader::decode(&examples[0]).expect("a header");
    let want = PageHeader {
        epoch: CkptEpoch(5),
        useq: Useq(2),
        page_id: PageId(131),
        table: TableId(7),
        class: SlotClass::new(29).expect("a class"),
        kind: PageKind::Slotted,
        next: 0,
        used: 0,
    };
    assert_eq!(header, want);
    assert_eq!(header.encode().as_slice(), examples[0]);
    for cut in 0..examples[0].len() {
        assert_eq!(PageHeader::decode(&examples[0][..cut]), None);
    }
}

#[test]
fn the_examples_of_the_record_format_round_trip() {
    let examples = examples(RECORD_MD);
    assert_eq!(examples.len(), 6);
    let group = decode_group(&examples[0]).expect("a group");
    let records: Vec<_> = group.records().collect();
    assert_eq!(group.tag_max, CkptEpoch(300));
    let heads: Vec<_> = records
        .iter()
        .map(|r| (r.page.0, r.useq.0, r.tag.0))
        .collect();
    assert_eq!(heads, [(131, 2, 300), (5, u32::MAX, 298)]);
    let ranges: Vec<_> = records
        .iter()
        .flat_map(|r| r.fragments())
        .map(|f| (f.offset, f.bytes.len()))
        .collect();
    assert_eq!(ranges, [(64, 1), (88, 3), (16383, 1)]);
    assert_eq!(encode(&records, group.tag_max), examples[0]);

    let score = 1.5f64.to_le_bytes();
    let rows = [
        Row::inline(b"k1", b"hello", Some(1000)),
        Row::large(b"big", 70_000, PageId(9), 0x1122_3344_5566_7788, None),
        Row::inline(b"s", b"\x07\xac\x02", None).with_kind(Kind::Header(Shape::Zset)),
        Row::inline(b"\xac\x02m", &score, None).with_kind(Kind::Element(Shape::Zset)),
        Row::inline(b"\xac\x02\x03", b"x", None).with_kind(Kind::Element(Shape::List)),
    ];
    let home = Home {
        partition: PartitionId(7),
        id: CollectionId(300),
    };
    assert_eq!(home.encode(), b"\x07\xac\x02");
    assert_eq!(kind::read_label(b"\x03"), Some(-2));
    for (row, example) in rows.iter().zip(&examples[1..]) {
        assert_eq!(Row::decode(example).as_ref(), Some(row));
        let mut out = vec![0; row.bytes()];
        row.encode(&mut out);
        assert_eq!(&out, example);
    }
}

/// Returns the worked examples of transaction records from the format's document, without the document's grammar.
fn txn_examples() -> Vec<Vec<u8>> {
    let examples = examples(TXN_RECORD_MD);
    assert_eq!(examples.len(), 6);
    examples
}

fn example_head(compensation: bool) -> UpdateHead {
    UpdateHead {
        txn: TxnId(300),
        compensation,
        page: PageId(131),
        tag: CkptEpoch(5),
    }
}

#[test]
fn the_examples_of_the_transaction_record_format_round_trip() {
    let examples = txn_examples();
    let txn = TxnId(300);
    let mut out: Vec<Vec<u8>> = vec![Vec::new(); 6];
    let mut scratch = Vec::new();
    encode_begin(&mut out[0], txn);
    encode_commit(&mut out[1], txn);
    encode_abort(&mut out[2], txn, false, CkptEpoch(5));
    let row = Range {
        offset: 88,
        before: &[0, 0, 0],
        after: &[0x61, 0, 0x62],
        whole: false,
    };
    let bit = Range {
        offset: 64,
        before: &[0],
        after: &[1],
        whole: true,
    };
    assert!(encode_xor(
        &mut out[3],
        &example_head(false),
        &[bit, row],
        &mut scratch
    ));
    let slot = |gseq, taken| SlotChange {
        gseq,
        slot: 0,
        taken,
    };
    let change = slot(1000, (false, true));
    assert!(encode_images(
        &mut out[4],
        &example_head(false),
        &change,
        &[row],
        &mut scratch
    ));
    let back = Range {
        before: row.after,
        after: row.before,
        whole: true,
        ..row
    };
    let change = slot(1001, (true, false));
    assert!(encode_images(
        &mut out[5],
        &example_head(true),
        &change,
        &[back],
        &mut scratch
    ));
    assert_eq!(out, examples);

    for example in &examples {
        let record = decode_txn_record(example).expect("a record");
        assert_eq!(record.txn(), txn);
        for cut in 0..example.len() {
            assert!(decode_txn_record(&example[..cut]).is_none(), "{cut}");
        }
        let longer = [example.as_slice(), &[0]].concat();
        assert!(decode_txn_record(&longer).is_none());
    }
}

#[test]
fn redo_and_undo_of_either_form_are_inverse() {
    let examples = txn_examples();
    let mut pages = Vec::new();
    for example in &examples[3..] {
        let Some(TxnRecord::Update(update)) = decode_txn_record(example) else {
            panic!("an update");
        };
        assert_eq!((update.page, update.tag), (PageId(131), CkptEpoch(5)));
        let mut page = vec![0; PAGE_BYTES];
        update.change.redo(&mut page);
        pages.push(page.clone());
        update.change.undo(&mut page);
        if !update.compensation {
            assert!(page.iter().all(|byte| *byte == 0));
        }
    }
    assert_eq!(pages[0], pages[1], "both forms make the same change");
    assert!(pages[2].iter().all(|byte| *byte == 0));
}

#[test]
fn full_records_hold_equal_bytes_and_sparse_ones_do_not() {
    let (mut before, mut after) = (vec![7; 256], vec![7; 256]);
    after[100..108].fill(9);
    let sizes = |whole, before: &[u8], after: &[u8]| {
        let range = Range {
            offset: 128,
            before,
            after,
            whole,
        };
        let (mut xor, mut images, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
        let slot = SlotChange {
            gseq: 1,
            slot: 0,
            taken: (true, true),
        };
        let head = example_head(false);
        let any = encode_xor(&mut xor, &head, &[range], &mut scratch);
        assert_eq!(
            any,
            encode_images(&mut images, &head, &slot, &[range], &mut scratch)
        );
        (xor.len(), images.len())
    };
    let head = 1 + 2 + 4 + 1 + 1;
    assert_eq!(
        sizes(true, &before, &after),
        (head + 3 + 256, head + 3 + 3 + 512)
    );
    assert_eq!(
        sizes(false, &before, &after),
        (head + 3 + 8, head + 3 + 3 + 16)
    );
    before.copy_from_slice(&after);
    assert_eq!(
        sizes(false, &before, &after),
        (0, 0),
        "nothing differs, nothing is recorded"
    );
}

#[test]
fn random_bytes_never_panic_the_decoder_of_transaction_records() {
    let mut rng = fastrand::Rng::with_seed(2);
    let examples = txn_examples();
    let mut accepted = 0;
    for round in 0..200_000 {
        let mut bytes = examples[round % examples.len()].clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let mut page = vec![0; PAGE_BYTES];
        if let Some(TxnRecord::Update(update)) = decode_txn_record(&bytes) {
            accepted += 1;
            update.change.redo(&mut page);
            update.change.undo(&mut page);
        }
    }
    assert!(accepted > 0);
}

#[test]
fn a_group_cut_or_extended_anywhere_is_refused() {
    let group = &examples(RECORD_MD)[0];
    for cut in 0..group.len() {
        assert!(decode_group(&group[..cut]).is_none(), "{cut}");
    }
    let longer = [group.as_slice(), &[0]].concat();
    assert!(decode_group(&longer).is_none());
}

#[test]
fn fragments_beyond_the_page_or_empty_are_refused() {
    let head = [1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let group = |rest: &[u8]| decode_group(&[&head, rest].concat()).is_some();
    assert!(group(&[1, 0, 1, 9]));
    assert!(!group(&[0]), "no fragment");
    assert!(!group(&[1, 0, 0]), "an empty fragment");
    assert!(group(&[1, 0xef, 0x7f, 1, 9]), "the last byte");
    assert!(!group(&[1, 0xf0, 0x7f, 1, 9]), "one beyond");
    assert!(!group(&[
        1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 9
    ]));
    assert!(
        decode_group(&[0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 9]).is_none(),
        "tag < 0"
    );
}

#[test]
fn random_bytes_never_panic_the_decoders() {
    let mut rng = fastrand::Rng::with_seed(1);
    let example = &examples(RECORD_MD)[0];
    let mut accepted = 0;
    for _ in 0..200_000 {
        let mut bytes = example.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let mut page = vec![0; PAGE_BYTES];
        if let Some(group) = decode_group(&bytes) {
            accepted += 1;
            assert_eq!(
                u64::try_from(group.records().count()).expect("few"),
                group.records
            );
            group.records().for_each(|r| r.xor_into(&mut page));
        }
        let noise: Vec<u8> = std::iter::repeat_with(|| rng.u8(..8)).take(64).collect();
        let _ = decode_group(&noise);
        let _ = PageHeader::decode(&noise);
    }
    assert!(accepted > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_difference_turns_either_state_into_the_other(
        changes in proptest::collection::vec((META_BYTES..PAGE_BYTES, any::<u8>()), 0..60),
        base in any::<u8>(),
    ) {
        let before = vec![base; PAGE_BYTES];
        let mut now = before.clone();
        for (at, byte) in &changes {
            now[*at] = *byte;
        }
        let mut body = Vec::new();
        let mut writer = FragmentWriter::new(&mut body);
        let half = PAGE_BYTES / 2;
        writer.range(META_BYTES, &before[META_BYTES..half], &now[META_BYTES..half]);
        writer.range(half, &before[half..], &now[half..]);
        let fragments = writer.count();
        prop_assert_eq!(fragments == 0, before == now);
        if fragments > 0 {
            let head =
                RecordHead { page: PageId(1), useq: Useq(1), tag: CkptEpoch(1), fragments };
            let mut group = Vec::new();
            encode_group_head(&mut group, CkptEpoch(1), 1);
            encode_record_head(&mut group, CkptEpoch(1), &head);
            group.extend_from_slice(&body);
            let group = decode_group(&group).expect("a group");
            let record = group.records().next().expect("a record");
            for fragment in record.fragments() {
                let (first, last) = (fragment.bytes.first(), fragment.bytes.last());
                prop_assert!(first != Some(&0) && last != Some(&0));
                prop_assert!(!fragment.bytes.windows(8).any(|w| w == [0; 8]));
            }
            let (mut forward, mut back) = (before.clone(), now.clone());
            record.xor_into(&mut forward);
            record.xor_into(&mut back);
            prop_assert!(forward == now && back == before);
        }
    }
}
