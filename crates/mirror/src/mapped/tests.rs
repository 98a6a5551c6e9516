//! Compares a mapped ring with a ring in the node's memory: the same appends must give the same answers.

use super::*;

const SIZE_BYTES: u64 = 4096;

fn shared(start: u64) -> (MappedRing, Writing) {
    let ring = Ring::new(Pos(start), SIZE_BYTES).unwrap();
    let mapped = MappedRing::of(&ring, &Memories::on_heap()).unwrap();
    let writing = Writing::new(mapped.memory()).unwrap();
    (mapped, writing)
}

fn append(writing: &mut Writing, pos: u64, bytes: &[u8]) -> Result<(), RingRefusal> {
    writing.append(Pos(pos), [bytes, &[]], crc32c(bytes))
}

#[test]
fn a_mapped_ring_answers_as_one_of_the_nodes_own() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut tail = Ring::new(Pos(500), SIZE_BYTES).unwrap();
    let (mut mapped, mut writing) = shared(500);
    for round in 0..3000 {
        let bytes: Vec<u8> = (0..random.usize(1..300)).map(|_| random.u8(..)).collect();
        if tail.has_room(to_u64(bytes.len())) {
            tail.append(tail.end(), &bytes, 0).unwrap();
        }
        if random.bool() {
            tail.forget(Pos(tail.low().0 + random.u64(0..=tail.len())));
        }
        if writing.end() < tail.low() {
            mapped.restart(tail.low());
            writing = Writing::new(mapped.memory()).unwrap();
        }
        if random.u8(..) < 200 {
            let is_more_left = writing.follow(&tail).unwrap();
            assert!(!is_more_left && writing.end() <= tail.end());
        }
        if round % 500 == 499 {
            // The ring moves to the node's own memory and back, as when the writer changes its connection to the
            // node.
            let home = mapped.take_back().unwrap();
            assert_eq!(writing.closed(), Some(None));
            mapped = MappedRing::of(&home, &Memories::on_heap()).unwrap();
            writing = Writing::new(mapped.memory()).unwrap();
        }
        let (low, end) = mapped.extent().unwrap();
        assert!(low <= tail.low() && end <= tail.end());
        let from = Pos(random.u64(low.0..=end.0).max(tail.low().0));
        let (len, mut ours, mut theirs) = (random.u64(0..5000), Vec::new(), Vec::new());
        if from <= end {
            mapped.read(from, len, &mut ours).unwrap();
            let len = len.min(end.0 - from.0);
            tail.read(from, len, &mut theirs).unwrap();
            assert_eq!(ours, theirs, "from {from}");
        }
    }
    assert!(tail.end().0 > 20 * SIZE_BYTES, "it went around many times");
}

#[test]
fn a_ring_has_room_for_its_bytes_and_its_entries() {
    let (mapped, mut writing) = shared(0);
    for pos in 0..ENTRIES_MIN {
        append(&mut writing, pos, b"x").unwrap();
    }
    assert_eq!(append(&mut writing, 64, b"y"), Err(RingRefusal::Full));
    writing.forget(Pos(1));
    append(&mut writing, 64, b"y").unwrap();
    assert_eq!(mapped.extent(), Ok((Pos(1), Pos(65))));
    writing.forget(Pos(66));
    assert_eq!(mapped.extent(), Ok((Pos(1), Pos(65))), "beyond the end");
    let (_, mut writing) = shared(0);
    assert_eq!(
        append(&mut writing, 1, b"z"),
        Err(RingRefusal::Position(Pos(0)))
    );
    assert_eq!(append(&mut writing, 0, &[1; 4096]), Ok(()));
    assert_eq!(append(&mut writing, 4096, b"z"), Err(RingRefusal::Full));
}

/// A writer copies the tail in several calls. Between the calls the writer can serve its remaining connections.
#[test]
fn a_writer_that_is_far_behind_follows_its_tail_in_pieces() {
    let size = 4 * FOLLOW_BYTES_MAX;
    for (count, bytes) in [(1000, 1), (8, 1 << 18)] {
        let ring = Ring::new(Pos(0), size).unwrap();
        let mapped = MappedRing::of(&ring, &Memories::on_heap()).unwrap();
        let mut writing = Writing::new(mapped.memory()).unwrap();
        let mut tail = Ring::new(Pos(0), size).unwrap();
        for _ in 0..count {
            tail.append(tail.end(), &vec![5; bytes], 0).unwrap();
        }
        let mut ends = Vec::new();
        while writing.follow(&tail).unwrap() {
            ends.push(writing.end().0);
        }
        assert_eq!(writing.end(), tail.end());
        let expected = match bytes {
            1 => vec![256, 512, 768],
            _ => vec![FOLLOW_BYTES_MAX],
        };
        assert_eq!(ends, expected);
    }
}

