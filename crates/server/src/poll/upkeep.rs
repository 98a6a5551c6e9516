//! The loop's upkeep: newcomers are let in or turned away, idle clients leave, figures are taken.

use super::{CONNECTIONS, EventLoop, LIGHT_SHARE, TICK};
use crate::connection::Connection;
use crate::net::{Listener, Stream};
use crate::pubsub::Seat;
use crate::session::Session;
use crate::tls::HANDSHAKE;
use mio::Token;
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

/// After this time without a request a client gives its empty buffers back.
const REST_AFTER: Duration = Duration::from_secs(2);

/// The error for clients of other machines while no password is set.
const PROTECTED: &[u8] = b"-DENIED Perdura is running in protected mode: clients from other \
machines are turned away while the user default needs no password. Set one on this machine with \
ACL SETUSER default >password, or say protected-mode no\r\n";

impl EventLoop {
    /// Accepts all that wait, if the poller announced any, as far as there is time in the round.
    pub(super) fn accept(&mut self) {
        self.newcomers_left = false;
        if !std::mem::take(&mut self.accept_pending) {
            return;
        }
        let begin = Instant::now();
        for at in 0..self.listeners.len() {
            loop {
                if begin.elapsed() > LIGHT_SHARE {
                    (self.accept_pending, self.newcomers_left) = (true, true);
                    return;
                }
                let (tls, certified) = self.state.tls();
                match self.listeners[at].accept(tls, certified) {
                    Ok((stream, peer, local)) => {
                        let unix = matches!(self.listeners[at], Listener::Unix(..));
                        self.greet(stream, peer, local, unix);
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e)
                        if matches!(
                            e.kind(),
                            ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                        ) => {}
                    Err(e) => {
                        self.complain(&e);
                        self.accept_pending = true;
                        break;
                    }
                }
            }
        }
    }

    /// Says once a second that no connection can be accepted: without descriptors every round fails.
    fn complain(&mut self, error: &std::io::Error) {
        let now = self.state.now;
        let recently = |at: Instant| now.duration_since(at) < Duration::from_secs(1);
        if !self.complained.is_some_and(recently) {
            self.complained = Some(now);
            tracing::warn!("Cannot accept a connection: {error}");
        }
    }

    fn greet(&mut self, mut stream: Stream, peer: String, local: String, unix: bool) {
        if self.state.options.protected_mode && self.state.acl.open() && !stream.is_local() {
            self.state.stats.rejected += 1;
            if !stream.handshaking() {
                // A courtesy; the peer may not take it.
                let _ = stream.write(PROTECTED);
            }
            return;
        }
        if !self.has_place() {
            self.state.stats.rejected += 1;
            if stream.handshaking() {
                return;
            }
            // A courtesy; the peer may not take it.
            let _ = stream.write(b"-ERR max number of clients reached\r\n");
            return;
        }
        // A peer that went away without a word is found later, by what is sent to it.
        let _ = stream.keep_alive(self.state.options.tcp_keepalive_seconds);
        let index = self.state.connections.reserve();
        if let Err(e) = stream.register(self.poll.registry(), Token(CONNECTIONS + index)) {
            tracing::warn!("Cannot watch a connection: {e}");
            return self.state.connections.release(index);
        }
        self.state.stats.accepted += 1;
        let seat = Seat {
            index,
            id: self.next_id,
        };
        let session = Session::new(seat, peer, local, unix, &self.state);
        if stream.handshaking() {
            let deadline = session.since + HANDSHAKE;
            self.handshakes.push_back((index, seat.id, deadline));
        }
        if !session.authenticated {
            self.note_stranger(seat);
        }
        self.next_id += 1;
        self.state
            .connections
            .put(index, Box::new(Connection::new(stream, session)));
    }

    /// Looks after the loop every now and then.
    pub(super) fn tick(&mut self) {
        let now = self.state.now;
        if now.duration_since(self.ticked) < TICK {
            return;
        }
        self.ticked = now;
        self.look_for_stop();
        self.look_for_delays();
        self.tell_views();
        self.state.tell_supervisor();
        self.close_handshakes();
        let (since, before) = self.counted;
        let elapsed = now.duration_since(since);
        if elapsed >= Duration::from_secs(1) {
            let ms = u64::try_from(elapsed.as_millis())
                .unwrap_or(u64::MAX)
                .max(1);
            let stats = &mut self.state.stats;
            let counts = [stats.commands, stats.input_bytes, stats.output_bytes];
            for (rate, (now, before)) in stats.per_second.iter_mut().zip(counts.iter().zip(before))
            {
                *rate = now.saturating_sub(before).saturating_mul(1000) / ms;
            }
            self.counted = (now, counts);
            self.state.look_at_checkpoints();
            self.look_at_conditions();
            self.end_mutual_waits();
            self.close_idle();
            self.rest_idle();
        }
    }

