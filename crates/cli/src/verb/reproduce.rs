//! `perdura reproduce`

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use perdura_workloads::figures::data;
use perdura_workloads::figures::memory_disk::real_nodes;
use perdura_workloads::figures::memory_disk::real_nodes::processes::NodesFrom;
use perdura_workloads::figures::real::RealDisks;
use perdura_workloads::figures::real::check::check as check_real;
use perdura_workloads::figures::{
    Claim, FIGURES, Figure, File, Lab, Scale, claim, recorded, redraw,
};

use crate::exit::{Usage, Violated};
use crate::output;

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScaleArg {
    /// A fifth of the paper's sizes. Each figure takes a minute or two.
    Small,
    /// The paper's sizes. Each figure takes minutes and some 6 GiB of memory, or 10 GiB for paper 001.
    Full,
    /// Tiny sizes, which only show that the code runs. Their results say nothing about the claims.
    #[value(hide = true)]
    Tiny,
}

/// Measure the figures of five papers on this machine, and compare them with the papers.
///
/// Writes NAME.csv, NAME.json and NAME.svg. Prints for each claim the paper's value, the measured value and a verdict: as
/// the paper (within 15 %), stronger, weaker, fails, modelled, arithmetic, or reported. Most figures run in memory, on
/// modelled disks. With --log-dir, figures of paper 000 also run on real disks. 003-table2-real and 003-table3-real need
/// root and /dev/fuse. The figures depend on the CPU, so leave the machine idle. Exit code 1 if a claim fails, or with
/// --recorded if a verdict is worse than the recorded one.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura reproduce 000-fig6\n  \
    perdura reproduce 000-all --scale full --out figures\n  \
    perdura reproduce 000-fig6 --log-dir /mnt/a --log-dir /mnt/b\n  \
    perdura reproduce 001-fig6 --recorded docs/papers\n  \
    perdura reproduce all --redraw docs/papers\n  \
    perdura reproduce 002-fig2a --data /mnt/disk/tmp --scale full\n  \
    perdura reproduce 003-delay --data /mnt/disk/tmp\n  \
    perdura reproduce 003-table3-real\n  \
    perdura reproduce 003-table3-real --nodes 10.0.0.2:7379,10.0.0.3:7379")]
pub struct Args {
    /// The figure, all figures of a paper (000-all, 001-all, 002-all, 003-all, 004-all), or all.
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
    /// For paper 002: run in a new subdirectory of this directory. The run then uses the directory's real disk instead
    /// of a modelled disk. With --scale full, the table has the paper's size. The run asks for 18 GB for a figure, and for
    /// 33 GB for all. For paper 003: measure the disk of this directory [default: the directory of --out].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// For the figures of paper 003 on real media: the two running nodes, without a key [default: two processes of
    /// `perdura logd` on this machine, which the run starts and stops].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    nodes: Vec<String>,
    /// For figures 5, 6, 8 and 9 of paper 000: run on the real disk of this directory as well, in a new subdirectory.
    /// Give one directory for each log disk. A point with k log disks uses the first k.
    #[arg(long, value_name = "DIR")]
    log_dir: Vec<PathBuf>,
    /// For the same figures: keep images on the real disk of this directory. Give one directory for each image disk.
    /// 000-fig8 needs them beside --log-dir. The other figures keep images in memory without them.
    #[arg(long, value_name = "DIR")]
    image_dir: Vec<PathBuf>,
    /// The folder with the JSON files of an earlier run at this scale. A verdict that is worse than there is an error, and
    /// a claim that failed there already is not.
    #[arg(long, value_name = "DIR")]
    recorded: Option<PathBuf>,
    /// Measure nothing. Draw the pictures in this folder again from its JSON files, with the paper's points over them.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["scale", "out", "seed", "data", "recorded", "json"])]
    redraw: Option<PathBuf>,
    /// Print the figures as one JSON array instead of tables.
    #[arg(long)]
    json: bool,
}

