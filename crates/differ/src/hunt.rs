//! Runs the scripts of many seeds and collects the differences between the servers.

use crate::divergence::Divergence;
use crate::pair::Pair;
use crate::play::Player;
use crate::reply::command_line;
use crate::script::{self, Script};
use crate::shrink::shrink;
use crate::step::{Step, name};
use crate::tables::{Family, families};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The maximum time for shortening one failing script.
const SHRINK: Duration = Duration::from_secs(30);

/// The settings of a hunt.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of commands of all seeds together.
    pub commands: u64,
    /// The first seed. The following seeds count up from it.
    pub seed: u64,
    /// The number of commands of one seed.
    pub length: usize,
    /// The families to use. Empty: all families.
    pub families: Vec<String>,
    /// The number of pairs of servers that run in parallel.
    pub jobs: usize,
    /// The number of failures that ends the hunt.
    pub failures: usize,
}

impl Settings {
    /// Reads `PERDURA_DIFF_COMMANDS`, `_SEED`, `_LENGTH`, `_FAMILY`, `_JOBS` and `_FAILURES`.
    ///
    /// # Errors
    /// A value that is not a number.
    pub fn from_environment() -> Result<Settings> {
        let text = |name: &str| std::env::var(format!("PERDURA_DIFF_{name}")).ok();
        let number = |name: &str, default: u64| match text(name) {
            Some(text) => text
                .parse()
                .with_context(|| format!("PERDURA_DIFF_{name} is {text:?}")),
            None => Ok(default),
        };
        Ok(Settings {
            commands: number("COMMANDS", 20_000)?,
            seed: number("SEED", 1)?,
            length: usize::try_from(number("LENGTH", 1500)?)?,
            families: text("FAMILY").map_or(Vec::new(), |names| {
                names.split(',').map(str::to_owned).collect()
            }),
            jobs: usize::try_from(number("JOBS", 1)?)?,
            failures: usize::try_from(number("FAILURES", 1)?)?,
        })
    }
}

/// The results of a hunt.
#[derive(Debug)]
pub struct Report {
    /// Count of commands sent to each server.
    pub commands: u64,
    /// The number of seeds that ran.
    pub seeds: u64,
    /// The time that the hunt took.
    pub elapsed: Duration,
    /// A text for each failure, with the seed and the shortened script.
    pub failures: Vec<String>,
}

struct Shared {
    next: AtomicU64,
    sent: AtomicU64,
    failures: Mutex<Vec<(String, String)>>,
}

/// Runs seeds until enough commands were sent or enough failures were found.
///
/// # Errors
/// Redis is missing or fails, or a family is unknown.
pub fn hunt(settings: &Settings) -> Result<Report> {
    let families = families();
    for wanted in &settings.families {
        let known = families.iter().any(|family| family.name == wanted);
        anyhow::ensure!(known, "there is no family {wanted}");
    }
    let begun = Instant::now();
    let shared = Shared {
        next: AtomicU64::new(settings.seed),
        sent: AtomicU64::new(0),
        failures: Mutex::new(Vec::new()),
    };
    std::thread::scope(|scope| {
        let works: Vec<_> = (0..settings.jobs.max(1))
            .map(|_| scope.spawn(|| work(settings, &families, &shared)))
            .collect();
        works.into_iter().try_for_each(|work| match work.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let failures = shared.failures.into_inner();
    let failures = failures.unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(Report {
        commands: shared.sent.into_inner(),
        seeds: shared.next.into_inner() - settings.seed,
        elapsed: begun.elapsed(),
        failures: failures.into_iter().map(|(_, text)| text).collect(),
    })
}

fn work(settings: &Settings, families: &[Family], shared: &Shared) -> Result<()> {
    let mut pair = Pair::start()?;
    let found = |shared: &Shared| shared.failures.lock().map_or(usize::MAX, |f| f.len());
    while shared.sent.load(Ordering::Relaxed) < settings.commands
        && found(shared) < settings.failures
    {
        let seed = shared.next.fetch_add(1, Ordering::Relaxed);
        let script = script::write(seed, settings.length, families, &settings.families);
        let (divergence, sent) = run(&mut pair, &script)?;
        shared.sent.fetch_add(sent, Ordering::Relaxed);
        let Some(divergence) = divergence else {
            continue;
        };
        let culprit = format!("{}{:.30}", name(&divergence.argv), divergence.note);
        if let Ok(failures) = shared.failures.lock()
            && failures.iter().any(|(known, _)| *known == culprit)
        {
            continue;
        }
        let text = explain(&mut pair, &script, &divergence)?;
        eprintln!("{text}");
        if let Ok(mut failures) = shared.failures.lock() {
            failures.push((culprit, text));
        }
    }
    Ok(())
}

/// Runs a script on servers without data. If our server cannot be reached, a new one is started first.
fn run(pair: &mut Pair, script: &Script) -> Result<(Option<Divergence>, u64)> {
    // Unless `elements` is 0, our server splits commands on more than `elements` elements into steps. The replies must
    // be the same.
    let elements = [0, 1, 0, 3][usize::try_from(script.seed % 4)?];
    if let Err(e) = Player::new(pair, script) {
        eprintln!("our server is replaced: {e:#}");
        pair.renew()?;
    }
    pair.step(elements)?;
    let mut player = Player::new(pair, script)?;
    let found = player.run(&script.units)?;
    Ok((found, player.sent))
}

/// Shortens a failing script. Returns a text with the seed, the shortened script, and the differing replies.
fn explain(pair: &mut Pair, script: &Script, divergence: &Divergence) -> Result<String> {
    let mut last = divergence.clone();
    let mut cut = script.clone();
    cut.units.truncate(divergence.unit + 1);
    let short = shrink(&cut, SHRINK, |attempt| match run(pair, attempt) {
        Ok((Some(found), _)) if name(&found.argv) == name(&divergence.argv) => {
            last = found;
            true
        }
        _ => false,
    });
    let mut text = format!(
        "== seed {} ({})\n{last}\n",
        script.seed,
        if script.resp3[0] { "RESP3" } else { "RESP2" }
    );
    for step in short.iter().flatten() {
        writeln!(text, "    {}", line(step))?;
    }
    Ok(text)
}

fn line(step: &Step) -> String {
    match step {
        Step::Call { conn, argv } => format!("{conn}> {}", command_line(argv)),
        Step::Scan { argv, .. } => format!("scan {}", command_line(argv)),
        Step::Block { conn, argv } => format!("{conn} waits> {}", command_line(argv)),
        Step::Hear { conn, argv } => format!("{conn} hears> {}", command_line(argv)),
        other => format!("{other:?}"),
    }
}
