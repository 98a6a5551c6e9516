//! `perdura export`

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};

use super::database::ReaderArgs;
use crate::exit::{Incomplete, Usage};
use crate::offline::peek;
use crate::output;
use crate::transfer::address::Address;
use crate::transfer::client::Connection;
use crate::transfer::commands::{put, put_library, put_part, put_string};
use crate::transfer::embedded::Embedded;
use crate::transfer::report::Read;
use crate::transfer::{Databases, Part, Sink, database_pair, scan};
use perdura_rdb::Value;

/// Write all keys to stdout, as the commands that create them.
///
/// `redis-cli --pipe` loads them into any Redis. Keys are read by SCAN, from a running server or from a stopped
/// database, which this verb starts and stops again. The output is no snapshot, so stop the writers first.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura export --data perdura-data > commands.resp\n  \
    perdura export --from redis://127.0.0.1:6379 --db 0 | redis-cli -h db1 --pipe")]
pub struct Args {
    /// The directory of a stopped database.
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    data: Option<PathBuf>,
    /// A running server: `redis://[USER][:PASSWORD@]HOST[:PORT]`.
    #[arg(long, value_name = "URL")]
    from: Option<Address>,
    /// Export only database N, under the number M if it is given. May be repeated.
    #[arg(long, value_name = "N[:M]", value_parser = database_pair)]
    db: Vec<(u64, u64)>,
    /// Write a DEL before each key, for a target that already has keys.
    #[arg(long)]
    replace: bool,
    /// The format of the output.
    #[arg(long, value_enum, default_value = "resp")]
    format: Format,
    #[command(flatten)]
    database: ReaderArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Commands of the Redis protocol.
    Resp,
}

pub fn run(args: &Args) -> Result<()> {
    let Format::Resp = args.format;
    match (&args.data, &args.from) {
        (Some(data), None) => {
            if peek(data).is_none() {
                bail!("there is no database in {}", data.display());
            }
            let embedded = Embedded::start(args.database.options(data.clone())?)?;
            let done = match Connection::open(&embedded.address) {
                Ok(connection) => export(connection, args),
                Err(error) => return Err(embedded.failure(error)),
            };
            let stopped = embedded.stop();
            done?;
            stopped
        }
        (None, Some(address)) => {
            let address = address.clone().or_password_of_environment();
            export(Connection::open(&address)?, args)
        }
        _ => bail!(Usage(
            "give --data DIR or --from URL: the place to read the keys from".into()
        )),
    }
}

fn export(mut source: Connection, args: &Args) -> Result<()> {
    let mut read = Read::default();
    let mut commands = Commands {
        out: BufWriter::with_capacity(1 << 18, output::Stdout),
        request: Vec::new(),
        selected: None,
        replace: args.replace,
    };
    let databases = Databases::new(args.db.clone());
    scan::read(&mut source, &databases, &mut commands, &mut read)?;
    commands.out.flush()?;
    let mut text = format!(
        "{} keys, {} elements, {} bytes, {} libraries of functions\n",
        read.total(),
        read.elements,
        read.bytes,
        read.libraries
    );
    read.put_left(&mut text);
    output::note(text.trim_end());
    if read.unsupported.count > 0 {
        return Err(Incomplete.into());
    }
    Ok(())
}

/// A sink that writes commands.
struct Commands<W: Write> {
    out: BufWriter<W>,
    request: Vec<u8>,
    selected: Option<u64>,
    replace: bool,
}

impl<W: Write> Sink for Commands<W> {
    fn part(&mut self, part: &Part<'_>) -> Result<()> {
        self.request.clear();
        let out = &mut self.request;
        if self.selected != Some(part.db) {
            self.selected = Some(part.db);
            put(out, &[b"SELECT", part.db.to_string().as_bytes()]);
        }
        if part.first && (self.replace || !part.is_harmless_twice()) {
            put(out, &[b"DEL", part.key]);
        }
        if let Value::String(value) = part.value {
            put_string(out, part.key, value, part.expires_at_ms, false);
        } else {
            put_part(out, part.key, part);
        }
        self.out.write_all(out).context("writing to stdout")
    }

    fn library(&mut self, code: &[u8]) -> Result<()> {
        self.request.clear();
        put_library(&mut self.request, code, self.replace);
        self.out
            .write_all(&self.request)
            .context("writing to stdout")
    }
}