#[test]
fn a_sealed_ring_stays_as_the_takeover_found_it() {
    let (mut mapped, mut writing) = shared(0);
    append(&mut writing, 0, b"abc").unwrap();
    mapped.seal(Generation(9));
    assert_eq!(writing.closed(), Some(Some(Generation(9))));
    append(&mut writing, 3, b"late").unwrap();
    assert_eq!(mapped.extent(), Ok((Pos(0), Pos(3))));
    let mut bytes = Vec::new();
    mapped.read(Pos(0), 100, &mut bytes).unwrap();
    assert_eq!(bytes, b"abc");
    mapped.seal(Generation(10));
    assert_eq!(writing.closed(), Some(Some(Generation(9))));
}

/// The node gives an answer for any values in the memory, and never returns bytes with a wrong checksum.
#[test]
fn memory_that_says_what_cannot_be_is_refused() {
    let mut random = fastrand::Rng::with_seed(8);
    let (mut refused, mut returned) = (0, 0);
    for _ in 0..20_000 {
        let (mapped, mut writing) = shared(4096);
        for number in 0..5 {
            append(&mut writing, 4096 + number * 100, &[b'a'; 100]).unwrap();
        }
        let memory = mapped.memory();
        let words = [
            START,
            LOW,
            COUNT,
            4096,
            4104,
            4112,
            4096 + 4 * 32,
            4104 + 4 * 32,
        ];
        for _ in 0..random.usize(1..4) {
            let word = match random.u8(..4) {
                0 => random.u64(..),
                1 => random.u64(..10_000),
                2 => u64::MAX - random.u64(..3),
                _ => 4096 + random.u64(..600),
            };
            memory.store(words[random.usize(..words.len())], word);
        }
        if random.bool() {
            memory.write(8192 + random.usize(..4096), &[random.u8(..)]);
        }
        match mapped.extent() {
            Err(_) => refused += 1,
            Ok((low, end)) => {
                assert!(low <= end && end.0 - low.0 <= SIZE_BYTES);
                let mut bytes = Vec::new();
                let read = mapped.read(low, SIZE_BYTES, &mut bytes);
                assert!(to_u64(bytes.len()) <= end.0 - low.0);
                refused += u32::from(read.is_err());
                returned += u32::from(bytes == [b'a'; 500]);
                let _must_not_panic = mapped.take_back();
            }
        }
    }
    assert!(refused > 1000 && returned > 1000, "{refused} {returned}");
}

#[test]
fn memory_that_holds_no_ring_is_refused_by_the_writer() {
    let (mapped, _) = shared(0);
    let good = mapped.memory();
    let mut image = vec![0; good.len()];
    good.read(0, &mut image);
    for (at, word) in [
        (0, 1),
        (SIZE, 0),
        (SIZE, u64::MAX),
        (ENTRIES, 0),
        (ENTRIES, 1 << 60),
        (SIZE, 4097),
    ] {
        let memory = crate::shared::HeapMemory::new(image.len());
        memory.write(0, &image);
        memory.store(at, word);
        assert!(Writing::new(Arc::new(memory)).is_err(), "{at}: {word}");
    }
    let short = crate::shared::HeapMemory::new(100);
    assert!(Writing::new(Arc::new(short)).is_err());
}

#[test]
fn the_memory_is_laid_out_as_the_page_says() {
    let (mut mapped, mut writing) = shared(8000);
    append(&mut writing, 8000, &[7; 300]).unwrap();
    append(&mut writing, 8300, b"end").unwrap();
    writing.forget(Pos(8300));
    mapped.seal(Generation(5));
    let memory = mapped.memory();
    assert_eq!(memory.len(), 4096 + 4096 + 4096);
    let word = |at: usize| memory.load(at);
    assert_eq!(word(0).to_le_bytes(), *b"PRNG\x01\0\0\0");
    assert_eq!([word(8), word(16), word(24)], [4096, 64, 8000]);
    assert_eq!([word(64), word(128), word(192)], [5, 8300, 2]);
    assert_eq!([word(4128), word(4136)], [8300, 8303]);
    assert_eq!(word(4144), u64::from(crc32c(b"end")));
    let mut bytes = [0; 3];
    memory.read(8192 + 8300 - 2 * 4096, &mut bytes);
    assert_eq!(&bytes, b"end");
}

/// The node has read *count*. Then the writer's table is full, and the writer replaces the oldest entry.
#[test]
fn an_entry_that_was_replaced_meanwhile_is_no_damage() {
    let (mapped, mut writing) = shared(0);
    for pos in 0..ENTRIES_MIN {
        append(&mut writing, pos, b"x").unwrap();
    }
    writing.forget(Pos(1));
    append(&mut writing, ENTRIES_MIN, b"y").unwrap();
    mapped.memory().store(COUNT, ENTRIES_MIN);
    let mut bytes = Vec::new();
    mapped.read(Pos(1), 100, &mut bytes).unwrap();
    assert_eq!(bytes, [b'x'; 63]);
}
