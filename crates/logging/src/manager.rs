//! Messages to the service manager (systemd). No thread waits for the manager. Otherwise a manager that reads nothing
//! would stop the event loop.

use std::ffi::OsStr;
use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

/// Sends a message to the service manager, if the process has one.
///
/// # Errors
/// Returns [`io::ErrorKind::WouldBlock`] if the manager reads no messages at present; the caller tries again later.
/// Returns the system's error if the manager has ended.
pub fn notify(state: &[NotifyState<'_>]) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) => send(&name, state),
        None => Ok(()),
    }
}

fn send(name: &OsStr, state: &[NotifyState<'_>]) -> io::Result<()> {
    let mut message = String::new();
    for part in state {
        // Writing to a string cannot fail.
        let _ = writeln!(message, "{part}");
    }
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind::WouldBlock;

    fn sends_until_full(name: &OsStr, manager: &UnixDatagram) {
        let fails = (0..10_000).find_map(|_| send(name, &[NotifyState::Ready]).err());
        assert_eq!(fails.map(|error| error.kind()), Some(WouldBlock));
        let mut message = [0; 100];
        let len = manager.recv(&mut message).expect("a message");
        assert_eq!(&message[..len], b"READY=1\n");
        send(name, &[NotifyState::Stopping]).expect("there is room again");
    }

    #[test]
    fn a_manager_that_does_not_read_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        sends_until_full(path.as_os_str(), &manager);

        let name = format!("perdura-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        let manager = UnixDatagram::bind_addr(&address).expect("a socket");
        sends_until_full(OsStr::new(&format!("@{name}")), &manager);
    }
}
