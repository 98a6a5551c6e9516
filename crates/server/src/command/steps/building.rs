//! A collection that a command builds step by step before it becomes the value of a key.
//!
//! The collection is a [`Draft`] of the engine. No command sees it until the transaction of the last step
//! writes the key. If the command's work is dropped before that, the draft is removed.
//!
//! Each step is a transaction. If a latch is missing, the engine may undo a transaction and run it again. So, with
//! several steps, the last one only stores the collection under the key and writes no elements.

use super::{Progress, Step};
use crate::command::{Data, Stop};
use crate::engine::types::{Entry, Texts};
use crate::engine::{Draft, End, Packing, Shape};
use perdura_base::num::{to_u64, to_usize};

/// The number of elements handed to the transaction at a time.
const FEW: u64 = 256;
/// The number of bytes that a step requests in the log. A step writes about this much at most.
pub(super) const STEP_BYTES: usize = 512 << 10;

/// Returns whether a collection of `elements` elements is too large for packing, and so must consist of rows.
pub(crate) fn are_rows(packing: Packing, shape: Shape, elements: u64) -> bool {
    let most = match shape {
        Shape::Hash => packing.hash_entries,
        Shape::List => packing.list_entries,
        Shape::Set => packing.set_entries.max(packing.set_integers),
        Shape::Zset => packing.zset_entries,
        Shape::Stream => 0,
    };
    elements > u64::from(most)
}

/// A batch of elements to be written.
#[derive(Debug, Default)]
pub(super) struct Few {
    names: Texts,
    values: Texts,
}

impl Few {
    /// Adds a copy of an element.
    pub fn push(&mut self, shape: Shape, entry: &Entry<'_>) {
        match shape {
            Shape::List => self.item(&entry.item()),
            Shape::Hash | Shape::Stream => self.named(&entry.key(), &entry.value()),
            Shape::Set => self.named(&entry.key(), &[]),
            Shape::Zset => self.named(&entry.key(), &entry.score().to_le_bytes()),
        }
    }

    /// Adds an item of a list.
    pub fn item(&mut self, item: &[u8]) {
        self.values.push(item);
    }

    /// Adds a field with a value, a member without a value, or a member with a score.
    pub fn named(&mut self, name: &[u8], value: &[u8]) {
        self.names.push(name);
        self.values.push(value);
        debug_assert_eq!(self.names.len(), self.values.len(), "each name has a value");
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.values.len()
    }
}

/// A collection that is being built.
#[derive(Debug)]
pub(crate) struct Building {
    database: u8,
    shape: Shape,
    draft: Option<Draft>,
    /// The bytes that the current step has written.
    written: usize,
    few: Few,
}

/// Texts that a key is to get: the items of a list, or the members of a set.
#[derive(Clone, Copy)]
pub(super) struct Supply<'a> {
    pub key: &'a [u8],
    pub texts: &'a Texts,
}

impl Building {
    /// Returns an empty collection for a key of this database.
    pub(crate) fn new(database: u8, shape: Shape) -> Building {
        Building {
            database,
            shape,
            draft: None,
            written: 0,
            few: Few::default(),
        }
    }

    /// Returns the database of the key.
    pub(super) fn database(&self) -> u8 {
        self.database
    }

    /// Returns the shape of the collection.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of bytes that the batch of elements takes in memory. The collection itself is not counted.
    pub(super) fn bytes(&self) -> usize {
        self.few.names.bytes() + self.few.values.bytes()
    }

    /// Begins a step that writes up to `elements` elements. Returns false if the collection is
    /// lost, because the database was emptied or swapped.
    pub(super) fn begin(
        &mut self,
        data: &mut Data<'_, '_>,
        key: &[u8],
        step: &Step,
        elements: u64,
    ) -> Result<bool, Stop> {
        let table = data.table_of(self.database);
        self.written = 0;
        if step.is_endless() {
            data.tx.expect_elements(to_usize(elements))?;
        }
        match &self.draft {
            Some(draft) => Ok(draft.table() == table),
            None => {
                self.draft = Some(data.tx.begin_draft(table, key, self.shape)?);
                Ok(true)
            }
        }
    }

