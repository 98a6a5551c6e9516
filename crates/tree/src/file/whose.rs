//! Checks that a file belongs to the database and is complete. A restart makes these checks before it writes a page.

use super::PageFile;
use crate::tree::META;
use perdura_base::num::to_u64;
use perdura_base::{Error, Gsn, Pid, Result};
use perdura_page::tree_double::BatchHead;
use perdura_page::tree_page::Node;

impl PageFile {
    /// Returns the number of whole pages that the file has room for.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn pages(&self) -> Result<u32> {
        let pages = self.pages.len()? / to_u64(self.page_bytes());
        Ok(u32::try_from(pages).unwrap_or(u32::MAX))
    }

    /// Returns the first 8 bytes of the database's uuid.
    pub(crate) fn database(&self) -> [u8; 8] {
        self.shape.database
    }

    /// Reads a page without checking it. Bytes beyond the file's end read as zeros.
    pub(crate) fn read_raw(&self, pid: Pid, page: &mut [u8]) -> Result<()> {
        assert_eq!(page.len(), self.page_bytes(), "one page");
        let got = self.pages.read_at(self.offset(pid), page)?;
        page[got..].fill(0);
        Ok(())
    }

    /// Fails if the file belongs to another database. Checks the meta page and the pages that a repair would write.
    /// Each whole page names its database.
    pub(super) fn check_owner(&self, head: Option<&BatchHead>) -> Result<()> {
        let mut page = self.buffer();
        let batch = head.into_iter().flat_map(|head| &head.pages);
        let pids = batch.map(|(pid, _)| *pid);
        for pid in std::iter::once(META).chain(pids) {
            self.read_raw(pid, &mut page)?;
            let node = Node::over(&page);
            let owner = node.database();
            if owner != self.database() && Node::open(&page, node.pid(), owner).is_ok() {
                return Err(Error::corrupt(
                    self.pages.path(),
                    self.offset(pid),
                    "a page of this database",
                    format!(
                        "a whole one of another database, {:016x}",
                        u64::from_be_bytes(owner)
                    ),
                    "The file belongs to another database. Nothing was changed. Put the file of \
                     this database back.",
                ));
            }
        }
        Ok(())
    }

    /// Returns the number of the meta page's last change. This change is a change of structure or a checkpoint's redo
    /// start. `None`: the meta page is not whole.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn newest_structure(&self) -> Result<Option<Gsn>> {
        let mut page = self.buffer();
        self.read_raw(META, &mut page)?;
        let meta = Node::open(&page, META, self.database());
        Ok(meta.ok().map(|node| node.dlsn()))
    }

    /// Fails if the file ends before page `next`, the first page that was never used.
    pub(crate) fn check_len(&self, next: u32) -> Result<()> {
        let pages = self.pages()?;
        if next <= pages {
            return Ok(());
        }
        Err(Error::corrupt(
            self.pages.path(),
            self.offset(Pid(pages)),
            format!("{next} pages, as the meta page says"),
            format!("the file's end behind {pages}"),
            "The file was cut short. A backup and the log contain the missing pages.",
        ))
    }
}
