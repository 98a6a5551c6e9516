//! The section `MIRR` of the anchor (docs/formats/anchor.md): the writer whose acknowledged transactions may be on
//! other nodes only.
//!
//! The section is made durable before the first transaction is acknowledged that only nodes hold. It is removed when
//! the whole log is on disk again and no more such transactions will be acknowledged. While the section is there, the
//! database never starts from its disks alone. The log is first fetched from the arbiter and the nodes, or the operator
//! gives up the part that only they may hold.

use perdura_base::cursor::{Reader, Writer};

/// The tag of the section.
pub const SECTION: [u8; 4] = *b"MIRR";

/// The writer whose acknowledged transactions may be on other nodes only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirrored {
    /// Its generation.
    pub generation: u64,
}

/// Returns the section's payload.
#[must_use]
pub(crate) fn encode(mirrored: Mirrored) -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    out.put_u64(mirrored.generation);
    assert_eq!(out.len(), 8, "a generation");
    out
}

/// Decodes a payload of [`encode`]. `None`: [`encode`] does not write such a payload.
#[must_use]
pub(crate) fn decode(payload: &[u8]) -> Option<Mirrored> {
    let mut r = Reader::new(payload);
    let generation = r.u64()?;
    (generation > 0 && r.remaining() == 0).then_some(Mirrored { generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../../docs/formats/anchor.md");
        let example = page.rsplit("```text hex").nth(1).unwrap();
        let example = example.split("```").next().unwrap();
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        let bytes = encode(Mirrored { generation: 7 });
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        assert_eq!(decode(&bytes), Some(Mirrored { generation: 7 }));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None);
        }
        assert_eq!(decode(&[0; 8]), None);
        assert_eq!(decode(&[1; 9]), None);
    }
}
