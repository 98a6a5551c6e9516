//! Patches. A patch has the changed columns of a value; the value log consists of patches (docs/formats/typed-row.md).

use std::ops::Range;

use perdura_base::Result;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::to_u64;
use smallvec::SmallVec;

use crate::layout::{Place, bytes_of};
use crate::schema::{Schema, damaged};

/// The number of bytes compared at a time.
const WORD: usize = 8;

/// The parts that may differ between two values. Only columns in these parts are compared. This saves time, because
/// most changes are of a few neighbouring columns.
#[derive(Debug)]
struct Near {
    /// A range of bytes in the value. Each fixed column that differs overlaps this range.
    fixed: Range<usize>,
    /// True if a variable column may differ between the two values.
    variable: bool,
}

impl Near {
    fn of(fixed_bytes: usize, before: &[u8], after: &[u8]) -> Near {
        let (Some((old, old_rest)), Some((new, new_rest))) = (
            before.split_at_checked(fixed_bytes),
            after.split_at_checked(fixed_bytes),
        ) else {
            // One of the values is malformed. The comparison of the columns will report this.
            let fixed = 0..fixed_bytes;
            let variable = true;
            return Near { fixed, variable };
        };
        let words = || old.chunks(WORD).zip(new.chunks(WORD));
        let from = words().position(|(old, new)| old != new);
        let to = words().rposition(|(old, new)| old != new);
        let fixed = from
            .zip(to)
            .map_or(0..0, |(from, to)| from * WORD..(to + 1) * WORD);
        let variable = old_rest != new_rest;
        Near { fixed, variable }
    }

    fn may_differ(&self, place: Place) -> bool {
        match place {
            Place::Fixed { at, bytes } => at < self.fixed.end && self.fixed.start < at + bytes,
            Place::Variable { .. } => self.variable,
        }
    }
}

impl Schema {
    /// Appends the patch that turns the value `before` into the value `after`.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) if one of the values is malformed.
    pub fn patch(&self, before: &[u8], after: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let layout = self.layout();
        let near = Near::of(layout.fixed_bytes, before, after);
        let mut mask = 0u64;
        let mut changed = SmallVec::<[(Place, &[u8]); 8]>::new();
        let places = self.places().iter().enumerate();
        for (at, place) in places.filter(|(_, place)| near.may_differ(**place)) {
            let column = |value| {
                let column = layout.column(*place, value);
                column.ok_or_else(|| self.damaged_column(at, value))
            };
            let image = column(after)?;
            if column(before)? != image {
                mask |= 1 << at;
                changed.push((*place, image));
            }
        }
        debug_assert_eq!(
            usize::try_from(mask.count_ones()),
            Ok(changed.len()),
            "a bit for each image"
        );
        out.put_varint(mask);
        for (place, image) in changed {
            if let Place::Variable { .. } = place {
                out.put_varint(to_u64(image.len()));
            }
            out.put(image);
        }
        Ok(())
    }

    /// Returns `before` with a patch applied.
    ///
    /// # Errors
    /// [`Error::Corrupt`](perdura_base::Error::Corrupt) if the value or the patch is malformed.
    pub fn apply_patch(&self, before: &[u8], patch: &[u8]) -> Result<Vec<u8>> {
        let layout = self.layout();
        if !layout.is_whole(before) {
            self.check_value(before)?;
        }
        let mut r = Reader::new(patch);
        let no_patch =
            |expected: String| damaged(self.name(), 0, expected, format!("{patch:02x?}"));
        let mask = r.varint();
        let known = u64::MAX.checked_shl(u32::try_from(self.columns().len()).unwrap_or(64));
        let mask = mask.filter(|mask| mask & known.unwrap_or(0) == 0);
        let mask = mask.ok_or_else(|| no_patch("the mask of a patch".to_owned()))?;
        let mut after = before.to_vec();
        let mut variables = SmallVec::<[Option<&[u8]>; 16]>::from_elem(None, layout.variables);
        let mut longer = false;
        for (at, place) in self.places().iter().enumerate() {
            if mask & 1 << at == 0 {
                continue;
            }
            let len = match *place {
                Place::Fixed { bytes, .. } => Some(bytes),
                Place::Variable { .. } => r.varint_usize(),
            };
            let column = &self.columns()[at];
            let image = len.and_then(|len| r.bytes(len));
            let image = image.filter(|image| column.kind.holds(image));
            let image =
                image.ok_or_else(|| no_patch(format!("the image of column {}", column.name)))?;
            match *place {
                Place::Fixed { at, bytes } => after[at..at + bytes].copy_from_slice(image),
                Place::Variable { index } => {
                    variables[index] = Some(image);
                    longer = true;
                }
            }
        }
        if r.remaining() > 0 {
            let left = bytes_of(&patch[r.at()..]);
            return Err(no_patch(format!("the end of a patch, {left} earlier")));
        }
        if longer {
            after.truncate(layout.fixed_bytes);
            let mut writer = layout.variables(&mut after);
            for (index, image) in variables.iter().enumerate() {
                let old = || layout.column(Place::Variable { index }, before);
                writer.put(|out| out.extend_from_slice(image.or_else(old).unwrap_or_default()));
            }
            writer.finish();
        }
        debug_assert!(layout.is_whole(&after), "whole values stay whole");
        Ok(after)
    }
}

#[cfg(test)]
mod tests;
