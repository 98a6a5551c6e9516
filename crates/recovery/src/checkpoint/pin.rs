//! Pins, which keep checkpoints from overwriting an image while it is copied.

use std::sync::Arc;

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Error, ImageSlot, Result};

use super::Checkpointer;
use crate::anchor::Anchor;

/// The number of pins on each image.
pub(super) type Pins = Arc<Mutex<[u32; 2]>>;

/// The right to read the newest image: while it is held, no checkpoint begins to overwrite the image.
pub struct Pin {
    anchor: Arc<Anchor>,
    slot: ImageSlot,
    pins: Pins,
}

impl Pin {
    /// Returns the anchor that names the image as the newest.
    #[must_use]
    pub fn anchor(&self) -> &Arc<Anchor> {
        &self.anchor
    }

    /// Returns the image.
    #[must_use]
    pub fn slot(&self) -> ImageSlot {
        self.slot
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.pins.lock();
        assert!(
            pins[self.slot.index()] > 0,
            "an image that is held is let go"
        );
        pins[self.slot.index()] -= 1;
    }
}

impl Checkpointer {
    /// Pins the newest image. `None`: no image is complete.
    #[must_use]
    pub fn pin_newest(&self) -> Option<Pin> {
        let anchor = self.parts.anchor.get();
        let slot = anchor.newest_image()?;
        assert!(
            anchor.image(slot).is_complete(),
            "no checkpoint overwrites the newest image"
        );
        self.pins.lock()[slot.index()] += 1;
        Some(Pin {
            anchor,
            slot,
            pins: Arc::clone(&self.pins),
        })
    }

    /// Returns whether a pin holds the image that the next checkpoint is to overwrite.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.check_pin(self.next_slot()).is_err()
    }

    /// Returns the image that the next checkpoint overwrites.
    pub(super) fn next_slot(&self) -> ImageSlot {
        let newest = self.parts.anchor.get().newest_image();
        newest.map_or(ImageSlot::A, ImageSlot::other)
    }

    pub(super) fn check_pin(&self, slot: ImageSlot) -> Result<()> {
        let held = self.pins.lock()[slot.index()];
        if held == 0 || armed(Flaw::PinnedSlotOverwritten) {
            return Ok(());
        }
        Err(Error::Cancelled(format!(
            "image {slot} is being copied into the archive. It is overwritten after that"
        )))
    }
}
