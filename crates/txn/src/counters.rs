//! The counters of row ids: rows of the catalog, one in each partition (docs/formats/catalog.md).

use std::sync::OnceLock;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{Error, PartitionId, Result};
use perdura_heap::Geometry;

/// The first number that a counter gives. An earlier build took the ids of all tables from the sequence. A sequence
/// does not reach this number.
pub(crate) const COUNTED_FROM: u64 = 1 << 55;

/// The prefix of a counter's key in the catalog.
const PREFIX: &[u8] = b"i";

/// The keys of the partitions' counters, computed at the first use.
#[derive(Default)]
pub(crate) struct CounterKeys(OnceLock<Box<[Vec<u8>]>>);

impl CounterKeys {
    /// Returns the key of a partition's counter. A row of the catalog is in the partition of its key's hash. So the key
    /// ends with the smallest u32 that makes the hash name this partition.
    pub fn of(&self, home: PartitionId, geometry: &Geometry) -> &[u8] {
        let keys = self.0.get_or_init(|| find_keys(geometry));
        &keys[usize::from(home.0)]
    }
}

fn find_keys(geometry: &Geometry) -> Box<[Vec<u8>]> {
    let mut keys = vec![Vec::new(); usize::from(geometry.partitions)];
    let mut missing = keys.len();
    for number in 0..u32::MAX {
        if missing == 0 {
            break;
        }
        let mut key = PREFIX.to_vec();
        key.put(&number.to_be_bytes());
        let home = geometry.partition_of(geometry.hash(&key));
        let found = &mut keys[usize::from(home.0)];
        if found.is_empty() {
            *found = key;
            missing -= 1;
        }
    }
    assert_eq!(missing, 0, "hashes reach every partition");
    keys.into()
}

/// Decodes the value of a partition's counter.
///
/// # Errors
/// [`Error::Corrupt`] if no append writes this value.
pub(crate) fn read_counter(home: PartitionId, value: &[u8]) -> Result<u64> {
    let mut r = Reader::new(value);
    let number = r.u64().filter(|number| *number >= COUNTED_FROM);
    number.filter(|_| r.remaining() == 0).ok_or_else(|| {
        Error::corrupt(
            "catalog (table 0)",
            0,
            format!("the counter of row ids of partition {home}"),
            "a row that does not parse",
            "The checksums of its pages match, so this is a bug in Perdura. Copy the files and \
             report the bug.",
        )
    })
}

#[cfg(test)]
mod tests {
    use perdura_heap::Geometry;

    use super::*;

    #[test]
    fn each_partition_has_a_counter_of_its_own() {
        for partitions in [1, 2, 256] {
            let geometry = Geometry {
                partitions,
                chunk_pages: 4,
                hash_seed: 5,
            };
            let keys = CounterKeys::default();
            for home in (0..partitions).map(PartitionId) {
                let key = keys.of(home, &geometry);
                assert_eq!(geometry.partition_of(geometry.hash(key)), home);
            }
        }
    }

    #[test]
    fn a_counter_that_no_append_writes_is_refused() {
        let home = PartitionId(3);
        let read = |value: &[u8]| read_counter(home, value);
        assert_eq!(
            read(&(COUNTED_FROM + 7).to_le_bytes()).unwrap(),
            COUNTED_FROM + 7
        );
        for odd in [&[][..], &[0; 8], &[0xff; 7], &[0xff; 9]] {
            let refused = read(odd).unwrap_err().to_string();
            assert!(refused.contains("partition 3"), "{refused}");
        }
    }
}
