//! The directory file of an image: written section by section, read back, removed.

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

/// Bytes of a directory's head before it is padded.
fn head_bytes(partitions: u16) -> usize {
    40 + 20 * usize::from(partitions) + 4
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
        head.put(b"PDIR");
        head.put_u16(FORMAT_VERSION);
        head.put_u8(if slot == ImageSlot::A { 0 } else { 1 });
        head.put_u8(0);
        head.put(&uuid.0);
        head.put_u64(k.0);
        head.put_u16(geometry.partitions);
        head.put_u16(geometry.chunk_pages);
        head.put_u32(0);
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

    /// Appends the next partition's section.
    pub fn add_section(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(self.at, bytes)?;
        self.head.put_u64(self.at);
        self.head.put_u64(to_u64(bytes.len()));
        self.head.put_u32(crc32c(bytes));
        self.at += to_u64(bytes.len());
        self.sections += 1;
        Ok(())
    }

    /// Completes the file and gives it its name; durable on return. Returns its CRC for the
    /// anchor.
    pub fn finish(mut self) -> Result<u32> {
        assert_eq!(
            self.sections, self.partitions,
            "every partition has a section"
        );
        let crc = crc32c(&self.head);
        self.head.put_u32(crc);
        self.head.resize(to_usize(self.head_room), 0);
        self.file.write_at(0, &self.head)?;
        self.file.sync()?;
        let path = directory_path(self.slot, self.k);
        self.disk.rename(&format!("{path}.tmp"), &path)?;
        self.disk.sync_dir(folder(self.slot))?;
        Ok(crc)
    }
}

/// Removes directory files of a slot other than checkpoint `k`'s, and leftovers.
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

/// A directory read back, with where each partition's sidecar is.
pub struct LoadedDirectory {
    /// The entries.
    pub directory: Directory,
    /// Sidecar bytes by partition.
    pub sidecars: Vec<Vec<u8>>,
    /// Bytes read.
    pub bytes: u64,
}

/// Reads and checks the directory of the checkpoint that the anchor names for a slot.
///
/// # Errors
/// [`Error::Corrupt`] naming what does not hold; the caller falls back to the other image.
pub fn read_directory(
    disk: &dyn Disk,
    anchor: &Anchor,
    slot: ImageSlot,
    geometry: &Geometry,
) -> Result<LoadedDirectory> {
    let status = anchor.image(slot);
    let (k, head_crc, uuid) = (status.k, status.directory_crc, &anchor.uuid);
    let path = directory_path(slot, k);
    let bad = |offset: u64, expected: &str, found: &str| {
        Error::corrupt(
            path.clone(),
            offset,
            expected,
            found,
            "The image cannot be used; the other one is, if it is complete.",
        )
    };
    let file = disk.open(&path, Access::Buffered)?;
    let mut head = vec![0; to_usize(head_room(geometry.partitions))];
    read_exact_at(file.as_ref(), 0, &mut head)?;
    let used = head_bytes(geometry.partitions);
    let (covered, crc) = head[..used].split_at(used - 4);
    if crc != crc32c(covered).to_le_bytes() || crc32c(covered) != head_crc {
        return Err(bad(
            0,
            "the directory head that the anchor names",
            "another checksum",
        ));
    }
    let mut r = Reader::new(covered);
    let fields = (|| {
        let magic = r.array::<4>()?;
        let version = r.u16()?;
        let of_slot = r.u8()?;
        r.u8()?;
        Some((
            magic,
            version,
            of_slot,
            Uuid(r.array()?),
            CkptEpoch(r.u64()?),
            r.u16()?,
            r.u16()?,
        ))
    })();
    let slot_byte = u8::from(slot == ImageSlot::B);
    let expected = (
        *b"PDIR",
        FORMAT_VERSION,
        slot_byte,
        *uuid,
        k,
        geometry.partitions,
        geometry.chunk_pages,
    );
    if fields != Some(expected) {
        return Err(bad(
            0,
            "this database's directory of this checkpoint",
            "another one's fields",
        ));
    }
    let mut out = LoadedDirectory {
        directory: Directory::empty(geometry.partitions),
        sidecars: Vec::new(),
        bytes: to_u64(head.len()),
    };
    let mut table = Reader::new(&covered[40..]);
    for partition in (0..geometry.partitions).map(PartitionId) {
        let place = (|| Some((table.u64()?, table.u64()?, table.u32()?)))();
        let Some((offset, len, crc)) = place else {
            return Err(bad(0, "a section for every partition", "fewer"));
        };
        if len > file.len()? {
            return Err(bad(offset, "a section within the file", "a longer one"));
        }
        let mut section = vec![0; to_usize(len)];
        read_exact_at(file.as_ref(), offset, &mut section)?;
        if crc32c(&section) != crc {
            return Err(bad(
                offset,
                "the section the head names",
                "another checksum",
            ));
        }
        let sidecar = out
            .directory
            .decode_section(partition, &section, k, geometry);
        let Some(sidecar) = sidecar else {
            return Err(bad(
                offset,
                "a well-formed section",
                "fields out of their ranges",
            ));
        };
        out.sidecars.push(sidecar.to_vec());
        out.bytes += len;
    }
    Ok(out)
}
