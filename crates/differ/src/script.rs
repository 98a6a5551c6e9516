//! The script of a seed. A script consists of units, and a unit consists of steps. The whole script is made before any
//! command is sent.

use crate::grammar::{Sentence, spoil};
use crate::scenes;
use crate::step::{Argv, CONNECTIONS, Step, TALKERS, Unit, call, calls};
use crate::tables::{Family, is_missing};
use fastrand::Rng;

/// All steps of a seed.
#[derive(Debug, Clone)]
pub struct Script {
    /// The seed.
    pub seed: u64,
    /// True for each connection that speaks RESP3.
    pub resp3: [bool; CONNECTIONS],
    /// The units, in the order of execution.
    pub units: Vec<Unit>,
}

struct Writer<'a> {
    rng: Rng,
    families: Vec<&'a Family>,
    conn: usize,
    /// True for each connection within MULTI. This is a guess, because the replies are not known.
    open: [bool; TALKERS],
    units: Vec<Unit>,
    commands: usize,
}

/// Makes the script of a seed, with about `commands` commands. They come from the families in `only`, or from a
/// random choice of families if `only` is empty.
pub fn write(seed: u64, commands: usize, families: &[Family], only: &[String]) -> Script {
    let mut rng = Rng::with_seed(seed);
    let mut chosen: Vec<&Family> = families[1..]
        .iter()
        .filter(|family| only.is_empty() || only.iter().any(|name| name == family.name))
        .filter(|family| !family.sentences.is_empty())
        .collect();
    if only.is_empty() {
        rng.shuffle(&mut chosen);
        chosen.truncate(rng.usize(3..6));
    }
    chosen.push(&families[0]);
    let resp3 = std::array::from_fn(|_| rng.bool());
    let mut writer = Writer {
        rng,
        families: chosen,
        conn: 0,
        open: [false; TALKERS],
        units: Vec::new(),
        commands: 0,
    };
    while writer.commands < commands {
        writer.unit();
    }
    for conn in 0..TALKERS {
        writer.push(vec![call(conn, &["DISCARD"])]);
    }
    writer.push(vec![Step::Compare]);
    if writer.rng.u8(..) < 50 {
        writer.push(vec![Step::Restart, Step::Compare]);
    }
    Script {
        seed,
        resp3,
        units: writer.units,
    }
}

