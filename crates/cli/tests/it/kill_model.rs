//! `kill -9` while clients use streams with groups, scripts, functions and tracking.
//!
//! Three kinds of clients work together: [`Clients`] with an exact model, the consumers of one [`Queue`], and readers
//! with a cache ([`Tracking`]). Each kind of client checks its own data afterwards.

use std::time::Duration;

use crate::clients::Clients;
use crate::queue_model::Queue;
use crate::requests::Mix;
use crate::scripted;
use crate::support::{Reply, Server, arg, ended, number_from_env};
use crate::tracking_model::Tracking;

struct Load {
    clients: Clients,
    queue: Queue,
    readers: [Tracking; 2],
}

impl Load {
    fn new(seed: u64) -> Load {
        Load {
            clients: Clients::of(3, seed, Mix::Streams),
            queue: Queue::new(3, seed),
            readers: [0, 1].map(|number| Tracking::new(number, seed)),
        }
    }

    fn check(&mut self, server: &Server) -> Result<(), String> {
        let queue = self.queue.check(server);
        queue.map_err(|wrong| format!("the queue: {wrong}"))?;
        for reader in &mut self.readers {
            let values = reader.check(server);
            values.map_err(|wrong| format!("tracked keys: {wrong}"))?;
        }
        self.clients.check(server)
    }

    /// Lets all clients work until the server is killed.
    fn work(&mut self, server: Server, longest: Duration) {
        let port = server.port();
        let Load {
            clients,
            queue,
            readers,
        } = self;
        std::thread::scope(|scope| {
            scope.spawn(|| queue.work(port));
            for reader in readers {
                scope.spawn(|| reader.work(port));
            }
            clients.work(server, longest, Server::kill);
        });
    }
}

#[test]
fn groups_scripts_and_tracking_keep_their_promises_over_kill_9() {
    let rounds = number_from_env("PERDURA_KILL_MODEL_ROUNDS", 3);
    let seed = number_from_env("PERDURA_KILL_SEED", 1);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let extra = ["--checkpoint-log-size", "1MiB", "--partitions", "16"];
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6d6f_6465);
    let mut load = Load::new(seed);
    let server = Server::start(&data, &extra);
    let loaded = server.ask(&["FUNCTION", "LOAD", &scripted::runner()]);
    assert_eq!(loaded, Reply::Bulk(Some(b"runner".to_vec())));
    server.kill();
    for round in 0..=rounds {
        let server = Server::start(&data, &extra);
        if let Err(wrong) = load.check(&server) {
            panic!("round {round} of seed {seed} (PERDURA_KILL_SEED): {wrong}");
        }
        if round == rounds {
            server.kill();
            break;
        }
        if rng.bool() {
            server.ask(&["BGSAVE"]);
        }
        load.work(server, Duration::from_millis(700));
    }
    let (code, text) = ended(&["verify", "--data", arg(&data)]);
    assert_eq!(code, 0, "{text}");
    let [first, second] = &load.readers;
    let (hits, invalidations) = (
        first.hits + second.hits,
        first.invalidations + second.invalidations,
    );
    println!(
        "{rounds} kills: {} requests acknowledged, {} left in doubt, none lost; {} entries consumed; {hits} reads \
         from caches, {invalidations} invalidations, none missing",
        load.clients.acknowledged,
        load.clients.doubtful,
        load.queue.consumed(),
    );
    assert!(load.clients.acknowledged > rounds * 10 && load.queue.consumed() > rounds);
    assert!(hits > rounds && invalidations > rounds);
}
