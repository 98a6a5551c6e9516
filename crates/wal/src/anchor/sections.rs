//! Sections of the anchor: the parts of other components. The log does not read the bytes of a section.

use std::fmt;

/// The name of a section; the format page lists the tags and their owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub [u8; 4]);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// One component's part of the anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The tag, which identifies the owner.
    pub tag: Tag,
    /// True if a build that does not know the tag must refuse to open the database.
    pub required: bool,
    /// The payload, which only the owner interprets.
    pub bytes: Vec<u8>,
}

/// All sections of a record, in their order. Tags are distinct.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sections(Vec<Section>);

impl Sections {
    /// Returns the sections, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Section> {
        self.0.iter()
    }

    /// Returns the number of sections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the section with this tag.
    #[must_use]
    pub fn get(&self, tag: Tag) -> Option<&Section> {
        self.iter().find(|section| section.tag == tag)
    }

    /// Removes the section with this tag, if there is one.
    pub fn remove(&mut self, tag: Tag) {
        self.0.retain(|section| section.tag != tag);
    }

    /// Replaces the section with this tag, or adds the section at the end.
    pub fn set(&mut self, tag: Tag, required: bool, bytes: Vec<u8>) {
        let section = Section {
            tag,
            required,
            bytes,
        };
        match self.0.iter_mut().find(|section| section.tag == tag) {
            Some(old) => *old = section,
            None => self.0.push(section),
        }
    }
}
