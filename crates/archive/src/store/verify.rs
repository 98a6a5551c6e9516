//! The verification of an archive. The verification reads every object and reports the damaged objects.

use std::sync::Arc;

use perdura_base::checksum::{crc32c, crc32c_append};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, PartitionId, Result};
use perdura_device::{Access, AlignedBuf, Disk, read_exact_at};
use perdura_page::RegionDigest;

use super::{Store, chain};
use crate::backup::BackupId;
use crate::keyed::Keyed;
use crate::manifest::{Manifest, Object, ObjectId, object_damage};
use crate::numbers::NumberChain;

/// The maximum number of bytes in one read.
const READ_BYTES: usize = 1024 * 1024;

/// A damaged manifest, or an object that does not match the manifest.
#[derive(Debug)]
pub struct Fault {
    /// The path of the file: of an object relative to the database's folder, of a manifest relative to the disk.
    pub path: String,
    /// A description of the mismatch.
    pub error: Error,
}

/// The result of a verification.
#[derive(Debug)]
pub struct Verified {
    /// The manifest for the comparison with the objects.
    pub manifest: Arc<Manifest>,
    /// The total size of the undamaged objects, bytes.
    pub bytes: u64,
    /// The damaged manifests and objects.
    pub faults: Vec<Fault>,
}

impl Fault {
    fn of_manifest(error: Error) -> Fault {
        let path = match &error {
            Error::Corrupt(at) => at.file.clone(),
            Error::Foreign { file, .. } => file.clone(),
            _ => String::new(),
        };
        Fault { path, error }
    }
}

impl Store {
    /// Reads the manifests and every object. Checks the size and the checksum of each file. Checks the blocks, the
    /// order of the records, the counts and the digests of each run. Ignores an object that another writer removes from
    /// the archive in the meantime.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if every manifest is damaged; errors of the disk while the manifests are read.
    pub fn verify(&self, region: &RegionDigest) -> Result<Verified> {
        let manifest = self.refresh()?;
        let manifests = chain::check(self.disk.as_ref(), &self.dir, &self.uuid)?;
        let mut verified = Verified {
            manifest: Arc::clone(&manifest),
            bytes: 0,
            faults: manifests.into_iter().map(Fault::of_manifest).collect(),
        };
        for object in &manifest.objects {
            match self.verify_object(object, region) {
                Ok(()) => verified.bytes += object.bytes,
                Err(_) if self.refresh()?.object(object.id).is_none() => {}
                Err(error) => verified.faults.push(Fault {
                    path: object.id.path(),
                    error,
                }),
            }
        }
        self.verify_numbers(&mut verified);
        self.verify_increments(&mut verified);
        Ok(verified)
    }

    /// Checks that each page of each increment is in the file that the increment names, and that the numbers of ordered
    /// frames rise from cut to cut.
    fn verify_increments(&self, verified: &mut Verified) {
        let manifest = Arc::clone(&verified.manifest);
        let mut before: Option<(BackupId, Vec<u64>)> = None;
        for id in manifest.increments() {
            let known = before
                .take()
                .filter(|(base, _)| manifest.sweep_before(id.k) == Some(*base));
            match self.numbers_of(&manifest, id) {
                Ok((base, numbers)) => {
                    let fell = known.filter(|(_, known)| {
                        let mut pairs = known.iter().zip(&numbers);
                        pairs.any(|(before, after)| before > after)
                    });
                    if fell.is_some() {
                        let path = ObjectId::Increment(id).path();
                        let expected = "numbers of ordered frames above those of the cut before";
                        let error = object_damage(&path, 0, expected, "lower ones");
                        verified.faults.push(Fault { path, error });
                    }
                    before = Some((base, numbers));
                }
                Err(_) if self.is_gone(ObjectId::Increment(id)) => {}
                Err(error) => verified.faults.push(Fault {
                    path: ObjectId::Increment(id).path(),
                    error,
                }),
            }
        }
    }

    fn is_gone(&self, id: ObjectId) -> bool {
        let newest = self.refresh();
        newest.is_ok_and(|manifest| manifest.object(id).is_none())
    }

    /// Finds all pages of an increment. Returns its base, and each partition's number.
    fn numbers_of(&self, manifest: &Manifest, id: BackupId) -> Result<(BackupId, Vec<u64>)> {
        let Some(base) = manifest.sweep_before(id.k) else {
            let path = ObjectId::Increment(id).path();
            return Err(object_damage(&path, 0, "a backup before it", "none"));
        };
        let backup = self.open_backup(base)?;
        let keyed = Keyed::open(|id| self.open_increment(id), manifest, backup.header(), id)?;
        let mut numbers = Vec::new();
        for partition in (0..backup.header().chunks.partitions).map(PartitionId) {
            let section = keyed.section(&backup, partition)?;
            numbers.push(section.pseq.unwrap_or(0));
        }
        Ok((base, numbers))
    }

    /// Checks that the undamaged runs continue each other's numbers of ordered frames.
    fn verify_numbers(&self, verified: &mut Verified) {
        let mut chain = NumberChain::default();
        for id in verified.manifest.runs() {
            // A damaged run is a fault already, and a merge may have replaced a run in the meantime.
            match self.open_run(id) {
                Ok(run) => {
                    if let Err(error) = chain.follow(&run) {
                        let path = ObjectId::Run(id).path();
                        verified.faults.push(Fault { path, error });
                    }
                }
                Err(_) => chain = NumberChain::default(),
            }
        }
    }

    /// Reads and checks one object.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; errors of the disk.
    pub fn verify_object(&self, object: &Object, region: &RegionDigest) -> Result<()> {
        check_size(self, object)?;
        if let ObjectId::Run(id) = object.id {
            self.open_run(id)?.verify(region)?;
        }
        let path = self.path(&object.id.path());
        let crc = file_crc(self.disk.as_ref(), &path, object.bytes)?;
        if crc != object.crc {
            let expected = format!("a file with checksum {:08x}", object.crc);
            return Err(object_damage(&path, 0, expected, format!("{crc:08x}")));
        }
        Ok(())
    }
}

/// Checks a file's length against the manifest.
pub(super) fn check_size(store: &Store, object: &Object) -> Result<()> {
    let path = store.path(&object.id.path());
    let len = store.disk.open(&path, Access::Buffered)?.len()?;
    if len != object.bytes {
        let expected = format!("{} bytes, as the manifest says", object.bytes);
        let found = format!("{len} bytes");
        return Err(object_damage(&path, len.min(object.bytes), expected, found));
    }
    Ok(())
}

/// Returns the checksum of a file of length `bytes`.
pub(super) fn file_crc(disk: &dyn Disk, path: &str, bytes: u64) -> Result<u32> {
    if !bytes.is_multiple_of(to_u64(SECTOR_BYTES)) {
        let found = format!("{bytes} bytes");
        return Err(object_damage(path, bytes, "a file of whole sectors", found));
    }
    let file = disk.open(path, Access::Direct)?;
    let mut buf = AlignedBuf::zeroed(READ_BYTES);
    let (mut crc, mut at) = (crc32c(&[]), 0);
    while at < bytes {
        let len = to_usize((bytes - at).min(to_u64(READ_BYTES)));
        read_exact_at(file.as_ref(), at, &mut buf[..len])?;
        crc = crc32c_append(crc, &buf[..len]);
        at += to_u64(len);
    }
    debug_assert_eq!(at, bytes, "all bytes were read");
    Ok(crc)
}
