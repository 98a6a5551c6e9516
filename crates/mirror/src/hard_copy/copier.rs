//! The state machine that copies a node's rings to files. Its caller takes the steps.
//!
//! # Invariants
//! * A file has no gap: a piece begins at the position where the one before it ends.
//! * A file is removed only in two cases: the ring has forgotten all bytes in the file, or the ring's generation is
//!   retired.
//! * After an error nothing more is written or removed, because the files may be the only copy that is left.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::num::to_u64;
use perdura_base::{Error, Pos, Result};
use perdura_device::{Access, Disk, File, FileId, Locks};

use super::codec::{HEAD_BYTES, Head, Piece};
use super::found::list;
use super::{FILE_BYTES, Found, LOCK, PIECE_BYTES_MAX};
use crate::ids::RingName;
use crate::node::{Holdings, Node};
use crate::ring::RingRefusal;

/// The figures of a hard copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HardCopyStats {
    /// The number of files, including the files from earlier starts of the node.
    pub files: u64,
    /// The number of bytes copied and synced since the node started.
    pub copied_bytes: u64,
    /// The number of rings with damaged memory. These rings are copied up to the damaged position.
    pub damaged_rings: u64,
}

/// A file that gets no more pieces.
struct Full {
    name: String,
    ring: RingName,
    end: Pos,
}

/// A file that still gets pieces.
struct Filling {
    file: Arc<dyn File>,
    name: String,
    /// The checksum of the file's head.
    crc: u32,
    /// The length of the file, bytes.
    len: u64,
    /// The position after the last byte in the file.
    end: Pos,
    synced: bool,
}

/// The progress of copying one ring.
#[derive(Default)]
struct Copying {
    /// The position after the last byte that was copied.
    end: Pos,
    /// The file that gets the ring's pieces. `None`: the next piece begins a new file.
    filling: Option<Filling>,
    /// True if the ring's memory is damaged at the position that is to be copied next.
    damaged: bool,
}

/// A state machine that copies a node's rings to files in the root of a disk.
pub struct HardCopier {
    disk: Arc<dyn Disk>,
    full: Vec<Full>,
    rings: HashMap<RingName, Copying>,
    stats: HardCopyStats,
    /// True if the names of some new files are not durable yet.
    new_names: bool,
    bytes: Vec<u8>,
    piece: Vec<u8>,
    /// The identity of the locked directory. `None`: the disk has no file identities.
    root: Option<FileId>,
    _locks: Locks,
}

impl HardCopier {
    /// Locks the directory, and lists the files that earlier starts of the node have left there.
    ///
    /// # Errors
    /// Errors of the disk, or an error of the lock if another node has locked the directory.
    pub fn new(disk: Arc<dyn Disk>) -> Result<(HardCopier, Vec<Found>)> {
        // The lock file could be removed. So the directory itself is locked as well.
        let mut locks: Locks = vec![disk.lock(LOCK)?];
        locks.extend(disk.lock_present("")?);
        let root = disk.identity("")?;
        let found = list(disk.as_ref())?;
        let full = found.iter().filter_map(|found| {
            let ring = found.ring.as_ref().ok()?;
            Some(Full {
                name: found.name.clone(),
                ring: RingName {
                    uuid: ring.uuid,
                    generation: ring.generation,
                    stream: ring.stream,
                },
                end: ring.end,
            })
        });
        let copier = HardCopier {
            full: full.collect(),
            rings: HashMap::new(),
            stats: HardCopyStats::default(),
            new_names: false,
            bytes: Vec::new(),
            piece: Vec::new(),
            disk,
            root,
            _locks: locks,
        };
        Ok((copier, found))
    }

    /// Returns the figures of the hard copy.
    #[must_use]
    pub fn stats(&self) -> HardCopyStats {
        let filling = self.rings.values().filter(|ring| ring.filling.is_some());
        HardCopyStats {
            files: to_u64(self.full.len() + filling.count()),
            ..self.stats.clone()
        }
    }

    /// Copies all bytes in the rings, syncs the files, and removes unneeded files. Returns the number of bytes that
    /// were copied. The node is locked for one piece at a time.
    ///
    /// # Errors
    /// Errors of the disk; [`Error::Displaced`] if the directory's path no longer leads to that directory. After an
    /// error the caller must not call `step` again.
    pub fn step(&mut self, node: &Mutex<Node>) -> Result<u64> {
        self.check_root()?;
        let (holdings, inc) = {
            let node = node.lock();
            (node.holdings(), node.inc())
        };
        let mut copied = 0;
        for (uuid, ring) in &holdings.rings {
            let head = Head {
                uuid: *uuid,
                generation: ring.generation,
                stream: ring.stream,
                inc,
                start: Pos(0),
            };
            copied += self.copy(node, head, ring.end)?;
        }
        self.sync()?;
        self.stats.copied_bytes += copied;
        self.remove(&holdings)?;
        Ok(copied)
    }