/// The arguments that select all figures of a paper.
const PAPERS: [&str; 5] = ["000-all", "001-all", "002-all", "003-all", "004-all"];
/// The argument that selects all figures.
const ALL: &str = "all";

fn names() -> PossibleValuesParser {
    let figures = FIGURES.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(figures.chain(PAPERS).chain([ALL]))
}

/// Returns whether the argument `asked` selects the figure `name`.
fn is_asked(asked: &str, name: &str) -> bool {
    asked == name || asked == ALL || (PAPERS.contains(&asked) && is_of(asked, name))
}

/// Returns whether the figure `name` is of the paper with the argument `paper`.
fn is_of(paper: &str, name: &str) -> bool {
    paper.get(..4) == name.get(..4)
}

pub fn run(args: &Args) -> Result<()> {
    if let Some(folder) = &args.redraw {
        return draw(&args.figure, folder);
    }
    check(args)?;
    let begin = Instant::now();
    let says =
        |what: &str| output::note(&format!("{:7.1} s  {what}", begin.elapsed().as_secs_f64()));
    let mut made: Vec<Figure> = Vec::new();
    for paper in PAPERS {
        // A lab keeps the runs that several figures of a paper share. The memory of a lab is free before the next one.
        let lab = lab(args, paper, &says)?;
        for (name, make) in FIGURES {
            if !is_of(paper, name) || !is_asked(&args.figure, name) {
                continue;
            }
            if !can_be_made(name, args, &lab)? {
                continue;
            }
            says(name);
            let figure = make(&lab)?;
            assert_eq!(
                figure.name, name,
                "a figure has the name by which it is asked for"
            );
            write(&figure, args, &says)?;
            made.push(figure);
        }
    }
    assert!(!made.is_empty(), "a name that is known names a figure");
    end(&made, args)
}

/// Draws the pictures of the figures that `asked` selects, and that have files in `folder`.
fn draw(asked: &str, folder: &Path) -> Result<()> {
    let is_there = |name: &str| folder.join(format!("{name}.json")).is_file();
    let names = FIGURES.iter().map(|(name, _)| *name);
    let drawn: Vec<&str> = names
        .filter(|name| is_asked(asked, name) && is_there(name))
        .collect();
    if drawn.is_empty() {
        bail!(Usage(format!(
            "--redraw: {} has no JSON file of {asked}; `perdura reproduce {asked} --out {}` makes it",
            folder.display(),
            folder.display()
        )));
    }
    for name in &drawn {
        redraw(name, folder)?;
    }
    output::note(&format!(
        "drew {} pictures in {}",
        drawn.len(),
        folder.display()
    ));
    Ok(())
}

/// Returns whether a figure can be made on this machine. Says so if it cannot. Fails if the figure was asked for by its
/// name.
fn can_be_made(name: &str, args: &Args, lab: &Lab<'_>) -> Result<bool> {
    if !real_nodes::NAMES.contains(&name) {
        return Ok(true);
    }
    match real_nodes::check(lab) {
        Ok(()) => Ok(true),
        Err(why) if args.figure == name => bail!(Usage(format!("{name}: {why:#}"))),
        Err(why) => {
            output::note(&format!("{name} is left out: {why:#}"));
            Ok(false)
        }
    }
}

/// Fails if nodes are named that no figure uses, or that do not answer.
fn check_nodes(args: &Args) -> Result<()> {
    if args.nodes.is_empty() {
        return Ok(());
    }
    let is_used = real_nodes::NAMES
        .iter()
        .any(|name| is_asked(&args.figure, name));
    if !is_used {
        bail!(Usage(format!(
            "--nodes is for {}; {} uses no nodes",
            real_nodes::NAMES.join(" and "),
            args.figure
        )));
    }
    let nodes = NodesFrom::Addresses(args.nodes.clone());
    nodes
        .check()
        .map_err(|why| Usage(format!("{why:#}")).into())
}

