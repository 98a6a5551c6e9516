//! The settings for the maximum size of a collection that is packed in its key's row. Their names and units are
//! Redis's. A row has limits too: 128 elements, 64 bytes each, 2304 bytes in all. If a setting exceeds the row's limit,
//! the setting is stored and shown, but the row's limit applies.

use super::kind::{Kind, number};
use super::row::row;
use super::{Field, Group, Setting};
use crate::engine::Packing;
use std::str::FromStr;

/// The limits as they were set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedLimits {
    hash_entries: u64,
    hash_bytes: u64,
    list_size: i64,
    set_integers: u64,
    set_entries: u64,
    set_bytes: u64,
    zset_entries: u64,
    zset_bytes: u64,
}

impl Default for PackedLimits {
    fn default() -> Self {
        PackedLimits {
            hash_entries: 512,
            hash_bytes: 64,
            list_size: -2,
            set_integers: 512,
            set_entries: 128,
            set_bytes: 64,
            zset_entries: 128,
            zset_bytes: 64,
        }
    }
}

impl PackedLimits {
    /// Returns the bounds for the engine, each at most 255. The engine also applies the limits of a row.
    #[must_use]
    pub fn packing(&self) -> Packing {
        let within = |limit: u64| u8::try_from(limit).unwrap_or(u8::MAX);
        Packing {
            hash_entries: within(self.hash_entries),
            hash_bytes: within(self.hash_bytes),
            // A negative `list_size` names a size in bytes, and every such size exceeds a row. So it sets no
            // bound on the number of items. As in Redis, zero counts as one.
            list_entries: u64::try_from(self.list_size)
                .map_or(u8::MAX, |items| within(items.max(1))),
            set_integers: within(self.set_integers),
            set_entries: within(self.set_entries),
            set_bytes: within(self.set_bytes),
            zset_entries: within(self.zset_entries),
            zset_bytes: within(self.zset_bytes),
        }
    }
}

const ENTRIES: Kind = Kind::Integer {
    min: 0,
    max: i64::MAX,
};
const BYTES: Kind = Kind::Bytes {
    min: 0,
    max: i64::MAX.unsigned_abs(),
};

const fn limit(name: &'static str, kind: Kind, doc: &'static str, field: Field) -> Setting {
    row(name, Group::Collections, kind, doc, field).live()
}

macro_rules! field {
    ($field:ident) => {
        Field::Server {
            get: |o| vec![o.packed.$field.to_string()],
            set: |o, v| put(&mut o.packed.$field, v),
        }
    };
}

fn put<T: FromStr>(field: &mut T, values: &[String]) -> Result<(), String> {
    values.first().map_or(Ok(()), |value| number(field, value))
}

pub(super) const HASH_ENTRIES: Setting = limit(
    "hash-max-listpack-entries",
    ENTRIES,
    "Fields of a packed hash; at most 128 take effect.",
    field!(hash_entries),
);

pub(super) const HASH_BYTES: Setting = limit(
    "hash-max-listpack-value",
    BYTES,
    "Bytes of a field or a value in a packed hash; at most 64 take effect.",
    field!(hash_bytes),
);

pub(super) const LIST_SIZE: Setting = limit(
    "list-max-listpack-size",
    Kind::Integer {
        min: -2_147_483_648,
        max: 2_147_483_647,
    },
    "Items of a packed list; at most 128 take effect. A negative number is one of Redis's \
     classes of 4 to 64 KiB. Then a list is packed up to the size of a row, 2304 bytes.",
    field!(list_size),
);

pub(super) const SET_INTEGERS: Setting = limit(
    "set-max-intset-entries",
    ENTRIES,
    "Members of a packed set of integers; at most 128 take effect.",
    field!(set_integers),
);

pub(super) const SET_ENTRIES: Setting = limit(
    "set-max-listpack-entries",
    ENTRIES,
    "Members of any other packed set; at most 128 take effect. From Redis 7.2.",
    field!(set_entries),
);

pub(super) const SET_BYTES: Setting = limit(
    "set-max-listpack-value",
    BYTES,
    "Bytes of a member of any other packed set; at most 64 take effect. From Redis 7.2.",
    field!(set_bytes),
);

pub(super) const ZSET_ENTRIES: Setting = limit(
    "zset-max-listpack-entries",
    ENTRIES,
    "Members of a packed sorted set; at most 128 take effect.",
    field!(zset_entries),
);

pub(super) const ZSET_BYTES: Setting = limit(
    "zset-max-listpack-value",
    BYTES,
    "Bytes of a member of a packed sorted set; at most 64 take effect.",
    field!(zset_bytes),
);

pub(super) const SPARSE_SKETCH_BYTES: Setting = limit(
    "hll-sparse-max-bytes",
    BYTES,
    "Bytes of an estimated count (PFADD) that is kept as runs of registers; a longer one takes 12 KB.",
    Field::Server {
        get: |o| vec![o.hll_sparse_bytes_max.to_string()],
        set: |o, v| put(&mut o.hll_sparse_bytes_max, v),
    },
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_effect_is_within_a_byte_and_a_class_of_bytes_is_no_limit() {
        let mut limits = PackedLimits::default();
        let packing = limits.packing();
        assert_eq!((packing.hash_entries, packing.list_entries), (255, 255));
        assert_eq!((packing.zset_entries, packing.zset_bytes), (128, 64));
        for (size, items) in [(-5, 255), (0, 1), (7, 7), (2_147_483_647, 255)] {
            limits.list_size = size;
            assert_eq!(limits.packing().list_entries, items, "{size}");
        }
    }
}
