//! A component for tests: one page for each key, its value in the first byte. It keeps no sidecar and
//! has no index; its records name a page, an update number and a difference.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::limits::PAGE_BYTES;
use perdura_base::{CkptEpoch, Error, ImageSlot, PageId, PartitionId, Result, TableId};
use perdura_heap::{Geometry, IndexStats, MemoryAccount, Sidecar, Visit};

use super::{Contract, Forms, KeyContent, Value};

const GEOMETRY: Geometry = Geometry {
    partitions: 1,
    chunk_pages: 256,
    hash_seed: 0,
};

#[derive(Clone)]
struct Page {
    /// Value, update number, key.
    bytes: Vec<u8>,
    epoch: CkptEpoch,
    lacks: [bool; 2],
    replayed: Vec<u8>,
    is_loaded: bool,
}

impl Page {
    fn new(key: u8, epoch: CkptEpoch) -> Page {
        let mut bytes = vec![0; PAGE_BYTES];
        bytes[2] = key;
        Page {
            bytes,
            epoch,
            lacks: [true; 2],
            replayed: Vec::new(),
            is_loaded: false,
        }
    }
}

pub struct Dummy {
    memory: Arc<MemoryAccount>,
    ckpt_epoch: Mutex<CkptEpoch>,
    pages: Mutex<BTreeMap<u8, Page>>,
}

impl Dummy {
    pub(super) fn new() -> Dummy {
        Dummy {
            memory: Arc::new(MemoryAccount::new(u64::MAX)),
            ckpt_epoch: Mutex::default(),
            pages: Mutex::default(),
        }
    }

    pub(super) fn write(&self, key: u8, value: u8) -> Vec<u8> {
        let epoch = *self.ckpt_epoch.lock();
        let mut pages = self.pages.lock();
        let page = pages.entry(key).or_insert_with(|| Page::new(key, epoch));
        let difference = page.bytes[0] ^ value;
        page.bytes[0] = value;
        page.bytes[1] += 1;
        page.lacks = [true; 2];
        vec![key, page.bytes[1], difference]
    }

    pub(super) fn redo(&self, record: &[u8]) {
        let mut pages = self.pages.lock();
        let page = pages
            .entry(record[0])
            .or_insert_with(|| Page::new(record[0], CkptEpoch(0)));
        page.replayed.push(record[1]);
        page.bytes[0] ^= record[2];
    }

    pub(super) fn rows(&self) -> BTreeMap<u8, u8> {
        let pages = self.pages.lock();
        pages.iter().map(|(key, p)| (*key, p.bytes[0])).collect()
    }
}

fn key(local: u32) -> u8 {
    u8::try_from(local).expect("a page of each key")
}

impl Contract for Dummy {
    fn geometry(&self) -> &Geometry {
        &GEOMETRY
    }

    fn memory(&self) -> &Arc<MemoryAccount> {
        &self.memory
    }

    fn ckpt_epoch(&self) -> CkptEpoch {
        *self.ckpt_epoch.lock()
    }

    fn set_ckpt_epoch(&self, k: CkptEpoch) {
        *self.ckpt_epoch.lock() = k;
    }

    fn load_pages(&self, _: PartitionId, loaded: &[(u32, &[u8])]) {
        let mut pages = self.pages.lock();
        for (local, bytes) in loaded {
            let page = pages
                .entry(key(*local))
                .or_insert_with(|| Page::new(key(*local), CkptEpoch(0)));
            page.bytes[0] ^= bytes[0];
            page.bytes[1] = bytes[1];
            page.is_loaded = true;
        }
    }

    fn check_replayed(&self) -> Result<()> {
        for (key, page) in self.pages.lock().iter() {
            let seen: BTreeSet<u8> = page.replayed.iter().copied().collect();
            let wanted = (page.bytes[1] + 1..).take(page.replayed.len());
            if !seen.into_iter().eq(wanted) {
                let found = format!("{:?}", page.replayed);
                return Err(Error::corrupt(
                    format!("page {key}"),
                    0,
                    "each once",
                    found,
                    "",
                ));
            }
        }
        Ok(())
    }

    fn end_replay(&self, _: PartitionId, k: CkptEpoch, slot: Option<ImageSlot>) {
        for page in self.pages.lock().values_mut() {
            page.epoch = k;
            page.lacks = [true; 2];
            if let Some(slot) = slot {
                page.lacks[slot.index()] = !page.is_loaded || !page.replayed.is_empty();
            }
            page.bytes[1] = page.replayed.iter().copied().max().unwrap_or(page.bytes[1]);
        }
    }

    fn index_catalog(&self, _: PartitionId) -> Result<()> {
        Ok(())
    }

    fn read_sidecar(&self, _: PartitionId, _: &[u8]) -> Sidecar {
        Sidecar::default()
    }

    fn index(&self, _: PartitionId, _: &Forms<'_>, _: Option<Sidecar>) -> Result<IndexStats> {
        Ok(IndexStats::default())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn visit(
        &self,
        partition: PartitionId,
        range: Range<u32>,
        (slot, k): (ImageSlot, CkptEpoch),
        _: &mut Vec<u8>,
        mut take: impl FnMut(u32, PageId, Visit<'_>),
    ) -> Option<u32> {
        let mut pages = self.pages.lock();
        let end = range.end.min(256);
        for local in range.start..end {
            let id = GEOMETRY.page_id(partition, local).expect("a page id");
            let Some(page) = pages.get_mut(&key(local)) else {
                take(local, id, Visit::Untouched);
                continue;
            };
            if page.epoch == k {
                take(local, id, Visit::Born);
                continue;
            }
            page.epoch = k;
            match std::mem::take(&mut page.lacks[slot.index()]) {
                true => take(local, id, Visit::Dirty(&page.bytes)),
                false => take(local, id, Visit::Clean),
            }
        }
        (end < 256).then_some(end)
    }

    fn mark_dirty(&self, _: PartitionId, local: u32, slot: ImageSlot) {
        if let Some(page) = self.pages.lock().get_mut(&key(local)) {
            page.lacks[slot.index()] = true;
        }
    }

    fn copy_page(&self, _: PartitionId, local: u32, out: &mut [u8]) -> bool {
        let local = u8::try_from(local).ok();
        let pages = self.pages.lock();
        let page = local.and_then(|local| pages.get(&local));
        if let Some(page) = page {
            out.copy_from_slice(&page.bytes);
        }
        page.is_some()
    }

    fn contents(&self, mut take: impl FnMut(TableId, KeyContent<'_>) -> Result<()>) -> Result<()> {
        for (key, page) in self.pages.lock().iter() {
            let content = KeyContent {
                key: Cow::Owned(vec![*key]),
                expiry_ms: None,
                value: Some(Value::String(Cow::Borrowed(&page.bytes[..1]))),
            };
            take(TableId(1), content)?;
        }
        Ok(())
    }

    fn check_page(&self, id: PageId, bytes: &[u8]) -> Result<()> {
        if u32::from(bytes[2]) == id.0 {
            return Ok(());
        }
        let (expected, found) = (format!("page {id}"), format!("page {}", bytes[2]));
        Err(Error::corrupt(expected.clone(), 0, expected, found, ""))
    }
}
