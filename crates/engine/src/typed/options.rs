//! What a program declares about typed tables.

use std::sync::Arc;

use perdura_table::Schema;
use perdura_txn::ValueForm;

use super::accept::AcceptDivergence;
use super::procedures::Registered;

/// What the log says of changes of key-addressed tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogForm {
    /// The rows that changed.
    #[default]
    Value,
    /// The procedure and its arguments; rows where a transaction is no procedure call.
    Command,
}

impl LogForm {
    /// Its name on the command line.
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
    /// Procedures that the replay of a log may call, and nothing else: the catalog gets none of them.
    pub replayed: Arc<[Registered]>,
    /// Takes the results of a replay that does something else than the log says; `None`: it stops the restart.
    pub accept: Option<AcceptDivergence>,
    /// What the log says of changes of key-addressed tables.
    pub log: LogForm,
    /// What the effect of a changed row says.
    pub form: ValueForm,
    /// Whether a call that cannot be logged as a command is refused.
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
