//! `perdura import`

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Parser, Subcommand};

use super::database::DatabaseArgs;
use crate::exit::{Incomplete, Usage};
use crate::output;
use crate::transfer::address::Address;
use crate::transfer::client::Connection;
use crate::transfer::embedded::Embedded;
use crate::transfer::report::{ByType, Read, Report, Written};
use crate::transfer::target::{Present, Target};
use crate::transfer::{Databases, UNFINISHED, database_pair, dump_file, scan};

/// Import the data of a Redis dump file or a running server.
///
/// Imports function libraries, and keys of all types with their expiries, into a stopped database or a running server.
/// Values of modules are left out, and the report names their keys. From a running server, keys are read by SCAN. Any
/// server allows SCAN, but it gives no snapshot. Stop the writers first, or import a dump file (`redis-cli --rdb FILE`
/// writes one).
#[derive(Debug, Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
    perdura import rdb dump.rdb --data perdura-data\n  \
    perdura import --from redis://:secret@db1:6379 --data perdura-data\n  \
    perdura import --from redis://db1 --db 0 --db 3:1 --to redis://127.0.0.1:7000 --keep\n  \
    redis-cli -h db1 --rdb - | perdura import rdb - --data perdura-data\n\n\
    The password of --from can also be given in the variable REDISCLI_AUTH.\n\
    An import that was interrupted is run again with --keep: a key is there as a whole or not at all."
)]
pub struct Args {
    #[command(subcommand)]
    source: Option<Source>,
    /// The running server to import from: `redis://[USER][:PASSWORD@]HOST[:PORT]`.
    #[arg(long, value_name = "URL", required = true)]
    from: Option<Address>,
    #[command(flatten)]
    into: Into,
}

#[derive(Debug, Subcommand)]
enum Source {
    /// A dump file of Redis, versions 1 to 12 (Redis 7.4 and older).
    Rdb {
        /// The file. - is stdin.
        file: PathBuf,
        #[command(flatten)]
        into: Into,
    },
}

