//! `perdura reproduce`

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use perdura_workloads::figures::{FIGURES, Figure, Lab, Scale};

use crate::exit::Violated;
use crate::output;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScaleArg {
    /// A fifth of the paper's sizes: each figure in about a minute.
    Small,
    /// The paper's sizes: minutes each, and some 6 GiB of memory.
    Full,
    /// Only to try the machinery; the claims mean nothing.
    #[value(hide = true)]
    Tiny,
}

/// Make a paper's figure here, on modelled disks, and check its claims.
///
/// Writes NAME.csv, NAME.json and NAME.svg, and prints for each claim what the paper says, what
/// came out, and whether it holds. Everything runs in memory; the figures depend on the CPU, so
/// leave the machine idle. Exit code 1 if a claim does not hold.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura reproduce 000-fig6\n  \
    perdura reproduce 000-all --scale full --out figures")]
pub struct Args {
    /// The figure, or 000-all.
    #[arg(value_name = "FIGURE", value_parser = names())]
    figure: String,
    /// How large the experiment is.
    #[arg(long, value_enum, default_value = "small")]
    scale: ScaleArg,
    /// The folder for the files.
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Seed of all histories.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Print the figures as one JSON array instead of tables.
    #[arg(long)]
    json: bool,
}

/// Every figure of paper 000.
const ALL: &str = "000-all";

fn names() -> PossibleValuesParser {
    let figures = FIGURES.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(figures.chain([ALL]))
}

pub fn run(args: &Args) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let begin = Instant::now();
    let says = |what: &str| eprintln!("{:7.1} s  {what}", begin.elapsed().as_secs_f64());
    let scale = match args.scale {
        ScaleArg::Small => Scale::SMALL,
        ScaleArg::Full => Scale::FULL,
        ScaleArg::Tiny => Scale::TINY,
    };
    let lab = Lab::new(scale, args.seed, cores, &says);
    let mut made: Vec<Figure> = Vec::new();
    for (name, make) in FIGURES {
        if args.figure != name && args.figure != ALL {
            continue;
        }
        says(name);
        let figure = make(&lab)?;
        let paths = figure.write(&args.out)?;
        if !args.json {
            output::text(&format!("{}\n", figure.summary()))?;
            for path in paths {
                says(&format!("wrote {}", path.display()));
            }
        }
        made.push(figure);
    }
    if args.json {
        output::json(&made)?;
    }
    match made.iter().map(Figure::failures).sum() {
        0 => Ok(()),
        failures => Err(Violated(failures).into()),
    }
}
