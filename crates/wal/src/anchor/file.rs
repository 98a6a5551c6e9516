//! The anchor's file. An update writes and syncs one copy before it touches the next.

use std::collections::VecDeque;
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{round_up, to_u64, to_usize};
use perdura_base::{Error, Result};
use perdura_device::{Access, AlignedBuf, Disk, File};

use super::copies::{Chosen, Copies, SECTOR};
use super::{ANCHOR_PATH, COPY_BYTES, Record};
use crate::failure::Failure;

/// The anchor's file, open for updates.
///
/// A copy-on-write file system may refuse the *write* of a copy for want of space. Such a write can be repeated: the
/// refused copy is written again before the next copy is touched. A failed sync is final.
///
/// Even a copy that reads as whole may not be durable: after a failed sync the system may return bytes that the disk
/// does not have. At most one copy can be in that state, because a copy is synced before the next copy is touched. If
/// the copies are equal, only the second copy can be in that state. If the first copy is newer, only the first copy can
/// be. So the first update of a life begins by rewriting the second copy with the record that was read. The update
/// skips this step if the first copy is newer, or if only the first copy is damaged.
pub struct AnchorFile {
    file: Arc<dyn File>,
    writes: parking_lot::Mutex<Writes>,
}

/// The writes that are still to be made.
#[derive(Default)]
struct Writes {
    /// The copies to write and sync, in this order. Each entry has the copy's number and its new bytes.
    due: VecDeque<(u64, Arc<AlignedBuf>)>,
    /// True after a failed sync, and after a failed write that may not be repeated.
    failed: bool,
}

impl AnchorFile {
    /// Creates the file for a new database and writes the two copies.
    pub fn create(disk: &dyn Disk, record: &Record) -> Result<AnchorFile> {
        let tmp = format!("{ANCHOR_PATH}.tmp");
        match disk.remove(&tmp) {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = disk.create(&tmp, Access::Direct)?;
        file.allocate(to_u64(2 * COPY_BYTES))?;
        let anchor_file = AnchorFile {
            file,
            writes: parking_lot::Mutex::default(),
        };
        anchor_file.write(record)?;
        disk.rename(&tmp, ANCHOR_PATH)?;
        disk.sync_dir("")?;
        Ok(anchor_file)
    }

    /// Reads the record like [`open`](Self::open), but returns no handle to change the file.
    ///
    /// # Errors
    /// Fails like [`open`](Self::open).
    pub fn read(disk: &dyn Disk) -> Result<Option<Record>> {
        let chosen = AnchorFile::choose(disk)?;
        Ok(chosen.map(|(_, chosen)| chosen.record))
    }

    /// Returns the file, and the record chosen from its copies.
    fn choose(disk: &dyn Disk) -> Result<Option<(Arc<dyn File>, Chosen)>> {
        let file = match disk.open(ANCHOR_PATH, Access::Direct) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let chosen = Copies::read(file.as_ref())?.choose()?;
        Ok(Some((file, chosen)))
    }

    /// Opens the file. Returns the newer whole record, or the record combined from two damaged copies of one update.
    /// The strings describe damaged and stale copies; the next update writes the two copies. Returns `Ok(None)` if
    /// there is no database here.
    pub fn open(disk: &dyn Disk) -> Result<Option<(AnchorFile, Record, Vec<String>)>> {
        let Some((file, chosen)) = AnchorFile::choose(disk)? else {
            return Ok(None);
        };
        // The second copy is written with the first update, because opening alone must change nothing.
        let doubtful = chosen.second_is_doubtful;
        let writes = Writes {
            due: doubtful
                .then(|| (1, sectors(&chosen.record)))
                .into_iter()
                .collect(),
            failed: false,
        };
        let anchor_file = AnchorFile {
            file,
            writes: parking_lot::Mutex::new(writes),
        };
        Ok(Some((anchor_file, chosen.record, chosen.notes)))
    }

    /// Writes the two copies in turn, with a sync after each copy. The record is durable on return.
    ///
    /// # Errors
    /// [`Failure::Delay`]: the update is incomplete, and a copy of the record may be durable already.
    /// [`finish`](Self::finish) or the next call completes the update first. After [`Failure::Final`] nothing more is
    /// written in this life.
    pub fn write(&self, record: &Record) -> Result<(), Failure> {
        let mut writes = self.writes.lock();
        let bytes = sectors(record);
        let copies = [0, 1].map(|copy| (copy, Arc::clone(&bytes)));
        writes.due.extend(copies);
        self.write_due(&mut writes, 0)
    }

    /// Writes the last record of a life with one sync: the first copy is written and synced, the second only written.
    /// A life that finds two equal copies begins by rewriting the second copy, and so does the next life. If this life
    /// updates the anchor once more, that update first writes and syncs the second copy. The record is durable on
    /// return.
    ///
    /// # Errors
    /// Fails like [`write`](Self::write).
    pub fn write_last(&self, record: &Record) -> Result<(), Failure> {
        let mut writes = self.writes.lock();
        let bytes = sectors(record);
        writes
            .due
            .extend([0, 1].map(|copy| (copy, Arc::clone(&bytes))));
        self.write_due(&mut writes, 1)?;
        let (_, second) = &writes.due[0];
        let written = self.file.write_at(to_u64(COPY_BYTES), second);
        written.map_err(Failure::of_write)
    }

    /// Completes an update that was delayed. The record is durable on return.
    ///
    /// # Errors
    /// Fails like [`write`](Self::write).
    pub fn finish(&self) -> Result<(), Failure> {
        self.write_due(&mut self.writes.lock(), 0)
    }

    /// Writes and syncs the copies in `due`, except the last `left` copies.
    fn write_due(&self, writes: &mut Writes, left: usize) -> Result<(), Failure> {
        if writes.failed {
            let why = "an earlier update of the anchor failed";
            return Err(Failure::Final(Error::Stopped(why.into())));
        }
        while writes.due.len() > left
            && let Some((copy, bytes)) = writes.due.front()
        {
            let written = self
                .file
                .write_at(copy * to_u64(COPY_BYTES), bytes)
                .map_err(Failure::of_write)
                .and_then(|()| match armed(Flaw::AnchorOneSync) && *copy == 0 {
                    true => Ok(()),
                    false => self.file.sync().map_err(Failure::Final),
                });
            writes.failed = matches!(written, Err(Failure::Final(_)));
            written?;
            writes.due.pop_front();
        }
        Ok(())
    }
}

/// Returns the bytes of a copy, padded to whole sectors.
fn sectors(record: &Record) -> Arc<AlignedBuf> {
    let bytes = record.encode();
    let room = to_usize(round_up(to_u64(bytes.len()), SECTOR));
    let mut sectors = AlignedBuf::with_room(room);
    sectors.push(&bytes);
    sectors.push(&[0; SECTOR_BYTES][..room - bytes.len()]);
    Arc::new(sectors)
}

#[cfg(test)]
mod tests {
    use perdura_base::checksum::crc32c;
    use perdura_base::limits::STREAMS_MAX;
    use perdura_base::{Epoch, Incarnation, Pos};
    use perdura_device::{MemDisk, SimDisk};

