//! The section `MIRR` of the anchor (docs/formats/anchor.md). It names a writer. This writer's acknowledged
//! transactions may be only in the memory of nodes, and not on the log's disks.
//!
//! The writer may acknowledge transactions before the log's disks have them. The section is made durable before the
//! first such acknowledgement. It is removed when the whole log is on disk again and no such acknowledgement will
//! follow. While the anchor has the section, the database never starts from its disks alone. First the log is fetched
//! from the arbiter and the nodes, or the operator gives up the part of the log that only the nodes may hold.

use perdura_base::cursor::{Reader, Writer};

/// The tag of the section.
pub const SECTION: [u8; 4] = *b"MIRR";

/// The writer whose acknowledged transactions may be only in the memory of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirrored {
    /// The writer's generation.
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

/// Decodes a payload of the section. `None`: the payload is invalid, so [`encode`] did not write it.
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
        let example = page.split("```text hex").nth(7).unwrap();
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
