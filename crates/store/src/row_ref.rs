//! A row as it lies in its page, for readers.

use std::borrow::Cow;

use perdura_page::{Place, Row};

use crate::pages::Pages;

/// A row as it lies in its page. It borrows the latched partition.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    pages: &'a Pages,
    row: Row<'a>,
}

impl<'a> RowRef<'a> {
    pub(crate) fn new(pages: &'a Pages, row: Row<'a>) -> Self {
        RowRef { pages, row }
    }

    /// The key, copied only if it is in a chain of pages.
    #[must_use]
    pub fn key(&self) -> Cow<'a, [u8]> {
        match self.row.place {
            Place::Inline { key, .. } | Place::Large { key: Some(key), .. } => Cow::Borrowed(key),
            Place::Large { key: None, .. } => {
                let mut key = Vec::with_capacity(self.row.key_bytes);
                self.pages
                    .read_chain(&self.row, 0, self.row.key_bytes, &mut key);
                Cow::Owned(key)
            }
        }
    }

    /// Bytes of the value.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.row.value_bytes
    }

    /// Appends the value to `out`.
    pub fn copy_value(&self, out: &mut Vec<u8>) {
        match self.row.place {
            Place::Inline { value, .. } => out.extend_from_slice(value),
            Place::Large { .. } => {
                let skip = self.row.chain_bytes() - self.row.value_bytes;
                out.reserve(self.row.value_bytes);
                self.pages
                    .read_chain(&self.row, skip, self.row.value_bytes, out);
            }
        }
    }

    /// The value where it lies; `None` if it is in a chain of pages.
    #[must_use]
    pub fn value_slice(&self) -> Option<&'a [u8]> {
        match self.row.place {
            Place::Inline { value, .. } => Some(value),
            Place::Large { .. } => None,
        }
    }

    /// When the row expires, milliseconds since 1970.
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        self.row.expiry_ms
    }
}
