//! A server process and node processes, connected by TLS. The test creates the certificates.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::node_processes::{World, await_field, plain};
use crate::support::{Server, arg, ended};

/// The files of a self-signed certificate and its key.
struct Papers {
    cert: PathBuf,
    key: PathBuf,
}

impl Papers {
    fn new(dir: &Path, name: &str) -> Papers {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.2".to_owned()]).unwrap();
        let (cert, key) = (
            dir.join(format!("{name}.pem")),
            dir.join(format!("{name}.key")),
        );
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Papers { cert, key }
    }
}

/// Returns the arguments of a node that accepts only TLS, and only a database with the certificate of `client`.
fn tls_args(node: &Papers, client: &Papers, address: &str) -> Vec<String> {
    let args = [
        "--tls-listen",
        address,
        "--tls-cert-file",
        arg(&node.cert),
        "--tls-key-file",
        arg(&node.key),
        "--tls-ca-cert-file",
        arg(&client.cert),
        "--tls-auth-clients",
        "yes",
        "--ring",
        "8MiB",
    ];
    args.map(str::to_owned).to_vec()
}

/// Returns the flags that make a database use TLS to its nodes.
fn speaks<'a>(authority: &'a Papers, own: &'a Papers) -> [&'a str; 6] {
    [
        "--log-tls-ca-cert-file",
        arg(&authority.cert),
        "--log-tls-cert-file",
        arg(&own.cert),
        "--log-tls-key-file",
        arg(&own.key),
    ]
}

/// Starts a server that no node accepts, so it must refuse to start. Returns the server's message.
fn refusal(world: &World, flags: &[&str]) -> String {
    let (status, said) = Server::spawn(&world.data, &world.flags(flags)).wait();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("--accept-loss"), "{said}");
    said
}

#[test]
fn a_database_that_reaches_its_nodes_by_tls_acknowledges_in_memory_and_takes_over() {
    let papers = tempfile::tempdir().unwrap();
    let (node, own) = (
        Papers::new(papers.path(), "node"),
        Papers::new(papers.path(), "own"),
    );
    let strange = Papers::new(papers.path(), "strange");
    let mut world = World::with(&|_, _, address| tls_args(&node, &own, address));
    let right = speaks(&node, &own);
    world.flags.extend(right.map(str::to_owned));
    for _ in 0..2 {
        let server = world.serve();
        world.check(&server);
        let mut client = server.connect().unwrap();
        world.write(&mut client, Duration::from_millis(200));
        server.kill();
    }
    // The next start is a takeover. The server checks the nodes' certificates, and the nodes check the server's
    // certificate.
    let last = world.flags.split_off(world.flags.len() - right.len());
    let said = refusal(&world, &speaks(&strange, &own));
    assert!(said.contains("certificate is not trusted here"), "{said}");
    let said = refusal(&world, &speaks(&node, &strange));
    assert!(said.contains("TLS: received fatal alert"), "{said}");
    let said = refusal(&world, &[]);
    assert!(
        said.contains("the node uses TLS at this address") && said.contains("log-tls-ca-cert-file"),
        "{said}"
    );
    world.flags.extend(last);
    let server = world.serve();
    world.check(&server);
    assert!(world.acked.len() > 20, "{} writes", world.acked.len());
    server.stop();
}

#[test]
fn a_running_database_says_why_nodes_are_of_no_use_and_rests_on_its_disk() {
    let papers = tempfile::tempdir().unwrap();
    let (node, own) = (
        Papers::new(papers.path(), "node"),
        Papers::new(papers.path(), "own"),
    );
    let strange = Papers::new(papers.path(), "strange");
    let with_tls = World::with(&|_, _, address| tls_args(&node, &own, address));
    let without = World::with(&plain);
    let cases: [(&World, &[&str], &str); 4] = [
        (&with_tls, &[], "the node uses TLS at this address"),
        (
            &with_tls,
            &speaks(&strange, &own),
            "certificate is not trusted here",
        ),
        (&with_tls, &speaks(&node, &strange), "received fatal alert"),
        (&without, &speaks(&node, &own), "does not use TLS"),
    ];
    for (number, (world, flags, words)) in cases.into_iter().enumerate() {
        let data = world.dir.path().join(format!("db-{number}"));
        let view = world.dir.path().join(format!("view-{number}"));
        let mut flags = world.flags(flags);
        flags.extend(["--log-view", arg(&view)]);
        let server = Server::start(&data, &flags);
        await_field(&server, "log_mirror_nodes_0_trouble", words);
        assert_eq!(server.log_field("log_mirror_mode"), "disk");
        server.ask(&["SET", "key", "value"]);
        server.stop();
    }
}

#[test]
fn files_of_tls_that_do_not_fit_are_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let papers = Papers::new(dir.path(), "some");
    let (cert, key, data) = (arg(&papers.cert), arg(&papers.key), dir.path().join("db"));
    let view = dir.path().join("view");
    let nodes = [
        "--log-nodes",
        "127.0.0.1:1,127.0.0.1:2",
        "--log-view",
        arg(&view),
    ];
    let missing = dir.path().join("missing");
    let cases: [(&[&str], &str); 6] = [
        (
            &["--log-tls-cert-file", cert, "--log-tls-key-file", key],
            "give log-tls-ca-cert-file",
        ),
        (
            &["--log-tls-ca-cert-file", cert, "--log-tls-cert-file", cert],
            "log-tls-key-file together",
        ),
        (
            &["--log-tls-ca-cert-file", arg(&missing)],
            "TLS to the nodes:",
        ),
        (&["--log-tls-ca-cert-file", key], "contains no certificate"),
        (
            &[
                "--log-tls-ca-cert-file",
                cert,
                "--log-tls-cert-file",
                cert,
                "--log-tls-key-file",
                cert,
            ],
            "TLS to the nodes:",
        ),
        (
            &["--log-nodes", "192.0.2.1:1,192.0.2.2:2"],
            "Use TLS (log-tls-ca-cert-file)",
        ),
    ];
    for (flags, words) in cases {
        let serve = ["serve", "--data", arg(&data)];
        let (code, said) = ended(&[&serve[..], &nodes, flags].concat());
        assert!(
            code == 2 && said.contains(words),
            "{flags:?}: {code}: {said}"
        );
    }
    let (code, said) = ended(&[
        "serve",
        "--data",
        arg(&data),
        "--log-tls-ca-cert-file",
        cert,
    ]);
    assert!(
        code == 2 && said.contains("need log-nodes"),
        "{code}: {said}"
    );
}
