//! The paths that disks accept: relative paths that stay below the root. The rule is the same for all disks. So a file
//! system accepts every path that the simulator accepts.

use perdura_base::{Error, Result};

/// Checks the path of a file.
pub(crate) fn check_file(path: &str) -> Result<()> {
    let bad = path.is_empty()
        || path.contains('\0')
        || path.split('/').any(|part| matches!(part, "" | "." | ".."));
    if bad {
        return Err(Error::Usage(format!(
            "{path:?} is not a path below the disk's root: parts are separated by one '/', and \
             none is empty, '.' or '..'"
        )));
    }
    Ok(())
}

/// Checks and returns the path of a directory. For `.` it returns the empty path, which also means the root.
pub(crate) fn check_dir(dir: &str) -> Result<&str> {
    if dir.is_empty() || dir == "." {
        return Ok("");
    }
    check_file(dir)?;
    Ok(dir)
}

/// Returns the directory that contains a checked path.
pub(crate) fn parent(path: &str) -> &str {
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    debug_assert!(name_in(dir, path).is_some(), "{path} lies in {dir:?}");
    dir
}

/// Returns the name of `path` in `dir`. `None`: `path` is not directly in `dir`.
pub(crate) fn name_in<'a>(dir: &str, path: &'a str) -> Option<&'a str> {
    let name = if dir.is_empty() {
        path
    } else {
        path.strip_prefix(dir)?.strip_prefix('/')?
    };
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Converts a length in memory to a length in a file.
pub(crate) fn bytes_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_root_are_refused() {
        for bad in ["", "/a", "a/../b", "..", "a//b", "a/", "./a", "a\0b"] {
            assert!(matches!(check_file(bad), Err(Error::Usage(_))), "{bad:?}");
        }
        for good in ["a", "a/b", "a.b/..c"] {
            assert!(check_file(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_directory_contains_its_direct_children_only() {
        assert_eq!(name_in("", "a"), Some("a"));
        assert_eq!(name_in("", "a/b"), None);
        assert_eq!(name_in("a", "a/b"), Some("b"));
        assert_eq!(name_in("a", "ab/c"), None);
        assert_eq!(parent("a/b/c"), "a/b");
        assert_eq!(parent("a"), "");
    }
}
