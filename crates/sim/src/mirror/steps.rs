//! The steps of a writer. The seed determines their order.

use perdura::mirror::{Managed, Mode};
use perdura::{CheckpointProgress, Error, NodesInUse, PartitionSet};
use perdura_base::StreamId;
use perdura_device::Clock;
use perdura_wal::FlushProgress;

use crate::report::Check;

use super::past::{Changes, Value};
use super::world::World;
use super::writer::{Promise, RUNGS, Writer};

/// Returns the bytes of the key with this number.
pub(super) fn key_bytes(key: u8) -> [u8; 4] {
    [b'k', b'e', b'y', key]
}

/// Returns whether the arbiter caused this error.
pub(super) fn is_arbiters(error: &Error) -> bool {
    matches!(error, Error::Io { file, .. } if file == "arbiter")
}

impl World {
    /// Takes one step of a writer. Chooses the kind of the step at random, with the run's weights.
    pub fn step(&mut self, writer: &mut Writer) -> Check {
        match self.draw_kind() {
            0 => self.write(writer)?,
            1 => self.read(writer)?,
            2 => self.ship(writer)?,
            3 => {
                self.deliver(8);
                self.pump(writer);
            }
            4 => self.deliver(4),
            5 => self.pump(writer),
            6 => self.manage(writer)?,
            7 => self.flush_one(writer)?,
            8 => self.ship_one(writer)?,
            9 => self.checkpoint_begin(writer)?,
            10 => self.checkpoint_steps(writer)?,
            11 => self.vouch(writer)?,
            12 => {
                let us = self.rng.u64(0..60_000);
                self.clock.advance_us(us);
            }
            13 => {
                let struck = self.trouble(super::trouble::Trouble::strike);
                *self.tally.faults.entry(struck).or_default() += 1;
            }
            14 => self.trouble(super::trouble::Trouble::sway),
            _ => {
                let rounds = self.rng.u32(4..=12);
                self.settle(writer, rounds)?;
            }
        }
        self.observe(writer)
    }

    fn draw_kind(&mut self) -> usize {
        let odds = self.character.odds;
        let mut at = self.rng.u32(0..odds.iter().sum());
        let mut kind = 0;
        while at >= odds[kind] {
            at -= odds[kind];
            kind += 1;
        }
        assert!(odds[kind] > 0, "what has no odds is not drawn");
        self.note(u64::try_from(kind).unwrap_or(0));
        kind
    }

    /// Gives a writer's clients all replies whose epochs are durable. Checks that no reply of a replaced writer
    /// depends on an epoch that the next life lacks, unless the next life accepted a loss.
    pub fn observe(&mut self, writer: &mut Writer) -> Check {
        let before = writer.acked;
        let answered = writer.observe();
        self.tally.acknowledged += answered;
        if writer.acked[0] > before[0].max(writer.acked[1]) {
            self.reach("ahead_of_disk");
        }
        if writer.is_fenced_off && writer.acked != before {
            self.reach("acknowledged_asleep");
        }
        let Some(superseded) = writer.superseded else {
            return Ok(());
        };
        for (at, acked) in writer.acked.iter().enumerate() {
            if *acked > superseded.kept && !superseded.by_loss {
                return Err(format!(
                    "life {} was replaced, which kept epoch {}, and acknowledges epoch {acked} on {:?}",
                    writer.life, superseded.kept, RUNGS[at]
                ));
            }
        }
        Ok(())
    }

