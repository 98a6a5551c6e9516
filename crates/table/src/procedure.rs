//! Deterministic procedures. The replay of a command log calls them again.
//!
//! A procedure may use only the database, the arguments, and the time and random numbers of the [`Cx`]. So the same
//! arguments on the same data make the same changes. It is then enough to log the procedure's name and arguments.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section III.

use std::fmt;

use perdura_base::{Error, PartitionSet};
use perdura_heap::Geometry;

use crate::args::ArgList;
use crate::column::{AsColumn, KeyType};
use crate::cx::Cx;
use crate::prefix::Columns;
use crate::table::Table;

/// A procedure. [`procedure!`](crate::procedure!) makes a type with the procedure's name and implements this trait for
/// it.
pub trait Procedure: 'static {
    /// Its name.
    const NAME: &'static str;
    /// A hash of the procedure's text without whitespace. Versions of a procedure have different hashes.
    const HASH: u64;
    /// Its arguments.
    type Args: ArgList;
    /// The result that the caller gets. It is not logged.
    type Output;

    /// Adds the partitions that the procedure will use, as far as the arguments show them. If the procedure uses a
    /// partition that was not added, it runs again, and the log gets the changed rows instead of the command.
    fn homes(args: &Self::Args, homes: &mut Homes<'_>);

    /// Runs the procedure.
    ///
    /// # Errors
    /// The error that aborts the procedure. The procedure's changes are then undone.
    fn run(cx: &mut Cx<'_, '_>, args: Self::Args) -> Result<Self::Output, Abort>;
}

/// The reason for an abort of a procedure or of another transaction on typed tables.
#[derive(Debug, thiserror::Error)]
pub enum Abort {
    /// The procedure refused, with this reason for the caller.
    #[error("{0}")]
    Refused(String),
    /// The database failed, or refused a verb.
    #[error(transparent)]
    Database(#[from] Error),
}

impl From<&str> for Abort {
    fn from(why: &str) -> Abort {
        Abort::Refused(why.to_owned())
    }
}

impl From<String> for Abort {
    fn from(why: String) -> Abort {
        Abort::Refused(why)
    }
}

/// The set of partitions that a procedure declares.
#[derive(Clone)]
pub struct Homes<'g> {
    geometry: &'g Geometry,
    set: PartitionSet,
}

impl<'g> Homes<'g> {
    /// Returns an empty set.
    #[must_use]
    pub fn new(geometry: &'g Geometry) -> Homes<'g> {
        let set = PartitionSet::empty();
        Homes { geometry, set }
    }

    /// Adds the partition of the rows with this first key column. For a replicated table, adds all partitions, because
    /// a write needs all of them. Reads of a replicated table need not be declared.
    pub fn key<T: Table>(&mut self, first: impl AsColumn<<T::Key as Columns>::First>) {
        if T::DECLARATION.replicated {
            return self.all();
        }
        let home = <T::Key as Columns>::First::home(first.as_column(), self.geometry);
        self.set.insert(home);
    }

    /// Adds the partitions of the rows with these first key columns.
    pub fn each<T: Table>(
        &mut self,
        firsts: impl IntoIterator<Item = impl AsColumn<<T::Key as Columns>::First>>,
    ) {
        for first in firsts {
            self.key::<T>(first);
        }
    }

    /// Adds all partitions.
    pub fn all(&mut self) {
        self.set = PartitionSet::all(self.geometry.partitions);
    }

    /// Returns the partitions added so far.
    #[must_use]
    pub fn partitions(&self) -> PartitionSet {
        self.set
    }
}

impl fmt::Debug for Homes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.set.iter()).finish()
    }
}

/// Returns a 64-bit FNV-1a hash of a text without its whitespace.
#[must_use]
pub const fn text_hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_whitespace() {
            // This converts the byte to a `u64`. `u64::from` cannot be used in a constant function.
            let byte = u64::from_le_bytes([bytes[at], 0, 0, 0, 0, 0, 0, 0]);
            hash = (hash ^ byte).wrapping_mul(0x0000_0100_0000_01b3);
        }
        at += 1;
    }
    hash
}

