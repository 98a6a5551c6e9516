use super::super::upkeep::ACCEPTS_MAX;
use super::*;
use crate::engine::Options;
use crate::net::Listener;
use crate::options::ServerOptions;
use crate::testbed::Testbed;
use mio::Events;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

const CLIENTS: usize = 200;

/// Returns a loop and its two addresses. The first address uses TLS, the second does not. No thread works on
/// handshakes; the test does.
fn server() -> (EventLoop, SocketAddr, SocketAddr) {
    let dir = tempfile::TempDir::new().expect("a directory");
    let made = rcgen::generate_simple_self_signed(vec![String::from("localhost")]);
    let made = made.expect("a certificate");
    let (cert, key) = (dir.path().join("cert"), dir.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let free = || "127.0.0.1:0".parse().expect("an address");
    let options = ServerOptions {
        listen: vec![free()],
        tls_listen: vec![free()],
        tls_cert_file: Some(cert),
        tls_key_file: Some(key),
        ..ServerOptions::default()
    };
    let listeners = Listener::bind_all(&options).expect("free ports");
    let tls = listeners.iter().find_map(Listener::tls_address);
    let plain = listeners.iter().find_map(Listener::tcp_address);
    let bed = Testbed::new();
    let mut state = bed.state(options.clone(), Options::new("unused"));
    state.load_tls(&options).expect("a certificate");
    let mut server = bed.event_loop(state);
    server.lead(listeners, None).expect("a loop");
    server.handshakes.pool.by_hand();
    (server, tls.expect("it is bound"), plain.expect("so is it"))
}

fn dial(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).expect("a connection")
}

fn round(server: &mut EventLoop) {
    let mut events = Events::with_capacity(1024);
    server.look(&mut events, Duration::ZERO).expect("a poller");
    server.round(&events).expect("a round");
}

/// Runs rounds until `holds` returns true.
fn run_until(server: &mut EventLoop, holds: impl Fn(&EventLoop) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds(server) {
        assert!(Instant::now() < deadline, "it does not come to that");
        round(server);
    }
}

/// Begins to speak TLS on each of these sockets.
fn say_hello(sockets: &mut [TcpStream]) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let config = Arc::new(config);
    for socket in sockets {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut hello = ClientConnection::new(Arc::clone(&config), name).expect("a session");
        hello.write_tls(socket).expect("a socket");
    }
}

#[test]
fn the_loop_works_on_no_handshake_and_connected_clients_are_served_while_all_wait() {
    let (mut server, tls, plain) = server();
    let mut sockets: Vec<TcpStream> = (0..CLIENTS).map(|_| dial(tls)).collect();
    let mut connected = dial(plain);
    say_hello(&mut sockets);
    run_until(&mut server, |server| {
        server.handshakes.pool.waiting() == CLIENTS
    });
    assert_eq!(server.state.connections.iter().count(), CLIENTS + 1);
    for socket in &mut sockets {
        socket.set_nonblocking(true).expect("a socket");
        let unanswered = socket
            .read(&mut [0])
            .expect_err("no thread has worked on it");
        assert_eq!(unanswered.kind(), ErrorKind::WouldBlock);
    }
    assert!(!server.has_work(), "the loop sleeps meanwhile");
    connected.write_all(b"PING\r\n").expect("a socket");
    for _ in 0..2 {
        // The bytes have arrived when the write returns. One round reads and answers them.
        round(&mut server);
    }
    connected.set_nonblocking(true).expect("a socket");
    assert!(connected.read(&mut [0; 64]).expect("an answer") > 0);
    while server.handshakes.pool.take_one() {}
    run_until(&mut server, |server| {
        server.handshakes.all.values().all(|one| !one.away)
    });
    for socket in &mut sockets {
        socket.set_nonblocking(false).expect("a socket");
        let mut answer = [0; 1];
        socket.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, [22], "a handshake record");
    }
}

#[test]
fn one_round_accepts_few_newcomers_of_each_listener() {
    let (mut server, tls, plain) = server();
    let _flood: Vec<TcpStream> = (0..CLIENTS).map(|_| dial(tls)).collect();
    let _one = dial(plain);
    let mut before = 0;
    while before < CLIENTS + 1 {
        round(&mut server);
        let now = server.state.connections.iter().count();
        assert!(now - before <= ACCEPTS_MAX + 1, "{before} {now}");
        before = now;
        assert!(
            now == CLIENTS + 1 || server.has_work(),
            "the rest follows at once"
        );
    }
    assert!(server.state.stats.accepted > 0 && server.handshakes.all.len() == CLIENTS);
}

#[test]
fn beyond_the_most_handshakes_a_newcomer_waits_until_one_ends_or_is_silent_for_long() {
    let (mut server, tls, _) = server();
    server.handshakes.most = 2;
    let mut sockets = [dial(tls), dial(tls)];
    run_until(&mut server, |server| server.handshakes.all.len() == 2);
    say_hello(&mut sockets[..1]);
    run_until(&mut server, |server| server.handshakes.pool.waiting() == 1);
    let _newcomer = dial(tls);
    for _ in 0..5 {
        server.accept_pending = true;
        server.accept();
    }
    let ids = |server: &EventLoop| server.handshakes.all.keys().copied().collect::<Vec<_>>();
    assert_eq!(ids(&server), [1, 2]);
    server.state.now += SLOW;
    server.accept_pending = true;
    server.accept();
    assert_eq!(ids(&server), [1, 3], "the first one has sent something");
    server.state.now += HANDSHAKE;
    server.close_handshakes();
    assert_eq!(server.state.connections.iter().count(), 0);
}

#[test]
fn certificates_are_read_anew_and_broken_ones_leave_the_ones_before_in_use() {
    let (mut server, _, _) = server();
    let in_use = |server: &EventLoop| Arc::as_ptr(&server.state.tls().0.expect("TLS"));
    let dir = tempfile::TempDir::new().expect("a directory");
    let (cert, key) = (dir.path().join("cert"), dir.path().join("key"));
    let made = rcgen::generate_simple_self_signed(vec![String::from("localhost")]);
    let made = made.expect("a certificate");
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    server.state.options.tls_cert_file = Some(cert.clone());
    server.state.options.tls_key_file = Some(key);
    let first = in_use(&server);
    server.state.reload_certificates();
    let second = in_use(&server);
    assert_ne!(first, second, "new connections get the new one");
    std::fs::write(&cert, "broken").expect("a file");
    server.state.reload_certificates();
    assert_eq!(second, in_use(&server), "a broken one changes nothing");
}
