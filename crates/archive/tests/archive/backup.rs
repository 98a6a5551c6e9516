//! Tests of backups: writing, reading, and refusing damaged backups.

use std::sync::Arc;

use perdura_archive::backup::{
    Backup, BackupHeader, BackupId, BackupKind, BackupWriter, PageEntry,
};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result};
use perdura_device::{Access, AlignedBuf, Disk};
use perdura_page::RegionDigest;
use perdura_page::digest::{bound, page_crc};
use perdura_page::layout::{PAGE_BYTES, set_page_id, set_useq};
use perdura_wal::SegmentSizes;

use crate::common::{CHUNKS, DIR, UUID, disk};

pub fn header(consistent: bool) -> BackupHeader {
    BackupHeader {
        uuid: UUID,
        id: BackupId {
            end: Epoch(90),
            k: CkptEpoch(7),
        },
        kind: BackupKind::Sweep,
        base: None,
        consistent,
        begin: Epoch(80),
        wall_us: 5,
        chunks: CHUNKS,
        hash_seed: 42,
        scheme: 0,
        streams: 2,
        families: 1,
        segments: SegmentSizes {
            first: 4 << 20,
            max: 64 << 20,
        },
    }
}

/// Returns a page of random bytes, and its entry in a backup.
fn page(rng: &mut fastrand::Rng, partition: u16, local: u32) -> (PageEntry, Vec<u8>) {
    let id = CHUNKS
        .page_id(PartitionId(partition), local)
        .expect("an id");
    let mut bytes = vec![0; PAGE_BYTES];
    rng.fill(&mut bytes);
    set_page_id(&mut bytes, id);
    let useq = perdura_base::Useq(rng.u32(1..));
    set_useq(&mut bytes, useq);
    let entry = PageEntry {
        local,
        useq,
        crc: page_crc(id, &bytes),
        digest: RegionDigest::new().of_page(&bytes),
    };
    (entry, bytes)
}

type Pages = Vec<Vec<(PageEntry, Vec<u8>)>>;

fn write(disk: &Arc<dyn Disk>, header: BackupHeader, pages: &Pages) -> Result<u64> {
    let mut writer = BackupWriter::create(Arc::clone(disk), DIR, header)?;
    for (number, partition) in (0u64..).zip(pages) {
        for (entry, bytes) in partition {
            writer.push(*entry, bytes)?;
        }
        let pseq = header.consistent.then_some(number * 100);
        writer.end_partition(pseq, vec![7; partition.len()]);
    }
    Ok(writer.finish()?.run()?.proof)
}

fn open(disk: &Arc<dyn Disk>) -> Result<Backup> {
    Backup::open(disk.as_ref(), DIR, header(false).id, &UUID)
}

#[test]
fn what_was_written_is_read_and_a_backup_is_not_replaced() {
    for (seed, consistent) in [(1, false), (2, true), (3, false)] {
        let disk = disk();
        let mut rng = fastrand::Rng::with_seed(seed);
        let pages: Pages = (0..CHUNKS.partitions)
            .map(|partition| {
                let locals = (0..300).filter(|_| seed != 3 && rng.bool());
                let locals: Vec<u32> = locals.collect();
                let pages = locals
                    .into_iter()
                    .map(|local| page(&mut rng, partition, local));
                pages.collect()
            })
            .collect();
        let header = header(consistent);
        let proof = write(&disk, header, &pages).expect("a backup");
        let backup = open(&disk).expect("a backup");
        assert_eq!(*backup.header(), header);
        let mut sum = 0;
        for (partition, written) in (0..).map(PartitionId).zip(&pages) {
            let section = backup.section(partition).expect("a section");
            let entries: Vec<PageEntry> = written.iter().map(|(entry, _)| *entry).collect();
            assert_eq!(section.pages, entries);
            assert_eq!(
                section.pseq,
                consistent.then_some(u64::from(partition.0) * 100)
            );
            assert_eq!(section.sidecar, vec![7; written.len()]);
            let bind = |entry: &PageEntry| {
                let id = CHUNKS.page_id(partition, entry.local).expect("an id");
                bound(id, entry.digest)
            };
            let of_section = entries.iter().map(bind).fold(0, |sum, one| sum ^ one);
            assert_eq!(backup.proof(partition), of_section);
            sum ^= of_section;
            let mut buf = AlignedBuf::zeroed(3 * PAGE_BYTES);
            for (nth, some) in written.chunks(3).enumerate() {
                let entries = &section.pages[nth * 3..nth * 3 + some.len()];
                let read = backup.read_pages(partition, nth * 3, entries, &mut buf);
                read.expect("pages");
                for ((_, bytes), read) in some.iter().zip(buf.chunks(PAGE_BYTES)) {
                    assert!(bytes == read);
                }
            }
        }
        assert_eq!(sum, proof);
        let region = RegionDigest::new();
        backup.verify(|page| region.of_page(page)).expect("whole");
        let again = write(&disk, header, &pages).expect_err("it is there");
        assert!(again.to_string().contains("is not overwritten"), "{again}");
        backup.verify(|page| region.of_page(page)).expect("whole");
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_is_refused() {
    let disk = disk();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut pages: Pages = vec![Vec::new(); usize::from(CHUNKS.partitions)];
    pages[2].push(page(&mut rng, 2, 5));
    write(&disk, header(true), &pages).expect("a backup");
    let region = RegionDigest::new();
    let read = || open(&disk)?.verify(|page| region.of_page(page));
    read().expect("a whole backup");
    let path = header(true).id.path(DIR);
    let file = disk.open(&path, Access::Buffered).expect("the backup");
    let len = file.len().expect("its length");
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    file.read_at(0, &mut bytes).expect("memory");
    let assert_refused = |what: String| match read() {
        Err(Error::Corrupt(at)) => {
            assert!(at.file.ends_with(&header(true).id.name()), "{what}: {at}");
            assert!(at.offset <= len, "{what}: {at}");
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(()) => panic!("{what} was not noticed"),
    };
    for (offset, byte) in (0u64..).zip(&bytes) {
        // Within a page, flip only one bit of each byte, because the checksum treats all bits alike.
        let in_page = (4096..4096 + 16384).contains(&offset);
        let bits = if in_page {
            offset % 8..offset % 8 + 1
        } else {
            0..8
        };
        for bit in bits {
            file.write_at(offset, &[byte ^ 1 << bit]).expect("memory");
            assert_refused(format!("bit {bit} of byte {offset}"));
        }
        file.write_at(offset, &[*byte]).expect("memory");
    }
    for cut in (0..len).rev().filter(|cut| cut % 97 == 0 || cut % 4096 < 3) {
        file.set_len(cut).expect("memory");
        assert_refused(format!("{cut} bytes"));
    }
}
