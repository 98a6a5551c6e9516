//! The open that begins the next life: why it may be refused, and which epochs it must keep.

use perdura::mirror::Mode;
use perdura::{Core, Error};
use perdura_base::PartitionId;
use perdura_base::error::Family;
use perdura_recovery::{Anchor, read_anchor};

use crate::faults;
use crate::report::Check;

use super::past::{Past, State};
use super::steps::{is_arbiters, key_bytes};
use super::world::World;
use super::writer::{RUNGS, Superseded, Writer};

/// The maximum number of opens that faults disturb in one takeover.
const DISTURBED_MAX: u32 = 4;
/// The maximum number of opens without faults in one takeover. One of these opens must succeed.
const CALM_MAX: u32 = 5;

/// The state of the disks and the arbiter, as known before an open.
struct Known {
    /// True if the anchor says that the nodes' log may be ahead of the disks.
    is_mirrored: bool,
    /// The names of the nodes in groups that have lost all memory.
    lost: Vec<String>,
}

/// The two forms of an open: with nodes, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    WithNodes { accept_loss: bool },
    Alone,
}

impl World {
    /// Opens the database for the next life. Some opens are interrupted or refused, but the last open succeeds.
    pub fn take_over(&mut self, mut before: Writer) -> Check<Writer> {
        assert!(before.superseded.is_none(), "a writer is replaced once");
        let depth = match self.chance(self.character.nested) {
            true => self.rng.u32(1..=DISTURBED_MAX),
            false => 0,
        };
        let (mut accept_loss, mut may_lose) = (false, false);
        for attempt in 0..depth + CALM_MAX {
            self.go_on_asleep(&mut before)?;
            let is_calm = attempt >= depth;
            if is_calm {
                self.calm();
            }
            let known = self.known()?;
            accept_loss &= !known.lost.is_empty();
            let is_last = attempt + 1 == depth + CALM_MAX;
            let way = self.draw_way(&before, accept_loss, is_last);
            if !is_calm && self.chance(70) {
                faults::plan(&mut self.rng, &self.disks, 60);
            }
            let trouble = if is_calm { 0 } else { self.rng.u8(0..30) };
            let struck = self.faults_struck();
            let client = self.next_client();
            let nodes = match way {
                Way::WithNodes { accept_loss } => Some((accept_loss, trouble)),
                Way::Alone => {
                    // Without an arbiter, the operator must make sure that two processes never run at once.
                    self.disks.iter().for_each(|disk| disk.end_former_lives());
                    None
                }
            };
            let opened = self.open(client, nodes);
            let had_power = self.has_power();
            if way == (Way::WithNodes { accept_loss: true }) {
                may_lose |= !is_calm || !known.lost.is_empty();
            }
            match opened {
                Ok(core) if had_power => {
                    self.check_opened(way, &known)?;
                    let by_loss = self.check_kept(&core, &before, may_lose)?;
                    if way == (Way::WithNodes { accept_loss: true })
                        && !known.lost.is_empty()
                        && !by_loss
                    {
                        return Err("a loss was accepted, and the anchor has no note of it".into());
                    }
                    return self.begin(core, client, before, by_loss);
                }
                Ok(_) => self.reach("opened_without_power"),
                Err(error) => {
                    let has_fault = !had_power || self.faults_struck() > struck;
                    let refused = self.check_refusal(way, &known, &error, has_fault, is_calm)?;
                    accept_loss |= refused;
                    self.reach(match had_power {
                        true => "open_failed",
                        false => "open_interrupted",
                    });
                }
            }
            self.net.leave(client);
            self.crash_disks();
        }
        Err("the database cannot be opened".to_owned())
    }

    /// Takes some steps of the sleeping process before the open. The sleeping process may serve until the next process
    /// takes over.
    fn go_on_asleep(&mut self, before: &mut Writer) -> Check {
        if before.core.is_none() {
            return Ok(());
        }
        for _ in 0..self.rng.u8(0..8) {
            self.step(before)?;
        }
        Ok(())
    }