    use super::super::codec::SCHEME_OFFSET;
    use super::super::tests::example;
    use super::super::{ChainLink, Tag};
    use super::*;
    use crate::scheme::Scheme;

    #[test]
    fn one_damaged_copy_never_takes_the_database_back_in_time() {
        let disk = MemDisk::new();
        let mut record = example();
        let file = AnchorFile::create(&disk, &record).unwrap();
        record.history.seq = 2;
        record.history.incarnation = Incarnation(2);
        file.write(&record).unwrap();
        let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
        let len = record.encode().len();
        for copy in 0..2 {
            for at in 0..len {
                let at = to_u64(copy * COPY_BYTES + at);
                let mut byte = [0];
                raw.read_at(at, &mut byte).unwrap();
                raw.write_at(at, &[byte[0] ^ 1]).unwrap();
                let (_, back, notes) = AnchorFile::open(&disk).unwrap().unwrap();
                assert_eq!(back, record, "byte {at}");
                assert_eq!(notes.len(), 1, "byte {at}");
                raw.write_at(at, &byte).unwrap();
            }
        }
    }

    #[test]
    fn the_last_record_of_a_life_takes_one_sync_and_the_next_life_begins_with_the_second_copy() {
        let disk = SimDisk::new(7);
        let mut record = example();
        drop(AnchorFile::create(disk.as_ref(), &record).unwrap());
        let (file, ..) = AnchorFile::open(disk.as_ref()).unwrap().unwrap();
        record.history.seq = 2;
        file.write(&record).unwrap();
        assert_eq!(disk.pending_ops(), 0, "both copies are durable");
        record.history.seq = 3;
        file.write_last(&record).unwrap();
        assert_eq!(disk.pending_ops(), 1, "the second copy is not");
        let (next, read, notes) = AnchorFile::open(disk.as_ref()).unwrap().unwrap();
        assert_eq!(
            (read.history.seq, notes.len()),
            (3, 0),
            "it is there, though"
        );
        let due: Vec<u64> = next
            .writes
            .lock()
            .due
            .iter()
            .map(|(copy, _)| *copy)
            .collect();
        assert_eq!(due, [1], "the next life begins with it");
        // A later update of this life begins with the second copy, too.
        record.history.seq = 4;
        file.write(&record).unwrap();
        assert_eq!(disk.pending_ops(), 0);
        record.history.seq = 5;
        file.write_last(&record).unwrap();
        disk.crash_keeping(0);
        let disk = disk.life();
        let (_, read, notes) = AnchorFile::open(disk.as_ref()).unwrap().unwrap();
        assert_eq!(
            (read.history.seq, notes.len()),
            (5, 1),
            "the second copy is stale"
        );
    }

