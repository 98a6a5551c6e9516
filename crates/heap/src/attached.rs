//! The tables that are attached to a partition.
//!
//! Each verb looks its table up, and some verbs do so several times. A map would take 50 instructions for each lookup.
//! Here the low bits of a table's id lead to the table. Ids are assigned in sequence, so few tables share their low bits.

use perdura_base::TableId;

use crate::index::Table;
use crate::pages::index;

/// The number of values that the low bits of an id can have.
const PLACES: usize = 64;

/// The tables of a partition, in ascending order of their ids.
pub(crate) struct AttachedTables {
    sorted: Vec<(TableId, Table)>,
    /// For each value of the low bits: the index in `sorted` of a table whose id has them.
    places: [usize; PLACES],
}

impl Default for AttachedTables {
    fn default() -> Self {
        AttachedTables {
            sorted: Vec::new(),
            places: [0; PLACES],
        }
    }
}

impl AttachedTables {
    #[inline]
    fn find(&self, id: TableId) -> Option<usize> {
        let place = self.places[index(id.0) % PLACES];
        match self.sorted.get(place) {
            Some((found, _)) if *found == id => Some(place),
            _ => self.sorted.binary_search_by_key(&id, |(id, _)| *id).ok(),
        }
    }

    /// Returns the table of this id.
    #[inline]
    pub(crate) fn get(&self, id: TableId) -> Option<&Table> {
        Some(&self.sorted[self.find(id)?].1)
    }

    /// Returns the table of this id.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: TableId) -> Option<&mut Table> {
        let at = self.find(id)?;
        Some(&mut self.sorted[at].1)
    }

    /// Returns whether a table has this id.
    pub(crate) fn contains(&self, id: TableId) -> bool {
        self.find(id).is_some()
    }

    /// Adds a table. Its id must be new.
    pub(crate) fn insert(&mut self, id: TableId, table: Table) {
        let at = self.sorted.partition_point(|(other, _)| *other < id);
        debug_assert!(!self.contains(id), "a table is attached once");
        self.sorted.insert(at, (id, table));
        self.note_places();
    }

    /// Removes the table of this id, and returns it.
    pub(crate) fn remove(&mut self, id: TableId) -> Option<Table> {
        let at = self.find(id)?;
        let (_, table) = self.sorted.remove(at);
        self.note_places();
        Some(table)
    }

    fn note_places(&mut self) {
        for (at, (id, _)) in self.sorted.iter().enumerate() {
            self.places[index(id.0) % PLACES] = at;
        }
    }

    /// Returns the ids of the tables.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TableId> + '_ {
        self.sorted.iter().map(|(id, _)| *id)
    }

    /// Returns the tables with their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TableId, &Table)> {
        self.sorted.iter().map(|(id, table)| (*id, table))
    }

    /// Returns the tables with their ids.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TableId, &mut Table)> {
        self.sorted.iter_mut().map(|(id, table)| (*id, table))
    }

    /// Returns the tables.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Table> {
        self.sorted.iter().map(|(_, table)| table)
    }

    /// Returns the tables.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.sorted.iter_mut().map(|(_, table)| table)
    }

    /// Removes all tables, and returns them with their ids.
    pub(crate) fn take(&mut self) -> Vec<(TableId, Table)> {
        std::mem::take(self).sorted
    }
}

#[cfg(test)]
mod tests {
    use perdura_base::PartitionId;

    use super::*;
    use crate::form::TableForm;
    use crate::geometry::Geometry;

    #[test]
    fn tables_are_found_by_their_ids_also_when_their_low_bits_are_equal() {
        let geometry = Geometry {
            partitions: 1,
            chunk_pages: 4,
            hash_seed: 7,
        };
        let table = || Table::new(TableForm::default(), geometry.salts(PartitionId(0)));
        let ids = [3, 67, 0, 131, 64, 5, u32::MAX].map(TableId);
        let mut tables = AttachedTables::default();
        assert!(tables.get(TableId(3)).is_none());
        for (count, id) in ids.into_iter().enumerate() {
            assert!(!tables.contains(id));
            tables.insert(id, table());
            assert_eq!(tables.values().count(), count + 1);
            assert!(ids[..=count].iter().all(|id| tables.contains(*id)));
        }
        assert!(tables.ids().is_sorted());
        for (gone, id) in ids.into_iter().enumerate() {
            assert!(tables.remove(id).is_some() && tables.remove(id).is_none());
            assert!(!tables.contains(id));
            assert!(ids[gone + 1..].iter().all(|id| tables.contains(*id)));
        }
        assert_eq!(tables.iter().count(), 0);
    }
}
