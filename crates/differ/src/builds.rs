//! Runs scripts on two builds of Perdura. Each build is killed and started again. The restart must not change the
//! build's data, and the two builds must have equal data. Then an empty server of the new build imports the
//! old build's export. The digest of the imported data must equal the digest of the new build's data.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::contents::{self, Contents};
use crate::pair::await_answer;
use crate::reply::{Body, Reply};
use crate::script;
use crate::step::{Argv, Step, name};
use crate::tables::families;
use crate::wire::{Wire, encode};

/// The maximum number of requests in a batch. Replies are read after the batch.
const BATCH: usize = 64;

/// The commands that are left out of the scripts, for one of four reasons. The effect depends on chance or time. The
/// command does not concern data. It may wait. It makes a stream, and a stream's digest depends on the commands used.
const LEFT_OUT: [&str; 32] = [
    "XADD",
    "XGROUP",
    "SPOP",
    "EXPIRE",
    "PEXPIRE",
    "SETEX",
    "PSETEX",
    "GETEX",
    "RESTORE",
    "SHUTDOWN",
    "DEBUG",
    "CONFIG",
    "BLPOP",
    "BRPOP",
    "BLMOVE",
    "BRPOPLPUSH",
    "BLMPOP",
    "BZPOPMIN",
    "BZPOPMAX",
    "BZMPOP",
    "WAIT",
    "WAITAOF",
    "MONITOR",
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "CLIENT",
    "QUIT",
    "RESET",
    "HELLO",
    "AUTH",
    "ACL",
];

/// Options that set a deadline relative to the present time.
const RELATIVE: [&[u8]; 2] = [b"EX", b"PX"];

/// The amount of work that a comparison did.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of scripts that ran.
    pub scripts: u64,
    /// The number of commands that each build acknowledged.
    pub commands: u64,
    /// The number of times that each build was killed.
    pub kills: u64,
    /// The number of keys that were compared.
    pub keys: u64,
}

/// A server of one build, with its own directory.
struct Build {
    program: PathBuf,
    dir: TempDir,
    process: Child,
}

impl Build {
    fn start(program: &Path) -> Result<Build> {
        let dir = TempDir::new()?;
        let process = serve(program, dir.path())?;
        Ok(Build {
            program: program.to_owned(),
            dir,
            process,
        })
    }

    fn connect(&self) -> Result<Wire> {
        Wire::connect(&socket(self.dir.path()))
    }

    fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        std::fs::remove_file(socket(self.dir.path()))?;
        Ok(())
    }

    fn start_again(&mut self) -> Result<()> {
        self.process = serve(&self.program, self.dir.path())?;
        Ok(())
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

fn data(dir: &Path) -> PathBuf {
    dir.join("data")
}

fn serve(program: &Path, dir: &Path) -> Result<Child> {
    let mut process = Command::new(program)
        .args([
            "serve",
            "--enable-debug-command",
            "local",
            "--partitions",
            "16",
        ])
        .args(["--segment-size", "4MiB"])
        .arg("--unix-socket")
        .arg(socket(dir))
        .arg("--data")
        .arg(data(dir))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let ready = || -> Result<()> {
        while !socket(dir).exists() {
            ensure!(process.try_wait()?.is_none(), "the server has ended");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        await_answer(&socket(dir))
    }();
    if let Err(error) = ready {
        // The process may have ended already.
        let _ = process.kill();
        let _ = process.wait();
        return Err(error);
    }
    Ok(process)
}

/// Runs the scripts of `seeds` on the two builds. The builds are killed and compared after every `group` scripts.
///
/// # Errors
/// Fails if the data of the builds differs, or if a build does not start or answer. A restart or an import must not
/// change data either. The error names the seeds of the group.
pub fn compare(old: &Path, new: &Path, seeds: std::ops::Range<u64>, group: u64) -> Result<Report> {
    let mut report = Report::default();
    let mut first = seeds.start;
    while first < seeds.end {
        let last = (first + group.max(1)).min(seeds.end);
        let told = || format!("seeds {first} to {last}, end exclusive");
        one_group(old, new, first..last, &mut report).with_context(told)?;
        first = last;
    }
    Ok(report)
}

fn one_group(
    old: &Path,
    new: &Path,
    seeds: std::ops::Range<u64>,
    report: &mut Report,
) -> Result<()> {
    let commands = commands(seeds.clone());
    let mut builds = [Build::start(old)?, Build::start(new)?];
    let mut held = Vec::new();
    for build in &mut builds {
        play(&mut build.connect()?, &commands)?;
        let before = all_of(&mut build.connect()?)?;
        build.kill()?;
        build.start_again()?;
        let after = all_of(&mut build.connect()?)?;
        let program = build.program.display();
        same(
            &before,
            &after,
            &format!("{program} before and after kill -9"),
        )?;
        held.push(after);
    }
    same(&held[0], &held[1], "the old build and the new one")?;
    report.keys += u64::try_from(held[0].0.len())?;

    let [mut from, mut to] = builds;
    let digest = digest(&mut to.connect()?)?;
    from.kill()?;
    to.kill()?;
    let mut imported = Build::start(new)?;
    carry_over(&from, &imported)?;
    let there = all_of(&mut imported.connect()?)?;
    same(
        &held[0],
        &there,
        "an export of the old build and its import",
    )?;
    let of_import = self::digest(&mut imported.connect()?)?;
    ensure!(
        of_import == digest,
        "digest {digest} of the new build, {of_import} of the import"
    );
    imported.kill()?;

    report.scripts += seeds.end - seeds.start;
    report.commands += u64::try_from(commands.len())?;
    report.kills += 1;
    Ok(())
}

/// Returns the commands of the seeds' scripts. Leaves out commands with effects that may differ from run to run.
fn commands(seeds: std::ops::Range<u64>) -> Vec<Argv> {
    let families = families();
    let mut commands = Vec::new();
    for seed in seeds {
        let length = if seed % 16 == 0 { 400 } else { 100 };
        let script = script::write(seed, length, &families, &[]);
        let steps = script.units.into_iter().flatten();
        commands.extend(steps.filter_map(|step| match step {
            Step::Call { conn: 0, argv } if is_certain(&argv) => Some(argv),
            _ => None,
        }));
        commands.push(vec![b"DISCARD".to_vec()]);
        // Adds members to a set that becomes large enough to be stored in separate rows.
        let grown = format!("grown{}", seed % 8);
        let mut words = vec![b"SADD".to_vec(), grown.into_bytes()];
        words.extend((0..seed % 400).map(|n| n.to_string().into_bytes()));
        commands.extend((words.len() > 2).then_some(words));
    }
    commands
}

fn is_certain(argv: &Argv) -> bool {
    let relative = |word: &Vec<u8>| {
        RELATIVE
            .iter()
            .any(|option| word.eq_ignore_ascii_case(option))
    };
    !LEFT_OUT.contains(&name(argv).as_str())
        && !argv.iter().skip(1).any(relative)
        && !argv.iter().skip(1).any(|word| calls_such(word))
}

/// Returns whether a word is Lua code (a script or a library) that contains a forbidden literal. The forbidden literals
/// are the commands in [`LEFT_OUT`] and the options in [`RELATIVE`].
fn calls_such(word: &[u8]) -> bool {
    let text = String::from_utf8_lossy(word).to_ascii_uppercase();
    let mut literals = text.split('\'').skip(1).step_by(2);
    text.contains("REDIS.")
        && literals.any(|word| LEFT_OUT.contains(&word) || word == "EX" || word == "PX")
}

/// Sends the commands and reads every reply.
fn play(wire: &mut Wire, commands: &[Argv]) -> Result<()> {
    for batch in commands.chunks(BATCH) {
        let bytes: Vec<u8> = batch.iter().flat_map(|argv| encode(argv)).collect();
        wire.send(&bytes)?;
        for argv in batch {
            let about = || String::from_utf8_lossy(&argv.join(&b' ')).into_owned();
            wire.read().with_context(about)?;
        }
    }
    Ok(())
}

/// All keys with their values, and the deadlines of the keys.
type All = (Contents, Vec<Reply>);

fn all_of(wire: &mut Wire) -> Result<All> {
    let mut contents = contents::read(wire)?;
    for (kind, value) in contents.values_mut() {
        if kind == b"zset" {
            drop_sign_of_zero(value);
        }
    }
    let mut deadlines = Vec::new();
    for (database, key) in contents.keys() {
        wire.call(&["SELECT", &database.to_string()])?;
        wire.send(&encode(&[b"PEXPIRETIME".to_vec(), key.clone()]))?;
        deadlines.push(wire.read()?);
    }
    Ok((contents, deadlines))
}

/// Replaces each score of -0 by 0. ZUNIONSTORE can make a score of -0. Such a score becomes 0 when it is packed or
/// imported, as in Redis.
fn drop_sign_of_zero(members: &mut Reply) {
    let Body::Items(items) = &mut members.body else {
        return;
    };
    for score in items.iter_mut().skip(1).step_by(2) {
        if score.text() == Some(b"-0") {
            score.body = Body::Text(b"0".to_vec());
        }
    }
}

fn same(one: &All, other: &All, what: &str) -> Result<()> {
    for (key, value) in &one.0 {
        let there = other.0.get(key);
        ensure!(
            there == Some(value),
            "{what} differ in {key:?}: {value:?} and {there:?}"
        );
    }
    let keys = (one.0.len(), other.0.len());
    ensure!(keys.0 == keys.1, "{what} differ: {keys:?} keys");
    for (key, (here, there)) in one.0.keys().zip(one.1.iter().zip(&other.1)) {
        ensure!(
            here == there,
            "{what} differ in the deadline of {key:?}: {here} and {there}"
        );
    }
    Ok(())
}

fn digest(wire: &mut Wire) -> Result<Reply> {
    let reply = wire.call(&["DEBUG", "DIGEST"])?;
    ensure!(reply.kind == b'+', "DEBUG DIGEST answers {reply}");
    Ok(reply)
}

/// Exports the data of a stopped server and sends it to a running one.
fn carry_over(from: &Build, to: &Build) -> Result<()> {
    let exported = Command::new(&from.program)
        .args(["export", "--data"])
        .arg(data(from.dir.path()))
        .stderr(Stdio::null())
        .output()?;
    ensure!(
        exported.status.success(),
        "export ends with {}",
        exported.status
    );
    let wire = to.connect()?;
    let (mut reads, mut sends) = wire.split()?;
    let mut ending = exported.stdout;
    ending.extend(encode(&[b"ECHO".to_vec(), b"all is read".to_vec()]));
    let sender = std::thread::spawn(move || sends.send(&ending));
    loop {
        let reply = reads.read()?;
        ensure!(reply.kind != b'-', "the import answers {reply}");
        if reply.text() == Some(b"all is read") {
            break;
        }
    }
    match sender.join() {
        Ok(sent) => sent,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two builds once differed in a deadline that a script had computed from the present time.
    #[test]
    fn a_deadline_of_now_is_left_out_in_a_script_too() {
        let certain = |words: &[&str]| {
            let words = words.iter().map(|word| word.as_bytes().to_vec());
            is_certain(&words.collect())
        };
        assert!(certain(&["SET", "a", "b"]));
        assert!(!certain(&["set", "a", "b", "ex", "9"]));
        assert!(certain(&["EVAL", "redis.call('SET', 'a', 'b')", "0"]));
        assert!(!certain(&["eval", "redis.call('expire', 'a', '9')", "0"]));
        let library = "#!lua name=a\nredis.register_function('f', function() redis.pcall('GETEX', 'a', 'PX', '9') end)";
        assert!(!certain(&["FUNCTION", "LOAD", library]));
        assert!(!certain(&[
            "EVAL",
            "redis.call('SET', 'a', 'b', 'PX', '9')",
            "0"
        ]));
    }
}
