//! Ids are newtypes, so that an epoch is never compared with a checkpoint epoch by accident.
//!
//! The database has exactly four clocks. The commit epoch [`Epoch`] measures durability and orders transactions across
//! streams. The checkpoint epoch [`CkptEpoch`] tags pages. The update number [`Useq`] orders the changes of one page.
//! The number [`Gsn`] orders the operations on a tree.

use std::fmt;

use crate::checksum::mix64;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A commit epoch: the unit of group commit. Zero means "before the first".
    Epoch(u64)
);
id!(
    /// A checkpoint epoch: the number of a sweep. A page is tagged with the checkpoint epoch of the last sweep that
    /// visited it.
    CkptEpoch(u64)
);
id!(
    /// A life of the database between two restarts.
    Incarnation(u32)
);
id!(
    /// The random number of a life of the database. Copies of a database count their lives alike, but each draws its own
    /// numbers. 0: the life has none.
    LifeId(u64)
);
id!(
    /// A log stream.
    StreamId(u8)
);
id!(
    /// A transaction of steal mode. Ids are never reused. They do not imply an order.
    TxnId(u64)
);
id!(
    /// A byte position in *one* stream. It counts all bytes of the stream since the database was created. Positions of
    /// two streams have no order.
    Pos(u64)
);
id!(
    /// A page of the heap. `chunk = id / chunk_pages`; the chunk belongs to partition
    /// `chunk % partitions`.
    PageId(u32)
);
id!(
    /// The number of an operation on a tree, or of a record of the tree. The literature calls it the LSN. All streams
    /// share one sequence of numbers, which begins at 1 and has no gaps. Zero means "before the first".
    Gsn(u64)
);
id!(
    /// A page of a tree, by its index in the tree's file.
    Pid(u32)
);
id!(
    /// A slot within a page.
    SlotId(u16)
);
id!(
    /// A table. Zero is the catalog; ids are never reused.
    TableId(u32)
);
id!(
    /// A virtual partition: a set of keys, chosen by their hashes, with one latch.
    PartitionId(u16)
);

impl TableId {
    /// The catalog.
    pub const CATALOG: TableId = TableId(0);
}

/// The number of an update of a page, modulo 2^32. Each update of the page raises it by 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Useq(pub u32);

impl Useq {
    /// Returns the number of the next update.
    #[must_use]
    pub fn next(self) -> Useq {
        let next = Useq(self.0.wrapping_add(1));
        debug_assert!(next.is_after(self) && next.since(self) == 1);
        next
    }

    /// Returns the number of updates from `earlier` to `self`, modulo 2^32.
    #[must_use]
    pub fn since(self, earlier: Useq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns whether `self` is later than `other` on the circle of 2^32 numbers.
    #[must_use]
    pub fn is_after(self, other: Useq) -> bool {
        let distance = self.since(other);
        distance != 0 && distance < 1 << 31
    }
}

/// One of the two alternating checkpoint images (the paper's two backup databases).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum ImageSlot {
    /// Image A.
    A,
    /// Image B.
    B,
}

impl ImageSlot {
    /// Both slots.
    pub const ALL: [ImageSlot; 2] = [ImageSlot::A, ImageSlot::B];

    /// Returns the slot that is not `self`.
    #[must_use]
    pub fn other(self) -> ImageSlot {
        let other = match self {
            ImageSlot::A => ImageSlot::B,
            ImageSlot::B => ImageSlot::A,
        };
        assert_eq!(
            self.index() + other.index(),
            1,
            "the two slots have the two indexes"
        );
        other
    }

    /// Returns 0 for A, 1 for B.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            ImageSlot::A => 0,
            ImageSlot::B => 1,
        }
    }
}

impl fmt::Display for ImageSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageSlot::A => "A",
            ImageSlot::B => "B",
        })
    }
}

/// The identity of a database, stored in each of its files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Returns the identity that belongs to a seed. Different seeds give different identities.
    #[must_use]
    pub fn of_seed(seed: u64) -> Uuid {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&mix64(seed).to_le_bytes());
        uuid[8..].copy_from_slice(&mix64(seed ^ 0x9e37_79b9_7f4a_7c15).to_le_bytes());
        Uuid(uuid)
    }

    /// Returns a short form of the identity for block headers. It is enough to distinguish the blocks of two databases.
    #[must_use]
    pub fn short(&self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(low)
    }
}

impl LifeId {
    /// Returns the number of the creation of a database.
    #[must_use]
    pub fn of_creation(uuid: &Uuid) -> LifeId {
        // 0 means that a life has no number.
        let life = LifeId(uuid.short().max(1));
        assert_ne!(life, LifeId(0), "a creation has a number");
        life
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useq_order_survives_the_wrap() {
        assert!(Useq(3).is_after(Useq(u32::MAX - 3)));
        assert!(!Useq(u32::MAX - 3).is_after(Useq(3)));
        assert_eq!(Useq(u32::MAX).next(), Useq(0));
        assert_eq!(Useq(2).since(Useq(u32::MAX)), 3);
    }
}