    /// Returns the number of elements to write in the next batch.
    pub(super) fn few(step: &Step) -> u64 {
        step.left().min(FEW)
    }

    /// Returns an empty batch to be filled and [written](Self::write). It reuses the memory of the
    /// previous batch.
    pub(super) fn take_few(&mut self) -> Few {
        let mut few = std::mem::take(&mut self.few);
        few.names.clear();
        few.values.clear();
        few
    }

    /// Writes a batch. Returns false if the step is over.
    pub(super) fn write(
        &mut self,
        data: &mut Data<'_, '_>,
        few: Few,
        step: &mut Step,
    ) -> Result<bool, Stop> {
        let Some(draft) = &self.draft else {
            return Ok(false);
        };
        if self.shape == Shape::List {
            let items: Vec<&[u8]> = few.values.iter().collect();
            return self.push(data, End::Back, &items, step);
        }
        debug_assert_eq!(few.names.len(), few.values.len(), "each name has a value");
        for (name, value) in few.names.iter().zip(few.values.iter()) {
            data.tx
                .element_put(draft.table(), draft.home(), name, value)?;
            self.written += name.len() + value.len();
        }
        let count = few.len();
        self.few = few;
        Ok(self.spend(count, step))
    }

    /// Puts items at an end of a list. Returns false if the step is over.
    pub(super) fn push(
        &mut self,
        data: &mut Data<'_, '_>,
        end: End,
        items: &[&[u8]],
        step: &mut Step,
    ) -> Result<bool, Stop> {
        let Some(draft) = &self.draft else {
            return Ok(false);
        };
        data.tx.list_push(draft.table(), draft.home(), end, items)?;
        self.written += items.iter().map(|item| item.len()).sum::<usize>();
        Ok(self.spend(items.len(), step))
    }

    fn spend(&self, count: usize, step: &mut Step) -> bool {
        let more = step.spend(to_u64(count));
        more && (step.is_endless() || self.written < STEP_BYTES / 2)
    }

    /// Runs one step of building the collection from the texts of `supply`. The first `built` texts are in the
    /// collection already.
    pub(super) fn fill(
        &mut self,
        data: &mut Data<'_, '_>,
        supply: Supply<'_>,
        built: &mut usize,
        step: &mut Step,
    ) -> Result<Progress, Stop> {
        let Supply { key, texts } = supply;
        let mut at = *built;
        debug_assert!(at <= texts.len(), "no more is built than there is");
        let left = texts.len() - at;
        if !self.begin(data, key, step, to_u64(left))? {
            return Ok(Progress::Changed);
        }
        if left == 0 {
            return Ok(Progress::Complete);
        }
        while at < texts.len() {
            let until = texts.len().min(at + to_usize(Building::few(step)));
            let mut few = self.take_few();
            for text in (at..until).map(|at| texts.get(at)) {
                match self.shape {
                    Shape::List => few.item(text),
                    Shape::Hash | Shape::Set | Shape::Zset | Shape::Stream => {
                        few.named(text, &[]);
                    }
                }
            }
            at = until;
            if !self.write(data, few, step)? {
                break;
            }
        }
        *built = at;
        Ok(step.after_writing(at == texts.len()))
    }

    /// Makes the collection the value of the key. Returns false if the collection was not begun or is lost.
    pub(super) fn name(
        &self,
        data: &mut Data<'_, '_>,
        key: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<bool, Stop> {
        let table = data.table_of(self.database);
        let Some(draft) = self.draft.as_ref().filter(|d| d.table() == table) else {
            return Ok(false);
        };
        data.tx.name_draft(draft, key, expiry_ms)?;
        Ok(true)
    }
}
