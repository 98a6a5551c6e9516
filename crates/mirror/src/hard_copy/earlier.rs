//! The bytes that a node's rings had in earlier starts of the node, as read from the hard copy.

use std::collections::BTreeMap;

use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Pos, Result, StreamId, Uuid};
use perdura_device::Disk;

use super::found::{Found, FoundRing, read_back};
use crate::ids::{Generation, NodeInc};
use crate::message::RingState;

/// Contiguous bytes of a ring that an earlier start of the node has copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// The incarnation of the earlier start.
    pub inc: NodeInc,
    /// The database.
    pub uuid: Uuid,
    /// The writer's generation.
    pub generation: Generation,
    /// The stream.
    pub stream: StreamId,
    /// The position of the first byte.
    pub low: Pos,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Earlier {
    /// Returns the name of the ring, and the range of its bytes.
    #[must_use]
    pub fn state(&self) -> RingState {
        RingState {
            generation: self.generation,
            stream: self.stream,
            low: self.low,
            end: Pos(self.low.0 + to_u64(self.bytes.len())),
        }
    }

    /// Returns at most `len` bytes from position `from` on. `None`: the position is outside the bytes.
    #[must_use]
    pub fn read(&self, from: Pos, len: u32) -> Option<&[u8]> {
        let at = to_usize(from.0.checked_sub(self.low.0)?);
        let rest = self.bytes.get(at..)?;
        Some(&rest[..rest.len().min(to_usize(u64::from(len)))])
    }
}

/// Reads the valid files of a hard copy. For each ring, returns the bytes after its last gap. A gap arises if the ring
/// forgets bytes before they are copied. The missing bytes are on the writer's disk. Bytes after damage are not
/// returned.
///
/// # Errors
/// Errors of the disk.
pub fn earlier(disk: &dyn Disk, found: &[Found]) -> Result<Vec<Earlier>> {
    let mut rings: BTreeMap<_, Vec<(FoundRing, &str)>> = BTreeMap::new();
    for found in found {
        if let Ok(ring) = &found.ring {
            let of = (ring.uuid.0, ring.generation, ring.stream, ring.inc);
            rings.entry(of).or_default().push((*ring, &found.name));
        }
    }
    let mut all = Vec::new();
    for mut files in rings.into_values() {
        files.sort_by_key(|(ring, _)| ring.start);
        all.extend(run(disk, &files)?);
    }
    Ok(all)
}

/// Reads the files of one ring, in the order of their positions. Returns the ring's bytes after its last gap.
fn run(disk: &dyn Disk, files: &[(FoundRing, &str)]) -> Result<Option<Earlier>> {
    let mut run: Option<Earlier> = None;
    let (mut low, mut is_torn) = (Pos(0), false);
    for (ring, name) in files {
        let end = run.as_ref().map(|run| run.state().end);
        let follows = end == Some(ring.start);
        if is_torn && !follows {
            break;
        }
        let (_, bytes) = read_back(disk, name)?;
        match &mut run {
            Some(run) if follows => run.bytes.extend_from_slice(&bytes),
            _ => {
                run = Some(Earlier {
                    inc: ring.inc,
                    uuid: ring.uuid,
                    generation: ring.generation,
                    stream: ring.stream,
                    low: ring.start,
                    bytes,
                });
            }
        }
        (low, is_torn) = (low.max(ring.low), ring.torn > 0);
    }
    let Some(mut run) = run else { return Ok(None) };
    // A file may begin inside a block. `low`, up to which the stream is on the writer's disk, is the end of a block. So
    // the bytes below `low` are dropped.
    let RingState {
        low: first, end, ..
    } = run.state();
    if first < low && low <= end {
        run.bytes.drain(..to_usize(low.0 - first.0));
        run.low = low;
    }
    assert!(run.state().end == end, "the end stays where it is");
    Ok(Some(run))
}
