//! The takeover in the simulated world: claim, fetch, drain, restart.

use std::sync::Arc;

use perdura_base::{Epoch, Incarnation, Pos};
use perdura_mirror::sim::Mood;
use perdura_mirror::{
    Beginning, Claim, Claimant, Fetch, Fetched, Kept, Key, Machine, Member, Mirror, MirrorOptions,
    Mode, Patience, Register, Swap, View, beginning_view,
};

use super::{BLOCK, Fallen, LEASE, MS, ModelLog, TAIL, UUID, World, Writer};

impl World {
    /// Starts the next life: claim, fetch, drain, restart. If the takeover is interrupted, begins again.
    pub(super) fn start(&mut self) -> Result<(), String> {
        let mut fallen = self.fallen.take().unwrap_or_else(|| Fallen {
            on_disk: self.history.iter().map(Vec::len).collect(),
            raised: vec![0; self.streams],
            shipped: self.history.clone(),
        });
        loop {
            match self.take_over(&mut fallen)? {
                Some(writer) => {
                    self.seen.lives += 1;
                    self.writer = Some(writer);
                    return Ok(());
                }
                None if self.chance(50) => self.heal_some(),
                None => {}
            }
        }
    }

    /// Takes over once. `None`: the takeover was interrupted.
    fn take_over(&mut self, fallen: &mut Fallen) -> Result<Option<Writer>, String> {
        self.clients += 1;
        let by = Claimant {
            uuid: UUID,
            writer: u64::from(self.clients),
            wall_us: 0,
            groups: u8::try_from(self.addresses.len()).unwrap(),
            streams: u8::try_from(self.streams).unwrap(),
        };
        let mut claim = Claim::new(by.clone());
        let mut register = self.register.clone();
        let claimed = loop {
            match claim.step(&mut register) {
                Ok(Some(view)) => break view,
                Ok(None) => {}
                Err(_) => self.register.set_mood(Mood::Answers),
            }
        };
        self.now_ns += self.options().takeover_wait_ns(&claimed);
        let (mirrored, life) = {
            let anchor = self.anchor.lock();
            (anchor.mirrored, anchor.life)
        };
        let interrupts = |world: &World| world.faults && world.chance(8);
        if interrupts(self) {
            return Ok(None);
        }
        if mirrored && claimed.is_mirrored() && claimed.life.0 == life {
            match self.fetch(&claimed, fallen)? {
                Some(all) if interrupts(self) => {
                    self.drain(fallen, &all, true)?;
                    return Ok(None);
                }
                Some(all) => self.drain(fallen, &all, false)?,
                None => self.seen.losses += 1,
            }
        } else {
            self.check(fallen)?;
        }
        self.history = fallen
            .shipped
            .iter()
            .zip(&fallen.on_disk)
            .map(|(all, len)| all[..*len].to_vec())
            .collect();
        fallen.raised.fill(0);
        let life = {
            let mut anchor = self.anchor.lock();
            anchor.life += 1;
            anchor.life
        };
        if interrupts(self) {
            return Ok(None);
        }
        let view = beginning_view(&claimed, &by, Incarnation(life), Epoch(0));
        while register.replace(&view).ok() != Some(Swap::Done) {
            self.register.set_mood(Mood::Answers);
            if self.register.view().as_ref() == Some(&view) {
                break;
            }
        }
        Ok(Some(self.writer(view, mirrored, life)))
    }

    fn options(&self) -> MirrorOptions {
        MirrorOptions {
            tail_bytes_max: TAIL,
            lease_ns: if self.leases { LEASE } else { 0 },
            ..MirrorOptions::new(self.addresses.clone(), Key::none())
        }
    }

    fn writer(&self, view: View, anchored: bool, life: u32) -> Writer {
        let lens: Vec<u64> = self
            .history
            .iter()
            .map(|all| u64::try_from(all.len()).unwrap())
            .collect();
        let log = Arc::new(ModelLog::new(lens.clone(), Arc::clone(&self.anchor), life));
        let mut seed = self.random.borrow_mut().u64(..);
        let beginning = Beginning {
            view,
            start: lens.into_iter().map(Pos).collect(),
            anchored,
            random: Box::new(move || {
                seed += 1;
                seed
            }),
        };
        let net = self.net.client(self.clients);
        if self.shares {
            self.net.set_machine(self.clients, Machine([1; 16]));
        }
        let register = Box::new(self.register.clone());
        let mirror = Mirror::new(self.options(), net, register, beginning);
        let mirror = mirror.expect("possible options");
        mirror.begin(log.as_ref());
        Writer {
            id: self.clients,
            mirror,
            log,
            shipped: self.history.clone(),
            is_stopping: false,
        }
    }

