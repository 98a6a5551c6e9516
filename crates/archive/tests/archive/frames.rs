//! Tests of the ordered frames that runs carry.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_archive::{
    Codec, FrameAt, FrameEntry, FrameOrPlace, Merge, MergeOptions, Moments, Run, RunHeader, RunId,
    RunWriter,
};
use perdura_base::{Epoch, Error, PartitionId, Pos, Result};
use perdura_device::{Access, Disk};
use perdura_formats::ordered::{CommandFrame, Part, encode_command, encode_head};
use perdura_page::RegionDigest;
use perdura_wal::FrameKind;

use crate::common::{CHUNKS, DIR, Owned, disk, header, id, open, random, records};

/// A frame of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    pub epoch: u64,
    pub parts: Vec<Part>,
    pub kind: FrameKind,
    pub payload: Vec<u8>,
}

impl Logged {
    fn command(epoch: u64, parts: &[Part], args: &[u8]) -> Logged {
        let mut payload = Vec::new();
        let command = CommandFrame {
            procedure: 7,
            time_ms: 1,
            args,
            effects_hash: None,
        };
        encode_command(&mut payload, parts, &command);
        let (parts, kind) = (parts.to_vec(), FrameKind::Command);
        Logged {
            epoch,
            parts,
            kind,
            payload,
        }
    }

    fn effects(epoch: u64, parts: &[Part]) -> Logged {
        let mut payload = Vec::new();
        encode_head(&mut payload, parts, false);
        let (parts, kind) = (parts.to_vec(), FrameKind::Effects);
        Logged {
            epoch,
            parts,
            kind,
            payload,
        }
    }

    fn place(&self, part: usize) -> FrameAt {
        let (partition, number) = self.parts[part];
        FrameAt { partition, number }
    }

    /// Returns the entries of the frame.
    fn entries(&self) -> impl Iterator<Item = FrameEntry<'_>> {
        (0..self.parts.len()).map(|part| FrameEntry {
            at: self.place(part),
            epoch: Epoch(self.epoch),
            carried: match part {
                0 => FrameOrPlace::Frame {
                    kind: self.kind,
                    payload: &self.payload,
                },
                _ => FrameOrPlace::Elsewhere(self.place(0)),
            },
        })
    }
}

fn part(partition: u16, number: u64) -> Part {
    (PartitionId(partition), number)
}

/// Draws the frames of a log. `numbers` has the last number of each partition, and is moved on.
fn log(
    rng: &mut fastrand::Rng,
    epochs: std::ops::Range<u64>,
    count: usize,
    numbers: &mut BTreeMap<u16, u64>,
) -> Vec<Logged> {
    let mut at: Vec<u64> = (0..count).map(|_| rng.u64(epochs.clone())).collect();
    at.sort_unstable();
    let mut draw = |epoch: u64| {
        let mut parts: Vec<Part> = Vec::new();
        for partition in 0..CHUNKS.partitions {
            if rng.u8(..3) == 0 {
                let number = numbers.entry(partition).or_insert(0);
                *number += 1;
                parts.push(part(partition, *number));
            }
        }
        if parts.is_empty() {
            let number = numbers.entry(2).or_insert(0);
            *number += 1;
            parts.push(part(2, *number));
        }
        match rng.u8(..40) {
            0..15 => Logged::effects(epoch, &parts),
            15 => Logged::command(epoch, &parts, &vec![rng.u8(..); 150_000]),
            _ => Logged::command(epoch, &parts, &[rng.u8(..), rng.u8(..)]),
        }
    };
    at.into_iter().map(&mut draw).collect()
}

fn carrying(id: RunId) -> RunHeader {
    RunHeader {
        carries_frames: true,
        ..header(id)
    }
}

/// Writes a run of records and frames.
fn write(
    disk: &Arc<dyn Disk>,
    id: RunId,
    codec: Codec,
    of: (&[Owned], &[Logged]),
) -> Result<Arc<Run>> {
    let digest = Arc::new(RegionDigest::new());
    let mut writer = RunWriter::create(Arc::clone(disk), DIR, carrying(id), codec, digest)?;
    for record in of.0 {
        writer.push(&record.record())?;
    }
    let mut entries: Vec<FrameEntry<'_>> = of.1.iter().flat_map(Logged::entries).collect();
    entries.sort_unstable_by_key(|entry| entry.at);
    for entry in &entries {
        writer.push_frame(entry)?;
    }
    let summary = writer.finish(&Moments::default(), &[Pos(8192)])?.run()?;
    assert_eq!(summary.frames, of.1.len() as u64);
    open(disk, id)
}

