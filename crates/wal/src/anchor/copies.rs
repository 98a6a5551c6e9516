//! Reading the two copies of the anchor, and choosing the record.
//!
//! An update writes equal bytes to the two copies. So two copies of one update differ only where a copy is damaged. If
//! the two copies have damage in different sections, the record is combined from the undamaged sections. Copies of
//! different updates are never combined. So the log parts of combined copies must be whole and equal: a log part has
//! the update's sequence number and every section's checksum.

use perdura_base::limits::FORMAT_VERSION;
use perdura_base::num::{round_up, to_u64, to_usize};
use perdura_base::{Error, Result};
use perdura_device::{AlignedBuf, File};

use super::codec::{DecodeError, SCHEME_OFFSET, combine, stated_len};
use super::{ANCHOR_PATH, COPY_BYTES, Record};
use crate::scheme::Scheme;

pub(super) const SECTOR: u64 = 4096;

/// The first words of a note for the operator. The note says that the record was combined from two damaged copies.
pub const COMBINED: &str = "the anchor is combined from its two copies";

/// The data read from the anchor's file.
#[derive(Default)]
pub(super) struct Copies {
    /// The bytes of each copy that could be read.
    bytes: [Option<AlignedBuf>; 2],
    /// The record of each copy that is whole.
    records: [Option<Record>; 2],
    /// The faults of the copies that are not whole.
    notes: Vec<String>,
    version: Option<u16>,
    unreadable: Option<Error>,
    damaged_at: Option<u64>,
}

/// The newest record, as chosen from the copies.
pub(super) struct Chosen {
    pub record: Record,
    /// Notes for the operator about the copies.
    pub notes: Vec<String>,
    /// True if the second copy must be written and synced before the first one is touched. That is so if the second
    /// copy is damaged. It is also so if the second copy was written last, and may be whole only in the operating
    /// system's memory.
    pub second_is_doubtful: bool,
}

impl Record {
    /// Decodes a copy of the anchor that is stored in another file. The copy begins at `offset` of that file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that are not a record, and for an unknown scheme; [`Error::Version`] for an unknown
    /// version of the format.
    pub fn of_copy(file: &str, offset: u64, bytes: &[u8]) -> Result<Record> {
        match Record::decode(bytes) {
            Ok(record) => Ok(record),
            Err(DecodeError::Damaged { at, why }) => Err(Error::corrupt(
                file,
                offset + at,
                "a copy of the anchor",
                why,
                "The rest of the file is intact. What only the anchor says about the database is \
                 unknown.",
            )),
            Err(DecodeError::Version(found)) => Err(Error::Version {
                file: file.to_owned(),
                found,
                supported: FORMAT_VERSION,
            }),
            Err(DecodeError::Scheme(code)) => Err(unknown_scheme(code)),
        }
    }
}

impl Copies {
    pub(super) fn read(file: &dyn File) -> Result<Copies> {
        let mut copies = Copies::default();
        for copy in 0..2 {
            match read_copy(file, copy) {
                Ok(bytes) => copies.note(copy, bytes)?,
                Err(error) if !error.is_unreadable() => return Err(error),
                Err(error) => {
                    let note = format!("anchor copy {copy} cannot be read: {error}");
                    copies.notes.push(note);
                    copies.unreadable = Some(error);
                }
            }
        }
        Ok(copies)
    }

    fn note(&mut self, copy: usize, bytes: AlignedBuf) -> Result<()> {
        match Record::decode(&bytes) {
            Ok(record) => self.records[copy] = Some(record),
            Err(DecodeError::Damaged { at, why }) => {
                let at = to_u64(copy * COPY_BYTES) + at;
                self.damaged_at.get_or_insert(at);
                self.notes.push(format!("anchor copy {copy} has {why}"));
            }
            Err(DecodeError::Version(other)) => self.version = Some(other),
            Err(DecodeError::Scheme(code)) => return Err(unknown_scheme(code)),
        }
        self.bytes[copy] = Some(bytes);
        Ok(())
    }

