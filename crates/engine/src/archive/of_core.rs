//! The facts about a database that the writer of its archive needs.

use perdura_archive::Images as ArchiveImages;
use perdura_base::{Epoch, Error, Pos, Result};
use perdura_recovery::images::ImageState;
use perdura_wal::EpochEnds;

use crate::core::Core;

impl Core {
    /// Returns the start of an archive of this database. The archive starts with the lowest epoch of the newest image.
    /// If the database has no image, the archive starts with the log.
    ///
    /// # Errors
    /// [`Error::Usage`] if an older build made the newest image. Older builds do not store an image's lowest epoch. The
    /// next checkpoint stores it.
    pub fn archive_start(&self) -> Result<EpochEnds> {
        let anchor = self.anchor().get();
        let Some(slot) = anchor.newest_image() else {
            return Ok(EpochEnds {
                epoch: Epoch(0),
                ends: vec![Pos(0); usize::from(anchor.streams)],
            });
        };
        let image = anchor.image(slot);
        let begin = image.begin_epoch.ok_or_else(|| {
            Error::Usage(
                "the newest image was made by an older build, and an archive cannot begin with \
                 it. Take a checkpoint"
                    .into(),
            )
        })?;
        assert!(begin > Epoch(0), "epochs count from 1");
        Ok(EpochEnds {
            epoch: Epoch(begin.0 - 1),
            ends: image.cover.begin.clone(),
        })
    }

    /// Returns the encoded record of the anchor. The archive's manifests contain this record.
    #[must_use]
    pub fn anchor_for_archive(&self) -> Vec<u8> {
        self.anchor().get().to_record().encode()
    }

    /// Returns the checkpoint epochs of the images that exist or are being built.
    #[must_use]
    pub fn images_for_archive(&self) -> ArchiveImages {
        let anchor = self.anchor().get();
        let mut images = ArchiveImages::default();
        for image in anchor.images.iter() {
            match image.state() {
                ImageState::Empty => {}
                ImageState::Building => images.building = Some(image.k),
                ImageState::Complete => images.retained.push(image.k),
            }
        }
        assert!(
            images
                .building
                .is_none_or(|k| !images.retained.contains(&k)),
            "an image is whole or being built"
        );
        images
    }
}
