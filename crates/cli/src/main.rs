//! The `perdura` command, with one file for each verb.
//!
//! Verbs print data on stdout and messages for people on stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 data damaged,
//! 4 the disk failed and the database has stopped. Exit code 5: the log or its files no longer belong to this process.

mod exit;
mod in_memory;
mod nodes;
mod offline;
mod output;
mod programs;
mod read_disk;
mod setting_args;
mod signals;
mod transfer;
mod verb;

use clap::{ColorChoice, CommandFactory, Parser, Subcommand};

/// A transactional database that speaks the Redis protocol and is built around recovery.
#[derive(Debug, Parser)]
#[command(
    name = "perdura",
    version,
    color = ColorChoice::Never,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Every acknowledged write survives kill -9 and a power cut.\n\n\
        Examples:\n  \
        perdura serve                          serve ./perdura-data on 127.0.0.1:6379\n  \
        redis-cli set greeting hello           talk to it with any Redis client\n  \
        perdura verify --data perdura-data     check a stopped database\n\n\
        Exit codes: 0 done, 1 failed, 2 usage, 3 data damaged, 4 stopped by a failing disk, \
        5 the log belongs to another process."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Serve(verb::serve::Args),
    Logd(verb::logd::Args),
    Config(verb::config::Args),
    Import(Box<verb::import::Args>),
    Export(Box<verb::export::Args>),
    Completions(verb::completions::Args),
    Man(verb::man::Args),
    Restart(verb::restart::Args),
    #[command(subcommand)]
    Dump(verb::dump::Object),
    Verify(verb::verify::Args),
    Repair(verb::repair::Args),
    #[command(subcommand)]
    Receipt(verb::receipt::Action),
    #[command(subcommand)]
    Backup(verb::backup::Action),
    #[command(subcommand)]
    Archive(verb::archive::Action),
    Restore(verb::restore::Args),
    Digest(verb::digest::Args),
    Crash(verb::crash::Args),
    #[command(subcommand)]
    Bench(verb::bench::Workload),
    Reproduce(verb::reproduce::Args),
}

fn main() -> std::process::ExitCode {
    let _flush = perdura_logging::FlushAtEnd;
    let verb = Cli::parse_from(setting_args::joined(std::env::args_os())).verb;
    // A merge, a restore, and a restart from many disks open many files.
    let _limit = perdura_device::descriptors::raise_limit();
    let remedy = match verb {
        Verb::Backup(_) | Verb::Archive(_) | Verb::Restore(_) => exit::Remedy::Archive,
        _ => exit::Remedy::Database,
    };
    let ignored = signals::ignore(match &verb {
        Verb::Serve(_) => |row: &signals::Row| row.serve,
        Verb::Logd(_) => |row: &signals::Row| row.logd,
        Verb::Archive(verb::archive::Action::Agent(_)) => |row: &signals::Row| row.agent,
        _ => |row: &signals::Row| row.others,
    });
    if let Err(error) = ignored {
        return exit::code(Err(error.into()), remedy);
    }
    let done = match verb {
        Verb::Serve(args) => verb::serve::run(&args),
        Verb::Logd(args) => verb::logd::run(&args),
        Verb::Config(args) => verb::config::run(&args),
        Verb::Import(args) => verb::import::run(*args),
        Verb::Export(args) => verb::export::run(&args),
        Verb::Completions(args) => verb::completions::run(&args, Cli::command()),
        Verb::Man(args) => verb::man::run(&args, Cli::command()),
        Verb::Restart(args) => verb::restart::run(&args),
        Verb::Dump(object) => verb::dump::run(&object),
        Verb::Verify(args) => verb::verify::run(&args),
        Verb::Repair(args) => verb::repair::run(&args),
        Verb::Receipt(action) => verb::receipt::run(&action),
        Verb::Backup(action) => verb::backup::run(&action),
        Verb::Archive(action) => verb::archive::run(&action),
        Verb::Restore(args) => verb::restore::run(&args),
        Verb::Digest(args) => verb::digest::run(&args),
        Verb::Crash(args) => verb::crash::run(&args),
        Verb::Bench(workload) => verb::bench::run(&workload),
        Verb::Reproduce(args) => verb::reproduce::run(&args),
    };
    exit::code(done, remedy)
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::Cli;

    /// Values of experimental flags. With such a value, a new database has no log, or a new archive has no runs.
    const EXPERIMENTS: [&str; 3] = ["none", "unlogged", "unsorted"];

    /// Returns the flags of a verb and its subcommands that accept a value of [`EXPERIMENTS`].
    fn experiments(verb: &Command) -> Vec<String> {
        let is_one = |arg: &&clap::Arg| {
            let values = arg.get_possible_values();
            let mut names = values.iter().map(|value| value.get_name());
            names.any(|name| EXPERIMENTS.contains(&name))
        };
        let own = verb.get_arguments().filter(is_one);
        let mut found: Vec<String> = own.map(|arg| arg.get_id().to_string()).collect();
        found.extend(verb.get_subcommands().flat_map(experiments));
        found
    }

    #[test]
    fn only_the_verbs_that_measure_name_a_database_without_a_log() {
        let command = Cli::command();
        for verb in command.get_subcommands() {
            let found = experiments(verb);
            match verb.get_name() {
                "bench" => assert!(found.contains(&"scheme".to_owned()), "{found:?}"),
                "reproduce" => {}
                name => assert!(found.is_empty(), "{name}: {found:?}"),
            }
        }
    }
}
