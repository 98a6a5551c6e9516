//! RESTORE of a large collection.
//!
//! Version and checksum are checked before the first element is read. So if the checksum reveals damage, the command
//! ends before it touches the key.

use super::building::{Building, STEP_BYTES, are_rows};
use super::{Progress, Step, Work};
use crate::command::event::Class;
use crate::command::keys::dump::{Terms, refusal};
use crate::command::{Data, Done, Stop};
use crate::engine::Shape;
use crate::resp::parse::Args;
use crate::resp::reply::Out;
use perdura_base::num::{to_u64, to_usize};
use perdura_rdb::{CollectionType, Parts};
use std::ops::Range;

/// The index of the argument with the payload.
const PAYLOAD: usize = 3;
/// Before the elements of a payload are read, they are counted, but the count stops at this number.
const ENOUGH: u64 = 1 << 16;

/// The work of making a key from a payload.
#[derive(Debug)]
pub(crate) struct Restoring {
    terms: Terms,
    parts: Parts,
    building: Building,
}

impl Restoring {
    /// Returns the work of restoring a command's payload. `None`: the payload is too short to need steps.
    pub(crate) fn new(
        data: &Data<'_, '_>,
        args: &Args<'_>,
        terms: Terms,
    ) -> Result<Option<Restoring>, Stop> {
        let payload = args.at(PAYLOAD);
        // Three compressed bytes become at most 264 bytes, and an element takes at least two of them. So each
        // byte of the payload makes at most 44 elements.
        if !data.is_long(to_u64(payload.len()).saturating_mul(44)) {
            return Ok(None);
        }
        let Some(parts) = Parts::begin(payload).map_err(|error| refusal(&error, payload))? else {
            return Ok(None);
        };
        let shape = match parts.collection() {
            CollectionType::Hash => Shape::Hash,
            CollectionType::List => Shape::List,
            CollectionType::Set => Shape::Set,
            CollectionType::Zset => Shape::Zset,
        };
        let elements = parts.elements(payload, ENOUGH);
        let about = elements.max(to_u64(payload.len() / 16));
        if !data.is_long(about) || !are_rows(data.tx.packing(), shape, elements) {
            return Ok(None);
        }
        let building = Building::new(data.database, shape);
        Ok(Some(Restoring {
            terms,
            parts,
            building,
        }))
    }
}

impl Work for Restoring {
    fn sources(&self, _: &Args<'_>) -> Range<usize> {
        match self.terms.replaces() {
            true => 1..1,
            false => 1..2,
        }
    }

    fn step(
        &mut self,
        data: &mut Data<'_, '_>,
        args: &Args<'_>,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let mut parts = self.parts.clone();
        let shape = self.building.shape();
        // The payload says how many elements it has, but that number may be wrong. So no room is
        // requested for elements.
        if !self.building.begin(data, args.at(1), step, 0)? {
            return Ok(Progress::Changed);
        }
        if parts.left() == 0 {
            return Ok(Progress::Complete);
        }
        let payload = args.at(PAYLOAD);
        while parts.left() > 0 {
            let mut few = self.building.take_few();
            let read = parts.read(
                payload,
                to_usize(Building::few(step)),
                |name, value| match shape {
                    Shape::List => few.item(name),
                    Shape::Hash | Shape::Set | Shape::Zset | Shape::Stream => {
                        few.named(name, value)
                    }
                },
            );
            read.map_err(|error| refusal(&error, payload))?;
            if !self.building.write(data, few, step)? {
                break;
            }
        }
        self.parts = parts;
        Ok(step.after_writing(self.parts.left() == 0))
    }

    fn store(&mut self, data: &mut Data<'_, '_>, args: &Args<'_>) -> Done {
        let key = args.at(1);
        let expiry = self.terms.expiry_ms(data.tx.now_ms());
        if self.terms.is_over(data.tx.now_ms()) {
            if data.tx.delete(data.table, key)? {
                data.changed(Class::Generic, "del", key);
            }
            return Ok(());
        }
        if self.building.name(data, key, expiry)? {
            self.terms.age(data, key)?;
            data.changed(Class::Generic, "restore", key);
        }
        Ok(())
    }

    fn reply(&mut self, out: &mut Out<'_>) {
        out.ok();
    }

    fn bytes(&self) -> usize {
        self.building.bytes()
    }

    fn logged(&self) -> usize {
        STEP_BYTES
    }
}
