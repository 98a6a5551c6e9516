//! CONFIG: the settings by Redis's names. The tables in [`crate::settings`] list the changeable and the fixed settings.
//! This module shows and changes settings, and writes the configuration file.
//!
//! All changes of one CONFIG SET are made on a copy of the options. The copy replaces the original only if all changes
//! are valid. Some settings need more work. For example, [`apply`] sets the engine's memory limit, or reads
//! certificates again.

use crate::acl;
use crate::command::flag::{ADMIN, ALONE, APART, LOADING, PROVES};
use crate::command::spec::{Command, family};
use crate::command::{Cx, SYNTAX};
use crate::glob;
use crate::options::ServeError;
use crate::resp::parse::Args;
use crate::settings::file::{Change, rewrite};
use crate::settings::fixed::{self, Fixed};
use crate::settings::ignored::{self, ALIASES, IGNORED, Ignored};
use crate::settings::kind::Kind;
use crate::settings::table::SETTINGS;
use crate::settings::{Setting, Settings, Source};
use crate::state::State;
use std::collections::BTreeSet;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family(
    "config",
    -2,
    LOADING | ADMIN | ALONE | APART | PROVES,
    WORDS,
    config,
)];

/// The second words of CONFIG.
pub(crate) const WORDS: &[(&str, i8)] = &[
    ("get", -3),
    ("help", 2),
    ("resetstat", 2),
    ("rewrite", 2),
    ("set", -4),
];

/// `CONFIG GET|SET|RESETSTAT|REWRITE …`
pub(crate) fn config(cx: &mut Cx<'_>, args: &Args<'_>) {
    let word = args.at(1).to_ascii_lowercase();
    match word.as_slice() {
        b"get" => get(cx, args),
        b"set" if args.len().is_multiple_of(2) => set(cx, args),
        b"set" => cx.out.error(SYNTAX),
        b"resetstat" => {
            cx.state.each_mut(|state| {
                state.reset_stats();
                state.rounds.reset();
                state.publish_figures();
            });
            cx.out.ok();
        }
        b"rewrite" => match rewrite_file(cx.state) {
            Ok(()) => cx.out.ok(),
            Err(text) => cx.out.error(&text),
        },
        _ => {
            let lines = [
                "CONFIG GET <pattern> [<pattern> ...]: settings and their values.",
                "CONFIG SET <name> <value> ...: change settings, all of them or none.",
                "CONFIG RESETSTAT: count from zero.",
                "CONFIG REWRITE: write what CONFIG SET and ACL have changed into the file.",
            ];
            cx.out.array(lines.len());
            for line in lines {
                cx.out.simple(line);
            }
        }
    }
}

