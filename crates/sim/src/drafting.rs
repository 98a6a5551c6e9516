//! The model of a draft. A draft is a collection or a long string that is built before a key names it.

use std::rc::Rc;

use perdura::types::Source;
use perdura::{Core, Draft, Shape, TEXT_PAGE_BYTES, Text};
use perdura_base::num::to_u64;

use crate::content::Content;
use crate::value::Value;

/// A draft of the engine, and the content that it must have.
pub(crate) struct Drafting {
    pub draft: Draft,
    pub value: Value,
    /// The string that is being built in the draft. `None`: a collection is being built.
    pub building: Option<Building>,
}

/// A string under construction in a draft, and the string's future key.
#[derive(Clone, Copy)]
pub(crate) struct Building {
    pub key: u8,
    pub whole: Content,
    pub text: Option<Text>,
}

impl Building {
    pub(crate) fn draw(rng: &mut fastrand::Rng, key: u8) -> Building {
        let (seed, len) = (rng.u64(..), rng.usize(TEXT_PAGE_BYTES + 1..90_000));
        Building {
            key,
            whole: Content { seed, len },
            text: None,
        }
    }

    /// Returns the written part of the string.
    pub(crate) fn so_far(&self) -> Content {
        let len = self.text.map_or(0, |text| text.len());
        assert!(
            len <= self.whole.len,
            "{len} bytes are written of a string of {}",
            self.whole.len
        );
        Content { len, ..self.whole }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.so_far().len == self.whole.len
    }
}

impl Drafting {
    /// Returns the database that now has the draft's table. `None`: a flush has removed the table.
    pub(crate) fn database(&self, core: &Core, databases: u8) -> Option<u8> {
        (0..databases).find(|database| core.database(*database) == self.draft.table())
    }

    /// Returns the number of elements in the draft.
    pub(crate) fn rows(&self) -> u64 {
        match &self.building {
            Some(building) => u64::from(building.text.is_some()),
            None => to_u64(self.value.len()),
        }
    }

    /// Returns whether `source` has exactly the elements that the draft must have.
    pub(crate) fn is_in(&self, source: &Source<'_>) -> bool {
        match &self.building {
            Some(building) => {
                let mut items = source.iter();
                let first = items.next();
                let same = first.is_some_and(|item| building.so_far().matches(&item.item()));
                same && items.next().is_none() || building.text.is_none()
            }
            None => self.value.is_empty() || self.value.is_in(source),
        }
    }
}

/// Returns a collection without elements.
pub(crate) fn empty(shape: Shape) -> Value {
    match shape {
        Shape::Hash => Value::Hash(Rc::default()),
        Shape::List => Value::List(Rc::default()),
        Shape::Set => Value::Set(Rc::default()),
        Shape::Zset => Value::Zset(Rc::default()),
        Shape::Stream => Value::Stream(Rc::default()),
    }
}
