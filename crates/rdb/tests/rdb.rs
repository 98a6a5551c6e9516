//! Tests of whole dump files and payloads, valid and damaged.

mod rdb {
    mod real;
}

use perdura_rdb::{
    Entry, Error, File, Item, Stream, StreamConsumer, StreamEntry, StreamGroup, StreamId,
    StreamPending, Value, What, dump, parse_dump,
};

/// Returns the checksum that dumps use, computed bit by bit.
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

fn id_bytes((ms, seq): StreamId) -> Vec<u8> {
    [ms.to_be_bytes(), seq.to_be_bytes()].concat()
}

/// Returns a dump with values of most types and most kinds of opcodes.
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
        vec![0, 0, 5, 7, 0, 0, 5, 7, 1, 1],
        string("group"),
        vec![5, 7, 0, 1],
        id_bytes((5, 7)),
        vec![9, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 1],
        string("consumer"),
        vec![8, 0, 0, 0, 0, 0, 0, 0],
        vec![1],
        id_bytes((5, 7)),
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

fn consumer(name: &str, seen_ms: u64, pending: &[(StreamId, u64, u64)]) -> StreamConsumer {
    let pending = pending
        .iter()
        .map(|&(id, delivered_ms, deliveries)| StreamPending {
            id,
            delivered_ms,
            deliveries,
        });
    StreamConsumer {
        name: name.as_bytes().to_vec(),
        seen_ms,
        pending: pending.collect(),
    }
}

fn entry(id: StreamId, texts: &[&str]) -> StreamEntry {
    let pairs = texts.chunks(2).map(|pair| {
        let [field, value] = [pair[0], pair[1]].map(|text| text.as_bytes().to_vec());
        (field, value)
    });
    StreamEntry {
        id,
        pairs: pairs.collect(),
    }
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
        Item::Library(b"#!lua name=lib".to_vec()),
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
        key(
            "st",
            None,
            Value::Stream(Stream {
                entries: Vec::new(),
                last: (5, 7),
                deleted_max: (5, 7),
                added: 1,
                groups: vec![StreamGroup {
                    name: b"group".to_vec(),
                    last: (5, 7),
                    read: Some(0),
                    consumers: vec![consumer("consumer", 8, &[((5, 7), 9, 1)])],
                }],
            }),
        ),
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
    // The version is not changed: in another version, the same bytes may have no checksum.
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
    // A listpack whose length is one byte too great.
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
    for seed in 0..500 {
        let value = Value::Stream(any_stream(&mut fastrand::Rng::with_seed(seed)));
        assert_eq!(parse_dump(&dump(&value)).unwrap(), value, "seed {seed}");
    }
}

/// Returns a random stream of several nodes, with groups. Some pending entries of groups are deleted from the stream.
fn any_stream(rng: &mut fastrand::Rng) -> Stream {
    let mut stream = Stream::default();
    let texts = [
        "",
        "f",
        "12",
        "-7",
        "a longer text, which is no number",
        "007",
    ];
    let word = |rng: &mut fastrand::Rng| rng.choice(texts).unwrap();
    for _ in 0..rng.usize(..400) {
        let (ms, seq) = stream.last;
        stream.last = match rng.u8(..4) {
            0 => (ms + rng.u64(1..1 << 50), rng.u64(..)),
            _ => (ms + u64::from(seq == u64::MAX), seq.wrapping_add(1)),
        };
        let words: Vec<&str> = match rng.u8(..3) {
            0 => (0..2 * rng.usize(1..4)).map(|_| word(rng)).collect(),
            _ => vec!["field", word(rng), "other", word(rng)],
        };
        stream.entries.push(entry(stream.last, &words));
    }
    stream.entries.retain(|_| rng.u8(..8) > 0);
    stream.added = rng.u64(..);
    stream.deleted_max = (rng.u64(..), rng.u64(..));
    for group in 0..rng.usize(..4) {
        let name = format!("group {group}").into_bytes();
        let mut ids: Vec<StreamId> = (0..rng.u64(..50)).map(|n| (n / 5, n % 5)).collect();
        rng.shuffle(&mut ids);
        let consumers = (0..rng.usize(..4)).map(|number| {
            let mut own = ids.split_off(ids.len().saturating_sub(rng.usize(..20)));
            own.sort_unstable();
            let pending = own.into_iter().map(|id| (id, rng.u64(..), rng.u64(..)));
            let pending: Vec<_> = pending.collect();
            consumer(&number.to_string(), rng.u64(..), &pending)
        });
        let consumers = consumers.collect();
        stream.groups.push(StreamGroup {
            name,
            last: (rng.u64(..), rng.u64(..)),
            read: Some(rng.u64(..)).filter(|read| read % 3 > 0),
            consumers,
        });
    }
    stream
}

