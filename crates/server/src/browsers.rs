//! A test that the server runs no command when a browser connects to it. The test sends recorded bytes in pieces, which
//! are cut at random places.
//!
//! The recordings in `tests/data/browsers` are the bytes that Chromium 156 and Firefox 153 sent for a page. The
//! page used `fetch` with PUT, and with a text, a form and a blob as the request's body. It also used a beacon,
//! XMLHttpRequest, forms of each encoding, a WebSocket, and TLS. Every body contains commands.

use crate::engine::Options;
use crate::options::ServerOptions;
use crate::testbed::{Testbed, connection, socket};

macro_rules! recordings {
    ($($browser:literal: $($name:literal)+;)+) => {
        &[$($((
            concat!($browser, "/", $name),
            include_bytes!(concat!("../tests/data/browsers/", $browser, "/", $name, ".bin")),
        )),+),+]
    };
}

const RECORDINGS: &[(&str, &[u8])] = recordings! {
    "chromium": "get-get" "get-websocket" "options-fetch-put" "post-beacon" "post-fetch-blob"
        "post-fetch-form" "post-fetch-text" "post-form-multipart" "post-form-plain"
        "post-form-urlencoded" "post-xhr" "tls";
    "firefox": "get-get" "get-websocket" "options-fetch-put" "post-beacon" "post-fetch-blob"
        "post-fetch-form" "post-fetch-text" "post-form-multipart" "post-form-plain"
        "post-form-urlencoded" "post-xhr" "tls";
};

/// The state of a connection when the bytes from a browser arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    NeedsNoPassword,
    Stranger,
    AfterAuth,
    InBlock,
}

#[test]
fn what_a_browser_sends_runs_no_command_wherever_it_is_cut() {
    let log = perdura_logging::Capture::default();
    let expelled = log.run(send_to_each_client);
    let lines = log.lines();
    let told = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert!(expelled > 80_000, "{expelled}");
    assert_eq!(told("an HTTP request"), 4, "one line each: {lines:?}");
}

/// Sends the recordings, cut at random places. Returns the number of expelled connections.
fn send_to_each_client() -> usize {
    let (testbed, mut stream, mut expelled) = (Testbed::new(), Some(socket()), 0);
    for client in [
        Client::NeedsNoPassword,
        Client::Stranger,
        Client::AfterAuth,
        Client::InBlock,
    ] {
        let open = matches!(client, Client::NeedsNoPassword | Client::InBlock);
        let server = ServerOptions {
            requirepass: (!open).then(|| String::from("secret")),
            ..ServerOptions::default()
        };
        let mut state = testbed.state(server, Options::new(""));
        for (name, bytes) in RECORDINGS {
            let cuts = (0..=bytes.len()).map(|cut| vec![&bytes[..cut], &bytes[cut..]]);
            for pieces in cuts.chain([bytes.chunks(1).collect()]) {
                let stream_of = stream.take().unwrap_or_else(socket);
                let mut connection = connection(&state, stream_of, 0, 1);
                match client {
                    Client::AfterAuth => drop(connection.take(&mut state, b"AUTH secret\r\n")),
                    Client::InBlock => drop(connection.take(&mut state, b"MULTI\r\n")),
                    Client::NeedsNoPassword | Client::Stranger => {}
                }
                let before = (state.stats.commands, state.stats.foreign);
                for piece in &pieces {
                    if !connection.doomed && !piece.is_empty() {
                        connection.take(&mut state, piece);
                    }
                }
                let after = (state.stats.commands, state.stats.foreign);
                let cut = pieces[0].len();
                assert!(connection.doomed, "{name} cut at {cut}, {client:?}");
                assert_eq!(connection.replies.unsent(), 0, "{name} cut at {cut}");
                let counted = (before.0, before.1 + 1);
                assert_eq!(after, counted, "{name} cut at {cut}, {client:?}");
                state.forget(&mut connection.session);
                stream = Some(connection.stream);
                expelled += 1;
            }
        }
    }
    expelled
}
