//! Building a long string in several transactions before a key gets it.
//!
//! If one transaction wrote a string of hundreds of megabytes, every other client would have to wait. Instead the
//! string is built as the only item of a list that is a [draft](crate::draft). Each transaction makes the item's chain
//! longer by some pages. The last transaction removes the item's row but not its chain. It then writes a row for the
//! key, and this row names the chain. A crash before that leaves a list without a header. The purge removes that list's
//! item together with its chain.
//!
//! Every page of a chain but the last is full, so each transaction but the last adds whole pages. A [`Text`] holds the
//! id of the chain's last page, so that the chain can be made longer without walking it.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{PageId, Result, TableId};
use perdura_page::layout::{self, CHAIN_BYTES, HEADER_BYTES, META_BYTES};
use perdura_page::row::HEAD_KEY_BYTES_MAX;
use perdura_page::{CollectionId, Row};

use crate::address::{TableCollection, TableKey};
use crate::cells::{Span, free_chain, release_slot};
use crate::edit::Edit;
use crate::entry::Entry;
use crate::lists::ItemPlace;
use crate::members::{edit, misused};
use crate::ops::Op;
use crate::pages::Pages;
use crate::partition::Partition;
use crate::rows::{Displaced, Elements, not_attached};
use crate::trim::write_item;
use crate::undo::{PartUndo, Undo};

/// The number of a string's bytes in a full page of its chain. Every transaction but the last adds a multiple of this
/// number of bytes.
pub const TEXT_PAGE_BYTES: usize = CHAIN_BYTES;
/// The maximum length, in bytes, of a key whose string is built in several transactions.
pub const TEXT_KEY_BYTES_MAX: usize = HEAD_KEY_BYTES_MAX;

/// The state of a string that is being built. It is valid until the next transaction that adds to the string has
/// committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    /// The draft with the string as its only item.
    draft: CollectionId,
    /// The row of the draft's item.
    entry: Entry,
    first: PageId,
    last: PageId,
    bytes: usize,
}

impl Text {
    /// Returns the length of the string so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the string is empty. It never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Partition {
    /// Appends bytes to the string that is being built in a draft of a list; `text` is `None` to begin the string.
    ///
    /// # Errors
    /// `OutOfMemory` like [`put`](Self::put). `Usage` if the draft does not exist, `bytes` is empty, or the string
    /// already ends with a partly filled page.
    pub fn grow_text(
        &mut self,
        undo: &mut Undo,
        of: TableCollection,
        text: Option<Text>,
        bytes: &[u8],
    ) -> Result<Text> {
        let TableCollection {
            table: id,
            id: draft,
        } = of;
        if bytes.is_empty() || text.is_some_and(|text| !text.bytes.is_multiple_of(CHAIN_BYTES)) {
            return Err(misused(id, draft, "its string has no whole pages"));
        }
        self.pay_for_chains(undo, id, bytes.len().div_ceil(CHAIN_BYTES));
        let part = undo.part_mut(self.pages.id);
        let pages = &mut self.pages;
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        if table.collections.get(draft).is_none() {
            return Err(misused(id, draft, "it does not exist"));
        }
        let (added, last) = pages.write_pages(part, id, [&[], bytes])?;
        let first = text.map_or(added, |text| text.first);
        let len = text.map_or(0, |text| text.bytes) + bytes.len();
        let old = text.map(|text| text.entry);
        let to = ItemPlace {
            list: of,
            label: 0,
            old,
        };
        let entry = match write_item(pages, table, part, to, Some(Span { first, bytes: len })) {
            Ok(entry) => entry,
            Err(error) => {
                free_chain(
                    pages,
                    part,
                    Some(Span {
                        first: added,
                        bytes: bytes.len(),
                    }),
                );
                return Err(error);
            }
        };
        if let Some(text) = text {
            pages.link(part, id, text.last, added);
        }
        match old {
            None => edit(table, part, id, draft, Edit::ItemAdd(0, entry)),
            Some(old) if old != entry => {
                edit(table, part, id, draft, Edit::ItemMove(0, entry));
                release_slot(pages, table, part, old);
            }
            Some(_) => {}
        }
        table.account(&pages.memory);
        Ok(Text {
            draft,
            entry,
            first,
            last,
            bytes: len,
        })
    }

    /// Makes the string that was built in a draft the value of a key of this partition, and removes the draft.
    ///
    /// # Errors
    /// `OutOfMemory` like [`put`](Self::put); `Usage` if the draft does not exist, or the key is longer than
    /// [`TEXT_KEY_BYTES_MAX`].
    pub fn name_text(
        &mut self,
        undo: &mut Undo,
        text: Text,
        to: TableKey<'_>,
        expiry_ms: Option<u64>,
    ) -> Result<Displaced> {
        let (id, key, draft) = (to.table, to.key, text.draft);
        if key.len() > TEXT_KEY_BYTES_MAX {
            return Err(misused(id, draft, "the key has no room beside its string"));
        }
        let row = Row::large(key, text.bytes, text.first, to.hash.0, expiry_ms);
        let displaced = self.put_composed(undo, to, &row, Elements::Orphaned)?;
        if !armed(Flaw::TextKeptByDraft) {
            self.let_go(undo, id, text)?;
        }
        Ok(displaced)
    }

    /// Removes the row of a draft's only item, and the draft with it. The item's chain stays.
    fn let_go(&mut self, undo: &mut Undo, id: TableId, text: Text) -> Result<()> {
        let draft = text.draft;
        let part = undo.part_mut(self.pages.id);
        let table = self.tables.get_mut(id).ok_or_else(|| not_attached(id))?;
        let found = table.collections.get(draft);
        let found = found.ok_or_else(|| misused(id, draft, "it does not exist"))?;
        let (shape, owner) = (found.shape, found.owner);
        edit(table, part, id, draft, Edit::ItemRemove(0));
        release_slot(&mut self.pages, table, part, text.entry);
        part.ops.push(Op::Unmade {
            table: id,
            id: draft,
            shape,
            owner,
        });
        table.collections.unmake(draft);
        table.account(&self.pages.memory);
        Ok(())
    }
}

impl Pages {
    /// Links the full last page of a chain to the page `next`.
    fn link(&mut self, undo: &mut PartUndo, table: TableId, last: PageId, next: PageId) {
        let local = self.local(last);
        let local = local.expect("a string lies in the partition of its draft");
        let page = self.page(local);
        assert_eq!(layout::table(page), table, "a page belongs to its string");
        assert_eq!(layout::next(page), None, "a string goes on at its end");
        undo.save(
            self.page(local),
            local,
            META_BYTES,
            HEADER_BYTES - META_BYTES,
        );
        let used = u32::try_from(CHAIN_BYTES).expect("content of one page");
        layout::format_large(self.page_mut(local), table, next.0, used);
    }
}