#[derive(Debug, ClapArgs)]
struct Into {
    /// The directory of the stopped database to import into. It is created if it does not exist.
    #[arg(long, value_name = "DIR", conflicts_with = "to")]
    data: Option<PathBuf>,
    /// The running server to import into: Perdura or any other that speaks the Redis protocol.
    #[arg(long, value_name = "URL")]
    to: Option<Address>,
    /// Overwrite keys that already exist at the target.
    #[arg(long, conflicts_with = "keep")]
    replace: bool,
    /// Leave keys that already exist at the target unchanged.
    #[arg(long)]
    keep: bool,
    /// Import only database N, under the number M if it is given. May be repeated.
    #[arg(long, value_name = "N[:M]", value_parser = database_pair)]
    db: Vec<(u64, u64)>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub fn run(args: Args) -> Result<()> {
    let (from, into) = match (args.source, args.from) {
        (Some(Source::Rdb { file, into }), _) => (From::File(file), into),
        (None, Some(address)) => {
            let address = address.or_password_of_environment();
            (From::Server(address), args.into)
        }
        (None, None) => bail!(Usage("give `rdb FILE` or --from URL".into())),
    };
    let report = match (&into.data, &into.to) {
        (Some(data), None) => {
            let embedded = Embedded::start(into.database.options(data.clone())?)?;
            let target = data.display().to_string();
            let connection = match Connection::open(&embedded.address) {
                Ok(connection) => connection,
                Err(error) => return Err(embedded.failure(error)),
            };
            let moved = import(&from, connection, &embedded.address, &target, &into);
            let stopped = embedded.stop();
            let report = moved?;
            stopped?;
            report
        }
        (None, Some(address)) => {
            let connection = Connection::open(address)?;
            import(&from, connection, address, &address.to_string(), &into)?
        }
        _ => bail!(Usage(
            "give --data DIR or --to URL: the place to write the keys to".into()
        )),
    };
    if into.json {
        output::json(&report)?;
    } else {
        output::text(&report.text())?;
    }
    if report.is_whole() {
        Ok(())
    } else {
        Err(Incomplete.into())
    }
}

enum From {
    File(PathBuf),
    Server(Address),
}

impl From {
    fn name(&self) -> String {
        match self {
            From::File(path) => path.display().to_string(),
            From::Server(address) => address.to_string(),
        }
    }
}

fn import(
    from: &From,
    mut connection: Connection,
    address: &Address,
    name: &str,
    into: &Into,
) -> Result<Report> {
    let databases = Databases::new(into.db.clone());
    let begin = Instant::now();
    let mut read = Read::default();
    let before: u64 = keys_at(&mut connection)?;
    let present = match (into.replace, into.keep) {
        (true, _) => Present::Replaced,
        (_, true) => Present::Kept,
        _ if before == 0 => Present::None,
        _ => bail!(Usage(format!(
            "{name} has {before} keys already. --replace overwrites keys of the same name, \
             --keep does not"
        ))),
    };
    let may_repeat = matches!(from, From::Server(_));
    let mut target = Target::new(connection, present, may_repeat);
    let moved = match from {
        From::File(path) => dump_file::read(path, &databases, &mut target, &mut read),
        From::Server(source) => Connection::open(source)
            .and_then(|mut source| scan::read(&mut source, &databases, &mut target, &mut read)),
    };
    let (written, sent) = target.finish();
    let written_keys: u64 = written.keys.values().sum();
    debug_assert!(written_keys <= read.total(), "what is written was read");
    // If the target stopped the import, the target's error is the cause. The error of reading the source is then only a
    // consequence.
    if let Err(error) = sent.and(moved) {
        return Err(error.context(stopped_after(&written, &read)));
    }
    let mut counted = None;
    let mut wrong = None;
    if before == 0 {
        match count(address) {
            Ok(counts) => {
                wrong = mismatch(&written, &counts, &read, may_repeat);
                counted = Some(counts);
            }
            Err(error) => wrong = Some(format!("counting failed: {error:#}")),
        }
    }
    Ok(Report {
        source: from.name(),
        target: name.to_owned(),
        read,
        written,
        counted,
        mismatch: wrong,
        seconds: begin.elapsed().as_secs_f64(),
    })
}

fn keys_at(connection: &mut Connection) -> Result<u64> {
    let all = scan::keyspace(connection).context("looking at the target")?;
    Ok(all.iter().map(|(_, keys)| keys).sum())
}

/// Counts the target's keys by type.
fn count(target: &Address) -> Result<ByType> {
    let mut connection = Connection::open(target)?;
    let all = scan::keyspace(&mut connection)?;
    let dbs: Vec<u64> = all.iter().map(|(db, _)| *db).collect();
    scan::count(&mut connection, &dbs)
}

/// Returns the message that says how much a failed import has done.
fn stopped_after(written: &Written, read: &Read) -> String {
    let whole: u64 = written.keys.values().sum();
    let mut text = format!(
        "stopped: {} keys were read, and {whole} of them are complete at the target. Run it \
         again with --keep. A large key may be incomplete under the name '{}', which is then \
         overwritten",
        read.total(),
        UNFINISHED.escape_ascii()
    );
    for refused in &written.refused.first {
        text += &format!("\n  db {} '{}': {}", refused.db, refused.key, refused.why);
    }
    text
}

/// Returns a description of how the counts disagree, or `None` if they agree. The target may have fewer keys for two
/// reasons: a key expired during the import, or the source returned a key twice.
fn mismatch(written: &Written, counted: &ByType, read: &Read, may_repeat: bool) -> Option<String> {
    let kinds = written.keys.keys().chain(counted.keys());
    for kind in kinds {
        let of = |counts: &ByType| counts.get(kind).copied().unwrap_or(0);
        let (wrote, have) = (of(&written.keys), of(counted));
        let explained = read.with_expiry > 0 || may_repeat;
        if have > wrote || (have < wrote && !explained) {
            return Some(format!(
                "{wrote} of type {kind} were written, {have} are there"
            ));
        }
    }
    None
}
