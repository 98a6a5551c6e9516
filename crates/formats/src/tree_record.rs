#![doc = include_str!("../../../docs/formats/tree-record.md")]

use perdura_base::cursor::{Reader, Writer};
pub use perdura_base::fields::Malformed;
use perdura_base::fields::{Fields, malformed, put_bytes};
use perdura_base::num::to_u64;
use perdura_base::{Gsn, Pid};

const DELTA: u8 = 1;
const WRITES: u8 = 2;
const REDO_START: u8 = 3;
const CHECKPOINT: u8 = 4;
const STRUCTURE: u8 = 5;

const IMAGE: u8 = 0;
const EDIT: u8 = 1;

const WITH_LSNS: u8 = 1;

/// The pages made dirty and the pages written since the tree's previous Δ record: the paper's Δ-log record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delta {
    /// The number of the first note of this record. Each entry of `dirty` is a note. Notes are numbered in one sequence
    /// over all Δ records of the tree.
    pub first_note: u64,
    /// EOSL, the end of the stable log, when this record was made. Each operation up to `tc_lsn` is noted in this
    /// record or in an earlier one.
    pub tc_lsn: Gsn,
    /// EOSL when the tree noted the first page of `written`; `tc_lsn` if `written` is empty.
    pub fw_lsn: Gsn,
    /// The number of entries of `dirty` that the tree noted before the first page of `written`. If `written` is empty,
    /// all entries count.
    pub first_dirty: usize,
    /// DirtySet: the page of each update, in the order of the updates.
    pub dirty: Vec<Pid>,
    /// WrittenSet: the pages that were durably written and did not change after the write.
    pub written: Vec<Pid>,
    /// The number of each update's operation, in the order of `dirty`; `None` if these numbers are not logged.
    pub lsns: Option<Vec<Gsn>>,
}

/// The pages written in an interval: the paper's BW-log record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Writes {
    /// EOSL, the end of the stable log, when the first of these pages was noted.
    pub fw_lsn: Gsn,
    /// WrittenSet: the pages.
    pub written: Vec<Pid>,
}

/// The end of a checkpoint: the paper's eCkpt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndCheckpoint {
    /// The sequence number of the checkpoint's [`RedoStart`](TreeRecord::RedoStart) record.
    pub rssp: Gsn,
    /// The dirty pages, ascending, each with a sequence number. All updates of the page below this number are on disk.
    pub dirty: Vec<(Pid, Gsn)>,
}

/// The change of one page, as a part of a [`Structure`] change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageChange {
    /// The page gets these bytes. The record omits the free bytes between the page's last slot and first cell.
    Image {
        /// Header and slots.
        front: Vec<u8>,
        /// Cells and fences.
        back: Vec<u8>,
    },
    /// The page is cut, then keys are dropped, then cells are put.
    Edit {
        /// The page's new high fence, if the page is cut. All keys that are not below the fence are removed.
        cut: Option<Vec<u8>>,
        /// The keys to drop afterwards, ascending.
        drops: Vec<Vec<u8>>,
        /// The cells to put after the drops, ascending. A cell is a key with a value, or in an inner page a key with a
        /// child.
        puts: Vec<(Vec<u8>, Vec<u8>)>,
    },
}

/// A change of the tree's structure over one or more pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Structure {
    /// The changed pages, ascending, each with its change.
    pub changes: Vec<(Pid, PageChange)>,
}

/// A log record of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeRecord {
    /// Δ: the pages made dirty and the pages written since the tree's previous Δ record.
    Delta(Delta),
    /// BW: the pages that the tree wrote in an interval.
    Writes(Writes),
    /// RSSP: the redo scan start point of a checkpoint. Operations before this record have lower numbers. At the end of
    /// the checkpoint, the changes by all these operations are durable.
    RedoStart,
    /// eCkpt: the end of a checkpoint.
    EndCheckpoint(EndCheckpoint),
    /// SMO: a change of the tree's structure.
    Structure(Structure),
}

