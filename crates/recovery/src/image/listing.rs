//! The directory file of an image: its writer, its reader, and the removal of old files.

use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, SECTOR_BYTES};
use perdura_base::num::{round_up, to_u64, to_usize};
use perdura_base::{CkptEpoch, Error, ImageSlot, PartitionId, Result, Uuid};
use perdura_device::{Access, Disk, File, read_exact_at};
use perdura_heap::Geometry;

use super::{Directory, directory_number, directory_path, folder};
use crate::anchor::Anchor;

/// Writes one directory file, section by section.
pub struct DirectoryWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn File>,
    slot: ImageSlot,
    k: CkptEpoch,
    head: Vec<u8>,
    head_room: u64,
    at: u64,
    partitions: u16,
    sections: u16,
}

/// Bytes of the fixed fields at the start of a directory's head. The table of sections follows them.
const HEAD_FIELDS_BYTES: usize = 40;
/// The offsets of the bytes of the head that a reader ignores: see docs/formats/image.md.
const IGNORED: [usize; 5] = [7, FLAGS_AT, 37, 38, 39];
/// The offset of the flags in the head. `CONSISTENT` marks an image in which all pages show the state at one instant.
const FLAGS_AT: usize = 36;
const CONSISTENT: u8 = 1;

/// Returns the size of a directory's head without its padding, bytes.
fn head_bytes(partitions: u16) -> usize {
    HEAD_FIELDS_BYTES + 20 * usize::from(partitions) + 4
}

fn put_head_fields(
    head: &mut Vec<u8>,
    slot: ImageSlot,
    k: CkptEpoch,
    uuid: &Uuid,
    geometry: &Geometry,
) {
    head.put(b"PDIR");
    head.put_u16(FORMAT_VERSION);
    head.put_u8(if slot == ImageSlot::A { 0 } else { 1 });
    head.put_u8(0);
    head.put(&uuid.0);
    head.put_u64(k.0);
    head.put_u16(geometry.partitions);
    head.put_u16(geometry.chunk_pages);
    head.put_u32(0);
}

fn head_room(partitions: u16) -> u64 {
    round_up(to_u64(head_bytes(partitions)), to_u64(SECTOR_BYTES))
}

impl DirectoryWriter {
    /// Starts the directory of checkpoint `k`.
    pub fn create(
        disk: &Arc<dyn Disk>,
        slot: ImageSlot,
        k: CkptEpoch,
        uuid: &Uuid,
        geometry: &Geometry,
    ) -> Result<DirectoryWriter> {
        let tmp = format!("{}.tmp", directory_path(slot, k));
        match disk.remove(&tmp) {
            Err(error) if !error.is_not_found() => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = disk.create(&tmp, Access::Buffered)?;
        let mut head = Vec::with_capacity(head_bytes(geometry.partitions));
        put_head_fields(&mut head, slot, k, uuid, geometry);
        let head_room = head_room(geometry.partitions);
        Ok(DirectoryWriter {
            disk: Arc::clone(disk),
            file,
            slot,
            k,
            head,
            head_room,
            at: head_room,
            partitions: geometry.partitions,
            sections: 0,
        })
    }

    /// Marks the image as consistent: each section then begins with its partition's sequence number. Must be called
    /// before the first section is added.
    pub fn mark_consistent(&mut self) {
        assert_eq!(self.sections, 0, "all sections have one form");
        self.head[FLAGS_AT] |= CONSISTENT;
    }

    /// Appends the next partition's section.
    pub fn add_section(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(
            self.sections < self.partitions,
            "a partition has one section"
        );
        self.file.write_at(self.at, bytes)?;
        self.head.put_u64(self.at);
        self.head.put_u64(to_u64(bytes.len()));
        self.head.put_u32(crc32c(bytes));
        self.at += to_u64(bytes.len());
        self.sections += 1;
        Ok(())
    }

    /// Completes the file and renames it to its final name. The file and its name are durable on return. Returns the
    /// head's CRC, which the anchor stores.
    pub fn finish(mut self) -> Result<u32> {
        assert_eq!(
            self.sections, self.partitions,
            "every partition has a section"
        );
        let crc = crc32c(&self.head);
        self.head.put_u32(crc);
        assert_eq!(
            self.head.len(),
            head_bytes(self.partitions),
            "the head has the length by which it is read"
        );
        self.head.resize(to_usize(self.head_room), 0);
        self.file.write_at(0, &self.head)?;
        self.file.sync()?;
        let path = directory_path(self.slot, self.k);
        self.disk.rename(&format!("{path}.tmp"), &path)?;
        self.disk.sync_dir(folder(self.slot))?;
        Ok(crc)
    }
}

/// Removes all directory files of a slot, also unfinished files, except the file of checkpoint `k`.
pub fn remove_old_directories(disk: &dyn Disk, slot: ImageSlot, k: CkptEpoch) -> Result<()> {
    let keep = directory_path(slot, k);
    for name in disk.list(folder(slot))? {
        let path = format!("{}/{name}", folder(slot));
        let ours = name
            .strip_suffix(".tmp")
            .map_or_else(|| directory_number(&name), directory_number)
            .is_some();
        if ours && path != keep {
            disk.remove(&path)?;
        }
    }
    Ok(())
}

/// A directory that was loaded from its file, and the sidecar of each partition.
pub struct LoadedDirectory {
    /// The entries.
    pub directory: Directory,
    /// The sequence number of each partition, if the image is consistent.
    pub pseq: Option<Vec<u64>>,
    /// The bytes of each partition's sidecar.
    pub sidecars: Vec<Vec<u8>>,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads and checks the directory of the checkpoint that the anchor names for a slot.
///
/// # Errors
/// [`Error::Corrupt`], which names the fault. The caller then uses the other image.
pub fn read_directory(
    disk: &dyn Disk,
    anchor: &Anchor,
    slot: ImageSlot,
    geometry: &Geometry,
) -> Result<LoadedDirectory> {
    let k = anchor.image(slot).k;
    let path = directory_path(slot, k);
    let listing = Listing {
        file: disk.open(&path, Access::Buffered)?,
        path,
        k,
        geometry,
    };
    let head = listing.read_head(anchor, slot)?;
    let mut out = LoadedDirectory {
        directory: Directory::empty(geometry.partitions),
        pseq: anchor.image(slot).consistent.then(Vec::new),
        sidecars: Vec::new(),
        bytes: head_room(geometry.partitions),
    };
    let mut table = Reader::new(&head[HEAD_FIELDS_BYTES..]);
    for partition in (0..geometry.partitions).map(PartitionId) {
        listing.read_section(&mut table, partition, &mut out)?;
    }
    assert_eq!(
        out.sidecars.len(),
        usize::from(geometry.partitions),
        "a sidecar for each partition"
    );
    Ok(out)
}

/// An open directory file, with the checkpoint and geometry that it must have.
struct Listing<'a> {
    file: Arc<dyn File>,
    path: String,
    k: CkptEpoch,
    geometry: &'a Geometry,
}

impl Listing<'_> {
    fn bad(&self, offset: u64, expected: &str, found: &str) -> Error {
        Error::corrupt(
            self.path.clone(),
            offset,
            expected,
            found,
            "This image cannot be used. The other image is used if it is complete.",
        )
    }