    /// Returns the bytes that the nodes hold. `None`: the fetch failed because all members of a mirror were lost or
    /// damaged, which is permitted.
    fn fetch(&mut self, view: &View, fallen: &Fallen) -> Result<Option<Vec<Vec<Kept>>>, String> {
        for healed in [false, true] {
            let from = fallen
                .on_disk
                .iter()
                .map(|len| Pos(u64::try_from(*len).unwrap()));
            let mut seed = self.random.borrow_mut().u64(..);
            let random = move || {
                seed += 1;
                seed
            };
            let mut fetch = Fetch::new(
                view.clone(),
                Key::none(),
                self.net.client(self.clients),
                Patience::default(),
                from.collect(),
                Box::new(random),
            );
            let found = loop {
                self.deliver();
                self.now_ns += MS * 20;
                match fetch.step(self.now_ns) {
                    Ok(Fetched::All(all)) => break Ok(all),
                    Ok(_) => {}
                    Err(error) => break Err(error.to_string()),
                }
            };
            let lives = |mode: &Mode| {
                let mut members = mode.members().iter();
                let lives = |of: &Member| {
                    self.net.inc(&of.address) == Some(of.inc) && !self.damaged.contains(&of.inc)
                };
                !mode.is_mirror() || members.any(lives)
            };
            let has_homes =
                |group: usize| view.homes.iter().any(|home| usize::from(*home) == group);
            let mut groups = view.groups.iter().enumerate();
            let all_live = groups.all(|(group, mode)| !has_homes(group) || lives(mode));
            match found {
                Ok(all) => return Ok(Some(all)),
                Err(_) if !all_live => return Ok(None),
                Err(_) if !healed => self.heal_some(),
                Err(why) => {
                    return Err(format!(
                        "a node holds the tail, and the takeover fails: {why}"
                    ));
                }
            }
        }
        unreachable!("the second try returns")
    }

    /// Writes the fetched bytes to the disk. If `half` is set, may write only a part of the bytes.
    fn drain(&mut self, fallen: &mut Fallen, all: &[Vec<Kept>], half: bool) -> Result<(), String> {
        let mut ends = fallen.on_disk.clone();
        for (stream, kept) in all.iter().enumerate() {
            for kept in kept {
                let from = usize::try_from(kept.from.0).unwrap();
                let end = from + kept.bytes.len();
                let shipped = &fallen.shipped[stream];
                if from > fallen.on_disk[stream] {
                    return Err(format!(
                        "{} holds {from}, the disk ends at {}",
                        kept.holder, fallen.on_disk[stream]
                    ));
                }
                if shipped.get(from..end) != Some(&kept.bytes[..]) {
                    return Err(format!(
                        "{} holds other bytes of stream {stream} at {from}",
                        kept.holder
                    ));
                }
                ends[stream] = ends[stream].max(end);
            }
        }
        for (stream, end) in ends.iter().enumerate() {
            // Only whole blocks are written.
            let blocks = (end - fallen.on_disk[stream]) / BLOCK;
            let blocks = if half { self.below(blocks + 1) } else { blocks };
            self.seen.drained += u64::try_from(blocks).unwrap();
            fallen.on_disk[stream] += blocks * BLOCK;
        }
        if half { Ok(()) } else { self.check(fallen) }
    }

    fn check(&self, fallen: &Fallen) -> Result<(), String> {
        for (stream, (raised, len)) in fallen.raised.iter().zip(&fallen.on_disk).enumerate() {
            if usize::try_from(*raised).unwrap() > *len {
                return Err(format!(
                    "stream {stream} was acknowledged up to {raised}, and {len} came back"
                ));
            }
        }
        Ok(())
    }
}