    fn draw_way(&mut self, before: &Writer, accept_loss: bool, is_last: bool) -> Way {
        let drawn = self.rng.u8(0..32);
        match before.ended {
            true if drawn < 16 => Way::Alone,
            _ if drawn == 0 && !is_last => Way::Alone,
            _ => Way::WithNodes {
                accept_loss: accept_loss || (drawn == 1 && !is_last),
            },
        }
    }

    fn anchor(&self) -> Check<Option<Anchor>> {
        let read = read_anchor(self.disks[0].life().as_ref());
        read.map_err(|error| format!("the anchor: {error}"))
    }

    /// Returns the present state of the disks and the arbiter. The next open finds this state, unless it changes
    /// during the open.
    fn known(&self) -> Check<Known> {
        let (anchor, view) = (self.anchor()?, self.view());
        let is_mirrored = anchor
            .as_ref()
            .is_some_and(|anchor| anchor.mirrored.is_some());
        let mut lost = Vec::new();
        if let (Some(anchor), Some(view)) = (anchor, view)
            && is_mirrored
            && view.life == anchor.incarnation
        {
            let gone = |mode: &Mode| {
                let mut members = mode.members().iter();
                mode.is_mirror() && members.all(|of| self.net.inc(&of.address) != Some(of.inc))
            };
            for (number, mode) in view.groups.iter().enumerate() {
                let serves = view.homes.iter().any(|home| usize::from(*home) == number);
                if serves && gone(mode) {
                    lost.extend(mode.members().iter().map(|of| of.address.clone()));
                }
            }
        }
        assert!(lost.len().is_multiple_of(2), "a group has two nodes");
        Ok(Known { is_mirrored, lost })
    }

    /// Checks that a successful open was allowed to succeed.
    fn check_opened(&mut self, way: Way, known: &Known) -> Check {
        match way {
            Way::Alone if known.is_mirrored => {
                Err("nodes may hold more, and an open without them succeeds".to_owned())
            }
            Way::WithNodes { accept_loss: false } if !known.lost.is_empty() => Err(format!(
                "{} have lost what was acknowledged, and an open succeeds",
                known.lost.join(" and ")
            )),
            _ => Ok(()),
        }
    }

    /// Checks that a failed open had a reason to fail. Returns whether the error asks the operator to accept a loss.
    fn check_refusal(
        &mut self,
        way: Way,
        known: &Known,
        error: &Error,
        has_fault: bool,
        is_calm: bool,
    ) -> Check<bool> {
        let text = error.to_string();
        if error.family() == Family::Corruption {
            return Err(format!("the open refuses: {text}"));
        }
        if has_fault {
            return Ok(false);
        }
        let now_lost = match is_calm {
            true => Vec::new(),
            false => self.known()?.lost,
        };
        match way {
            Way::Alone if known.is_mirrored && text.contains("--log-nodes") => {
                self.reach("refused_alone");
                Ok(false)
            }
            Way::WithNodes { accept_loss: true } if text.contains("nothing is lost") => {
                match known.lost.is_empty() || !now_lost.is_empty() {
                    true => Ok(false),
                    false => Err(format!(
                        "{} are lost, and: {text}",
                        known.lost.join(" and ")
                    )),
                }
            }
            Way::WithNodes { accept_loss: false }
                if known
                    .lost
                    .iter()
                    .chain(&now_lost)
                    .any(|node| text.contains(node)) =>
            {
                if !text.contains("--accept-loss") {
                    return Err(format!("a loss is refused in other words: {text}"));
                }
                self.reach("loss_refused");
                Ok(!known.lost.is_empty())
            }
            Way::WithNodes { .. } if !is_calm && !error.is_fenced() => {
                let reasonable = is_arbiters(error) || text.contains("--accept-loss");
                match reasonable {
                    true => Ok(false),
                    false => Err(format!("the disturbed open fails: {text}")),
                }
            }
            _ => Err(format!(
                "nothing fails, and the open by {way:?} does: {text}"
            )),
        }
    }