    #[test]
    fn schemes_round_trip_and_an_unknown_scheme_is_named() {
        for scheme in Scheme::of_databases() {
            let mut record = example();
            record.history.scheme = scheme;
            let bytes = record.encode();
            assert!(matches!(Record::decode(&bytes), Ok(back) if back == record));
        }
        let mut bytes = example().encode();
        bytes[to_usize(SCHEME_OFFSET)] = 9;
        let len = to_usize(example().offset_of(Tag(*b"GEOM")));
        let crc = crc32c(&bytes[..len - 4]).to_le_bytes();
        bytes[len - 4..len].copy_from_slice(&crc);
        let disk = MemDisk::new();
        AnchorFile::create(&disk, &example()).unwrap();
        let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
        for copy in 0..2 {
            raw.write_at(copy * to_u64(COPY_BYTES), &bytes).unwrap();
        }
        let message = AnchorFile::open(&disk).map(drop).unwrap_err().to_string();
        assert!(message.contains("scheme number 9"), "{message}");
        assert!(message.contains("dl1p"), "{message}");
    }

    /// The simulator found this bug. A sync of the second copy failed: the disk had a torn copy, but reads returned a
    /// whole one. The next life overwrote the first copy. A power cut during that write left no whole copy.
    #[test]
    fn a_copy_that_only_reads_whole_is_not_relied_on() {
        use perdura_device::{CrashProfile, FaultPlan, SimDisk, SyncFailure};
        let many = vec![Pos(1); usize::from(STREAMS_MAX)];
        let mut record = example();
        record.history.streams = STREAMS_MAX;
        record.history.vouched.ends.clone_from(&many);
        // This payload has the length that the section of images has for this number of streams.
        let images = vec![0; 4 + 2 * (32 + 16 * usize::from(STREAMS_MAX))];
        record.sections.set(Tag(*b"IMGS"), true, images);
        let link = |number| ChainLink {
            incarnation: Incarnation(number),
            durable: Epoch(1),
            start: many.clone(),
            cut: many.clone(),
        };
        record.history.incarnation = Incarnation(100);
        record.history.vouched.epoch = Epoch(1);
        record.history.chain = (1..20).map(link).collect();
        for failing_sync in 1..=2 {
            for cut in 1..=7 {
                for seed in 0..200 {
                    let disk = SimDisk::new(seed);
                    let file = AnchorFile::create(disk.life().as_ref(), &record).unwrap();
                    disk.set_plan(FaultPlan {
                        fail_sync_at: Some((failing_sync, SyncFailure::KeepsNew)),
                        ..FaultPlan::default()
                    });
                    record.history.seq += 1;
                    record.history.incarnation = Incarnation(record.history.incarnation.0 + 1);
                    assert!(file.write(&record).is_err());
                    // A new life of the process begins, while the machine keeps running.
                    disk.set_plan(FaultPlan {
                        cut_after_ops: Some(cut),
                        ..FaultPlan::default()
                    });
                    let life = disk.life();
                    if let Ok(Some((file, mut read, _))) = AnchorFile::open(life.as_ref()) {
                        read.history.seq += 1;
                        read.history.epoch_floor = Epoch(seed);
                        drop(file.write(&read));
                    }
                    disk.crash(CrashProfile::Worst, 1000 + 7 * seed);
                    let back = AnchorFile::open(disk.life().as_ref());
                    assert!(
                        matches!(back, Ok(Some(_))),
                        "sync {failing_sync} failed, power cut at {cut}, seed {seed}"
                    );
                }
            }
        }
    }

