//! Decides whether a frame is played. Compares the frame's sequence number in each of its partitions with the image's
//! number and with the numbers of earlier frames.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Error, PartitionId, Result};
use perdura_formats::ordered::Part;

use super::log::Entry;
use super::refuse;
use crate::families::Family;
use crate::rule::wanted;

/// The frames of one epoch that are to be played, and their order in the partitions' queues.
pub(super) struct Admitted {
    pub entries: Vec<Entry>,
    /// Each element: a partition, and the index in `entries` of a frame of this partition. Elements with the same
    /// partition are in the order of the frames' sequence numbers there.
    pub places: Vec<(PartitionId, usize)>,
}

/// The state from which frames are admitted: the sequence numbers of the image and of the frames admitted so far.
pub(super) struct Admission {
    /// For each partition, the highest sequence number that the image reflects.
    image: Vec<u64>,
    /// For each partition, the highest sequence number in the image and in the frames admitted so far.
    newest: Vec<u64>,
    target: Epoch,
    has_player: bool,
    reflected: u64,
    bytes: u64,
}

impl Admission {
    pub fn new(image: Vec<u64>, target: Epoch, has_player: bool) -> Admission {
        Admission {
            newest: image.clone(),
            image,
            target,
            has_player,
            reflected: 0,
            bytes: 0,
        }
    }

    /// Returns three figures: how many frames the image reflects, how many bytes all frames have, and the highest
    /// sequence number in each partition.
    pub fn into_figures(self) -> (u64, u64, Vec<u64>) {
        assert!(
            self.newest.iter().zip(&self.image).all(|(n, i)| n >= i),
            "numbers only rise above the image's"
        );
        (self.reflected, self.bytes, self.newest)
    }

    /// Decides which frames of one epoch are played, and returns these frames.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a frame that the image reflects only in part, or if a partition's numbers have a gap or a
    /// duplicate. [`Error::Usage`] if there is a frame to play and no player.
    pub fn admit(&mut self, entries: Vec<Entry>) -> Result<Admitted> {
        let mut kept = Vec::with_capacity(entries.len());
        for entry in entries {
            if !wanted(entry.head.origin.epoch, self.target) {
                continue;
            }
            self.bytes += entry.bytes.len();
            if self.is_reflected(&entry)? {
                self.reflected += 1;
            } else {
                kept.push(entry);
            }
        }
        let mut numbered: Vec<(Part, usize)> = Vec::with_capacity(kept.len());
        for (index, entry) in kept.iter().enumerate() {
            numbered.extend(entry.parts().iter().map(|part| (*part, index)));
        }
        numbered.sort_unstable();
        for ((partition, pseq), index) in &numbered {
            self.follow(*partition, *pseq, &kept[*index])?;
        }
        debug_assert!(
            numbered.windows(2).all(|two| two[0].0 < two[1].0),
            "the numbers of a partition rise"
        );
        if let Some(((..), first)) = numbered.first().filter(|_| !self.has_player) {
            return Err(unplayable(&mut kept[*first]));
        }
        let mut places: Vec<_> = numbered
            .into_iter()
            .map(|((partition, _), index)| (partition, index))
            .collect();
        debug_assert_eq!(
            places.len(),
            kept.iter().map(|entry| entry.parts().len()).sum::<usize>(),
            "each partition of each frame has a place"
        );
        if armed(Flaw::ColumnImagesUnordered) {
            places.reverse();
        }
        Ok(Admitted {
            entries: kept,
            places,
        })
    }

    /// Returns whether the image reflects a frame. Fails if the image reflects the frame in some of the frame's
    /// partitions but not in all.
    fn is_reflected(&self, entry: &Entry) -> Result<bool> {
        let mut has = 0;
        for (partition, pseq) in entry.parts() {
            let Some(image) = self.image.get(usize::from(partition.0)) else {
                return Err(refuse(
                    &entry.head.origin,
                    format!("partitions below {}", self.image.len()),
                    format!("an ordered frame of partition {partition}"),
                    "The checksums match, so this is a bug in Perdura. Copy the files and report \
                     the bug.",
                ));
            };
            has += usize::from(pseq <= image);
        }
        if has == 0 || has == entry.parts().len() {
            return Ok(has > 0);
        }
        let (mut inside, mut beyond) = (Vec::new(), Vec::new());
        for (partition, pseq) in entry.parts() {
            let image = self.image[usize::from(partition.0)];
            let list = if *pseq <= image {
                &mut inside
            } else {
                &mut beyond
            };
            list.push(format!("{pseq} of partition {partition} (image {image})"));
        }
        Err(refuse(
            &entry.head.origin,
            "a transaction that the image has in all its partitions, or in none".into(),
            format!(
                "the image has {}, not {}",
                inside.join(", "),
                beyond.join(", ")
            ),
            "The image mixes the states of two instants: this is a bug in Perdura. Copy the \
             files and report the bug. The older image may be intact.",
        ))
    }

    /// Stores `pseq` as the newest sequence number of a partition. Fails if `pseq` is not the previous newest number
    /// plus one.
    fn follow(&mut self, partition: PartitionId, pseq: u64, entry: &Entry) -> Result<()> {
        let newest = &mut self.newest[usize::from(partition.0)];
        let expected = *newest + 1;
        let is_gap = pseq > expected;
        if pseq == expected || (is_gap && armed(Flaw::SequenceGapIgnored)) {
            *newest = pseq;
            return Ok(());
        }
        let consequence = if is_gap {
            "Acknowledged transactions between them are missing: a part of the log was lost or \
             removed. Restore it from a backup."
        } else {
            "The same number was used twice: this is a bug in Perdura. Copy the files and report \
             the bug."
        };
        Err(refuse(
            &entry.head.origin,
            format!("transaction {expected} of partition {partition}"),
            format!("its transaction {pseq}"),
            consequence,
        ))
    }
}

/// Returns the error for a frame that is to be played although there is no player.
#[cold]
fn unplayable(entry: &mut Entry) -> Error {
    let family = entry.head.family;
    entry.with(|frame, origin| {
        let what = match family {
            Family::Effects => "changes of key-addressed tables".to_owned(),
            Family::Commands => match frame.command() {
                Ok(command) => format!("calls of procedure {}", command.procedure),
                Err(why) => return super::malformed(family, why, origin),
            },
        };
        let with = match family {
            Family::Effects => "a restart that can run them",
            Family::Commands => "the program that the procedure is part of",
        };
        Error::Usage(format!(
            "the log has {what} that no image has (stream {}, position {}), and only {with} can \
             apply them. Nothing is lost, and nothing was changed. Open the database with it",
            origin.stream, origin.pos
        ))
    })
}
