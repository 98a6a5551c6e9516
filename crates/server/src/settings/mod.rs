//! The settings, in one table. Everything that deals with settings is made from this table: the flags of
//! `perdura serve`, the variables, the file, CONFIG GET and SET, and `docs/configuration.md`.
//!
//! A setting's value is in one typed field of [`ServerOptions`] or of the engine's [`Options`]. The setting's row
//! in the [`table`] converts the field to text, and sets the field from text. Code that needs a value reads the field.
//! A change is made on a copy, which then replaces the original. So a list of changes is made as a whole or not at all.
//!
//! Several sources may set one name. Flags win over variables (`PERDURA_MAXCLIENTS`), variables win over the file, and
//! the file wins over the defaults. An unknown name is an error that gives its place and the nearest known name.
//!
//! * [`kind`], [`units`], `texts`: the forms of values.
//! * [`table`], `packed`, `archive`: this server's settings. [`ignored`]: names of Redis without effect.
//!   [`fixed`]: names of Redis that have one possible value here, with the reason.
//! * [`file`](mod@file): reading and rewriting TOML. [`document`]: the tables of the documentation.

mod archive;
mod clients;
pub mod document;
pub mod file;
pub mod fixed;
pub mod ignored;
pub mod kind;
mod logs;
mod loops;
mod nodes;
mod packed;
mod redis_conf;
mod restarts;
mod row;
pub mod table;
mod texts;
pub mod units;

pub use packed::PackedLimits;
pub use texts::{ClientShare, OutputLimit, OutputLimits};

use crate::options::ServerOptions;
use kind::Kind;
use perdura::Options;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The part of the server that a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The database and its restart.
    Database,
    /// Addresses and clients.
    Network,
    /// Users and their rules.
    Security,
    /// Logs, metrics and notifications.
    Observation,
    /// The storage of collections.
    Collections,
}

impl Group {
    /// All groups, in the order of the documentation.
    pub const ALL: [Group; 5] = [
        Group::Database,
        Group::Network,
        Group::Security,
        Group::Observation,
        Group::Collections,
    ];

    /// Returns the heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Group::Database => "Database",
            Group::Network => "Addresses and clients",
            Group::Security => "Security",
            Group::Observation => "Observation",
            Group::Collections => "Small collections",
        }
    }
}

/// The functions of a row that read and write the row's field. They use a list of texts, one for each value.
#[derive(Clone, Copy)]
pub enum Field {
    /// A field of the server's options.
    Server {
        /// Returns the values as texts.
        get: fn(&ServerOptions) -> Vec<String>,
        /// Sets the values from canonical texts.
        set: fn(&mut ServerOptions, &[String]) -> Result<(), String>,
    },
    /// A field of the engine's options.
    Database {
        /// Returns the values as texts.
        get: fn(&Options) -> Vec<String>,
        /// Sets the values from canonical texts.
        set: fn(&mut Options, &[String]) -> Result<(), String>,
    },
}

impl Field {
    /// Returns the values as texts.
    pub(crate) fn get(&self, server: &ServerOptions, database: &Options) -> Vec<String> {
        match self {
            Field::Server { get, .. } => get(server),
            Field::Database { get, .. } => get(database),
        }
    }
}

/// One setting.
pub struct Setting {
    /// Its name, which is also its flag and its key in the file. [`variable`](Self::variable) derives the environment
    /// variable from the name.
    pub name: &'static str,
    /// Its name in Redis, which CONFIG uses. `None`: Redis uses `name` or lacks the setting.
    pub redis: Option<&'static str>,
    /// Its group.
    pub group: Group,
    /// The kind of its values.
    pub kind: Kind,
    /// True if it takes several values.
    pub many: bool,
    /// True if CONFIG SET may change it.
    pub live: bool,
    /// Its meaning, for help and documents.
    pub doc: &'static str,
    /// The default in words. `None`: the default value needs no words.
    pub default: Option<&'static str>,
    /// Access to its value.
    pub field: Field,
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Setting {
    /// Returns its name for CONFIG.
    #[must_use]
    pub fn config_name(&self) -> &'static str {
        self.redis.unwrap_or(self.name)
    }

    /// Returns the other names of the setting: its name in Redis, and its older names.
    pub(crate) fn other_names(&self) -> impl Iterator<Item = &'static str> {
        let name = self.name;
        let older = ignored::ALIASES.iter().filter(move |(_, of)| *of == name);
        self.redis.into_iter().chain(older.map(|(alias, _)| *alias))
    }

    /// Returns the name of the environment variable that sets this setting.
    #[must_use]
    pub fn variable(&self) -> String {
        format!(
            "PERDURA_{}",
            self.name.to_ascii_uppercase().replace('-', "_")
        )
    }

    /// Returns the setting that has this name here or in Redis.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Setting> {
        let name = ignored::resolve(name);
        table::SETTINGS
            .iter()
            .find(|row| row.name == name || row.redis == Some(name))
    }
}

/// The source of a value. A source is greater than the sources that it overrides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The setting is not set.
    Default,
    /// A file, at a line.
    File(PathBuf, usize),
    /// A variable.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path, line) => write!(f, "{}:{line}", path.display()),
            Source::Environment(name) => f.write_str(name),
            Source::Flag => f.write_str("flag"),
        }
    }
}