    /// Returns the newest record: from a whole copy, or combined from the two copies.
    ///
    /// # Errors
    /// [`Error::Version`] if a copy has an unknown version of the format. [`Error::Corrupt`] or the disk's error if no
    /// record is found.
    pub(super) fn choose(self) -> Result<Chosen> {
        if let Some(found) = self.version {
            return Err(Error::Version {
                file: ANCHOR_PATH.to_owned(),
                found,
                supported: FORMAT_VERSION,
            });
        }
        let Copies {
            bytes,
            records,
            mut notes,
            ..
        } = self;
        let seqs = records
            .each_ref()
            .map(|record| record.as_ref().map(|r| r.history.seq));
        let (record, second_is_doubtful) = match records {
            [Some(first), Some(_)] if seqs[0] > seqs[1] => (first, false),
            [Some(_), Some(second)] => (second, true),
            [Some(first), None] => (first, true),
            [None, Some(second)] => (second, false),
            [None, None] => {
                let both = bytes[0].as_deref().zip(bytes[1].as_deref());
                let Some((record, taken)) = both.and_then(|(one, other)| combine(one, other))
                else {
                    return Err(unusable(self.unreadable, self.damaged_at, &notes));
                };
                let tags: Vec<String> = taken.iter().map(ToString::to_string).collect();
                notes.push(format!(
                    "{COMBINED}, which contain the same update: {} from copy 1, the rest from \
                     copy 0",
                    tags.join(", ")
                ));
                (record, true)
            }
        };
        if let [Some(first), Some(second)] = seqs
            && first != second
        {
            notes.push("an update of the anchor was interrupted".to_owned());
        }
        Ok(Chosen {
            record,
            notes,
            second_is_doubtful,
        })
    }
}

/// Reads one copy: as many bytes as the copy's length fields say. Reads one sector if the length is impossible.
fn read_copy(file: &dyn File, copy: usize) -> Result<AlignedBuf> {
    let from = to_u64(copy * COPY_BYTES);
    let mut buf = AlignedBuf::zeroed(to_usize(SECTOR));
    file.read_at(from, &mut buf)?;
    let len = stated_len(&buf).unwrap_or(0);
    if len > SECTOR && len <= to_u64(COPY_BYTES) {
        buf = AlignedBuf::zeroed(to_usize(round_up(len, SECTOR)));
        file.read_at(from, &mut buf)?;
    }
    Ok(buf)
}

fn unusable(unreadable: Option<Error>, damaged_at: Option<u64>, notes: &[String]) -> Error {
    unreadable.unwrap_or_else(|| {
        Error::corrupt(
            ANCHOR_PATH,
            damaged_at.unwrap_or(0),
            "at least one whole copy of the anchor",
            notes.join("; "),
            "Only the anchor says which image and log are the newest. Restore a backup.",
        )
    })
}

fn unknown_scheme(code: u8) -> Error {
    let known: Vec<&str> = Scheme::of_databases().map(Scheme::name).collect();
    Error::corrupt(
        ANCHOR_PATH,
        SCHEME_OFFSET,
        format!(
            "a logging scheme that this build knows ({})",
            known.join(", ")
        ),
        format!("scheme number {code}"),
        "The checksum matches, so another build wrote it. Use that build.",
    )
}

#[cfg(test)]
mod tests {
    use perdura_base::{Epoch, Incarnation, Pos};
    use perdura_device::{Access, CrashProfile, Disk, FaultPlan, MemDisk, SimDisk};

    use super::super::tests::example;
    use super::super::{AnchorFile, ChainLink, Tag};
    use super::*;

    fn link(number: u32) -> ChainLink {
        ChainLink {
            incarnation: Incarnation(number),
            durable: Epoch(1),
            start: vec![Pos(1)],
            cut: vec![Pos(1)],
        }
    }

    /// Inverts one byte of a section in one copy.
    fn damage(disk: &dyn Disk, record: &Record, copy: usize, tag: &[u8; 4]) {
        let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
        let at = to_u64(copy * COPY_BYTES) + record.offset_of(Tag(*tag)) + 3;
        let mut byte = [0];
        raw.read_at(at, &mut byte).unwrap();
        raw.write_at(at, &[!byte[0]]).unwrap();
        raw.sync().unwrap();
    }