    /// Reads and checks the head. Returns it without its checksum and padding.
    fn read_head(&self, anchor: &Anchor, slot: ImageSlot) -> Result<Vec<u8>> {
        let geometry = self.geometry;
        let mut head = vec![0; to_usize(head_room(geometry.partitions))];
        read_exact_at(self.file.as_ref(), 0, &mut head)?;
        head.truncate(head_bytes(geometry.partitions));
        let crc = head.split_off(head.len() - 4);
        let computed = crc32c(&head);
        if crc != computed.to_le_bytes() || computed != anchor.image(slot).directory_crc {
            return Err(self.bad(
                0,
                "the directory head that the anchor names",
                "another checksum",
            ));
        }
        let mut expected = Vec::with_capacity(HEAD_FIELDS_BYTES);
        put_head_fields(&mut expected, slot, self.k, &anchor.uuid, geometry);
        let differs = |at: usize| head[at] != expected[at] && !IGNORED.contains(&at);
        if (0..HEAD_FIELDS_BYTES).any(differs) {
            return Err(self.bad(
                0,
                "this database's directory of this checkpoint",
                "the fields of another",
            ));
        }
        let consistent = head[FLAGS_AT] & CONSISTENT != 0;
        if consistent != anchor.image(slot).consistent {
            return Err(self.bad(
                to_u64(FLAGS_AT),
                "the kind of image that the anchor names",
                "the other kind",
            ));
        }
        Ok(head)
    }

    /// Reads the section of `partition` into `out`. `table` reads the list of sections in the head. Its position is the
    /// entry of this section.
    fn read_section(
        &self,
        table: &mut Reader<'_>,
        partition: PartitionId,
        out: &mut LoadedDirectory,
    ) -> Result<()> {
        let place = (|| Some((table.u64()?, table.u64()?, table.u32()?)))();
        let Some((offset, len, crc)) = place else {
            return Err(self.bad(0, "a section for every partition", "fewer"));
        };
        if len > self.file.len()? {
            return Err(self.bad(offset, "a section within the file", "a longer one"));
        }
        let mut section = vec![0; to_usize(len)];
        read_exact_at(self.file.as_ref(), offset, &mut section)?;
        if crc32c(&section) != crc {
            return Err(self.bad(offset, "the section the head names", "another checksum"));
        }
        let mut r = Reader::new(&section);
        let mut whole = true;
        if let Some(pseq) = &mut out.pseq {
            let number = r.u64();
            whole = number.is_some();
            pseq.extend(number);
        }
        let LoadedDirectory { directory, .. } = out;
        let sidecar = directory
            .decode_section(partition, r, self.k, self.geometry)
            .filter(|_| whole);
        let Some(sidecar) = sidecar else {
            return Err(self.bad(
                offset,
                "a well-formed section",
                "fields out of their ranges",
            ));
        };
        out.sidecars.push(sidecar.to_vec());
        out.bytes += len;
        Ok(())
    }
}
