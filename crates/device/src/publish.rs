//! Renaming a file on a real file system without ever replacing a file.
//!
//! Linux has a system call for it: `renameat2` with `RENAME_NOREPLACE`. It is atomic. If several processes publish one
//! name, exactly one succeeds.
//!
//! # Fallback
//! Some file systems, mostly network and FUSE file systems, refuse the flag with `EINVAL`. Kernels without the call
//! return `ENOSYS`. Then [`publish`] gives the file the new name as a hard link, which fails if the name exists. After
//! that it removes the old name. Only the link decides which process succeeds, so this is atomic too. After a crash
//! between the two calls, the file has the old name and the new name. If removing the old name fails, the file keeps
//! both names, and the error is returned. Callers remove temporary files when they start, so this does no harm. A file
//! system without the flag and without hard links cannot publish. The error of the link is then returned, and nothing
//! has changed.

use std::io;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, link, renameat_with, unlink};
use rustix::io::Errno;

/// Renames `source` to `target`. Fails if `target` exists.
pub(crate) fn publish(source: &Path, target: &Path) -> io::Result<()> {
    debug_assert!(
        source.parent().is_some() && target.parent().is_some(),
        "both names lie in a directory"
    );
    match renameat_with(CWD, source, CWD, target, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => link_and_unlink(source, target),
        renamed => Ok(renamed?),
    }
}

/// Publishes by a hard link; see the module documentation.
fn link_and_unlink(source: &Path, target: &Path) -> io::Result<()> {
    link(source, target)?;
    Ok(unlink(source)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn kind(result: io::Result<()>) -> Option<io::ErrorKind> {
        result.err().map(|error| error.kind())
    }

    /// Checks that the fallback behaves like the system call.
    #[test]
    fn both_ways_publish_once_and_replace_nothing() {
        for way in [publish, link_and_unlink] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            fs::write(at("a"), b"a").unwrap();
            fs::write(at("b"), b"b").unwrap();
            fs::create_dir(at("d")).unwrap();
            let exists = Some(io::ErrorKind::AlreadyExists);
            assert_eq!(kind(way(&at("a"), &at("b"))), exists);
            assert_eq!(kind(way(&at("a"), &at("d"))), exists);
            assert_eq!(kind(way(&at("a"), &at("a"))), exists);
            assert_eq!(fs::read(at("a")).unwrap(), b"a");
            assert_eq!(fs::read(at("b")).unwrap(), b"b");
            let missing = Some(io::ErrorKind::NotFound);
            assert_eq!(kind(way(&at("no"), &at("c"))), missing);
            assert_eq!(kind(way(&at("a"), &at("no/c"))), missing);
            way(&at("a"), &at("d/c")).unwrap();
            assert_eq!(fs::read(at("d/c")).unwrap(), b"a");
            assert!(!at("a").exists(), "the old name is gone");
        }
    }

    /// Several threads publish one name. One thread succeeds, and the file has that thread's bytes.
    #[test]
    fn one_of_several_publishers_succeeds() {
        for way in [publish, link_and_unlink] {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("target");
            let names = ["0", "1", "2", "3"].map(|name| dir.path().join(name));
            for name in &names {
                fs::write(name, name.display().to_string()).unwrap();
            }
            let target = &target;
            let won: Vec<&std::path::PathBuf> = std::thread::scope(|scope| {
                let tries = names
                    .each_ref()
                    .map(|name| (name, scope.spawn(move || way(name, target).is_ok())));
                let tries = tries.into_iter();
                tries
                    .filter_map(|(name, publisher)| publisher.join().unwrap().then_some(name))
                    .collect()
            });
            assert_eq!(won.len(), 1);
            let bytes = fs::read_to_string(target).unwrap();
            assert_eq!(bytes, won[0].display().to_string());
            assert_eq!(names.iter().filter(|name| name.exists()).count(), 3);
        }
    }
}
