//! Tests of damaged runs. Every truncated run and every run with a flipped bit must be refused, with an error that
//! names the file and the offset.

use std::sync::Arc;

use perdura_archive::{Codec, Keep, Merge, MergeOptions, Moments, Run, RunId, Scope};
use perdura_base::{Error, Result};
use perdura_device::{Access, Disk};
use perdura_page::RegionDigest;

use crate::common::{DIR, Owned, UUID, disk, header, id, open, random, records, write};

/// Opens a run, checks all of it, and returns its records.
fn read(disk: &Arc<dyn Disk>, id: RunId, region: &RegionDigest) -> Result<Vec<Owned>> {
    let run = open(disk, id)?;
    run.verify(region)?;
    records(&run, &Scope::All)
}

fn assert_refused(read: Result<Vec<Owned>>, id: RunId, len: u64, what: &str) {
    match read {
        Err(Error::Corrupt(at)) => {
            assert!(at.file.ends_with(&id.name()), "{what}: {at}");
            assert!(at.offset <= len, "{what}: {at}");
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what} was not noticed"),
    }
}

/// Flips each bit of a run in turn, then truncates the run to each length, then lengthens it. Each damaged run must be
/// refused.
fn sweep(disk: &Arc<dyn Disk>, id: RunId, written: &[Owned], region: &RegionDigest) {
    assert_eq!(read(disk, id, region).expect("a whole run"), written);
    let file = disk.open(&id.path(DIR), Access::Buffered).expect("the run");
    let len = file.len().expect("its length");
    assert_eq!(len, 4096, "the run is small");
    let mut bytes = vec![0; 4096];
    file.read_at(0, &mut bytes).expect("memory");
    for (offset, byte) in (0u64..).zip(&bytes) {
        for bit in 0..8 {
            file.write_at(offset, &[byte ^ 1 << bit]).expect("memory");
            let what = format!("bit {bit} of byte {offset}");
            assert_refused(read(disk, id, region), id, len, &what);
        }
        file.write_at(offset, &[*byte]).expect("memory");
    }
    for cut in (0..len).rev() {
        file.set_len(cut).expect("memory");
        assert_refused(read(disk, id, region), id, len, &format!("{cut} bytes"));
    }
    for more in [1, 4095, 4096] {
        file.set_len(0).expect("memory");
        file.write_at(0, &bytes).expect("memory");
        file.set_len(len + more).expect("memory");
        let what = format!("{more} bytes more");
        assert_refused(read(disk, id, region), id, len + more, &what);
    }
}

/// Returns twenty random records and one record that compresses well.
fn some() -> Vec<Owned> {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut records = random(&mut rng, 10..20, 20);
    records.push(Owned::one((3, 40), 11, 6, 90, 100, &[7; 300]));
    records
}

#[test]
fn every_flipped_bit_and_every_truncation_is_refused() {
    let region = RegionDigest::new();
    for codec in Codec::ALL {
        let disk = disk();
        let id = id(10, 20, 0, 0);
        write(&disk, header(id), codec, &some(), &Moments::default()).expect("memory");
        sweep(&disk, id, &some(), &region);
    }
}

#[test]
fn every_flipped_bit_of_a_run_with_net_records_is_refused() {
    let region = Arc::new(RegionDigest::new());
    let disk = disk();
    // Each record occurs twice, so that each page has several records of one tag.
    let twice: Vec<Owned> = some().iter().flat_map(|r| [r.clone(), r.clone()]).collect();
    let id = id(10, 20, 0, 0);
    let run = write(&disk, header(id), Codec::None, &twice, &Moments::default());
    let options = MergeOptions {
        keep: Some(Keep::default()),
        ..MergeOptions::default()
    };
    let inputs = vec![run.expect("memory")];
    let merge = Merge::new(Arc::clone(&disk), DIR, inputs, options, Arc::clone(&region));
    let merged = merge.and_then(Merge::run).expect("memory");
    let run = open(&disk, merged.id).expect("a run");
    let net = records(&run, &Scope::All).expect("whole");
    assert!(net.iter().all(|record| record.updates.count > 1));
    sweep(&disk, merged.id, &net, &region);
}

#[test]
fn a_block_of_another_run_or_another_place_is_refused() {
    let region = RegionDigest::new();
    let disk = disk();
    let (one, other) = (id(10, 20, 0, 0), id(10, 20, 0, 1));
    let mut rng = fastrand::Rng::with_seed(9);
    // Each of the four partitions has one block. The blocks have the same length.
    let records: Vec<Owned> = (0..4)
        .map(|p| Owned::one((p, 0), 12, 5, 3, 100, &[rng.u8(1..); 20]))
        .collect();
    for id in [one, other] {
        write(
            &disk,
            header(id),
            Codec::None,
            &records,
            &Moments::default(),
        )
        .expect("memory");
    }
    let run = open(&disk, one).expect("whole");
    let (first, second) = (run.index()[0], run.index()[1]);
    assert_eq!(first.bytes, second.bytes);
    let block = |id: RunId, at: u64| {
        let file = disk.open(&id.path(DIR), Access::Buffered).expect("the run");
        let mut bytes = vec![0; first.bytes as usize];
        file.read_at(at, &mut bytes).expect("memory");
        (file, bytes)
    };
    let (file, own) = block(one, first.offset);
    for (_, foreign) in [block(other, first.offset), block(one, second.offset)] {
        file.write_at(first.offset, &foreign).expect("memory");
        assert_refused(
            read(&disk, one, &region),
            one,
            4096,
            "a block in the wrong place",
        );
        file.write_at(first.offset, &own).expect("memory");
        assert!(read(&disk, one, &region).is_ok());
    }
}

#[test]
fn runs_of_other_databases_and_names_are_refused() {
    let disk = disk();
    let (here, there) = (id(10, 20, 0, 0), id(10, 21, 0, 0));
    write(&disk, header(here), Codec::Lz4, &[], &Moments::default()).expect("memory");
    let other = perdura_base::Uuid([9; 16]);
    let foreign = Run::open(disk.as_ref(), DIR, here, &other).err();
    assert!(
        matches!(foreign, Some(Error::Foreign { .. })),
        "{foreign:?}"
    );
    disk.rename(&here.path(DIR), &there.path(DIR))
        .expect("memory");
    let renamed = Run::open(disk.as_ref(), DIR, there, &UUID).err();
    assert!(matches!(renamed, Some(Error::Corrupt(_))), "{renamed:?}");
}
