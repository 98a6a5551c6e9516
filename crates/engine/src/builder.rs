//! Opening a database with typed tables and procedures.

use std::path::{Path, PathBuf};

use perdura_base::Result;
use perdura_recovery::ordered::Divergence;
use perdura_restore::At;
use perdura_table::{Addressing, Procedure, Schema, Table};
use perdura_txn::ValueForm;

use crate::db::Db;
use crate::durability::Durability;
use crate::options::Options;
use crate::typed::{AcceptDivergence, LogForm, Registered};

/// Collects settings, tables and procedures for opening a database; see [`Db::builder`].
#[derive(Debug, Clone)]
#[must_use = "`open` opens the database"]
pub struct Builder {
    options: Options,
    schemas: Vec<Schema>,
    procedures: Vec<Registered>,
    page_addressed: bool,
}

impl Db {
    /// Returns a builder that opens the database in directory `data`, with typed tables and procedures.
    pub fn builder(data: impl Into<PathBuf>) -> Builder {
        Builder::with(Options::new(data))
    }
}

impl Builder {
    /// Returns a builder with the given settings, and no tables or procedures yet.
    pub fn with(options: Options) -> Builder {
        Builder {
            options,
            schemas: Vec::new(),
            procedures: Vec::new(),
            page_addressed: false,
        }
    }

    /// Declares a table. It is made if the database does not have it.
    pub fn table<T: Table>(mut self) -> Builder {
        self.schemas.push(T::schema().clone());
        self
    }

    /// Registers a procedure, so that its calls can be logged as commands and replayed.
    pub fn procedure<P: Procedure>(mut self, _procedure: P) -> Builder {
        self.procedures.push(Registered::of::<P>());
        self
    }

    /// Archives the log into a directory, which is made if it is not there.
    pub fn archive(mut self, dir: impl Into<PathBuf>) -> Builder {
        self.options.archive = Some(dir.into());
        self
    }

    /// Sets the durability that [`Db::write`] and other waiting calls wait for.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.options.durability = durability;
        self
    }

    /// Sets the form in which the log records changes of key-addressed tables.
    pub fn log(mut self, form: LogForm) -> Builder {
        self.options.typed.log = form;
        self
    }

    /// Sets what the logged effect of a changed row contains.
    pub fn value_form(mut self, form: ValueForm) -> Builder {
        self.options.typed.form = form;
        self
    }

    /// If `strict`, calls that cannot be logged as commands are refused. Otherwise their effects are logged instead.
    pub fn strict(mut self, strict: bool) -> Builder {
        self.options.typed.strict = strict;
        self
    }

    /// Accepts a replay whose results differ from the logged results. They differ if a procedure is not deterministic
    /// or its text has changed. The new results then replace the logged results. `hear` is called with each record that
    /// differs. After the replay, the opening takes a checkpoint. So the next opening does not replay these records.
    pub fn accept_divergence(
        mut self,
        hear: impl Fn(&Divergence) + Send + Sync + 'static,
    ) -> Builder {
        self.options.typed.accept = Some(AcceptDivergence::new(hear));
        self
    }

    /// Makes all declared tables page-addressed, whatever their declarations say. The log then holds their changed
    /// bytes.
    pub fn page_addressed(mut self) -> Builder {
        self.page_addressed = true;
        self
    }

    /// Changes settings.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Builder {
        change(&mut self.options);
        self
    }

    /// Returns the settings with all declarations.
    #[must_use]
    pub fn into_options(self) -> Options {
        let mut options = self.options;
        let page_addressed = self.page_addressed;
        let schemas = self.schemas.into_iter().map(|schema| match page_addressed {
            true => schema.with_addressing(Addressing::Page),
            false => schema,
        });
        options.typed.schemas = schemas.collect();
        options.typed.procedures = self.procedures.into();
        options
    }

    /// Opens the database, or makes a new one.
    ///
    /// # Errors
    /// As [`Db::open`]. [`perdura_base::Error::Usage`] if a table's schema differs from the one in the database, or the
    /// log holds calls of a procedure that was not registered.
    pub fn open(self) -> Result<Db> {
        Db::open(self.into_options())
    }

    /// Restores a database from an archive into this builder's directory, and opens it. See [`Db::restore`].
    ///
    /// # Errors
    /// As [`Db::restore`].
    pub fn restore(self, archive: impl AsRef<Path>, at: Option<At>) -> Result<Db> {
        Db::restore(self.into_options(), archive.as_ref(), at)
    }
}