/// Declares a procedure.
///
/// ```
/// # perdura_table::table! { pub struct Account in "accounts" {
/// #     key(id: u64), owner: String, balance: i64; index by_owner(owner: String) } }
/// perdura_table::procedure! {
///     /// Moves money, and returns what is left.
///     pub fn transfer(cx, from: u64, to: u64, amount: i64) -> i64,
///     on [Account(from), Account(to)] {
///         let mut payer = cx.get::<Account>(from)?.ok_or("no such account")?;
///         if payer.balance < amount {
///             return Err("not enough".into());
///         }
///         payer.balance -= amount;
///         cx.update(&payer)?;
///         cx.modify::<Account>(to, |payee| payee.balance += amount)?;
///         Ok(payer.balance)
///     }
/// }
/// ```
///
/// `on` declares the partitions that the procedure uses. In `Table(first)`, `first` is a value of the first key column.
/// In `Table(each firsts)`, `firsts` is an iterator over values of the first key column. The procedure's arguments are
/// references in these expressions. `on all` declares all partitions. If the procedure uses a partition that is not
/// declared, it still works, but needs a second run and a longer log record.
///
/// The body returns `Result<_, Abort>`. The error is an error of the database or any text. The body must be
/// deterministic. `cx.now()` and `cx.random()` are deterministic. The system clock and the order of hash maps are not.
#[macro_export]
macro_rules! procedure {
    (@parse [$($meta:tt)*] [$vis:vis] {$text:expr}
        $name:ident($cx:ident $(, $arg:ident: $type:ty)* $(,)?) -> $output:ty,
        on all $body:block
    ) => {
        $crate::procedure!(@make [$($meta)*] [$vis] {$text} $name $cx [$($arg $type;)*] $output,
            [homes { homes.all(); }] $body);
    };
    (@parse [$($meta:tt)*] [$vis:vis] {$text:expr}
        $name:ident($cx:ident $(, $arg:ident: $type:ty)* $(,)?) -> $output:ty,
        on [$($table:ident($($first:tt)*)),* $(,)?] $body:block
    ) => {
        $crate::procedure!(@make [$($meta)*] [$vis] {$text} $name $cx [$($arg $type;)*] $output,
            [homes { $($crate::procedure_home!(homes, $table, $($first)*);)* }] $body);
    };
    (@make [$($meta:tt)*] [$vis:vis] {$text:expr} $name:ident $cx:ident
        [$($arg:ident $type:ty;)*] $output:ty, [$homes:ident $declare:block] $body:block
    ) => {
        $($meta)*
        // The type has the procedure's name, which is in lower case like a function's.
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy)]
        $vis struct $name;

        impl $crate::Procedure for $name {
            const NAME: &'static str = stringify!($name);
            const HASH: u64 = $crate::procedure::text_hash($text);
            type Args = ($($type,)*);
            type Output = $output;

            fn homes(args: &Self::Args, $homes: &mut $crate::Homes<'_>) {
                let ($($arg,)*) = args;
                let _ = ($($arg,)*);
                $declare
            }

            fn run(
                $cx: &mut $crate::Cx<'_, '_>,
                args: Self::Args,
            ) -> ::std::result::Result<Self::Output, $crate::Abort> {
                let ($($arg,)*) = args;
                $body
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis fn $($text:tt)*) => {
        $crate::procedure!(@parse [$(#[$meta])*] [$vis] {stringify!($($text)*)} $($text)*);
    };
}

/// Adds the partitions of one entry of the `on` list in [`procedure!`](crate::procedure!).
#[doc(hidden)]
#[macro_export]
macro_rules! procedure_home {
    ($homes:ident, $table:ident, each $firsts:expr) => {
        $homes.each::<$table>($firsts)
    };
    ($homes:ident, $table:ident, $first:expr) => {
        $homes.key::<$table>($first)
    };
}

#[cfg(test)]
mod tests;
