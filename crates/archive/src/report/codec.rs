//! The encoding and decoding of a report.

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, PARTITIONS_MAX, SECTOR_BYTES};
use perdura_base::{CkptEpoch, Epoch, Error, Result, Uuid};

use super::{Outcome, Replay, Report, ReportId, ReportKind, TEXT_BYTES_MAX};
use crate::sealed::unseal;

const MAGIC: &[u8; 4] = b"PRPT";
const HEAD_BYTES: usize = 128;
const CRC_BYTES: usize = 4;
/// The maximum size of a report's file, bytes.
pub(super) const REPORT_BYTES_MAX: usize =
    (HEAD_BYTES + 8 * PARTITIONS_MAX as usize + TEXT_BYTES_MAX + CRC_BYTES)
        .next_multiple_of(SECTOR_BYTES);

pub(super) fn damage(file: &str, offset: u64, expected: String, found: String) -> Error {
    let consequence = "The report cannot be read. The archive does not depend on it. The next \
                       proof or drill writes a new one.";
    Error::corrupt(file, offset, expected, found, consequence)
}

impl Report {
    /// Returns the file's bytes. A text longer than [`TEXT_BYTES_MAX`] is truncated.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.digests.len() <= usize::from(PARTITIONS_MAX),
            "a digest for each partition"
        );
        let most = self.text.len().min(TEXT_BYTES_MAX);
        let cut = (0..=most).rev().find(|at| self.text.is_char_boundary(*at));
        let text = &self.text.as_bytes()[..cut.unwrap_or(0)];
        let used = HEAD_BYTES + 8 * self.digests.len() + text.len();
        let len = (used + CRC_BYTES).next_multiple_of(SECTOR_BYTES);
        let mut out = Vec::with_capacity(len);
        out.put(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_u8(self.kind as u8);
        out.put_u8(self.outcome as u8);
        out.put(&self.uuid.0);
        out.put_u64(self.wall_us);
        out.put_u64(self.from.0);
        out.put_u64(self.to.0);
        out.put_u64(self.begin.0);
        out.put_u64(self.end.0);
        out.put_u64(self.manifest);
        out.put_u32(self.runs);
        out.put_u16(u16::try_from(self.digests.len()).unwrap_or(u16::MAX));
        out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
        out.put_u64(self.took_us);
        out.put_u64(self.replay.changes);
        out.put_u64(self.replay.took_us);
        out.put_zeros(24);
        assert_eq!(out.len(), HEAD_BYTES, "the fields fill the head");
        self.digests.iter().for_each(|digest| out.put_u64(*digest));
        out.put(text);
        debug_assert_eq!(out.len(), used, "digests and text follow the head");
        out.resize(len - CRC_BYTES, 0);
        out.put_u32(crc32c(&out));
        assert!(
            out.len() == len && len <= REPORT_BYTES_MAX,
            "whole sectors, and no more than a reader reads"
        );
        out
    }

    /// Reads and checks the report `id` of database `uuid`.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; [`Error::Version`] for an undamaged file with an unknown version; [`Error::Foreign`] for a
    /// file of another database.
    pub fn decode(file: &str, bytes: &[u8], id: ReportId, uuid: &Uuid) -> Result<Report> {
        let crc_at = bytes.len().saturating_sub(CRC_BYTES);
        let (mut r, _) = unseal(file, bytes, *MAGIC, crc_at, damage)?;
        let report = fields(&mut r, bytes.len());
        let report = report.ok_or_else(|| {
            damage(
                file,
                4,
                "fields in their ranges".into(),
                "other values".into(),
            )
        })?;
        if report.uuid != *uuid {
            return Err(Error::Foreign {
                file: file.to_owned(),
                why: format!("it is of database {}, not of {uuid}", report.uuid),
            });
        }
        if report.id() != id {
            let expected = format!("the report {}", id.name());
            return Err(damage(file, 24, expected, report.id().name()));
        }
        Ok(report)
    }
}

