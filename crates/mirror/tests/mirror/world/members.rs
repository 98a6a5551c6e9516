//! The check of the bytes that a takeover would find. It runs after each step. So a bug that damages a ring is found
//! even if no crash follows.

use perdura_base::{StreamId, Uuid};
use perdura_mirror::{Generation, Member, RingName};

use super::{UUID, World};

impl World {
    /// Checks the members of all mirrors. If acknowledged bytes of a stream are not on disk, each member must have
    /// the stream's ring up to the acknowledged position. A killed member must have had it when it was killed. The
    /// ring must contain the right bytes.
    pub(super) fn check_members(&self) -> Result<(), String> {
        let (Some(writer), Some(view)) = (&self.writer, self.register.view()) else {
            return Ok(());
        };
        let disk = writer.log.disk.lock();
        let ends = disk.raised.iter().zip(&disk.synced);
        for ((stream, shipped), (raised, synced)) in (0u8..).zip(&writer.shipped).zip(ends) {
            let stream = StreamId(stream);
            let mode = view.mode_of(stream);
            if !mode.is_mirror() && raised > synced {
                let why = "was acknowledged ahead of the disk, and its mode is";
                return Err(format!("stream {stream} {why} {mode}"));
            }
            if !mode.is_mirror() {
                continue;
            }
            for member in mode.members() {
                let ring = (UUID, view.rings, stream);
                if let Some(why) = self.lacks(member, ring, (*synced, *raised), shipped) {
                    let node = &member.address;
                    return Err(format!(
                        "{node} lacks of stream {stream} what was acknowledged, {synced} to {raised}: {why}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that a member holds the acknowledged bytes of a stream, and that they are right. For a killed member,
    /// checks the ring that it had when it was killed. Returns a description of the first fault. `None`: no fault was
    /// found.
    fn lacks(
        &self,
        member: &Member,
        (uuid, generation, stream): (Uuid, Generation, StreamId),
        (synced, raised): (u64, u64),
        shipped: &[u8],
    ) -> Option<String> {
        let is_damaged = self.damaged.contains(&member.inc);
        if let Some(fallen) = self.net.fallen(member.inc) {
            if is_damaged {
                return None;
            }
            let mut rings = fallen.rings.iter().map(|(_, ring)| ring);
            let ring = rings.find(|of| (of.generation, of.stream) == (generation, stream));
            let held = ring.is_some_and(|ring| ring.end.0 >= raised);
            return (!held).then(|| format!("it was killed with {ring:?}"));
        }
        let ring = RingName {
            uuid,
            generation,
            stream,
        };
        let held = match self.net.held(&member.address, member.inc, ring) {
            // A takeover that reads this ring gets the same error.
            Some(Err(_)) if is_damaged => return None,
            Some(Err(at)) => return Some(format!("its memory does not hold what is at {at}")),
            // A damaged member is checked as well: a takeover would mistake its undamaged bytes for all bytes that it
            // held.
            Some(Ok(held)) => Some(held),
            None => None,
        };
        let at = |pos: u64| usize::try_from(pos).unwrap();
        let holds = held.as_ref().is_some_and(|(low, bytes)| {
            // The node may have forgotten bytes that are on disk.
            let from = if raised > synced {
                synced
            } else {
                raised.max(low.0)
            };
            let end = low.0 + u64::try_from(bytes.len()).unwrap();
            let range =
                |of: &[u8], begin: u64| of[at(from - begin)..at(raised.max(from) - begin)].to_vec();
            end >= raised && low.0 <= from && range(bytes, low.0) == range(shipped, 0)
        });
        let held = held.map(|(low, bytes)| (low, bytes.len()));
        (!holds).then(|| format!("{held:?}"))
    }
}
