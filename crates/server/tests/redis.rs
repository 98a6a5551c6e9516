//! Tests of the server over real sockets, against the replies of Redis 7.0.
//!
//! The client in `redis/client.rs` uses none of the server's code: it writes bytes and reads replies.

mod redis {
    pub mod acl;
    pub mod acl_keys;
    pub mod acl_stored;
    pub mod blocking;
    pub mod browsers;
    pub mod client;
    pub mod clients;
    pub mod collections;
    pub mod commands;
    pub mod connections;
    pub mod digest;
    pub mod durability;
    pub mod estimates;
    pub mod functions;
    pub mod hostile;
    pub mod limits;
    pub mod linear;
    pub mod lists;
    mod long_scripts;
    pub mod loops;
    pub mod passwords;
    pub mod pause;
    pub mod pipelines;
    pub mod places;
    pub mod pubsub;
    pub mod scripts;
    pub mod slow;
    pub mod slow_disk;
    pub mod sorted_sets;
    pub mod streams;
    pub mod tls;
    pub mod tooling;
    pub mod tracking;
    pub mod transactions;
    pub mod watch;
}
