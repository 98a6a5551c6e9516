//! A bit that flips in a mapped ring. Its node may lose what it held; it must not count again as one that holds it.

use perdura_mirror::{NodeInc, Shared};

use super::World;

impl World {
    /// Flips a bit of what the newest mapped ring of a group's first node holds, and breaks its connection: the writer asks for its rings
    /// again. Nothing happens if no view counts the node.
    pub(super) fn damage(&mut self, group: usize, client: u32) {
        let address = self.addresses[group][0].clone();
        let inc = self.net.inc(&address).filter(|inc| self.is_counted(*inc));
        let memory = self.net.memories(&address).pop();
        let (Some(inc), Some(memory)) = (inc, memory) else {
            return;
        };
        let Some(at) = self.held_byte(memory.as_ref()) else {
            return;
        };
        let mut byte = [0];
        memory.read(at, &mut byte);
        memory.write(at, &[byte[0] ^ 4]);
        self.net.break_connections(client, &address);
        self.damaged.push(inc);
        self.seen.damaged += 1;
    }

    /// Where some byte of a ring lies that its checksums cover, as docs/formats/logd.md lays it out.
    fn held_byte(&self, memory: &dyn Shared) -> Option<usize> {
        let (size, entries) = (memory.load(8), memory.load(16));
        let (low, count) = (memory.load(128), memory.load(192));
        let number = |number: u64| usize::try_from(number).unwrap();
        let entry = |number_of: u64, word: usize| {
            memory.load(4096 + number(number_of % entries) * 32 + 8 * word)
        };
        // Of an append whose begin was forgotten no checksum is left.
        let all = count.saturating_sub(entries)..count;
        let whole: Vec<u64> = all.filter(|number| entry(*number, 0) >= low).collect();
        let chosen = *whole.get(self.below(whole.len().max(1)))?;
        let (start, end) = (entry(chosen, 0), entry(chosen, 1));
        let pos = start + u64::try_from(self.below(number(end - start))).unwrap();
        let begin = 4096 + (entries * 32).next_multiple_of(4096);
        Some(number(begin + pos % size))
    }

    /// Nodes that no view counts any more have left; from now on what they hold must be in order again.
    pub(super) fn forget_damages(&mut self) {
        let damaged = std::mem::take(&mut self.damaged);
        let still = damaged.into_iter().filter(|inc| self.is_counted(*inc));
        self.damaged = still.collect();
    }

    fn is_counted(&self, inc: NodeInc) -> bool {
        let view = self.register.view();
        let mut modes = view.iter().flat_map(|view| &view.groups);
        modes.any(|mode| mode.members().iter().any(|member| member.inc == inc))
    }
}