    #[test]
    fn two_copies_of_one_update_that_are_damaged_in_different_sections_are_combined_and_mended() {
        for tags in [[b"GEOM", b"IMGS"], [b"IMGS", b"GEOM"]] {
            let disk = MemDisk::new();
            AnchorFile::create(&disk, &example()).unwrap();
            (0..2).for_each(|copy| damage(&disk, &example(), copy, tags[copy]));
            let (file, record, notes) = AnchorFile::open(&disk).unwrap().unwrap();
            assert_eq!(record, example());
            assert_eq!(notes.len(), 3, "{notes:?}");
            let from = format!("{} from copy 1", Tag(*tags[0]));
            assert!(
                notes[2].starts_with(COMBINED) && notes[2].contains(&from),
                "{notes:?}"
            );
            file.write(&record).unwrap();
            let (_, record, notes) = AnchorFile::open(&disk).unwrap().unwrap();
            assert_eq!((record, notes), (example(), Vec::new()));
        }
    }

    #[test]
    fn copies_of_different_updates_are_never_combined() {
        for (first, second) in [(1, 2), (2, 1)] {
            let disk = MemDisk::new();
            let of = |seq| {
                let mut record = example();
                record.history.seq = seq;
                record
            };
            AnchorFile::create(&disk, &of(first)).unwrap();
            let raw = disk.open(ANCHOR_PATH, Access::Buffered).unwrap();
            let at = to_u64(COPY_BYTES);
            raw.write_at(at, &of(second).encode()).unwrap();
            damage(&disk, &example(), 0, b"GEOM");
            damage(&disk, &example(), 1, b"IMGS");
            let error = AnchorFile::open(&disk).map(drop).unwrap_err().to_string();
            assert!(
                error.contains("section GEOM") && error.contains("section IMGS"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_section_damaged_in_both_copies_is_never_combined_with_another_that_is_whole_in_one() {
        let disk = MemDisk::new();
        AnchorFile::create(&disk, &example()).unwrap();
        for (copy, tag) in [(0, b"GEOM"), (0, b"IMGS"), (1, b"IMGS")] {
            damage(&disk, &example(), copy, tag);
        }
        assert!(matches!(AnchorFile::open(&disk), Err(Error::Corrupt(_))));
    }

    /// The update writes the second copy first, and changes only damaged bytes in it. So the two copies together have a
    /// whole record, whichever part of this write is on disk after a power cut.
    #[test]
    fn a_power_cut_while_a_combined_anchor_is_mended_leaves_a_record() {
        // The log's part is longer than the longest write that cannot be torn.
        let mut long = example();
        long.history.incarnation = Incarnation(100);
        long.history.vouched.epoch = Epoch(1);
        long.history.chain = (1..60).map(link).collect();
        for (cut, seed) in (1..=7).flat_map(|cut| (0..50).map(move |seed| (cut, seed))) {
            let disk = SimDisk::new(seed);
            AnchorFile::create(disk.life().as_ref(), &long).unwrap();
            damage(disk.life().as_ref(), &long, 0, b"IMGS");
            damage(disk.life().as_ref(), &long, 1, b"GEOM");
            let (file, mut record, _) = AnchorFile::open(disk.life().as_ref()).unwrap().unwrap();
            disk.set_plan(FaultPlan {
                cut_after_ops: Some(cut),
                ..FaultPlan::default()
            });
            record.history.seq += 1;
            record.history.epoch_floor = Epoch(seed);
            record.history.chain.push(link(60));
            drop(file.write(&record));
            disk.crash(CrashProfile::Worst, 1000 + seed);
            let back = AnchorFile::open(disk.life().as_ref());
            let (_, back, _) = back.unwrap().expect("there is an anchor");
            assert!(back == record || back == long, "cut {cut}, seed {seed}");
        }
    }
}
