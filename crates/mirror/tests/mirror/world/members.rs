//! What a takeover could find now, at each step: a bug that spoils a node's ring is seen before a crash has to meet it.

use perdura_base::StreamId;

use super::{UUID, World};

impl World {
    /// What was acknowledged and is not on disk rests on a mirror, and each member that lives holds those bytes.
    pub(super) fn check_members(&self) -> Result<(), String> {
        let (Some(writer), Some(view)) = (&self.writer, self.register.view()) else {
            return Ok(());
        };
        let disk = writer.log.disk.lock();
        let ends = disk.raised.iter().zip(&disk.synced);
        for ((stream, shipped), (raised, synced)) in (0u8..).zip(&writer.shipped).zip(ends) {
            let stream = StreamId(stream);
            if raised <= synced {
                continue;
            }
            let mode = view.mode_of(stream);
            if !mode.is_mirror() {
                let why = "was acknowledged ahead of the disk, and its mode is";
                return Err(format!("stream {stream} {why} {mode}"));
            }
            for member in mode.members() {
                let holder = (member.address.as_str(), member.inc);
                if self.net.inc(&member.address) != Some(member.inc) {
                    continue;
                }
                let held = self.net.held(holder, (UUID, view.rings, stream));
                let at = |pos: u64| usize::try_from(pos).unwrap();
                let holds = held.as_ref().is_some_and(|(from, bytes)| {
                    let held = (from.0 <= *synced)
                        .then(|| bytes.get(at(synced - from.0)..at(raised - from.0)));
                    held.flatten() == Some(&shipped[at(*synced)..at(*raised)])
                });
                if !holds {
                    let held = held.map(|(from, bytes)| (from, bytes.len()));
                    let node = &member.address;
                    return Err(format!(
                        "{node} lacks of stream {stream} what was acknowledged, {synced} to {raised}: {held:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
