//! Tests of `perdura logd --peer`: pairs of nodes without a mirror, and peers that connect and disconnect.

use crate::logd::Node;
use crate::support::{arg, ended, free_port, signal};

const RING: [&str; 2] = ["--ring", "8MiB"];

#[test]
fn a_node_does_not_start_with_a_peer_that_makes_no_mirror_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "sixteen bytes at least\n").unwrap();
    let peer = Node::start("127.0.0.1:0", &RING);
    let (inc, address) = (peer.inc().to_string(), peer.address.as_str());
    let own = format!("127.0.0.1:{}", free_port());
    let all = own.replace("127.0.0.1", "0.0.0.0");
    let one = ["--peer", address, "--one-machine"];
    let public = ["--key-file", arg(&key), "--allow-plaintext"];
    let cases: [(&[&str], &str, &[&str]); 9] = [
        (
            &["--peer", address],
            "127.0.0.1:0",
            &[&inc, "same machine", "--one-machine"],
        ),
        (
            &one,
            "127.0.0.1:0",
            &["8388608 bytes", "67108864", "the same --ring"],
        ),
        (&["--peer", &own], &own, &[&own, "own address"]),
        (
            &[&["--peer", &own, "--one-machine"], &public[..]].concat(),
            &all,
            &[&own, "this node itself"],
        ),
        (
            &[&one, &["--key-file", arg(&key)][..]].concat(),
            "127.0.0.1:0",
            &[address, "has no key"],
        ),
        (&["--one-machine"], "127.0.0.1:0", &["--peer"]),
        (
            &["--peer", "nowhere"],
            "127.0.0.1:0",
            &["nowhere", "HOST:PORT"],
        ),
        (&["--peer", address, "--peer", &own], &own, &["own address"]),
        (&["--peer", ""], "127.0.0.1:0", &["HOST:PORT"]),
    ];
    for (args, listen, words) in cases {
        let (code, text) = ended(&[&["logd", "--listen", listen], args].concat());
        assert_eq!(code, 2, "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: no {word}: {text}");
        }
    }
    let tls = ["logd", "--tls-listen", "127.0.0.1:0", "--peer", address];
    let (code, text) = ended(&tls);
    assert!(
        code == 2 && text.contains("tls-ca-cert-file"),
        "{code}: {text}"
    );
}

#[test]
fn the_nodes_of_a_pair_start_in_any_order_and_one_that_ends_is_missed_once() {
    let late = format!("127.0.0.2:{}", free_port());
    let args = |peer: &str| [RING[0], RING[1], "--one-machine", "--peer", peer].map(str::to_owned);
    let start = |listen: &str, peer: &str| {
        let args = args(peer);
        Node::start(listen, &args.each_ref().map(String::as_str))
    };
    let mut first = start("127.0.0.1:0", &late);
    let warning = first.says();
    assert!(
        warning.contains("WARN logd: The peer") && warning.contains(&late),
        "{warning}"
    );

    let mut second = start(&late, &first.address);
    let found = second.says();
    assert!(found.contains(&first.inc().to_string()), "{found}");
    let (found, inc) = (first.says(), second.inc().to_string());
    assert!(found.contains(&format!("{late} is node {inc}")), "{found}");

    signal(second.child.id(), rustix::process::Signal::KILL);
    second.child.wait().unwrap();
    // The node may also log that the peer's connection was reset. The test ignores this line.
    fn of_peer(node: &mut Node) -> String {
        let mut lines = std::iter::repeat_with(|| node.says());
        let found = lines.find(|line| !line.contains("The connection of"));
        found.expect("lines without end")
    }
    let lost = of_peer(&mut first);
    assert!(lost.contains(&format!("node {inc}, is lost")), "{lost}");
    let second = start(&late, &first.address);
    let (back, new) = (of_peer(&mut first), second.inc().to_string());
    assert_ne!(new, inc);
    for words in [&new, "it was restarted", &inc] {
        assert!(back.contains(words), "{back}");
    }
}
