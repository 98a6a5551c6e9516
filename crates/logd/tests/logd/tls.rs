//! Tests of TLS with certificates that the tests make.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use perdura_base::Pos;
use perdura_logd::{Client, Logd, LogdOptions, TcpNet};
use perdura_logging::Capture;
use perdura_mirror::{Key, Net, Reply, Request};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::setup::{PATIENCE, append, caller, held, impatient, local, open, options, read, start};

/// The TLS configurations of a node and of its clients.
struct Papers {
    node: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Papers {
    fn new(names: &[&str]) -> Papers {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let certificate = CertificateDer::from(made.cert.der().to_vec());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let node = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Papers {
            node: Arc::new(node),
            client: Arc::new(client),
        }
    }

    fn options(&self) -> LogdOptions {
        LogdOptions {
            listen: Vec::new(),
            tls_listen: vec![local()],
            tls: Some(Arc::clone(&self.node)),
            ..options()
        }
    }
}

fn connect(logd: &Logd, tls: Option<Arc<ClientConfig>>, host: &str) -> Result<Client, String> {
    let address = format!("{host}:{}", logd.addresses()[0].port());
    let net = TcpNet::new(std::slice::from_ref(&address), tls).unwrap();
    Client::connect(&net, &address, &caller(Key::none()), PATIENCE)
}

#[test]
fn blocks_of_all_sizes_go_over_tls_and_come_back() {
    let papers = Papers::new(&["localhost", "127.0.0.1"]);
    let (logd, said) = start(papers.options());
    assert!(said.first().contains("(TLS)"));
    for host in ["localhost", "127.0.0.1"] {
        connect(&logd, Some(Arc::clone(&papers.client)), host).unwrap();
    }
    let mut client = connect(&logd, Some(Arc::clone(&papers.client)), "localhost").unwrap();
    client.ask(&open(1, 0, 0)).unwrap();
    let mut rng = fastrand::Rng::with_seed(9);
    let (mut at, mut ends) = (0, Vec::new());
    let blocks = [1, 4096, 17_000, 400_000, 4 << 20, 5];
    let blocks: Vec<Vec<u8>> = blocks
        .iter()
        .map(|len| (0..*len).map(|_| rng.u8(..)).collect())
        .collect();
    // The client sends all blocks without waiting for replies. If the session cannot take a whole frame, `send` waits.
    for block in &blocks {
        client.send(&append(1, 0, (at, 0), block)).unwrap();
        at += u64::try_from(block.len()).unwrap();
        ends.push(Pos(at));
    }
    for end in ends {
        assert_eq!(held(&client.receive().unwrap()).end, end);
    }
    let all = blocks.concat();
    let reply = client.ask(&read(1, 0, 18_000, 1 << 20)).unwrap();
    let Reply::Bytes { bytes, .. } = Reply::decode(&reply).unwrap() else {
        panic!("no bytes")
    };
    assert!(!bytes.is_empty() && all[18_000..].starts_with(bytes));
    logd.stop();
}

#[test]
fn who_does_not_speak_tls_or_trusts_another_certificate_is_told_why() {
    let papers = Papers::new(&["localhost"]);
    let limits = impatient();
    let (logd, _) = start(LogdOptions {
        limits,
        ..papers.options()
    });
    let why = connect(&logd, None, "localhost").err().unwrap();
    assert!(
        why.contains("the node uses TLS") && why.contains("log-tls-ca-cert-file"),
        "{why}"
    );
    let (plain, _) = start(options());
    let begin = Instant::now();
    let why = connect(&plain, Some(Arc::clone(&papers.client)), "localhost")
        .err()
        .unwrap();
    assert!(
        why.contains("does not use TLS") && why.contains("--tls-listen"),
        "{why}"
    );
    assert!(
        begin.elapsed() < options().limits.greeting,
        "at once, and not when the greeting is overdue"
    );
    plain.stop();
    let strange = Papers::new(&["localhost"]);
    let why = connect(&logd, Some(strange.client), "localhost")
        .err()
        .unwrap();
    assert!(why.contains("certificate"), "{why}");
    // The certificate has another name.
    let why = connect(&logd, Some(Arc::clone(&papers.client)), "127.0.0.1")
        .err()
        .unwrap();
    assert!(why.contains("certificate"), "{why}");
    // A client whose handshake never ends is cut off, however many bytes it sends.
    let mut stuck = TcpStream::connect(logd.addresses()[0]).unwrap();
    let mut hello = vec![0x16, 3, 1, 1, 0];
    hello.extend([1; 256]);
    let begin = Instant::now();
    while hello.iter().all(|byte| {
        std::thread::sleep(limits.greeting / 40);
        stuck.write_all(&[*byte]).is_ok()
    }) {}
    assert!(begin.elapsed() < limits.greeting * 5);
    let mut client = connect(&logd, Some(Arc::clone(&papers.client)), "localhost").unwrap();
    client.ask(&Request::Ping).unwrap();
    logd.stop();
}

#[test]
fn certificates_are_read_anew_and_broken_ones_leave_the_ones_before_in_use() {
    let papers = [Papers::new(&["localhost"]), Papers::new(&["localhost"])];
    let now: Arc<Mutex<Result<Arc<ServerConfig>, String>>> =
        Arc::new(Mutex::new(Ok(Arc::clone(&papers[1].node))));
    let read = Arc::clone(&now);
    let (logd, _) = start(LogdOptions {
        load_tls: Some(Arc::new(move || read.lock().clone())),
        ..papers[0].options()
    });
    let trusts = |papers: &Papers| connect(&logd, Some(Arc::clone(&papers.client)), "localhost");
    assert!(trusts(&papers[0]).is_ok() && trusts(&papers[1]).is_err());
    logd.reload();
    assert!(trusts(&papers[0]).is_err() && trusts(&papers[1]).is_ok());
    *now.lock() = Err("cert.pem: contains no certificate".into());
    let said = Capture::default();
    said.run(|| logd.reload());
    assert!(trusts(&papers[1]).is_ok(), "the one before stays in use");
    let last = said.lines().pop().unwrap();
    assert!(
        last.contains("stay in use") && last.contains("cert.pem"),
        "{last}"
    );
    logd.stop();
}

#[test]
fn a_network_reads_its_certificates_anew() {
    let papers = [Papers::new(&["localhost"]), Papers::new(&["localhost"])];
    let (logd, _) = start(papers[1].options());
    let address = format!("localhost:{}", logd.addresses()[0].port());
    let trusted = Arc::new(Mutex::new(Ok(Arc::clone(&papers[0].client))));
    let read = Arc::clone(&trusted);
    let net = TcpNet::new(std::slice::from_ref(&address), None).unwrap();
    let net = net
        .with_tls_from(Arc::new(move || read.lock().clone()))
        .unwrap();
    let connects = || Client::connect(&net, &address, &caller(Key::none()), PATIENCE).is_ok();
    assert!(!connects());
    *trusted.lock() = Ok(Arc::clone(&papers[1].client));
    assert!(net.reload().unwrap());
    assert!(connects());
    *trusted.lock() = Err("no certificate".into());
    assert!(net.reload().is_err());
    assert!(connects(), "the one before stays in use");
    logd.stop();
}
