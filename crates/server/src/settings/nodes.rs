//! The settings of the nodes that hold the newest part of the log.

use super::kind::{Kind, boolean, number, yes_no};
use super::row::{database, millis, one, path, put_millis, put_path, row};
use super::{Group, Setting};

pub const NODES: Setting = row(
    "log-nodes",
    Group::Database,
    Kind::Text,
    "Two nodes (`perdura logd`) that keep the newest part of the log in memory, as \
     `HOST:PORT,HOST:PORT`. Several pairs share the streams. A write of durability mirror is \
     acknowledged when both nodes of a pair have it. It is copied to the log's disk a little \
     later.",
    database!(|o| o.node_settings.groups.clone(), |o, v| {
        o.node_settings.groups = v.iter().filter(|pair| !pair.is_empty()).cloned().collect();
        Ok(())
    }),
)
.many();

pub const VIEW: Setting = row(
    "log-view",
    Group::Database,
    Kind::Path,
    "Directory of the view, a small file. It says which server may write, and whether \
     acknowledged writes may be only in the memory of nodes. Needed with `log-nodes`. Every \
     machine that may serve the database must reach it. It must survive the loss of the data \
     directory's machine.",
    database!(|o| path(o.node_settings.view.as_ref()), |o, v| put_path(
        &mut o.node_settings.view,
        v
    )),
);

pub const KEY_FILE: Setting = row(
    "log-key-file",
    Group::Database,
    Kind::Path,
    "A file with the key of the nodes (their `--key-file`).",
    database!(
        |o| path(o.node_settings.key_file.as_ref()),
        |o, v| put_path(&mut o.node_settings.key_file, v)
    ),
);

pub const TLS_CA: Setting = row(
    "log-tls-ca-cert-file",
    Group::Database,
    Kind::Path,
    "Use TLS to the nodes (their `--tls-listen`). Authorities that their certificates are \
     checked against, PEM.",
    database!(|o| path(o.node_settings.tls.ca_cert.as_ref()), |o, v| {
        put_path(&mut o.node_settings.tls.ca_cert, v)
    }),
);

pub const TLS_CERT: Setting = row(
    "log-tls-cert-file",
    Group::Database,
    Kind::Path,
    "The certificate and its chain for the nodes, PEM. Needed by nodes with `--tls-auth-clients`.",
    database!(|o| path(o.node_settings.tls.cert.as_ref()), |o, v| {
        put_path(&mut o.node_settings.tls.cert, v)
    }),
);

pub const TLS_KEY: Setting = row(
    "log-tls-key-file",
    Group::Database,
    Kind::Path,
    "The key of the certificate for the nodes, PEM.",
    database!(|o| path(o.node_settings.tls.key.as_ref()), |o, v| {
        put_path(&mut o.node_settings.tls.key, v)
    }),
);

pub const TAIL: Setting = row(
    "log-tail",
    Group::Database,
    Kind::Bytes {
        min: 1 << 20,
        max: 1 << 40,
    },
    "The maximum size of the part of a stream that is only in memories, not on the log's disk. Beyond it \
     writes wait for the disk. A node's ring must be at least as large.",
    database!(|o| one(o.node_settings.tail_bytes), |o, v| number(
        &mut o.node_settings.tail_bytes,
        &v[0]
    )),
);

pub const LEASE: Setting = row(
    "log-lease",
    Group::Database,
    millis(3_600_000),
    "Needed if two machines can reach the data directory. The server asks the view directory \
     whether another server has replaced it. Without an answer for this time it stops. The next \
     server waits a little longer before it reads the disk. Not needed while both nodes of a \
     mirror acknowledge. 0: none.",
    database!(|o| one(o.node_settings.lease.as_millis()), |o, v| {
        put_millis(&mut o.node_settings.lease, v)
    }),
);

pub const ONE_MACHINE: Setting = row(
    "log-one-machine",
    Group::Database,
    Kind::Bool,
    "Whether two nodes on one machine are accepted as a mirror, although they fail together.",
    database!(|o| one(yes_no(o.node_settings.one_machine)), |o, v| {
        boolean(&mut o.node_settings.one_machine, &v[0]);
        Ok(())
    }),
);

pub const PLAINTEXT: Setting = row(
    "log-allow-plaintext",
    Group::Database,
    Kind::Bool,
    "Whether blocks of the log may go to nodes on other machines unencrypted.",
    database!(|o| one(yes_no(o.node_settings.allow_plaintext)), |o, v| {
        boolean(&mut o.node_settings.allow_plaintext, &v[0]);
        Ok(())
    }),
);

pub const ACCEPT_LOSS: Setting = row(
    "accept-loss",
    Group::Database,
    Kind::Bool,
    "Start although acknowledged writes may be only in the memory of nodes that do not return \
     them. The loss is printed, and recorded in the database for ever. Refused if nothing is \
     lost.",
    database!(|o| one(yes_no(o.node_settings.accept_loss)), |o, v| {
        boolean(&mut o.node_settings.accept_loss, &v[0]);
        Ok(())
    }),
);
