//! The names of the segments that are written: each must lead to the file that is open.

use std::sync::Arc;

use perdura_base::{Error, Result, StreamId};

use crate::flusher::Segment;
use crate::log::{Stream, Wal};
use crate::placing::Placement;

impl Wal {
    /// Fails if the name of a segment that is written, or is next, leads to another file or to none.
    ///
    /// # Errors
    /// [`Error::Displaced`].
    pub fn check_segments(&self) -> Result<()> {
        for stream in (0..self.streams()).map(StreamId) {
            let s = &self.streams[usize::from(stream.0)];
            for segment in written(s) {
                let what = self.misses(stream, s, &segment);
                // A segment that is no longer written may have been retired meanwhile.
                let is_current = |now: &Segment| Arc::ptr_eq(&now.file, &segment.file);
                if let Some(what) = what
                    && written(s).iter().any(is_current)
                {
                    return Err(Error::Displaced(what));
                }
            }
        }
        Ok(())
    }

    /// Says what is wrong with the name of a segment.
    fn misses(&self, stream: StreamId, s: &Stream, segment: &Segment) -> Option<String> {
        let placement = Placement {
            uuid: self.uuid,
            stream,
            incarnation: self.incarnation,
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

/// The segment that is written and the one that is placed behind it.
fn written(s: &Stream) -> Vec<Segment> {
    let state = s.flush.lock();
    let both = state.segment.iter().chain(&state.placed);
    both.cloned().collect()
}
