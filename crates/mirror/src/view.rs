//! The view: it says where acknowledged bytes are, and which process may write. The format page below is the only
//! description of its bytes.
#![doc = include_str!("../../../docs/formats/view.md")]

use std::fmt;

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::STREAMS_MAX;
use perdura_base::{Epoch, Incarnation, StreamId, Uuid};

use crate::ids::{Generation, Machine, NodeInc};

const MAGIC: &[u8; 4] = b"PVEW";
const VERSION: u16 = 1;
/// The maximum number of groups of nodes.
pub const GROUPS_MAX: u8 = 16;
/// The maximum length of a node's address, bytes.
pub const ADDRESS_BYTES_MAX: usize = 255;
/// The maximum length of an encoded view, bytes.
pub(crate) const VIEW_BYTES_MAX: usize = 16 * 1024;

/// A node that holds acknowledged bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The incarnation of the node.
    pub inc: NodeInc,
    /// The node's machine.
    pub machine: Machine,
    /// The address of the node.
    pub address: String,
}

/// The nodes and disks that must have a group's bytes before the writer acknowledges the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Only the log's disk.
    Disk,
    /// One node and the log's disk.
    Solo(Member),
    /// Both nodes, and no disk.
    Mirror(Box<[Member; 2]>),
}

impl Mode {
    /// Returns the nodes of the mode.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        match self {
            Mode::Disk => &[],
            Mode::Solo(member) => std::slice::from_ref(member),
            Mode::Mirror(members) => &members[..],
        }
    }

    /// Returns whether bytes may be acknowledged before they are on disk.
    #[must_use]
    pub fn is_mirror(&self) -> bool {
        matches!(self, Mode::Mirror(_))
    }

    fn code(&self) -> u8 {
        match self {
            Mode::Disk => 0,
            Mode::Solo(_) => 1,
            Mode::Mirror(_) => 2,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Disk => f.write_str("disk"),
            Mode::Solo(member) => write!(f, "solo({})", member.address),
            Mode::Mirror(members) => {
                write!(f, "mirror({}, {})", members[0].address, members[1].address)
            }
        }
    }
}

/// A view: it says where acknowledged bytes are, and which process may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The identity of the database.
    pub uuid: Uuid,
    /// The number of the view. Each new view has the next higher number.
    pub v: u64,
    /// The writer's generation.
    pub generation: Generation,
    /// The random number of the process that made the view.
    pub writer: u64,
    /// The generation of the members' rings.
    pub rings: Generation,
    /// The life of the database that writes these rings.
    pub life: Incarnation,
    /// A commit epoch that was durable on the log's disks when the view was made.
    pub hard: Epoch,
    /// The creation time of the view, microseconds since 1970.
    pub wall_us: u64,
    /// The mode of each group.
    pub groups: Vec<Mode>,
    /// The index in `groups` of each stream's group.
    pub homes: Vec<u8>,
}

impl View {
    /// Returns the mode of the group that a stream belongs to.
    #[must_use]
    pub fn mode_of(&self, stream: StreamId) -> &Mode {
        let home = self.homes[usize::from(stream.0)];
        &self.groups[usize::from(home)]
    }

    /// Returns whether bytes of any stream may be acknowledged before they are on disk.
    #[must_use]
    pub fn is_mirrored(&self) -> bool {
        let mut homes = self.homes.iter();
        homes.any(|home| self.groups[usize::from(*home)].is_mirror())
    }

