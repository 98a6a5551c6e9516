//! A stream's log as [`salvage`](crate::salvage) reads it. Files of other streams or databases are left out. A file
//! that is shorter than its segment is padded with zeros.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use perdura_base::limits::SECTOR_BYTES;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Error, Result, StreamId};
use perdura_device::{Access, Disk, File, ReadDir, ReadFile, ReadOnly};
use perdura_wal::History;
use perdura_wal::segment::{LOG_DIR, SegmentId, check_header, is_foreign};

/// A read-only view of a stream's log.
pub struct MendedLog {
    disk: Arc<dyn Disk>,
    /// The names and the required lengths of the stream's segments.
    segments: BTreeMap<String, u64>,
}

impl MendedLog {
    /// Finds the segments of a stream, and returns its log.
    ///
    /// # Errors
    /// Errors of the disk. But a missing directory counts as an empty log.
    pub fn open(disk: &Arc<dyn Disk>, anchor: &History, stream: StreamId) -> Result<Arc<dyn Disk>> {
        let names = match disk.list(LOG_DIR) {
            Ok(names) => names,
            Err(error) if error.is_not_found() || error.is_of_another_kind() => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut segments = BTreeMap::new();
        let lives = anchor.lives();
        let ids = names.iter().filter_map(|name| SegmentId::parse(name));
        for id in ids.filter(|id| id.stream == stream) {
            let Some(life) = lives.start_of(id.incarnation, stream) else {
                continue;
            };
            let span = (life <= id.start).then(|| anchor.segments.span_at(life, id.start));
            let Some(span) = span.filter(|span| span.start == id.start) else {
                continue;
            };
            let mut header = vec![0; SECTOR_BYTES];
            let file = match disk.open(&id.path(), Access::Buffered) {
                Err(error) if error.is_of_another_kind() => continue,
                opened => opened?,
            };
            let got = file.read_at(0, &mut header).unwrap_or(0);
            let foreign = check_header(id, &anchor.uuid, &header[..got])
                .is_err_and(|fault| is_foreign(&fault));
            if !foreign {
                debug_assert!(span.bytes >= to_u64(SECTOR_BYTES), "a segment has a header");
                segments.insert(id.path(), span.bytes);
            }
        }
        Ok(Arc::new(ReadOnly(MendedLog {
            disk: Arc::clone(disk),
            segments,
        })))
    }

    /// Returns a log without segments.
    #[must_use]
    pub fn empty(disk: &Arc<dyn Disk>) -> Arc<dyn Disk> {
        Arc::new(ReadOnly(MendedLog {
            disk: Arc::clone(disk),
            segments: BTreeMap::new(),
        }))
    }
}

impl ReadDir for MendedLog {
    type File = Padded;

    fn open(&self, path: &str, access: Access) -> Result<Padded> {
        let missing = || Error::io("open", path, io::ErrorKind::NotFound.into());
        let len = *self.segments.get(path).ok_or_else(missing)?;
        let file = self.disk.open(path, access)?;
        Ok(Padded { file, len })
    }

    fn list(&self, dir: &str) -> Result<Vec<String>> {
        let within = format!("{dir}/");
        let names = self.segments.keys();
        let names = names.filter_map(|path| path.strip_prefix(&within));
        Ok(names.map(str::to_owned).collect())
    }

    fn lock(&self, path: &str) -> Result<Box<dyn Any + Send + Sync>> {
        self.disk.lock(path)
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

/// A read-only view of a segment's file, padded with zeros to the length that the segment must have.
pub struct Padded {
    file: Arc<dyn File>,
    len: u64,
}

impl ReadFile for Padded {
    fn len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let rest = self.len.saturating_sub(offset).min(to_u64(buf.len()));
        let buf = &mut buf[..to_usize(rest)];
        buf.fill(0);
        debug_assert!(
            offset <= self.len || buf.is_empty(),
            "nothing lies beyond the segment's end"
        );
        // Unreadable bytes become zeros. A block that contains them then fails its check.
        match self.file.read_at(offset, buf) {
            Ok(_) => {}
            Err(error) if error.is_unreadable() => buf.fill(0),
            Err(error) => return Err(error),
        }
        Ok(buf.len())
    }

    fn path(&self) -> &str {
        self.file.path()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}