/// Reads the frames of some epochs, epoch by epoch, with windows of about `window` bytes.
fn by_epoch(
    run: &Arc<Run>,
    epochs: (u64, u64),
    window: u64,
) -> Result<Vec<(u64, FrameKind, Vec<u8>)>> {
    let mut frames = run
        .frames_by_epoch(Epoch(epochs.0), Epoch(epochs.1))
        .within(window);
    let (mut list, mut last) = (Vec::new(), None);
    loop {
        let mut of_epoch = None;
        let is_left = frames.next_epoch(|frame| {
            assert!(
                of_epoch
                    .replace(frame.epoch)
                    .is_none_or(|epoch| epoch == frame.epoch)
            );
            list.push((frame.epoch.0, frame.kind, frame.payload.to_vec()));
            Ok(())
        })?;
        if !is_left {
            return Ok(list);
        }
        assert!(last < of_epoch, "epochs rise: {last:?}, {of_epoch:?}");
        last = of_epoch;
    }
}

/// Returns the frames of a log as [`by_epoch`] does.
fn expected(log: &[Logged], (from, to): (u64, u64)) -> Vec<(u64, FrameKind, Vec<u8>)> {
    let mut of: Vec<&Logged> = log
        .iter()
        .filter(|frame| (from..=to).contains(&frame.epoch))
        .collect();
    of.sort_by_key(|frame| (frame.epoch, frame.place(0)));
    let one = |frame: &&Logged| (frame.epoch, frame.kind, frame.payload.clone());
    of.iter().map(one).collect()
}

#[test]
fn frames_come_back_epoch_by_epoch_with_windows_of_every_size() {
    for seed in 0..12 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let codec = Codec::ALL[rng.usize(..3)];
        let count = [0, 1, 30, 400, 3_000][rng.usize(..5)];
        let mut numbers = BTreeMap::from([(0, 300), (3, 1 << 40)]);
        let log = log(&mut rng, 10..60, count, &mut numbers);
        let rows = random(&mut rng, 10..60, 20);
        let disk = disk();
        let run = write(&disk, id(10, 60, 0, 0), codec, (&rows, &log)).expect("memory");
        run.verify(&RegionDigest::new()).expect("whole");
        assert_eq!(
            records(&run, &perdura_archive::Scope::All).expect("whole"),
            rows
        );
        let frames = run.frames().expect("it carries frames");
        assert_eq!(frames.count, log.len() as u64);
        for (partition, of_run) in &frames.numbers {
            assert_eq!(Some(&of_run.last()), numbers.get(&partition.0));
        }
        for window in [1, 5_000, 1 << 20, u64::MAX] {
            for epochs in [(0, u64::MAX - 1), (20, 40), (33, 33), (60, 90)] {
                let found = by_epoch(&run, epochs, window).expect("whole");
                assert_eq!(
                    found,
                    expected(&log, epochs),
                    "seed {seed}, {epochs:?}, {window}"
                );
            }
        }
    }
}

#[test]
fn a_merged_run_has_the_frames_of_its_inputs() {
    let disk = disk();
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut numbers, mut all, mut inputs) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (begin, end, count) in [(1, 20, 50), (20, 21, 0), (21, 60, 700), (60, 61, 5)] {
        let log = log(&mut rng, begin..end, count, &mut numbers);
        let run = write(&disk, id(begin, end, 0, 0), Codec::Lz4, (&[], &log));
        inputs.push(run.expect("memory"));
        all.extend(log);
    }
    let digest = || Arc::new(RegionDigest::new());
    let merge = |options, inputs: &[Arc<Run>]| {
        let merge = Merge::new(Arc::clone(&disk), DIR, inputs.to_vec(), options, digest())?;
        open(&disk, merge.run()?.id)
    };
    let merged = merge(MergeOptions::default(), &inputs).expect("memory");
    merged.verify(&RegionDigest::new()).expect("whole");
    let everything = (0, 1000);
    let found = by_epoch(&merged, everything, 10_000).expect("whole");
    assert_eq!(found, expected(&all, everything));

    // The epochs before the begin are left out.
    let begin = Some(Epoch(30));
    let options = MergeOptions {
        begin,
        ..MergeOptions::default()
    };
    let rest = merge(options, &inputs[2..]).expect("memory");
    rest.verify(&RegionDigest::new()).expect("whole");
    let found = by_epoch(&rest, everything, 10_000).expect("whole");
    assert_eq!(found, expected(&all, (30, 1000)));
}

/// A frame that is missing between two runs, or in one, is named by its partition and number.
#[test]
fn a_gap_in_the_numbers_is_refused() {
    let disk = disk();
    let log: Vec<Logged> = (1..9).map(|n| Logged::effects(n, &[part(1, n)])).collect();
    let gap = write(
        &disk,
        id(1, 9, 0, 0),
        Codec::None,
        (&[], &[&log[..2], &log[3..]].concat()),
    );
    let refused = gap.map(drop).expect_err("number 3 is missing").to_string();
    assert!(refused.contains("number 3 of partition 1"), "{refused}");
    let parts = [(1, 4, &log[..3]), (4, 9, &log[4..])];
    let runs = parts.map(|(begin, end, log)| {
        let id = id(begin, end, 0, 1);
        write(&disk, id, Codec::None, (&[], log)).expect("memory")
    });
    let digest = Arc::new(RegionDigest::new());
    let merge = Merge::new(
        Arc::clone(&disk),
        DIR,
        runs.to_vec(),
        MergeOptions::default(),
        digest,
    );
    let refused = merge.and_then(Merge::run).map(drop).expect_err("a gap");
    assert!(
        refused.to_string().contains("number 4 of partition 1"),
        "{refused}"
    );
}