/// The effective settings, and the source of each.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The server's options.
    pub server: ServerOptions,
    /// The engine's options.
    pub database: Options,
    /// The sources of the settings that are set. A setting that is not here has its default.
    pub sources: BTreeMap<&'static str, Source>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            server: ServerOptions::default(),
            database: Options::new("perdura-data"),
            sources: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// Returns the values of a setting in canonical form.
    #[must_use]
    pub fn get(&self, setting: &Setting) -> Vec<String> {
        setting.field.get(&self.server, &self.database)
    }

    /// Sets a setting from texts as people write them.
    ///
    /// # Errors
    /// The reason why a text is not a value of this setting.
    pub fn set(
        &mut self,
        setting: &'static Setting,
        texts: &[String],
        source: Source,
    ) -> Result<(), String> {
        let values = canonical(setting, texts)?;
        match setting.field {
            Field::Server { set, .. } => set(&mut self.server, &values)?,
            Field::Database { set, .. } => set(&mut self.database, &values)?,
        }
        self.sources.insert(setting.name, source);
        Ok(())
    }

    /// Completes the settings. If only a Unix socket or TLS addresses are given, the default address is
    /// removed.
    pub fn finish(&mut self) {
        let elsewhere = self.server.unix_socket.is_some() || !self.server.tls_listen.is_empty();
        if elsewhere && !self.is_given("listen") {
            self.server.listen.clear();
        }
    }

    /// Returns the source of a setting's value.
    #[must_use]
    pub fn source(&self, setting: &Setting) -> Source {
        self.sources
            .get(setting.name)
            .cloned()
            .unwrap_or(Source::Default)
    }

    /// Returns whether a source has set the setting of this name.
    #[must_use]
    pub fn is_given(&self, name: &str) -> bool {
        self.sources.contains_key(name)
    }

    /// Reads the settings from environment variables. A setting that a flag has set is left unchanged.
    ///
    /// # Errors
    /// An invalid value, or an unknown variable with a name close to a setting's name.
    pub fn read_environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<(), String> {
        for (variable, value) in variables {
            let Some(word) = variable.strip_prefix("PERDURA_") else {
                continue;
            };
            let name = word.to_ascii_lowercase().replace('_', "-");
            let Some(setting) = table::SETTINGS.iter().find(|row| row.name == name) else {
                match nearest(&name, 2) {
                    Some(near) if name != "config" => {
                        let near = near.replace('-', "_").to_ascii_uppercase();
                        return Err(format!(
                            "{variable}: no such setting; did you mean PERDURA_{near}?"
                        ));
                    }
                    Some(_) | None => continue,
                }
            };
            if value.is_empty() {
                continue;
            }
            let texts: Vec<String> = match setting.many {
                true => value.split_whitespace().map(str::to_owned).collect(),
                false => vec![value],
            };
            self.set(setting, &texts, Source::Environment(variable.clone()))
                .map_err(|why| format!("{variable}: {why}"))?;
        }
        Ok(())
    }
}

/// Returns texts in the canonical form of their setting.
pub(crate) fn canonical(setting: &Setting, texts: &[String]) -> Result<Vec<String>, String> {
    if !setting.many && texts.len() != 1 {
        return Err(String::from("it takes one value"));
    }
    let optional = matches!(setting.kind, Kind::Address | Kind::Path);
    texts
        .iter()
        .filter(|text| !(optional && text.is_empty()))
        .map(|text| setting.kind.canonical(text))
        .collect()
}

/// Returns the known name that is nearest to a wrong one. `None`: all are farther away than `distance_max`.
#[must_use]
pub fn nearest(wrong: &str, distance_max: usize) -> Option<&'static str> {
    table::SETTINGS
        .iter()
        .flat_map(|row| [Some(row.name), row.redis])
        .flatten()
        .chain(ignored::IGNORED.iter().map(|row| row.name))
        .map(|name| (strsim::osa_distance(wrong, name), name))
        .filter(|(distance, _)| *distance <= distance_max)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_setting_shows_it_also_takes() {
        let settings = Settings::default();
        for row in table::SETTINGS {
            let mut copy = settings.clone();
            let shown = copy.get(row);
            if shown.is_empty() {
                continue;
            }
            copy.set(row, &shown, Source::Flag)
                .unwrap_or_else(|why| panic!("{}: {why}", row.name));
            assert_eq!(copy.get(row), shown, "{}", row.name);
            assert_eq!(copy.source(row), Source::Flag);
        }
    }

    #[test]
    fn names_are_unique_over_all_tables() {
        let mut names: Vec<&str> = table::SETTINGS.iter().map(Setting::config_name).collect();
        names.extend(
            table::SETTINGS
                .iter()
                .filter(|r| r.redis.is_some())
                .map(|r| r.name),
        );
        names.extend(ignored::IGNORED.iter().map(|row| row.name));
        names.extend(ignored::ALIASES.iter().map(|(alias, _)| *alias));
        names.extend(fixed::FIXED.iter().map(|row| row.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_environment_sets_and_wrong_names_are_found() {
        let variables = |pairs: &[(&str, &str)]| {
            let owned = pairs
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            owned.collect::<Vec<_>>().into_iter()
        };
        let mut settings = Settings::default();
        let given = [
            ("PERDURA_MAXCLIENTS", "7"),
            ("PERDURA_KILL_ROUNDS", "3"),
            ("HOME", "/"),
        ];
        assert_eq!(settings.read_environment(variables(&given)), Ok(()));
        assert_eq!(settings.server.maxclients, 7);
        let wrong = [("PERDURA_MAXCLIENT", "7")];
        let error = settings.read_environment(variables(&wrong)).unwrap_err();
        assert!(error.contains("PERDURA_MAXCLIENTS"), "{error}");
        let wrong = [("PERDURA_MAXCLIENTS", "none")];
        assert!(settings.read_environment(variables(&wrong)).is_err());
    }
}
