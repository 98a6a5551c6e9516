//! A program's declarations of typed tables and procedures.

use std::sync::Arc;

use perdura_table::Schema;
use perdura_txn::ValueForm;

use super::accept::AcceptDivergence;
use super::procedures::Registered;

/// The form in which the log holds changes of key-addressed tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogForm {
    /// The rows that changed.
    #[default]
    Value,
    /// The procedure and its arguments. For a transaction that is no procedure call, the rows that
    /// changed.
    Command,
}

impl LogForm {
    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogForm::Value => "value",
            LogForm::Command => "command",
        }
    }
}

/// The typed tables and procedures of a program.
#[derive(Debug, Clone)]
pub struct TypedOptions {
    /// The tables.
    pub schemas: Arc<[Schema]>,
    /// The procedures.
    pub procedures: Arc<[Registered]>,
    /// Procedures that only a replay of the log may call. They are not added to the catalog.
    pub replayed: Arc<[Registered]>,
    /// If given, the results of a replay that differ from the log are accepted. `None`: a difference stops the restart.
    pub accept: Option<AcceptDivergence>,
    /// The form in which the log holds changes of key-addressed tables.
    pub log: LogForm,
    /// The contents of the logged effect of a changed row.
    pub form: ValueForm,
    /// True if a call that cannot be logged as a command is refused.
    pub strict: bool,
}

impl Default for TypedOptions {
    fn default() -> Self {
        TypedOptions {
            schemas: Arc::new([]),
            procedures: Arc::new([]),
            replayed: Arc::new([]),
            accept: None,
            log: LogForm::default(),
            form: ValueForm::default(),
            strict: false,
        }
    }
}