    /// A copy-on-write file system needs space for an overwrite, and may run out of space in the middle of it.
    #[test]
    fn a_refused_copy_is_finished_with_its_record_before_the_other_copy_is_touched() {
        use perdura_device::{CrashProfile, FaultPlan, SimDisk};
        let mut finished = 0;
        for (nth, count) in (1..=4).flat_map(|nth| (1..=4).map(move |count| (nth, count))) {
            for (seed, cut) in (0..40).flat_map(|seed| (0..14).map(move |cut| (seed, cut))) {
                let disk = SimDisk::new(seed);
                let mut record = example();
                AnchorFile::create(disk.life().as_ref(), &record).unwrap();
                let opened = AnchorFile::open(disk.life().as_ref()).unwrap().unwrap();
                disk.set_plan(FaultPlan {
                    refuse_write_at: Some((nth, count)),
                    cut_after_ops: (cut > 0).then_some(cut),
                    ..FaultPlan::default()
                });
                let file = opened.0;
                let mut durable = record.clone();
                let mut ended = false;
                for incarnation in 2..5 {
                    record.history.seq += 1;
                    record.history.incarnation = Incarnation(incarnation);
                    let mut done = file.write(&record);
                    while matches!(done, Err(Failure::Delay(_))) {
                        done = file.finish();
                    }
                    if done.is_err() {
                        ended = true;
                        break;
                    }
                    durable = record.clone();
                }
                finished += u64::from(!ended);
                disk.crash(CrashProfile::Worst, seed ^ 77);
                let back = AnchorFile::open(disk.life().as_ref());
                let (_, back, _) = back.unwrap().expect("one copy is whole at any time");
                assert!(
                    back == durable || (ended && back == record),
                    "write {nth} refused {count} times, power cut at {cut}, seed {seed}"
                );
            }
        }
        assert!(finished > 100, "{finished}");
    }

    #[test]
    fn after_a_failed_sync_nothing_more_is_written() {
        use perdura_device::{FaultPlan, SimDisk, SyncFailure};
        let disk = SimDisk::new(1);
        let file = AnchorFile::create(disk.life().as_ref(), &example()).unwrap();
        disk.set_plan(FaultPlan {
            fail_sync_at: Some((1, SyncFailure::KeepsNew)),
            ..FaultPlan::default()
        });
        assert!(matches!(file.write(&example()), Err(Failure::Final(_))));
        let ops = disk.ops();
        assert!(matches!(file.write(&example()), Err(Failure::Final(_))));
        assert_eq!(disk.ops(), ops);
    }

    #[test]
    fn a_section_damaged_in_both_copies_is_an_error_with_its_name_file_and_offset() {
        let disk = MemDisk::new();
        AnchorFile::create(&disk, &example()).unwrap();
        let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
        let at = example().offset_of(Tag(*b"IMGS"));
        for copy in 0..2 {
            raw.write_at(copy * to_u64(COPY_BYTES) + at + 5, &[7])
                .unwrap();
        }
        let error = AnchorFile::open(&disk).map(drop).unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt(why) if why.offset == at && why.file == ANCHOR_PATH)
        );
        assert!(error.to_string().contains("section IMGS"), "{error}");
    }

    #[test]
    fn an_anchor_of_another_version_is_told_from_a_damaged_one() {
        // Format version 2 began like this. Its checksum is at the offset that the length field gives.
        let mut bytes = b"PANC\x02\0\0\0\x20\0\0\0\xff\xff\xff\xff".to_vec();
        bytes.resize(28, 3);
        bytes.extend(crc32c(&bytes).to_le_bytes());
        let disk = MemDisk::new();
        AnchorFile::create(&disk, &example()).unwrap();
        let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
        for copy in 0..2 {
            raw.write_at(copy * to_u64(COPY_BYTES), &bytes).unwrap();
        }
        let error = AnchorFile::open(&disk).map(drop).unwrap_err();
        assert!(matches!(error, Error::Version { found: 2, .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("export") && message.contains("import"),
            "{message}"
        );
    }

    #[test]
    fn two_damaged_copies_are_an_error() {
        let disk = MemDisk::new();
        AnchorFile::create(&disk, &example()).unwrap();
        let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
        for at in [20, to_u64(COPY_BYTES) + 20] {
            raw.write_at(at, &[0xff]).unwrap();
        }
        assert!(matches!(AnchorFile::open(&disk), Err(Error::Corrupt(_))));
    }
}
