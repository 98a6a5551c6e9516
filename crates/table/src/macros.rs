//! The macro that declares a table.

/// Declares a table: a struct for the rows, with a constant for each column and index.
///
/// ```
/// perdura_table::table! {
///     /// An account.
///     pub struct Account in "accounts", addressing = key, order = ordered {
///         key(id: u64), owner: String, balance: i64;
///         index by_owner(owner: String);
///         unique index by_number(id: u64, balance: i64)
///     }
/// }
/// perdura_table::table! {
///     /// What happened, in the order in which it happened.
///     pub struct Event in "events", order = ordered { what: String }
/// }
/// let row = Account { id: 1, owner: "Ann".into(), balance: 0 };
/// assert_eq!(row, row.clone());
/// # use perdura_table::Table;
/// # assert!(Event::KEYLESS);
/// ```
///
/// The struct derives `Debug`, `Clone` and `PartialEq`; its fields are public. Options, in any order:
/// * `addressing = key` (the default): the log contains the changed rows, or commands; or
///   `addressing = page`: the log contains the changed bytes of pages.
/// * `order = hashed` (the default): a row is found by its whole key and by the indexes; or `order = ordered`: a row is
///   also found by ranges of keys.
/// * `replicated`: each partition has a copy of each row. A read needs one partition, a write needs all. A database has
///   256 partitions unless its options say otherwise, and each partition costs a copy. So choose about as many
///   partitions as the first key column has different values.
///
/// The compiler finds mistakes, for example an index with a type that differs from its column's type:
///
/// ```compile_fail,E0080
/// perdura_table::table! {
///     struct Account in "accounts" { key(id: u64), balance: i64; index by_balance(balance: u64) }
/// }
/// # fn main() { let _ = <Account as perdura_table::Table>::NAME; }
/// ```
///
/// A `unique index` must contain the first key column, or the table must be `replicated`. Rows are compared only within
/// one partition, so other indexes cannot be kept unique:
///
/// ```compile_fail,E0080
/// perdura_table::table! {
///     struct User in "users" { key(id: u64), email: String; unique index by_email(email: String) }
/// }
/// # fn main() { let _ = <User as perdura_table::Table>::NAME; }
/// ```
///
/// The first key column determines the partition of a row. A table without `key(...)` numbers its rows: see
/// [`RowId`](crate::RowId). An index declaration repeats the types of the index's columns, and the compiler checks the
/// types.
#[macro_export]
macro_rules! table {
    (@indexes {$($table:tt)*} [$($done:tt)*]) => {
        $crate::table!(@make $($table)* [$($done)*]);
    };
    (@indexes {$($table:tt)*} [$($done:tt)*]
        unique index $name:ident($($column:ident: $type:ty),+ $(,)?) $(; $($rest:tt)*)?
    ) => {
        $crate::table!(@indexes {$($table)*}
            [$($done)* {true $name [$($column $type;)+]}] $($($rest)*)?);
    };
    (@indexes {$($table:tt)*} [$($done:tt)*]
        index $name:ident($($column:ident: $type:ty),+ $(,)?) $(; $($rest:tt)*)?
    ) => {
        $crate::table!(@indexes {$($table)*}
            [$($done)* {false $name [$($column $type;)+]}] $($($rest)*)?);
    };
    (@make [$($meta:meta)*] [$vis:vis] $name:ident $table:literal
        [$({$($option:tt)*})*] [$key:ty]
        [$({[$($kmeta:meta)*] $k:ident $kt:ty})*]
        [$({[$($cmeta:meta)*] $c:ident $ct:ty})*]
        [$({$unique:literal $index:ident [$($ic:ident $it:ty;)+]})*]
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $(
                #[doc = concat!("Key column `", stringify!($k), "`.")]
                $(#[$kmeta])*
                pub $k: $kt,
            )*
            $(
                #[doc = concat!("Column `", stringify!($c), "`.")]
                $(#[$cmeta])*
                pub $c: $ct,
            )*
        }

        // The constants have lower-case names because they have the names of columns and indexes. A program need not
        // use all of them.
        #[allow(non_upper_case_globals, dead_code)]
        impl $name {
            $(
                #[doc = concat!("Key column `", stringify!($k), "`.")]
                pub const $k: $crate::KeyColumn<$name, $kt> =
                    $crate::KeyColumn::of(stringify!($k));
            )*
            $(
                #[doc = concat!("Column `", stringify!($c), "`.")]
                pub const $c: $crate::Column<$name, $ct> = $crate::Column::of(stringify!($c));
            )*
            $(
                #[doc = concat!("Index `", stringify!($index), "`.")]
                pub const $index: $crate::Index<$name, ($($it,)+)> =
                    $crate::Index::of(stringify!($index));
            )*
        }

        const _: () = <$name as $crate::Table>::DECLARATION.check();

        impl $crate::Table for $name {
            const DECLARATION: $crate::declare::Declaration = {
                let declaration = $crate::declare::Declaration {
                    name: $table,
                    addressing: $crate::declare::Addressing::Key,
                    order: $crate::declare::Order::Hashed,
                    replicated: false,
                    key: &[$((stringify!($k), <$kt as $crate::ColumnType>::TYPE)),*],
                    columns: &[$((stringify!($c), <$ct as $crate::ColumnType>::TYPE)),*],
                    indexes: &[$($crate::declare::IndexDeclaration {
                        name: stringify!($index),
                        unique: $unique,
                        columns: &[$((stringify!($ic), <$it as $crate::ColumnType>::TYPE)),+],
                    }),*],
                };
                $(let declaration = $crate::table_option!(declaration, $($option)*);)*
                declaration
            };
            type Key = $key;

            fn schema() -> &'static $crate::Schema {
                static SCHEMA: ::std::sync::OnceLock<$crate::Schema> = ::std::sync::OnceLock::new();
                SCHEMA.get_or_init(|| $crate::Schema::new(&<$name as $crate::Table>::DECLARATION))
            }

            #[inline]
            fn hint() -> &'static ::std::sync::atomic::AtomicUsize {
                static HINT: ::std::sync::atomic::AtomicUsize =
                    ::std::sync::atomic::AtomicUsize::new(0);
                &HINT
            }

            #[inline]
            fn encode_key(&self, out: &mut $crate::KeyBytes) {
                let _ = &out;
                $(<$kt as $crate::KeyType>::put_key($crate::ColumnType::view(&self.$k), out);)*
            }

            #[inline]
            fn home(&self, geometry: &$crate::Geometry) -> Option<$crate::PartitionId> {
                let _ = geometry;
                let home = None;
                $(let home = home.or_else(|| {
                    let column = $crate::ColumnType::view(&self.$k);
                    Some(<$kt as $crate::KeyType>::home(column, geometry))
                });)*
                home
            }

            #[inline]
            fn encode_row(&self, out: &mut Vec<u8>) {
                $(if $crate::table::is_fixed::<$ct>() {
                    $crate::table::put_column::<$ct, _>(&self.$c, out);
                })*
                let mut variables = <$name as $crate::Table>::LAYOUT.variables(out);
                $(if !$crate::table::is_fixed::<$ct>() {
                    variables.put(|out| $crate::table::put_column::<$ct, _>(&self.$c, out));
                })*
                variables.finish();
            }

            #[inline]
            fn decode(key: &[u8], value: &[u8]) -> $crate::Result<Self> {
                let mut keys = $crate::table::KeyReader::new(key);
                let _ = (&mut keys, value);
                Ok($name {
                    $($k: keys.take::<$name, $kt>()?,)*
                    $($c: <$ct as $crate::ColumnType>::own(<$name>::$c.read(value)?),)*
                })
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident in $table:literal
        $(, $option:ident $(= $choice:ident)?)*
        {
            key($($(#[$kmeta:meta])* $k:ident: $kt:ty),+ $(,)?)
            $(, $($(#[$cmeta:meta])* $c:ident: $ct:ty),+)? $(,)?
            $(; $($index:tt)*)?
        }
    ) => {
        $crate::table!(@indexes {
            [$($meta)*] [$vis] $name $table [$({$option $(= $choice)?})*] [($($kt,)+)]
            [$({[$($kmeta)*] $k $kt})+]
            [$($({[$($cmeta)*] $c $ct})+)?]
        } [] $($($index)*)?);
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident in $table:literal
        $(, $option:ident $(= $choice:ident)?)*
        {
            $($(#[$cmeta:meta])* $c:ident: $ct:ty),+ $(,)?
            $(; $($index:tt)*)?
        }
    ) => {
        $crate::table!(@indexes {
            [$($meta)*] [$vis] $name $table [$({$option $(= $choice)?})*] [($crate::RowId,)]
            [] [$({[$($cmeta)*] $c $ct})+]
        } [] $($($index)*)?);
    };
}

/// An option of [`table!`](crate::table!), applied to a declaration.
#[doc(hidden)]
#[macro_export]
macro_rules! table_option {
    ($declaration:ident, addressing = key) => {
        $declaration.with_addressing($crate::declare::Addressing::Key)
    };
    ($declaration:ident, addressing = page) => {
        $declaration.with_addressing($crate::declare::Addressing::Page)
    };
    ($declaration:ident, order = hashed) => {
        $declaration.with_order($crate::declare::Order::Hashed)
    };
    ($declaration:ident, order = ordered) => {
        $declaration.with_order($crate::declare::Order::Ordered)
    };
    ($declaration:ident, replicated) => {
        $declaration.in_all_partitions()
    };
}
