//! What the anchor says of a tree: the section `TREE` (docs/formats/anchor.md).

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Gsn};
use perdura_page::tree_page::SIZES;

/// The tree's folder on the data disk.
pub const TREE_DIR: &str = "tree";
/// The tag of the section.
pub const SECTION: [u8; 4] = *b"TREE";

/// What the anchor says of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeAnchor {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The redo start of the newest checkpoint that has ended: what was changed by operations below it is in the pages.
    pub rssp: Gsn,
    /// That checkpoint; 0 if there was none.
    pub k: CkptEpoch,
}

/// The section's payload.
#[must_use]
pub(crate) fn encode(tree: &TreeAnchor) -> Vec<u8> {
    assert_eq!(
        tree.rssp == Gsn(0),
        tree.k == CkptEpoch(0),
        "a redo start is that of a checkpoint"
    );
    let mut out = Vec::with_capacity(24);
    out.put_u32(to_u32(tree.page_bytes));
    out.put_zeros(4);
    out.put_u64(tree.rssp.0);
    out.put_u64(tree.k.0);
    debug_assert_eq!(decode(&out), Some(*tree), "the section reads back");
    out
}

/// The inverse of [`encode`]; `None` for what it does not write.
#[must_use]
pub(crate) fn decode(payload: &[u8]) -> Option<TreeAnchor> {
    let mut r = Reader::new(payload);
    let page_bytes = to_usize(u64::from(r.u32()?));
    r.zeros(4)?;
    let (rssp, k) = (Gsn(r.u64()?), CkptEpoch(r.u64()?));
    let is_size = page_bytes.is_power_of_two() && SIZES.contains(&page_bytes);
    let fits = is_size && (rssp.0 == 0) == (k.0 == 0);
    (fits && r.remaining() == 0).then_some(TreeAnchor {
        page_bytes,
        rssp,
        k,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../../docs/formats/anchor.md");
        let example = page.split("The payload of `TREE`").nth(1);
        let example = example.and_then(|rest| rest.split("```").nth(1));
        let digits: String = example
            .expect("an example")
            .trim_start_matches("text hex")
            .chars()
            .filter(char::is_ascii_hexdigit)
            .collect();
        let tree = TreeAnchor {
            page_bytes: 8192,
            rssp: Gsn(70_000),
            k: CkptEpoch(5),
        };
        let bytes = encode(&tree);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        assert_eq!(decode(&bytes), Some(tree));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None);
        }
        let odd = |at: usize, byte: u8| {
            let mut odd = bytes.clone();
            odd[at] = byte;
            decode(&odd)
        };
        assert_eq!(odd(0, 1), None, "a size that no page has");
        assert_eq!(odd(4, 1), None);
        assert_eq!(odd(16, 0), None, "a redo start of no checkpoint");
        assert_eq!(decode(&[bytes.as_slice(), &[0]].concat()), None);
    }
}