impl TreeRecord {
    /// Appends the record with the sequence number `gsn`.
    ///
    /// # Panics
    /// If the record contradicts itself, because the writer noted events out of order.
    pub fn encode(&self, out: &mut Vec<u8>, gsn: Gsn) {
        assert!(gsn > Gsn(0), "numbers begin at 1");
        let mut head = |kind| {
            out.put_u8(kind);
            out.put_varint(gsn.0);
        };
        match self {
            TreeRecord::Delta(delta) => {
                assert_eq!(delta.fault(gsn), None, "{delta:?} of {gsn}");
                head(DELTA);
                out.put_u8(delta.lsns.as_ref().map_or(0, |_| WITH_LSNS));
                out.put_varint(delta.first_note);
                out.put_varint(delta.tc_lsn.0);
                out.put_varint(delta.fw_lsn.0);
                out.put_varint(to_u64(delta.first_dirty));
                put_pids(out, &delta.dirty);
                put_pids(out, &delta.written);
                for lsn in delta.lsns.iter().flatten() {
                    assert!((Gsn(1)..gsn).contains(lsn), "{lsn} in {gsn}");
                    out.put_varint(lsn.0);
                }
            }
            TreeRecord::Writes(writes) => {
                assert!(writes.fw_lsn < gsn && !writes.written.is_empty());
                head(WRITES);
                out.put_varint(writes.fw_lsn.0);
                put_pids(out, &writes.written);
            }
            TreeRecord::RedoStart => head(REDO_START),
            TreeRecord::EndCheckpoint(end) => {
                assert!(end.rssp < gsn, "a checkpoint ends behind its begin");
                assert!(end.dirty.is_sorted_by(|a, b| a.0 < b.0), "pages ascend");
                head(CHECKPOINT);
                out.put_varint(end.rssp.0);
                out.put_varint(to_u64(end.dirty.len()));
                for (pid, r_lsn) in &end.dirty {
                    assert!(
                        (end.rssp..gsn).contains(r_lsn) && *r_lsn > end.rssp,
                        "{pid}: {r_lsn} in {gsn}"
                    );
                    out.put_varint(u64::from(pid.0));
                    out.put_varint(r_lsn.0);
                }
            }
            TreeRecord::Structure(structure) => {
                head(STRUCTURE);
                structure.encode(out);
            }
        }
    }

    /// Reads a record and its sequence number.
    ///
    /// # Errors
    /// Returns the position of the first wrong byte, and the expected content.
    pub fn decode(payload: &[u8]) -> Result<(Gsn, TreeRecord), Malformed> {
        let mut r = Fields::new(payload);
        let kind = r.take("the kind of a tree's record", Reader::u8)?;
        let gsn = lsn(&mut r, "a number of at least 1", Gsn(u64::MAX))?;
        let record = match kind {
            DELTA => TreeRecord::Delta(Delta::decode(&mut r, gsn)?),
            WRITES => {
                let fw_lsn = below(&mut r, "an end of the stable log below the record", gsn)?;
                let at = r.reader.at();
                let written = pids(&mut r)?;
                if written.is_empty() {
                    return Err(malformed(at, "written pages"));
                }
                TreeRecord::Writes(Writes { fw_lsn, written })
            }
            REDO_START => TreeRecord::RedoStart,
            CHECKPOINT => TreeRecord::EndCheckpoint(EndCheckpoint::decode(&mut r, gsn)?),
            STRUCTURE => TreeRecord::Structure(Structure::decode(&mut r)?),
            _ => return Err(malformed(0, "the kind of a tree's record")),
        };
        match r.reader.remaining() {
            0 => Ok((gsn, record)),
            _ => Err(malformed(r.reader.at(), "the record's end")),
        }
    }
}

