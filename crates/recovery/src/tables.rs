//! The tables of a database and the kinds of tables, for a restart.
//!
//! The kind of a table defines the order of keys, the addressing of rows in log records, and the component that holds
//! the rows. It does not define the form of a log record. The frame's kind ([`perdura_wal::FrameKind`]) defines that
//! form.

use std::collections::BTreeMap;

use perdura_base::TableId;
use perdura_heap::TableForm;

/// The tables and their kinds.
pub type Catalog = BTreeMap<TableId, TableKind>;

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableKind {
    /// The indexes that contain the table's keys.
    pub order: KeyOrder,
    /// The form of address in the table's log records.
    pub addressing: Addressing,
    /// The component that holds the table's rows.
    pub component: ComponentKind,
}

/// The indexes that contain a table's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// An index by the keys' hashes.
    Hashed,
    /// An index by the keys' hashes, and an index by the keys' bytes.
    Ordered,
}

/// The addresses by which a table's log records name rows. The form of these addresses decides which structures must
/// exist before a record can be replayed.
///
/// Records that address pages need no index, so they are played before the indexes are built. Records that name keys
/// are played after the indexes are built. A build that does not know a table's addressing refuses to open the
/// database. The error names the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// A page and bytes within it.
    Page,
    /// A key, or the procedure call that changed the rows.
    Key,
}

/// The components that hold rows, as a catalog row names them. The set is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComponentKind {
    /// [`perdura_heap`]: slotted pages in memory.
    Heap,
    /// [`perdura_tree`]: a tree in pages on disk.
    Tree,
}

/// The error for a table kind with a part that this build does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownKind {
    /// The name of the unknown part, such as `key order`.
    pub part: &'static str,
    /// The code that this build does not know.
    pub code: u8,
}

const COMPONENT_SHIFT: u32 = 4;
const ADDRESSING_MASK: u8 = 0x0f;

impl TableKind {
    /// Returns the kind of a page-addressed table in the heap.
    #[must_use]
    pub fn heap(order: KeyOrder) -> TableKind {
        TableKind {
            order,
            addressing: Addressing::Page,
            component: ComponentKind::Heap,
        }
    }

    /// Returns the kind of a table in a tree: the keys are in order, and the log records name keys.
    #[must_use]
    pub fn tree() -> TableKind {
        TableKind {
            order: KeyOrder::Ordered,
            addressing: Addressing::Key,
            component: ComponentKind::Tree,
        }
    }

    /// Returns whether the table also has an index by the keys' bytes.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        match self.order {
            KeyOrder::Hashed => false,
            KeyOrder::Ordered => true,
        }
    }

    /// Returns the table's form in the heap. Its `derive` is `None`, because the kind does not define that field.
    #[must_use]
    pub fn form(self) -> TableForm {
        let keyed = match self.addressing {
            Addressing::Page => false,
            Addressing::Key => true,
        };
        TableForm {
            ordered: self.is_ordered(),
            keyed,
            placed: keyed,
            derive: None,
        }
    }

    /// Encodes the kind as the two bytes of a catalog row (docs/formats/catalog.md).
    #[must_use]
    pub fn encode(self) -> [u8; 2] {
        let order = match self.order {
            KeyOrder::Hashed => 0,
            KeyOrder::Ordered => 1,
        };
        let addressing = match self.addressing {
            Addressing::Page => 0,
            Addressing::Key => 1,
        };
        let component = match self.component {
            ComponentKind::Heap => 0,
            ComponentKind::Tree => 1,
        };
        [order, component << COMPONENT_SHIFT | addressing]
    }

    /// Decodes the two bytes that [`encode`](Self::encode) returns.
    ///
    /// # Errors
    /// [`UnknownKind`] with the first part of the kind that this build does not know.
    pub fn decode(bytes: [u8; 2]) -> Result<TableKind, UnknownKind> {
        let [order, how] = bytes;
        let unknown = |part, code| Err(UnknownKind { part, code });
        let order = match order {
            0 => KeyOrder::Hashed,
            1 => KeyOrder::Ordered,
            code => return unknown("key order", code),
        };
        let addressing = match how & ADDRESSING_MASK {
            0 => Addressing::Page,
            1 => Addressing::Key,
            code => return unknown("addressing", code),
        };
        let component = match how >> COMPONENT_SHIFT {
            0 => ComponentKind::Heap,
            1 => ComponentKind::Tree,
            code => return unknown("component", code),
        };
        let kind = TableKind {
            order,
            addressing,
            component,
        };
        if component == ComponentKind::Tree && kind != TableKind::tree() {
            return unknown("component", how >> COMPONENT_SHIFT);
        }
        assert_eq!(kind.encode(), bytes, "a kind has one code");
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_kind_is_read_as_it_is_written_or_refused_by_its_part() {
        let mut known = 0;
        for order in 0..=u8::MAX {
            for how in 0..=u8::MAX {
                match TableKind::decode([order, how]) {
                    Ok(kind) => {
                        assert_eq!(kind.encode(), [order, how]);
                        known += 1;
                    }
                    Err(UnknownKind { part, code }) => {
                        let expected = match part {
                            "key order" => order,
                            "addressing" => how & 0x0f,
                            _ => how >> 4,
                        };
                        assert_eq!(code, expected, "{part}");
                        assert_ne!(code, 0, "the first code of every part is known");
                    }
                }
            }
        }
        assert_eq!(
            known, 5,
            "hashed and ordered tables of the heap, whose records name pages or keys; tables of trees"
        );
    }
}
