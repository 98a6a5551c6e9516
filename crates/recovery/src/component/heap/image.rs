//! The check of an image: each page is compared with the directory that lists it.

use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::to_u64;
use perdura_base::{Error, ImageSlot, PartitionId, Result};
use perdura_device::AlignedBuf;
use perdura_heap::build::check_page;

use crate::anchor::Anchor;
use crate::findings::{Findings, ImageFindings, Problem};
use crate::image::{ImageFile, PageSummer, Places, disk_of, pages_path, read_directory};
use crate::options::RestartOptions;

/// Checks an image: the files, the directory, and each page.
pub(super) fn check_image(
    options: &RestartOptions,
    anchor: &Anchor,
    slot: ImageSlot,
    found: &mut Findings,
) {
    let status = anchor.image(slot);
    let mut image = ImageFindings {
        slot: slot.to_string(),
        state: status.state().name(),
        checkpoint: status.k.0,
        pages: 0,
        bytes: 0,
        proof: None,
    };
    let disks = options.disks.images.iter();
    let files: Result<Vec<ImageFile>, Error> = disks
        .map(|disk| ImageFile::open(disk.as_ref(), slot, &anchor.uuid))
        .collect();
    match files {
        Err(error) => found.problem(pages_path(slot), &error),
        Ok(files) if status.is_complete() => {
            let pages = ImagePages {
                files,
                places: Places::of(anchor),
                summer: PageSummer::new(),
            };
            pages.check(options, anchor, slot, &mut image, found);
        }
        Ok(_) => {}
    }
    found.images.push(image);
}

/// The pages files of an image.
struct ImagePages {
    files: Vec<ImageFile>,
    places: Places,
    summer: PageSummer,
}

impl ImagePages {
    /// Checks each page that the directory lists.
    fn check(
        &self,
        options: &RestartOptions,
        anchor: &Anchor,
        slot: ImageSlot,
        image: &mut ImageFindings,
        found: &mut Findings,
    ) {
        let geometry = anchor.geometry;
        let data = options.disks.data.as_ref();
        let listed = match read_directory(data, anchor, slot, &geometry) {
            Ok(listed) => listed,
            Err(error) => return found.problem(format!("directory of image {slot}"), &error),
        };
        image.proof = Some(format!("{:016x}", listed.directory.proof(&geometry)));
        let mut page = AlignedBuf::zeroed(PAGE_BYTES);
        for partition in (0..geometry.partitions).map(PartitionId) {
            let file = &self.files[disk_of(partition, self.files.len())];
            for (local, entry) in listed.directory.present(partition) {
                let id = geometry
                    .page_id(partition, local)
                    .expect("checked by the reader");
                image.pages += 1;
                image.bytes += to_u64(PAGE_BYTES);
                let place = self.places.place(id);
                let read = file.read(place, &mut page);
                let what = match read {
                    Err(error) => error.to_string(),
                    Ok(got) if got < PAGE_BYTES => {
                        format!("page {id} is beyond the end of the file")
                    }
                    Ok(_) if !ImageFile::is_listed(id, &page, &entry) => {
                        format!("page {id} differs from the page that the directory lists")
                    }
                    Ok(_) if self.summer.digest(&page) != entry.digest => {
                        format!("the digest of page {id} differs from the listed one")
                    }
                    Ok(_) => match check_page(id, &page) {
                        Ok(_) => continue,
                        Err(error) => error.to_string(),
                    },
                };
                let (file, offset) = (pages_path(slot), Some(place.offset()));
                found.problems.push(Problem { file, offset, what });
            }
        }
    }
}
