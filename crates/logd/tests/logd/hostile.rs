//! Tests of a node with connections that complete no handshake, and with clients that violate the protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use perdura_logd::{Logd, LogdOptions};
use perdura_mirror::{FRAME_BYTES_MAX, Framer, Reason, Reply, Request};

use crate::setup::{
    PATIENCE, UUID, append, client, eventually, impatient, open, options, raw, start,
};

/// Reads until the connection ends. Returns the node's last frame, if it sent one.
fn last_word(mut socket: TcpStream) -> Option<(Reason, String)> {
    let mut all = Vec::new();
    // A reset also ends the connection.
    let _ = socket.read_to_end(&mut all);
    let mut framer = Framer::new();
    framer.push(&all);
    let mut last = None;
    while let Ok(Some(frame)) = framer.take() {
        last = match Reply::decode(frame).unwrap() {
            Reply::Refused(refused) => Some((refused.reason, refused.text)),
            _ => None,
        };
    }
    last
}

fn still_serves(logd: &Logd) {
    client(logd).ask(&Request::Ping).unwrap();
}

/// Returns the bytes that a client sends in a handshake. After these bytes the node serves the client.
fn introduced() -> Vec<u8> {
    [
        Request::hello(UUID, [1; 32]).frame(),
        Request::Proof([0; 32]).frame(),
    ]
    .concat()
}

#[test]
fn bytes_that_are_no_frames_end_their_connection_with_a_word() {
    let (logd, _) = start(options());
    let mut wrong_version = Request::hello(UUID, [1; 32]).frame();
    wrong_version[16] = 9;
    let crc = perdura_base::checksum::crc32c(&wrong_version[8..]);
    wrong_version[4..8].copy_from_slice(&crc.to_le_bytes());
    let mut torn = open(1, 0, 0).frame();
    torn[20] ^= 1;
    let cases: [(&str, Vec<u8>, Reason); 7] = [
        (
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            Vec::new(),
            Reason::Malformed,
        ),
        ("4 GiB", u32::MAX.to_le_bytes().to_vec(), Reason::Malformed),
        ("zeros", vec![0; 4096], Reason::Malformed),
        ("no hello", open(1, 0, 0).frame(), Reason::Malformed),
        ("version", wrong_version, Reason::Version),
        ("torn", [introduced(), torn].concat(), Reason::Malformed),
        (
            "twice",
            [introduced(), introduced()].concat(),
            Reason::Malformed,
        ),
    ];
    for (name, bytes, reason) in cases {
        let mut socket = raw(&logd);
        let bytes = if bytes.is_empty() {
            name.as_bytes().to_vec()
        } else {
            bytes
        };
        socket.write_all(&bytes).unwrap();
        let (why, text) = last_word(socket).unwrap_or_else(|| panic!("{name}: no word"));
        assert_eq!(why, reason, "{name}: {text}");
    }
    eventually("they are gone", || logd.stats().connections == 0);
    assert_eq!(logd.stats().node.rings, 0);
    still_serves(&logd);
    logd.stop();
}

#[test]
fn random_bytes_of_any_length_change_nothing() {
    let (logd, _) = start(options());
    let mut rng = fastrand::Rng::with_seed(5);
    for round in 0..60 {
        let mut bytes = if round % 2 == 0 {
            introduced()
        } else {
            Vec::new()
        };
        bytes.extend((0..rng.usize(1..3000)).map(|_| rng.u8(..)));
        let mut socket = raw(&logd);
        // The node may close the connection before it has read everything.
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        last_word(socket);
    }
    assert_eq!((logd.stats().node.rings, logd.stats().node.appends), (0, 0));
    still_serves(&logd);
    logd.stop();
}

#[test]
fn whoever_does_not_say_hello_or_says_it_byte_by_byte_is_dropped_in_time() {
    let (logd, said) = start(LogdOptions {
        limits: impatient(),
        ..options()
    });
    let begin = Instant::now();
    assert_eq!(last_word(raw(&logd)), None);
    assert!(begin.elapsed() < PATIENCE / 2);
    said.wait_for("did not authenticate");
    let mut slow = raw(&logd);
    let hello = introduced();
    let dropped = hello.iter().any(|byte| {
        std::thread::sleep(Duration::from_millis(10));
        slow.write_all(&[*byte]).is_err()
    });
    // The node has ended the connection without waiting for the rest of the frame.
    assert!(dropped || last_word(slow).is_none());
    still_serves(&logd);
    logd.stop();
}

#[test]
fn a_long_frame_of_a_stranger_is_not_kept() {
    let (logd, _) = start(options());
    let mut socket = raw(&logd);
    let frame = append(1, 0, (0, 0), &vec![1; FRAME_BYTES_MAX - 96]).frame();
    // The node closes the connection long before the whole frame was sent.
    let refused = socket.write_all(&frame).is_err();
    assert!(refused || last_word(socket).is_none());
    eventually("it is gone", || logd.stats().connections == 0);
    logd.stop();
}

#[test]
fn half_a_frame_is_awaited_for_its_time_and_a_pause_between_frames_for_ever() {
    let (logd, said) = start(LogdOptions {
        limits: impatient(),
        ..options()
    });
    let mut calm = client(&logd);
    let mut half = raw(&logd);
    let frame = append(1, 0, (0, 0), &[1; 1000]).frame();
    half.write_all(&[introduced(), frame[..500].to_vec()].concat())
        .unwrap();
    assert_eq!(last_word(half), None);
    said.wait_for("half a frame");
    std::thread::sleep(impatient().frame * 2);
    calm.ask(&Request::Ping).unwrap();
    logd.stop();
}

#[test]
fn strangers_make_room_for_clients_and_clients_do_not() {
    let (logd, said) = start(LogdOptions {
        connections_max: 3,
        ..options()
    });
    let mut client_1 = client(&logd);
    let strangers: Vec<TcpStream> = (0..20).map(|_| raw(&logd)).collect();
    let mut client_2 = client(&logd);
    let mut client_3 = client(&logd);
    eventually("three clients", || logd.stats().connections == 3);
    assert_eq!(last_word(raw(&logd)), None);
    said.wait_for("was refused");
    for client in [&mut client_1, &mut client_2, &mut client_3] {
        client.ask(&Request::Ping).unwrap();
    }
    drop((strangers, client_1));
    eventually("room", || logd.stats().connections == 2);
    still_serves(&logd);
    logd.stop();
}
