//! Checks the names of segments. The name of an open segment must lead to the open file. The name of any other segment
//! must lead to some file.

use std::sync::Arc;

use perdura_base::{Error, Result, StreamId};

use crate::flusher::Segment;
use crate::log::{Stream, Wal};
use crate::placing::Placement;

impl Wal {
    /// Fails if the name of the current or the next segment leads to a wrong file. Also fails if a segment that a
    /// restart may need is gone.
    ///
    /// # Errors
    /// [`Error::Displaced`], which names the segment.
    pub fn check_segments(&self) -> Result<()> {
        for stream in (0..self.streams()).map(StreamId) {
            let s = &self.streams[usize::from(stream.0)];
            for segment in written(s) {
                let what = self.misses(stream, s, &segment);
                // The segment may have been retired since the list was made. Then its name need not be there.
                let is_current = |now: &Segment| Arc::ptr_eq(&now.file, &segment.file);
                if let Some(what) = what
                    && written(s).iter().any(is_current)
                {
                    return Err(Error::Displaced(what));
                }
            }
            check_live(s)?;
        }
        Ok(())
    }

    /// Describes what is wrong with a segment's name; `None` if it is correct.
    fn misses(&self, stream: StreamId, s: &Stream, segment: &Segment) -> Option<String> {
        let placement = Placement {
            uuid: self.uuid,
            stream,
            incarnation: self.incarnation,
            lives: &self.lives,
        };
        let path = placement.id(segment.span).path();
        let disk = Arc::clone(&s.shelf.lock().disk);
        let what = match (disk.identity(&path), segment.file.identity()) {
            (Ok(Some(named)), Ok(Some(open))) if named != open => "another file has its name",
            (Err(error), _) if error.is_not_found() || error.is_of_another_kind() => "it is gone",
            _ => return None,
        };
        Some(format!("{}/{path}: {what}", disk.name()))
    }
}

/// Fails if a segment that a restart may need has no file.
fn check_live(s: &Stream) -> Result<()> {
    let (disk, live) = {
        let shelf = s.shelf.lock();
        (Arc::clone(&shelf.disk), shelf.live().collect::<Vec<_>>())
    };
    for id in live {
        let path = id.path();
        let is_gone = || {
            disk.identity(&path)
                .is_err_and(|error| error.is_not_found())
        };
        // A segment may be gone because it was retired in the meantime. So look again with the shelf locked.
        if is_gone() {
            let shelf = s.shelf.lock();
            if shelf.is_placed(id) && is_gone() {
                return Err(Error::Displaced(format!(
                    "{}/{path}: it is gone",
                    disk.name()
                )));
            }
        }
    }
    Ok(())
}

/// Returns the segment that is being written, and the next one if it is placed.
fn written(s: &Stream) -> Vec<Segment> {
    let state = s.flush.lock();
    let both = state.segment.iter().chain(&state.placed);
    both.cloned().collect()
}
