//! Many texts in one piece of memory.
//!
//! A command may collect a million elements before it writes or sorts them. With one allocation per element, freeing
//! would cost more than sorting.

/// A list of texts in one buffer, without gaps.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    bytes: Vec<u8>,
    /// The offset of the end of each text.
    ends: Vec<usize>,
}

impl Texts {
    /// Adds a text.
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        debug_assert!(
            self.ends.last().is_none_or(|end| *end <= self.bytes.len()),
            "texts follow one another"
        );
        self.ends.push(self.bytes.len());
    }

    /// Removes all texts and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the number of texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the list has no text.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of bytes of memory that the texts take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Returns the text at an index; empty if the index is too large.
    #[must_use]
    pub fn get(&self, at: usize) -> &[u8] {
        let from = at.checked_sub(1).and_then(|before| self.ends.get(before));
        let end = self.ends.get(at).copied().unwrap_or_default();
        self.bytes
            .get(from.copied().unwrap_or_default()..end)
            .unwrap_or_default()
    }

    /// Returns all texts in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_in_their_order_empty_ones_too() {
        let mut texts = Texts::default();
        assert!(texts.is_empty() && texts.get(0).is_empty());
        let words = [&b"one"[..], b"", b"three", b""];
        words.iter().for_each(|word| texts.push(word));
        assert_eq!(texts.len(), 4);
        assert_eq!(texts.iter().collect::<Vec<_>>(), words);
        assert!(texts.get(4).is_empty());
        texts.clear();
        assert_eq!(texts.iter().len(), 0);
    }
}
