//! Tests of long scripts on one loop, with clients of the other loops beside them.

use super::client::Client;
use super::loops::{Ends, LOOPS, start};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

#[test]
fn a_long_script_of_one_loop_does_not_delay_the_clients_of_the_others() {
    const REQUESTS: u32 = 12;
    let (_running, clients) = start();
    let (scripts, enough) = (AtomicU32::new(0), AtomicBool::new(false));
    let script = "local t = redis.call('SET', KEYS[1], 'x') local n = 0 \
                  while n < 10000000 do n = n + 1 end return n";
    thread::scope(|scope| {
        let mut clients = clients.into_iter();
        let (mut long, mut short) = (clients.next().expect("one"), clients.next().expect("one"));
        let (scripts, enough) = (&scripts, &enough);
        scope.spawn(move || {
            while !enough.load(Ordering::SeqCst) {
                let words = [&b"EVAL"[..], script.as_bytes(), b"1", b"long"];
                assert_eq!(long.call(&words), ":10000000");
                scripts.fetch_add(1, Ordering::SeqCst);
            }
        });
        let _ends = Ends(enough);
        for nth in 0..REQUESTS {
            // This reply waits for the disk, and no script of another loop holds its epoch open. Few of these keys lie
            // in the partition of the scripts' key.
            short.expect(&[(&format!("SET short{nth} y"), "+OK")]);
        }
    });
    // A request that waits for the end of a script takes as long as one.
    let scripts = scripts.load(Ordering::SeqCst);
    assert!(scripts < REQUESTS / 2, "{scripts} scripts ended meanwhile");
}

/// The number of scripts, and a script of about 20 ms that counts itself.
const SCRIPTS: u32 = 30;
const LONG: &str = "local t = redis.call('INCR', KEYS[1]) local n = 0 \
                    while n < 3000000 do n = n + 1 end return t";

/// Returns the number of clients of loop 1. INFO may show older figures, so this waits until they include all clients.
fn of_loop_1(clients: &mut [Client<TcpStream>]) -> u64 {
    let all = u64::try_from(clients.len()).expect("few");
    loop {
        let of = |at| clients[0].figure(&format!("loop_{at}_clients"));
        let counts: Vec<u64> = (0..LOOPS).map(of).collect();
        if counts.iter().sum::<u64>() == all {
            return counts[1];
        }
    }
}

/// Runs scripts without a pause on loop 0. Meanwhile a client of loop 1 asks for the scripts' key with `request`, and
/// another client of loop 1 for other keys. `wrap` has the requests before and after each script.
fn ask_beside_scripts(wrap: (&[&str], &[&str]), request: &str) {
    let (running, mut clients) = start();
    // The clients that go to other loops stay connected, so that the next one gets a place on loop 1.
    while of_loop_1(&mut clients) < 2 {
        let mut client = running.connect();
        client.expect(&[("PING", "+PONG")]);
        clients.push(client);
    }
    let ended = AtomicBool::new(false);
    let (held, free) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let ended = &ended;
        let mut askers = vec![clients.pop().expect("the last"), clients.remove(1)];
        let asks = [(request, &held), ("GET", &free)];
        for (mut client, (request, count)) in askers.drain(..).zip(asks) {
            scope.spawn(move || {
                while !ended.load(Ordering::SeqCst) {
                    let nth = count.fetch_add(1, Ordering::SeqCst);
                    let reply = match request {
                        "GET" => client.send(&format!("GET other{nth}")),
                        _ => client.send(request),
                    };
                    assert!(!reply.starts_with('-'), "{reply}");
                }
            });
        }
        let _ends = Ends(ended);
        let (before, after) = wrap;
        let replies = before.len() + after.len() + 1;
        for _ in 0..SCRIPTS {
            before
                .iter()
                .for_each(|word| clients[0].push(&[word.as_bytes()]));
            clients[0].push(&[&b"EVAL"[..], LONG.as_bytes(), b"1", b"long"]);
            after
                .iter()
                .for_each(|word| clients[0].push(&[word.as_bytes()]));
        }
        for nth in 1..=SCRIPTS {
            let last = (0..replies).map(|_| clients[0].read()).last();
            assert!(last.is_some_and(|last| last.contains(&format!(":{nth}"))));
        }
    });
    let (held, free) = (held.into_inner(), free.into_inner());
    // A request for the scripts' key runs after at most one more script. Other requests of its loop wait only if their
    // keys lie in the same of 16 partitions.
    assert!(
        held >= SCRIPTS * 3 / 4,
        "{held} requests for the scripts' key"
    );
    assert!(free >= 5 * SCRIPTS, "{free} requests for other keys");
}

#[test]
fn requests_for_the_key_of_another_loops_scripts_come_between_two_scripts() {
    ask_beside_scripts((&[], &[]), "GET long");
    ask_beside_scripts((&["MULTI"], &["EXEC"]), "EXPIRE long 1000");
    // These figures include the keys of all partitions.
    ask_beside_scripts((&[], &[]), "MEMORY STATS");
}
