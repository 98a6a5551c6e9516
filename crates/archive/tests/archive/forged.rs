//! Files with right checksums and arbitrary contents. A reader must not trust contents only because their checksum is
//! right. Reading a forged file returns records or an error, and never panics.

use std::sync::Arc;

use perdura_archive::{Codec, Keep, Merge, MergeOptions, Moment, Moments, Run, Scope};
use perdura_base::Epoch;
use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_device::{Access, Disk};
use perdura_page::RegionDigest;

use crate::common::{DIR, Owned, UUID, disk, header, id, random, records, write};

/// The offset of the footer in the file.
const FOOTER: usize = 4096 - 128;

fn put(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Makes all checksums right again: in the header, in the given blocks and parts, and in the footer. A block or part is
/// given by its offset and length.
fn seal(bytes: &mut [u8], blocks: &[(usize, usize)], parts: &[(usize, usize)]) {
    let header = crc32c(&bytes[..124]);
    put(bytes, 124, header);
    for (from, len) in blocks.iter().copied() {
        let mut place = header.to_le_bytes().to_vec();
        place.extend_from_slice(&u64::try_from(from).expect("small").to_le_bytes());
        let crc = crc32c_append(crc32c(&place), &bytes[from..from + 40]);
        let crc = crc32c_append(crc, &bytes[from + 44..from + len]);
        put(bytes, from + 40, crc);
    }
    put(bytes, FOOTER + 8, header);
    for (i, (from, len)) in parts.iter().copied().enumerate() {
        let crc = crc32c(&bytes[from..from + len]);
        put(bytes, FOOTER + 32 + 16 * i + 12, crc);
    }
    let crc = crc32c(&bytes[FOOTER..FOOTER + 124]);
    put(bytes, FOOTER + 124, crc);
}

fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    let mut eight = [0; 8];
    eight[..len].copy_from_slice(&bytes[at..at + len]);
    usize::try_from(u64::from_le_bytes(eight)).expect("64 bits")
}

/// Reads and merges everything that can be read. Returns whether all reads and merges succeeded.
fn read(disk: &Arc<dyn Disk>, path: &str, region: &Arc<RegionDigest>) -> bool {
    let file = disk.open(path, Access::Buffered).expect("the run");
    let Ok(run) = Run::read(file).map(Arc::new) else {
        return false;
    };
    let some = records(&run, &Scope::Pages(perdura_base::PartitionId(1), 3..20));
    let sound = run.verify(region).is_ok() && some.is_ok();
    let options = MergeOptions {
        generation: 9,
        keep: Some(Keep::default()),
        ..MergeOptions::default()
    };
    let merge = Merge::new(
        Arc::clone(disk),
        DIR,
        vec![run],
        options,
        Arc::clone(region),
    );
    let merged = merge.and_then(Merge::run);
    for name in disk.list(DIR).expect("memory") {
        let made = format!("{DIR}/{name}");
        if made != path {
            disk.remove(&made).expect("memory");
        }
    }
    sound && merged.is_ok()
}

#[test]
fn forged_files_are_read_without_a_panic() {
    let region = Arc::new(RegionDigest::new());
    let mut rng = fastrand::Rng::with_seed(17);
    for is_net in [false, true] {
        let disk = disk();
        let twice: Vec<Owned> = random(&mut rng, 10..20, 12)
            .iter()
            .flat_map(|r| [r.clone(), r.clone()])
            .collect();
        let moments = Moments::sampled(&[12, 15].map(|epoch| Moment {
            epoch: Epoch(epoch),
            wall_us: 1000 * epoch,
        }));
        let run = write(
            &disk,
            header(id(10, 20, 0, 0)),
            Codec::None,
            &twice,
            &moments,
        );
        let mut run = run.expect("memory");
        if is_net {
            let options = MergeOptions {
                codec: Codec::None,
                keep: Some(Keep {
                    moments: moments.list().to_vec(),
                    ..Keep::default()
                }),
                ..MergeOptions::default()
            };
            let merge = Merge::new(
                Arc::clone(&disk),
                DIR,
                vec![run],
                options,
                Arc::clone(&region),
            );
            let merged = merge.and_then(Merge::run).expect("memory");
            disk.remove(&id(10, 20, 0, 0).path(DIR)).expect("memory");
            run = Arc::new(Run::open(disk.as_ref(), DIR, merged.id, &UUID).expect("a run"));
        }
        let path = run.id().path(DIR);
        let file = disk.open(&path, Access::Buffered).expect("the run");
        let mut whole = vec![0; 4096];
        file.read_at(0, &mut whole).expect("memory");
        let size = |n: u64| usize::try_from(n).expect("small");
        let blocks: Vec<(usize, usize)> = run
            .index()
            .iter()
            .map(|block| (size(block.offset), size(u64::from(block.bytes))))
            .collect();
        let part = |i: usize| {
            let at = FOOTER + 32 + 16 * i;
            (number(&whole, at, 8), number(&whole, at + 8, 4))
        };
        let parts: Vec<(usize, usize)> = (0..5).map(part).collect();
        let mut sealed = whole.clone();
        seal(&mut sealed, &blocks, &parts);
        assert_eq!(sealed, whole, "the checksums are those of the format page");
        assert!(read(&disk, &path, &region));
        let (mut sound, mut unsound) = (0, 0);
        let used = parts[4].0 + parts[4].1;
        for at in (0..used).chain(FOOTER..4096) {
            for value in [
                0,
                1,
                0x7f,
                0x80,
                0xff,
                whole[at] ^ 1,
                whole[at].wrapping_add(1),
            ] {
                let mut forged = whole.clone();
                forged[at] = value;
                if rng.bool() {
                    let more = rng.usize(0..used);
                    forged[more] = rng.u8(..);
                }
                seal(&mut forged, &blocks, &parts);
                file.write_at(0, &forged).expect("memory");
                if read(&disk, &path, &region) {
                    sound += 1;
                } else {
                    unsound += 1;
                }
            }
        }
        assert!(sound > 100 && unsound > 3000, "{sound} and {unsound}");
    }
}
