//! The computation of a run's digests while the run is written.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Error, Result};
use perdura_page::RegionDigest;
use perdura_page::digest::bound;

use crate::record::{PageAt, RunRecord};
use crate::run::{Digests, RunHeader};

/// The digests of a run's records, which arrive in the run's order. To *bind* a digest means to combine it with the id
/// of the page. The digests of one page and tag (checkpoint epoch) are XORed first, then bound once.
pub(crate) struct DigestSum {
    region: Arc<RegionDigest>,
    digests: Digests,
    page: Option<(PageAt, CkptEpoch)>,
    /// The digest of the records of the current page and tag, not yet bound to the page's id.
    of_page: u64,
    /// The digest of the records of the current partition and tag, not yet in `digests`.
    of_partition: u64,
}

impl DigestSum {
    pub(crate) fn new(region: Arc<RegionDigest>) -> DigestSum {
        DigestSum {
            region,
            digests: Digests::default(),
            page: None,
            of_page: 0,
            of_partition: 0,
        }
    }

    /// Returns the digests of all records.
    pub(crate) fn finish(mut self, header: &RunHeader) -> Result<Digests> {
        self.bind(header)?;
        self.settle();
        Ok(self.digests)
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, record: &RunRecord<'_>, header: &RunHeader) -> Result<()> {
        let page = (record.at, record.tag);
        if self.page != Some(page) {
            self.bind(header)?;
            let moves = |(at, tag): (PageAt, CkptEpoch)| {
                (at.partition, tag) != (record.at.partition, record.tag)
            };
            if self.page.is_some_and(moves) {
                self.settle();
            }
            self.page = Some(page);
        }
        self.of_page ^= self.region.of_fragments(record.fragments());
        Ok(())
    }

    fn bind(&mut self, header: &RunHeader) -> Result<()> {
        let Some((at, _)) = self.page else {
            return Ok(());
        };
        let id = header
            .chunks
            .page_id(at.partition, at.local)
            .ok_or_else(|| {
                Error::Usage(format!(
                    "local page {} of partition {} has no id among {} partitions",
                    at.local, at.partition, header.chunks.partitions
                ))
            })?;
        self.of_partition ^= bound(id, self.of_page);
        self.of_page = 0;
        Ok(())
    }

    fn settle(&mut self) {
        debug_assert_eq!(self.of_page, 0, "the page's digest has been bound");
        if let Some((at, tag)) = self.page {
            self.digests.add(tag, at.partition, self.of_partition);
            self.of_partition = 0;
        }
    }
}
