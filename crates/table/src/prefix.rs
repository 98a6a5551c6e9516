//! Keys and prefixes of keys as programs write them. A prefix is one value, or a tuple of values, for the first columns
//! of a key or an index. The compiler checks the types.

use perdura_base::PartitionId;
use perdura_base::cursor::Writer;
use perdura_heap::Geometry;

use crate::column::{AsColumn, KeyType};

/// The columns of a key or an index: a tuple of their types.
pub trait Columns: 'static {
    /// The type of the first column.
    type First: KeyType;
    /// The number of columns.
    const COUNT: usize;
}

/// Values for the first columns of a key or an index. `C` is the tuple of the types of all its columns.
pub trait Prefix<C> {
    /// The number of columns with a value.
    const COUNT: usize;
    /// Appends the columns in the encoding of keys.
    fn put<W: Writer>(&self, out: &mut W);
    /// Returns the partition of rows with keys that begin with these columns; `None` if the prefix has no columns.
    fn home(&self, geometry: &Geometry) -> Option<PartitionId>;
}

/// Values for all columns of a key.
pub trait WholeKey<C>: Prefix<C> {}

/// Implements [`Prefix`] for a tuple of values. The first argument lists the columns that have a value in the tuple.
/// The second argument lists the remaining columns.
macro_rules! tuple {
    ([($a:ident $x:ident $n:tt) $(($b:ident $y:ident $m:tt))*] [$(($c:ident $z:ident $o:tt))*]) => {
        impl<$a, $x $(, $b, $y)* $(, $c)*> Prefix<($a, $($b,)* $($c,)*)> for ($x, $($y,)*)
        where
            $a: KeyType,
            $x: AsColumn<$a>,
            $($b: KeyType, $y: AsColumn<$b>,)*
            $($c: KeyType,)*
        {
            const COUNT: usize = [$n $(, $m)*].len();
            #[inline]
            fn put<W: Writer>(&self, out: &mut W) {
                $a::put_key(self.$n.as_column(), out);
                $($b::put_key(self.$m.as_column(), out);)*
            }
            #[inline]
            fn home(&self, geometry: &Geometry) -> Option<PartitionId> {
                Some($a::home(self.$n.as_column(), geometry))
            }
        }
    };
}

/// Implements [`Prefix`] for a single value, which is the value of the first column.
macro_rules! single {
    ([$($generic:ident)*] $first:ty, $given:ty, [$($c:ident)*]) => {
        impl<$($generic: KeyType,)* $($c: KeyType),*> Prefix<($first, $($c,)*)> for $given {
            const COUNT: usize = 1;
            #[inline]
            fn put<W: Writer>(&self, out: &mut W) {
                <$first as KeyType>::put_key(AsColumn::<$first>::as_column(self), out);
            }
            #[inline]
            fn home(&self, geometry: &Geometry) -> Option<PartitionId> {
                let column = AsColumn::<$first>::as_column(self);
                Some(<$first as KeyType>::home(column, geometry))
            }
        }
    };
}

/// Calls `tuple!` for each prefix of a list of columns.
macro_rules! prefixes {
    ([$($done:tt)*] []) => {};
    ([$($done:tt)*] [$next:tt $($rest:tt)*]) => {
        tuple!([$($done)* $next] [$($rest)*]);
        prefixes!([$($done)* $next] [$($rest)*]);
    };
}

/// Implements all traits for one list of columns.
macro_rules! columns {
    ($(($a:ident $x:ident $n:tt))*) => {
        prefixes!([] [$(($a $x $n))*]);
        columns!(@whole $($a $x,)*);
    };
    (@whole $a:ident $x:ident, $($b:ident $y:ident,)*) => {
        impl<$a: KeyType $(, $b: KeyType)*> Columns for ($a, $($b,)*) {
            type First = $a;
            const COUNT: usize = [stringify!($a) $(, stringify!($b))*].len();
        }
        impl<$a: KeyType, $x: AsColumn<$a> $(, $b: KeyType, $y: AsColumn<$b>)*>
            WholeKey<($a, $($b,)*)> for ($x, $($y,)*) {}
        impl<$a: KeyType $(, $b: KeyType)*> Prefix<($a, $($b,)*)> for () {
            const COUNT: usize = 0;
            fn put<W: Writer>(&self, _out: &mut W) {}
            fn home(&self, _geometry: &Geometry) -> Option<PartitionId> {
                None
            }
        }
        single!([$a] $a, $a, [$($b)*]);
        single!([$a] $a, &$a, [$($b)*]);
        single!([] String, &str, [$($b)*]);
        single!([] Vec<u8>, &[u8], [$($b)*]);
    };
}

columns!((A0 X0 0));
columns!((A0 X0 0)(A1 X1 1));
columns!((A0 X0 0)(A1 X1 1)(A2 X2 2));
columns!((A0 X0 0)(A1 X1 1)(A2 X2 2)(A3 X3 3));
columns!((A0 X0 0)(A1 X1 1)(A2 X2 2)(A3 X3 3)(A4 X4 4));
columns!((A0 X0 0)(A1 X1 1)(A2 X2 2)(A3 X3 3)(A4 X4 4)(A5 X5 5));
columns!((A0 X0 0)(A1 X1 1)(A2 X2 2)(A3 X3 3)(A4 X4 4)(A5 X5 5)(A6 X6 6));
columns!((A0 X0 0)(A1 X1 1)(A2 X2 2)(A3 X3 3)(A4 X4 4)(A5 X5 5)(A6 X6 6)(A7 X7 7));

impl<A: KeyType> WholeKey<(A,)> for A {}
impl<A: KeyType> WholeKey<(A,)> for &A {}
impl WholeKey<(String,)> for &str {}
impl WholeKey<(Vec<u8>,)> for &[u8] {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declare::INDEX_COLUMNS_MAX;

    fn bytes<C>(prefix: impl Prefix<C>) -> Vec<u8> {
        let mut out = Vec::new();
        prefix.put(&mut out);
        out
    }

    #[test]
    fn a_value_and_tuples_of_values_are_prefixes_of_a_key() {
        type Key = (u64, String, i8);
        assert!(bytes::<Key>(()).is_empty());
        let first = bytes::<Key>(5);
        assert_eq!(first, bytes::<Key>((5,)));
        let second = bytes::<Key>((5, "a"));
        assert_eq!(second, [&first[..], b"a\0\0"].concat());
        let whole = bytes::<Key>((5, "a".to_owned(), -1));
        assert_eq!(whole, [&second[..], &[0x7f]].concat());
        assert_eq!(bytes::<(String, u8)>("x"), b"x\0\0");
        assert_eq!(bytes::<(Vec<u8>,)>(&b"x"[..]), b"x\0\0");
    }

    #[test]
    fn there_are_keys_of_as_many_columns_as_are_allowed() {
        type Most = (u8, u8, u8, u8, u8, u8, u8, u8);
        assert_eq!(<Most as Columns>::COUNT, INDEX_COLUMNS_MAX);
        assert_eq!(<(u8, u8) as Prefix<Most>>::COUNT, 2);
    }

    #[test]
    fn the_first_column_decides_the_home() {
        let geometry = Geometry {
            partitions: 4,
            chunk_pages: 128,
            hash_seed: 1,
        };
        let home = |prefix: (u64, &str)| Prefix::<(u64, String)>::home(&prefix, &geometry);
        assert_eq!(home((6, "a")), Some(PartitionId(2)));
        assert_eq!(home((6, "a")), home((10, "b")));
    }
}
