//! The encoding and decoding of a manifest.

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer as _};
use perdura_base::limits::{FORMAT_VERSION, STREAMS_MAX};
use perdura_base::num::{to_u32, to_u64, to_usize};
use perdura_base::{CkptEpoch, Epoch, Error, Pos, Result, Uuid};

use super::object::{OBJECT_BYTES, Object};
use super::{Clock, FIRST, Manifest, Role, Writer, damage, reads_both_of_equal_ranges};
use crate::merge::Images;
use crate::sealed::unseal;
use perdura_wal::Parent;
use perdura_wal::anchor::COPY_BYTES;

const MAGIC: &[u8; 4] = b"PMAN";
const HEAD_BYTES: usize = 120;
const CRC_BYTES: usize = 4;
const HAS_PARENT: u8 = 1;
const IS_BUILDING: u8 = 2;
const IS_WHOLE: u8 = 4;
const HAS_CLOCK: u8 = 8;

impl Manifest {
    /// Returns the file's bytes.
    ///
    /// # Panics
    /// If [`decode`](Self::decode) would refuse the manifest.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.fault(), None, "a manifest is sound when it is written");
        let streams = u8::try_from(self.positions.len()).unwrap_or(u8::MAX);
        let Images { retained, building } = &self.images;
        let lists = 8 * (self.positions.len() + retained.len()) + OBJECT_BYTES * self.objects.len();
        let has_clock = self.clock != Clock::default();
        let clock = if has_clock { self.clock.bytes() } else { 0 };
        let len = HEAD_BYTES + lists + self.anchor.len() + to_usize(clock) + CRC_BYTES;
        let mut out = Vec::with_capacity(len);
        out.put(MAGIC);
        out.put_u16(FORMAT_VERSION);
        out.put_u8(match self.writer.role {
            Role::Database => 0,
            Role::Agent => 1,
        });
        let parent = self.parent.map_or(0, |_| HAS_PARENT);
        let whole = if self.is_whole { IS_WHOLE } else { 0 };
        let clock = if has_clock { HAS_CLOCK } else { 0 };
        out.put_u8(parent | building.map_or(0, |_| IS_BUILDING) | whole | clock);
        out.put_u64(self.number);
        out.put(&self.uuid.0);
        out.put_u64(self.writer.life);
        out.put_u64(self.oldest);
        out.put_u32(self.predecessor);
        out.put_u32(to_u32(len));
        out.put_u64(self.begin.0);
        out.put_u64(self.end.0);
        let none = Parent {
            uuid: Uuid::default(),
            epoch: Epoch(0),
        };
        let parent = self.parent.unwrap_or(none);
        out.put(&parent.uuid.0);
        out.put_u64(parent.epoch.0);
        out.put_u64(building.map_or(0, |k| k.0));
        out.put_u8(streams);
        out.put_zeros(3);
        out.put_u32(to_u32(retained.len()));
        out.put_u32(to_u32(self.objects.len()));
        out.put_u32(to_u32(self.anchor.len()));
        assert_eq!(out.len(), HEAD_BYTES, "the fields fill the head");
        self.positions.iter().for_each(|pos| out.put_u64(pos.0));
        retained.iter().for_each(|k| out.put_u64(k.0));
        self.objects.iter().for_each(|o| o.encode(&mut out));
        out.put(&self.anchor);
        if has_clock {
            self.clock.encode(&mut out);
        }
        out.put_u32(crc32c(&out));
        assert_eq!(out.len(), len, "the file is as long as it says");
        out
    }

    /// Reads and checks a manifest, but not its number and not its database. Returns the manifest and its checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; [`Error::Version`] for an undamaged file with an unknown version.
    pub fn read(file: &str, bytes: &[u8]) -> Result<(Manifest, u32)> {
        let body = bytes.len().saturating_sub(CRC_BYTES);
        let (mut r, crc) = unseal(file, bytes, *MAGIC, body, damage)?;
        let expected = "fields in their ranges";
        let fields = fields(&mut r, bytes.len());
        let manifest = fields.ok_or_else(|| damage(file, 4, expected, "other values"))?;
        match manifest.fault() {
            None => Ok((manifest, crc)),
            Some(fault) => Err(damage(file, to_u64(HEAD_BYTES), "runs side by side", fault)),
        }
    }

    /// Reads and checks manifest `number` of database `uuid`. Returns the manifest and its checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; [`Error::Version`] for an undamaged file with an unknown version; [`Error::Foreign`] for a
    /// file of another database.
    pub fn decode(file: &str, bytes: &[u8], number: u64, uuid: &Uuid) -> Result<(Manifest, u32)> {
        let (manifest, crc) = Manifest::read(file, bytes)?;
        if manifest.uuid != *uuid {
            return Err(Error::Foreign {
                file: file.to_owned(),
                why: format!("it is of database {}, not of {uuid}", manifest.uuid),
            });
        }
        if manifest.number != number {
            let found = format!("manifest {}", manifest.number);
            return Err(damage(file, 8, format!("manifest {number}"), found));
        }
        Ok((manifest, crc))
    }

    /// Returns a description of the manifest's fault. `None`: the manifest is valid.
    pub(crate) fn fault(&self) -> Option<String> {
        let streams = u8::try_from(self.positions.len()).unwrap_or(u8::MAX);
        if !(1..=STREAMS_MAX).contains(&streams) {
            return Some(format!("{} streams", self.positions.len()));
        }
        if self.number < FIRST || self.oldest < FIRST || self.oldest > self.number {
            return Some(format!("number {}, oldest {}", self.number, self.oldest));
        }
        if self.number == FIRST && self.predecessor != 0 {
            return Some("a predecessor of the first manifest".into());
        }
        if self.anchor.len() > COPY_BYTES {
            return Some(format!("an anchor of {} bytes", self.anchor.len()));
        }
        if !self.images.retained.is_sorted_by(|a, b| a < b) {
            return Some("images out of order".into());
        }
        if !self.objects.is_sorted_by(|a, b| a.id < b.id) {
            return Some("objects out of order".into());
        }
        let mut at = self.begin;
        let mut last = None;
        for run in self.runs() {
            let is_twice = last == Some(run.epochs) && reads_both_of_equal_ranges();
            if run.epochs.begin != at && !is_twice {
                return Some(format!("{} where epoch {at} should follow", run.name()));
            }
            at = run.epochs.end;
            last = Some(run.epochs);
        }
        (at != self.end).then(|| format!("runs up to epoch {at}, and {} as their end", self.end))
    }
}

