//! Procedures with erased types, for replays.

use std::fmt;

use perdura_table::{Abort, ArgList, Cx, Procedure};

/// A procedure that a program has registered.
#[derive(Clone)]
pub struct Registered {
    /// Its name.
    pub name: &'static str,
    /// Its argument types, as in `(u64,u64,i64)`.
    pub types: String,
    /// The hash of the procedure's text.
    pub hash: u64,
    run: fn(&mut Cx<'_, '_>, &[u8]) -> Result<(), Abort>,
}

impl Registered {
    /// Returns the procedure that a type implements.
    #[must_use]
    pub fn of<P: Procedure>() -> Registered {
        Registered {
            name: P::NAME,
            types: P::Args::types(),
            hash: P::HASH,
            run: |cx, args| {
                let args = P::Args::decode(args)?;
                P::run(cx, args).map(drop)
            },
        }
    }

    /// Runs the procedure with encoded arguments.
    ///
    /// # Errors
    /// The procedure's abort, or an error if the arguments cannot be decoded.
    pub fn run(&self, cx: &mut Cx<'_, '_>, args: &[u8]) -> Result<(), Abort> {
        (self.run)(cx, args)
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} {:016x}", self.name, self.types, self.hash)
    }
}
