use super::*;
use crate::connection::backlog::LOOKS_MAX;
use crate::engine::Options;
use crate::net::Stream;
use crate::options::ServerOptions;
use crate::testbed::{Testbed, connection};
use perdura_logging::Capture;
use std::os::unix::net::UnixStream;

/// Returns a loop with one client, and the client's end of the socket. The client's socket accepts no more bytes.
fn server() -> (EventLoop, UnixStream) {
    let bed = Testbed::new();
    let mut state = bed.state(ServerOptions::default(), Options::new("unused"));
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a socket");
    let stream = Stream::Unix(mio::net::UnixStream::from_std(ours));
    let index = state.connections.reserve();
    let mut client = connection(&state, stream, index, 7);
    client.full = true;
    client.readable = true;
    state.connections.put(index, client);
    state.common.crowd.join(0);
    let server = bed.event_loop(state);
    (server, theirs)
}

fn change(server: &mut EventLoop, change: impl FnOnce(&mut crate::connection::Connection)) {
    let mut client = server.state.connections.take(0).expect("a client");
    change(&mut client);
    server.state.connections.put(0, client);
}

#[test]
fn a_client_that_takes_nothing_and_waits_for_its_end_is_disconnected_within_30_s() {
    let ((mut server, _end), log) = (server(), Capture::default());
    change(&mut server, |client| client.closing = true);
    for look in 0..LOOKS_MAX {
        assert!(server.state.connections.get(0).is_some(), "look {look}");
        log.run(|| server.end_mutual_waits());
    }
    assert!(server.state.connections.get(0).is_none());
    let lines = log.lines();
    let [line] = &lines[..] else {
        panic!("{lines:?}")
    };
    for part in ["Client 7 at ", "\"default\"", "30 s"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn a_client_that_is_read_or_takes_something_now_and_then_stays() {
    let ((mut server, _end), log) = (server(), Capture::default());
    for _ in 0..3 * LOOKS_MAX {
        log.run(|| server.end_mutual_waits());
    }
    change(&mut server, |client| client.closing = true);
    for look in 1..3 * LOOKS_MAX {
        log.run(|| server.end_mutual_waits());
        if look % (LOOKS_MAX - 1) == 0 {
            change(&mut server, |client| client.has_taken());
        }
        change(&mut server, |client| client.full = true);
    }
    assert!(server.state.connections.get(0).is_some());
    assert!(log.lines().is_empty());
}
