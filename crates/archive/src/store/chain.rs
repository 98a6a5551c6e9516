//! The manifests in a folder: the newest undamaged manifest, and the damaged ones that are newer.
//!
//! A reader needs one manifest. So an older manifest is read only if every newer one is damaged. Damage of an older one
//! does not matter to a reader. [`check`] reads them all.

use perdura_base::num::to_usize;
use perdura_base::{Error, Result, Uuid};
use perdura_device::{Access, Disk, read_exact_at};

use crate::manifest::{Manifest, damage};

/// The maximum size of a manifest, in bytes. A file of this size would name two million objects. A larger file is
/// refused.
const BYTES_MAX: u64 = 80 * 1024 * 1024;

/// Returns the file name of a manifest.
pub(super) fn name(number: u64) -> String {
    format!("manifest-{number:020}")
}

/// Parses a [`name`]. Returns the manifest's number, or `None` for any other name.
fn parse(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-")?;
    let is_number = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Lists the numbers of the manifests in a folder, ascending.
pub(super) fn numbers(disk: &dyn Disk, dir: &str) -> Result<Vec<u64>> {
    let names = disk.list(dir)?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| parse(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The newest undamaged manifest of a folder.
pub(super) struct Newest {
    pub(super) manifest: Manifest,
    pub(super) crc: u32,
    /// The damage of each newer manifest, the newest first.
    pub(super) damaged: Vec<Error>,
    /// The numbers of all manifests in the folder, ascending.
    pub(super) numbers: Vec<u64>,
}

impl Newest {
    /// Returns the state before the first manifest. `manifest` is in no file.
    pub(super) fn of_none(manifest: Manifest) -> Newest {
        Newest {
            manifest,
            crc: 0,
            damaged: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Returns the highest number that a manifest in the folder has, damaged or not.
    pub(super) fn highest(&self) -> u64 {
        let highest = self.numbers.last().copied().unwrap_or_default();
        highest.max(self.manifest.number)
    }

    /// Returns the numbers of leftover manifests: they are older than the oldest kept one.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = u64> + '_ {
        let oldest = self.manifest.oldest;
        self.numbers
            .iter()
            .copied()
            .take_while(move |number| *number < oldest)
    }
}

fn read(disk: &dyn Disk, dir: &str, uuid: &Uuid, number: u64) -> Result<(Manifest, u32)> {
    let path = format!("{dir}/{}", name(number));
    let file = disk.open(&path, Access::Buffered)?;
    let len = file.len()?;
    if len > BYTES_MAX {
        let expected = format!("at most {BYTES_MAX} bytes");
        return Err(damage(&path, BYTES_MAX, expected, format!("{len}")));
    }
    let mut bytes = vec![0; to_usize(len)];
    read_exact_at(file.as_ref(), 0, &mut bytes)?;
    Manifest::decode(&path, &bytes, number, uuid)
}

/// Returns whether an error is damage of the one file that was read. A manifest of another database is in the wrong
/// place.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Foreign { .. })
}

/// Reads a folder's newest undamaged manifest. `None`: the folder has no manifest.
///
/// # Errors
/// [`Corrupt`](Error::Corrupt) if every manifest is damaged; [`Error::Version`] for a manifest of another build; errors
/// of the disk.
pub(super) fn newest(disk: &dyn Disk, dir: &str, uuid: &Uuid) -> Result<Option<Newest>> {
    let mut found = numbers(disk, dir)?;
    'listed: loop {
        let mut damaged = Vec::new();
        for number in found.iter().rev() {
            match read(disk, dir, uuid, *number) {
                Ok((manifest, crc)) => {
                    assert!(manifest.oldest <= *number, "a manifest keeps itself");
                    return Ok(Some(Newest {
                        manifest,
                        crc,
                        damaged,
                        numbers: found,
                    }));
                }
                Err(error) if is_damage(&error) => damaged.push(error),
                Err(error) if error.is_not_found() => {
                    // After the folder was listed, another writer removed old manifests. So it has made a newer one.
                    let again = numbers(disk, dir)?;
                    if again == found {
                        return Err(error);
                    }
                    found = again;
                    continue 'listed;
                }
                Err(error) => return Err(error),
            }
        }
        return match damaged.into_iter().next() {
            None => Ok(None),
            Some(newest) => Err(newest),
        };
    }
}

/// Reads the undamaged manifests whose numbers are higher than `above`, the lowest first.
///
/// # Errors
/// Errors of the disk, and [`Error::Version`].
pub(super) fn read_above(
    disk: &dyn Disk,
    dir: &str,
    uuid: &Uuid,
    above: u64,
) -> Result<Vec<Manifest>> {
    let mut read_some: Vec<Manifest> = Vec::new();
    for number in numbers(disk, dir)? {
        if number <= above {
            continue;
        }
        match read(disk, dir, uuid, number) {
            Ok((manifest, _)) => {
                assert_eq!(
                    manifest.number, number,
                    "a manifest has the number of its name"
                );
                read_some.push(manifest);
            }
            Err(error) if is_damage(&error) || error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read_some)
}

/// Reads every kept manifest. Returns the damage of each: a file that does not decode, or that has another checksum than
/// its successor names.
///
/// # Errors
/// Errors of the disk, and [`Error::Version`].
pub(super) fn check(disk: &dyn Disk, dir: &str, uuid: &Uuid) -> Result<Vec<Error>> {
    let mut faults = Vec::new();
    let mut predecessor: Option<(u64, u32)> = None;
    for number in numbers(disk, dir)? {
        match read(disk, dir, uuid, number) {
            Ok((manifest, crc)) => {
                let named = predecessor.filter(|_| manifest.predecessor != 0);
                if let Some((before, found)) = named
                    && before + 1 == number
                    && found != manifest.predecessor
                {
                    let path = format!("{dir}/{}", name(before));
                    let expected = format!(
                        "the checksum {:08x}, which its successor names",
                        manifest.predecessor
                    );
                    faults.push(damage(&path, 0, expected, format!("{found:08x}")));
                }
                predecessor = Some((number, crc));
            }
            Err(error) if is_damage(&error) => {
                faults.push(error);
                predecessor = None;
            }
            // A writer has removed it since the folder was listed.
            Err(error) if error.is_not_found() => predecessor = None,
            Err(error) => return Err(error),
        }
    }
    Ok(faults)
}
