//! All limits. The code checks a limit before it writes anything.

/// Bytes in a page of the heap.
pub const PAGE_BYTES: usize = 16 * 1024;
/// The alignment of blocks and of direct I/O, in bytes.
pub const SECTOR_BYTES: usize = 4096;
/// The maximum number of log streams.
pub const STREAMS_MAX: u8 = 16;
/// The maximum number of virtual partitions.
pub const PARTITIONS_MAX: u16 = 256;
/// The number of virtual partitions of a new database.
pub const PARTITIONS_DEFAULT: u16 = 256;
/// The number of pages in a chunk of a new database. Such a chunk has 2 MiB.
pub const CHUNK_PAGES_DEFAULT: u16 = 128;
/// The maximum length of a key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// The maximum length of a value in the file formats, in bytes.
pub const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// The default maximum length of a value, in bytes. The configuration can change it.
pub const VALUE_BYTES_DEFAULT: usize = 64 * 1024 * 1024;
/// The maximum number of written but unsynced bytes of one stream. A restart searches this far beyond the first gap for
/// evidence that acknowledged data is missing.
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

/// The format version of every file. Until release 1.0, all other versions are refused.
pub const FORMAT_VERSION: u16 = 3;
