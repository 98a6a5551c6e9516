//! The parent of a restored database, that is, the database it was restored from: the section `PRNT` of the anchor
//! (docs/formats/anchor.md).
//!
//! A restored database has its own identity and epochs, and never continues the parent's history. The section keeps the
//! parent's identity and the last of the parent's epochs that was restored. So an operator knows that earlier moments
//! are in the parent's archive. Each manifest of the restored database's own archive also has this identity and epoch.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{Epoch, Uuid};
use perdura_wal::Parent;

/// The tag of the section.
pub const SECTION: [u8; 4] = *b"PRNT";

/// Returns the section's payload.
#[must_use]
pub(crate) fn encode(parent: &Parent) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    out.put(&parent.uuid.0);
    out.put_u64(parent.epoch.0);
    assert_eq!(out.len(), 24, "a uuid and an epoch");
    out
}

/// Decodes a payload that [`encode`] wrote. `None`: [`encode`] never writes this payload.
#[must_use]
pub(crate) fn decode(payload: &[u8]) -> Option<Parent> {
    let mut r = Reader::new(payload);
    let uuid = Uuid(r.bytes(16)?.try_into().ok()?);
    let epoch = Epoch(r.u64()?);
    let is_named = uuid != Uuid::default() && r.remaining() == 0;
    is_named.then_some(Parent { uuid, epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../docs/formats/anchor.md");
        let example = page.split("```text hex").nth(4).unwrap();
        let example = example.split("```").next().unwrap();
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        let mut uuid = Uuid::default();
        (0..16u8).zip(&mut uuid.0).for_each(|(i, byte)| *byte = i);
        let parent = Parent {
            uuid,
            epoch: Epoch(999),
        };
        let bytes = encode(&parent);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        assert_eq!(decode(&bytes), Some(parent));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None);
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(decode(&longer), None);
        let unnamed = [&[0; 16], &bytes[16..]].concat();
        assert_eq!(decode(&unnamed), None);
    }
}
