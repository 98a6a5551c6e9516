//! Payloads of a real Redis.

use perdura_rdb::{Stream, StreamGroup, Value, parse_dump};

use crate::{consumer, entry, strings, unhex};

#[test]
fn the_payloads_of_a_real_redis_are_read() {
    // The answers of Redis 7.0.15 to DUMP, in hexadecimal.
    for (hex, value) in REAL {
        assert_eq!(parse_dump(&unhex(hex)).unwrap(), value(), "{hex}");
    }
}

/// A payload and its value.
type Known = (&'static str, fn() -> Value);

const REAL: &[Known] = &[
    ("000568656c6c6f0a006372df766534200a", || {
        Value::String(b"hello".to_vec())
    }),
    ("00c139300a009d94ea2793fc08b9", || {
        Value::String(b"12345".to_vec())
    }),
    (
        "00c30b410e0361626361e0ff020162630a00119d7e7615dcd9df",
        || Value::String(b"abc".repeat(90)),
    ),
    (
        "1201020f0f00000003008161020101ded402ff0a0080042048293be289",
        || Value::List(strings(&["a", "1", "-300"])),
    ),
    (
        "0b1404000000030000000100000002000000701101000a0085d5c1065b1dd055",
        || Value::Set(strings(&["1", "2", "70000"])),
    ),
    ("0202016101620a00fe642125eb033d0d", || {
        Value::Set(strings(&["a", "b"]))
    }),
    (
        "10121200000004008166028176028167020a01ff0a009addefcacede9bc0",
        || {
            Value::Hash(vec![
                (b"f".to_vec(), b"v".to_vec()),
                (b"g".to_vec(), b"10".to_vec()),
            ])
        },
    ),
    (
        "111717000000040081610283312e350481620283696e6604ff0a00cbfa382510d6d632",
        || Value::Zset(vec![(b"a".to_vec(), 1.5), (b"b".to_vec(), f64::INFINITY)]),
    ),
    (
        "130110000000000000000100000000000000014054540000001f0003010101020181660281670200010201000100018176\
         020a010501020100010101817702ded402050101010401dfff020101856f746865720681780206010201\
         0501dfff02817902817a020501ff03060001010500040203677270010281ffffffffffffffff02000000\
         00000000010000000000000001f33d8f14a201000001000000000000000100000000000000020068e5cf\
         8b010000070205616c696365f33d8f14a2010000010000000000000001000000000000000103626f6206\
         3e8f14a201000001000000000000000100000000000000020374776f060081ffffffffffffffff00000a\
         008bec6bba9c0f82e1",
        || {
            Value::Stream(Stream {
                entries: vec![
                    entry((1, 1), &["f", "v", "g", "10"]),
                    entry((1, 2), &["f", "w", "g", "-300"]),
                    entry((6, 0), &["f", "y", "g", "z"]),
                ],
                last: (6, 0),
                deleted_max: (5, 0),
                added: 4,
                groups: vec![
                    StreamGroup {
                        name: b"grp".to_vec(),
                        last: (1, 2),
                        read: None,
                        consumers: vec![
                            consumer("alice", ALICE_MS, &[((1, 1), ALICE_MS, 1)]),
                            consumer("bob", ALICE_MS + 19, &[((1, 2), 1_700_000_000_000, 7)]),
                        ],
                    },
                    StreamGroup {
                        name: b"two".to_vec(),
                        last: (6, 0),
                        read: None,
                        consumers: Vec::new(),
                    },
                ],
            })
        },
    ),
];

const ALICE_MS: u64 = 1_795_641_261_555;
