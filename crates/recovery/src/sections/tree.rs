//! The anchor's entry for a tree: the section `TREE` (docs/formats/anchor.md).

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Gsn};
use perdura_page::tree_page::SIZES;
use perdura_wal::Scheme;

/// The tree's folder on the data disk.
pub const TREE_DIR: &str = "tree";
/// The tag of the section.
pub const SECTION: [u8; 4] = *b"TREE";

/// The anchor's entry for a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeAnchor {
    /// The scheme of the tree's log records.
    pub scheme: Scheme,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The redo start of the newest complete checkpoint. The pages on disk have the changes of all operations with
    /// lower numbers.
    pub rssp: Gsn,
    /// The checkpoint epoch of the newest complete checkpoint; 0 if no checkpoint has completed.
    pub k: CkptEpoch,
}

/// The files that hold the pages with the clients' rows.
pub enum RowPages<'a> {
    /// The pages are in the images.
    Images,
    /// The pages are in the file of this tree.
    Tree(&'a TreeAnchor),
}

/// Returns the section's payload.
#[must_use]
pub(crate) fn encode(tree: &TreeAnchor) -> Vec<u8> {
    assert_eq!(
        tree.rssp == Gsn(0),
        tree.k == CkptEpoch(0),
        "a redo start is that of a checkpoint"
    );
    let mut out = Vec::with_capacity(24);
    assert!(tree.scheme.has_tree(), "the scheme is one of trees");
    out.put_u32(to_u32(tree.page_bytes));
    out.put_u8(tree.scheme.code());
    out.put_zeros(3);
    out.put_u64(tree.rssp.0);
    out.put_u64(tree.k.0);
    debug_assert_eq!(
        decode(&out, Scheme::Differential),
        Some(*tree),
        "the section reads back"
    );
    out
}

/// Decodes the section's payload. A payload that an older build wrote may name no scheme. In that case the tree has
/// the database's scheme, `of_database`. `None`: the payload is invalid, so neither [`encode`] nor an older build wrote
/// it.
#[must_use]
pub(crate) fn decode(payload: &[u8], of_database: Scheme) -> Option<TreeAnchor> {
    let mut r = Reader::new(payload);
    let page_bytes = to_usize(u64::from(r.u32()?));
    let scheme = match r.u8()? {
        0 => of_database,
        code => Scheme::from_code(code)?,
    };
    r.zeros(3)?;
    let (rssp, k) = (Gsn(r.u64()?), CkptEpoch(r.u64()?));
    let is_size = page_bytes.is_power_of_two() && SIZES.contains(&page_bytes);
    let fits = is_size && scheme.has_tree() && (rssp.0 == 0) == (k.0 == 0);
    (fits && r.remaining() == 0).then_some(TreeAnchor {
        scheme,
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
            scheme: Scheme::Logical,
            page_bytes: 8192,
            rssp: Gsn(70_000),
            k: CkptEpoch(5),
        };
        let bytes = encode(&tree);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        let of_heap = Scheme::Differential;
        assert_eq!(decode(&bytes, of_heap), Some(tree));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], of_heap), None);
        }
        let odd = |at: usize, byte: u8| {
            let mut odd = bytes.clone();
            odd[at] = byte;
            decode(&odd, of_heap)
        };
        assert_eq!(odd(0, 1), None, "a size that no page has");
        assert_eq!(odd(4, 0), None, "no scheme of trees is named");
        assert_eq!(odd(4, Scheme::Dl1p.code()), None);
        assert_eq!(odd(5, 1), None);
        let mut older = bytes.clone();
        older[4] = 0;
        assert_eq!(decode(&older, Scheme::Logical), Some(tree));
        assert_eq!(odd(16, 0), None, "a redo start of no checkpoint");
        assert_eq!(decode(&[bytes.as_slice(), &[0]].concat(), of_heap), None);
    }
}
