//! `perdura reproduce`

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use perdura_workloads::figures::{FIGURES, Figure, Lab, Scale};

use crate::exit::{Usage, Violated};
use crate::output;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScaleArg {
    /// A fifth of the paper's sizes. Each figure takes a minute or two.
    Small,
    /// The paper's sizes. Each figure takes minutes and some 6 GiB of memory, or 10 GiB for paper 001.
    Full,
    /// Sizes that only try the machinery. The claims mean nothing.
    #[value(hide = true)]
    Tiny,
}

/// Make a paper's figure here, on modelled disks, and check its claims.
///
/// Writes NAME.csv, NAME.json and NAME.svg. Prints for each claim the paper's value, the measured value, and whether
/// the claim holds. Everything runs in memory. The figures depend on the CPU, so leave the machine idle. Exit code 1 if
/// a claim does not hold.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura reproduce 000-fig6\n  \
    perdura reproduce 000-all --scale full --out figures\n  \
    perdura reproduce 001-fig6\n  \
    perdura reproduce 002-fig2a --data /mnt/disk/tmp --scale full\n  \
    perdura reproduce 003-delay --data /mnt/disk/tmp")]
pub struct Args {
    /// The figure, or all of a paper: 000-all, 001-all, 002-all, 003-all, 004-all.
    #[arg(value_name = "FIGURE", value_parser = names())]
    figure: String,
    /// The size of the experiment.
    #[arg(long, value_enum, default_value = "small")]
    scale: ScaleArg,
    /// The folder for the files.
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Seed of all histories.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// For paper 002: make its histories and restarts in a new directory within this one, on the machine's own disk
    /// instead of a modelled one. With --scale full this has the paper's own size: some 30 GB. For paper 003: the
    /// folder whose disk is measured. Without it, it is the folder of --out.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print the figures as one JSON array instead of tables.
    #[arg(long)]
    json: bool,
}

/// The names that mean all figures of a paper.
const ALL: [&str; 5] = ["000-all", "001-all", "002-all", "003-all", "004-all"];

fn names() -> PossibleValuesParser {
    let figures = FIGURES.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(figures.chain(ALL))
}

/// Returns whether the command line asks for a figure.
fn is_asked(asked: &str, name: &str) -> bool {
    let paper = asked.strip_suffix("all").filter(|_| ALL.contains(&asked));
    asked == name || paper.is_some_and(|paper| name.starts_with(paper))
}

pub fn run(args: &Args) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let begin = Instant::now();
    let says =
        |what: &str| output::note(&format!("{:7.1} s  {what}", begin.elapsed().as_secs_f64()));
    let scale = match args.scale {
        ScaleArg::Small => Scale::SMALL,
        ScaleArg::Full => Scale::FULL,
        ScaleArg::Tiny => Scale::TINY,
    };
    let lab = Lab::new(scale, args.seed, cores, &says);
    let lab = match &args.data {
        Some(data)
            if ["002-", "003-"]
                .iter()
                .any(|paper| args.figure.starts_with(paper)) =>
        {
            lab.with_data(data.clone())
        }
        Some(_) => bail!(Usage(format!(
            "--data is for the figures of papers 002 and 003; {} is made in memory",
            args.figure
        ))),
        None if args.figure.starts_with("003-") => lab.with_data(args.out.clone()),
        None => lab,
    };
    let mut made: Vec<Figure> = Vec::new();
    for (name, make) in FIGURES {
        if !is_asked(&args.figure, name) {
            continue;
        }
        says(name);
        let figure = make(&lab)?;
        assert_eq!(
            figure.name, name,
            "a figure has the name by which it is asked for"
        );
        let paths = figure.write(&args.out)?;
        if !args.json {
            output::text(&format!("{}\n", figure.summary()))?;
            for path in paths {
                says(&format!("wrote {}", path.display()));
            }
        }
        made.push(figure);
    }
    assert!(!made.is_empty(), "a name that is known names a figure");
    if args.json {
        output::json(&made)?;
    }
    match made.iter().map(Figure::failures).sum() {
        0 => Ok(()),
        failures => Err(Violated(failures).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_paper_is_every_figure_of_it() {
        assert!(is_asked("000-fig5", "000-fig5") && is_asked("000-all", "000-fig5"));
        assert!(!is_asked("000-all", "001-fig5") && !is_asked("001-fig1", "001-fig10"));
        for (name, _) in FIGURES {
            assert_eq!(ALL.iter().filter(|all| is_asked(all, name)).count(), 1);
        }
    }
}
