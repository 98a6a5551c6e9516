//! Command-line flags for the verbs that accept settings. The flags are generated from the table of settings.

use std::ffi::{OsStr, OsString};

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use perdura_server::settings::kind::Kind;
use perdura_server::settings::table::SETTINGS;
use perdura_server::settings::{Group, Setting, Settings, Source};

use crate::exit::Usage;

/// The settings given on the command line.
#[derive(Debug, Clone, Default)]
pub struct Given(Vec<(&'static Setting, Vec<String>)>);

impl Given {
    /// Returns the names of the settings.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(setting, _)| setting.name)
    }

    /// Applies the given settings to `settings`.
    pub fn apply(&self, settings: &mut Settings) -> Result<()> {
        for (setting, texts) in &self.0 {
            debug_assert!(!texts.is_empty(), "a flag that is given has a value");
            settings.set(setting, texts, Source::Flag).map_err(|why| {
                let name = setting.name;
                let shown = if setting.kind == Kind::Secret {
                    String::new()
                } else {
                    format!(" {}", texts.join(" "))
                };
                Usage(format!("--{name}{shown}: {why}{}", hint(setting.kind)))
            })?;
        }
        Ok(())
    }
}

fn hint(kind: Kind) -> &'static str {
    match kind {
        Kind::Bytes { .. } => "; a size is a whole number with B, KiB, MiB or GiB",
        Kind::Time { .. } => "; a time is a whole number with us, ms, s, m or h",
        _ => "",
    }
}

/// Joins `--name yes` into `--name=yes` and `--name no` into `--name=no` in a command line, for every yes-or-no
/// setting. The value of such a flag is optional, so the parser would not take a separate `yes` as the value.
pub fn joined(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut is_over = false;
    for arg in args {
        let is_word = |word: &str| Kind::Bool.canonical(word).is_ok();
        match (out.last_mut(), arg.to_str()) {
            (Some(flag), Some(word)) if !is_over && is_yes_or_no(flag) && is_word(word) => {
                flag.push("=");
                flag.push(word);
                continue;
            }
            _ => {}
        }
        is_over |= arg == "--";
        out.push(arg);
    }
    out
}

/// Returns whether an argument is the flag of a yes-or-no setting and has no value.
fn is_yes_or_no(arg: &OsStr) -> bool {
    let name = arg.to_str().and_then(|text| text.strip_prefix("--"));
    name.is_some_and(|name| {
        let mut rows = SETTINGS.iter().filter(|row| row.kind == Kind::Bool);
        rows.any(|row| row.name == name)
    })
}

fn add(command: Command, wanted: fn(&Setting) -> bool) -> Command {
    let rows = SETTINGS.iter().filter(|row| wanted(row));
    command.args(rows.map(|row| {
        let default = match row.default {
            Some(words) => format!(" [default: {words}]"),
            None => {
                let shown = perdura_server::settings::document::default_of(row);
                shown.map_or(String::new(), |value| format!(" [default: {value}]"))
            }
        };
        // The default is appended to the text, and the full stop follows it.
        let doc = row.doc.trim_end_matches('.');
        let mut arg = Arg::new(row.name)
            .long(row.name)
            .value_name(row.kind.placeholder())
            .help(format!("{doc}{default}"))
            .action(if row.many {
                ArgAction::Append
            } else {
                ArgAction::Set
            });
        if row.kind == Kind::Bool {
            arg = arg
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("yes");
        }
        if let Kind::Choice(words) = row.kind {
            let words = PossibleValuesParser::new(words);
            arg = arg.value_parser(words).ignore_case(true);
        }
        arg
    }))
}

fn take(matches: &ArgMatches, wanted: fn(&Setting) -> bool) -> Given {
    let rows = SETTINGS.iter().filter(|row| wanted(row));
    Given(
        rows.filter_map(|row| {
            let values = matches.get_many::<String>(row.name)?;
            Some((row, values.cloned().collect()))
        })
        .collect(),
    )
}

fn is_of_log(row: &Setting) -> bool {
    ["log-level", "log-format"].contains(&row.name)
}

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident, $wanted:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default)]
        pub struct $name(pub Given);

        impl clap::Args for $name {
            fn augment_args(command: Command) -> Command {
                add(command, $wanted)
            }

            fn augment_args_for_update(command: Command) -> Command {
                add(command, $wanted)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                Ok($name(take(matches, $wanted)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

flags!(
    /// Every setting.
    AllFlags,
    |_| true
);

flags!(
    /// The settings that apply when a database is opened for reading. The verb itself defines the flag for the
    /// directory.
    ReaderArgs,
    |row| ["log-dir", "image-dir", "maxmemory", "restart-level", "threads"].contains(&row.name)
);

flags!(
    /// The settings that apply when a database is opened or created. The verb itself defines the flag for the
    /// directory.
    DatabaseArgs,
    |row| row.group == Group::Database && row.name != "data"
);

flags!(
    /// The settings for a node of the mirrored log: the protection of connections, and the operator's log.
    NodeArgs,
    |row| {
        let tls = row.name.starts_with("tls-");
        tls || row.name == "allow-plaintext" || is_of_log(row)
    }
);

flags!(
    /// The settings of the operator's log on stderr.
    LogArgs,
    is_of_log
);

flags!(
    /// The settings that protect connections to nodes of the mirrored log.
    NodeClientArgs,
    |row| ["tls-cert-file", "tls-key-file", "tls-ca-cert-file"].contains(&row.name)
);

flags!(
    /// The settings of the nodes that mirrored a log, and of the view.
    LogNodesArgs,
    |row| {
        let tls = row.name.starts_with("log-tls-");
        tls || LOG_NODES.contains(&row.name)
    }
);

/// The settings that a reader of nodes needs, except those of TLS.
const LOG_NODES: [&str; 5] = [
    "log-nodes",
    "log-view",
    "log-key-file",
    "log-lease",
    "log-allow-plaintext",
];

#[cfg(test)]
mod tests {
    use super::joined;

    fn shown(line: &str) -> String {
        let args = joined(line.split(' ').map(Into::into));
        let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
        args.join(" ")
    }

    #[test]
    fn a_yes_or_no_flag_takes_its_word_with_and_without_an_equals_sign() {
        for (given, parsed) in [
            ("serve --archive-merge no", "serve --archive-merge=no"),
            (
                "serve --archive-merge=no --data d",
                "serve --archive-merge=no --data d",
            ),
            (
                "serve --archive-merge --data no",
                "serve --archive-merge --data no",
            ),
            (
                "serve --archive-merge YES no",
                "serve --archive-merge=YES no",
            ),
            ("serve --archive-merge maybe", "serve --archive-merge maybe"),
            ("serve -- --archive-merge no", "serve -- --archive-merge no"),
            ("serve --port no", "serve --port no"),
        ] {
            assert_eq!(shown(given), parsed);
        }
    }
}