    /// Checks the rows that an open has recovered. Returns whether the open accepted that epochs of the last life are
    /// lost.
    fn check_kept(&mut self, core: &Core, before: &Writer, may_lose: bool) -> Check<bool> {
        faults::clear(&self.disks);
        let anchor = core.anchor().get();
        let link = anchor
            .chain
            .iter()
            .find(|link| link.incarnation.0 == before.life);
        let kept = link.map_or(core.report().durable_epoch, |link| link.durable.0);
        let loss = anchor
            .losses
            .iter()
            .find(|loss| loss.incarnation.0 == before.life);
        if let Some(loss) = loss {
            if !may_lose {
                return Err("a loss is noted that was not accepted".to_owned());
            }
            if loss.durable.0 != kept {
                return Err(format!(
                    "the accepted loss names epoch {}, and {kept} was kept",
                    loss.durable
                ));
            }
        }
        for (at, acked) in before.acked.iter().enumerate() {
            let excused = at == 0 && loss.is_some();
            if *acked > kept && !excused {
                return Err(format!(
                    "life {} acknowledged epoch {acked} on {:?}, and {kept} was kept",
                    before.life, RUNGS[at]
                ));
            }
        }
        compare(core, &before.past.state_at(kept))
            .map_err(|what| format!("life {}, kept up to epoch {kept}: {what}", before.life))?;
        self.note(kept);
        self.tally.restarts += 1;
        assert!(
            self.tally.restarts <= self.tally.crashes + 1,
            "a restart follows a crash"
        );
        let notes = &core.report().notes;
        let drained = notes.iter().any(|note| note.contains("came from nodes"));
        let marks = [
            (drained, "drained"),
            (loss.is_some(), "loss_accepted"),
            (
                loss.is_some() && before.acked[0] > kept,
                "acknowledged_lost",
            ),
            (before.acked[0] > before.acked[1], "mirror_rung_needed"),
        ];
        let marks = marks.into_iter().filter(|(is_there, _)| *is_there);
        marks.for_each(|(_, mark)| self.reach(mark));
        Ok(loss.is_some())
    }

    /// Begins a life with the opened engine, and returns its writer.
    fn begin(
        &mut self,
        core: Core,
        client: u32,
        mut before: Writer,
        by_loss: bool,
    ) -> Check<Writer> {
        let anchor = core.anchor().get();
        let link = anchor
            .chain
            .iter()
            .find(|link| link.incarnation.0 == before.life);
        let kept = link.map_or(core.report().durable_epoch, |link| link.durable.0);
        assert!(anchor.incarnation.0 > before.life, "a life follows another");
        let state = before.past.state_at(kept);
        if before.core.is_some() {
            before.superseded = Some(Superseded { kept, by_loss });
            if let Some(older) = self.asleep.replace(before) {
                self.net.leave(older.client);
            }
        }
        let mut writer = Writer {
            life: anchor.incarnation.0,
            client,
            generation: self
                .view()
                .map_or_else(Default::default, |view| view.generation),
            past: Past::from(state),
            stopped: false,
            core: Some(core),
            ..Writer::nothing()
        };
        self.faults_before = self.faults_struck();
        if let Err(error) = writer.core().vouch_for_life() {
            self.tolerate(&mut writer, "vouch_for_life", &error)?;
        }
        Ok(writer)
    }
}

/// Compares the rows of an open database with the expected rows.
fn compare(core: &Core, expected: &State) -> Check {
    let (mut rows, mut wrong) = (0, None);
    for partition in (0..core.heap().geometry().partitions).map(PartitionId) {
        let part = core.heap().lock(partition);
        part.for_each(core.database(0), |row| {
            rows += 1;
            let key = row.key();
            let number = key.last().copied().unwrap_or(0);
            let value = expected.get(&number);
            let is_right = *key == key_bytes(number)
                && value.is_some_and(|value| *row.value() == value.bytes()[..]);
            if !is_right {
                wrong = Some(number);
            }
        });
    }
    match wrong {
        Some(key) => Err(format!("the row of key {key} is not the model's")),
        None if rows == expected.len() => Ok(()),
        None => Err(format!("{rows} rows, the model has {}", expected.len())),
    }
}
