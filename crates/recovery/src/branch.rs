//! The name of the database's timeline: the section `TIML` of the anchor (docs/formats/anchor.md).
//!
//! A copy of a database that was set back continues on a named timeline. The archive of a named timeline has a folder
//! inside the directory of the archive, so it never meets the archive that the copy has left.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use perdura_base::Error;

/// The tag of the section.
pub(crate) const SECTION: [u8; 4] = *b"TIML";
/// The folder of the named timelines, in the directory of an archive.
pub const TIMELINES: &str = "timelines";
/// The maximum length of a name, bytes.
const NAME_BYTES_MAX: usize = 64;

/// The name of a timeline: 1 to 64 lower-case letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimelineName(String);

/// Returns the directory of a timeline's archive, in the directory of an archive. `None`: the first timeline, which has
/// no folder.
#[must_use]
pub fn timeline_dir(archive: &Path, timeline: Option<&TimelineName>) -> PathBuf {
    match timeline {
        Some(name) => archive.join(TIMELINES).join(&name.0),
        None => archive.to_owned(),
    }
}

impl FromStr for TimelineName {
    type Err = Error;

    /// Fails with [`Error::Usage`] if a character or the length is not allowed.
    fn from_str(name: &str) -> Result<TimelineName, Error> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain);
        match is_name {
            true => Ok(TimelineName(name.to_owned())),
            false => Err(Error::Usage(format!(
                "'{name}' cannot name a timeline. Give 1 to {NAME_BYTES_MAX} lower-case letters, digits, '-' and '_'"
            ))),
        }
    }
}

impl fmt::Display for TimelineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the section's payload.
#[must_use]
pub(crate) fn encode(name: &TimelineName) -> Vec<u8> {
    assert!(!name.0.is_empty(), "a name has a character");
    name.0.clone().into_bytes()
}

/// Decodes a payload that [`encode`] wrote. `None`: [`encode`] never writes this payload.
#[must_use]
pub(crate) fn decode(payload: &[u8]) -> Option<TimelineName> {
    str::from_utf8(payload).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../docs/formats/anchor.md");
        let example = page.split("```text hex").nth(10).unwrap();
        let example = example.split("```").next().unwrap();
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        let name: TimelineName = "after-monday".parse().unwrap();
        let bytes = encode(&name);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        assert_eq!(decode(&bytes), Some(name.clone()));
        assert_eq!(
            timeline_dir(Path::new("/a"), Some(&name)),
            Path::new("/a/timelines/after-monday")
        );
    }

    #[test]
    fn a_name_is_never_a_path() {
        for name in ["", ".", "..", "a/b", "A", "a b", "ä", &"a".repeat(65)] {
            assert!(name.parse::<TimelineName>().is_err(), "{name}");
            assert_eq!(decode(name.as_bytes()), None, "{name}");
        }
        assert_eq!(decode(&[0xff]), None);
    }
}
