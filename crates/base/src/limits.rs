//! All limits. The code checks a limit before it writes anything.

/// Bytes in a page of the heap.
pub const PAGE_BYTES: usize = 16 * 1024;
/// The alignment of blocks and of direct I/O, bytes.
pub const SECTOR_BYTES: usize = 4096;
/// The most log streams a database can have.
pub const STREAMS_MAX: u8 = 16;
/// The most virtual partitions a database can have.
pub const PARTITIONS_MAX: u16 = 256;
/// Virtual partitions of a new database.
pub const PARTITIONS_DEFAULT: u16 = 256;
/// Pages in a chunk of a new database: 2 MiB.
pub const CHUNK_PAGES_DEFAULT: u16 = 128;
/// The longest key, bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// The longest value the formats can hold, bytes.
pub const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// The longest value accepted unless configured otherwise, bytes.
pub const VALUE_BYTES_DEFAULT: usize = 64 * 1024 * 1024;
/// Bytes of one stream that may be written but not yet synced. Restart looks this far beyond the
/// first gap for evidence that acknowledged data is missing.
pub const IN_FLIGHT_BYTES_MAX: u64 = 8 * 1024 * 1024;

const _: () = {
    assert!(
        PAGE_BYTES.is_multiple_of(SECTOR_BYTES),
        "pages are whole sectors"
    );
    assert!(PARTITIONS_DEFAULT <= PARTITIONS_MAX);
    assert!(VALUE_BYTES_DEFAULT <= VALUE_BYTES_MAX && KEY_BYTES_MAX < VALUE_BYTES_MAX);
    assert!(
        IN_FLIGHT_BYTES_MAX.is_multiple_of(2 * crate::num::to_u64(SECTOR_BYTES)),
        "half of what is in flight is whole sectors: the bound of a stream's tail"
    );
};

/// The format version of every file. Before 1.0 other versions are refused.
pub const FORMAT_VERSION: u16 = 3;