/// Reads the fields after the version. Returns `None` if a field is out of its range.
fn fields(r: &mut Reader<'_>, len: usize) -> Option<Report> {
    let kind = match r.u8()? {
        0 => ReportKind::Proof,
        1 => ReportKind::Drill,
        _ => return None,
    };
    let outcome = match r.u8()? {
        0 => Outcome::Begun,
        1 => Outcome::Holds,
        2 => Outcome::Fails,
        _ => return None,
    };
    let uuid = Uuid(r.array()?);
    let wall_us = r.u64()?;
    let (from, to) = (CkptEpoch(r.u64()?), CkptEpoch(r.u64()?));
    let (begin, end) = (Epoch(r.u64()?), Epoch(r.u64()?));
    let (manifest, runs) = (r.u64()?, r.u32()?);
    let (digests, text_bytes) = (r.u16()?, usize::from(r.u16()?));
    let took_us = r.u64()?;
    let replay = Replay {
        changes: r.u64()?,
        took_us: r.u64()?,
    };
    r.zeros(24)?;
    let is_sound = len.is_multiple_of(SECTOR_BYTES)
        && len <= REPORT_BYTES_MAX
        && digests <= PARTITIONS_MAX
        && text_bytes <= TEXT_BYTES_MAX
        && (replay.changes > 0 || replay.took_us == 0)
        && (kind == ReportKind::Proof
            || (digests == 0 && to == CkptEpoch(0) && replay == Replay::default()));
    if !is_sound {
        return None;
    }
    let digests: Option<Vec<u64>> = (0..digests).map(|_| r.u64()).collect();
    let text = String::from_utf8(r.bytes(text_bytes)?.to_vec()).ok()?;
    let rest = r.remaining().checked_sub(CRC_BYTES)?;
    r.zeros(rest)?;
    (rest < SECTOR_BYTES).then_some(Report {
        kind,
        outcome,
        uuid,
        wall_us,
        from,
        to,
        begin,
        end,
        manifest,
        runs,
        took_us,
        replay,
        digests: digests?,
        text,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> Report {
        let mut uuid = Uuid::default();
        (0u8..).zip(&mut uuid.0).for_each(|(i, byte)| *byte = i);
        Report {
            kind: ReportKind::Proof,
            outcome: Outcome::Fails,
            uuid,
            wall_us: 0x0003_bbf4_0000_0000,
            from: CkptEpoch(5),
            to: CkptEpoch(7),
            begin: Epoch(1000),
            end: Epoch(1003),
            manifest: 9,
            runs: 2,
            took_us: 1500,
            replay: Replay {
                changes: 75_000,
                took_us: 2_000_000,
            },
            digests: vec![0x1122_3344_5566_7788, 1],
            text: "no".into(),
        }
    }

    #[test]
    fn the_example_of_the_format_page_is_written_and_read_again() {
        let page = include_str!("../../../../docs/formats/report.md");
        let bytes = |block: &str| -> Vec<u8> {
            let hex = block.split("```").next().unwrap_or_default();
            let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
            let byte = |two: &[u8]| {
                let two = std::str::from_utf8(two).expect("digits");
                u8::from_str_radix(two, 16).expect("hex")
            };
            digits.chunks(2).map(byte).collect()
        };
        let examples: Vec<Vec<u8>> = page.split("```text hex").skip(1).map(bytes).collect();
        let report = example();
        let file = report.encode();
        assert_eq!(file.len(), SECTOR_BYTES);
        assert_eq!(&file[..146], examples[0], "{:02x?}", &file[..146]);
        assert_eq!(&file[4092..], examples[1], "{:02x?}", &file[4092..]);
        assert!(file[146..4092].iter().all(|byte| *byte == 0));
        let read = Report::decode("file", &file, report.id(), &report.uuid);
        assert_eq!(read.expect("a report"), report);
    }

    #[test]
    fn each_flipped_bit_each_shorter_file_and_another_name_are_refused() {
        let report = example();
        let file = report.encode();
        let is_read = |bytes: &[u8], id| Report::decode("file", bytes, id, &report.uuid).is_ok();
        for at in 0..file.len() {
            let mut other = file.clone();
            other[at] ^= 1 << (at % 8);
            assert!(!is_read(&other, report.id()), "byte {at}");
        }
        for len in (0..file.len()).step_by(7) {
            assert!(!is_read(&file[..len], report.id()), "{len} bytes");
        }
        let other = ReportId {
            rank: (8, report.wall_us),
            ..report.id()
        };
        assert!(!is_read(&file, other));
        let foreign = Report::decode("file", &file, report.id(), &Uuid([9; 16]));
        assert!(matches!(foreign, Err(Error::Foreign { .. })));
    }

    proptest! {
        #[test]
        fn any_fields_under_a_right_checksum_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut file = example().encode();
            file[6..6 + bytes.len()].copy_from_slice(&bytes);
            let body = file.len() - CRC_BYTES;
            let crc = crc32c(&file[..body]);
            file[body..].copy_from_slice(&crc.to_le_bytes());
            let report = example();
            if let Ok(read) = Report::decode("file", &file, report.id(), &report.uuid) {
                prop_assert_eq!(read.encode(), file);
            }
        }

        #[test]
        fn a_text_of_any_length_leaves_a_report_that_is_read(text in "\\PC{0,3000}", digests in prop::collection::vec(any::<u64>(), 0..257)) {
            let report = Report { text: text.repeat(3), digests: digests[..digests.len().min(256)].to_vec(), ..example() };
            let read = Report::decode("file", &report.encode(), report.id(), &report.uuid).expect("a report");
            prop_assert!(report.text.starts_with(&read.text));
            prop_assert_eq!(read.digests, report.digests);
        }
    }
}