    fn draw_keys(&mut self) -> Vec<u8> {
        let mut keys: Vec<u8> = (0..self.rng.u8(1..=4))
            .map(|_| self.rng.u8(0..self.character.keys))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn promise(&mut self, writer: &mut Writer, ticket: u64, needs: u64) {
        writer.promises.push(Promise {
            ticket,
            needs,
            waits: [true; 2],
        });
        self.tally.transactions += 1;
        self.note(ticket);
    }

    /// Runs a transaction that puts and removes some keys.
    pub fn write(&mut self, writer: &mut Writer) -> Check {
        let mut changes = Changes::new();
        for key in self.draw_keys() {
            let value = (self.rng.u8(0..4) > 0).then(|| Value {
                number: self.fresh(),
                len: self.rng.u16(8..=self.character.value_max),
            });
            changes.push((key, value));
        }
        let core = writer.core();
        let table = core.database(0);
        let parts: PartitionSet = changes
            .iter()
            .map(|(key, _)| core.partition_of(&key_bytes(*key)))
            .collect();
        let live = writer.past.live();
        let done = core.transact(&parts, |tx| {
            for (key, value) in &changes {
                match value {
                    Some(value) => tx.put(table, &key_bytes(*key), &value.bytes(), None)?,
                    None => {
                        let was = tx.delete(table, &key_bytes(*key))?;
                        assert_eq!(was, live.contains_key(key), "the row of key {key}");
                    }
                }
            }
            Ok::<_, Error>(())
        });
        let ticket = match done {
            Ok(((), ticket)) => ticket.epoch.0,
            Err(error) => return self.tolerate(writer, "a write", &error),
        };
        changes.retain(|(key, value)| value.is_some() || writer.past.live().contains_key(key));
        let mut needs = 0;
        if !changes.is_empty() {
            needs = ticket;
            writer.past.commit(ticket, changes);
        }
        self.promise(writer, ticket, needs);
        Ok(())
    }

    /// Runs a transaction that reads one key. The reply waits for the epoch of the last write to the key.
    fn read(&mut self, writer: &mut Writer) -> Check {
        let key = self.rng.u8(0..self.character.keys);
        let core = writer.core();
        let parts = [core.partition_of(&key_bytes(key))].into_iter().collect();
        let done = core.transact(&parts, |tx| {
            let row = tx.get(core.database(0), &key_bytes(key))?;
            Ok::<_, Error>(row.map(|row| row.value().into_owned()))
        });
        let (found, ticket) = match done {
            Ok(done) => done,
            Err(error) => return self.tolerate(writer, "a read", &error),
        };
        let expected = writer.past.live().get(&key).map(|value| value.bytes());
        if found != expected {
            return Err(format!("key {key} reads as another value than the model's"));
        }
        let needs = writer.past.written(key);
        self.promise(writer, ticket.epoch.0, needs);
        Ok(())
    }

    pub fn ship(&mut self, writer: &mut Writer) -> Check {
        match writer.core().ship() {
            Ok(()) => Ok(()),
            Err(error) => self.tolerate(writer, "ship", &error),
        }
    }

    /// Ships the blocks of one stream to the nodes. Half of the calls first close the open epoch, so that they also
    /// ship its blocks.
    fn ship_one(&mut self, writer: &mut Writer) -> Check {
        let stream = self.draw_stream();
        if self.rng.bool() {
            writer.core().close_epoch();
        }
        match writer.core().wal().ship_step(stream) {
            Ok(_) => Ok(()),
            Err(error) => self.tolerate(writer, "ship_step", &error),
        }
    }

    fn draw_stream(&mut self) -> StreamId {
        StreamId(self.rng.u8(0..self.character.streams))
    }

    pub fn deliver(&mut self, most: usize) {
        let frames = self.rng.usize(1..=most);
        self.trouble(|trouble| trouble.deliver(frames));
    }

    pub fn pump(&mut self, writer: &Writer) {
        if let Some(nodes) = writer.core().nodes() {
            nodes.pump(self.clock.mono_ns());
        }
    }

    fn manage(&mut self, writer: &mut Writer) -> Check {
        for _ in 0..self.rng.u8(1..=4) {
            if self.manage_step(writer)? != Some(Managed::Step) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a step of managing the view. Returns `None` if the step failed for a permitted reason, or if the run has
    /// no nodes.
    pub fn manage_step(&mut self, writer: &mut Writer) -> Check<Option<Managed>> {
        let before = self.register.swaps();
        let Some(nodes) = writer.core().nodes() else {
            return Ok(None);
        };
        let managed = nodes.manage(self.clock.mono_ns());
        if self.register.swaps() != before {
            self.mark_view();
        }
        match managed {
            Ok(managed) => Ok(Some(managed)),
            Err(error) if is_arbiters(&error) => {
                *self.tally.faults.entry("arbiter_failed").or_default() += 1;
                Ok(None)
            }
            Err(error) => {
                if error.is_fenced() && writer.superseded.is_some() {
                    self.reach("deposed_and_fenced");
                }
                self.tolerate(writer, "manage", &error).map(|()| None)
            }
        }
    }

    fn mark_view(&mut self) {
        let Some(view) = self.view() else { return };
        let mut marks = Vec::new();
        for mode in &view.groups {
            marks.push(match mode {
                Mode::Mirror(_) => "mirror",
                Mode::Solo(_) => "solo",
                Mode::Disk => "disk",
            });
        }
        for (stream, home) in view.homes.iter().enumerate() {
            if stream % view.groups.len() != usize::from(*home) {
                marks.push("stream_moved");
            }
        }
        marks.into_iter().for_each(|mark| self.reach(mark));
    }

    fn flush_one(&mut self, writer: &mut Writer) -> Check {
        let stream = self.draw_stream();
        for _ in 0..self.rng.u8(1..=6) {
            if self.flush_step(writer, stream)? != Some(FlushProgress::Wrote) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a step of copying a stream to its disk. Returns `None` if the step failed for a permitted reason.
    fn flush_step(
        &mut self,
        writer: &mut Writer,
        stream: StreamId,
    ) -> Check<Option<FlushProgress>> {
        match writer.core().flush_step(stream) {
            Ok(progress) => Ok(Some(progress)),
            Err(error) => self.tolerate(writer, "flush_step", &error).map(|()| None),
        }
    }

    /// Begins to copy the appended log to the disks. Does not wait until the copying ends.
    pub fn begin_flushes(&mut self, writer: &mut Writer) -> Check {
        writer.core().close_epoch();
        for stream in (0..self.character.streams).map(StreamId) {
            if writer.stopped {
                break;
            }
            self.flush_step(writer, stream)?;
        }
        Ok(())
    }

    /// Copies the appended log to the disks.
    pub fn flush_all(&mut self, writer: &mut Writer) -> Check {
        writer.core().close_epoch();
        for stream in (0..self.character.streams).map(StreamId) {
            while !writer.stopped {
                match self.flush_step(writer, stream)? {
                    None | Some(FlushProgress::Idle) => break,
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    fn checkpoint_begin(&mut self, writer: &mut Writer) -> Check {
        match writer.core().checkpoint_begin() {
            Ok(()) => Ok(()),
            Err(error) => self.tolerate(writer, "checkpoint_begin", &error),
        }
    }

    fn checkpoint_steps(&mut self, writer: &mut Writer) -> Check {
        for _ in 0..self.rng.u8(1..=8) {
            match writer.core().checkpoint_step() {
                Ok(CheckpointProgress::Working(_)) => {}
                Ok(CheckpointProgress::Done) => {
                    self.tally.checkpoints += 1;
                    break;
                }
                Ok(_) => break,
                Err(error) => return self.tolerate(writer, "checkpoint_step", &error),
            }
        }
        Ok(())
    }

    /// Takes a whole checkpoint. Between the checkpoint's steps, copies the log to the disks.
    pub fn checkpoint_now(&mut self, writer: &mut Writer) -> Check {
        match writer.core().checkpoint_now() {
            Ok(()) => {
                self.tally.checkpoints += 1;
                Ok(())
            }
            Err(error) => self.tolerate(writer, "checkpoint_now", &error),
        }
    }

    fn vouch(&mut self, writer: &mut Writer) -> Check {
        if self.rng.bool() {
            writer.core().wal().append_beacon();
        }
        match writer.core().vouch() {
            Ok(_) => Ok(()),
            Err(error) => self.tolerate(writer, "vouch", &error),
        }
    }

    /// Runs `rounds` rounds of the network, the mirror and the copying to the disks.
    pub fn settle(&mut self, writer: &mut Writer, rounds: u32) -> Check {
        for _ in 0..rounds {
            if writer.stopped {
                break;
            }
            let us = self.rng.u64(1000..20_000);
            self.clock.advance_us(us);
            self.trouble(|trouble| trouble.deliver(64));
            self.pump(writer);
            self.manage_step(writer)?;
            let wishes = writer
                .core()
                .nodes()
                .is_some_and(NodesInUse::take_copy_wish);
            if wishes {
                self.flush_all(writer)?;
            }
        }
        Ok(())
    }
}