    /// Closes those that have not begun to speak TLS in time.
    fn close_handshakes(&mut self) {
        let late = |(_, _, deadline): &(usize, u64, Instant)| *deadline <= self.state.now;
        let count = self
            .handshakes
            .iter()
            .take_while(|entry| late(entry))
            .count();
        let late: Vec<_> = self.handshakes.drain(..count).collect();
        for (index, id, _) in late {
            match self.state.connections.take(index) {
                Some(connection)
                    if connection.session.seat.id == id && connection.stream.handshaking() =>
                {
                    self.close(index, connection);
                }
                Some(connection) => self.state.connections.put(index, connection),
                None => {}
            }
        }
    }

    /// Ten thousand idle clients hold no buffers.
    fn rest_idle(&mut self) {
        let now = self.state.now;
        let idle = |c: &Connection| now.duration_since(c.session.active) >= REST_AFTER;
        let indices: Vec<usize> = self
            .state
            .connections
            .iter()
            .filter(|(_, c)| c.could_rest() && idle(c))
            .map(|(index, _)| index)
            .collect();
        for index in indices {
            if let Some(mut connection) = self.state.connections.take(index) {
                connection.rest(&self.state);
                // One that was held off for its large buffers may now be read again.
                self.put_back(index, connection, Ok(()));
            }
        }
    }

    /// Subscribers and monitors are idle by nature.
    fn close_idle(&mut self) {
        let max = self.state.options.idle_seconds_max;
        if max == 0 {
            return;
        }
        let now = self.state.now;
        let idle = |c: &Connection| now.duration_since(c.session.active).as_secs() > max;
        let indices: Vec<usize> = self
            .state
            .connections
            .iter()
            .filter(|(_, c)| idle(c) && !c.blocked && !c.replies.waits())
            .filter(|(_, c)| c.session.subscriptions.is_none() && !c.session.monitors)
            .map(|(index, _)| index)
            .collect();
        for index in indices {
            if let Some(connection) = self.state.connections.take(index) {
                self.close(index, connection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Options;
    use crate::options::ServerOptions;
    use crate::testbed::Testbed;
    use mio::{Events, Poll};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::net::TcpStream;
    use std::sync::Arc;

    const CLIENTS: usize = 400;

    fn server() -> (EventLoop, std::net::SocketAddr) {
        let dir = tempfile::TempDir::new().expect("a directory");
        let made = rcgen::generate_simple_self_signed(vec![String::from("localhost")]);
        let made = made.expect("a certificate");
        let (cert, key) = (dir.path().join("cert"), dir.path().join("key"));
        std::fs::write(&cert, made.cert.pem()).expect("a file");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
        let options = ServerOptions {
            tls_listen: vec!["127.0.0.1:0".parse().expect("an address")],
            tls_cert_file: Some(cert),
            tls_key_file: Some(key),
            ..ServerOptions::default()
        };
        let listeners = Listener::bind_all(&options).expect("a free port");
        let address = listeners.iter().find_map(Listener::tls_address);
        let bed = Testbed::new();
        let mut state = bed.state(options.clone(), Options::new("unused"));
        state.load_tls(&options).expect("a certificate");
        let poll = Poll::new().expect("a poller");
        let made = EventLoop::new(poll, listeners, None, state, bed.messages);
        (made.expect("a loop"), address.expect("it is bound"))
    }

    /// Clients that have been accepted and have sent nothing yet.
    fn clients(server: &mut EventLoop, address: std::net::SocketAddr) -> Vec<TcpStream> {
        let dialed = (0..CLIENTS).map(|_| {
            let socket = TcpStream::connect(address).expect("a connection");
            server.accept_pending = true;
            server.accept();
            socket
        });
        let dialed = dialed.collect();
        while server.state.connections.count() < CLIENTS {
            server.accept_pending = true;
            server.accept();
        }
        dialed
    }

    #[test]
    fn handshakes_that_begin_at_once_take_turns_over_rounds_and_all_are_answered() {
        let (mut server, address) = server();
        let mut sockets = clients(&mut server, address);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let config = Arc::new(config);
        for socket in &mut sockets {
            let name = ServerName::try_from("localhost").expect("a name");
            let mut hello = ClientConnection::new(Arc::clone(&config), name).expect("a session");
            hello.write_tls(socket).expect("a socket");
        }
        let mut events = Events::with_capacity(1024);
        let mut rounds = 0;
        let unanswered = |server: &EventLoop| {
            let all = server.state.connections.iter();
            all.filter(|(_, c)| c.readable || c.queued).count()
        };
        while rounds == 0 || unanswered(&server) > 0 {
            server.look(&mut events, Duration::ZERO).expect("a poller");
            server.round(&events).expect("a round");
            rounds += 1;
        }
        assert!(rounds > 2, "{CLIENTS} handshakes within {rounds} rounds");
        for socket in &mut sockets {
            let mut answer = [0; 1];
            std::io::Read::read_exact(socket, &mut answer).expect("an answer");
            assert_eq!(answer, [22], "a handshake record");
        }
    }
}
