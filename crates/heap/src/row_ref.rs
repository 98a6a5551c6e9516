//! A reference to a row in its page, for reading.

use std::borrow::Cow;

use perdura_page::{Home, Kind, Place, Row, Shape, kind};

use crate::cells::{ChainPlace, chain_of};
use crate::chain::{Pieces, ValueCursor};
use crate::name_place::place_of;
use crate::pages::Pages;

/// The maximum length, in bytes, of an encoded home. A home is encoded as a 16-bit varint and a 64-bit varint.
const HOME_BYTES_MAX: usize = 3 + 10;

/// A reference to a row in its page. It borrows the latched partition.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    pages: &'a Pages,
    row: Row<'a>,
}

impl<'a> RowRef<'a> {
    pub(crate) fn new(pages: &'a Pages, row: Row<'a>) -> Self {
        RowRef { pages, row }
    }

    /// Returns the kind of the row.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.row.kind
    }

    /// Returns the home (partition and id) of a collection if this row is the collection's header, otherwise `None`. If
    /// a header's key nearly fills a slot, the header's value lies in a chain of pages.
    #[must_use]
    pub fn home(&self) -> Option<Home> {
        match self.row.kind {
            Kind::Header(_) if self.value_len() <= HOME_BYTES_MAX => match self.value_slice() {
                Some(value) => Home::decode(value),
                None => {
                    let mut value = Vec::with_capacity(self.value_len());
                    self.copy_value(&mut value);
                    Home::decode(&value)
                }
            },
            Kind::Header(_) | Kind::String | Kind::Small(_) | Kind::Element(_) => None,
        }
    }

    /// Returns the name of an element: its key without the collection's id.
    #[must_use]
    pub fn field(&self) -> Cow<'a, [u8]> {
        match self.key() {
            Cow::Borrowed(key) => {
                Cow::Borrowed(kind::split_element_key(key).map_or(key, |(_, field)| field))
            }
            Cow::Owned(mut key) => {
                let field = kind::split_element_key(&key).map_or(key.len(), |(_, f)| f.len());
                key.drain(..key.len() - field);
                Cow::Owned(key)
            }
        }
    }

    /// Returns the score of a member of a sorted set. For an element of a stream, derives the score from the element's
    /// name.
    #[must_use]
    pub fn score(&self) -> f64 {
        if self.row.kind == Kind::Element(Shape::Stream) {
            return place_of(&self.field());
        }
        let bytes = self.value_slice().and_then(|value| value.first_chunk());
        let bytes = bytes.copied().unwrap_or_else(|| {
            let mut value = Vec::with_capacity(8);
            self.copy_value(&mut value);
            value.first_chunk().copied().unwrap_or_default()
        });
        f64::from_le_bytes(bytes)
    }

    /// Returns the key. It is copied only if it lies in a chain of pages.
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

    /// Returns the length, in bytes, of the row's chain; 0 if the row has no chain.
    pub(crate) fn chain_bytes(&self) -> usize {
        self.row.chain_bytes()
    }

    /// Returns the length of the value, bytes.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.row.value_bytes
    }

    /// Returns the value. It is copied only if it lies in a chain of pages.
    #[must_use]
    pub fn value(&self) -> Cow<'a, [u8]> {
        match self.value_slice() {
            Some(value) => Cow::Borrowed(value),
            None => {
                let mut value = Vec::with_capacity(self.value_len());
                self.copy_value(&mut value);
                Cow::Owned(value)
            }
        }
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

    /// Appends up to `bytes` bytes of the value to `out`, beginning at offset `from`.
    pub fn copy_piece(&self, from: usize, bytes: usize, out: &mut Vec<u8>) {
        let from = from.min(self.row.value_bytes);
        let bytes = bytes.min(self.row.value_bytes - from);
        match self.row.place {
            Place::Inline { value, .. } => out.extend_from_slice(&value[from..from + bytes]),
            Place::Large { .. } => {
                let skip = self.row.chain_bytes() - self.row.value_bytes;
                self.pages.read_chain(&self.row, skip + from, bytes, out);
            }
        }
    }

    /// Returns a cursor at byte `at` of the value, or at the value's end if `at` lies beyond it.
    #[must_use]
    pub fn cursor(&self, at: usize) -> ValueCursor {
        self.pages.cursor(&self.row, at)
    }

    /// Returns the value from a cursor to the value's end, in pieces of one page each.
    #[must_use]
    pub fn pieces(&self, cursor: ValueCursor) -> Pieces<'a> {
        Pieces::new(self.pages, &self.row, cursor)
    }

    /// Returns the byte at offset `at` of the value; `None` beyond its end.
    #[must_use]
    pub fn byte(&self, at: usize) -> Option<u8> {
        if let Some(value) = self.value_slice() {
            return value.get(at).copied();
        }
        let mut byte = Vec::new();
        self.copy_piece(at, 1, &mut byte);
        byte.pop()
    }

    /// Returns the first page and the length of the row's chain; `None` if the row has no chain.
    pub(crate) fn chain(&self) -> ChainPlace {
        chain_of(&self.row)
    }

    /// Returns the value from the slot, or `None` if the value lies in a chain of pages.
    #[must_use]
    pub fn value_slice(&self) -> Option<&'a [u8]> {
        match self.row.place {
            Place::Inline { value, .. } => Some(value),
            Place::Large { .. } => None,
        }
    }

    /// Returns the row's expiry time in milliseconds since 1970, or `None` if the row never expires.
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        self.row.expiry_ms
    }
}
