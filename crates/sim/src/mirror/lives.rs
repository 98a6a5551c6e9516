//! The chain of lives, and the end of each life. A life lasts from one open of the database to the next.

use std::sync::Arc;

use perdura::Rung;
use perdura_device::{CrashProfile, Disk, SimDisk};

use crate::faults;
use crate::report::Check;

use super::trouble::Trouble;
use super::world::World;
use super::writer::Writer;

/// A run counts only if it has at least this many transactions.
const TRANSACTIONS_MIN: u64 = 20;
/// The maximum number of rounds that a mirror takes to form or to end when nothing fails.
const ROUNDS_MAX: u32 = 120;

impl World {
    /// Runs successive lives, until all planned lives have ended and the run counts.
    pub fn chain(&mut self) -> Check {
        let mut writer = self.take_over(Writer::nothing())?;
        for life in 1.. {
            let overdue = life > self.character.lives;
            self.live(&mut writer, overdue)?;
            let counts = self.tally.transactions >= TRANSACTIONS_MIN && self.tally.checkpoints > 0;
            let is_last = counts && life >= self.character.lives;
            self.end(&mut writer)?;
            writer = self.take_over(writer)?;
            if is_last {
                break;
            }
        }
        self.finish(writer)
    }

    /// Runs one life of a writer, up to its end.
    fn live(&mut self, writer: &mut Writer, overdue: bool) -> Check {
        self.faults_before = self.faults_struck();
        if overdue {
            self.calm();
        } else if self.chance(self.character.faults) {
            faults::plan(&mut self.rng, &self.disks, faults::LIFE_OPS);
        }
        if self.chance(80) {
            self.settle(writer, 14)?;
            self.observe(writer)?;
        }
        let most = self.character.steps;
        let steps = self.rng.u32(most / 2..=most);
        for _ in 0..steps {
            if writer.stopped || !self.has_power() {
                break;
            }
            self.step(writer)?;
            self.step_sleeper()?;
        }
        if overdue && !writer.stopped && self.tally.checkpoints == 0 {
            self.calm();
            self.checkpoint_now(writer)?;
        }
        self.observe(writer)
    }

    /// Repairs all broken parts and removes all planned faults.
    pub fn calm(&mut self) {
        faults::clear(&self.disks);
        self.trouble(Trouble::heal);
    }

    /// Sometimes takes a few steps of the sleeping process. Another process has replaced it or will replace it.
    fn step_sleeper(&mut self) -> Check {
        if self.asleep.is_none() || self.rng.u8(0..8) > 0 {
            return Ok(());
        }
        let Some(mut sleeper) = self.asleep.take() else {
            return Ok(());
        };
        self.reach("deposed_woken");
        for _ in 0..self.rng.u8(1..=4) {
            self.step(&mut sleeper)?;
        }
        match sleeper.core().wal().failure().is_some() && self.rng.u8(0..4) == 0 {
            true => self.net.leave(sleeper.client),
            false => self.asleep = Some(sleeper),
        }
        Ok(())
    }

    /// Ends a life in one of four ways: cleanly, asleep, by a power cut, or by a power cut that also
    /// strikes nodes.
    fn end(&mut self, writer: &mut Writer) -> Check {
        assert!(writer.core.is_some(), "a process ends once");
        let power = self.has_power();
        if power && !writer.stopped && self.chance(self.character.clean) {
            self.end_cleanly(writer, 40)?;
        }
        if self.chance(self.character.together) {
            let pair = self.groups[self.rng.usize(0..self.groups.len())].clone();
            let both = self.rng.bool();
            let lost = if both { &pair[..] } else { &pair[..1] };
            lost.iter().for_each(|node| self.net.kill(node));
            self.reach(if both {
                "died_with_both"
            } else {
                "died_with_one"
            });
        }
        let sleeps = power && !writer.ended && self.chance(self.character.sleeps);
        if sleeps {
            self.take_disks_away(writer)?;
            writer.is_fenced_off = true;
            self.reach("fell_asleep");
        } else {
            self.crash_disks();
            writer.core = None;
            self.net.leave(writer.client);
        }
        Ok(())
    }

    /// Takes the disks from the process, and gives them to the next process. The disks either lose data as in a crash,
    /// or keep all written data. If they keep it, an operation in flight may reach its file at any later time, even
    /// after the next process has changed the file.
    fn take_disks_away(&mut self, writer: &mut Writer) -> Check {
        if self.character.profile.is_some() || self.rng.bool() {
            self.crash_disks();
            return Ok(());
        }
        for _ in 0..self.rng.u8(0..4) {
            self.write(writer)?;
        }
        self.begin_flushes(writer)?;
        for disk in &self.disks {
            disk.keep_locked(&Vec::new());
            disk.crash(CrashProfile::Killed, self.rng.u64(..));
        }
        faults::clear(&self.disks);
        self.tally.crashes += 1;
        self.reach("disks_taken_away");
        Ok(())
    }

    /// Crashes the machine that has the disks. After that no process has the disks open.
    pub fn crash_disks(&mut self) {
        let drawn = CrashProfile::ALL[self.rng.usize(0..CrashProfile::ALL.len())];
        let profile = self.character.profile.unwrap_or(drawn);
        for disk in &self.disks {
            disk.crash(profile, self.rng.u64(..));
        }
        faults::clear(&self.disks);
        self.tally.crashes += 1;
        assert!(
            self.disks
                .iter()
                .all(|disk: &Arc<SimDisk>| disk.has_power()),
            "a crash ends with power"
        );
    }

    /// Ends the mirror after everything has reached the disks. Gives up after `rounds` rounds.
    fn end_cleanly(&mut self, writer: &mut Writer, rounds: u32) -> Check {
        let Some(nodes) = writer.core().nodes() else {
            return Ok(());
        };
        nodes.begin_stop();
        for _ in 0..rounds {
            self.flush_all(writer)?;
            self.settle(writer, 1)?;
            if writer.stopped {
                break;
            }
            if writer
                .core()
                .nodes()
                .is_some_and(perdura::NodesInUse::has_stopped)
            {
                writer.ended = true;
                self.reach("clean_end");
                break;
            }
        }
        self.observe(writer)
    }

    /// Ends the run without faults. The nodes must first mirror the log. After a clean end the database must open
    /// without nodes.
    fn finish(&mut self, mut writer: Writer) -> Check {
        self.calm();
        self.faults_before = self.faults_struck();
        if writer.core().nodes().is_none() {
            return Ok(());
        }
        let mut rounds = 0;
        while !self.view().is_some_and(|view| view.is_mirrored()) {
            self.settle(&mut writer, 1)?;
            rounds += 1;
            if rounds == ROUNDS_MAX {
                return Err("nothing fails, and no mirror comes about".to_owned());
            }
        }
        self.write(&mut writer)?;
        let ticket = writer.promises.last().map_or(0, |promise| promise.ticket);
        self.ship(&mut writer)?;
        self.settle(&mut writer, 8)?;
        let reached = writer.core().wal().durable(Rung::Mirror).0;
        if reached < ticket {
            return Err(format!(
                "nothing fails, and the nodes hold epoch {reached}, not {ticket}"
            ));
        }
        self.end_cleanly(&mut writer, ROUNDS_MAX)?;
        if !writer.ended {
            return Err("nothing fails, and the mirror does not end".to_owned());
        }
        self.crash_disks();
        writer.core = None;
        self.take_over(writer).map(drop)
    }
}