impl Delta {
    /// Returns the first rule that the fields break, or `None` if they break none. `gsn` is the record's number.
    fn fault(&self, gsn: Gsn) -> Option<&'static str> {
        let holds = [
            (
                self.tc_lsn < gsn,
                "an end of the stable log below the record",
            ),
            (self.fw_lsn <= self.tc_lsn, "a first write no later than it"),
            (
                self.first_dirty <= self.dirty.len(),
                "no more notes before the first write than there are",
            ),
            (
                !self.written.is_empty()
                    || (self.first_dirty == self.dirty.len() && self.fw_lsn == self.tc_lsn),
                "no first write where nothing was written",
            ),
            (
                self.lsns
                    .as_ref()
                    .is_none_or(|lsns| lsns.len() == self.dirty.len()),
                "a number for each note",
            ),
        ];
        holds
            .iter()
            .find(|(holds, _)| !holds)
            .map(|(_, expected)| *expected)
    }

    fn decode(r: &mut Fields<'_>, gsn: Gsn) -> Result<Delta, Malformed> {
        let flags = r.take("flags that this build knows", |r| {
            r.u8().filter(|flags| flags & !WITH_LSNS == 0)
        })?;
        let at = r.reader.at();
        let first_note = r.take("the number of a note", Reader::varint)?;
        let tc_lsn = Gsn(r.take("an end of the stable log", Reader::varint)?);
        let fw_lsn = Gsn(r.take("an end of the stable log", Reader::varint)?);
        let first_dirty = r.take("a count of notes", Reader::varint_usize)?;
        let dirty = pids(r)?;
        let written = pids(r)?;
        let numbers = || {
            let number = |_| lsn(r, "the number of an update", gsn);
            (0..dirty.len()).map(number).collect()
        };
        let lsns: Option<Result<_, _>> = (flags == WITH_LSNS).then(numbers);
        let delta = Delta {
            first_note,
            tc_lsn,
            fw_lsn,
            first_dirty,
            dirty,
            written,
            lsns: lsns.transpose()?,
        };
        match delta.fault(gsn) {
            None => Ok(delta),
            Some(expected) => Err(malformed(at, expected)),
        }
    }
}

impl EndCheckpoint {
    fn decode(r: &mut Fields<'_>, gsn: Gsn) -> Result<EndCheckpoint, Malformed> {
        let rssp = below(r, "a redo start below the record", gsn)?;
        let count = count(r, 2)?;
        let mut dirty: Vec<(Pid, Gsn)> = Vec::with_capacity(count);
        for _ in 0..count {
            let last = dirty.last().map(|(pid, _)| pid.0);
            let pid = r.take("a page above the one before it", |r| {
                let pid = u32::try_from(r.varint()?).ok()?;
                last.is_none_or(|last| pid > last).then_some(Pid(pid))
            })?;
            let r_lsn = r.take("the number of an update behind the redo start", |r| {
                let r_lsn = Gsn(r.varint()?);
                (r_lsn > rssp && r_lsn < gsn).then_some(r_lsn)
            })?;
            dirty.push((pid, r_lsn));
        }
        Ok(EndCheckpoint { rssp, dirty })
    }
}

impl Structure {
    fn encode(&self, out: &mut Vec<u8>) {
        assert!(!self.changes.is_empty(), "a change of structure has pages");
        assert!(self.changes.is_sorted_by(|a, b| a.0 < b.0), "pages ascend");
        out.put_varint(to_u64(self.changes.len()));
        for (pid, change) in &self.changes {
            out.put_varint(u64::from(pid.0));
            match change {
                PageChange::Image { front, back } => {
                    out.put_u8(IMAGE);
                    put_bytes(out, front);
                    put_bytes(out, back);
                }
                PageChange::Edit { cut, drops, puts } => {
                    assert!(drops.is_sorted_by(|a, b| a < b), "keys ascend");
                    assert!(puts.is_sorted_by(|a, b| a.0 < b.0), "keys ascend");
                    out.put_u8(EDIT);
                    out.put_u8(u8::from(cut.is_some()));
                    if let Some(cut) = cut {
                        put_bytes(out, cut);
                    }
                    out.put_varint(to_u64(drops.len()));
                    for key in drops {
                        put_bytes(out, key);
                    }
                    out.put_varint(to_u64(puts.len()));
                    for (key, value) in puts {
                        put_bytes(out, key);
                        put_bytes(out, value);
                    }
                }
            }
        }
    }

