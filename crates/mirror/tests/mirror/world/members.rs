//! What a takeover could find now, at each step: a bug that spoils a node's ring is seen before a crash has to meet it.

use perdura_base::StreamId;

use super::{UUID, World};

impl World {
    /// What was acknowledged and is not on disk rests on a mirror. Each member of a mirror that lives has the stream's ring up
    /// to what was acknowledged, and holds the bytes that are not on disk.
    pub(super) fn check_members(&self) -> Result<(), String> {
        let (Some(writer), Some(view)) = (&self.writer, self.register.view()) else {
            return Ok(());
        };
        let disk = writer.log.disk.lock();
        let ends = disk.raised.iter().zip(&disk.synced);
        for ((stream, shipped), (raised, synced)) in (0u8..).zip(&writer.shipped).zip(ends) {
            let stream = StreamId(stream);
            let mode = view.mode_of(stream);
            if !mode.is_mirror() {
                if raised > synced {
                    let why = "was acknowledged ahead of the disk, and its mode is";
                    return Err(format!("stream {stream} {why} {mode}"));
                }
                continue;
            }
            let from = *synced.min(raised);
            for member in mode.members() {
                let holder = (member.address.as_str(), member.inc);
                if self.net.inc(&member.address) != Some(member.inc) {
                    continue;
                }
                let held = self.net.held(holder, (UUID, view.rings, stream));
                let at = |pos: u64| usize::try_from(pos).unwrap();
                let holds = held.as_ref().is_some_and(|(low, bytes)| {
                    // What is on disk the node may have forgotten.
                    let from = if raised > synced {
                        from
                    } else {
                        from.max(low.0)
                    };
                    let end = low.0 + u64::try_from(bytes.len()).unwrap();
                    end >= *raised
                        && (from >= *raised
                            || low.0 <= from
                                && bytes[at(from - low.0)..at(raised - low.0)]
                                    == shipped[at(from)..at(*raised)])
                });
                if !holds {
                    let held = held.map(|(low, bytes)| (low, bytes.len()));
                    let node = &member.address;
                    return Err(format!(
                        "{node} lacks of stream {stream} what was acknowledged, {from} to {raised}: {held:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