    /// Fails if the directory's path leads to a different directory or to nothing.
    fn check_root(&self) -> Result<()> {
        let what = match self.disk.identity("") {
            Ok(found) if found != self.root => "another directory has its name",
            Err(error) if error.is_not_found() || error.is_of_another_kind() => "it is gone",
            Ok(_) | Err(_) => return Ok(()),
        };
        Err(Error::Displaced(format!("{}: {what}", self.disk.name())))
    }

    /// Copies the bytes of a ring up to position `to`. Returns how many bytes it has copied.
    fn copy(&mut self, node: &Mutex<Node>, head: Head, to: Pos) -> Result<u64> {
        let mut copied = 0;
        loop {
            let ring = self.rings.entry(head.ring()).or_default();
            if ring.end >= to {
                return Ok(copied);
            }
            let from = ring.end;
            self.bytes.clear();
            let read = node
                .lock()
                .copy_of(head.ring(), from, PIECE_BYTES_MAX, &mut self.bytes);
            let (from, low) = match read {
                Some(Ok(read)) => read,
                Some(Err(RingRefusal::Damaged(_))) => {
                    self.stats.damaged_rings += u64::from(!ring.damaged);
                    ring.damaged = true;
                    return Ok(copied);
                }
                // The ring was retired after it was listed.
                _ => return Ok(copied),
            };
            if self.bytes.is_empty() {
                return Ok(copied);
            }
            // A damaged ring may have been replaced by a new one.
            ring.damaged = false;
            assert!(from >= ring.end, "a ring is copied forward");
            copied += to_u64(self.bytes.len());
            self.write(
                Head {
                    start: from,
                    ..head
                },
                low,
            )?;
        }
    }

    /// Writes `self.bytes`, which begin at position `head.start` of the ring.
    fn write(&mut self, head: Head, low: Pos) -> Result<()> {
        let from = head.start;
        let ring = self.rings.entry(head.ring()).or_default();
        let full = |file: &Filling| file.end != from || file.len >= FILE_BYTES;
        if ring.filling.as_ref().is_some_and(full) {
            let file = ring.filling.take().expect("it was asked");
            // Nothing syncs the file after this point.
            if !file.synced {
                file.file.sync()?;
            }
            self.full.push(Full {
                name: file.name,
                ring: head.ring(),
                end: file.end,
            });
        }
        if ring.filling.is_none() {
            let name = head.name();
            let file = self.disk.create(&name, Access::Buffered)?;
            let (bytes, crc) = head.encode();
            file.write_at(0, &bytes)?;
            self.new_names = true;
            ring.filling = Some(Filling {
                file,
                name,
                crc,
                len: to_u64(HEAD_BYTES),
                end: from,
                synced: false,
            });
        }
        let file = ring.filling.as_mut().expect("there is one now");
        assert!(file.end == from, "a file has no gap");
        let piece = Piece {
            pos: from,
            low,
            bytes: &self.bytes,
        };
        self.piece.clear();
        piece.encode(file.crc, &mut self.piece);
        file.file.write_at(file.len, &self.piece)?;
        file.len += to_u64(self.piece.len());
        file.end = piece.end();
        file.synced = false;
        ring.end = piece.end();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let files = self
            .rings
            .values_mut()
            .filter_map(|ring| ring.filling.as_mut());
        for file in files.filter(|file| !file.synced) {
            file.file.sync()?;
            file.synced = true;
        }
        if self.new_names {
            self.disk.sync_dir("")?;
            self.new_names = false;
        }
        Ok(())
    }

    /// Removes the files that are no longer needed.
    fn remove(&mut self, holdings: &Holdings) -> Result<()> {
        let retired = |ring: &RingName| {
            let mut of = holdings
                .retired
                .iter()
                .filter(|(uuid, _)| *uuid == ring.uuid);
            of.any(|(_, generation)| ring.generation < *generation)
        };
        let gone: Vec<RingName> = self
            .rings
            .keys()
            .filter(|ring| retired(ring))
            .copied()
            .collect();
        for name in gone {
            let ring = self.rings.remove(&name);
            if let Some(file) = ring.and_then(|ring| ring.filling) {
                self.disk.remove(&file.name)?;
            }
        }
        let forgotten = |file: &Full| {
            let mut rings = holdings.rings.iter();
            rings.any(|(uuid, ring)| {
                let name = RingName {
                    uuid: *uuid,
                    generation: ring.generation,
                    stream: ring.stream,
                };
                name == file.ring && file.end <= ring.low
            })
        };
        let mut at = 0;
        while at < self.full.len() {
            if retired(&self.full[at].ring) || forgotten(&self.full[at]) {
                self.disk.remove(&self.full[at].name)?;
                self.full.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}
