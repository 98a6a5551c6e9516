//! A reader of the collection in a payload. A call reads some of the elements. The caller can do other work between
//! two calls.
//!
//! Only the encodings of big collections are read in parts: the plain encodings, and lists of packed nodes.

use std::io::Read;

use crate::error::Result;
use crate::payload::body_of;
use crate::source::Source;
use crate::value::{NO_SCORE, list_node, plain, text_score, ziplist_node};

/// The size of the buffer for a payload, bytes.
const BUFFER_BYTES: usize = 8 << 10;

/// The size of the buffer for the beginning of a list's node, bytes. The beginning has the count of the node's
/// elements.
const NODE_BEGIN: usize = 96;

/// The type of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectionType {
    /// Fields and values.
    Hash,
    /// Items.
    List,
    /// Members.
    Set,
    /// Members and scores. A score has eight bytes, little-endian.
    Zset,
}

/// The position of a reader that reads a payload in parts.
#[derive(Debug, Clone)]
pub struct Parts {
    kind: u8,
    /// The offset of the next element or node.
    at: usize,
    /// The number of elements, or of a list's nodes, that are still to be read.
    left: u64,
    /// True if any element has been handed out.
    any: bool,
}

impl Parts {
    /// Checks the version and the checksum of a payload, and begins to read it. `None`: nothing was checked, because
    /// this encoding is not read in parts. [`parse_dump`](crate::parse_dump) reads the whole value in one call.
    ///
    /// # Errors
    /// Those of [`parse_dump`](crate::parse_dump).
    pub fn begin(payload: &[u8]) -> Result<Option<Parts>> {
        // `parse_dump` computes the checksum of a payload itself. Computing the checksum of 59 MB twice stops other
        // clients for 60 ms.
        if !payload.first().is_some_and(is_read_in_parts) {
            return Ok(None);
        }
        let body = body_of(payload)?;
        let mut source = Source::new(body, BUFFER_BYTES);
        let kind = source.byte()?;
        let left = source.length()?;
        if left == 0 {
            return Err(source.corrupt("a collection without elements"));
        }
        let at = position(&source);
        // Each element takes a byte at least.
        if left > u64::try_from(body.len() - at).unwrap_or(u64::MAX) {
            return Err(source.corrupt("more elements than there are bytes"));
        }
        let any = false;
        Ok(Some(Parts {
            kind,
            at,
            left,
            any,
        }))
    }

    /// Returns the type of the collection.
    #[must_use]
    pub fn collection(&self) -> CollectionType {
        match self.kind {
            plain::SET => CollectionType::Set,
            plain::HASH => CollectionType::Hash,
            3 | plain::ZSET => CollectionType::Zset,
            _ => CollectionType::List,
        }
    }

    /// Returns the number of elements, or of a list's nodes, that are still to be read.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the number of elements in the payload. Counting stops when it reaches `enough`. A list's node begins
    /// with the count of its elements, so only the beginning of a compressed node is unpacked. [`read`](Self::read)
    /// refuses a count that is greater than the number of elements in the node.
    #[must_use]
    pub fn elements(&self, payload: &[u8], enough: u64) -> u64 {
        let body = body_unchecked(payload);
        let (mut at, mut sum) = (self.at, 0_u64);
        if self.left >= enough || !matches!(self.kind, 14 | 18) {
            return self.left;
        }
        for _ in 0..self.left {
            let Ok((elements, len)) = self.node(body.get(at..).unwrap_or_default()) else {
                break;
            };
            (sum, at) = (sum.saturating_add(elements), at.saturating_add(len));
            if sum >= enough {
                break;
            }
        }
        sum
    }

    /// Returns the number of elements that the node at the start of `bytes` claims, and the node's length in the
    /// payload.
    fn node(&self, bytes: &[u8]) -> Result<(u64, usize)> {
        let mut source = Source::new(bytes, NODE_BEGIN);
        let is_packed = self.kind == 14 || source.length()? == 2;
        let (begin, full, rest) = source.begin_of_string(10)?;
        let of = if self.kind == 14 { 8..10 } else { 4..6 };
        let count = begin.get(of).and_then(|count| count.try_into().ok());
        let elements = match (is_packed, count.map(u16::from_le_bytes)) {
            (false, _) => 1,
            (true, None) => 0,
            // An element takes at least two bytes. The count 65535 means that number or more.
            (true, Some(count)) => u64::from(count).min(full / 2),
        };
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        Ok((elements, position(&source).saturating_add(rest)))
    }

