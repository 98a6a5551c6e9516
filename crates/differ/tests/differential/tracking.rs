//! Client-side caches: makes random reads, writes and changes of mode, and compares the invalidations that our server
//! and Redis send to each client. The servers may group the invalidations into messages differently, because the
//! rounds of their loops differ.

use perdura_differ::pair::{Pair, Side};
use perdura_differ::reply::Reply;
use perdura_differ::wire::Wire;
use std::collections::BTreeMap;

/// The number of clients of each server. The last client speaks RESP2 and never tracks.
const CLIENTS: usize = 4;

struct Clients {
    wires: Vec<Wire>,
    /// A client that always tracks. If no client tracked, our server would drop the recorded reads, and Redis would
    /// not.
    _keeper: Wire,
    ids: Vec<String>,
}

impl Clients {
    fn of(pair: &Pair, side: Side) -> Clients {
        let mut wires: Vec<Wire> = (0..CLIENTS)
            .map(|_| pair.connect(side).expect("a connection"))
            .collect();
        let ids = wires.iter_mut().map(|wire| wire.id().expect("an id"));
        let ids = ids.map(|id| id.to_string()).collect();
        for wire in &mut wires[..CLIENTS - 1] {
            wire.call(&["HELLO", "3"]).expect("RESP3");
        }
        let mut keeper = pair.connect(side).expect("a connection");
        let on = keeper.call(&["CLIENT", "TRACKING", "ON"]).expect("a reply");
        assert_eq!(on.kind, b'+');
        Clients {
            wires,
            _keeper: keeper,
            ids,
        }
    }

    /// Sends a command from the client `who`. In `words`, `@n` is the id of client `n`. Returns the reply, and for
    /// each client the number of invalidations of each key.
    fn say(&mut self, who: usize, words: &[&str]) -> (String, Vec<BTreeMap<String, u32>>) {
        let words: Vec<&str> = words
            .iter()
            .map(|word| match word.strip_prefix('@') {
                Some(n) => self.ids[n.parse::<usize>().expect("a client")].as_str(),
                None => word,
            })
            .collect();
        let mut pushed: Vec<Vec<Reply>> = vec![Vec::new(); CLIENTS];
        let mut reply = self.wires[who].call(&words).expect("a reply");
        while reply.kind == b'>' {
            pushed[who].push(reply);
            reply = self.wires[who].read().expect("a reply");
        }
        for (wire, pushed) in self.wires.iter_mut().zip(&mut pushed) {
            pushed.extend(wire.drain("end").expect("pushes"));
        }
        let reply = self
            .ids
            .iter()
            .enumerate()
            .fold(reply.to_string(), |text, (n, id)| {
                text.replace(&format!(":{id},"), &format!(":@{n},"))
            });
        (reply, pushed.iter().map(|pushed| keys(pushed)).collect())
    }
}

fn keys(pushed: &[Reply]) -> BTreeMap<String, u32> {
    let mut told = BTreeMap::new();
    for push in pushed {
        assert_eq!((push.kind, push.items().len()), (b'>', 2), "{push}");
        assert_eq!(push.items()[0].text(), Some(&b"invalidate"[..]), "{push}");
        let keys = &push.items()[1];
        let keys: Vec<String> = match keys.items() {
            [] => vec![keys.to_string()],
            keys => keys.iter().map(ToString::to_string).collect(),
        };
        keys.into_iter()
            .for_each(|key| *told.entry(key).or_default() += 1);
    }
    told
}

fn line(rng: &mut fastrand::Rng) -> String {
    let key =
        |rng: &mut fastrand::Rng| format!("{}{}", ["a", "ab", "b"][rng.usize(..3)], rng.u8(..4));
    let (one, two) = (key(rng), key(rng));
    let options = [
        "",
        "NOLOOP",
        "OPTIN",
        "OPTOUT",
        "BCAST",
        "BCAST PREFIX a",
        "BCAST PREFIX a PREFIX b",
        "BCAST PREFIX ab NOLOOP",
        "REDIRECT @0",
        "REDIRECT @1 NOLOOP",
        "OPTIN OPTOUT",
        "PREFIX a",
        "BCAST OPTIN",
        "BCAST PREFIX a PREFIX ab",
    ];
    match rng.u8(..40) {
        0..12 => format!("GET {one}"),
        12..15 => format!("MGET {one} {two}"),
        15..22 => format!("SET {one} v"),
        22 => format!("DEL {one} {two}"),
        23 => format!("MSET {one} v {two} w"),
        24 => format!("APPEND {one} x"),
        25 => format!("RENAME {one} {two}"),
        26 => format!("EXPIRE {one} 1000"),
        27 => format!("STRLEN {one}"),
        28 => format!("COPY {one} {two} REPLACE"),
        29 if rng.u8(..4) == 0 => "FLUSHALL".into(),
        30 => "CLIENT CACHING YES".into(),
        31 => "CLIENT CACHING NO".into(),
        32 => "CLIENT TRACKINGINFO".into(),
        33 | 34 => "CLIENT TRACKING OFF".into(),
        _ => format!("CLIENT TRACKING ON {}", options[rng.usize(..options.len())]),
    }
}

/// ```sh
/// PERDURA_DIFF_TRACKING=100000 cargo test --release -p perdura-differ tracking
/// ```
#[test]
fn caches_are_told_of_what_redis_tells_them() {
    let steps =
        std::env::var("PERDURA_DIFF_TRACKING").map_or(3000, |n| n.parse().expect("a number"));
    let pair = Pair::start().expect("both servers");
    let [mut ours, mut theirs] = [Side::Ours, Side::Theirs].map(|side| Clients::of(&pair, side));
    let mut rng = fastrand::Rng::with_seed(18);
    let mut told = 0;
    let mut said = Vec::new();
    for step in 0..steps {
        let who = rng.usize(..CLIENTS);
        let line = line(&mut rng);
        if who == CLIENTS - 1 && line.starts_with("CLIENT") {
            continue;
        }
        said.push(format!("{who} {line}"));
        let before = &said[said.len().saturating_sub(40)..];
        let words: Vec<&str> = line.split_whitespace().collect();
        let (reply, pushed) = ours.say(who, &words);
        let (wanted, wanted_pushed) = theirs.say(who, &words);
        assert_eq!(reply, wanted, "step {step}: {before:#?}");
        assert_eq!(pushed, wanted_pushed, "step {step}: {before:#?}");
        told += pushed.iter().filter(|pushed| !pushed.is_empty()).count();
    }
    assert!(told > steps / 20, "{told}");
}
