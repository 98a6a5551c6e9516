//! Pages that a restart has made anew from images in the log, because the file has no whole copy of them.
//!
//! Such a page was never written, or it was written and is damaged. In the first case each operation behind the image
//! is redone. In the second case the log shows that the page was written, so the tables of dirty pages leave out the
//! operations that it had then. The image lacks these operations, and they would be lost silently. So the damage is an
//! error in that case.
//!
//! The log alone decides, and not the table of a method. An interrupted restart may have written the page, which is
//! then whole and lacks operations, and the next restart may use another table.

use crate::monitor::PidMap;
use perdura_base::{Error, Gsn, Pid, Result};
use perdura_formats::tree_record::TreeRecord;

/// The pages, and the damage for which each was made anew.
#[derive(Debug, Default)]
pub struct Rebuilt {
    pages: PidMap<(Gsn, Error)>,
}

impl Rebuilt {
    /// Notes that a page was made from the image of this record.
    pub(crate) fn insert(&mut self, pid: Pid, gsn: Gsn, damage: Error) {
        self.pages.insert(pid, (gsn, damage));
    }

    /// Looks at a record behind those whose images were used.
    ///
    /// # Errors
    /// The damage of a page, if the record shows that the page had been written.
    pub fn judge(&mut self, gsn: Gsn, record: &TreeRecord) -> Result<()> {
        let tells = |pid: Pid, image: Gsn| match record {
            TreeRecord::Delta(delta) => delta.written.contains(&pid),
            TreeRecord::Writes(writes) => writes.written.contains(&pid),
            // A page that was not written since its image is dirty there.
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

    /// Returns whether a record behind the image of page 7, which is number 100, shows that the page was written.
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
        // At a checkpoint's end a page that was never written is dirty since its image or before.
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