    /// Passes about `count` elements of the payload to `take`: a hash's field and value, or a sorted set's member and
    /// score. For a list's item or a set's member, the second argument is empty.
    ///
    /// # Errors
    /// Those of [`parse_dump`](crate::parse_dump).
    pub fn read(
        &mut self,
        payload: &[u8],
        count: usize,
        mut take: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let body = body_unchecked(payload);
        let mut source = Source::new(body.get(self.at..).unwrap_or_default(), BUFFER_BYTES);
        let (mut taken, before) = (0, self.at);
        while taken < count && self.left > 0 {
            let elements = self.one(&mut source, &mut take)?;
            self.any |= elements > 0;
            taken += elements.max(1);
            self.left -= 1;
        }
        self.at += position(&source);
        debug_assert!(self.at > before || taken == 0, "elements take bytes");
        if self.left == 0 && !self.any {
            return Err(source.corrupt("a collection without elements"));
        }
        if self.left == 0 && self.at != body.len() {
            return Err(source.corrupt("there are extra bytes after the value"));
        }
        Ok(())
    }

    /// Reads one element, or one node of a list. Returns the number of elements that were read.
    fn one<R: Read>(
        &self,
        source: &mut Source<R>,
        take: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        match self.kind {
            plain::HASH => take(&source.string()?, &source.string()?),
            3 | plain::ZSET => {
                let member = source.string()?;
                let score = match self.kind {
                    3 => text_score(source)?,
                    _ => f64::from_le_bytes(source.array()?),
                };
                if score.is_nan() {
                    return Err(source.corrupt(NO_SCORE));
                }
                take(&member, &score.to_le_bytes());
            }
            14 | 18 => {
                let items = match self.kind {
                    14 => ziplist_node(source)?,
                    _ => list_node(source)?,
                };
                items.iter().for_each(|item| take(item, &[]));
                return Ok(items.len());
            }
            _ => take(&source.string()?, &[]),
        }
        Ok(1)
    }
}

fn is_read_in_parts(kind: &u8) -> bool {
    matches!(
        *kind,
        plain::LIST | plain::SET | 3 | plain::HASH | plain::ZSET | 14 | 18
    )
}

fn position<R: Read>(source: &Source<R>) -> usize {
    usize::try_from(source.position()).unwrap_or(usize::MAX)
}

