//! Bits that flip in mapped rings. A node whose ring is damaged loses the ring's bytes. The test must not count this
//! node as a holder of these bytes.

use perdura_mirror::{NodeInc, Shared};

use super::World;

impl World {
    /// Damages the newest mapped ring of a group's first node: flips a bit of a byte that the ring holds. Then breaks
    /// the node's connection, so that the writer asks for the ring again. Does nothing if no view has the node as a
    /// member.
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

    /// Returns the offset of a random byte in the memory of a ring. A checksum covers the byte. The layout is in
    /// docs/formats/logd.md.
    fn held_byte(&self, memory: &dyn Shared) -> Option<usize> {
        let (size, entries) = (memory.load(8), memory.load(16));
        let (low, count) = (memory.load(128), memory.load(192));
        let number = |number: u64| usize::try_from(number).unwrap();
        let entry = |number_of: u64, word: usize| {
            memory.load(4096 + number(number_of % entries) * 32 + 8 * word)
        };
        // If the beginning of an append was forgotten, no checksum covers the append any more.
        let all = count.saturating_sub(entries)..count;
        let whole: Vec<u64> = all.filter(|number| entry(*number, 0) >= low).collect();
        let chosen = *whole.get(self.below(whole.len().max(1)))?;
        let (start, end) = (entry(chosen, 0), entry(chosen, 1));
        let pos = start + u64::try_from(self.below(number(end - start))).unwrap();
        let begin = 4096 + (entries * 32).next_multiple_of(4096);
        Some(number(begin + pos % size))
    }

    /// Forgets the damage of nodes that are no longer in any view. Later checks expect correct bytes from these nodes.
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