/// The setting that a name of CONFIG refers to.
#[derive(Clone, Copy)]
enum Target {
    Setting(&'static Setting),
    Fixed(&'static Fixed),
    Ignored(&'static Ignored),
}

impl Target {
    fn find(name: &str) -> Option<Target> {
        let known = ignored::resolve(name);
        let setting = SETTINGS.iter().find(|row| row.config_name() == known);
        setting
            .map(Target::Setting)
            .or_else(|| fixed::find(name).map(Target::Fixed))
            .or_else(|| ignored::find(name).map(Target::Ignored))
    }

    /// Returns the main name of the setting.
    fn name(self) -> &'static str {
        match self {
            Target::Setting(row) => row.config_name(),
            Target::Fixed(row) => row.name,
            Target::Ignored(row) => row.name,
        }
    }

    fn value(self, state: &State) -> String {
        match self {
            Target::Setting(row) => setting_value(state, row),
            Target::Fixed(row) => fixed_value(state, row),
            Target::Ignored(row) => {
                let set = state.options.ignored.get(row.name);
                set.map_or(row.default, String::as_str).to_owned()
            }
        }
    }
}

fn setting_value(state: &State, row: &Setting) -> String {
    if row.name == "maxmemory" {
        let limit = state.db().map_or(0, |db| db.memory().limit());
        return if limit == u64::MAX { 0 } else { limit }.to_string();
    }
    row.field
        .get(&state.options, &state.config.database)
        .join(" ")
}

fn fixed_value(state: &State, row: &Fixed) -> String {
    let options = &state.options;
    match row.name {
        "bind" => {
            let hosts = options.listen.iter().map(|a| a.ip().to_string());
            hosts.collect::<Vec<_>>().join(" ")
        }
        "dir" => state.config.database.data.display().to_string(),
        "port" => state.port.to_string(),
        "tls-port" => options
            .tls_listen
            .first()
            .map_or(0, |a| a.port())
            .to_string(),
        _ => row.value.to_owned(),
    }
}

/// Returns every name that CONFIG GET knows. The setting `user` is left out, because only ACL shows users.
fn names() -> impl Iterator<Item = (&'static str, Target)> {
    let hidden = |row: &&Setting| row.many && row.kind == Kind::Secret;
    let settings = SETTINGS
        .iter()
        .filter(move |row| !hidden(row))
        .map(|row| (row.config_name(), Target::Setting(row)));
    let fixed = fixed::FIXED
        .iter()
        .map(|row| (row.name, Target::Fixed(row)));
    let ignored = IGNORED.iter().map(|row| (row.name, Target::Ignored(row)));
    let aliases = ALIASES
        .iter()
        .filter_map(|(alias, _)| Target::find(alias).map(|target| (*alias, target)));
    settings.chain(fixed).chain(ignored).chain(aliases)
}

fn get(cx: &mut Cx<'_>, args: &Args<'_>) {
    let patterns: Vec<Vec<u8>> = args.from(2).map(<[u8]>::to_ascii_lowercase).collect();
    let mut found: Vec<(&str, Target)> = names()
        .filter(|(name, _)| patterns.iter().any(|p| glob::matches(p, name.as_bytes())))
        .collect();
    found.sort_unstable_by_key(|(name, _)| *name);
    cx.out.map(found.len());
    for (name, target) in found {
        cx.out.bulk(name.as_bytes());
        cx.out.bulk(target.value(cx.state).as_bytes());
    }
}

/// The reason why CONFIG SET changes nothing.
struct Refusal {
    name: String,
    why: String,
}

fn set(cx: &mut Cx<'_>, args: &Args<'_>) {
    let mut changes = Vec::new();
    let mut seen = BTreeSet::new();
    let failed = |refusal: Refusal| {
        let Refusal { name, why } = refusal;
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    };
    for at in (2..args.len()).step_by(2) {
        let given = String::from_utf8_lossy(args.at(at)).into_owned();
        let Some(target) = Target::find(&given.to_ascii_lowercase()) else {
            let text = "ERR Unknown option or number of arguments for CONFIG SET";
            return cx.out.error(&format!("{text} - '{given}'"));
        };
        let value = String::from_utf8_lossy(args.at(at + 1)).into_owned();
        let refusal = if seen.insert(target.name()) {
            may_change(cx.state, target, &value).err()
        } else {
            Some(String::from("duplicate parameter"))
        };
        if let Some(why) = refusal {
            return cx.out.error(&failed(Refusal { name: given, why }));
        }
        changes.push((given, target, value));
    }
    match apply(cx.state, &changes) {
        Ok(()) => {
            if seen.contains("requirepass") {
                acl::requirepass_changed(cx.state, cx.session);
            }
            cx.out.ok();
        }
        Err(refusal) => cx.out.error(&failed(refusal)),
    }
}

/// Fails if a setting cannot be changed to this value.
fn may_change(state: &State, target: Target, value: &str) -> Result<(), String> {
    let same = || target.value(state) == value;
    match target {
        Target::Setting(row) if row.live || same() => Ok(()),
        Target::Setting(_) => Err("can't set immutable config".into()),
        Target::Ignored(row) if row.immutable && !same() => {
            Err("can't set immutable config".into())
        }
        Target::Ignored(_) => Ok(()),
        Target::Fixed(_) if same() => Ok(()),
        Target::Fixed(row) => row.check(value),
    }
}

fn apply(state: &mut State, changes: &[(String, Target, String)]) -> Result<(), Refusal> {
    let mut draft = Settings {
        server: state.options.clone(),
        database: state.config.database.clone(),
        ..Settings::default()
    };
    let mut changed = Vec::new();
    for (name, target, value) in changes {
        let refuse = |why: String| Refusal {
            name: name.clone(),
            why,
        };
        match target {
            Target::Setting(row) if row.live => {
                let texts = [value.clone()];
                draft.set(row, &texts, Source::Default).map_err(refuse)?;
                changed.push(row.name);
            }
            Target::Ignored(row) if !row.immutable => {
                let value = row.kind.canonical(value).map_err(refuse)?;
                draft.server.ignored.insert(row.name, value);
                changed.push(row.name);
            }
            Target::Setting(_) | Target::Ignored(_) | Target::Fixed(_) => {}
        }
    }
    let whole = |why: String| Refusal {
        name: changes
            .last()
            .map_or(String::new(), |(name, ..)| name.clone()),
        why,
    };
    if let Err(ServeError::Options(why)) = draft.server.check() {
        return Err(whole(why));
    }
    let has = |name: &str| changed.contains(&name);
    if has("maxclients") && draft.server.maxclients > state.clients_fit {
        return Err(Refusal {
            name: String::from("maxclients"),
            why: format!(
                "The operating system is not able to handle the specified number of clients, try with {}",
                state.clients_fit
            ),
        });
    }
    // All steps that may fail come before the first change.
    let limited = match state.db() {
        _ if !has("maxmemory") => None,
        Some(db) => Some(db.clone()),
        None => return Err(whole("the database is still loading".into())),
    };
    if changed.iter().any(|name| name.starts_with("tls-")) {
        state.load_tls(&draft.server).map_err(&whole)?;
    }
    if let Some(db) = limited {
        let limit = draft.database.memory_limit.unwrap_or(u64::MAX);
        db.memory().set_limit(limit);
    }
    if has("requirepass") {
        let password = draft.server.requirepass.as_deref();
        state.acl.set_requirepass(password.map(str::as_bytes));
    }
    (state.options, state.config.database) = (draft.server, draft.database);
    state.config.changed.extend(changed);
    state.options_changed();
    Ok(())
}

/// Returns the lines of the users that CONFIG REWRITE must write to the file. `None`: the users are already in the
/// file, or in an ACL file.
fn users(state: &State) -> Result<Option<Vec<String>>, String> {
    // In the file, a line for `default` would override a new `requirepass`.
    let overruled = state.config.changed.contains("requirepass") && !state.options.users.is_empty();
    if state.options.aclfile.is_some() || !(state.acl.changed || overruled) {
        return Ok(None);
    }
    let lines = state.acl.lines();
    lines
        .map(Some)
        .map_err(|why| format!("ERR Rewriting config file: {why}"))
}

/// Writes the changes of CONFIG SET and ACL into the file that the server was started with.
fn rewrite_file(state: &mut State) -> Result<(), String> {
    let Some(path) = state.options.config_file.clone() else {
        return Err("ERR The server is running without a config file".into());
    };
    let users = users(state)?;
    let mut changes: Vec<Change> = state
        .config
        .changed
        .iter()
        .filter_map(|name| match (Setting::find(name), ignored::find(name)) {
            (Some(row), _) => Some(Change {
                name: row.name,
                other_names: row.other_names().collect(),
                many: row.many,
                values: match row.name {
                    "maxmemory" => vec![setting_value(state, row)],
                    _ => row.field.get(&state.options, &state.config.database),
                },
            }),
            (None, Some(row)) => Some(Change {
                name: row.name,
                other_names: Vec::new(),
                many: false,
                values: state
                    .options
                    .ignored
                    .get(row.name)
                    .cloned()
                    .into_iter()
                    .collect(),
            }),
            (None, None) => None,
        })
        .collect();
    changes.extend(users.clone().map(|values| Change {
        name: "user",
        other_names: Vec::new(),
        many: true,
        values,
    }));
    rewrite(&path, &changes).map_err(|error| {
        tracing::error!("CONFIG REWRITE of {}: {error}", path.display());
        format!("ERR Rewriting config file: {error}")
    })?;
    if let Some(lines) = users {
        (state.options.users, state.acl.changed) = (lines, false);
    }
    Ok(())
}
