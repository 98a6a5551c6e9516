//! `kill -9`, again and again, under load.

use std::time::Duration;

use crate::clients::Clients;
use crate::support::{Server, arg, ended, number_from_env};

#[test]
fn nothing_acknowledged_is_lost_by_kill_9_and_nothing_appears_from_nowhere() {
    let rounds = number_from_env("PERDURA_KILL_ROUNDS", 10);
    let seed = number_from_env("PERDURA_KILL_SEED", 1);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    // Small checkpoints, so that most kills fall into one.
    let extra = ["--checkpoint-log-size", "1MiB", "--partitions", "16"];
    let mut clients = Clients::new(4, seed);
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x6b69_6c6c);
    for round in 0..rounds {
        if rng.u8(..3) == 0 {
            // A restart that is itself killed.
            let server = Server::spawn(&data, &extra);
            std::thread::sleep(Duration::from_millis(rng.u64(..40)));
            server.kill();
        }
        let server = Server::start(&data, &extra);
        if let Err(wrong) = clients.check(&server) {
            panic!("round {round} of seed {seed} (PERDURA_KILL_SEED): {wrong}");
        }
        if rng.bool() {
            server.ask(&["BGSAVE"]);
        }
        clients.work(server, Duration::from_millis(500), Server::kill);
    }
    let server = Server::start(&data, &extra);
    if let Err(wrong) = clients.check(&server) {
        panic!("the last round of seed {seed} (PERDURA_KILL_SEED): {wrong}");
    }
    server.kill();
    let (code, text) = ended(&["verify", "--data", arg(&data)]);
    assert_eq!(code, 0, "{text}");
    println!(
        "{rounds} kills: {} requests acknowledged, {} left in doubt, none lost",
        clients.acknowledged, clients.doubtful
    );
    assert!(
        clients.acknowledged > rounds * 10,
        "the clients hardly worked"
    );
}
