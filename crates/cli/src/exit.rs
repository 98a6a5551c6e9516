//! The exit code of each family of errors.

use std::process::ExitCode;

use perdura_base::error::Family;
use perdura_server::ServeError;

use crate::output;

/// A request on the command line that cannot be fulfilled.
#[derive(Debug)]
pub struct Usage(pub String);

/// The number of damaged objects. The verb has already printed these objects on stdout.
#[derive(Debug)]
pub struct Damaged(pub usize);

/// The number of failed checks. The verb has already printed the failed checks.
#[derive(Debug)]
pub struct Violated(pub usize);

/// The number of contradictions in the data of an undamaged database. The verb has already printed the contradictions.
#[derive(Debug)]
pub struct Inconsistent(pub usize);

/// The number of receipts whose writes the database does not have. The verb has already printed the receipts.
#[derive(Debug)]
pub struct Lost(pub usize);

/// The error of a verb that left something out. The verb has already printed what is missing.
#[derive(Debug)]
pub struct Incomplete;

macro_rules! message {
    ($name:ident, $self:ident, $f:ident, $write:expr) => {
        impl std::fmt::Display for $name {
            fn fmt(&$self, $f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $write
            }
        }
        impl std::error::Error for $name {}
    };
}
message!(Usage, self, f, f.write_str(&self.0));
message!(
    Incomplete,
    self,
    f,
    f.write_str("not everything was copied")
);
message!(Damaged, self, f, write!(f, "{} problem(s) found", self.0));
message!(
    Inconsistent,
    self,
    f,
    write!(f, "{} condition(s) violated", self.0)
);
message!(Lost, self, f, write!(f, "{} receipt(s) lost", self.0));
message!(
    Violated,
    self,
    f,
    write!(f, "{} violation(s) found", self.0)
);

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const DAMAGED: u8 = 3;
const STOPPED: u8 = 4;
const FENCED: u8 = 5;

/// The kind of object that a verb works on. It decides the advice that follows an error about damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// A database.
    Database,
    /// An archive.
    Archive,
}

impl Remedy {
    fn text(self) -> &'static str {
        match self {
            Remedy::Database => {
                "nothing was changed. `perdura verify` lists all damage. `perdura repair` makes \
                 a new database of the intact part. Copy the files before you try anything \
                 else."
            }
            Remedy::Archive => {
                "the archive was not changed. `perdura archive verify` lists all damage. Try a \
                 restore from another backup (`perdura backup list`) or of an earlier moment: it \
                 may not need the damaged part."
            }
        }
    }
}

/// Reports a failure on stderr or in the log. Returns the exit code.
pub fn code(done: anyhow::Result<()>, remedy: Remedy) -> ExitCode {
    let Err(error) = done else {
        return ExitCode::SUCCESS;
    };
    if is_closed_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    let code = code_of(&error);
    debug_assert_ne!(code, 0, "an error has an exit code");
    output::error(&told_once(&error));
    match code {
        DAMAGED if !was_told(&error) => output::error(remedy.text()),
        USAGE => output::error("see --help"),
        _ => {}
    }
    ExitCode::from(code)
}

/// Returns the text of an error and its causes, without repetitions. The text of a file error may already end with the
/// text of its cause. It may also begin with the directory that the error's context names.
fn told_once(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if cause.contains(&told) {
            told = cause;
        } else if !told.ends_with(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

/// Returns whether the error says that the reader of the output has closed the pipe.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    let inner = io.and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| inner.is::<output::ReaderGone>())
}

/// Returns whether the error is a failed check of undamaged files. The verb has already printed this error.
fn was_told(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Inconsistent>().is_some() || error.downcast_ref::<Lost>().is_some()
}

fn code_of(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() {
        return USAGE;
    }
    if error.downcast_ref::<Damaged>().is_some() || was_told(error) {
        return DAMAGED;
    }
    match error.downcast_ref::<ServeError>() {
        Some(ServeError::Options(_) | ServeError::Tls(_) | ServeError::Users(_)) => return USAGE,
        Some(ServeError::Database(database)) => return code_of_core(database),
        Some(ServeError::Bind { .. } | ServeError::Loop(_)) | None => {}
    }
    error
        .downcast_ref::<perdura::Error>()
        .map_or(FAILED, code_of_core)
}

fn code_of_core(error: &perdura::Error) -> u8 {
    match (error, error.family()) {
        (perdura::Error::Usage(_), _) => USAGE,
        (perdura::Error::Stopped(_), _) => STOPPED,
        (_, Family::Corruption) => DAMAGED,
        (_, Family::Fenced) => FENCED,
        (_, Family::Caller | Family::Environment) => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn only_a_reader_of_stdout_that_has_gone_is_no_failure() {
        use std::io::{Error, ErrorKind::BrokenPipe};
        let is_quiet = |error: Error| is_closed_pipe(&anyhow::Error::new(error).context("x"));
        assert!(is_quiet(Error::new(BrokenPipe, output::ReaderGone)));
        assert!(!is_quiet(Error::from(BrokenPipe)), "a server's connection");
    }

    #[test]
    fn what_the_system_said_is_told_once() {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = anyhow::Error::new(perdura::Error::io("open", "anchor", missing()))
            .context("opening db");
        assert_eq!(
            told_once(&error),
            "opening db: open anchor: entity not found"
        );
    }

    #[test]
    fn each_family_of_errors_has_its_code_under_any_context() {
        let core = |error: perdura::Error| {
            let direct = code_of(&anyhow::Error::new(error));
            assert!((1..=5).contains(&direct));
            direct
        };
        assert_eq!(core(perdura::Error::Stopped("a sync failed".into())), 4);
        assert_eq!(core(perdura::Error::Fenced("by node b".into())), 5);
        assert_eq!(core(perdura::Error::Cancelled("a full disk".into())), 1);
        assert_eq!(core(perdura::Error::Usage("no".into())), 2);
        assert_eq!(core(perdura::Error::Locked { dir: "d".into() }), 1);
        assert_eq!(
            core(perdura::Error::Foreign {
                file: "f".into(),
                why: "w".into()
            }),
            3
        );
        let deep: anyhow::Result<()> = Err(perdura::Error::corrupt("f", 0, "a", "b", "c"))
            .context("opening")
            .context("x");
        assert_eq!(code_of(&deep.unwrap_err()), 3);
        assert_eq!(
            code_of(&anyhow::Error::new(ServeError::Options("no".into()))),
            2
        );
        assert_eq!(code_of(&anyhow::anyhow!("anything")), 1);
        assert_eq!(code_of(&anyhow::Error::new(Inconsistent(1))), 3);
        assert_eq!(code_of(&anyhow::Error::new(Lost(1))), 3);
    }
}
