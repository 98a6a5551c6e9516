//! Whole dump files and payloads, right and wrong.

use perdura_rdb::{Entry, Error, File, Item, Value, What, dump, parse_dump};

/// The checksum of dumps, bit by bit.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0u64, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            (crc >> 1)
                ^ if crc & 1 == 1 {
                    0x95ac_9329_ac4b_c9b5
                } else {
                    0
                }
        })
    })
}

fn file(version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("REDIS{version:04}").into_bytes();
    bytes.extend_from_slice(body);
    bytes.push(255);
    if version >= 5 {
        let sum = crc64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
    }
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Item>, Error> {
    let mut file = File::open(bytes)?;
    let mut items = Vec::new();
    while let Some(item) = file.next_item()? {
        items.push(item);
    }
    assert!(file.next_item().unwrap().is_none(), "the end stays the end");
    Ok(items)
}

fn string(text: &str) -> Vec<u8> {
    let len = u8::try_from(text.len()).unwrap();
    assert!(len < 64);
    [&[len], text.as_bytes()].concat()
}

fn strings(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A dump with everything that can be in one.
fn everything() -> Vec<u8> {
    let body = [
        vec![250],
        string("redis-ver"),
        string("7.0.15"),
        vec![245],
        string("#!lua name=lib"),
        // Database 3 with 9 keys.
        vec![254, 3, 251, 9, 1],
        vec![252],
        1_900_000_000_123i64.to_le_bytes().to_vec(),
        vec![248, 5, 0],
        string("s"),
        vec![0xc1, 0x18, 0xfc],
        vec![249, 7, 1],
        string("l"),
        vec![2],
        string("a"),
        string("b"),
        vec![253],
        1_900_000_000i32.to_le_bytes().to_vec(),
        vec![3],
        string("old"),
        vec![3],
        string("m"),
        vec![3],
        b"1.5".to_vec(),
        string("n"),
        vec![254],
        string("o"),
        vec![255],
        vec![5],
        string("z"),
        vec![1],
        string("m"),
        2.5f64.to_le_bytes().to_vec(),
        vec![4],
        string("h"),
        vec![1],
        string("f"),
        // "aaaaaaaa", compressed.
        vec![0xc3, 4, 8, 0, b'a', 0xa0, 0],
        // A hash of version 12 with a deadline at its first field.
        vec![24],
        string("hd"),
        vec![9; 8],
        vec![2, 1],
        string("f"),
        string("v"),
        vec![0],
        string("g"),
        string("w"),
        // A list of a plain and a packed node.
        vec![18],
        string("q"),
        vec![2, 1],
        string("plain"),
        vec![2, 9, 9, 0, 0, 0, 1, 0, 5, 1, 255],
        // A stream without entries, with one group and one consumer.
        vec![19],
        string("st"),
        vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        string("group"),
        vec![0, 0, 0, 1],
        vec![0; 24],
        vec![1, 1],
        string("consumer"),
        vec![0; 8],
        vec![1],
        vec![0; 16],
        // A module's value.
        vec![7],
        string("mod"),
        vec![0x81, 1, 2, 3, 4, 5, 6, 7, 8, 2, 5, 4],
        vec![0; 8],
        vec![5],
        string("x"),
        vec![0],
    ];
    file(12, &body.concat())
}

#[test]
fn everything_in_a_dump_is_read_or_named() {
    let items = read(&everything()).unwrap();
    let key = |key: &str, expires_at_ms, value| {
        Item::Key(Entry {
            db: 3,
            key: key.into(),
            expires_at_ms,
            value,
            fields_with_deadline: u64::from(key == "hd"),
        })
    };
    let pair = |a: &str, b: &str| (a.as_bytes().to_vec(), b.as_bytes().to_vec());
    let scored = |member: &str, score: f64| (member.as_bytes().to_vec(), score);
    let skipped = |what, db, key: &str| Item::Skipped {
        what,
        db,
        key: key.into(),
    };
    let expected = vec![
        Item::Remark {
            name: b"redis-ver".to_vec(),
            text: b"7.0.15".to_vec(),
        },
        skipped(What::Function, 0, ""),
        Item::Size { db: 3, keys: 9 },
        key(
            "s",
            Some(1_900_000_000_123),
            Value::String(b"-1000".to_vec()),
        ),
        key("l", None, Value::List(strings(&["a", "b"]))),
        key(
            "old",
            Some(1_900_000_000_000),
            Value::Zset(vec![
                scored("m", 1.5),
                scored("n", f64::INFINITY),
                scored("o", f64::NEG_INFINITY),
            ]),
        ),
        key("z", None, Value::Zset(vec![scored("m", 2.5)])),
        key("h", None, Value::Hash(vec![pair("f", "aaaaaaaa")])),
        key(
            "hd",
            None,
            Value::Hash(vec![pair("f", "v"), pair("g", "w")]),
        ),
        key("q", None, Value::List(strings(&["plain", "5"]))),
        skipped(What::Stream, 3, "st"),
        skipped(What::Module, 3, "mod"),
    ];
    assert_eq!(items, expected);
}

#[test]
fn a_dump_cut_off_anywhere_is_an_error() {
    let whole = everything();
    for cut in 0..whole.len() {
        assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn any_flipped_bit_is_an_error() {
    let whole = everything();
    // The version is left out: with another one the same bytes may have no checksum.
    for at in (0..5).chain(9..whole.len()) {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            assert!(read(&bytes).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn old_dumps_have_no_checksum_and_dumps_may_be_without_one() {
    assert_eq!(read(&file(1, &[])).unwrap(), []);
    let mut unsummed = b"REDIS0009\xff".to_vec();
    unsummed.extend_from_slice(&[0; 8]);
    assert_eq!(read(&unsummed).unwrap(), []);
}

#[test]
fn what_is_no_dump_and_what_is_too_new_is_said() {
    for foreign in [&b""[..], b"REDIS", b"PK\x03\x04012345", b"REDIS+012\xff"] {
        assert!(matches!(read(foreign), Err(Error::Foreign)), "{foreign:?}");
    }
    let new = read(b"REDIS0099\xff").unwrap_err().to_string();
    assert!(new.contains("99") && new.contains("12"), "{new}");
}

#[test]
fn an_error_in_a_value_names_the_key() {
    // A listpack that says it has one more byte.
    let body = [
        vec![16],
        string("broken hash"),
        vec![7, 8, 0, 0, 0, 0, 0, 255],
    ];
    let error = read(&file(10, &body.concat())).unwrap_err().to_string();
    assert!(
        error.contains("broken hash") && error.contains("byte 22"),
        "{error}"
    );
}

#[test]
fn payloads_round_trip() {
    let long = vec![b'x'; 70_000];
    let many: Vec<Vec<u8>> = (0..20_000)
        .map(|n: u32| n.to_string().into_bytes())
        .collect();
    let values = [
        Value::String(Vec::new()),
        Value::String(long.clone()),
        Value::String(vec![0; 64]),
        Value::List(many.clone()),
        Value::Set(strings(&["a", ""])),
        Value::Zset(vec![(long, f64::NEG_INFINITY), (b"m".to_vec(), -0.1)]),
        Value::Hash(many.into_iter().map(|n| (n.clone(), n)).collect()),
    ];
    for value in values {
        assert_eq!(parse_dump(&dump(&value)).unwrap(), value);
    }
}

#[test]
fn the_payloads_of_a_real_redis_are_read() {
    // What Redis 7.0.15 answers to DUMP, in hexadecimal.
    for (hex, value) in REAL {
        assert_eq!(parse_dump(&unhex(hex)).unwrap(), value(), "{hex}");
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

/// A payload and what it holds.
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
];

#[test]
fn wrong_payloads_are_refused_each_for_its_reason() {
    let right = dump(&Value::String(b"v".to_vec()));
    let sealed = |body: &[u8]| {
        let mut bytes = [body, &[10, 0]].concat();
        let sum = crc64(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    };
    assert_eq!(sealed(&[0, 1, b'v']), right);
    for len in 0..right.len() {
        assert!(parse_dump(&right[..len]).is_err());
    }
    let mut newer = right.clone();
    newer[3] = 99;
    assert!(matches!(parse_dump(&newer), Err(Error::Version { .. })));
    let mut rotten = right.clone();
    rotten[2] ^= 1;
    assert!(matches!(parse_dump(&rotten), Err(Error::Checksum { .. })));
    let bodies: [&[u8]; 9] = [
        &[],
        &[0, 1, b'v', 0],
        &[0, 2, b'v'],
        &[1, 0],
        &[99, 0],
        &[2, 0x81, 255, 255, 255, 255, 255, 255, 255, 255],
        &[0, 0x81, 127, 255, 255, 255, 255, 255, 255, 255],
        // A compressed string of a byte that claims to be of 2^63.
        &[0, 0xc3, 2, 0x81, 128, 0, 0, 0, 0, 0, 0, 0, 0, b'x'],
        // A score that is not a number.
        &[5, 1, 1, b'm', 0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
    ];
    for body in bodies {
        assert!(parse_dump(&sealed(body)).is_err(), "{body:?}");
    }
}

#[test]
fn mutated_dumps_with_right_checksums_never_panic() {
    let seeds = [everything(), file(12, &[])];
    let mut rng = fastrand::Rng::with_seed(7);
    let mut read_well = 0;
    for _ in 0..60_000 {
        let mut body = seeds[0][9..seeds[0].len() - 9].to_vec();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..body.len());
            match rng.u8(..4) {
                0 => body[at] = rng.u8(..),
                1 => body[at] ^= 1 << rng.u8(..8),
                2 => drop(body.drain(at..(at + rng.usize(..9)).min(body.len()))),
                _ => body.insert(
                    at,
                    rng.choice([0, 1, 127, 128, 129, 192, 195, 254, 255])
                        .unwrap(),
                ),
            }
            if body.is_empty() {
                body.push(0);
            }
        }
        read_well += u32::from(read(&file(12, &body)).is_ok());
        // The same bytes as a value of every type.
        body[0] = rng.u8(..26);
        body.extend_from_slice(&[10, 0]);
        let sum = crc64(&body);
        body.extend_from_slice(&sum.to_le_bytes());
        let _ = parse_dump(&body);
    }
    assert!(read_well > 0, "some changes do not matter");
}
