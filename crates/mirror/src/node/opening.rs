//! The requests that give a writer a ring. They make or find the ring, move it to shared memory or back, or replace a
//! spoiled ring.

use std::collections::btree_map;

use perdura_base::Pos;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;

use super::held::{NodeRing, refusal_of};
use super::{Answer, Node, Refusal};
use crate::ids::RingName;
use crate::message::{Held, Reason, Reply};
use crate::ring::Ring;
use crate::shared::Memories;

impl Node {
    /// Drops a ring if it is spoiled and its damage report has the number `damage`. Otherwise does nothing, because
    /// the request may have arrived after the ring was replaced.
    pub(super) fn renew(&mut self, ring: RingName, damage: u64) -> Result<(), Refusal> {
        self.check_generation(ring.uuid, ring.generation)?;
        let rings = &mut self.database(ring.uuid)?.rings;
        let name = (ring.generation, ring.stream);
        if let Some(NodeRing::Spoiled(_, of)) = rings.get(&name)
            && *of == damage
        {
            rings.remove(&name);
        }
        Ok(())
    }

    /// Finds a ring, or makes it if it does not exist.
    fn open(&mut self, ring: RingName, start: Pos) -> Result<&mut NodeRing, Refusal> {
        self.check_generation(ring.uuid, ring.generation)?;
        let name = (ring.generation, ring.stream);
        let rings: usize = self.databases.values().map(|one| one.rings.len()).sum();
        let (rings_max, ring_bytes) = (self.options.rings_max, self.options.ring_bytes);
        let no_memory = |why: String| Refusal::new(Reason::Memory, why);
        let database = self.database(ring.uuid)?;
        if let btree_map::Entry::Vacant(place) = database.rings.entry(name) {
            if rings >= rings_max {
                return Err(no_memory(format!("the node has {rings} rings, its most")));
            }
            let ring = Ring::new(start, ring_bytes);
            let ring =
                ring.ok_or_else(|| no_memory(format!("no memory for {ring_bytes} bytes")))?;
            place.insert(NodeRing::Own(ring));
        }
        if armed(Flaw::RingEmptiedAtOpen)
            && let Some(empty) = Ring::new(start, ring_bytes)
        {
            database.rings.insert(name, NodeRing::Own(empty));
        }
        database.raise(name.0);
        assert!(database.generation <= name.0, "generations only rise");
        Ok(database.rings.get_mut(&name).expect("it is there"))
    }

    /// Answers *open*, or *map* if `memories` is given.
    pub(super) fn opened(
        &mut self,
        name: RingName,
        start: Pos,
        memories: Option<&Memories>,
    ) -> Result<Answer<'static>, Refusal> {
        let (inc, size) = (self.options.inc, self.options.ring_bytes);
        let next = self.damages + 1;
        let ring = self.open(name, start)?;
        if let Some(damage) = ring.damage(next) {
            self.damages = self.damages.max(damage);
            let spoiled = Reply::Spoiled {
                inc,
                generation: name.generation,
                stream: name.stream,
                damage,
            };
            return Ok((spoiled, None));
        }
        let refused = |why| refusal_of(why, start, size);
        let memory = memories.and_then(|memories| ring.share(start, memories));
        if memory.is_none() {
            ring.own(start).map_err(refused)?;
        }
        let ring = ring.state(name.generation, name.stream).map_err(refused)?;
        let held = Held { inc, ring };
        let reply = match &memory {
            None => Reply::Held(held),
            Some(memory) => Reply::Mapped(held, to_u64(memory.len())),
        };
        Ok((reply, memory))
    }
}