/// A frame without the entry of one of its partitions, or with a wrong one, is noticed.
#[test]
fn a_frame_has_an_entry_in_each_of_its_partitions() {
    let frame = Logged::command(5, &[part(0, 1), part(2, 1), part(3, 1)], b"args");
    let entries: Vec<FrameEntry<'_>> = frame.entries().collect();
    let wrong = FrameEntry {
        carried: FrameOrPlace::Elsewhere(FrameAt {
            partition: PartitionId(1),
            number: 1,
        }),
        ..entries[2]
    };
    let lists: [(&[FrameEntry<'_>], bool); 5] = [
        (&entries, true),
        (&entries[..2], false),
        (&entries[1..], false),
        (&[entries[0], entries[1], wrong], false),
        (&[], true),
    ];
    for (entries, is_whole) in lists {
        let disk = disk();
        let digest = Arc::new(RegionDigest::new());
        let header = carrying(id(1, 9, 0, 0));
        let writer = RunWriter::create(Arc::clone(&disk), DIR, header, Codec::None, digest);
        let mut writer = writer.expect("memory");
        for entry in entries {
            writer.push_frame(entry).expect("memory");
        }
        let tail = writer
            .finish(&Moments::default(), &[Pos(8192)])
            .expect("memory");
        tail.run().expect("memory");
        let run = open(&disk, header.id).expect("its parts are whole");
        let verified = run.verify(&RegionDigest::new());
        assert_eq!(verified.is_ok(), is_whole, "{entries:?}");
    }
}

#[test]
fn every_flipped_bit_of_a_run_with_frames_is_refused() {
    let region = RegionDigest::new();
    let log = [
        Logged::command(11, &[part(0, 4), part(3, 9)], &[5; 40]),
        Logged::effects(12, &[part(3, 10)]),
        Logged::effects(12, &[part(1, 1)]),
    ];
    for codec in Codec::ALL {
        let disk = disk();
        let id = id(10, 20, 0, 0);
        let row = Owned::one((3, 40), 11, 6, 90, 100, &[7; 300]);
        let run = write(&disk, id, codec, (&[row], &log)).expect("memory");
        let len = usize::try_from(run.bytes()).expect("small");
        assert_eq!(len, 4096);
        let file = disk.open(&id.path(DIR), Access::Buffered).expect("the run");
        let mut bytes = vec![0; len];
        file.read_at(0, &mut bytes).expect("memory");
        for (offset, byte) in (0u64..).zip(&bytes) {
            for bit in 0..8 {
                file.write_at(offset, &[byte ^ 1 << bit]).expect("memory");
                let read = open(&disk, id).and_then(|run| run.verify(&region));
                let is_noticed = matches!(read, Err(Error::Corrupt(_) | Error::Foreign { .. }));
                assert!(is_noticed, "bit {bit} of byte {offset}");
            }
            file.write_at(offset, &[*byte]).expect("memory");
        }
        open(&disk, id)
            .and_then(|run| run.verify(&region))
            .expect("whole again");
    }
}

#[test]
fn the_frames_of_the_format_page_are_written_and_read() {
    const PAGE: &str = include_str!("../../../../docs/formats/run.md");
    let disk = disk();
    let log = [
        Logged::command(1001, &[part(1, 300), part(2, 7)], &[1, 2]),
        Logged::effects(1003, &[part(2, 8)]),
    ];
    let id = id(1000, 1004, 0, 8);
    let run = write(&disk, id, Codec::None, (&[], &log)).expect("memory");
    let len = usize::try_from(run.bytes()).expect("small");
    let mut bytes = vec![0; len];
    let file = disk.open(&id.path(DIR), Access::Buffered).expect("the run");
    file.read_at(0, &mut bytes).expect("memory");
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let blocks = PAGE.split("```text hex").skip(6).map(|rest| {
        let block = rest.split("```").next().expect("its end");
        block
            .chars()
            .filter(char::is_ascii_hexdigit)
            .collect::<String>()
    });
    let block = run.frames().expect("frames").blocks[0];
    let at = |offset: u64| usize::try_from(offset).expect("small");
    let footer = &bytes[len - 128..];
    let size = u32::from_le_bytes(footer[112..116].try_into().expect("four"));
    let part_of = |nth: usize| {
        let from = len - 128 + 32 + 16 * nth;
        let field = |at: usize| &bytes[from + at..];
        let offset = u64::from_le_bytes(field(0)[..8].try_into().expect("eight"));
        let size = u32::from_le_bytes(field(8)[..4].try_into().expect("four"));
        at(offset) + at(u64::from(size))
    };
    let part = &bytes[part_of(4)..][..at(u64::from(size))];
    let found = [
        hex(&bytes[at(block.offset)..at(block.end())]),
        hex(part),
        hex(&footer[112..]),
    ];
    assert_eq!(blocks.collect::<Vec<_>>(), found);
}
