//! The lives of the database by their numbers: the section `LIFE` of the anchor (docs/formats/anchor.md).
//!
//! An archive compares them, so that it never mixes the histories of two copies of a database.

use perdura_base::cursor::Reader;
use perdura_wal::Lineage;
pub(crate) use perdura_wal::lineage::SECTION;

/// Returns the section's payload.
#[must_use]
pub(crate) fn encode(lineage: &Lineage) -> Vec<u8> {
    let mut out = Vec::new();
    lineage.encode(&mut out);
    assert!(!out.is_empty(), "a lineage has its newest life");
    out
}

/// Decodes a payload that [`encode`] wrote. `None`: [`encode`] never writes this payload.
#[must_use]
pub(crate) fn decode(payload: &[u8]) -> Option<Lineage> {
    let mut r = Reader::new(payload);
    let lineage = Lineage::decode(&mut r)?;
    (r.remaining() == 0 && lineage != Lineage::default()).then_some(lineage)
}

#[cfg(test)]
mod tests {
    use perdura_base::{Epoch, Incarnation, LifeId};
    use perdura_wal::PastLife;

    use super::*;

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../docs/formats/anchor.md");
        let example = page.split("```text hex").nth(9).unwrap();
        let example = example.split("```").next().unwrap();
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        let lineage = Lineage {
            id: LifeId(0x1122_3344_5566_7788),
            past: vec![PastLife {
                id: LifeId(0x0102_0304_0506_0708),
                incarnation: Incarnation(3),
                end: Epoch(999),
            }],
        };
        let bytes = encode(&lineage);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        assert_eq!(decode(&bytes), Some(lineage));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None);
        }
        assert_eq!(decode(&[bytes.as_slice(), &[0]].concat()), None);
        assert_eq!(
            decode(&[0; 16]),
            None,
            "a lineage without lives is left out"
        );
    }
}
