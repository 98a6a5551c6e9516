//! Blocks that a newer build wrote.

use perdura_base::Error;
use perdura_base::checksum::crc32c;
use perdura_device::{Access, CrashProfile, Disk, SimDisk};
use perdura_wal::block::HEADER_BYTES;

use crate::setup::{anchor, append, flush, open, scan};

/// This build requires that a block's reserved bytes are zero. A newer build may have used these bytes. A block
/// of the newer build must never be mistaken for the torn end of the log.
#[test]
fn a_block_whose_reserved_room_is_used_is_refused_by_file_and_offset_and_no_torn_tail() {
    let disk = SimDisk::new(9);
    let anchor = anchor(1);
    let wal = open(&disk, &anchor, 1);
    append(&wal, 0, b"one");
    flush(&wal);
    append(&wal, 0, b"two");
    flush(&wal);
    disk.crash(CrashProfile::Nothing, 2);
    let mut paths = disk.files().into_iter().map(|(path, _)| path);
    let path = paths.find(|path| path.contains("/s00-")).unwrap();
    let whole = scan(&disk, &anchor).unwrap().0;
    let last = whole[0].blocks.last().unwrap().pos.0 + 4096;
    let before = disk.snapshot();
    for (sum_again, refused) in [(false, false), (true, true)] {
        disk.restore(&before);
        let file = disk.life().open(&path, Access::Buffered).unwrap();
        let mut head = vec![0; HEADER_BYTES];
        file.read_at(last, &mut head).unwrap();
        head[276] = 1;
        if sum_again {
            let crc = crc32c(&head[..HEADER_BYTES - 4]);
            head[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        }
        file.write_at(last, &head).unwrap();
        match scan(&disk, &anchor) {
            Ok((scans, _)) => assert!(!refused && scans[0].valid_end.0 + 4096 == last),
            Err(Error::Corrupt(why)) => {
                assert!(refused && why.file == path && why.offset == last, "{why}");
                assert!(why.to_string().contains("newer build"), "{why}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
