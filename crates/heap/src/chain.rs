//! Large values: chains of pages. A new value is always written to fresh pages, never as a difference from the old one.
//!
//! The content of a chain is the value. If the key is too long for the row's head, the chain has the key before the
//! value. Every page but the last is full. The row's head has the length of the chain, so a walk over a damaged chain
//! ends early instead of running in circles.

use perdura_base::{PageId, Result, TableId};
use perdura_page::layout::{self, CHAIN_BYTES, HEADER_BYTES};
use perdura_page::{PageKind, Place, Row};

use crate::cells::{ChainPlace, Span};
use crate::geometry::KeyHash;
use crate::pages::Pages;
use crate::undo::PartUndo;

/// A walk over the pages of a chain. Each item is the local index of a page, and the page's content.
#[derive(Clone)]
pub(crate) struct Chain<'a> {
    pages: &'a Pages,
    next: Option<PageId>,
    left: usize,
}

/// The position of a reader of a value. It is valid until the next write of the value.
#[derive(Debug, Clone, Copy)]
pub struct ValueCursor {
    /// The next page to read, and the count of content bytes from that page's start to the chain's end.
    page: Option<(PageId, usize)>,
    /// The number of content bytes to skip, because they have been read. They begin the page in `page`, or the inline
    /// value.
    skip: usize,
}

/// The rest of a value after a cursor, in pieces of one page each. If the chain is damaged, the pieces end early.
pub struct Pieces<'a> {
    inline: Option<&'a [u8]>,
    chain: Chain<'a>,
    skip: usize,
}

impl<'a> Pieces<'a> {
    /// Returns the pieces of a row's value that follow a cursor.
    pub(crate) fn new(pages: &'a Pages, row: &Row<'a>, cursor: ValueCursor) -> Pieces<'a> {
        let inline = match row.place {
            Place::Inline { value, .. } => value.get(cursor.skip..),
            Place::Large { .. } => None,
        };
        let (next, left) = match cursor.page {
            Some((next, left)) => (Some(next), left),
            None => (None, 0),
        };
        Pieces {
            inline,
            chain: Chain { pages, next, left },
            skip: cursor.skip,
        }
    }

    /// Returns the position of the next piece.
    #[must_use]
    pub fn cursor(&self) -> ValueCursor {
        ValueCursor {
            page: self.chain.next.map(|next| (next, self.chain.left)),
            skip: self.skip,
        }
    }
}

impl Pieces<'_> {
    /// Appends the next `bytes` bytes to `out`, or fewer at the end. Returns the number of bytes appended.
    pub fn read(&mut self, bytes: usize, out: &mut Vec<u8>) -> usize {
        let mut left = bytes;
        while left > 0 {
            let (mut behind, skip) = (self.chain.clone(), self.skip);
            let rest = match self.inline {
                Some(value) => Some(value),
                None => behind.next().and_then(|(_, content)| content.get(skip..)),
            };
            let Some(rest) = rest else { break };
            let piece = &rest[..rest.len().min(left)];
            out.extend_from_slice(piece);
            left -= piece.len();
            self.skip += piece.len();
            match &mut self.inline {
                Some(value) if value.len() == piece.len() => self.inline = None,
                Some(value) => *value = &value[piece.len()..],
                None if piece.len() == rest.len() => (self.chain, self.skip) = (behind, 0),
                None => {}
            }
        }
        bytes - left
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(value) = self.inline.take() {
            self.skip += value.len();
            return Some(value);
        }
        let (_, content) = self.chain.next()?;
        let skip = std::mem::take(&mut self.skip);
        content.get(skip..)
    }
}

impl Chain<'_> {
    /// Returns the rest of the chain: the next page, and the number of bytes from there on; `None` at the end.
    pub(crate) fn rest(&self) -> ChainPlace {
        let first = self.next.filter(|_| self.left > 0)?;
        let bytes = self.left;
        Some(Span { first, bytes })
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = (u32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let local = self.pages.local(self.next?)?;
        let page = self.pages.page(local);
        let used = usize::try_from(layout::used(page)).ok()?;
        if layout::kind(page) != Some(PageKind::Large) || used != self.left.min(CHAIN_BYTES) {
            return None;
        }
        self.left -= used;
        self.next = layout::next(page);
        Some((local, &page[HEADER_BYTES..HEADER_BYTES + used]))
    }
}

