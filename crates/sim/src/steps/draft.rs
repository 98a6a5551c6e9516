//! The steps of drafts. A draft is a collection or a string without a key. It is built in several steps, with other
//! steps between them. A draft ends when it gets a key, is dropped, or is lost in a crash.

use perdura::types::Source;
use perdura::{Core, Error, Renewal, Shape, TEXT_PAGE_BYTES};
use perdura_device::Clock;

use crate::drafting::{Building, Drafting, empty};
use crate::edit::Edit;
use crate::model::{Change, Place, Row};
use crate::ops::{Op, View, key_bytes, perform};
use crate::report::Check;
use crate::value::Value;
use crate::world::World;

/// The maximum number of drafts that exist at once.
const DRAFTS_MAX: usize = 2;

impl World {
    /// Begins a draft or continues one.
    pub(crate) fn draft_step(&mut self) -> Check {
        let (core, databases) = (self.machine.engine(), self.swarm.databases);
        self.drafts
            .retain(|drafting| drafting.database(core, databases).is_some());
        let count = self.drafts.len();
        if count == 0 || count < DRAFTS_MAX && self.rng.u8(0..4) == 0 {
            return self.draft_begin();
        }
        let at = self.rng.usize(0..count);
        let draw = self.rng.u8(0..8);
        if let Some(building) = self.drafts[at].building
            && draw < 7
        {
            return match building.is_whole() {
                true => self.text_name(at, building),
                false => self.text_grow(at, building),
            };
        }
        match draw {
            0..=4 => self.draft_grow(at),
            5..=6 => self.draft_name(at),
            _ => {
                drop(self.drafts.remove(at));
                Ok(())
            }
        }
    }

    fn draw_place(&mut self) -> Place {
        let database = self.machine.rng.u8(0..self.swarm.databases);
        (database, self.machine.rng.u8(0..self.swarm.keys))
    }

    fn draft_begin(&mut self) -> Check {
        let place = self.draw_place();
        let shape = Shape::ALL[self.rng.usize(0..4)];
        let is_text = shape == Shape::List && self.rng.bool();
        let building = is_text.then(|| Building::draw(&mut self.rng, place.1));
        let (core, key) = (self.core(), key_bytes(place.1));
        let parts = [core.partition_of(&key)].into_iter().collect();
        let begun = core.transact(&parts, |tx| {
            tx.begin_draft(core.database(place.0), &key, shape)
        });
        match begun {
            Ok((draft, _)) => {
                let at = self.drafts.len();
                assert!(
                    self.drafts
                        .iter()
                        .all(|other| other.draft.home() != draft.home()),
                    "two drafts have one home"
                );
                self.drafts.push(Drafting {
                    draft,
                    value: empty(shape),
                    building,
                });
                match building {
                    Some(building) => self.text_grow(at, building),
                    None => self.draft_grow(at),
                }
            }
            Err(error) => self.tolerate("begin_draft", &error),
        }
    }

    /// Writes elements to a draft. Sometimes the client abandons the transaction that writes them.
    fn draft_grow(&mut self, at: usize) -> Check {
        let shape = self.drafts[at].draft.shape();
        let edit = Edit::draw(&mut self.machine.rng, &self.swarm, shape);
        let gives_up = self.rng.u8(0..8) == 0;
        let Drafting { draft, value, .. } = &self.drafts[at];
        let parts = [draft.home().partition].into_iter().collect();
        let written = self.core().transact(&parts, |tx| {
            let written = edit.write(tx, (draft.table(), draft.home()), value.len())?;
            if gives_up {
                return Err(Error::Usage("the client has changed its mind".into()));
            }
            Ok(written)
        });
        match written {
            Ok((true, _)) => {
                let (after, _) = edit.apply(Some(value));
                self.drafts[at].value = after.unwrap_or_else(|| empty(shape));
                Ok(())
            }
            Ok((false, _)) => Ok(()),
            Err(Error::Usage(_)) if gives_up => Ok(()),
            Err(error) => self.tolerate("a step of a draft", &error),
        }
    }

    /// Appends to the string in a draft: one to three pages, or the rest of the string if it is shorter.
    fn text_grow(&mut self, at: usize, building: Building) -> Check {
        let gives_up = self.rng.u8(0..8) == 0;
        let from = building.so_far().len;
        let more = self.rng.usize(1..4) * TEXT_PAGE_BYTES;
        let to = building.whole.len.min(from + more);
        let mut bytes = Vec::new();
        building.whole.fill(&mut bytes);
        let draft = &self.drafts[at].draft;
        let parts = [draft.home().partition].into_iter().collect();
        let grown = self.core().transact(&parts, |tx| {
            let text = tx.grow_text(draft, building.text, &bytes[from..to])?;
            if gives_up {
                return Err(Error::Usage("the client has changed its mind".into()));
            }
            Ok(text)
        });
        match grown {
            Ok((text, _)) => {
                assert_eq!(text.len(), to, "a string is as long as what was written");
                let text = Some(text);
                self.drafts[at].building = Some(Building { text, ..building });
                Ok(())
            }
            Err(Error::Usage(_)) if gives_up => Ok(()),
            Err(error) => self.tolerate("grow_text", &error),
        }
    }

