//! Writing to a part of a string in place: SETRANGE, SETBIT and APPEND on long values.
//!
//! A value that fits a slot is rewritten as a whole, but its log record has only the differing bytes. A value in a
//! chain of pages may have megabytes. So only the pages that change are written, and only their differences are logged.
//! All other operations write a chain's content to fresh pages. Each save covers a whole span of a page, so that
//! several writes of one transaction share one save.

use perdura_base::{Result, TableId};
use perdura_page::layout::{self, CHAIN_BYTES, HEADER_BYTES, META_BYTES};
use perdura_page::{Kind, Row};

use crate::address::TableKey;
use crate::cells::Span;
use crate::pages::Pages;
use crate::partition::Partition;
use crate::undo::{PartUndo, Undo};

/// The number of bytes that one save covers in a page of a chain.
const SPAN: usize = 256;

impl Partition {
    /// Writes `bytes` into the string of a key, at offset `at`. Creates a missing string, and makes a short string
    /// longer. A gap is filled with zeros. The expiry stays. Returns the string's new length.
    ///
    /// # Errors
    /// Fails like [`put`](Self::put). After an error the transaction must be rolled back.
    pub fn write_at(
        &mut self,
        undo: &mut Undo,
        to: TableKey<'_>,
        at: usize,
        bytes: &[u8],
    ) -> Result<usize> {
        let TableKey { table, key, hash } = to;
        let found = self.get(table, key, hash);
        let old_len = found.map_or(0, |row| row.value_len());
        let expiry_ms = found.and_then(|row| row.expiry_ms());
        let len = old_len.max(at + bytes.len());
        let attached = self.tables.get(table);
        let derives = attached.is_some_and(|table| table.form.derive.is_some());
        let chain = found.and_then(|row| row.chain());
        // Keys of secondary indexes are derived from the whole row. So if the table has secondary indexes, the row is
        // rewritten.
        if let Some(chain) = chain.filter(|_| !derives) {
            let Span {
                first,
                bytes: chain_bytes,
            } = chain;
            debug_assert!(chain_bytes >= old_len, "the value lies in the chain");
            let key_bytes = chain_bytes - old_len;
            let over = bytes.len().min(old_len.saturating_sub(at));
            let (over, behind) = bytes.split_at(over);
            // The row's head is written before the chain changes. If the chain also holds the key, the row can be found
            // only while head and chain agree.
            if len > old_len {
                let row = Row::large(key, len, first, hash.0, expiry_ms).with_kind(Kind::String);
                self.replace_head(undo, to, &row)?;
            }
            let part = undo.part_mut(self.id());
            self.pages.write_in_chain(part, chain, key_bytes + at, over);
            if len > old_len {
                let mut tail = vec![0; at.saturating_sub(old_len)];
                tail.extend_from_slice(behind);
                self.pages.extend_chain(part, table, chain, &tail)?;
            }
            return Ok(len);
        }
        let mut value = Vec::with_capacity(len);
        if let Some(row) = found {
            row.copy_value(&mut value);
        }
        value.resize(len, 0);
        value[at..at + bytes.len()].copy_from_slice(bytes);
        self.put(undo, to, &value, expiry_ms)?;
        Ok(len)
    }
}

impl Pages {
    /// Writes `bytes` over a chain's content, at offset `at`.
    fn write_in_chain(&mut self, undo: &mut PartUndo, chain: Span, at: usize, bytes: &[u8]) {
        let touched = at / CHAIN_BYTES..(at + bytes.len()).div_ceil(CHAIN_BYTES);
        let locals: Vec<u32> = self
            .chain(chain.first, chain.bytes)
            .map(|(local, _)| local)
            .skip(touched.start)
            .take(touched.len())
            .collect();
        let (mut at, mut rest) = (at % CHAIN_BYTES, bytes);
        for local in locals {
            let (piece, behind) = rest.split_at(rest.len().min(CHAIN_BYTES - at));
            self.write_in_page(undo, local, at, piece);
            (at, rest) = (0, behind);
        }
    }

    /// Writes `bytes` over the content of one page of a chain, at offset `at`.
    fn write_in_page(&mut self, undo: &mut PartUndo, local: u32, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= CHAIN_BYTES, "a piece lies in its page");
        for span in at / SPAN..(at + bytes.len()).div_ceil(SPAN) {
            let from = span * SPAN;
            let len = SPAN.min(CHAIN_BYTES - from);
            undo.save(self.page(local), local, HEADER_BYTES + from, len);
        }
        let at = HEADER_BYTES + at;
        self.page_mut(local)[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes a chain longer: fills its last page, then adds fresh pages.
    fn extend_chain(
        &mut self,
        undo: &mut PartUndo,
        table: TableId,
        chain: Span,
        bytes: &[u8],
    ) -> Result<()> {
        let Some((last, used)) = self
            .chain(chain.first, chain.bytes)
            .last()
            .map(|(local, content)| (local, content.len()))
        else {
            return Ok(());
        };
        let (piece, rest) = bytes.split_at(bytes.len().min(CHAIN_BYTES - used));
        let next = match rest {
            [] => layout::NO_PAGE,
            rest => self.write_chain(undo, table, [&[], rest])?.0,
        };
        self.write_in_page(undo, last, used, piece);
        undo.save(self.page(last), last, META_BYTES, HEADER_BYTES - META_BYTES);
        let used = u32::try_from(used + piece.len()).expect("content of one page");
        layout::format_large(self.page_mut(last), table, next, used);
        Ok(())
    }
}