    fn decode(r: &mut Fields<'_>) -> Result<Structure, Malformed> {
        let at = r.reader.at();
        let count = count(r, 4)?;
        if count == 0 {
            return Err(malformed(at, "a page that changes"));
        }
        let mut changes: Vec<(Pid, PageChange)> = Vec::with_capacity(count);
        for _ in 0..count {
            let last = changes.last().map(|(pid, _)| *pid);
            let pid = r.take("a page above the one before it", |r| {
                let pid = Pid(u32::try_from(r.varint()?).ok()?);
                last.is_none_or(|last| pid > last).then_some(pid)
            })?;
            changes.push((pid, PageChange::decode(r)?));
        }
        Ok(Structure { changes })
    }
}

impl PageChange {
    fn decode(r: &mut Fields<'_>) -> Result<PageChange, Malformed> {
        let kind = r.take("an image or an edit", |r| {
            r.u8().filter(|kind| matches!(*kind, IMAGE | EDIT))
        })?;
        if kind == IMAGE {
            return Ok(PageChange::Image {
                front: r.bytes("header and slots")?.to_vec(),
                back: r.bytes("cells and fences")?.to_vec(),
            });
        }
        let is_cut = r.take("whether the page is cut", |r| r.u8().filter(|cut| *cut < 2))?;
        let cut = if is_cut == 1 {
            Some(r.bytes("a high fence")?.to_vec())
        } else {
            None
        };
        let dropped = count(r, 1)?;
        let mut drops: Vec<Vec<u8>> = Vec::with_capacity(dropped);
        for _ in 0..dropped {
            let key = key_above(r, drops.last())?;
            drops.push(key);
        }
        let count = count(r, 2)?;
        let mut puts: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(count);
        for _ in 0..count {
            let key = key_above(r, puts.last().map(|(last, _)| last))?;
            puts.push((key, r.bytes("a value")?.to_vec()));
        }
        Ok(PageChange::Edit { cut, drops, puts })
    }
}

fn key_above(r: &mut Fields<'_>, last: Option<&Vec<u8>>) -> Result<Vec<u8>, Malformed> {
    let at = r.reader.at();
    let key = r.bytes("a key")?.to_vec();
    if last.is_some_and(|last| *last >= key) {
        return Err(malformed(at, "a key above the one before it"));
    }
    Ok(key)
}

fn put_pids(out: &mut Vec<u8>, pids: &[Pid]) {
    out.put_varint(to_u64(pids.len()));
    for pid in pids {
        out.put_varint(u64::from(pid.0));
    }
}

/// Reads a count of items. Each item has at least `bytes_min` bytes, and all items must fit into the remaining bytes.
fn count(r: &mut Fields<'_>, bytes_min: usize) -> Result<usize, Malformed> {
    r.take("a count of no more than follow", |r| {
        let count = r.varint_usize()?;
        (count <= r.remaining() / bytes_min).then_some(count)
    })
}

fn pids(r: &mut Fields<'_>) -> Result<Vec<Pid>, Malformed> {
    let count = count(r, 1)?;
    let pid = |_| r.varint_u32("a page").map(Pid);
    (0..count).map(pid).collect()
}

/// Reads a number from 1 to below `end`.
fn lsn(r: &mut Fields<'_>, what: &'static str, end: Gsn) -> Result<Gsn, Malformed> {
    r.take(what, |r| {
        r.varint()
            .map(Gsn)
            .filter(|lsn| (Gsn(1)..end).contains(lsn))
    })
}

/// Reads a number from 0 to below `end`.
fn below(r: &mut Fields<'_>, what: &'static str, end: Gsn) -> Result<Gsn, Malformed> {
    r.take(what, |r| r.varint().map(Gsn).filter(|lsn| *lsn < end))
}