/// Returns whether a command stores scripts or functions.
fn keeps_scripts(name: &[u8]) -> bool {
    [&b"FUNCTION"[..], b"SCRIPT"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

impl Writer<'_> {
    fn push(&mut self, unit: Unit) {
        self.commands += unit.len();
        for step in &unit {
            if let Step::Call { conn, argv } = step
                && let Some(open) = self.open.get_mut(*conn)
                && let [word] = argv.as_slice()
            {
                match word.to_ascii_uppercase().as_slice() {
                    b"MULTI" => *open = true,
                    b"EXEC" | b"DISCARD" | b"RESET" => *open = false,
                    _ => {}
                }
            }
        }
        self.units.push(unit);
    }

    fn unit(&mut self) {
        if self.rng.u8(..) < 20 {
            self.conn = self.rng.usize(..TALKERS);
        }
        let (conn, open) = (self.conn, self.open[self.conn]);
        match (self.rng.u16(..1000), open) {
            (0..110, true) => self.push(vec![call(conn, &["EXEC"])]),
            (110..125, true) => self.push(vec![call(conn, &["DISCARD"])]),
            (125..128, true) => self.push(vec![call(conn, &["RESET"])]),
            (128..133, true) => self.push(vec![call(conn, &["MULTI"])]),
            (0..22, false) => self.push(vec![call(conn, &["MULTI"])]),
            (22..24, false) => self.push(vec![call(conn, &["EXEC"])]),
            (24..25, false) => self.push(vec![call(conn, &["FLUSHALL"])]),
            (25..45, false) if !is_missing("WATCH") => {
                let watch = Sentence::parse("1 WATCH key+").speak(&mut self.rng);
                self.push(calls(conn, watch));
            }
            (45..48, false) if !is_missing("UNWATCH") => self.push(vec![call(conn, &["UNWATCH"])]),
            (48..49, _) if self.rng.u8(..) < 20 => {
                self.open = [false; TALKERS];
                self.push(vec![Step::Restart]);
            }
            (48..50, _) if self.rng.u8(..) < 40 => self.push(vec![Step::Compare]),
            _ => self.sentence(),
        }
    }

    fn sentence(&mut self) {
        let family = self.families[self.rng.usize(..self.families.len())];
        let dice = self.rng.u8(..);
        match family.name {
            "blocking" if dice < 60 => return self.scene(scenes::blocking),
            "pubsub" if dice < 60 => return self.scene(scenes::listening),
            "notify" if dice < 20 => {
                let families = self.families.clone();
                return self.scene(|rng| scenes::notifications(rng, &families));
            }
            _ => {}
        }
        let total: u32 = family.sentences.iter().map(|s| s.weight).sum();
        let mut at = self.rng.u32(..total.max(1));
        let sentence = family.sentences.iter().find(|sentence| {
            let here = at < sentence.weight;
            at = at.saturating_sub(sentence.weight);
            here
        });
        let Some(sentence) = sentence else { return };
        let mut commands = sentence.speak(&mut self.rng);
        if commands.len() == 1 && self.rng.u8(..) < 14 && !commands[0][0].starts_with(b"@") {
            spoil(&mut commands[0], &mut self.rng);
        }
        let unit = self.steps(commands);
        self.push(unit);
    }

    /// Makes the steps of a unit from commands and `@` words. Returns no steps if a step is impossible within MULTI.
    fn steps(&mut self, commands: Vec<Argv>) -> Unit {
        let (conn, open) = (self.conn, self.open[self.conn]);
        let mut unit = Vec::new();
        for mut argv in commands {
            let number = |word: &[u8]| String::from_utf8_lossy(word).parse().unwrap_or(0);
            match argv[0].as_slice() {
                b"@SLEEP" if open => return Vec::new(),
                // These commands would run when they are queued, before the data commands of the block.
                name if open && keeps_scripts(name) => return Vec::new(),
                b"@SLEEP" => unit.push(Step::Sleep(number(&argv[1]))),
                b"@SCAN" => {
                    argv.remove(0);
                    let cursor = if argv[0] == b"SCAN" { 1 } else { 2 };
                    unit.push(Step::Scan { argv, cursor });
                }
                b"@EXCHANGE" => {
                    let key = argv.swap_remove(2);
                    unit.push(Step::Exchange { key });
                }
                b"@MANY" => {
                    argv.remove(0);
                    unit.push(Step::Call {
                        conn,
                        argv: self.many(argv),
                    });
                }
                _ => unit.push(Step::Call { conn, argv }),
            }
        }
        unit
    }

    /// Extends a command with up to a few hundred elements, all different.
    fn many(&mut self, mut argv: Argv) -> Argv {
        let count = [20, 100, 127, 128, 129, 200, 513][self.rng.usize(..7)];
        let width = argv.len() - 2;
        let long = self.rng.u8(..) < 40;
        let one = argv.split_off(2);
        for i in 0..count {
            for (n, word) in one.iter().enumerate() {
                let tail = if long { "x".repeat(60) } else { String::new() };
                let is_score = argv[0] == b"ZADD" && n == 0;
                let same = is_score && argv[1].starts_with(b"x");
                argv.push(match (n, width) {
                    _ if same => word.clone(),
                    _ if is_score => (i % 50).to_string().into_bytes(),
                    (1, _) if argv[0] == b"HSET" => word.clone(),
                    _ => format!("m{i}{tail}").into_bytes(),
                });
            }
        }
        argv
    }

    fn scene(&mut self, scene: impl FnOnce(&mut Rng) -> Unit) {
        let unit = scene(&mut self.rng);
        self.push(unit);
    }
}
