//! Helpers that make records, write and read runs, and compute the result of a restore.

use std::sync::Arc;

use perdura_archive::{
    Codec, EpochRange, EpochSpan, FragmentBytes, Moments, PageAt, Run, RunHeader, RunId, RunRecord,
    RunWriter, Scope, Updates,
};
use perdura_base::{CkptEpoch, Epoch, PartitionId, Pos, Result, Useq, Uuid};
use perdura_device::{Disk, MemDisk};
use perdura_page::diff::FragmentWriter;
use perdura_page::layout::PAGE_BYTES;
use perdura_page::{Chunks, RegionDigest};

/// The folder of all runs in the tests.
pub const DIR: &str = "archive";
/// The identity of the database.
pub const UUID: Uuid = Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
/// The database's assignment of pages to partitions.
pub const CHUNKS: Chunks = Chunks {
    partitions: 4,
    pages: 2,
};

/// A record that owns its fragments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    pub at: PageAt,
    pub epochs: EpochSpan,
    pub tag: CkptEpoch,
    pub updates: Updates,
    pub count: u32,
    pub bytes: Vec<u8>,
}

impl Owned {
    /// Returns a record of one update, which XORs `xor` into the page at an offset.
    pub fn one(
        at: (u16, u32),
        epoch: u64,
        tag: u64,
        useq: u32,
        offset: usize,
        xor: &[u8],
    ) -> Owned {
        let mut bytes = Vec::new();
        let mut writer = FragmentWriter::new(&mut bytes);
        writer.whole(offset, &vec![0; xor.len()], xor);
        Owned {
            at: PageAt {
                partition: PartitionId(at.0),
                local: at.1,
            },
            epochs: EpochSpan::one(Epoch(epoch)),
            tag: CkptEpoch(tag),
            updates: Updates::one(Useq(useq)),
            count: 1,
            bytes,
        }
    }

    pub fn of(record: &RunRecord<'_>) -> Owned {
        Owned {
            at: record.at,
            epochs: record.epochs,
            tag: record.tag,
            updates: record.updates,
            count: record.fragment_count(),
            bytes: record.fragment_bytes().to_vec(),
        }
    }

    pub fn record(&self) -> RunRecord<'_> {
        let Owned {
            at,
            epochs,
            tag,
            updates,
            ..
        } = *self;
        let fragments = FragmentBytes {
            count: self.count,
            bytes: &self.bytes,
        };
        RunRecord::new(at, epochs, tag, updates, fragments).expect("a record")
    }

    pub fn key(&self) -> (PageAt, Epoch, u32) {
        self.record().key()
    }
}

pub fn id(begin: u64, end: u64, level: u8, generation: u32) -> RunId {
    RunId {
        epochs: EpochRange::new(Epoch(begin), Epoch(end)).expect("a range"),
        level,
        generation,
    }
}

pub fn header(id: RunId) -> RunHeader {
    RunHeader {
        uuid: UUID,
        id,
        chunks: CHUNKS,
        only_listed_moments: false,
        carries_frames: false,
        life: perdura_base::LifeId(0),
    }
}

pub fn disk() -> Arc<dyn Disk> {
    let disk = MemDisk::new();
    disk.make_dir(DIR).expect("memory");
    Arc::new(disk)
}

/// Writes a run of sorted records. The run ends at position 8192 of the only stream.
pub fn write(
    disk: &Arc<dyn Disk>,
    header: RunHeader,
    codec: Codec,
    records: &[Owned],
    moments: &Moments,
) -> Result<Arc<Run>> {
    let digest = Arc::new(RegionDigest::new());
    let mut writer = RunWriter::create(Arc::clone(disk), DIR, header, codec, digest)?;
    for record in records {
        writer.push(&record.record())?;
    }
    writer.finish(moments, &[Pos(8192)])?.run()?;
    open(disk, header.id)
}

pub fn open(disk: &Arc<dyn Disk>, id: RunId) -> Result<Arc<Run>> {
    Run::open(disk.as_ref(), DIR, id, &UUID).map(Arc::new)
}

/// Reads all records of a scope.
pub fn records(run: &Arc<Run>, scope: &Scope) -> Result<Vec<Owned>> {
    let mut cursor = run.cursor(scope);
    let mut records = Vec::new();
    while cursor.advance()? {
        records.push(Owned::of(&cursor.record()));
    }
    Ok(records)
}

/// Makes random records with epochs in `epochs`, and sorts the records as in a run. All update numbers differ. Epochs
/// and tags are random: they do not rise with the update numbers.
pub fn random(rng: &mut fastrand::Rng, epochs: std::ops::Range<u64>, count: usize) -> Vec<Owned> {
    let mut records = Vec::new();
    for i in 0..count {
        let len = rng.usize(1..40);
        let offset = rng.usize(16..PAGE_BYTES - len);
        let xor: Vec<u8> = (0..len).map(|_| rng.u8(1..)).collect();
        let at = (rng.u16(0..4), rng.u32(0..30));
        let useq = u32::try_from(i).expect("few");
        let epoch = rng.u64(epochs.clone());
        records.push(Owned::one(at, epoch, rng.u64(5..9), useq, offset, &xor));
    }
    records.sort_by_key(Owned::key);
    records
}
