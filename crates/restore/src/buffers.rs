//! The page buffers of a restore. Each thread has one for pages that it reads, and one for pages that it makes.

use perdura_archive::backup::READ_PAGES;

use crate::sink::WRITE_PAGES;

/// The threads of a restore, and the sizes of each thread's buffers in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffers {
    pub(crate) threads: usize,
    /// The size of the buffer for pages of the backup.
    pub(crate) read: usize,
    /// The size of the buffer for pages of the new database.
    pub(crate) write: usize,
}

impl Buffers {
    /// Returns the largest buffers, for `threads` threads.
    pub(crate) fn most(threads: usize) -> Buffers {
        Buffers {
            threads,
            read: READ_PAGES,
            write: WRITE_PAGES,
        }
    }

    /// Returns buffers that have at most `pages` pages together, for at most `threads` threads. `None`: that is too few
    /// for one thread.
    pub(crate) fn within(pages: usize, threads: usize) -> Option<Buffers> {
        if pages < 2 {
            return None;
        }
        let threads = threads.min(pages / 2).max(1);
        let each = pages / threads;
        let read = (each / 2).min(READ_PAGES);
        let buffers = Buffers {
            threads,
            read,
            write: (each - read).min(WRITE_PAGES),
        };
        debug_assert!(
            buffers.threads * (buffers.read + buffers.write) <= pages,
            "the buffers keep to the bound"
        );
        Some(buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_share_a_bound() {
        let of = |pages, threads| {
            let buffers = Buffers::within(pages, threads)?;
            Some((buffers.threads, buffers.read, buffers.write))
        };
        assert_eq!(of(1, 4), None);
        assert_eq!(of(2, 4), Some((1, 1, 1)));
        assert_eq!(of(5, 4), Some((2, 1, 1)));
        assert_eq!(of(100, 2), Some((2, 25, 25)));
        assert_eq!(of(7, 1), Some((1, 3, 4)));
        assert_eq!(Buffers::within(10_000, 3), Some(Buffers::most(3)));
    }
}
