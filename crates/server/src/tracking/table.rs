//! A table of keys and their readers. The number of keys is bounded.
//!
//! A departed client stays in the rows of the keys that the client has read. The client is removed from a row when the
//! key changes, or when the row would have to grow.

use crate::pubsub::Seat;
use std::collections::HashMap;
use std::sync::Arc;

/// The readers of one key.
#[derive(Debug)]
struct Row {
    /// The key's index in [`Table::order`].
    place: usize,
    readers: Vec<Seat>,
}

/// Each key that a client has read, with the clients that have read it since the key's last change.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: HashMap<Arc<[u8]>, Row>,
    /// All keys in a list, from which `draw` selects a key by its index.
    order: Vec<Arc<[u8]>>,
    /// The number of pairs of a key and a reader.
    items: usize,
}

impl Table {
    /// Returns the number of keys.
    pub(super) fn keys(&self) -> usize {
        debug_assert_eq!(self.rows.len(), self.order.len());
        self.rows.len()
    }

    /// Returns the number of pairs of a key and a reader.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Notes that a client has read a key. `is_there` returns whether a reader is still connected.
    pub(super) fn add(&mut self, key: &[u8], who: Seat, is_there: impl Fn(Seat) -> bool) {
        let Some(row) = self.rows.get_mut(key) else {
            let key: Arc<[u8]> = key.into();
            let (place, readers) = (self.order.len(), vec![who]);
            self.order.push(Arc::clone(&key));
            self.rows.insert(key, Row { place, readers });
            self.items += 1;
            debug_assert_eq!(self.rows.len(), self.order.len(), "each key has a place");
            return;
        };
        debug_assert!(
            row.readers.is_sorted_by_key(|seat| seat.id),
            "the readers of a key are in order"
        );
        let Err(at) = row.readers.binary_search_by_key(&who.id, |seat| seat.id) else {
            return;
        };
        row.readers.insert(at, who);
        self.items += 1;
        if row.readers.len().is_power_of_two() {
            let before = row.readers.len();
            row.readers.retain(|seat| *seat == who || is_there(*seat));
            self.items -= before - row.readers.len();
        }
    }

    /// Removes a key and returns its readers.
    pub(super) fn take(&mut self, key: &[u8]) -> Vec<Seat> {
        let Some(row) = self.rows.remove(key) else {
            return Vec::new();
        };
        debug_assert!(
            self.items >= row.readers.len(),
            "each reader of a key is counted"
        );
        self.items -= row.readers.len();
        let gone = self.order.swap_remove(row.place);
        debug_assert_eq!(&*gone, key, "a key is in its place");
        if let Some(moved) = self.order.get(row.place)
            && let Some(moved) = self.rows.get_mut(moved)
        {
            moved.place = row.place;
        }
        debug_assert_eq!(
            self.rows.is_empty(),
            self.items == 0,
            "a key that is noted has a reader"
        );
        row.readers
    }

    /// Returns the key that the number `random` selects. `None`: the table is empty.
    pub(super) fn draw(&self, random: u64) -> Option<Arc<[u8]>> {
        let at = perdura_base::num::to_usize(random).checked_rem(self.order.len())?;
        self.order.get(at).cloned()
    }

    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        *self = Table::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn seat(id: u64) -> Seat {
        Seat { id, ..Seat::NOBODY }
    }

    #[test]
    fn the_table_holds_what_a_model_of_it_holds() {
        let mut rng = fastrand::Rng::with_seed(31);
        let mut table = Table::default();
        let mut model: BTreeMap<Vec<u8>, BTreeSet<u64>> = BTreeMap::new();
        for _ in 0..20_000 {
            let key = rng.u8(..60).to_string().into_bytes();
            match rng.u8(..10) {
                0..7 => {
                    let id = rng.u64(1..20);
                    table.add(&key, seat(id), |_| true);
                    model.entry(key).or_default().insert(id);
                }
                7 => {
                    let drawn = table.draw(rng.u64(..));
                    assert_eq!(drawn.is_none(), model.is_empty());
                    if let Some(key) = drawn {
                        let ids: Vec<u64> = table.take(&key).iter().map(|seat| seat.id).collect();
                        let wanted = model.remove(&*key).expect("a key");
                        assert_eq!(ids, wanted.into_iter().collect::<Vec<_>>());
                    }
                }
                _ => {
                    let ids: Vec<u64> = table.take(&key).iter().map(|seat| seat.id).collect();
                    let wanted = model.remove(&key).unwrap_or_default();
                    assert_eq!(ids, wanted.into_iter().collect::<Vec<_>>());
                }
            }
            assert_eq!(table.keys(), model.len());
            let items: usize = model.values().map(BTreeSet::len).sum();
            assert_eq!(table.items(), items);
        }
        table.clear();
        assert_eq!((table.keys(), table.items()), (0, 0));
    }

    #[test]
    fn readers_that_have_left_do_not_pile_up() {
        let mut table = Table::default();
        for id in 1..=100_000 {
            table.add(b"k", seat(id), |seat| seat.id + 3 > id);
        }
        assert!(table.items() < 100, "{}", table.items());
    }
}