    /// Returns the encoded view.
    ///
    /// # Panics
    /// If [`decode`](Self::decode) would refuse the bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.is_well_formed(), "{self:?} is no view");
        let mut out = Vec::with_capacity(256);
        out.put(MAGIC);
        out.put_u16(VERSION);
        out.put_u8(u8::try_from(self.groups.len()).expect("at most 16 groups"));
        out.put_u8(u8::try_from(self.homes.len()).expect("at most 16 streams"));
        out.put(&self.uuid.0);
        out.put_u64(self.v);
        out.put_u64(self.generation.0);
        out.put_u64(self.writer);
        out.put_u64(self.rings.0);
        out.put_u32(self.life.0);
        out.put_zeros(4);
        out.put_u64(self.hard.0);
        out.put_u64(self.wall_us);
        for mode in &self.groups {
            out.put_u8(mode.code());
            for member in mode.members() {
                out.put_u64(member.inc.0);
                out.put(&member.machine.0);
                out.put_u8(u8::try_from(member.address.len()).expect("at most 255 bytes"));
                out.put(member.address.as_bytes());
            }
        }
        out.put(&self.homes);
        let crc = crc32c(&out);
        out.put_u32(crc);
        assert!(out.len() <= VIEW_BYTES_MAX, "16 groups of 2 nodes fit");
        out
    }

    /// Decodes a view.
    ///
    /// # Errors
    /// A description of what is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<View, String> {
        let Some((covered, crc)) = bytes.split_last_chunk::<4>() else {
            return Err("shorter than a view".into());
        };
        if crc32c(covered) != u32::from_le_bytes(*crc) {
            return Err("a view whose checksum does not match".into());
        }
        let mut r = Reader::new(covered);
        if r.bytes(4) != Some(MAGIC) {
            return Err("not a view".into());
        }
        match r.u16() {
            Some(VERSION) => {}
            Some(other) => return Err(format!("a view of version {other}, not {VERSION}")),
            None => return Err("shorter than a view".into()),
        }
        let view = View::body(&mut r).filter(|view| r.remaining() == 0 && view.is_well_formed());
        view.ok_or_else(|| "a view that contradicts itself".into())
    }

    fn body(r: &mut Reader<'_>) -> Option<View> {
        let (groups, streams) = (r.u8()?, r.u8()?);
        let uuid = Uuid(r.array()?);
        let (v, generation, writer) = (r.u64()?, Generation(r.u64()?), r.u64()?);
        let (rings, life) = (Generation(r.u64()?), Incarnation(r.u32()?));
        r.zeros(4)?;
        let (hard, wall_us) = (Epoch(r.u64()?), r.u64()?);
        let groups = (0..groups)
            .map(|_| mode(r))
            .collect::<Option<Vec<Mode>>>()?;
        let homes = r.bytes(usize::from(streams))?.to_vec();
        Some(View {
            uuid,
            v,
            generation,
            writer,
            rings,
            life,
            hard,
            wall_us,
            groups,
            homes,
        })
    }

    fn is_well_formed(&self) -> bool {
        let counts = (1..=usize::from(GROUPS_MAX)).contains(&self.groups.len())
            && (1..=usize::from(STREAMS_MAX)).contains(&self.homes.len());
        let address = |member: &Member| (1..=ADDRESS_BYTES_MAX).contains(&member.address.len());
        let mode = |mode: &Mode| {
            let differ = match mode {
                Mode::Mirror(members) => members[0].inc != members[1].inc,
                Mode::Disk | Mode::Solo(_) => true,
            };
            differ && mode.members().iter().all(address)
        };
        let home = |home: &u8| usize::from(*home) < self.groups.len();
        counts
            && self.v > 0
            && self.rings <= self.generation
            && self.groups.iter().all(mode)
            && self.homes.iter().all(home)
    }
}

fn mode(r: &mut Reader<'_>) -> Option<Mode> {
    Some(match r.u8()? {
        0 => Mode::Disk,
        1 => Mode::Solo(member(r)?),
        2 => Mode::Mirror(Box::new([member(r)?, member(r)?])),
        _ => return None,
    })
}

fn member(r: &mut Reader<'_>) -> Option<Member> {
    let (inc, machine, len) = (NodeInc(r.u64()?), Machine(r.array()?), r.u8()?);
    let address = r.bytes(usize::from(len))?.to_vec();
    Some(Member {
        inc,
        machine,
        address: String::from_utf8(address).ok()?,
    })
}
