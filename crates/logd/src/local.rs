//! The second connection from a client to a node on the client's machine: a Unix socket. The node shares memory over
//! this socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use perdura_mirror::NodeInc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use socket2::{Domain, SockAddr, Socket, Type};

/// Returns the abstract name of a node's socket.
fn name(inc: NodeInc) -> String {
    format!("perdura-logd-{:016x}", inc.0)
}

/// Binds the Unix socket of a starting node.
///
/// # Errors
/// Fails with the system's error.
pub(crate) fn listen(inc: NodeInc) -> io::Result<UnixListener> {
    let address = SocketAddr::from_abstract_name(name(inc))?;
    let listener = UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to a node on this machine. The node must run in this process's network namespace.
///
/// # Errors
/// Fails with the system's error if the node does not exist. Also fails if a different user owns the socket.
pub(crate) fn connect(inc: NodeInc) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::UNIX, kind, None)?;
    socket.connect(&SockAddr::unix(format!("\0{}", name(inc)))?)?;
    match is_trusted(&socket) {
        true => Ok(socket),
        // The name is no secret, so another process may have bound it.
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Returns whether this process may share memory with a Unix socket's peer. The peer must run as this process's user or
/// as root.
pub(crate) fn is_trusted(socket: &Socket) -> bool {
    let ours = rustix::process::geteuid();
    socket_peercred(socket).is_ok_and(|peer| peer.uid == ours || peer.uid.is_root())
}

/// Sends all of `bytes` together with a descriptor, over a blocking socket.
///
/// # Errors
/// Fails with the connection's error.
pub(crate) fn send_with(socket: &Socket, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(
        control.push(SendAncillaryMessage::ScmRights(&fds)),
        "there is room for one"
    );
    let sent = sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    let mut socket = socket;
    socket.write_all(&bytes[sent..])
}

/// The client's side of a connection. It keeps the descriptors that arrive.
pub(crate) struct Stream {
    socket: Socket,
    is_local: bool,
    passed: VecDeque<OwnedFd>,
}

impl Stream {
    /// Returns a stream over TCP.
    pub(crate) fn far(socket: Socket) -> Stream {
        Stream {
            socket,
            is_local: false,
            passed: VecDeque::new(),
        }
    }

    /// Returns a stream over a Unix socket.
    pub(crate) fn local(socket: Socket) -> Stream {
        Stream {
            is_local: true,
            ..Stream::far(socket)
        }
    }

    /// Removes the descriptor that arrived first, and returns it. `None`: no descriptor is left.
    pub(crate) fn take_passed(&mut self) -> Option<OwnedFd> {
        self.passed.pop_front()
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }

    /// Returns whether the peer can still send. Even if the peer cannot, bytes that it sent earlier may be unread.
    pub(crate) fn stands(&self) -> io::Result<bool> {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        poll(&mut fds, Some(&at_once))?;
        Ok(fds[0].revents().is_empty())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.is_local {
            return self.socket.read(buf);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let read = recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(buf)],
            &mut control,
            flags,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.passed.extend(fds);
            }
        }
        Ok(read.bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