#[test]
fn older_and_newer_streams_say_less_and_more() {
    let group = [
        vec![1],
        string("g"),
        vec![5, 1, 1],
        id_bytes((5, 1)),
        vec![9, 0, 0, 0, 0, 0, 0, 0, 2, 1],
        string("c"),
        vec![8, 0, 0, 0, 0, 0, 0, 0],
    ];
    let node = [vec![1, 16], id_bytes((5, 1)), vec![29], unhex(ONE_ENTRY)].concat();
    let of_old = [vec![15], node, vec![1, 5, 1], group.concat()].concat();
    let tail = [vec![1], id_bytes((5, 1))].concat();
    let old = sealed(&[of_old.clone(), tail.clone()].concat());
    let Ok(Value::Stream(stream)) = parse_dump(&old) else {
        panic!("{:?}", parse_dump(&old));
    };
    assert_eq!(stream.entries, [entry((5, 1), &["f", "v"])]);
    assert_eq!((stream.added, stream.deleted_max), (1, (0, 0)));
    assert_eq!(stream.groups[0].read, Some(1), "found, as Redis does it");
    assert_eq!(
        stream.groups[0].consumers,
        [consumer("c", 8, &[((5, 1), 9, 2)])]
    );
    // Type 21 has five fields that type 15 lacks. Behind the last id: the first id, the greatest deleted id and the
    // number of entries added. Also, the number of entries that the group has read, and the consumer's last activity.
    let mut new = of_old;
    new[0] = 21;
    let at = new.len() - group.concat().len();
    new.splice(at..at, [5, 1, 0, 0, 1]);
    let at = new.iter().rposition(|byte| *byte == b'g').unwrap() + 3;
    new.insert(at, 1);
    new.extend_from_slice(&[7; 8]);
    new.extend_from_slice(&tail);
    assert_eq!(parse_dump(&sealed(&new)).unwrap(), Value::Stream(stream));
}

/// A node with one entry of one field.
const ONE_ENTRY: &str = "1d0000000a0001010001010181660200010201000100018176020401ff";

#[test]
fn damaged_streams_are_refused() {
    let sound = Stream {
        entries: vec![entry((1, 1), &["f", "v"]), entry((1, 2), &["f", "w"])],
        last: (1, 2),
        deleted_max: (0, 0),
        added: 2,
        groups: vec![StreamGroup {
            name: b"g".to_vec(),
            last: (1, 2),
            read: Some(2),
            consumers: vec![
                consumer("a", 5, &[((1, 1), 6, 1)]),
                consumer("b", 5, &[((1, 2), 6, 1)]),
            ],
        }],
    };
    assert!(parse_dump(&dump(&Value::Stream(sound.clone()))).is_ok());
    let damages: [fn(&mut Stream); 6] = [
        |stream| stream.last = (1, 1),
        |stream| stream.entries.swap(0, 1),
        |stream| stream.entries[0].id = (0, 0),
        |stream| stream.groups.push(stream.groups[0].clone()),
        |stream| stream.groups[0].consumers[1].name = b"a".to_vec(),
        |stream| stream.groups[0].consumers[1].pending[0].id = (1, 1),
    ];
    for (number, damage) in damages.iter().enumerate() {
        let mut stream = sound.clone();
        damage(&mut stream);
        let parsed = parse_dump(&dump(&Value::Stream(stream)));
        assert!(
            matches!(parsed, Err(Error::Corrupt { .. })),
            "{number}: {parsed:?}"
        );
    }
    // A pending entry that no consumer has.
    let mut body = dump(&Value::Stream(Stream {
        groups: vec![StreamGroup {
            name: b"g".to_vec(),
            last: (0, 0),
            read: None,
            consumers: Vec::new(),
        }],
        ..Stream::default()
    }));
    body.truncate(body.len() - 12);
    body.push(1);
    body.extend_from_slice(&[0; 25]);
    body.push(0);
    assert!(matches!(
        parse_dump(&sealed(&body)),
        Err(Error::Corrupt { .. })
    ));
    // A field name of a million bytes that a thousand entries share. Unpacked, the entries take far more than the bytes
    // that were read.
    let names = vec![b'n'; 1_000_000];
    let mut node = vec![0; 6];
    node.extend_from_slice(&[0xf1, 0xe8, 3, 3, 0, 1, 1, 1, 0xf0]);
    node.extend_from_slice(&1_000_000_u32.to_le_bytes());
    node.extend_from_slice(&names);
    node.extend_from_slice(&[0; 3]);
    node.extend_from_slice(&[0, 1]);
    for seq in 0..1000_u16 {
        node.extend_from_slice(&[2, 1, 0, 1, 0xf1]);
        node.extend_from_slice(&seq.to_le_bytes());
        node.extend_from_slice(&[3, 0, 1, 4, 1]);
    }
    node.push(255);
    let total = u32::try_from(node.len()).unwrap();
    node[..4].copy_from_slice(&total.to_le_bytes());
    node[4..6].copy_from_slice(&[255; 2]);
    let body = [
        vec![19, 1, 16],
        id_bytes((1, 1)),
        [&[0x80][..], &total.to_be_bytes()].concat(),
        node,
        vec![0x43, 0xe8, 1, 0x47, 0xd0, 1, 1, 0, 0, 0x43, 0xe8, 0],
    ];
    let text = parse_dump(&sealed(&body.concat())).unwrap_err().to_string();
    assert!(text.contains("a node of a stream is damaged"), "{text}");
}

/// Returns the payload of `body`, a type byte and a value.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = [body, &[10, 0]].concat();
    let sum = crc64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

#[test]
fn wrong_payloads_are_refused_each_for_its_reason() {
    let right = dump(&Value::String(b"v".to_vec()));
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
        // A compressed string of one byte that claims a length of 2^63.
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
        // These bytes are also read as a payload, with a random type byte.
        body[0] = rng.u8(..26);
        body.extend_from_slice(&[10, 0]);
        let sum = crc64(&body);
        body.extend_from_slice(&sum.to_le_bytes());
        let _ = parse_dump(&body);
    }
    assert!(read_well > 0, "some changes do not matter");
}
