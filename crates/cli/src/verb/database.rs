//! The options of a database, for the verbs that open one.

use std::path::PathBuf;

use anyhow::{Result, bail};
use perdura_server::settings::Settings;

use crate::exit::Usage;
use crate::nodes;
use crate::offline::look;
use crate::setting_args::Given;
pub use crate::setting_args::{DatabaseArgs, ReaderArgs};

impl DatabaseArgs {
    /// Returns the engine's options of a database in `data`.
    pub fn options(&self, data: PathBuf) -> Result<perdura::Options> {
        options_of(&self.0, data)
    }

    /// Returns the engine's options of a database in `data`. A new database has `partitions` partitions unless the
    /// setting is given.
    pub fn options_with_partitions(
        &self,
        data: PathBuf,
        partitions: u16,
    ) -> Result<perdura::Options> {
        let mut settings = Settings::default();
        settings.database.data = data;
        self.0.apply(&mut settings)?;
        if !settings.is_given("partitions") {
            settings.database.partitions = partitions;
        }
        engine_options(&settings)
    }
}

impl ReaderArgs {
    /// Returns the engine's options of a database in `data`.
    pub fn options(&self, data: PathBuf) -> Result<perdura::Options> {
        options_of(&self.0, data)
    }
}

fn options_of(given: &Given, data: PathBuf) -> Result<perdura::Options> {
    let mut settings = Settings::default();
    settings.database.data = data;
    given.apply(&mut settings)?;
    engine_options(&settings)
}

/// Returns the engine's options after checking them. The anchor gives the values fixed at the database's creation. A
/// setting that differs from a fixed value is refused, not ignored.
pub fn engine_options(settings: &Settings) -> Result<perdura::Options> {
    let mut options = settings.database.clone();
    if let Some(anchor) = look(&options.paths())? {
        let given = |name: &str| settings.is_given(name);
        fixed("streams", given, options.streams, anchor.streams)?;
        fixed(
            "partitions",
            given,
            options.partitions,
            anchor.geometry.partitions,
        )?;
        fixed(
            "segment-size",
            given,
            options.segment_bytes,
            anchor.segments.max,
        )?;
        options.streams = anchor.streams;
        options.partitions = anchor.geometry.partitions;
        options.segment_bytes = anchor.segments.max;
    }
    options.nodes = nodes::of(&options.node_settings)?;
    options.core()?;
    Ok(options)
}

fn fixed<T: PartialEq + std::fmt::Display>(
    name: &str,
    given: impl Fn(&str) -> bool + Copy,
    wish: T,
    made: T,
) -> Result<()> {
    if given(name) && wish != made {
        bail!(Usage(format!(
            "{name} {wish}: this database was made with {made}, which cannot be changed"
        )));
    }
    Ok(())
}
