//! The space on the devices that experiments use, checked before anything is measured.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use perdura_device::in_memory;
use rustix::fs::statvfs;

use super::scratch::Scratch;
use crate::num::f64_of;

/// The directories on one device.
#[derive(Default)]
pub(super) struct Device<'a> {
    /// The directories.
    pub dirs: Vec<&'a Path>,
    /// The space that is needed in all of them, bytes.
    pub need: u64,
}

impl Device<'_> {
    fn names(&self) -> String {
        let names = self.dirs.iter().map(|dir| dir.display().to_string());
        names.collect::<Vec<_>>().join(" and ")
    }
}

/// Returns the number of a directory's device. Fails if no directory can be made in it.
pub(super) fn usable(argument: &str, dir: &Path) -> Result<u64, String> {
    let shown = dir.display();
    let found = fs::metadata(dir)
        .map_err(|e| format!("{argument} {shown}: {e}; make the directory, or name another one"))?;
    if !found.is_dir() {
        return Err(format!(
            "{argument} {shown} is not a directory; name a directory on the disk"
        ));
    }
    match Scratch::within(dir) {
        Ok(_) => Ok(found.dev()),
        Err(e) => Err(format!(
            "{argument} {shown} is not writable: {}; name a directory in which you may make others",
            e.root_cause()
        )),
    }
}

/// Fails if a device has too little free space.
pub(super) fn check_space(device: &Device<'_>) -> Result<(), String> {
    let Some(dir) = device.dirs.first() else {
        return Ok(());
    };
    let found = statvfs(*dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free < device.need {
        return Err(format!(
            "{}: up to {} are needed and {} are free; name directories on larger disks, or use a smaller --scale",
            device.names(),
            megabytes(device.need),
            megabytes(free)
        ));
    }
    Ok(())
}

/// Returns the notes on a device: whether disks share it, and whether it is memory.
pub(super) fn notes_on(device: &Device<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if device.dirs.len() > 1 {
        notes.push(format!(
            "{} are on one device: they share its rate",
            device.names()
        ));
    }
    let memory = device.dirs.first().and_then(|dir| in_memory(dir));
    notes
        .extend(memory.map(|memory| format!("{}: {memory} is memory and no disk", device.names())));
    notes
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", f64_of(bytes) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_space_is_refused_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let device = Device {
            dirs: vec![dir.path()],
            need: u64::MAX,
        };
        let why = check_space(&device).unwrap_err();
        assert!(why.contains("18446744073710 MB are needed"), "{why}");
        assert!(why.contains("MB are free"), "{why}");
    }
}