/// Reads the fields after the version. Returns `None` if a field is out of its range.
fn fields(r: &mut Reader<'_>, len: usize) -> Option<Manifest> {
    let role = match r.u8()? {
        0 => Role::Database,
        1 => Role::Agent,
        _ => return None,
    };
    let flags = r.u8()?;
    let number = r.u64()?;
    let uuid = Uuid(r.array()?);
    let life = r.u64()?;
    let (oldest, predecessor) = (r.u64()?, r.u32()?);
    let bytes = r.u32()?;
    let (begin, end) = (Epoch(r.u64()?), Epoch(r.u64()?));
    let parent = Parent {
        uuid: Uuid(r.array()?),
        epoch: Epoch(r.u64()?),
    };
    let building = CkptEpoch(r.u64()?);
    let streams = r.u8()?;
    r.zeros(3)?;
    let (images, objects, anchor) = (r.u32()?, r.u32()?, r.u32()?);
    debug_assert_eq!(r.at(), HEAD_BYTES, "the head has its bytes");
    let (has_parent, is_building) = (flags & HAS_PARENT != 0, flags & IS_BUILDING != 0);
    let lists =
        8 * (u64::from(streams) + u64::from(images)) + to_u64(OBJECT_BYTES) * u64::from(objects);
    let lists = lists + u64::from(anchor);
    let rest = to_u64(r.remaining()).checked_sub(lists + to_u64(CRC_BYTES))?;
    let is_sound = flags & !(HAS_PARENT | IS_BUILDING | IS_WHOLE | HAS_CLOCK) == 0
        && u64::from(bytes) == to_u64(len)
        && (has_parent || (parent.uuid == Uuid::default() && parent.epoch == Epoch(0)))
        && (is_building || building == CkptEpoch(0));
    if !is_sound {
        return None;
    }
    let positions: Option<Vec<Pos>> = (0..streams).map(|_| r.u64().map(Pos)).collect();
    let retained: Option<Vec<CkptEpoch>> = (0..images).map(|_| r.u64().map(CkptEpoch)).collect();
    let mut list = Vec::with_capacity(to_usize(u64::from(objects)));
    for _ in 0..objects {
        list.push(Object::decode(r)?);
    }
    let anchor = r.bytes(to_usize(u64::from(anchor)))?.to_vec();
    let clock = match flags & HAS_CLOCK {
        0 if rest == 0 => Clock::default(),
        0 => return None,
        _ => {
            Clock::decode(r).filter(|clock| clock.bytes() == rest && *clock != Clock::default())?
        }
    };
    Some(Manifest {
        number,
        uuid,
        writer: Writer { role, life },
        oldest,
        predecessor,
        parent: has_parent.then_some(parent),
        is_whole: flags & IS_WHOLE != 0,
        begin,
        end,
        positions: positions?,
        images: Images {
            retained: retained?,
            building: is_building.then_some(building),
        },
        objects: list,
        anchor,
        clock,
    })
}
