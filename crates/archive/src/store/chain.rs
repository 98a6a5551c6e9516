//! The chain of manifests in a folder: the newest manifest and its predecessors.

use perdura_base::num::{to_u64, to_usize};
use perdura_base::{Result, Uuid};
use perdura_device::{Access, Disk, read_exact_at};

use crate::manifest::{FIRST, Manifest, damage};

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

/// The manifests from the oldest kept one to the newest.
pub(super) struct Chain {
    /// The manifests, ascending, each with its checksum. There is at least one.
    pub(super) links: Vec<(Manifest, u32)>,
    /// The numbers of leftover manifests: they are older than the oldest kept one and can be removed.
    pub(super) leftovers: Vec<u64>,
}

impl Chain {
    /// Returns the newest manifest and its checksum.
    pub(super) fn newest(&self) -> &(Manifest, u32) {
        self.links.last().expect("a chain has a link")
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

/// Reads the kept manifests up to manifest `highest`.
fn follow(disk: &dyn Disk, dir: &str, uuid: &Uuid, highest: u64) -> Result<Chain> {
    let mut links = vec![read(disk, dir, uuid, highest)?];
    let oldest = links[0].0.oldest;
    assert!(
        (FIRST..=highest).contains(&oldest),
        "a manifest that was decoded keeps itself"
    );
    for number in (oldest..highest).rev() {
        let expected = links[links.len() - 1].0.predecessor;
        let (manifest, crc) = read(disk, dir, uuid, number)?;
        if crc != expected {
            return Err(damage(
                &format!("{dir}/{}", name(number)),
                0,
                format!("the checksum {expected:08x}, which its successor names"),
                format!("{crc:08x}"),
            ));
        }
        links.push((manifest, crc));
    }
    links.reverse();
    debug_assert_eq!(
        to_u64(links.len()),
        highest - oldest + 1,
        "each number is there"
    );
    Ok(Chain {
        links,
        leftovers: Vec::new(),
    })
}

/// Reads a folder's newest manifest and the kept manifests before it. `None`: the folder has no manifest.
///
/// # Errors
/// [`Corrupt`](perdura_base::Error::Corrupt) for a missing or damaged manifest, and for a checksum that differs from
/// the next manifest's copy; errors of the disk.
pub(super) fn newest(disk: &dyn Disk, dir: &str, uuid: &Uuid) -> Result<Option<Chain>> {
    let mut found = numbers(disk, dir)?;
    loop {
        let Some(highest) = found.last().copied() else {
            return Ok(None);
        };
        let followed = follow(disk, dir, uuid, highest);
        let is_gone = matches!(&followed, Err(error) if error.is_not_found());
        if !is_gone {
            return followed.map(|mut chain| {
                let oldest = chain.links[0].0.number;
                found.retain(|number| *number < oldest);
                chain.leftovers = found;
                Some(chain)
            });
        }
        // After the folder was listed, another writer may have removed the oldest manifests. Then that writer has also
        // made a newer one.
        let again = numbers(disk, dir)?;
        if again.last() <= Some(&highest) {
            let missing = (FIRST..highest).rev().find(|n| !again.contains(n));
            let missing = missing.unwrap_or(highest);
            return Err(damage(
                &format!("{dir}/{}", name(missing)),
                0,
                format!("a manifest, because manifest {highest} follows it"),
                "no file",
            ));
        }
        found = again;
    }
}
