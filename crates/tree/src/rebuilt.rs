//! Pages that a restart has rebuilt from page images in the log. The file has no whole copy of these pages.
//!
//! A rebuilt page was never written, or it was written and is damaged. If the page was never written, redo applies
//! every operation after the image. If it was written, the log shows the write. The dirty page tables then omit the
//! operations that the written page had. The image lacks these operations, so they would be lost silently. In this case
//! the damage is therefore an error.
//!
//! The log alone decides between the two cases, and not the dirty page table of a restart method. The reason: an
//! interrupted restart may write the rebuilt page. The page is then whole but lacks operations, and the next restart
//! may use the table of another method.

use crate::monitor::PidMap;
use perdura_base::{Error, Gsn, Pid, Result};
use perdura_formats::tree_record::TreeRecord;

/// The rebuilt pages. Each has the number of the record that contained its image, and the damage found in the file.
#[derive(Debug, Default)]
pub struct Rebuilt {
    pages: PidMap<(Gsn, Error)>,
}

impl Rebuilt {
    /// Notes that a page was rebuilt from the image in record `gsn`.
    pub(crate) fn insert(&mut self, pid: Pid, gsn: Gsn, damage: Error) {
        self.pages.insert(pid, (gsn, damage));
    }

    /// Checks whether a record shows that a rebuilt page had been written. The record must come after the records from
    /// which the pages were rebuilt.
    ///
    /// # Errors
    /// The damage of a rebuilt page, if the record shows that this page had been written.
    pub fn judge(&mut self, gsn: Gsn, record: &TreeRecord) -> Result<()> {
        let tells = |pid: Pid, image: Gsn| match record {
            TreeRecord::Delta(delta) => delta.written.contains(&pid),
            TreeRecord::Writes(writes) => writes.written.contains(&pid),
            // A page that was not written after its image was logged must be in this list. Its rLSN must not be above
            // the image's number.
            TreeRecord::EndCheckpoint(end) => {
                let at = end.dirty.binary_search_by_key(&pid, |(pid, _)| *pid);
                at.map_or(true, |at| end.dirty[at].1 > image)
            }
            TreeRecord::Structure(_) | TreeRecord::RedoStart => false,
        };
        let mut pages = self.pages.iter();
        let written = pages.find(|(pid, (image, _))| {
            assert!(*image < gsn, "records come in the order of their numbers");
            tells(**pid, *image)
        });
        let written = written.map(|(pid, _)| *pid);
        match written.and_then(|pid| self.pages.remove(&pid)) {
            Some((_, damage)) => Err(damage),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perdura_formats::tree_record::{Delta, EndCheckpoint, Writes};

    /// Returns whether a record shows that page 7 was written after its image. The image has number 100.
    fn tells(record: &TreeRecord) -> bool {
        let mut rebuilt = Rebuilt::default();
        let damage = Error::corrupt("tree/pages", 0, "a page", "another", "");
        rebuilt.insert(Pid(7), Gsn(100), damage);
        rebuilt.judge(Gsn(200), record).is_err()
    }

    #[test]
    fn each_kind_of_record_that_knows_of_writes_is_asked() {
        let written = |pid| vec![Pid(3), Pid(pid)];
        for (pid, is_told) in [(7, true), (8, false)] {
            assert_eq!(
                tells(&TreeRecord::Delta(Delta {
                    written: written(pid),
                    dirty: vec![Pid(7)],
                    ..Delta::default()
                })),
                is_told
            );
            assert_eq!(
                tells(&TreeRecord::Writes(Writes {
                    written: written(pid),
                    ..Writes::default()
                })),
                is_told
            );
        }
        // A page that was never written is dirty at the end of a checkpoint, at least since its image was logged.
        for (dirty, is_told) in [
            (vec![(Pid(3), Gsn(90)), (Pid(7), Gsn(100))], false),
            (vec![(Pid(7), Gsn(90)), (Pid(9), Gsn(150))], false),
            (vec![(Pid(7), Gsn(101))], true),
            (vec![(Pid(3), Gsn(90)), (Pid(9), Gsn(90))], true),
        ] {
            let end = EndCheckpoint {
                rssp: Gsn(80),
                dirty,
            };
            assert_eq!(tells(&TreeRecord::EndCheckpoint(end)), is_told);
        }
        assert!(!tells(&TreeRecord::RedoStart));
    }
}
