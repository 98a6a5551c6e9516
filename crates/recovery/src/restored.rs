//! The image of a restored database: the section `RSTR` of the anchor (docs/formats/anchor.md).
//!
//! A restore with ordered frames makes an image with a new checkpoint epoch, above all tags of the parent. The rows of
//! its key-addressed tables are older: they are as of a backup or an increment. The catalog may list a dropped table with a tag of the
//! parent. Whether the image has the rows of that table depends on the checkpoint epoch of that file.

use perdura_base::CkptEpoch;
use perdura_base::cursor::{Reader, Writer};

/// The tag of the section.
pub(crate) const SECTION: [u8; 4] = *b"RSTR";

/// The image that a restore made, and the file that its key-addressed rows are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoredRows {
    /// The checkpoint epoch of the image.
    pub image: CkptEpoch,
    /// The checkpoint epoch of the backup or the increment. 0: no backup, so the image has no key-addressed row.
    pub backup: CkptEpoch,
}

/// Returns the section's payload.
#[must_use]
pub(crate) fn encode(restored: &RestoredRows) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    out.put_u64(restored.image.0);
    out.put_u64(restored.backup.0);
    out
}

/// Decodes a payload that [`encode`] wrote. `None`: [`encode`] never writes this payload.
#[must_use]
pub(crate) fn decode(payload: &[u8]) -> Option<RestoredRows> {
    let mut r = Reader::new(payload);
    let restored = RestoredRows {
        image: CkptEpoch(r.u64()?),
        backup: CkptEpoch(r.u64()?),
    };
    (restored.backup < restored.image && r.remaining() == 0).then_some(restored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../docs/formats/anchor.md");
        let example = page.split("```text hex").nth(11).unwrap();
        let example = example.split("```").next().unwrap();
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        let restored = RestoredRows {
            image: CkptEpoch(9),
            backup: CkptEpoch(4),
        };
        let bytes = encode(&restored);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        assert_eq!(decode(&bytes), Some(restored));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None);
        }
        assert_eq!(decode(&[bytes.as_slice(), &[0]].concat()), None);
        assert_eq!(decode(&[0; 16]), None, "a backup is older than the image");
    }
}
