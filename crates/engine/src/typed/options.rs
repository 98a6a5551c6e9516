//! A program's declarations of typed tables and procedures.

use std::sync::Arc;

use perdura_table::Schema;
use perdura_txn::ValueForm;

use super::accept::AcceptDivergence;
use super::procedures::Registered;

/// The log's form for changes of key-addressed tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogForm {
    /// The rows that changed.
    #[default]
    Value,
    /// The procedure and its arguments. A transaction outside a procedure is logged as the rows that changed.
    Command,
}

impl LogForm {
    /// Returns the form's name on the command line.
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
    /// The function to call for a replay result that differs from the log. The result is then accepted. `None`: a
    /// difference stops the restart.
    pub accept: Option<AcceptDivergence>,
    /// The log's form for changes of key-addressed tables.
    pub log: LogForm,
    /// The form of a changed row in a logged effect.
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
