//! Tests of the client's network with nodes, and with sockets that are not nodes.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use perdura_base::Error;
use perdura_logd::TcpNet;
use perdura_mirror::{Connection, Framer, Net, Reply, Request, Sent};

use crate::setup::{PATIENCE, UUID, address, client, eventually, net, options, start};

/// Waits for the next frame. Returns an error if the connection has ended.
fn awaited(connection: &mut dyn Connection) -> Result<Vec<u8>, String> {
    let begin = Instant::now();
    loop {
        if let Some(frame) = connection.receive()? {
            return Ok(frame);
        }
        assert!(begin.elapsed() < PATIENCE, "nothing comes");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn an_address_is_a_number_or_a_name_that_was_resolved_at_the_start() {
    let (logd, _) = start(options());
    let port = logd.addresses()[0].port();
    let named = format!("localhost:{port}");
    let unknown = net().connect(&named).err().unwrap();
    assert!(matches!(unknown, Error::Usage(_)), "{unknown}");
    let net = TcpNet::new(std::slice::from_ref(&named), None).unwrap();
    for address in [named, format!("127.0.0.1:{port}")] {
        let mut connection = net.connect(&address).unwrap();
        connection
            .send(&Request::hello(UUID, [1; 32]).frame(), &[])
            .unwrap();
        assert!(matches!(
            Reply::decode(&awaited(connection.as_mut()).unwrap()).unwrap(),
            Reply::Greeting(_)
        ));
    }
    for wrong in [
        "nowhere",
        "no.such.host.invalid:1",
        "127.0.0.1",
        "127.0.0.1:99999",
    ] {
        assert!(TcpNet::new(&[wrong.to_owned()], None).is_err(), "{wrong}");
    }
    logd.stop();
}

#[test]
fn a_node_that_is_not_there_breaks_the_connection_and_no_call_waits_for_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = listener.local_addr().unwrap().to_string();
    drop(listener);
    // The last address is in a block reserved for documentation, where no machine answers.
    for address in [gone.as_str(), "192.0.2.1:7379"] {
        let mut connection = net().connect(address).unwrap();
        let begin = Instant::now();
        let hello = Request::hello(UUID, [1; 32]).frame();
        let mut longest = Duration::ZERO;
        let why = loop {
            let call = Instant::now();
            let sent = connection.send(&hello, &[]);
            let received = connection.receive();
            longest = longest.max(call.elapsed());
            if let Err(why) = sent.map(|_| ()).and(received.map(|_| ())) {
                break why;
            }
            assert!(begin.elapsed() < PATIENCE, "{address} does not break");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(longest < Duration::from_secs(1), "a call of {longest:?}");
        assert_eq!(connection.receive().unwrap_err(), why);
        assert_eq!(connection.send(&hello, &[]).unwrap_err(), why);
        assert!(connection.fd().is_none());
    }
}

#[test]
fn a_socket_that_is_not_read_takes_frames_whole_or_not_at_all() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut connection = net().connect(&to).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let frames: Vec<(Vec<u8>, Vec<u8>)> = (0..400)
        .map(|_| {
            let bytes: Vec<u8> = (0..rng.usize(0..90_000)).map(|_| rng.u8(..)).collect();
            let request = crate::setup::append(1, 0, (0, 0), &bytes);
            (request.head(), request.tail().to_vec())
        })
        .collect();
    let (mut sent, mut fulls) = (0, 0);
    let begin = Instant::now();
    while fulls < 100 && sent < frames.len() {
        match connection.send(&frames[sent].0, &frames[sent].1).unwrap() {
            Sent::Yes => sent += 1,
            Sent::Full => fulls += 1,
        }
        assert!(begin.elapsed() < PATIENCE);
    }
    assert!(sent > 0 && sent < frames.len() && connection.has_unsent());
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut framer, mut got, mut buf) = (Framer::new(), 0, vec![0; 100_000]);
    while got < frames.len() {
        while sent < frames.len()
            && connection.send(&frames[sent].0, &frames[sent].1).unwrap() == Sent::Yes
        {
            sent += 1;
        }
        assert!(connection.receive().unwrap().is_none());
        peer.set_nonblocking(true).unwrap();
        if let Ok(read) = peer.read(&mut buf) {
            framer.push(&buf[..read]);
        }
        while let Some(frame) = framer.take().unwrap() {
            assert!(
                frame == [&frames[got].0[..], &frames[got].1].concat(),
                "frame {got}"
            );
            got += 1;
        }
        assert!(begin.elapsed() < PATIENCE, "{got} frames");
    }
    eventually("all is sent", || !connection.has_unsent());
    assert!(connection.send(&Request::Ping.frame(), &[]).is_ok());
}

#[test]
fn the_last_word_of_a_node_is_heard_although_the_connection_has_broken() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut connection = net().connect(&to).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(&[Request::Ping.frame(), Request::Ping.frame(), vec![44, 0, 0]].concat())
        .unwrap();
    drop(peer);
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..2 {
        assert_eq!(awaited(connection.as_mut()).unwrap(), Request::Ping.frame());
    }
    let why = awaited(connection.as_mut()).unwrap_err();
    assert!(why.contains("closed"), "{why}");
}

#[test]
fn a_node_that_says_no_frames_breaks_the_connection() {
    for garbage in [
        &u32::MAX.to_le_bytes()[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0; 64],
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let mut connection = net().connect(&to).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(garbage).unwrap();
        let why = awaited(connection.as_mut()).unwrap_err();
        assert!(why.contains("a frame of"), "{why}");
    }
}

#[test]
fn a_client_reconnects_to_a_node_that_came_back() {
    let (logd, _) = start(options());
    let to = logd.addresses().to_vec();
    client(&logd).ask(&Request::Ping).unwrap();
    let inc = logd.inc();
    logd.stop();
    for _ in 0..3 {
        let back = perdura_logd::LogdOptions {
            listen: to.clone(),
            ..options()
        };
        let (logd, _) = start(back);
        assert_eq!(address(&logd), to[0].to_string());
        let mut client = client(&logd);
        assert_ne!(client.identity().inc, inc);
        client.ask(&Request::Ping).unwrap();
        logd.stop();
    }
}