/// Fails if the figures do not have the files that the arguments name.
fn check(args: &Args) -> Result<()> {
    let on_disk = ["002-", "003-", ALL];
    if args.data.is_some() && !on_disk.iter().any(|with| args.figure.starts_with(with)) {
        bail!(Usage(format!(
            "--data is for the figures of papers 002 and 003; {} is made in memory",
            args.figure
        )));
    }
    check_nodes(args)?;
    check_data(args)?;
    check_disks(args)?;
    if let Some(folder) = &args.recorded {
        check_apart(folder, &args.out)?;
        for (name, _) in FIGURES
            .iter()
            .filter(|(name, _)| is_asked(&args.figure, name))
        {
            let file = folder.join(format!("{name}.json"));
            if !file.is_file() {
                bail!(Usage(format!(
                    "--recorded: {} does not exist; `perdura reproduce {name} --out {}` makes it",
                    file.display(),
                    folder.display()
                )));
            }
        }
    }
    Ok(())
}

/// Returns the names of the figures that are asked for.
fn asked(args: &Args) -> Vec<&'static str> {
    let figures = FIGURES.iter().map(|(name, _)| *name);
    figures
        .filter(|name| is_asked(&args.figure, name))
        .collect()
}

/// Fails if the figures' files do not fit into the data folder. Without one, the files of paper 003 are beside the results,
/// and those of paper 002 are in memory.
fn check_data(args: &Args) -> Result<()> {
    let mut figures = asked(args);
    let checked = match &args.data {
        Some(data) => data::check("--data", data, &figures, &scale(args)),
        None => {
            figures.retain(|figure| is_of("003-", figure));
            data::check("--out", &args.out, &figures, &scale(args))
        }
    };
    Ok(checked.map_err(Usage)?)
}

/// Fails if figures cannot run on the real disks that the arguments name. Prints notes about these disks.
fn check_disks(args: &Args) -> Result<()> {
    let Some(disks) = real_disks(args) else {
        return Ok(());
    };
    let notes = check_real(&disks, &asked(args), &scale(args)).map_err(Usage)?;
    for note in notes {
        output::note(&note);
    }
    Ok(())
}

/// Returns the real disks that the arguments name.
fn real_disks(args: &Args) -> Option<RealDisks> {
    let is_given = !args.log_dir.is_empty() || !args.image_dir.is_empty();
    is_given.then(|| RealDisks {
        logs: args.log_dir.clone(),
        images: args.image_dir.clone(),
    })
}

/// Fails if the new files would replace the recorded ones before the verdicts are compared.
fn check_apart(recorded: &Path, out: &Path) -> Result<()> {
    let is_same = match (recorded.canonicalize(), out.canonicalize()) {
        (Ok(recorded), Ok(out)) => recorded == out,
        // A folder that does not exist yet is no other folder.
        _ => recorded == out,
    };
    if is_same {
        bail!(Usage(format!(
            "--recorded and --out are both {}: the recorded verdicts would be replaced before they are compared",
            out.display()
        )));
    }
    Ok(())
}

/// Returns the sizes that the arguments name.
fn scale(args: &Args) -> Scale {
    match args.scale {
        ScaleArg::Small => Scale::SMALL,
        ScaleArg::Full => Scale::FULL,
        ScaleArg::Tiny => Scale::TINY,
    }
}

/// Returns the lab for the figures of a paper.
fn lab<'a>(args: &Args, paper: &str, says: &'a dyn Fn(&str)) -> Result<Lab<'a>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let nodes = match args.nodes.is_empty() {
        true => NodesFrom::Program(std::env::current_exe().context("the path of this program")?),
        false => NodesFrom::Addresses(args.nodes.clone()),
    };
    let lab = Lab::new(scale(args), args.seed, cores, says).with_nodes(nodes);
    let lab = match real_disks(args) {
        Some(disks) => lab.with_real(disks),
        None => lab,
    };
    Ok(match &args.data {
        Some(data) if is_of(paper, "002-") || is_of(paper, "003-") => lab.with_data(data.clone()),
        None if is_of(paper, "003-") => lab.with_data(args.out.clone()),
        _ => lab,
    })
}

