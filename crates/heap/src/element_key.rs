//! The key of an element's row: the collection's id, followed by the element's name or label.

use perdura_base::cursor::Writer;
use perdura_page::{CollectionId, kind};
use smallvec::SmallVec;

/// The key of an element, on the stack if it is short.
pub(crate) struct ElementKey(SmallVec<[u8; 64]>);

impl Writer for ElementKey {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl ElementKey {
    pub(crate) fn named(id: CollectionId, field: &[u8]) -> Self {
        let mut key = ElementKey(SmallVec::new());
        kind::put_element_key(&mut key, id, field);
        key
    }

    pub(crate) fn labelled(id: CollectionId, label: i64) -> Self {
        let (key, bytes) = kind::item_key(id, label);
        ElementKey(SmallVec::from_slice(&key[..bytes]))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
