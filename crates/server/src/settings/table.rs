//! The table of this server's settings, in the order of the documentation.

use super::kind::{Kind, SECOND_US, boolean, known, number, yes_no};
use super::row::{
    ANY_BYTES, I32_MAX, addresses, count, database, millis, one, path, paths, put_addresses,
    put_millis, put_path, put_paths, row, server,
};
use super::{
    ClientShare, Group, Setting, archive, clients, logs, loops, nodes, packed, restarts, texts,
};
use crate::options::{DebugAccess, OnStop};
use crate::tls::TlsAuthClients;
use perdura::LogIo;
use std::path::PathBuf;

/// All settings.
pub static SETTINGS: &[Setting] = &[
    row(
        "data",
        Group::Database,
        Kind::Path,
        "The data directory. It is made if it does not exist.",
        database!(
            |o| one(o.data.display()),
            |o, v| {
                o.data = v
                    .first()
                    .map(PathBuf::from)
                    .ok_or("there is no data directory")?;
                Ok(())
            }
        ),
    ),
    row(
        "log-dir",
        Group::Database,
        Kind::Path,
        "Directory of the log, on another disk than the data. Give it once for all streams, or \
         once for each.",
        database!(|o| paths(&o.log_dirs), |o, v| put_paths(&mut o.log_dirs, v)),
    )
    .many()
    .default("the data directory"),
    row(
        "log-io",
        Group::Database,
        Kind::Choice(&["auto", "ring", "sync"]),
        "How the log's writes become durable. ring: the kernel writes them without a waiting \
         thread (io_uring). sync: a thread writes and waits. auto: measures both at the start, \
         on each log directory.",
        database!(
            |o| one(o.log_io.name()),
            |o, v| known(&mut o.log_io, LogIo::named(&v[0]))
        ),
    ),
    row(
        "flush-every",
        Group::Database,
        millis(1000),
        "The least time between two flushes of the log, for any number of waiting clients (bare: \
         milliseconds). 0: a flush starts as soon as a client waits, and later only if that \
         costs no throughput.",
        database!(|o| one(o.flush_every.as_millis()), |o, v| put_millis(&mut o.flush_every, v)),
    ),
    archive::DIRECTORY,
    archive::BACKLOG,
    archive::MERGE,
    archive::KEEP,
    archive::MOMENTS,
    archive::GENERATION,
    nodes::NODES,
    nodes::VIEW,
    nodes::KEY_FILE,
    nodes::TLS_CA,
    nodes::TLS_CERT,
    nodes::TLS_KEY,
    nodes::TAIL,
    nodes::LEASE,
    nodes::ONE_MACHINE,
    nodes::PLAINTEXT,
    nodes::ACCEPT_LOSS,
    row(
        "image-dir",
        Group::Database,
        Kind::Path,
        "Directory of the images' pages. Give it once for each disk: a checkpoint writes to all at \
         once. Their number and order are fixed when the database is made.",
        database!(|o| paths(&o.image_dirs), |o, v| put_paths(&mut o.image_dirs, v)),
    )
    .many()
    .default("the data directory"),
    row(
        "streams",
        Group::Database,
        Kind::Integer {
            min: 1,
            max: 16,
        },
        "Log streams. More than one helps only with more than one disk. Fixed when the database \
         is made.",
        database!(|o| one(o.streams), |o, v| number(&mut o.streams, &v[0])),
    ),
    row(
        "partitions",
        Group::Database,
        Kind::Integer { min: 1, max: 256 },
        "Virtual partitions, a power of two. Fixed when the database is made.",
        database!(|o| one(o.partitions), |o, v| number(&mut o.partitions, &v[0])),
    ),
    row(
        "segment-size",
        Group::Database,
        ANY_BYTES,
        "Size of the largest log segments; a log begins with 4 MiB and doubles. Fixed when the database is made.",
        database!(|o| one(o.segment_bytes), |o, v| {
            number(&mut o.segment_bytes, &v[0])
        }),
    ),
    row(
        "checkpoint-log-size",
        Group::Database,
        ANY_BYTES,
        "A checkpoint begins when the log has grown by this much.",
        database!(|o| one(o.checkpoint_log_bytes), |o, v| {
            number(&mut o.checkpoint_log_bytes, &v[0])
        }),
    ),
    row(
        "checkpoint-max",
        Group::Database,
        Kind::Time {
            unit_us: SECOND_US,
            min: 1,
            max: I32_MAX,
        },
        "A checkpoint is written slowly, but takes at most this long.",
        database!(|o| one(o.checkpoint_seconds_max), |o, v| {
            number(&mut o.checkpoint_seconds_max, &v[0])
        }),
    ),
    row(
        "on-stop",
        Group::Database,
        Kind::Choice(&["exit", "stay"]),
        "What the server does after a failed write or sync of the log or anchor, which stops the \
         database. exit: it sends errors to its clients, and ends with code 4 within 2 s. stay: \
         it answers with errors.",
        server!(
            |o| {
                one(match o.on_stop {
                    OnStop::Exit => "exit",
                    OnStop::Stay => "stay",
                })
            },
            |o, v| {
                o.on_stop = match v[0].as_str() {
                    "stay" => OnStop::Stay,
                    _ => OnStop::Exit,
                };
                Ok(())
            }
        ),
    )
    .live(),
    row(
        "maxmemory",
        Group::Database,
        ANY_BYTES,
        "Memory for pages, indexes and buffers. Beyond it writes are refused. 0: no limit.",
        database!(
            |o| {
                let shown = |limit| if limit == u64::MAX { 0 } else { limit };
                o.memory_limit.map(shown).iter().map(u64::to_string).collect()
            },
            |o, v| {
                let mut limit = 0;
                number(&mut limit, &v[0])?;
                o.memory_limit = Some(if limit == 0 { u64::MAX } else { limit });
                Ok(())
            }
        ),
    )
    .live()
    .default("75 % of the machine's or container's"),
    row(
        "max-value-size",
        Group::Database,
        Kind::Bytes {
            min: 1,
            max: 512 << 20,
        },
        "The longest value.",
        database!(|o| one(o.value_bytes_max), |o, v| {
            number(&mut o.value_bytes_max, &v[0])
        }),
    )
    .redis("proto-max-bulk-len"),
    restarts::ON_DEMAND,
    restarts::LEVEL,
    restarts::THREADS,
    row(
        "listen",
        Group::Network,
        Kind::Address,
        "An address to listen on; port 0 picks a free one.",
        server!(|o| addresses(&o.listen), |o, v| put_addresses(&mut o.listen, v)),
    )
    .many()
    .default("127.0.0.1:6379, or none if there is a Unix socket or `tls-listen`"),
    row(
        "unix-socket",
        Group::Network,
        Kind::Path,
        "A Unix socket to listen on. Only its owner can connect.",
        server!(|o| path(o.unix_socket.as_ref()), |o, v| {
            put_path(&mut o.unix_socket, v)
        }),
    )
    .redis("unixsocket"),
    loops::COUNT,
    loops::CPUS,
    clients::COUNT,
    clients::STRANGERS,
    clients::TRACKED_KEYS,
    clients::IDLE,
    clients::KEEPALIVE,
    clients::DURABILITY,
    row(
        "maxmemory-clients",
        Group::Network,
        Kind::Text,
        "The part of `maxmemory` for clients' buffers, in bytes or percent. 0: no limit. Waiting \
         requests count as buffers, also those of a client that does not read its replies. When \
         the part is nearly full and a large request is unfinished, only one such client is \
         read. When it is full, the client with the largest buffers is disconnected. If \
         `maxmemory` has no limit, a percentage refers to its default. A larger request, MULTI \
         block or reply is not possible.",
        server!(|o| one(o.client_share.show()), |o, v| {
            o.client_share = ClientShare::parse(&v[0])?;
            Ok(())
        }),
    )
    .live(),
    row(
        "client-query-buffer-limit",
        Group::Network,
        Kind::Bytes {
            min: 1 << 20,
            max: 9_223_372_036_854_775_807,
        },
        "The maximum size of one request, or of one MULTI block.",
        server!(|o| one(o.query_bytes_max), |o, v| {
            number(&mut o.query_bytes_max, &v[0])
        }),
    )
    .live(),
    row(
        "client-output-buffer-limit",
        Group::Network,
        Kind::Text,
        "When a client that does not read is disconnected: `class hard soft seconds` for the classes \
         normal, replica and pubsub.",
        server!(|o| one(o.output_limits.show()), |o, v| {
            o.output_limits.update(&v[0])
        }),
    )
    .live(),
    row(
        "requirepass",
        Group::Security,
        Kind::Secret,
        "The password of the user `default`. Other users can see a flag in the list of \
         processes: use the variable or the file.",
        server!(
            |o| one(o.requirepass.clone().unwrap_or_default()),
            |o, v| {
                o.requirepass = Some(v[0].clone()).filter(|word| !word.is_empty());
                Ok(())
            }
        ),
    )
    .live()
    .default("none"),
    row(
        "protected-mode",
        Group::Security,
        Kind::Bool,
        "Whether clients of other machines are refused while the user `default` has no password.",
        server!(|o| one(yes_no(o.protected_mode)), |o, v| {
            boolean(&mut o.protected_mode, &v[0]);
            Ok(())
        }),
    )
    .live(),
    row(
        "allow-plaintext",
        Group::Security,
        Kind::Bool,
        "Whether an address that other machines can reach may be served without TLS.",
        server!(|o| one(yes_no(o.allow_plaintext)), |o, v| {
            boolean(&mut o.allow_plaintext, &v[0]);
            Ok(())
        }),
    ),
    row(
        "aclfile",
        Group::Security,
        Kind::Path,
        "A file of users, as ACL SAVE writes it.",
        server!(|o| path(o.aclfile.as_ref()), |o, v| put_path(&mut o.aclfile, v)),
    ),
    row(
        "user",
        Group::Security,
        Kind::Secret,
        "A user: its name and rules, as for ACL SETUSER.",
        server!(|o| o.users.clone(), |o, v| {
            o.users = v.to_vec();
            Ok(())
        }),
    )
    .many(),
    row(
        "acllog-max-len",
        Group::Security,
        count(i64::MAX),
        "Entries that ACL LOG keeps.",
        server!(|o| one(o.acllog_len_max), |o, v| {
            number(&mut o.acllog_len_max, &v[0])
        }),
    )
    .live(),
    row(
        "acl-pubsub-default",
        Group::Security,
        Kind::Choice(&["allchannels", "resetchannels"]),
        "Which channels a new user may use.",
        server!(|o| one(&o.acl_pubsub_default), |o, v| {
            o.acl_pubsub_default.clone_from(&v[0]);
            Ok(())
        }),
    )
    .live(),
    row(
        "tls-listen",
        Group::Security,
        Kind::Address,
        "An address to listen on with TLS.",
        server!(|o| addresses(&o.tls_listen), |o, v| {
            put_addresses(&mut o.tls_listen, v)
        }),
    )
    .many(),
    row(
        "tls-cert-file",
        Group::Security,
        Kind::Path,
        "The certificate and its chain, PEM.",
        server!(|o| path(o.tls_cert_file.as_ref()), |o, v| {
            put_path(&mut o.tls_cert_file, v)
        }),
    )
    .live(),
    row(
        "tls-key-file",
        Group::Security,
        Kind::Path,
        "The certificate's key, PEM.",
        server!(|o| path(o.tls_key_file.as_ref()), |o, v| {
            put_path(&mut o.tls_key_file, v)
        }),
    )
    .live(),
    row(
        "tls-ca-cert-file",
        Group::Security,
        Kind::Path,
        "Authorities that clients' certificates are checked against, PEM.",
        server!(|o| path(o.tls_ca_cert_file.as_ref()), |o, v| {
            put_path(&mut o.tls_ca_cert_file, v)
        }),
    )
    .live(),
    row(
        "tls-auth-clients",
        Group::Security,
        Kind::Choice(&["no", "yes", "optional"]),
        "Whether TLS clients need a certificate.",
        server!(
            |o| {
                one(match o.tls_auth_clients {
                    TlsAuthClients::No => "no",
                    TlsAuthClients::Yes => "yes",
                    TlsAuthClients::Optional => "optional",
                })
            },
            |o, v| {
                o.tls_auth_clients = match v[0].as_str() {
                    "no" => TlsAuthClients::No,
                    "optional" => TlsAuthClients::Optional,
                    _ => TlsAuthClients::Yes,
                };
                Ok(())
            }
        ),
    )
    .live(),
    row(
        "enable-debug-command",
        Group::Security,
        Kind::Choice(&["no", "yes", "local"]),
        "Which clients may use DEBUG: none, all, or those on this machine.",
        server!(
            |o| {
                one(match o.enable_debug_command {
                    DebugAccess::No => "no",
                    DebugAccess::Yes => "yes",
                    DebugAccess::Local => "local",
                })
            },
            |o, v| {
                o.enable_debug_command = match v[0].as_str() {
                    "yes" => DebugAccess::Yes,
                    "local" => DebugAccess::Local,
                    _ => DebugAccess::No,
                };
                Ok(())
            }
        ),
    ),
    row(
        "metrics-listen",
        Group::Observation,
        Kind::Address,
        "The address of `/metrics` (Prometheus) and of the status page. An address that other \
         machines can reach needs `http-password` or `http-public`.",
        server!(
            |o| o.metrics_listen.iter().map(ToString::to_string).collect(),
            |o, v| {
                let mut found = Vec::new();
                put_addresses(&mut found, v)?;
                o.metrics_listen = found.pop();
                Ok(())
            }
        ),
    )
    .default("off"),
    row(
        "http-hosts",
        Group::Observation,
        Kind::Text,
        "Names of `metrics-listen` beside its own address and `localhost`, such as \
         `db.example.org` or `db.example.org:9121`. Requests for other names are refused.",
        server!(|o| o.http_hosts.clone(), |o, v| {
            o.http_hosts = v.iter().map(|text| texts::host(text)).collect::<Result<_, _>>()?;
            Ok(())
        }),
    )
    .many()
    .default("none"),
    row(
        "http-password",
        Group::Observation,
        Kind::Secret,
        "The password that `metrics-listen` asks for (Basic with any user name, or Bearer). It \
         crosses the network unencrypted.",
        server!(
            |o| one(o.http_password.clone().unwrap_or_default()),
            |o, v| {
                o.http_password = Some(v[0].clone()).filter(|word| !word.is_empty());
                Ok(())
            }
        ),
    )
    .default("none"),
    row(
        "http-public",
        Group::Observation,
        Kind::Bool,
        "Whether other machines may read `metrics-listen` without a password.",
        server!(|o| one(yes_no(o.http_public)), |o, v| {
            boolean(&mut o.http_public, &v[0]);
            Ok(())
        }),
    ),
    logs::LEVEL,
    logs::FORMAT,
    row(
        "notify-keyspace-events",
        Group::Observation,
        Kind::Text,
        "Classes of keyspace events that are published, as letters of `KEg$lshzxetdmnA`.",
        server!(|o| one(&o.notify_keyspace_events), |o, v| {
            o.notify_keyspace_events = texts::events(&v[0])?;
            Ok(())
        }),
    )
    .live()
    .default("none"),
    row(
        "key-idle-times",
        Group::Observation,
        Kind::Bool,
        "Whether the second in which a key was last used is recorded for OBJECT IDLETIME. It is \
         kept only in memory, 5 to 8 bytes a key.",
        server!(|o| one(yes_no(o.key_idle_times)), |o, v| {
            boolean(&mut o.key_idle_times, &v[0]);
            Ok(())
        }),
    )
    .live(),
    row(
        "slowlog-log-slower-than",
        Group::Observation,
        Kind::Time {
            unit_us: 1,
            min: -1,
            max: i64::MAX,
        },
        "Commands that take at least this long are kept in SLOWLOG (bare: microseconds). -1: none.",
        server!(|o| one(o.slowlog_slower_than_us), |o, v| {
            number(&mut o.slowlog_slower_than_us, &v[0])
        }),
    )
    .live(),
    row(
        "slowlog-max-len",
        Group::Observation,
        count(i64::MAX),
        "Entries that SLOWLOG keeps.",
        server!(|o| one(o.slowlog_len_max), |o, v| {
            number(&mut o.slowlog_len_max, &v[0])
        }),
    )
    .live(),
    row(
        "latency-tracking",
        Group::Observation,
        Kind::Bool,
        "Whether the times of commands are counted, for LATENCY HISTOGRAM and INFO latencystats.",
        server!(|o| one(yes_no(o.latency_tracking)), |o, v| {
            boolean(&mut o.latency_tracking, &v[0]);
            Ok(())
        }),
    )
    .live(),
    row(
        "latency-monitor-threshold",
        Group::Observation,
        millis(i64::MAX),
        "Events that take at least this long are kept for LATENCY LATEST (bare: milliseconds). \
         0: none.",
        server!(|o| one(o.latency_threshold_ms), |o, v| {
            number(&mut o.latency_threshold_ms, &v[0])
        }),
    )
    .live(),
    row(
        "latency-tracking-info-percentiles",
        Group::Observation,
        Kind::Text,
        "Percentiles that INFO latencystats shows.",
        server!(
            |o| {
                let words: Vec<String> = o.latency_percentiles.iter().map(f64::to_string).collect();
                one(words.join(" "))
            },
            |o, v| {
                o.latency_percentiles = texts::percentiles(&v[0])?;
                Ok(())
            }
        ),
    )
    .live(),
    packed::HASH_ENTRIES,
    packed::HASH_BYTES,
    packed::LIST_SIZE,
    packed::SET_INTEGERS,
    packed::SET_ENTRIES,
    packed::SET_BYTES,
    packed::ZSET_ENTRIES,
    packed::ZSET_BYTES,
    packed::SPARSE_SKETCH_BYTES,
];
