//! Tests of writes that the kernel ends early or refuses. Special descriptors cause these short writes and errors.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;

use perdura_base::Result;

use super::*;
use crate::AlignedBuf;

/// A file that has only a descriptor for writing.
struct Raw(OwnedFd);

impl File for Raw {
    fn len(&self) -> Result<u64> {
        Ok(0)
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn direct_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn path(&self) -> &str {
        "raw"
    }

    fn is_direct(&self) -> bool {
        true
    }
}

fn opened(path: &std::path::Path, write: bool) -> Arc<dyn File> {
    let mut options = OpenOptions::new();
    let file = options.read(!write).write(write).create(write).open(path);
    Arc::new(Raw(file.unwrap().into()))
}

const PART_BYTES: usize = 256 << 10;

fn write(token: u64, file: &Arc<dyn File>) -> DurableWrite {
    let part = || Part {
        buf: AlignedBuf::zeroed(PART_BYTES),
        len: PART_BYTES,
    };
    DurableWrite {
        token,
        file: Arc::clone(file),
        offset: 0,
        parts: vec![part(), part()],
    }
}

/// Submits the writes together and returns their results. `None`: the system has no rings.
fn fates(writes: Vec<DurableWrite>) -> Option<Vec<Result<()>>> {
    let queue = match RingQueue::new(Vec::new()) {
        Ok(queue) => queue,
        Err(why) => {
            let required = std::env::var_os("PERDURA_REQUIRE_RING").is_some();
            assert!(!required, "no ring works here: {why}");
            eprintln!("NOT TESTED: {why}");
            return None;
        }
    };
    let count = writes.len();
    for write in writes {
        queue.submit(write);
    }
    let mut done = Vec::new();
    while done.len() < count {
        queue.wait();
        queue.collect(&mut done);
    }
    done.sort_by_key(|one| one.token);
    for (at, one) in done.iter().enumerate() {
        assert_eq!(usize::try_from(one.token).unwrap(), at, "once");
        assert_eq!(
            one.parts.len(),
            2,
            "the buffers of a failed write come back"
        );
    }
    Some(done.into_iter().map(|one| one.result).collect())
}

#[test]
fn a_short_completion_is_continued_and_fails_with_the_error_of_its_rest() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let pipe: Arc<dyn File> = Arc::new(Raw(OwnedFd::from(writer)));
    // The pipe takes a part of the bytes, and then its reader closes it.
    let reading = std::thread::spawn(move || reader.read_exact(&mut [0]).is_ok());
    let fates = fates(vec![write(0, &pipe)]);
    drop(pipe);
    let has_read = reading.join().unwrap();
    let Some(fates) = fates else {
        return;
    };
    assert!(has_read, "the pipe took a part");
    let error = fates[0].as_ref().unwrap_err();
    assert!(
        matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(libc::EPIPE)),
        "{error}"
    );
}

#[test]
fn a_write_that_fails_leaves_those_beside_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let good = [0, 1].map(|at| opened(&dir.path().join(at.to_string()), true));
    let full = opened(std::path::Path::new("/dev/full"), true);
    let read_only = opened(&dir.path().join("0"), false);
    let writes = [&good[0], &full, &read_only, &good[1]];
    let writes = (0..).zip(writes).map(|(token, file)| write(token, file));
    let Some(fates) = fates(writes.collect()) else {
        return;
    };
    assert!(fates[0].is_ok() && fates[3].is_ok(), "{fates:?}");
    let error = fates[1].as_ref().unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    let error = fates[2].as_ref().unwrap_err();
    assert!(
        matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(libc::EBADF))
    );
    for at in ["0", "1"] {
        let written = std::fs::metadata(dir.path().join(at)).unwrap().len();
        assert_eq!(written, 2 * 262_144);
    }
}

#[test]
fn what_the_kernel_says_of_a_write_is_whole_or_an_error() {
    assert!(judge("f", 8192, 8192).is_ok());
    for result in [0, 4096, -libc::EIO, -libc::EINTR, -libc::EAGAIN, i32::MIN] {
        let error = judge("f", 8192, result).unwrap_err();
        assert!(error.to_string().contains('f') && !error.is_disk_full());
    }
    for result in [libc::ENOSPC, libc::EDQUOT] {
        assert!(judge("f", 8192, -result).unwrap_err().is_disk_full());
    }
    let Err(Error::Io { source, .. }) = judge("f", 8192, 512) else {
        panic!("a short write is an error of the device");
    };
    assert_eq!(source.kind(), ErrorKind::WriteZero);
}
