//! Tests the worked examples of ordered frames, and frames that are cut, have flipped bits or have random bytes.

use crate::common::examples;
use perdura_base::{PartitionId, TableId};
use perdura_formats::ordered::{
    At, CommandFrame, Effect, Malformed, Op, OrderedPayload, Part, encode_command, encode_head,
};
use proptest::prelude::*;

const ORDERED_MD: &str = include_str!("../../../../docs/formats/ordered.md");

fn part(partition: u16, pseq: u64) -> Part {
    (PartitionId(partition), pseq)
}

fn effects_of(payload: &[u8]) -> Result<(Vec<Part>, Vec<Effect<'_>>), Malformed> {
    let read = OrderedPayload::decode(payload)?;
    let effects = read.effects().collect::<Result<Vec<_>, _>>()?;
    Ok((read.head.parts, effects))
}

fn encode_effects(parts: &[Part], effects: &[Effect<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_head(&mut out, parts, false);
    effects
        .iter()
        .for_each(|effect| effect.encode(&mut out, parts.len()));
    out
}

fn effect<'a>(table: u32, at: At, op: Op<'a>, key: &'a [u8]) -> Effect<'a> {
    Effect {
        table: TableId(table),
        at,
        op,
        key,
    }
}

/// Decodes a payload as a command and as effects. The decoder must not panic.
fn read_all(payload: &[u8]) -> (Option<Malformed>, Option<Malformed>) {
    match OrderedPayload::decode(payload) {
        Err(malformed) => {
            assert!(malformed.at <= payload.len(), "{malformed}");
            (Some(malformed), Some(malformed))
        }
        Ok(read) => {
            let effects = read.effects().find_map(Result::err);
            (read.command().err(), effects)
        }
    }
}

#[test]
fn the_examples_of_the_page_round_trip() {
    let examples = examples(ORDERED_MD);
    assert_eq!(examples.len(), 4);
    let (one, two) = ([part(3, 300)], [part(3, 300), part(200, 5)]);
    let hashes = [None, Some(0x1122_3344_5566_7788)];
    for ((example, parts), effects_hash) in examples.iter().zip([&one[..], &two]).zip(hashes) {
        let read = OrderedPayload::decode(example).expect("a command");
        assert_eq!(read.head.parts, parts);
        let command = CommandFrame {
            procedure: 7,
            time_ms: 1000,
            args: &[1, 2],
            effects_hash,
        };
        assert_eq!(read.command(), Ok(command));
        let mut again = Vec::new();
        encode_command(&mut again, parts, &command);
        assert_eq!(&again, example);
    }
    let of_one = vec![
        effect(5, At::Part(0), Op::Put { row: b"a" }, b"k"),
        effect(5, At::Part(0), Op::Delete, b"k"),
    ];
    let replace = Op::Replace {
        before: b"a",
        after: b"b",
    };
    let patch = Op::Columns { patch: &[0, 255] };
    let of_two = vec![
        effect(9, At::All, Op::CreateTable { definition: b"de" }, b""),
        effect(9, At::Part(1), Op::Put { row: b"a" }, b"k"),
        effect(9, At::Part(1), replace, b"k"),
        effect(9, At::Part(0), patch, b"k"),
        effect(9, At::All, Op::DropTable, b""),
    ];
    for ((example, parts), effects) in examples[2..]
        .iter()
        .zip([&one[..], &two])
        .zip([of_one, of_two])
    {
        assert_eq!(encode_effects(parts, &effects), *example);
        assert_eq!(effects_of(example), Ok((parts.to_vec(), effects)));
    }
}

#[test]
fn every_cut_of_an_example_is_refused_and_says_where() {
    for (number, example) in examples(ORDERED_MD).iter().enumerate() {
        for len in 0..example.len() {
            let (command, effects) = read_all(&example[..len]);
            let malformed = if number < 2 { command } else { effects };
            match malformed {
                Some(malformed) => assert!(malformed.at <= len, "{malformed} of {len}"),
                // A cut frame may be valid: arguments end where the frame ends, and effects may end after any effect.
                None => assert!(len > 4, "example {number} cut at {len}"),
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_an_example_is_read_or_refused_and_nothing_else() {
    for example in examples(ORDERED_MD) {
        for at in 0..example.len() {
            for bit in 0..8 {
                let mut damaged = example.clone();
                damaged[at] ^= 1 << bit;
                read_all(&damaged);
                (0..damaged.len()).for_each(|len| {
                    read_all(&damaged[..len]);
                });
            }
        }
    }
}

#[test]
fn what_no_writer_writes_is_refused() {
    let refused = |payload: &[u8], expected: &str| {
        let malformed = read_all(payload).1.expect("refused");
        assert!(malformed.to_string().contains(expected), "{malformed}");
    };
    refused(&[], "byte 0: expected flags");
    refused(&[2, 1, 0, 1], "byte 0: expected flags");
    refused(&[0, 0], "byte 1: expected the number of partitions");
    refused(&[0, 0x81, 2], "byte 1: expected the number of partitions");
    refused(&[0, 1, 0, 0], "byte 3: expected a number of at least 1");
    refused(&[0, 1, 0x80, 2, 1], "byte 2: expected a partition");
    refused(&[0, 2, 3, 1, 3, 1], "byte 4: expected a partition above");
    refused(&[1, 1, 0, 1], "byte 0: expected flags of zero");
    refused(&[0, 1, 0, 1, 6, 1, 0], "byte 4: expected an effect's op");
    refused(&[0, 1, 0, 1, 5, 1, 1, 9], "byte 6: expected no key");
    refused(
        &[0, 2, 0, 1, 1, 1, 0, 1, 3, 0],
        "byte 8: expected the index",
    );
    refused(&[0, 1, 0, 1, 0, 1, 4, 9], "byte 6: expected a key");
    let hashed = OrderedPayload::decode(&[1, 1, 0, 1, 7, 0, 1, 2, 3]).unwrap();
    let why = hashed.command().unwrap_err().to_string();
    assert!(
        why.contains("byte 6: expected arguments and a hash"),
        "{why}"
    );
    let big = [0, 1, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x1f, 0];
    let why = OrderedPayload::decode(&big).unwrap().command().unwrap_err();
    assert_eq!(why.expected, "a procedure's id");
    let read = OrderedPayload::decode(&[0, 1, 0, 1, 6, 1]).unwrap();
    assert_eq!(
        read.effects().count(),
        1,
        "the first error is the last item"
    );
}

fn any_parts() -> impl Strategy<Value = Vec<Part>> {
    proptest::collection::btree_map(0..256u16, 1..u64::MAX, 1..6)
        .prop_map(|parts| parts.into_iter().map(|(p, n)| part(p, n)).collect())
}

type Drawn = (u8, u32, usize, Vec<u8>, Vec<u8>, Vec<u8>);

fn drawn<'a>((op, table, at, key, one, two): &'a Drawn, parts: usize) -> Effect<'a> {
    let op = match op {
        0 => Op::Delete,
        1 => Op::Put { row: one },
        2 => Op::Columns { patch: one },
        3 => Op::Replace {
            before: one,
            after: two,
        },
        4 => Op::CreateTable { definition: one },
        _ => Op::DropTable,
    };
    let at = match at % (parts + 1) {
        index if index < parts => At::Part(index),
        _ if parts == 1 => At::Part(0),
        _ => At::All,
    };
    let key = if op.is_of_table() { &[] } else { &key[..] };
    effect(*table, at, op, key)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn commands_round_trip(
        parts in any_parts(),
        procedure in any::<u32>(),
        time_ms in any::<u64>(),
        args in proptest::collection::vec(any::<u8>(), 0..40),
        effects_hash in any::<Option<u64>>(),
    ) {
        let command = CommandFrame { procedure, time_ms, args: &args, effects_hash };
        let mut payload = Vec::new();
        encode_command(&mut payload, &parts, &command);
        let read = OrderedPayload::decode(&payload).unwrap();
        prop_assert_eq!(&read.head.parts, &parts);
        prop_assert_eq!(read.command(), Ok(command));
        let resumed = OrderedPayload::resume(read.head.clone(), &payload, read.body_at());
        prop_assert_eq!(resumed.command(), Ok(command));
    }

    #[test]
    fn effects_round_trip_and_no_cut_invents_one(
        parts in any_parts(),
        drawn_effects in proptest::collection::vec(
            (0..6u8, any::<u32>(), any::<usize>(), any::<Vec<u8>>(), any::<Vec<u8>>(), any::<Vec<u8>>()),
            0..6,
        ),
        cut in any::<usize>(),
    ) {
        let effects: Vec<_> = drawn_effects.iter().map(|d| drawn(d, parts.len())).collect();
        let payload = encode_effects(&parts, &effects);
        prop_assert_eq!(effects_of(&payload), Ok((parts, effects.clone())));
        let cut = &payload[..cut % (payload.len() + 1)];
        if let Ok((_, fewer)) = effects_of(cut) {
            prop_assert_eq!(&effects[..fewer.len()], &fewer[..]);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        read_all(&bytes);
        let framed = [&[0, 1, 0, 1][..], &bytes].concat();
        read_all(&framed);
    }
}