impl Pages {
    pub(crate) fn chain(&self, first: PageId, bytes: usize) -> Chain<'_> {
        Chain {
            pages: self,
            next: Some(first),
            left: bytes,
        }
    }

    /// Reads `bytes` bytes of a row's chain, from the offset `skip`, and appends them to `out`.
    pub(crate) fn read_chain(&self, row: &Row<'_>, skip: usize, bytes: usize, out: &mut Vec<u8>) {
        let Place::Large { first, .. } = row.place else {
            return;
        };
        let (mut skip, mut bytes) = (skip, bytes);
        for (_, content) in self.chain(first, row.chain_bytes()) {
            let from = skip.min(content.len());
            let to = content.len().min(from + bytes);
            out.extend_from_slice(&content[from..to]);
            skip -= from;
            bytes -= to - from;
            if bytes == 0 {
                return;
            }
        }
    }

    /// Returns a cursor at byte `at` of a row's value; at the value's end if `at` is beyond the end.
    pub(crate) fn cursor(&self, row: &Row<'_>, at: usize) -> ValueCursor {
        let at = at.min(row.value_bytes);
        let Place::Large { first, .. } = row.place else {
            return ValueCursor {
                page: None,
                skip: at,
            };
        };
        let mut skip = row.chain_bytes() - row.value_bytes + at;
        let mut chain = self.chain(first, row.chain_bytes());
        while skip >= CHAIN_BYTES && chain.next().is_some() {
            skip -= CHAIN_BYTES;
        }
        ValueCursor {
            page: chain.next.map(|next| (next, chain.left)),
            skip,
        }
    }

    /// Returns whether the row has this key.
    pub(crate) fn key_is(&self, row: &Row<'_>, key: &[u8], hash: KeyHash) -> bool {
        match row.place {
            Place::Inline { key: mine, .. }
            | Place::Large {
                key: Some(mine), ..
            } => mine == key,
            Place::Large {
                key: None,
                hash: mine,
                first,
            } => {
                if mine != hash.0 || row.key_bytes != key.len() {
                    return false;
                }
                let mut rest = key;
                for (_, content) in self.chain(first, row.chain_bytes()) {
                    let (head, tail) = rest.split_at(content.len().min(rest.len()));
                    if content[..head.len()] != *head {
                        return false;
                    }
                    rest = tail;
                    if rest.is_empty() {
                        return true;
                    }
                }
                false
            }
        }
    }

    /// Writes `[key, value]` as a chain of fresh pages. Returns the first page.
    pub(crate) fn write_chain(
        &mut self,
        undo: &mut PartUndo,
        table: TableId,
        content: [&[u8]; 2],
    ) -> Result<PageId> {
        let (first, _) = self.write_pages(undo, table, content)?;
        Ok(first)
    }

    /// Writes `[key, value]` as a chain of fresh pages. Returns the first and the last page.
    pub(crate) fn write_pages(
        &mut self,
        undo: &mut PartUndo,
        table: TableId,
        content: [&[u8]; 2],
    ) -> Result<(PageId, PageId)> {
        let bytes = content[0].len() + content[1].len();
        let count = bytes.div_ceil(CHAIN_BYTES);
        assert!(count > 0, "a large row has content");
        self.check_room(table, count)?;
        let mut locals = Vec::with_capacity(count);
        for _ in 0..count {
            match self.take(undo, table) {
                Ok(local) => locals.push(local),
                Err(error) => {
                    locals.into_iter().for_each(|local| self.give_back(local));
                    return Err(error);
                }
            }
        }
        let [mut key, mut value] = content;
        for (i, local) in locals.iter().enumerate() {
            let next = locals.get(i + 1).map(|next| self.page_id(*next));
            let (key_piece, key_rest) = key.split_at(key.len().min(CHAIN_BYTES));
            let room = CHAIN_BYTES - key_piece.len();
            let (value_piece, value_rest) = value.split_at(value.len().min(room));
            self.save_large(undo, *local, key_piece.len() + value_piece.len());
            self.format_large(*local, table, next, &[key_piece, value_piece]);
            (key, value) = (key_rest, value_rest);
        }
        assert!(
            key.is_empty() && value.is_empty(),
            "the pages of a chain hold its whole content"
        );
        Ok((self.page_id(locals[0]), self.page_id(locals[count - 1])))
    }

    /// Frees the pages of a chain.
    pub(crate) fn free_chain(&mut self, undo: &mut PartUndo, first: PageId, bytes: usize) {
        let locals: Vec<u32> = self.chain(first, bytes).map(|(local, _)| local).collect();
        for local in locals {
            self.free_page(undo, local);
        }
    }
}
