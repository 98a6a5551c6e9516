//! The nodes that the settings name, reached over TCP.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perdura::mirror::{MirrorOptions, NumberedFiles, Patience, Register};
use perdura::{NodeSettings, NodeTlsFiles, Nodes};
use perdura_device::FileDisk;
use perdura_logd::TcpNet;
use perdura_server::{TlsAuthClients, TlsFiles};

use crate::exit::Usage;
use crate::verb::logd::key;

/// The pause between a takeover's checks for replies.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// Returns the nodes that the settings name, for opening a database. Returns `None` if the settings name no nodes.
pub fn of(settings: &NodeSettings) -> Result<Option<Nodes>> {
    if settings.groups.is_empty() {
        let is_alone = settings.view.is_none()
            && settings.key_file.is_none()
            && settings.tls == NodeTlsFiles::default();
        ensure!(
            is_alone,
            Usage(
                "log-view, log-key-file and log-tls-… need log-nodes: give the addresses of the \
                 nodes"
                    .into()
            )
        );
        return Ok(None);
    }
    let groups = settings.groups.iter().map(|pair| pair_of(pair));
    let groups = groups.collect::<Result<Vec<[String; 2]>>>()?;
    let Some(view) = &settings.view else {
        let why = "log-nodes needs log-view: give a directory that survives the loss of this \
                   machine";
        return Err(Usage(why.into()).into());
    };
    let addresses: Vec<String> = groups.iter().flatten().cloned().collect();
    debug_assert_eq!(addresses.len(), 2 * groups.len(), "a group has two nodes");
    let files = tls_of(&settings.tls)?;
    let is_private = files.is_some() || settings.allow_plaintext;
    let net = TcpNet::new(&addresses, None)?;
    let net = match files {
        Some(files) => net.with_tls_from(Arc::new(move || {
            let config = files.client_config();
            config.map_err(|why| format!("TLS to the nodes: {why}"))
        }))?,
        None => net,
    };
    for address in &addresses {
        let is_here = net.is_loopback(address);
        ensure!(
            is_here || is_private,
            Usage(format!(
                "{address} is on another machine, and the database's changes would cross the \
                 network unencrypted. Use TLS (log-tls-ca-cert-file). If the network is private, \
                 set log-allow-plaintext"
            ))
        );
    }
    let options = MirrorOptions {
        tail_bytes_max: settings.tail_bytes,
        one_machine: settings.one_machine,
        lease_ns: u64::try_from(settings.lease.as_nanos()).unwrap_or(u64::MAX),
        ..MirrorOptions::new(groups, key(settings.key_file.as_deref())?)
    };
    let disk = FileDisk::shared(view).with_context(|| view.display().to_string())?;
    let token = random();
    Ok(Some(Nodes {
        options,
        net: Arc::new(net),
        register: Arc::new(move |uuid| {
            Ok(Box::new(NumberedFiles::new(Arc::clone(&disk), uuid, token)) as Box<dyn Register>)
        }),
        random: Arc::new(random),
        patience: Patience::default(),
        pass: Arc::new(|| std::thread::sleep(LOOK_EVERY)),
    }))
}

/// Returns the files of certificates and keys for TLS to nodes. `None`: TLS is not used.
fn tls_of(files: &NodeTlsFiles) -> Result<Option<TlsFiles>> {
    let NodeTlsFiles { ca_cert, cert, key } = files.clone();
    ensure!(
        ca_cert.is_some() || (cert.is_none() && key.is_none()),
        Usage("log-tls-cert-file needs TLS to the nodes: give log-tls-ca-cert-file too".into())
    );
    ensure!(
        cert.is_some() == key.is_some(),
        Usage("give log-tls-cert-file and log-tls-key-file together".into())
    );
    if ca_cert.is_none() {
        return Ok(None);
    }
    Ok(Some(TlsFiles {
        cert,
        key,
        ca_cert,
        auth_clients: TlsAuthClients::No,
    }))
}

fn pair_of(text: &str) -> Result<[String; 2]> {
    let parts: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    parts.try_into().map_err(|_| {
        Usage(format!(
            "log-nodes needs two addresses, for example 10.0.0.2:7379,10.0.0.3:7379, not {text}"
        ))
        .into()
    })
}

/// Returns eight random bytes from the system.
fn random() -> u64 {
    let nonce = perdura_logd::draw_nonce().expect("the system gives random numbers");
    u64::from_le_bytes(*nonce.first_chunk().expect("a nonce has 32 bytes"))
}
