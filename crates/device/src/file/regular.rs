//! Opening files without waiting for another process. An operator chose the paths, or they name files of a database.
//!
//! Opening a FIFO waits for a second process to open it. Opening a device may have any effect. So files of a database
//! are opened without waiting, and only regular files are accepted. An operator may also name a pipe as input
//! (`<(command)` in a shell). [`read_input`] reads a pipe as well, but waits only for a limited time for its writer.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use perdura_base::NotRegular;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::path::bytes_u64;

/// The longest time to wait for the writer of a pipe.
const WRITER_PATIENCE: Duration = Duration::from_secs(2);

/// Opens a regular file. `flags` are added to the flags of `options`. Symbolic links are followed.
///
/// # Errors
/// Errors of the system. If the file is not regular, the error contains [`NotRegular`]; for a directory it is
/// `EISDIR`.
pub fn open_regular(options: &OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    let file = open_at_once(options, flags, path)?;
    match kind_of(file.metadata()?.file_type()) {
        None => Ok(file),
        Some("a directory") => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Some(kind) => Err(io::Error::other(NotRegular { kind })),
    }
}

/// Opens a file without waiting. Later reads and writes may wait.
fn open_at_once(options: &OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    let mut options = options.clone();
    let opened = options
        .custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        // The file is a socket, or a device without a driver.
        Some(libc::ENXIO) => io::Error::other(NotRegular {
            kind: "a socket or a device",
        }),
        _ => error,
    })?;
    // `O_NONBLOCK` is only for the opening. If it stayed set, a ring might refuse writes instead of delaying them.
    let kept = fcntl_getfl(&file)?.difference(OFlags::NONBLOCK);
    fcntl_setfl(&file, kept)?;
    Ok(file)
}

/// Returns a name of the file's kind for messages. `None`: it is a regular file.
fn kind_of(found: FileType) -> Option<&'static str> {
    match () {
        () if found.is_file() => None,
        () if found.is_dir() => Some("a directory"),
        () if found.is_fifo() => Some("a FIFO"),
        () if found.is_socket() => Some("a socket"),
        () => Some("a device"),
    }
}

/// Reads a whole file or pipe that an operator named: settings, certificates, keys.
///
/// # Errors
/// Errors of the system. Also an error for a directory or a socket, for a pipe that has no writer for two seconds, and
/// for more than `bytes_max` bytes.
pub fn read_input(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut file = open_at_once(OpenOptions::new().read(true), 0, path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    if kind.is_fifo() {
        await_writer(&file)?;
    }
    let mut bytes = Vec::new();
    let most = bytes_u64(bytes_max);
    file.by_ref()
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let why = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Waits until a pipe has bytes or the writer has closed the pipe.
fn await_writer(pipe: &File) -> io::Result<()> {
    let patience = Timespec::try_from(WRITER_PATIENCE).ok();
    loop {
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut fds, patience.as_ref()) {
            Ok(0) => {
                let why = format!(
                    "it is a FIFO that no process has written to for {} s",
                    WRITER_PATIENCE.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType as Kind, Mode, mknodat};

    use super::*;

    fn fifo(path: &Path) {
        mknodat(CWD, path, Kind::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fifo(&at("fifo"));
        std::fs::create_dir(at("dir")).unwrap();
        let _listens = UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink(at("fifo"), at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/null", at("device")).unwrap();
        std::fs::write(at("file"), "bytes").unwrap();
        std::os::unix::fs::symlink(at("file"), at("good")).unwrap();
        for write in [false, true] {
            let mut options = OpenOptions::new();
            options.read(true).write(write);
            for (name, word) in [
                ("fifo", "a FIFO"),
                ("link", "a FIFO"),
                ("socket", "a socket"),
                ("device", "a device"),
                ("dir", "directory"),
            ] {
                let refused = open_regular(&options, 0, &at(name)).unwrap_err();
                assert!(refused.to_string().contains(word), "{name}: {refused}");
            }
            for name in ["file", "good"] {
                let file = open_regular(&options, 0, &at(name)).unwrap();
                assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
            }
        }
    }

    #[test]
    fn input_comes_from_files_and_pipes_and_never_without_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "bytes").unwrap();
        assert_eq!(read_input(&at("file"), 5).unwrap(), b"bytes");
        let long = read_input(&at("file"), 4).unwrap_err();
        assert!(long.to_string().contains("more than 4 bytes"), "{long}");
        assert!(read_input(Path::new("/dev/zero"), 1 << 16).is_err());
        assert!(read_input(dir.path(), 5).is_err());
        fifo(&at("fifo"));
        let silent = read_input(&at("fifo"), 5).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut, "{silent}");
        let path = at("fifo");
        let writer = std::thread::spawn(move || std::fs::write(path, "piped"));
        assert_eq!(read_input(&at("fifo"), 5).unwrap(), b"piped");
        writer.join().unwrap().unwrap();
    }
}
