//! The arbiter: a register that stores the view, with compare-and-swap.

use std::sync::Arc;

use perdura_base::{Error, Result, Uuid};
use perdura_device::{Access, Disk};

use crate::view::{VIEW_BYTES_MAX, View};

/// The result of a compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swap {
    /// The new view is stored durably.
    Done,
    /// A view with this number or a higher number is stored already.
    Lost,
}

/// A register that the writer and a takeover can reach. Calls may block.
///
/// # Contract
/// * If several processes try to store views with one number, at most one process gets [`Swap::Done`]. From then on
///   [`read`](Self::read) returns that view or a later one, after a crash too.
/// * After an error of [`replace`](Self::replace) it is unknown whether the view was stored. The caller must read
///   again.
/// * A stored view is never lost, and never replaced by an older one.
pub trait Register: Send {
    /// Reads the newest view. `None`: no view was ever stored.
    ///
    /// # Errors
    /// Errors of the storage; [`Error::Corrupt`] for a damaged view; [`Error::Foreign`] for a view of a different
    /// database.
    fn read(&mut self) -> Result<Option<View>>;

    /// Stores view `next` if its number directly follows the number of the newest stored view.
    ///
    /// # Errors
    /// Errors of the storage. It is then unknown whether the view was stored.
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

/// Reads and checks the view in a file.
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

/// Writes a view to a new file, and syncs it.
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

/// An arbiter that stores each view as a numbered file in a directory; see docs/formats/view.md.
pub struct NumberedFiles {
    disk: Arc<dyn Disk>,
    uuid: Uuid,
    /// A random number in the names of temporary files, so that two processes never write one file.
    token: u64,
}

impl NumberedFiles {
    /// Returns the arbiter of the database `uuid`. It keeps the database's views in the root of `disk`.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, uuid: Uuid, token: u64) -> NumberedFiles {
        NumberedFiles { disk, uuid, token }
    }

    /// Returns the numbers of the stored views, ascending.
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
        // The caller may act on this view, so it must be durable. Another process may have renamed the view's file
        // without syncing the directory.
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
        // If this process was slow after it read the numbers, the number of `next` may have been free only because an
        // old view had been removed.
        if self.numbers()?.last() != Some(&next.v) {
            return Ok(Swap::Lost);
        }
        for old in numbers.iter().rev().skip(KEPT - 1) {
            // If a file cannot be removed now, a later change removes it.
            if self.disk.remove(&path(*old)).is_err() {
                break;
            }
        }
        Ok(Swap::Done)
    }
}

/// An arbiter that stores the view in one file, protected by a lock; see docs/formats/view.md.
pub struct LockedFile {
    disk: Arc<dyn Disk>,
    uuid: Uuid,
}

impl LockedFile {
    /// Returns the arbiter of the database `uuid`. It keeps the database's view in the root of `disk`.
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