fn write(figure: &Figure, args: &Args, says: &dyn Fn(&str)) -> Result<()> {
    let paths = figure.write(&args.out)?;
    if !args.json {
        output::text(&format!("{}\n", figure.summary()))?;
        for path in paths {
            says(&format!("wrote {}", path.display()));
        }
    }
    Ok(())
}

/// Prints the end of the output. Fails if a claim fails, or if a verdict is worse than the recorded one.
fn end(made: &[Figure], args: &Args) -> Result<()> {
    let claims: Vec<Claim> = made
        .iter()
        .flat_map(|figure| figure.claims.clone())
        .collect();
    if args.json {
        let files: Vec<File<'_>> = made.iter().map(File::of).collect();
        output::json(&files)?;
    } else if made.len() > 1 {
        output::text(&format!("All figures: {}", claim::counted(&claims)))?;
    }
    let count = match &args.recorded {
        Some(folder) => worse(made, folder)?,
        None => made.iter().map(Figure::failures).sum(),
    };
    match count {
        0 => Ok(()),
        count => Err(Violated(count).into()),
    }
}

/// Prints and counts the verdicts that are worse than those in `folder`.
fn worse(made: &[Figure], folder: &Path) -> Result<usize> {
    let mut lines = Vec::new();
    for figure in made {
        lines.extend(recorded::worse(figure, folder)?);
    }
    for line in &lines {
        output::note(line);
    }
    Ok(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A review found that a figure written over its record was compared with itself, and never was worse.
    #[test]
    fn a_record_is_not_replaced_before_it_is_compared() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path(), folder.path().join("there"));
        assert!(check_apart(here, &here.join(".")).is_err());
        assert!(check_apart(&there, &there).is_err());
        check_apart(here, &there).unwrap();
    }

    #[test]
    fn pictures_are_drawn_again_only_from_files_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        let error = draw("000-all", folder.path()).unwrap_err().to_string();
        assert!(error.contains("no JSON file of 000-all"), "{error}");
        let file = folder.path().join("000-fig5.json");
        std::fs::write(&file, "{}").unwrap();
        let error = format!("{:#}", draw("000-all", folder.path()).unwrap_err());
        assert!(
            error.contains("000-fig5.json: not the file of a figure"),
            "{error}"
        );
    }

    #[test]
    fn nodes_are_refused_that_nothing_uses_or_that_do_not_answer() {
        let refusal = |figure: &str, nodes: &str| {
            let args = Args::try_parse_from(["reproduce", figure, "--nodes", nodes]).unwrap();
            check(&args).unwrap_err().to_string()
        };
        let closed = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().to_string()
        };
        let pair = format!("{closed},{closed}");
        assert!(refusal("000-fig5", &pair).contains("000-fig5 uses no nodes"));
        for figure in ["003-table3-real", "003-all", "all"] {
            let said = refusal(figure, &pair);
            assert!(
                said.contains(&format!("the node {closed} does not answer")),
                "{said}"
            );
        }
        assert!(refusal("003-table2-real", &closed).contains("two addresses"));
    }

    #[test]
    fn all_of_a_paper_is_every_figure_of_it() {
        assert!(is_asked("000-fig5", "000-fig5") && is_asked("000-all", "000-fig5"));
        assert!(!is_asked("000-all", "001-fig5") && !is_asked("001-fig1", "001-fig10"));
        for (name, _) in FIGURES {
            assert_eq!(PAPERS.iter().filter(|all| is_asked(all, name)).count(), 1);
            assert!(is_asked(ALL, name));
        }
    }
}