/// Returns the bytes before version and checksum. Checks neither the version nor the checksum.
fn body_unchecked(payload: &[u8]) -> &[u8] {
    payload
        .get(..payload.len().saturating_sub(10))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Value, dump, parse_dump};

    /// Returns the payload's value, read `count` elements at a time.
    fn in_parts(payload: &[u8], count: usize) -> Result<Option<Value>> {
        let Some(mut parts) = Parts::begin(payload)? else {
            return Ok(None);
        };
        let mut all = Vec::new();
        while parts.left() > 0 {
            parts.read(payload, count, |name, value| {
                all.push((name.to_vec(), value.to_vec()));
            })?;
        }
        let names = |all: Vec<(Vec<u8>, Vec<u8>)>| all.into_iter().map(|(name, _)| name).collect();
        let score = |text: &[u8]| f64::from_le_bytes(text.try_into().expect("eight bytes"));
        Ok(Some(match parts.collection() {
            CollectionType::Hash => Value::Hash(all),
            CollectionType::List => Value::List(names(all)),
            CollectionType::Set => Value::Set(names(all)),
            CollectionType::Zset => {
                let scored = all.into_iter();
                Value::Zset(scored.map(|(name, text)| (name, score(&text))).collect())
            }
        }))
    }

    fn values() -> Vec<Value> {
        let text = |i: usize| match i % 9 {
            0 => vec![b'x'; i * 3],
            _ => i.to_string().into_bytes(),
        };
        let all = || (1..60).map(text);
        let score = |i: usize| f64::from(u16::try_from(i).expect("small")) / 3.0;
        vec![
            Value::List(all().collect()),
            Value::Set(all().collect()),
            Value::Hash(all().map(|text| (text.clone(), text)).collect()),
            Value::Zset((1..60).map(|i| (text(i), score(i))).collect()),
        ]
    }

    #[test]
    fn a_payload_read_in_parts_is_what_it_is_at_once() {
        for value in values() {
            let payload = dump(&value);
            for count in [1, 7, 256, 1000] {
                assert_eq!(
                    in_parts(&payload, count).expect("sound"),
                    Some(value.clone())
                );
            }
        }
        let string = dump(&Value::String(b"text".to_vec()));
        assert_eq!(in_parts(&string, 1).expect("sound"), None);
    }

    #[test]
    fn a_payload_that_says_more_elements_than_it_has_bytes_is_refused_before_it_is_read() {
        let mut body = vec![plain::SET, 0x81];
        body.extend_from_slice(&(1u64 << 63).to_be_bytes());
        body.extend((0..6000).flat_map(|_| [1, b'x']));
        let payload = crate::payload::sealed(body);
        assert!(Parts::begin(&payload).is_err());
        assert!(parse_dump(&payload).is_err());
    }

    #[test]
    fn nodes_say_how_many_elements_they_hold_also_compressed_and_no_more_than_they_can() {
        let listpack = |count: u16| {
            let mut node = 2006_u32.to_le_bytes().to_vec();
            node[0] += 1;
            node.extend_from_slice(&count.to_le_bytes());
            node.extend((0..1000).flat_map(|_| [1, 1]));
            node.push(0xff);
            node
        };
        // The head as literal bytes, then copies at a distance of two bytes, then the end byte as a literal.
        let compressed = |count: u16| {
            let plain = listpack(count);
            let mut packed = vec![7];
            packed.extend_from_slice(&plain[..8]);
            let mut left = 1998;
            while left > 0 {
                let copied = left.min(264);
                packed.extend_from_slice(&[0xe0, u8::try_from(copied - 9).unwrap(), 1]);
                left -= copied;
            }
            packed.extend_from_slice(&[0, 0xff]);
            let mut node = vec![2, 0xc3, u8::try_from(packed.len()).unwrap() & 0x3f];
            assert!(packed.len() < 64);
            node.extend_from_slice(&[0x40 | 7, 0xd7]);
            node.extend_from_slice(&packed);
            node
        };
        let payload = |count: u16| {
            let mut body = vec![18, 60];
            (0..60).for_each(|_| body.extend(compressed(count)));
            crate::payload::sealed(body)
        };
        let sound = payload(1000);
        let parts = Parts::begin(&sound).expect("sound").expect("a list");
        assert_eq!(parts.elements(&sound, u64::MAX), 60_000);
        assert_eq!(parts.elements(&sound, 2500), 3000);
        assert_eq!(
            parse_dump(&sound).expect("sound"),
            in_parts(&sound, 7).expect("sound").unwrap()
        );
        for claimed in [60_000, u16::MAX] {
            let liar = payload(claimed);
            let parts = Parts::begin(&liar).expect("sealed").expect("a list");
            assert_eq!(parts.elements(&liar, u64::MAX), 60 * (2007 / 2));
        }
        assert!(in_parts(&payload(60_000), 7).is_err());
    }

    #[test]
    fn a_list_of_empty_nodes_is_refused_as_it_is_at_once() {
        let empty = [7, 0, 0, 0, 0, 0, 0xff];
        let mut body = vec![18, 60];
        for _ in 0..60 {
            body.extend_from_slice(&[2, 7]);
            body.extend_from_slice(&empty);
        }
        let payload = crate::payload::sealed(body);
        assert!(parse_dump(&payload).is_err());
        assert!(in_parts(&payload, 7).is_err());
        assert!(in_parts(&payload, 100).is_err());
    }

    #[test]
    fn a_payload_cut_or_changed_anywhere_is_refused_as_it_is_at_once() {
        for value in values() {
            let payload = dump(&value);
            for at in (0..payload.len()).step_by(7) {
                let mut changed = payload.clone();
                changed[at] ^= 0x41;
                for bytes in [&changed[..], &payload[..at]] {
                    let (whole, parts) = (parse_dump(bytes), in_parts(bytes, 5));
                    // If the changed type byte names a type that is read at once, `Parts` returns `None`. `parse_dump`
                    // then refuses the payload.
                    let refused = parts.is_err() || at == 0 && matches!(parts, Ok(None));
                    assert!(whole.is_err() && refused, "at {at}");
                }
            }
            // If the checksum is right, both readers give the same result for any body.
            for at in 0..payload.len() - 10 {
                let mut body = payload[..payload.len() - 10].to_vec();
                body[at] = body[at].wrapping_add(1);
                let sealed = crate::payload::sealed(body);
                match (parse_dump(&sealed), in_parts(&sealed, 5)) {
                    (Ok(whole), Ok(Some(parts))) => {
                        assert_eq!(format!("{whole:?}"), format!("{parts:?}"), "at {at}");
                    }
                    (Ok(_) | Err(_), Ok(None)) => {}
                    (Err(Error::Truncated { .. } | Error::Corrupt { .. }), Err(_)) => {}
                    (whole, parts) => panic!("at {at}: {whole:?} and {parts:?}"),
                }
            }
        }
    }
}