    /// Gives a key to a draft, whose string is complete.
    fn text_name(&mut self, at: usize, building: Building) -> Check {
        let Building { key, whole, .. } = building;
        let (now_ms, gives_up) = (self.clock.wall_us() / 1000, self.rng.u8(0..4) == 0);
        let expires = self.rng.u8(0..100) < self.swarm.expiry;
        let expiry_ms = expires.then(|| now_ms + self.rng.u64(0..3000));
        let core = self.core();
        let draft = &self.drafts[at].draft;
        let database = self.drafts[at].database(core, self.swarm.databases);
        let (Some(database), Some(text)) = (database, building.text) else {
            return Ok(());
        };
        let parts = [draft.home().partition].into_iter().collect();
        let named = core.transact(&parts, |tx| {
            tx.name_text(draft, text, &key_bytes(key), expiry_ms)?;
            if gives_up {
                return Err(Error::Usage("the client has changed its mind".into()));
            }
            Ok(())
        });
        match named {
            Ok(((), ticket)) => {
                drop(self.drafts.remove(at));
                *self.tally.reached.entry("text_named").or_default() += 1;
                let value = Value::String(whole);
                let change = Change::Put((database, key), Row { value, expiry_ms });
                self.committed(&[], vec![change], ticket, now_ms);
                Ok(())
            }
            Err(Error::Usage(_)) if gives_up => Ok(()),
            Err(error) => self.tolerate("name_text", &error),
        }
    }

    /// Gives a key to a draft, in a transaction that may also do other operations.
    fn draft_name(&mut self, at: usize) -> Check {
        let (key, now_ms) = (
            self.machine.rng.u8(0..self.swarm.keys),
            self.clock.wall_us() / 1000,
        );
        let expires = self.rng.u8(0..100) < self.swarm.expiry;
        let expiry_ms = expires.then(|| now_ms + self.rng.u64(0..3000));
        let (gives_up, deletes) = (self.rng.u8(0..4) == 0, self.rng.bool());
        let other = self.draw_place();
        let core = self.machine.engine();
        let Drafting { draft, value, .. } = &self.drafts[at];
        let Some(database) = self.drafts[at].database(core, self.swarm.databases) else {
            return Ok(());
        };
        let ops = deletes.then_some(Op::Delete(other));
        let ops: Vec<Op> = ops.into_iter().collect();
        let parts = [core.partition_of(&key_bytes(key))].into_iter().collect();
        let (live, scratch) = (self.model.live(), &mut self.scratch);
        let mut changes = Vec::new();
        let named = core.transact(&parts, |tx| {
            let mut view = View::new(live, now_ms);
            let check = perform(core, tx, &ops, &mut view, scratch, &mut Renewal::default())?;
            tx.name_draft(draft, &key_bytes(key), expiry_ms)?;
            if gives_up {
                return Err(Error::Usage("the client has changed its mind".into()));
            }
            let value = value.clone();
            view.put((database, key), Row { value, expiry_ms });
            changes = view.changes();
            Ok(check)
        });
        let is_empty = value.is_empty();
        match named {
            Ok(_) if is_empty => Err("a key was given a draft without elements".to_owned()),
            Ok((check, ticket)) => {
                check?;
                drop(self.drafts.remove(at));
                *self.tally.reached.entry("draft_named").or_default() += 1;
                self.committed(&ops, changes, ticket, now_ms);
                Ok(())
            }
            Err(Error::Usage(_)) if gives_up || is_empty => Ok(()),
            Err(error) => self.tolerate("name_draft", &error),
        }
    }

    /// Compares the open engine's drafts with the model. Returns how many rows the drafts have.
    pub(crate) fn compare_drafts(&self, core: &Core) -> Check<u64> {
        let mut rows = 0;
        for drafting in &self.drafts {
            if drafting.database(core, self.swarm.databases).is_none() {
                continue;
            }
            let (table, home) = (drafting.draft.table(), drafting.draft.home());
            let parts = [home.partition].into_iter().collect();
            let same = core.transact(&parts, |tx| {
                let source = Source::Rows(tx.elements(table, home)?);
                Ok::<_, Error>(drafting.is_in(&source))
            });
            match same {
                Ok((true, _)) => rows += drafting.rows(),
                Ok((false, _)) => return Err(format!("{:?} is not the model's", drafting.draft)),
                Err(error) => return Err(format!("{:?}: {error}", drafting.draft)),
            }
        }
        Ok(rows)
    }
}
