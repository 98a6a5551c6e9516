//! The arbiter: a register with a compare-and-swap that holds the view.

use std::sync::Arc;

use perdura_base::{Error, Result, Uuid};
use perdura_device::{Access, Disk};

use crate::view::{VIEW_BYTES_MAX, View};

/// The result of a compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// The view is the new one, durably.
    Done,
    /// Another view with this number, or a higher one, is stored.
    Lost,
}

/// A register that writer and takeover both reach. Calls may wait.
///
/// # Contract
/// * Of all processes that try to store a view with one number, at most one ever gets [`Swap::Done`]. From then on
///   [`read`](Self::read) returns that view or a later one, after a crash too.
/// * An error of [`replace`](Self::replace) says nothing about whether the view was stored: read again.
/// * A stored view is never lost, and never replaced by an older one.
pub trait Register: Send {
    /// Reads the newest view. `None`: no view was ever stored.
    ///
    /// # Errors
    /// The medium's; [`Error::Corrupt`] for a damaged view; [`Error::Foreign`] for that of another database.
    fn read(&mut self) -> Result<Option<View>>;

    /// Stores a view if the newest is the one before it.
    ///
    /// # Errors
    /// The medium's: the outcome is not known.
    fn replace(&mut self, next: &View) -> Result<Swap>;
}

const PREFIX: &str = "view-";
const ONE: &str = "view";
const LOCK: &str = "view.lock";
/// The number of views that are kept.
const KEPT: usize = 16;

fn path(v: u64) -> String {
    format!("{PREFIX}{v:020}")
}

/// Reads the view in a file.
fn read_view(disk: &dyn Disk, path: &str, uuid: Uuid) -> Result<View> {
    let file = disk.open(path, Access::Buffered)?;
    let mut bytes = vec![0; VIEW_BYTES_MAX + 1];
    let got = file.read_at(0, &mut bytes)?;
    let view = View::decode(&bytes[..got]).map_err(|found| {
        Error::corrupt(
            path,
            0,
            "a view",
            found,
            "Acknowledged writes may be only in the memory of nodes. Nothing was changed. \
             Restore the file. Or start with --accept-loss and lose what only nodes have.",
        )
    })?;
    if view.uuid != uuid {
        return Err(Error::Foreign {
            file: path.to_owned(),
            why: format!("it is the view of database {}", view.uuid),
        });
    }
    Ok(view)
}

/// Writes a view to a temporary file, and syncs it.
fn write_new(disk: &dyn Disk, path: &str, view: &View) -> Result<()> {
    let bytes = view.encode();
    debug_assert_eq!(
        View::decode(&bytes).as_ref(),
        Ok(view),
        "what is written is read"
    );
    let file = disk.create(path, Access::Buffered)?;
    file.set_len(0)?;
    file.write_at(0, &bytes)?;
    file.sync()
}

/// An arbiter that keeps views as numbered files of a directory; see docs/formats/view.md.
pub struct NumberedFiles {
    disk: Arc<dyn Disk>,
    uuid: Uuid,
    /// A random number, so that two processes never write one temporary file.
    token: u64,
}

impl NumberedFiles {
    /// Returns the arbiter of a database in the root of a disk.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, uuid: Uuid, token: u64) -> NumberedFiles {
        NumberedFiles { disk, uuid, token }
    }

    /// Returns the numbers of the stored views, in order.
    fn numbers(&self) -> Result<Vec<u64>> {
        let names = self.disk.list("")?;
        let number = |name: &String| {
            let digits = name.strip_prefix(PREFIX).filter(|rest| rest.len() == 20)?;
            digits
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then_some(())?;
            digits.parse::<u64>().ok()
        };
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn newest(&self) -> Result<Option<View>> {
        let Some(v) = self.numbers()?.last().copied() else {
            return Ok(None);
        };
        let view = read_view(self.disk.as_ref(), &path(v), self.uuid)?;
        if view.v != v {
            return Err(Error::corrupt(
                path(v),
                32,
                format!("view {v}"),
                format!("view {}", view.v),
                "The file was renamed. Nothing was changed. Rename it back.",
            ));
        }
        Ok(Some(view))
    }
}

impl Register for NumberedFiles {
    fn read(&mut self) -> Result<Option<View>> {
        // Decisions may rest on the view that is read. But another process may have given it its name and not synced
        // that yet.
        let newest = self.newest()?;
        if newest.is_some() {
            self.disk.sync_dir("")?;
        }
        Ok(newest)
    }

    fn replace(&mut self, next: &View) -> Result<Swap> {
        assert_eq!(next.uuid, self.uuid, "the view of this database");
        let numbers = self.numbers()?;
        let before = numbers.last().copied().unwrap_or(0);
        if before + 1 != next.v {
            return Ok(Swap::Lost);
        }
        let temporary = format!("{}-{:016x}.tmp", path(next.v), self.token);
        write_new(self.disk.as_ref(), &temporary, next)?;
        match self.disk.publish(&temporary, &path(next.v)) {
            Ok(()) => {}
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                self.disk.remove(&temporary)?;
                return Ok(Swap::Lost);
            }
            Err(error) => return Err(error),
        }
        self.disk.sync_dir("")?;
        // A writer that has slept since its read may have stored a view that was removed long ago.
        if self.numbers()?.last() != Some(&next.v) {
            return Ok(Swap::Lost);
        }
        for old in numbers.iter().rev().skip(KEPT - 1) {
            // A file that cannot be removed now is removed by a later change.
            if self.disk.remove(&path(*old)).is_err() {
                break;
            }
        }
        Ok(Swap::Done)
    }
}

/// An arbiter that keeps the view as one file under a lock; see docs/formats/view.md.
pub struct LockedFile {
    disk: Arc<dyn Disk>,
    uuid: Uuid,
}

impl LockedFile {
    /// Returns the arbiter of a database in the root of a disk.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, uuid: Uuid) -> LockedFile {
        LockedFile { disk, uuid }
    }

    fn newest(&self) -> Result<Option<View>> {
        match self.disk.list("")?.iter().any(|name| name == ONE) {
            true => read_view(self.disk.as_ref(), ONE, self.uuid).map(Some),
            false => Ok(None),
        }
    }
}

impl Register for LockedFile {
    fn read(&mut self) -> Result<Option<View>> {
        let _held = self.disk.lock(LOCK)?;
        let newest = self.newest()?;
        if newest.is_some() {
            self.disk.sync_dir("")?;
        }
        Ok(newest)
    }

    fn replace(&mut self, next: &View) -> Result<Swap> {
        assert_eq!(next.uuid, self.uuid, "the view of this database");
        let _held = self.disk.lock(LOCK)?;
        let before = self.newest()?.map_or(0, |view| view.v);
        if before + 1 != next.v {
            return Ok(Swap::Lost);
        }
        let temporary = format!("{ONE}.tmp");
        write_new(self.disk.as_ref(), &temporary, next)?;
        self.disk.rename(&temporary, ONE)?;
        self.disk.sync_dir("")?;
        Ok(Swap::Done)
    }
}
