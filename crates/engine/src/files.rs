//! The data directory: who may open it, and what the machine offers.

use std::path::Path;
use std::sync::Arc;

use perdura_base::limits::FORMAT_VERSION;
use perdura_base::{Error, Result};
use perdura_device::{Access, Disk, FileDisk};

use crate::options::Options;
use perdura_wal::segment::SegmentId;

const VERSION_PATH: &str = "VERSION";
const LOCK_PATH: &str = "LOCK";

/// Names that may stand in a data directory without an anchor: what a creation leaves that did
/// not get that far, and what file systems put there.
const KNOWN: [&str; 8] = [
    "LOCK",
    "VERSION",
    "VERSION.tmp",
    "anchor.tmp",
    "image-a",
    "image-b",
    "log",
    "lost+found",
];

/// The disks of a database in a directory, with its lock held.
pub struct OpenedFiles {
    /// The data directory.
    pub data: Arc<dyn Disk>,
    /// The disk of each stream.
    pub logs: Vec<Arc<dyn Disk>>,
    /// Held as long as the database is open.
    pub locks: Vec<Box<dyn std::any::Any + Send + Sync>>,
}

/// Opens and locks the directories of a database.
///
/// # Errors
/// [`Error::Locked`], [`Error::Version`], [`Error::Foreign`] for a directory that holds other
/// people's files.
pub fn open(options: &Options) -> Result<OpenedFiles> {
    let disk = FileDisk::new(&options.data)?;
    let data: Arc<dyn Disk> = Arc::new(disk);
    let names = data.list("")?;
    let exists = names
        .iter()
        .any(|name| name == perdura_wal::anchor::ANCHOR_PATH);
    if let Some(stranger) = names
        .iter()
        .find(|name| !exists && !KNOWN.contains(&name.as_str()))
    {
        return Err(Error::Foreign {
            file: format!("{}/{stranger}", data.name()),
            why: "the directory holds files but no database; give a new or empty one".into(),
        });
    }
    if !exists {
        refuse_leftovers(data.as_ref(), &names)?;
    }
    let mut locks = vec![data.lock(LOCK_PATH)?];
    check_version(data.as_ref(), names.iter().any(|name| name == VERSION_PATH))?;
    let mut logs: Vec<Arc<dyn Disk>> = Vec::new();
    for stream in 0..usize::from(options.streams) {
        let dir = match options.log_dirs.len() {
            0 => None,
            1 => options.log_dirs.first(),
            _ => options.log_dirs.get(stream),
        };
        logs.push(match dir {
            None => Arc::clone(&data),
            Some(dir) => {
                if exists {
                    expect_log_dir(dir, stream)?;
                }
                open_log_dir(dir, &mut locks, stream)?
            }
        });
    }
    Ok(OpenedFiles { data, logs, locks })
}

/// A database whose anchor is gone must not be taken for a new one: a creation that was interrupted
/// leaves neither directories of images nor log segments behind.
fn refuse_leftovers(data: &dyn Disk, names: &[String]) -> Result<()> {
    for (dir, sign) in [
        ("image-a", "directory-"),
        ("image-b", "directory-"),
        ("log", "s"),
    ] {
        if !names.iter().any(|name| name == dir) {
            continue;
        }
        let found = data.list(dir)?.into_iter().find(|name| {
            name.starts_with(sign) && (dir != "log" || SegmentId::parse(name).is_some())
        });
        if let Some(name) = found {
            return Err(Error::corrupt(
                format!("{}/{}", data.name(), perdura_wal::anchor::ANCHOR_PATH),
                0,
                "the anchor of the database whose files are here",
                format!("no such file, though there is {dir}/{name}"),
                "Nothing was changed. Restore the anchor from a backup, or move the files away.",
            ));
        }
    }
    Ok(())
}

/// The log of a database that exists is somewhere: a directory that is not there, or empty, is a
/// disk that was not mounted, or a wrong name, and must not be made.
fn expect_log_dir(dir: &Path, stream: usize) -> Result<()> {
    if dir.join(perdura_wal::segment::LOG_DIR).is_dir() {
        return Ok(());
    }
    Err(Error::io(
        "open",
        format!("{}, the directory of log stream {stream}", dir.display()),
        std::io::ErrorKind::NotFound.into(),
    ))
}

fn open_log_dir(
    dir: &Path,
    locks: &mut Vec<Box<dyn std::any::Any + Send + Sync>>,
    stream: usize,
) -> Result<Arc<dyn Disk>> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir)?);
    locks.push(disk.lock(&format!("{LOCK_PATH}.s{stream:02}"))?);
    Ok(disk)
}

fn check_version(disk: &dyn Disk, exists: bool) -> Result<()> {
    if !exists {
        let file = disk.create("VERSION.tmp", Access::Buffered).or_else(|_| {
            disk.remove("VERSION.tmp")?;
            disk.create("VERSION.tmp", Access::Buffered)
        })?;
        file.write_at(0, format!("perdura {FORMAT_VERSION}\n").as_bytes())?;
        file.sync()?;
        disk.rename("VERSION.tmp", VERSION_PATH)?;
        return disk.sync_dir("");
    }
    let file = disk.open(VERSION_PATH, Access::Buffered)?;
    let mut text = vec![0; 64];
    let got = file.read_at(0, &mut text)?;
    let text = String::from_utf8_lossy(&text[..got]).trim().to_owned();
    let version = text
        .strip_prefix("perdura ")
        .and_then(|v| v.parse::<u16>().ok());
    match version {
        Some(FORMAT_VERSION) => Ok(()),
        Some(found) => Err(Error::Version {
            file: format!("{}/{VERSION_PATH}", disk.name()),
            found,
            supported: FORMAT_VERSION,
        }),
        None => Err(Error::Foreign {
            file: format!("{}/{VERSION_PATH}", disk.name()),
            why: format!("it says {text:?}"),
        }),
    }
}

/// 75 % of the memory of the container, or of the machine, whichever is less.
#[must_use]
pub fn default_memory_limit() -> u64 {
    let number = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace()
                .nth(1)?
                .parse::<u64>()
                .ok()
                .map(|kib| kib * 1024)
        });
    let limits = [
        machine,
        number("/sys/fs/cgroup/memory.max"),
        number("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ];
    limits
        .into_iter()
        .flatten()
        .min()
        .map_or(u64::MAX, |bytes| bytes / 4 * 3)
}
