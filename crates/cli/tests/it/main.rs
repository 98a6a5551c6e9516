//! The built `perdura` command from outside: its words and exit codes, what damage and full disks
//! do to it, and what survives when it is killed or the power is cut.
//!
//! One binary for all of it; `support` starts servers and speaks to them, `clients` is the
//! concurrent load that knows what must be there afterwards.

mod archive;
mod archive_agent;
mod archive_away;
mod archive_refusals;
mod beside_redis;
mod browsers;
mod builds;
mod clients;
mod config;
mod contents;
mod damage;
mod disks;
mod divergence;
mod fault_calls;
mod fault_classes;
mod interleaved;
mod io_faults;
mod keyed;
mod keyed_damage;
mod kill;
mod kill_archive;
mod kill_model;
mod kill_tables;
mod log_io;
mod logd;
mod logd_peer;
mod memory;
mod mirrored;
mod mirrored_dir;
mod mirrored_input;
mod mirrored_net;
mod mirrored_tls;
mod model;
mod mounts;
mod node_processes;
mod ordered;
mod packaging;
mod power_sectors;
mod powercut;
mod preload;
mod queue_consumers;
mod queue_model;
mod receipts;
mod requests;
mod scripted;
mod sectors;
mod sketch_model;
mod special_files;
mod status;
mod stream_model;
mod stream_requests;
mod streams;
mod support;
mod syscalls;
mod texts;
mod thin;
mod tracking_model;
mod transfer;
mod transfer_streams;
mod typed_benches;
mod update_bench;
mod verbs;
